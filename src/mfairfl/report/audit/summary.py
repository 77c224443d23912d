"""An audit as plain text: what `print(document)` and the terminal show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

from mfairfl.fairness.results import Bounds, Measured, Number, Section, Slice
from mfairfl.report.document import BiasTable, Document, Drift, Sweep
from mfairfl.report.wording import label_of
from mfairfl.text import aligned, one_line

_WIDTH = 90
_EVERY = 10  # edges of the score grid between rows of the sweep
_RATES = {
    "selection_rate": "selected",
    "true_positive_rate": "true pos.",
    "false_positive_rate": "false pos.",
    "accuracy": "accuracy",
    "expected_calibration_error": "calib. error",
}
_READING = (
    "violation: largest gap between a group's rate and everyone's; difference, ratio: of the "
    "lowest and the highest rate of groups (several attributes crossed), as fairlearn's; noise "
    "floor: the mean violation of exactly fair decisions on as many rows. `mfairfl explain WORD` "
    "says more."
)
_BOUNDS = (
    "bounds: between these a number is, whatever is true of the rows of which something is not "
    "known."
)


def summary(document: Document) -> str:
    """Return what a reader should know first, then the tables.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit.build import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> print(summary(build_audit(rows, AuditSettings())).splitlines()[0])
    Audit of decisions
    """
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    head = document.headline
    yield one_line(head.title)
    yield document.notice
    yield ""
    yield from (_filled(f"warning: {warning}") for warning in head.warnings)
    yield _filled(head.what)
    yield _filled(head.verdict)
    if head.unknown:
        yield _filled(head.unknown)
    if document.rows is not None and document.rows.left_out:
        said = ", ".join(f"{reason} ({n:,})" for reason, n in document.rows.left_out.items())
        yield _filled(f"Left out, since there is no value to count: {said}.")
    yield ""
    yield from _numbers(document)
    yield _filled(_READING)
    if any(one.bounds is not None for one in document.overall):
        yield _filled(_BOUNDS)
    yield ""
    yield from _groups(document.sections)
    if document.clients:
        yield ""
        yield from _clients(document)
    for table in document.bias_tables:
        yield ""
        yield from _bias(table)
    if document.bias_tables:
        yield ""
        yield from map(_filled, sorted({table.notes[-1] for table in document.bias_tables}))
    if document.sweep is not None:
        yield ""
        yield from _sweep(document.sweep)
    if document.drift is not None:
        yield ""
        yield from _drift(document.drift)
    yield ""
    yield from _facts(document)


def _filled(text: str) -> str:
    return fill(one_line(text, longest=4000), _WIDTH)


def _number(value: Number) -> str:
    return "-" if value is None else f"{value:.4f}"


def _ends(pair: Bounds) -> str:
    return "" if pair is None else f"{pair[0]:.4f} to {pair[1]:.4f}"


def _p_value(value: Number) -> str:
    return "" if value is None else "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _named(name: str) -> str:
    return one_line(name, longest=40)


def _numbers(document: Document) -> Iterator[str]:
    head = ["number", "value", f"{document.level:.0%} interval", "noise floor", "bounds"]
    chosen = document.goal
    rows = [head]
    for one in document.overall:
        mark = " *" if one.name in chosen else ""
        floor = "" if one.noise_floor is None else _number(one.noise_floor)
        rows.append(
            [
                *(label_of(one.name) + mark, _number(one.value)),
                *(_ends(one.interval), floor, _ends(one.bounds)),
            ]
        )
    yield from aligned(rows, right=[1, 3])
    for one in document.overall:
        if one.value is None:
            yield _filled(f"{label_of(one.name)}: undefined ({one.undefined})")
    yield ""


def _rate_columns(slices: Iterable[Slice]) -> dict[str, str]:
    held = {name for one in slices for name in one.numbers}
    return {name: heading for name, heading in _RATES.items() if name in held}


def _slice_row(one: Slice, columns: Iterable[str]) -> list[str]:
    missing = Measured(name="", value=None)
    return [_number(one.numbers.get(name, missing).value) for name in columns]


def _groups(sections: Sequence[Section]) -> Iterator[str]:
    slices = [group for section in sections for group in section.groups]
    columns = _rate_columns(slices)
    rows = [["attribute", "group", "rows", *columns.values(), "selected, interval", "bounds"]]
    for section in sections:
        for group in section.groups:
            selected = group.numbers["selection_rate"]
            rows.append(
                [
                    *(_named(section.attribute), _named(group.name), f"{group.rows:,}"),
                    *_slice_row(group, columns),
                    *(_ends(selected.interval), _ends(selected.bounds)),
                ]
            )
    yield from aligned(rows, right=range(2, 3 + len(columns)))


def _clients(document: Document) -> Iterator[str]:
    columns = _rate_columns(document.clients)
    goals = document.goal
    head = ["client", "rows", *columns.values(), *(label_of(goal) for goal in goals)]
    rows = [
        [_named(one.name), f"{one.rows:,}", *_slice_row(one, [*columns, *goals])]
        for one in document.clients
    ]
    yield from aligned([head, *rows], right=range(1, len(head)))


def _bias(table: BiasTable) -> Iterator[str]:
    yield f"{table.title} ({' × '.join(map(_named, table.attributes))}; 6 RCNY §5-301)"
    counted = "selected" if table.measure == "selection" else "above median"
    head = ["category", "applicants", counted, f"{table.measure} rate", "impact ratio"]
    rows = [[*head, "interval", "Fisher's p, Holm", "bounds"]]
    for row in table.rows:
        ratio = row.impact_ratio
        note = "left out" if row.left_out else _number(ratio.value)
        mark = " (under 2 %)" if row.small else ""
        rows.append(
            [
                *(_named(row.category) + mark, f"{row.applicants:,}", f"{row.selected:,}"),
                *(_number(row.rate.value), note, _ends(ratio.interval)),
                *(_p_value(row.p_holm), _ends(ratio.bounds)),
            ]
        )
    yield from aligned(rows, right=[1, 2, 3, 4, 6])
    yield f"people in unknown categories: {table.unknown:,}"
    if table.withheld:
        yield f"people whom silos withheld: at most {table.withheld:,}"
    if table.median is not None:
        yield f"median score: {table.median:g} ({table.median_kind})"
    if table.justification:
        yield _filled(f"left out because: {table.justification}")
    yield from map(_filled, table.notes[:-1])


def _sweep(found: Sweep) -> Iterator[str]:
    yield "If scores above another threshold were selected (sweep.csv has every step):"
    measures = list(found.rows[0].measures)
    head = ["threshold", "selected", "accuracy", *(label_of(name) for name in measures)]
    rows = [head]
    for row in found.rows[::_EVERY]:
        numbers = [row.selection_rate, row.accuracy, *(row.measures[name] for name in measures)]
        rows.append([f"{row.threshold:g}", *map(_number, numbers)])
    yield from aligned(rows, right=range(len(head)))


def _drift(found: Drift) -> Iterator[str]:
    yield _filled(
        f"Since {found.title} ({found.audit_date}, {found.rows_before:,} rows): {found.sentence}"
    )
    for what, names in (("new", found.appeared), ("gone", found.vanished)):
        if names:
            yield _filled(f"{what}: {', '.join(names)}")
    beyond = [row for row in found.changes if row.beyond_chance]
    if not beyond:
        return
    rows = [["whom", "number", "before", "after", "change", "interval"]]
    for row in beyond:
        whom = ": ".join(filter(None, [row.attribute, row.whom])) or "everyone"
        change = "" if row.change is None else f"{row.change:+.4f}"
        rows.append(
            [
                *(_named(whom), label_of(row.number), _number(row.before), _number(row.after)),
                *(change, _ends(row.interval)),
            ]
        )
    yield from aligned(rows, right=[2, 3, 4])


def _facts(document: Document) -> Iterator[str]:
    """State what only the author knows, and where the rows are from."""
    if document.settings is None:
        return
    facts, meaning = document.settings.facts, document.settings.meaning
    said = [
        ("tool", facts.tool),
        ("audited on", facts.audit_date),
        ("in use since", facts.distribution_date),
        ("data", f"{facts.data_kind}; {facts.data_source}"),
    ]
    if meaning.label:
        said.append(("favourable label", f"{meaning.label} = {meaning.favourable}"))
    if meaning.prediction:
        said.append(("favourable decision", f"{meaning.prediction} = {meaning.selected}"))
    elif meaning.threshold is not None:
        said.append(("favourable decision", f"{meaning.score} > {meaning.threshold:g}"))
    for source in document.sources:
        said.append(("rows from", f"{source.name} ({source.rows:,} rows)"))
        said += [("note", note) for note in source.notes]
    yield from (_filled(f"{what}: {text}") for what, text in said)
