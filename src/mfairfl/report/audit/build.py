"""From counts to the document of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mfairfl import __version__
from mfairfl.errors import ConfigError, require_known
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.report.audit.drift import drift_since
from mfairfl.report.audit.measured import client_numbers, everyone_numbers, section_numbers
from mfairfl.report.audit.number_bounds import number_bounds
from mfairfl.report.audit.numbers import evaluate_counts, measured_notions
from mfairfl.report.audit.stored_counts import StoredCounts
from mfairfl.report.audit.sweep import sweep
from mfairfl.report.audit_settings import AuditSettings, AuditSource
from mfairfl.report.bias_tables import AboveMedian, bias_tables
from mfairfl.report.definitions import defined
from mfairfl.report.document import NOTICE, Document, RowFacts
from mfairfl.report.headline import audit_headline


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
    found = evaluate_counts(counts, level=settings.level)
    bounds = number_bounds(counts, measured_notions(counts))
    overall = everyone_numbers(found, bounds, settings.notions, clients=len(counts.clients) > 1)
    sections = section_numbers(found, bounds, settings.notions)
    clients = client_numbers(found, bounds)
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
        headline=audit_headline(settings, rows, found, overall, sections),
        rows=rows,
        overall=overall,
        constant_classifier=found.constant_classifier,
        sections=sections,
        clients=clients,
        bias_tables=tables,
        sweep=sweep(counts, settings),
        drift=None if baseline is None else drift_since(baseline, counts, settings),
        counts=StoredCounts.of(counts),
    )
    return defined(document)


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
