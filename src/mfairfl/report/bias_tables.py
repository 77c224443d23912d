"""Tables in the form of 6 RCNY §5-301: selection or scoring rates and impact ratios.

A ratio alone says little in a small category: beside it stand its interval, Fisher's exact test
against the highest category (Holm-corrected within the table), and the bounds over people whose
category is not known.

A scoring rate counts the scores above the sample's median. Where all rows are at hand the median
is exact. From counts on a grid it is the lowest edge with at least half the rows at or below it:
for scores that lie on edges the same rows are above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.audit_numbers import Outcomes, RateBounds, fitting
from mfairfl.fairness.rates import PROPORTIONS
from mfairfl.fairness.results import Measured, Number
from mfairfl.fairness.uncertainty import Interval, holm, wilson
from mfairfl.geometry.robust import lower_median
from mfairfl.report.audit_settings import AuditSettings
from mfairfl.report.document import BiasRow, BiasTable
from mfairfl.report.significance import Share, fisher, ratio_interval

SMALL_SHARE = 0.02
"""Categories with a smaller share of the rows may be left out of the ratios."""

_FOUR_FIFTHS = (
    "29 CFR 1607.4(D) names four fifths (0.8) as a rule of thumb; 6 RCNY §5-301 names no limit."
)
TableName = Literal["sex", "race", "sex_race"]
_TITLES: dict[TableName, str] = {
    "sex": "Sex",
    "race": "Race/ethnicity",
    "sex_race": "Sex × race/ethnicity",
}


def bias_tables(
    counts: AuditCounts, settings: AuditSettings, above_median: Selections | None = None
) -> list[BiasTable]:
    """Return the tables for the attributes that are the sex and the race/ethnicity.

    Parameters
    ----------
    above_median
        By the exact median, where all rows are at hand.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     None, [1, 0, 1, 1], sensitive_features={"sex": ["F", "F", "M", "M"]}
    ... )
    >>> (table,) = bias_tables(rows, AuditSettings(sex="sex"))
    >>> [(row.category, row.applicants, row.selected) for row in table.rows]
    [('F', 2, 1), ('M', 2, 2)]
    >>> table.rows[0].impact_ratio.value
    0.5
    """
    above_median = above_median or Selections.above_edge(counts)
    decided = Selections(counts=counts, fewest=counts, most=counts)
    columns: dict[TableName, tuple[str | None, ...]] = {
        "sex": (settings.sex,),
        "race": (settings.race,),
        "sex_race": (settings.sex, settings.race),
    }
    tables = []
    for selections in filter(None, (decided, above_median)):
        for name, named in columns.items():
            attributes = [column for column in named if column is not None]
            if len(attributes) == len(named):
                tables.append(_table(name, attributes, counts, selections, settings))
    return tables


def _table(
    name: TableName,
    attributes: Sequence[str],
    counts: AuditCounts,
    selections: Selections,
    settings: AuditSettings,
) -> BiasTable:
    rows = _compared(_categories(attributes, selections, settings), settings.level)
    left_out = any(row.left_out for row in rows)
    return BiasTable(
        name=name,
        title=f"{_TITLES[name]}: {selections.measure}",
        attributes=tuple(attributes),
        measure=selections.measure,
        rows=rows,
        unknown=int(counts.rows.sum()) - sum(row.applicants for row in rows),
        withheld=int(counts.withheld.sum()),
        median=selections.median,
        median_kind=selections.kind,
        justification=(settings.small_categories or "") * left_out,
        notes=_notes(rows),
    )


# ------------------------------------------------------------------ what counts as selected


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Selections:
    """Counts by what a table takes for selected: decisions, or scores above the median.

    Attributes
    ----------
    counts
        The counts.
    fewest, most
        The counts at the highest and at the lowest edge that the median of all rows can be, if the
        withheld ones were known; `counts` where nothing is withheld, and of decisions.
    median, kind
        The median of scores, and which one it is.

    Examples
    --------
    >>> groups = {"sensitive_features": ["F", "M", "M"]}
    >>> above = Selections.above_edge(
    ...     AuditCounts.from_rows(None, [0, 0, 1], scores=[0.1, 0.2, 0.7], **groups)
    ... )
    >>> above.median, above.counts.decided.sum(axis=(0, 1, 2)).tolist()
    (0.2, [2, 1])
    >>> Selections.above_exact([0.1, 0.2, 0.3, 0.4], lambda high: AuditCounts.from_rows(
    ...     None, high, sensitive_features=["F", "F", "M", "M"])).median
    0.25
    """

    counts: AuditCounts
    fewest: AuditCounts
    most: AuditCounts
    median: Number = None
    kind: Literal["", "sample median", "edge of the score grid"] = ""

    @classmethod
    def above_exact(
        cls, scores: Any, count: Callable[[NDArray[np.bool_]], AuditCounts]
    ) -> Selections:
        """Count scores above the median of all rows; `count` counts them by these decisions."""
        values = np.asarray(scores, dtype=np.float64)
        counts = count(values > lower_median(values))
        median = float(np.median(values))
        return cls(counts=counts, fewest=counts, most=counts, median=median, kind="sample median")

    @classmethod
    def above_edge(cls, counts: AuditCounts) -> Selections | None:
        """Count scores above the grid's median as selected; None without rows or scores."""
        if counts.grid is None or counts.scored is None or not counts.rows.any():
            return None
        below = np.cumsum(counts.scored.sum(axis=(0, 1, 2)))  # rows at or below each edge
        n, withheld = int(below[-1]), int(counts.withheld.sum())
        last = len(counts.grid.edges) - 1
        # With w more rows, i of them at or below an edge, half of n + w are there if n_≤ + i is.
        middle, low, high = (
            min(int(np.searchsorted(below, (n + more) / 2)), last)
            for more in (0, -withheld, withheld)
        )
        return cls(
            counts=counts.at_edge(middle),
            fewest=counts.at_edge(high),
            most=counts.at_edge(low),
            median=counts.grid.edges[middle],
            kind="edge of the score grid",
        )

    @property
    def measure(self) -> Literal["selection", "scoring"]:
        """Whether people were selected, or given scores."""
        return "scoring" if self.kind else "selection"

    def bounds(self, attributes: Sequence[str]) -> RateBounds:
        """Bound the rates of the categories over people who are in none, or withheld."""
        outcomes = Outcomes.of(PROPORTIONS["selection_rate"])
        grouping = self.counts.cells.grouping(*attributes)
        maybe = fitting(self.counts.cells, grouping)
        low, high = (
            RateBounds.of(counts, outcomes, grouping.membership, maybe)
            for counts in (self.fewest, self.most)
        )
        return replace(low, upper=high.upper)


