"""The tables of an audit as rows of cells, for CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mfairfl.fairness.results import Bounds, Measured, Slice
from mfairfl.report.document import BiasTable, Document, Drift, Sweep
from mfairfl.text import csv_text

Cell = str | float | int | bool | None


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A table with a heading."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        """Return the table as CSV in which no cell is a formula."""
        return csv_text(self.head, self.rows)


def csv_tables(document: Document) -> dict[str, CsvTable]:
    """Return the tables of an audit by the names of their files.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit.build import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> sorted(csv_tables(build_audit(rows, AuditSettings())))
    ['groups.csv', 'measures.csv']
    """
    groups = [(one.attribute, group) for one in document.sections for group in one.groups]
    found = {"measures.csv": _measures(document), "groups.csv": _slices("group", groups)}
    if document.clients:
        found["clients.csv"] = _slices("client", [("", one) for one in document.clients])
    for table in document.bias_tables:
        found[f"bias_{table.name}_{table.measure}.csv"] = _bias(table)
    if document.sweep is not None:
        found["sweep.csv"] = _sweep(document.sweep)
    if document.drift is not None:
        found["drift.csv"] = _drift(document.drift)
    return found


_ENDS = ("lower", "upper")


def _ends(pair: Bounds) -> tuple[Cell, Cell]:
    return (None, None) if pair is None else (pair[0], pair[1])


def _measures(document: Document) -> CsvTable:
    """Numbers of all rows, and what compares the groups of each attribute."""
    head = ["attribute", "number", "value", "interval_lower", "interval_upper", "noise_floor"]
    head += ["bound_lower", "bound_upper", "constant_classifier", "undefined"]
    constant = document.constant_classifier
    parts = [("", one, constant.get(one.name)) for one in document.overall]
    if len(document.sections) > 1:
        parts += [
            (part.attribute, one, None) for part in document.sections for one in part.measures
        ]
    rows = [
        [
            *(attribute, one.name, one.value),
            *(*_ends(one.interval), one.noise_floor, *_ends(one.bounds)),
            *(other, one.undefined),
        ]
        for attribute, one, other in parts
    ]
    return CsvTable(head, rows)


def _slices(kind: str, slices: Sequence[tuple[str, Slice]]) -> CsvTable:
    """One row for each group or client, with three to five columns for each number."""
    names = list(dict.fromkeys(name for _, one in slices for name in one.numbers))
    held = [one.numbers[name] for _, one in slices for name in one.numbers]
    ranged = {one.name for one in held if one.interval is not None}
    bounded = {one.name for one in held if one.bounds is not None}
    head = ["attribute"] * (kind == "group") + [kind, "rows"]
    for name in names:
        head.append(name)
        head += [f"{name}_interval_{end}" for end in _ENDS if name in ranged]
        head += [f"{name}_bound_{end}" for end in _ENDS if name in bounded]
    rows = []
    for attribute, one in slices:
        row: list[Cell] = [attribute] if kind == "group" else []
        row += [one.name, one.rows]
        for name in names:
            number = one.numbers.get(name) or Measured(name=name, value=None)
            row.append(number.value)
            row += _ends(number.interval) if name in ranged else ()
            row += _ends(number.bounds) if name in bounded else ()
        rows.append(row)
    return CsvTable(head, rows)


def _bias(table: BiasTable) -> CsvTable:
    counted = "selected" if table.measure == "selection" else "above_median"
    rate = f"{table.measure}_rate"
    head = ["category", "applicants", counted, rate, f"{rate}_lower", f"{rate}_upper"]
    head += ["impact_ratio", "impact_ratio_lower", "impact_ratio_upper", "fisher_p", "holm_p"]
    head += [f"{rate}_bound_lower", f"{rate}_bound_upper"]
    head += ["impact_ratio_bound_lower", "impact_ratio_bound_upper"]
    head += ["share", "under_2_percent", "left_out", "justification"]
    rows: list[list[Cell]] = [
        [
            *(row.category, row.applicants, row.selected),
            *(row.rate.value, *_ends(row.rate.interval)),
            *(row.impact_ratio.value, *_ends(row.impact_ratio.interval)),
            *(row.p_value, row.p_holm),
            *(*_ends(row.rate.bounds), *_ends(row.impact_ratio.bounds)),
            *(row.share, row.small, row.left_out),
            table.justification if row.left_out else "",
        ]
        for row in table.rows
    ]
    for name, people in (
        ("unknown category", table.unknown),
        ("withheld, at most", table.withheld),
    ):
        if people or name.startswith("unknown"):
            rows.append([name, people, *[None] * (len(head) - 2)])
    return CsvTable(head, rows)


def _sweep(found: Sweep) -> CsvTable:
    measures = list(found.rows[0].measures)
    places = [
        (attribute, group, name)
        for attribute, groups in found.rows[0].groups.items()
        for group, numbers in groups.items()
        for name in numbers
    ]
    head = ["threshold", "selection_rate", "accuracy", *measures]
    head += [f"{attribute}: {group}: {name}" for attribute, group, name in places]
    rows = [
        [row.threshold, row.selection_rate, row.accuracy]
        + [row.measures[name] for name in measures]
        + [row.groups[attribute][group][name] for attribute, group, name in places]
        for row in found.rows
    ]
    return CsvTable(head, rows)


def _drift(found: Drift) -> CsvTable:
    head = ["part", "attribute", "whom", "number", "before", "after", "change"]
    head += ["interval_lower", "interval_upper", "holm_p", "beyond_chance"]
    rows = [
        [
            *(row.part, row.attribute, row.whom, row.number),
            *(row.before, row.after, row.change, *_ends(row.interval)),
            *(row.p_holm, row.beyond_chance),
        ]
        for row in found.changes
    ]
    return CsvTable(head, [*rows, *_moved(found, len(head))])


def _moved(found: Drift, width: int) -> Iterator[list[Cell]]:
    """Name who came and who went."""
    for what, names in (("appeared", found.appeared), ("vanished", found.vanished)):
        for name in names:
            yield [what, "", name, *[None] * (width - 3)]
