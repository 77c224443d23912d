"""Documents as files: the report of a run beside its page, an audit in a folder of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mfairfl.display import DisplayTable
from mfairfl.display.tables import Entry
from mfairfl.errors import ConfigError
from mfairfl.fairness.results import Bounds, Slice
from mfairfl.files import read_regular_file, write_atomically
from mfairfl.report.document import BiasTable, Document, Drift, Sweep
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

Record = Mapping[str, Entry]
"""One row of a CSV file, by the names of the columns."""


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
    runs: Sequence[str | Path], out: str | Path | None = None, *, references: Sequence[str] = ()
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
    from mfairfl.report.reported_run import folder_of  # noqa: PLC0415
    from mfairfl.report.run_document import build_report  # noqa: PLC0415

    files = None if out is None else report_files(out)
    report = build_report(runs, references=references)
    files = files or report_files(folder_of(Path(runs[0])) / "report.html")
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
    from mfairfl.report.page import render  # noqa: PLC0415 - only when called

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


# ------------------------------------------------------------------ the tables of an audit as CSV


def csv_tables(document: Document) -> dict[str, str]:
    """Return the tables of an audit as CSV with all numbers in full, by the names of the files.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit_document import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> sorted(csv_tables(build_audit(rows, AuditSettings())))
    ['groups.csv', 'measures.csv']
    """
    groups: list[tuple[Record, Slice]] = [
        ({"attribute": section.attribute, "group": group.name}, group)
        for section in document.sections
        for group in section.groups
    ]
    files = {"measures.csv": _measures(document), "groups.csv": _slices(groups)}
    if document.clients:
        files["clients.csv"] = _slices([({"client": c.name}, c) for c in document.clients])
    for table in document.bias_tables:
        files[f"bias_{table.name}_{table.measure}.csv"] = _bias(table)
    if document.sweep is not None:
        files["sweep.csv"] = _sweep(document.sweep)
    if document.drift is not None:
        files["drift.csv"] = _drift(document.drift)
    return {name: _csv(records) for name, records in files.items()}


def _csv(records: Sequence[Record]) -> str:
    """Return records that have no column which the first lacks."""
    heads = list(records[0]) if records else []
    return DisplayTable.of(heads, [[r.get(head) for head in heads] for r in records]).to_csv()


def _ends(name: str, pair: Bounds) -> dict[str, Entry]:
    lower, upper = pair or (None, None)
    return {f"{name}_lower": lower, f"{name}_upper": upper}


def _measures(document: Document) -> list[Record]:
    """Return numbers of all rows, and what compares the groups of each attribute."""
    constant = document.constant_classifier
    numbers = [("", number, constant.get(number.name)) for number in document.overall]
    if len(document.sections) > 1:
        numbers += [
            (section.attribute, number, None)
            for section in document.sections
            for number in section.measures
        ]
    return [
        {
            "attribute": attribute,
            "number": number.name,
            "value": number.value,
            **_ends("interval", number.interval),
            "noise_floor": number.noise_floor,
            **_ends("bound", number.bounds),
            "constant_classifier": constant_value,
            "undefined": number.undefined,
        }
        for attribute, number, constant_value in numbers
    ]


def _slices(slices: Sequence[tuple[Record, Slice]]) -> list[Record]:
    """Return one record for each group or client, with up to five columns for each number."""
    numbers = [number for _, part in slices for number in part.numbers.values()]
    names = list(dict.fromkeys(number.name for number in numbers))
    with_interval = {number.name for number in numbers if number.interval is not None}
    with_bounds = {number.name for number in numbers if number.bounds is not None}
    records: list[Record] = []
    for head, part in slices:
        record: dict[str, Entry] = {**head, "rows": part.rows}
        for name in names:
            number = part.get(name)
            record[name] = number.value
            if name in with_interval:
                record |= _ends(f"{name}_interval", number.interval)
            if name in with_bounds:
                record |= _ends(f"{name}_bound", number.bounds)
        records.append(record)
    return records


def _bias(table: BiasTable) -> list[Record]:
    selected = "selected" if table.measure == "selection" else "above_median"
    rate = f"{table.measure}_rate"
    records: list[Record] = [
        {
            "category": row.category,
            "applicants": row.applicants,
            selected: row.selected,
            rate: row.rate.value,
            **_ends(rate, row.rate.interval),
            "impact_ratio": row.impact_ratio.value,
            **_ends("impact_ratio", row.impact_ratio.interval),
            "fisher_p": row.p_value,
            "holm_p": row.p_holm,
            **_ends(f"{rate}_bound", row.rate.bounds),
            **_ends("impact_ratio_bound", row.impact_ratio.bounds),
            "share": row.share,
            "under_2_percent": row.small,
            "left_out": row.left_out,
            "justification": table.justification if row.left_out else "",
        }
        for row in table.rows
    ]
    records.append({"category": "unknown category", "applicants": table.unknown})
    if table.withheld:
        records.append({"category": "withheld, at most", "applicants": table.withheld})
    return records


def _sweep(sweep: Sweep) -> list[Record]:
    return [
        {
            "threshold": row.threshold,
            "selection_rate": row.selection_rate,
            "accuracy": row.accuracy,
            **row.measures,
            **{
                f"{attribute}: {group}: {name}": value
                for attribute, groups in row.groups.items()
                for group, numbers in groups.items()
                for name, value in numbers.items()
            },
        }
        for row in sweep.rows
    ]


def _drift(drift: Drift) -> list[Record]:
    """Return every change, then the groups and clients that appeared and that vanished."""
    records: list[Record] = [
        {
            **row.model_dump(exclude={"interval", "p_holm", "beyond_chance"}),
            **_ends("interval", row.interval),
            "holm_p": row.p_holm,
            "beyond_chance": row.beyond_chance,
        }
        for row in drift.changes
    ]
    for what, names in (("appeared", drift.appeared), ("vanished", drift.vanished)):
        records += [{"part": what, "attribute": "", "whom": name} for name in names]
    return records