# ------------------------------------------------------------------ a table


def _categories(
    attributes: Sequence[str], selections: Selections, settings: AuditSettings
) -> list[BiasRow]:
    """Return the categories with their rates, before they are compared."""
    counts, name = selections.counts, f"{selections.measure}_rate"
    grouping = counts.cells.grouping(*attributes)
    recorded = {attribute.name: attribute.recorded for attribute in counts.attributes}
    names = product(*(recorded[name] for name in attributes))  # in the order of the grouping
    people = grouping.membership.astype(np.int64) @ counts.decided.sum(axis=(0, 2))
    total, bounds = int(counts.rows.sum()), selections.bounds(attributes)
    rows = []
    for g, (groups, (refused, selected)) in enumerate(zip(names, people.tolist(), strict=True)):
        applicants = refused + selected
        share = applicants / total if total else None
        small = share is not None and share < SMALL_SHARE
        rate = Measured(
            name=name, value=None, bounds=bounds.interval(g), undefined="no person is known"
        )
        if applicants:
            lower, upper = wilson(selected, applicants, settings.level)
            known = {"value": selected / applicants, "interval": (float(lower), float(upper))}
            rate = rate.model_copy(update=known | {"undefined": ""})
        rows.append(
            BiasRow(
                category=" × ".join(groups),
                groups=groups,
                applicants=applicants,
                selected=selected,
                share=share,
                rate=rate,
                impact_ratio=Measured(name="impact_ratio", value=None),
                p_value=None,
                p_holm=None,
                highest=False,
                reference=False,
                small=small,
                left_out=small and settings.small_categories is not None,
            )
        )
    return rows


