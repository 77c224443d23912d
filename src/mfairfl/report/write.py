"""The files of a report: a page, the same as JSON, and a model card, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mfairfl.errors import ConfigError
from mfairfl.files import read_regular_file, write_atomically
from mfairfl.report.document import Document
from mfairfl.strict_json import parse_json

_SUFFIXES = (".html", ".htm")
_OURS = {"schema_version", "headline", "provenance", "definitions"}  # keys of report.json


class ReportFiles(NamedTuple):
    """Where a report is."""

    html: Path
    json: Path
    card: Path


def report_files(out: str | Path) -> ReportFiles:
    """Name the files of a report, and refuse to write over anything else.

    Parameters
    ----------
    out : path
        The page, for example ``report.html``; report.json and report.md are put beside it. They
        may exist only if they are those of an earlier report.

    Examples
    --------
    >>> [path.name for path in report_files("report.html")]
    ['report.html', 'report.json', 'report.md']
    """
    page = Path(out)
    if page.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"{page}: a report is a page; let --out end in .html")
    files = ReportFiles(page, page.with_suffix(".json"), page.with_suffix(".md"))
    found = [path for path in files if path.exists()]
    if found and not _is_report(files.json):
        raise ConfigError(f"{found[0]}: exists and is no report of mfairfl; choose another --out")
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
    # Loaded here: whether files may be written is known before.
    from mfairfl.report.build import build_report  # noqa: PLC0415
    from mfairfl.report.card import model_card  # noqa: PLC0415
    from mfairfl.report.page import render  # noqa: PLC0415

    files = None if out is None else report_files(out)
    report = build_report(runs, references=references)
    first = Path(runs[0])
    folder = first.parent if first.name == "run.json" else first
    files = files or report_files(folder / "report.html")
    page, card = render(report), model_card(report)
    files.html.parent.mkdir(parents=True, exist_ok=True)
    # The document first: with it, files of a report that was interrupted may be replaced.
    write_atomically(files.json, report.to_json().encode())
    write_atomically(files.card, card.encode())
    write_atomically(files.html, page.encode())
    return report, files
