"""What other thresholds on the scores would give."""

from __future__ import annotations

import math

import numpy as np

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.audit_numbers import needs_label
from mfairfl.fairness.notions import notion
from mfairfl.fairness.rates import (
    KINDS,
    PROPORTIONS,
    group_measure,
    measured_groupings,
    pooled_table,
)
from mfairfl.fairness.results import Number, Numbers
from mfairfl.fairness.tally import Tally
from mfairfl.report.audit_settings import AuditSettings
from mfairfl.report.document import Sweep, SweepRow


def sweep(counts: AuditCounts, settings: AuditSettings) -> Sweep | None:
    """Return the numbers of the chosen notions at every edge of the grid; None without scores.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     [0, 1], [0, 1], sensitive_features=["F", "M"], scores=[0.3, 0.6]
    ... )
    >>> found = sweep(rows, AuditSettings())
    >>> len(found.rows), found.rows[50].threshold, found.rows[50].accuracy
    (101, 0.5, 1.0)
    """
    if counts.grid is None:
        return None
    labelled = counts.tally().n > 0
    return Sweep(
        rows=[
            _row(edge, counts.at_edge(place), settings, labelled=labelled)
            for place, edge in enumerate(counts.grid.edges)
        ],
        used=settings.meaning.threshold,
    )


def _row(edge: float, counts: AuditCounts, settings: AuditSettings, *, labelled: bool) -> SweepRow:
    known, everyone = counts.tally(), counts.selections()
    measures: Numbers = {}
    for item in map(notion, settings.notions):
        if needs_label(item) and not labelled:
            continue
        tally = known if needs_label(item) else everyone
        for kind in KINDS:
            compared = measured_groupings(counts.cells, kind)
            value, _ = group_measure(kind, item, tally.counts, compared)
            measures[f"{item.name}_{kind}"] = _defined(value)
    return SweepRow(
        threshold=edge,
        selection_rate=_overall("selection_rate", everyone),
        accuracy=_overall("accuracy", known),
        measures=measures,
        groups=_groups(known, everyone, labelled=labelled),
    )


def _groups(
    known: Tally, everyone: Tally, *, labelled: bool
) -> dict[str, dict[str, dict[str, Number]]]:
    """Return the rates of each attribute's groups."""
    sources = {"selection_rate": everyone}
    if labelled:
        sources |= {"true_positive_rate": known, "false_positive_rate": known}
    tables = {name: tally.counts.sum(axis=0).astype(np.float64) for name, tally in sources.items()}
    found: dict[str, dict[str, dict[str, Number]]] = {}
    for grouping in known.cells.groupings():
        found[grouping.name] = {
            group: {
                name: _defined(float(PROPORTIONS[name].value(table[members].sum(axis=0))))
                for name, table in tables.items()
            }
            for group, members in zip(grouping.groups, grouping.membership, strict=True)
        }
    return found


def _overall(name: str, tally: Tally) -> Number:
    return _defined(float(PROPORTIONS[name].value(pooled_table(tally.counts))))


def _defined(value: float) -> Number:
    return None if math.isnan(value) else value
