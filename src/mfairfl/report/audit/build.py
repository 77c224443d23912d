"""From counts to the document of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mfairfl import __version__
from mfairfl.errors import ConfigError, require_known
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.audit_numbers import audit_table
from mfairfl.fairness.rates import CLIENT_NUMBERS, OVERALL_NUMBERS
from mfairfl.fairness.results import Measured, MetricTable
from mfairfl.fairness.scores import SCORE_NUMBERS
from mfairfl.fairness.stored_counts import StoredCounts
from mfairfl.report.audit.drift import drift_since
from mfairfl.report.audit.sweep import sweep
from mfairfl.report.audit_settings import AuditSettings, AuditSource
from mfairfl.report.bias_tables import AboveMedian, bias_tables
from mfairfl.report.definitions import defined
from mfairfl.report.document import NOTICE, Document, RowFacts
from mfairfl.report.headline import audit_headline

_FIRST = ("selection_rate", *OVERALL_NUMBERS, "base_rate", *SCORE_NUMBERS)


def build_audit(
    counts: AuditCounts,
    settings: AuditSettings,
    *,
    sources: Sequence[AuditSource] = (),
    above_median: AboveMedian | None = None,
    baseline: Document | None = None,
) -> Document:
    """Return everything that an audit says of these counts.

    Parameters
    ----------
    counts
        All rows, or those that silos told.
    settings
        What the numbers are held against, what columns and values stand for.
    sources
        Where the rows come from.
    above_median
        Rows above the exact median of the scores, where all rows are at hand; over silos the grid
        of scores gives it.
    baseline
        An earlier audit, to say what changed.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     None, [1, 0, 1, 1] * 20, sensitive_features={"sex": ["F", "F", "M", "M"] * 20}
    ... )
    >>> found = build_audit(rows, AuditSettings(tolerance=0.05))
    >>> found.headline.judgements[0].outcome, found.headline.judgements[0].measure.value
    ('not met', 0.25)
    """
    _check_attributes(counts, settings)
    table = audit_table(counts, level=settings.level)
    overall = _ordered(table, settings.notions)
    sections = [section.led_by(settings.notions) for section in table.sections]
    clients = table.clients if len(table.clients) > 1 else []
    rows = _row_facts(counts, sources)
    tables = bias_tables(counts, settings, above_median)
    document = Document(
        kind="audit",
        mfairfl=__version__,
        notice=NOTICE,
        level=settings.level,
        goal=[f"{name}_violation" for name in settings.notions],
        settings=settings,
        sources=list(sources),
        headline=audit_headline(settings, rows, table),
        rows=rows,
        overall=overall,
        constant_classifier=table.constant_classifier,
        sections=sections,
        clients=clients,
        bias_tables=tables,
        sweep=sweep(counts, settings),
        drift=None if baseline is None else drift_since(baseline, counts, settings),
        counts=StoredCounts.of(counts),
    )
    return defined(document)


def _ordered(table: MetricTable, notions: Sequence[str]) -> list[Measured]:
    """Return the numbers of all rows: rates, the chosen notions, the others, the clients'."""

    def rank(name: str) -> tuple[int, int]:
        if name in _FIRST:
            return 0, _FIRST.index(name)
        notion = name.rpartition("_")[0]
        if notion in notions:
            return 1, notions.index(notion)
        return (3 if name in CLIENT_NUMBERS else 2), 0

    several = len(table.clients) > 1
    names = [name for name in table.overall if several or name not in CLIENT_NUMBERS]
    return [table[name] for name in sorted(names, key=rank)]


def _check_attributes(counts: AuditCounts, settings: AuditSettings) -> None:
    known = [attribute.name for attribute in counts.attributes]
    if not known:
        raise ConfigError("audit: no sensitive attribute; name one column or more")
    named = [name for name in (settings.sex, settings.race) if name is not None]
    require_known("sensitive attribute", named, known)


def _row_facts(counts: AuditCounts, sources: Sequence[AuditSource]) -> RowFacts:
    rows = counts.rows
    by_cell = rows.sum(axis=(0, 2))
    left_out: Counter[str] = Counter()
    for source in sources:
        left_out.update(source.left_out)
    return RowFacts(
        counted=int(rows.sum()),
        labelled=counts.tally().n,
        unknown_group={
            grouping.name: int(by_cell[~grouping.compared].sum())
            for grouping in counts.cells.groupings()
        },
        withheld={
            name: n for name, n in zip(counts.clients, counts.withheld.tolist(), strict=True) if n
        },
        left_out=dict(left_out),
    )
