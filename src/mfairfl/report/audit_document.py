"""From counts to the document of an audit, with what other thresholds would give."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mfairfl import __version__
from mfairfl.errors import ConfigError, require_known
from mfairfl.fairness import rates
from mfairfl.fairness.audit_counts import AuditCounts, StoredCounts
from mfairfl.fairness.audit_numbers import audit_table, needs_label
from mfairfl.fairness.notions import Notion, notion
from mfairfl.fairness.results import Measured, MetricTable, Number, Numbers
from mfairfl.fairness.scores import SCORE_NUMBERS
from mfairfl.report.audit_settings import AuditSettings, AuditSource
from mfairfl.report.bias_tables import Selections, bias_tables
from mfairfl.report.document import NOTICE, Document, RowFacts, Sweep, SweepRow
from mfairfl.report.drift import drift_since
from mfairfl.report.headline import audit_headline
from mfairfl.report.wording import defined

_FIRST = ("selection_rate", *rates.OVERALL_NUMBERS, "base_rate", *SCORE_NUMBERS)


def build_audit(
    counts: AuditCounts,
    settings: AuditSettings,
    *,
    sources: Sequence[AuditSource] = (),
    above_median: Selections | None = None,
    baseline: Document | None = None,
) -> Document:
    """Return everything that an audit says of these counts.

    Parameters
    ----------
    counts
        Of all rows, or of those that silos did not withhold.
    settings
        What the numbers are held against, what columns and values stand for.
    sources
        Where the rows come from.
    above_median
        By the exact median of the scores, where all rows are at hand; over silos the grid of
        scores gives it.
    baseline
        An earlier audit, to say what changed.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     None, [1, 0, 1, 1] * 20, sensitive_features={"sex": ["F", "F", "M", "M"] * 20}
    ... )
    >>> (judgement,) = build_audit(rows, AuditSettings(tolerance=0.05)).headline.judgements
    >>> judgement.outcome, judgement.measure.value
    ('not met', 0.25)
    """
    attributes = [attribute.name for attribute in counts.attributes]
    if not attributes:
        raise ConfigError("audit: no sensitive attribute; name one column or more")
    named = [name for name in (settings.sex, settings.race) if name is not None]
    require_known("sensitive attribute", named, attributes)
    table = audit_table(counts, level=settings.level)
    rows = _row_facts(counts, sources)
    drift = None
    if baseline is not None:
        drift = drift_since(baseline, counts, settings.meaning, settings.level)
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
        overall=_ordered(table, settings.notions),
        constant_classifier=table.constant_classifier,
        sections=[section.led_by(settings.notions) for section in table.sections],
        clients=table.clients if len(table.clients) > 1 else [],
        bias_tables=bias_tables(counts, settings, above_median),
        sweep=sweep(counts, settings),
        drift=drift,
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
        return (3 if name in rates.CLIENT_NUMBERS else 2), 0

    several = len(table.clients) > 1
    names = [name for name in table.overall if several or name not in rates.CLIENT_NUMBERS]
    return [table[name] for name in sorted(names, key=rank)]


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


# ------------------------------------------------------------------ other thresholds


def sweep(counts: AuditCounts, settings: AuditSettings) -> Sweep | None:
    """Return the numbers of the chosen notions at every edge of the grid; None without scores.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     [0, 1], [0, 1], sensitive_features=["F", "M"], scores=[0.3, 0.6]
    ... )
    >>> thresholds = sweep(rows, AuditSettings())
    >>> len(thresholds.rows), thresholds.rows[50].threshold, thresholds.rows[50].accuracy
    (101, 0.5, 1.0)
    """
    if counts.grid is None:
        return None
    labelled = counts.tally().n > 0
    notions = [n for n in map(notion, settings.notions) if labelled or not needs_label(n)]
    in_groups = ["selection_rate", *["true_positive_rate", "false_positive_rate"] * labelled]
    rows = [
        _at_threshold(edge, counts.at_edge(place), notions, in_groups)
        for place, edge in enumerate(counts.grid.edges)
    ]
    return Sweep(rows=rows, used=settings.meaning.threshold)


def _at_threshold(
    threshold: float, counts: AuditCounts, notions: Sequence[Notion], in_groups: Sequence[str]
) -> SweepRow:
    """Return the numbers if scores above a threshold were selected, as `counts` has them."""
    labelled, everyone = counts.tally(), counts.selections()
    cells = {True: everyone.counts.sum(axis=0), False: labelled.counts.sum(axis=0)}

    def rate(name: str, members: NDArray[np.bool_] | slice = slice(None)) -> Number:
        table = cells[name == "selection_rate"][members].sum(axis=0).astype(np.float64)
        return _defined(float(rates.PROPORTIONS[name].value(table)))

    measures: Numbers = {}
    for item in notions:
        tally = labelled if needs_label(item) else everyone
        for kind in rates.KINDS:
            compared = rates.measured_groupings(counts.cells, kind)
            value, _ = rates.group_measure(kind, item, tally.counts, compared)
            measures[f"{item.name}_{kind}"] = _defined(value)
    return SweepRow(
        threshold=threshold,
        selection_rate=rate("selection_rate"),
        accuracy=rate("accuracy"),
        measures=measures,
        groups={
            grouping.name: {
                group: {name: rate(name, members) for name in in_groups}
                for group, members in zip(grouping.groups, grouping.membership, strict=True)
            }
            for grouping in counts.cells.groupings()
        },
    )


def _defined(value: float) -> Number:
    return None if math.isnan(value) else value
