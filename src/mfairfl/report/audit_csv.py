"""The tables of an audit as CSV files: all numbers, in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mfairfl.display import DisplayTable
from mfairfl.display.tables import Entry
from mfairfl.fairness.results import Bounds, Measured, Slice
from mfairfl.report.document import BiasTable, Document, Drift, Sweep

Record = Mapping[str, Entry]
"""One row of a file, by the names of the columns."""


def csv_tables(document: Document) -> dict[str, str]:
    """Return the tables of an audit as CSV, by the names of their files.

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
            number = part.numbers.get(name) or Measured(name=name, value=None)
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
