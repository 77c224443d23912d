"""An audit as plain text: what `print(document)` and the terminal show."""

from collections.abc import Iterator, Sequence
from textwrap import fill

from mfairfl.display import DisplayTable
from mfairfl.report import tables
from mfairfl.report.audit_settings import AuditSettings, AuditSource
from mfairfl.report.document import BiasTable, Document, Drift
from mfairfl.report.wording import Words
from mfairfl.text import one_line

_WIDTH = 90
_THRESHOLDS = 11
_WITH_INTERVAL = ("selection_rate", "scoring_rate")  # of groups and clients
_READING = (
    "violation: largest gap between a group's rate and the overall rate; difference, ratio: "
    "between the lowest and the highest rate of groups (several attributes crossed), as "
    "fairlearn's; noise floor: the mean violation of exactly fair decisions on as many rows. "
    "`mfairfl explain WORD` says more."
)
_BOUNDS = (
    "bounds: the number lies in this range whatever the unknown groups and labels turn out to be."
)


def summary(document: Document) -> str:
    """Return what a reader should know first, then the tables.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit_document import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings, AuditSource
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> print(summary(build_audit(rows, AuditSettings())).splitlines()[0])
    Audit of decisions
    """
    return "\n\n".join("\n".join(lines) for lines in _parts(document) if lines) + "\n"


def _parts(document: Document) -> Iterator[list[str]]:
    words = Words(document.definitions)
    yield [one_line(document.headline.title), document.notice]
    yield _headline(document)
    for table in tables.overall_tables(document, words):
        yield _table(table)
    undefined = [number for number in document.overall if number.value is None]
    yield [
        *(_filled(f"{words.label(n.name)}: undefined ({n.undefined})") for n in undefined),
        _filled(_READING),
        *[_filled(_BOUNDS)] * any(number.bounds for number in document.overall),
    ]
    for section in document.sections:
        yield _table(tables.groups_tables(section, words, intervals=_WITH_INTERVAL)[0])
    if document.clients:
        yield _table(tables.clients_tables(document, words, intervals=_WITH_INTERVAL)[0])
    for bias in document.bias_tables:
        yield _bias(bias, words, document.level)
    yield [*map(_filled, sorted({bias.notes[-1] for bias in document.bias_tables}))]
    if document.sweep is not None:
        table = tables.sweep_table(document.sweep, words, most=_THRESHOLDS)
        yield [*_table(table), "sweep.csv has every threshold."]
    if document.drift is not None:
        yield _drift(document.drift, words, document.level)
    if document.settings is not None:
        yield _facts(document.settings, document.sources)


def _headline(document: Document) -> list[str]:
    head = document.headline
    lines = [*(f"warning: {warning}" for warning in head.warnings), head.what, head.verdict]
    lines += [head.unknown] if head.unknown else []
    if document.rows is not None and document.rows.left_out:
        reasons = ", ".join(f"{reason} ({n:,})" for reason, n in document.rows.left_out.items())
        lines.append(f"Left out, since there is no value to count: {reasons}.")
    return [_filled(line) for line in lines]


def _table(table: DisplayTable) -> list[str]:
    return [_filled(table.caption), table.to_text()]


def _filled(text: str) -> str:
    return fill(one_line(text, longest=4000), _WIDTH)


def _bias(bias: BiasTable, words: Words, level: float) -> list[str]:
    attributes = " × ".join(one_line(name, longest=40) for name in bias.attributes)
    return [
        f"{bias.title} ({attributes}; 6 RCNY §5-301)",
        tables.bias_table(bias, words, level).to_text(),
        *map(_filled, tables.bias_remarks(bias)[:-1]),
    ]


def _drift(drift: Drift, words: Words, level: float) -> list[str]:
    lines = [
        _filled(
            f"Since {drift.title} ({drift.audit_date}, {drift.rows_before:,} rows): "
            f"{drift.sentence}"
        )
    ]
    for what, names in (("new", drift.appeared), ("gone", drift.vanished)):
        if names:
            lines.append(_filled(f"{what}: {', '.join(names)}"))
    notable = [change for change in drift.changes if change.beyond_chance]
    if notable:
        lines.append(next(tables.drift_tables(notable, words, level)).to_text())
    return lines


def _facts(settings: AuditSettings, sources: Sequence[AuditSource]) -> list[str]:
    """Return what only the author knows, and where the rows are from."""
    facts, meaning = settings.facts, settings.meaning
    lines = [
        f"tool: {facts.tool}",
        f"audited on: {facts.audit_date}",
        f"in use since: {facts.distribution_date}",
        f"data: {facts.data_kind}; {facts.data_source}",
    ]
    if meaning.label:
        lines.append(f"favourable label: {meaning.label} = {meaning.favourable}")
    if meaning.prediction:
        lines.append(f"favourable decision: {meaning.prediction} = {meaning.selected}")
    elif meaning.threshold is not None:
        lines.append(f"favourable decision: {meaning.score} > {meaning.threshold:g}")
    for source in sources:
        lines.append(f"rows from: {source.name} ({source.rows:,} rows)")
        lines += [f"note: {note}" for note in source.notes]
    return [_filled(line) for line in lines]
