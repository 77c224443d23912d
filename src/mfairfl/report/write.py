"""Documents as files: the report of a run beside its page, an audit in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mfairfl.errors import ConfigError
from mfairfl.files import read_regular_file, write_atomically
from mfairfl.report.document import Document
from mfairfl.strict_json import parse_json

_SUFFIXES = (".html", ".htm")
_OURS = {"schema_version", "headline", "provenance", "definitions"}  # keys of report.json

_OPTIONAL_FILES = (
    "clients.csv",
    "sweep.csv",
    "drift.csv",
    *(
        f"bias_{name}_{measure}.csv"
        for name in ("sex", "race", "sex_race")
        for measure in ("selection", "scoring")
    ),
)
"""Files that an audit has if it has such a part."""


class ReportFiles(NamedTuple):
    """Where a report is."""

    html: Path
    json: Path
    card: Path


def report_files(out: str | Path) -> ReportFiles:
    """Name the files of a report; existing files are refused unless they are those of a report.

    Parameters
    ----------
    out : path
        The page, for example ``report.html``; report.json and report.md are put beside it.

    Examples
    --------
    >>> [path.name for path in report_files("report.html")]
    ['report.html', 'report.json', 'report.md']
    """
    page = Path(out)
    if page.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"{page}: a report is a page; let --out end in .html")
    files = ReportFiles(page, page.with_suffix(".json"), page.with_suffix(".md"))
    existing = [path for path in files if path.exists()]
    if existing and not _is_report(files.json):
        raise ConfigError(
            f"{existing[0]}: exists and is not a report of mfairfl; choose another --out"
        )
    return files


def _is_report(path: Path) -> bool:
    try:
        plain: Any = parse_json(read_regular_file(path))
    except (OSError, ValueError):
        return False
    return isinstance(plain, dict) and plain.keys() >= _OURS and plain.get("kind") != "audit"


def write_report(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    references: Sequence[str] = (),
) -> tuple[Document, ReportFiles]:
    """Write the report of a run: the page, report.json and the model card.

    Parameters
    ----------
    runs : sequence of path
        Folders of finished runs; the first is judged, the others are compared with it.
    out : path, optional
        The page; by default report.html in the first run's folder. The others lie beside it under
        the same name, with the suffixes .json and .md.
    references : sequence of str
        As in `build_report`.

    Examples
    --------
    >>> from mfairfl.report import write_report
    >>> report, files = write_report(["runs/mfairfl", "runs/fedavg"])  # doctest: +SKIP
    >>> files.html.name  # doctest: +SKIP
    'report.html'
    """
    # Loaded here: mistakes in `out` are reported before.
    from mfairfl.report.card import model_card  # noqa: PLC0415
    from mfairfl.report.page import render  # noqa: PLC0415
    from mfairfl.report.run_document import build_report  # noqa: PLC0415

    files = None if out is None else report_files(out)
    report = build_report(runs, references=references)
    first = Path(runs[0])
    folder = first.parent if first.name == "run.json" else first
    files = files or report_files(folder / "report.html")
    page, card = render(report), model_card(report)
    # The document first: with it, files of a report that was interrupted may be replaced.
    _write({files.json: report.to_json(), files.card: card, files.html: page})
    return report, files


def check_folder(folder: Path, *, replace: bool = False) -> None:
    """Refuse a path that is not a folder, or a folder with an audit that must not be replaced."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; give a folder with --out")
    if (folder / "audit.json").exists() and not replace:
        raise ConfigError(
            f"{folder}: holds an audit; choose another --out, or add --force to replace it"
        )


def write_audit(document: Document, folder: Path) -> list[Path]:
    """Write audit.json, the page and the tables; files of an earlier audit are removed.

    audit.json comes last: if it exists, the rest is complete.
    """
    from mfairfl.report.audit_csv import csv_tables  # noqa: PLC0415 - only when called
    from mfairfl.report.page import render  # noqa: PLC0415

    contents = {folder / name: text for name, text in csv_tables(document).items()}
    contents[folder / "audit.html"] = render(document)
    contents[folder / "audit.json"] = document.to_json()
    for path in (folder / name for name in _OPTIONAL_FILES):
        if path not in contents:
            path.unlink(missing_ok=True)
    _write(contents)
    return list(contents)


def _write(contents: Mapping[Path, str]) -> None:
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