def _share(row: BiasRow) -> Share:
    return Share(row.selected, row.applicants)


def _compared(rows: Sequence[BiasRow], level: float) -> list[BiasRow]:
    """Compare each category with the one of the highest rate; of several, with the largest."""
    reference = max(
        (row for row in rows if row.applicants and not row.left_out),
        key=lambda row: (row.rate.value or 0.0, row.applicants),
        default=None,
    )
    p_values = [_p_value(row, reference) for row in rows]
    highest = math.nan if reference is None else reference.rate.value
    return [
        row.model_copy(
            update={
                "impact_ratio": _impact_ratio(row, reference, rows, level),
                "p_value": p_value,
                "p_holm": corrected,
                "highest": not row.left_out and row.rate.value == highest,
                "reference": row is reference,
            }
        )
        for row, p_value, corrected in zip(rows, p_values, holm(p_values), strict=True)
    ]


def _p_value(row: BiasRow, reference: BiasRow | None) -> Number:
    if reference is None or row is reference or row.left_out:
        return None
    return fisher(_share(row), _share(reference))


def _impact_ratio(
    row: BiasRow, reference: BiasRow | None, rows: Sequence[BiasRow], level: float
) -> Measured:
    name = "impact_ratio"
    if row.left_out:
        return Measured(name=name, value=None, undefined="left out: under 2 % of the rows")
    bounds = _ratio_bounds(row, [other for other in rows if not other.left_out])
    if not row.applicants:
        return Measured(name=name, value=None, bounds=bounds, undefined="no person is known")
    if reference is None or not reference.selected:
        return Measured(name=name, value=None, bounds=bounds, undefined="the highest rate is 0")
    share, highest = _share(row), _share(reference)
    interval = None if row is reference else ratio_interval(share, highest, level)
    return Measured(name=name, value=share.value / highest.value, interval=interval, bounds=bounds)


def _ratio_bounds(row: BiasRow, rows: Sequence[BiasRow]) -> Interval | None:
    """Bound a rate divided by the highest, from bounds of the rates; None if all are known."""
    ends = _ends(row)
    if ends is None or all(other.rate.bounds is None for other in rows):
        return None
    others = [_ends(other) or (0.0, 0.0) for other in rows if other is not row]
    most = max((upper for _, upper in others), default=0.0)
    least = max((lower for lower, _ in others), default=0.0)
    low, high = ends
    # The ratio grows with its own rate and falls with the highest of the others.
    lower = low / max(low, most) if low else 0.0
    upper = high / max(high, least) if high else 0.0
    return Interval(lower, upper)


def _ends(row: BiasRow) -> tuple[float, float] | None:
    """Return between which the rate is; None for a category that can have no members."""
    value, bounds = row.rate.value, row.rate.bounds
    return (value, value) if bounds is None and value is not None else bounds


def _notes(rows: Sequence[BiasRow]) -> list[str]:
    """Explain how to read the table."""
    notes = []
    for reference in (row for row in rows if row.reference):
        top = [row.category for row in rows if row.highest]
        tied = f" ({' and '.join(top)} have the same rate; the largest is taken)"
        notes.append(
            f"Compared with the highest rate, {reference.category}{tied * (len(top) > 1)}."
        )
    small = [row for row in rows if row.small]
    if small:
        names = ", ".join(f"{row.category} ({row.applicants:,})" for row in small)
        left_out = any(row.left_out for row in small)
        what = "left out of the ratios" if left_out else "ratios of so few people say little"
        notes.append(f"Under 2 % of the rows: {names}; {what}.")
    return [*notes, _FOUR_FIFTHS]
