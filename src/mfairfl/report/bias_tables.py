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

from mfairfl.errors import ConfigError, DataError
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
    counts: AuditCounts, settings: AuditSettings, above_median: AboveMedian | None = None
) -> list[BiasTable]:
    """Return the tables for the attributes that are the sex and the race/ethnicity.

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
    sex, race = settings.sex, settings.race
    attributes: dict[TableName, tuple[str, ...]] = {}
    if sex is not None:
        attributes["sex"] = (sex,)
    if race is not None:
        attributes["race"] = (race,)
    if sex is not None and race is not None:
        attributes["sex_race"] = (sex, race)
    if not attributes:
        return []
    selections = [Selections(counts=counts, fewest=counts, most=counts)]
    if (above := above_the_median(counts, above_median)) is not None:
        selections.append(above)
    return [
        _table(name, columns, selected, settings)
        for selected in selections
        for name, columns in attributes.items()
    ]


# ------------------------------------------------------------------ what counts as selected


@dataclass(frozen=True, slots=True, eq=False)
class AboveMedian:
    """The exact median of all scores, and the rows above it by client, cell and label (K, C, 3).

    Examples
    --------
    >>> groups = {"sensitive_features": ["F", "F", "M", "M"]}
    >>> exact = AboveMedian.of([0.1, 0.2, 0.3, 0.4], lambda above: AuditCounts.from_rows(
    ...     None, above, **groups))
    >>> exact.median, exact.rows[0, :, 2].tolist()
    (0.25, [0, 2])
    """

    median: float
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, scores: Any, count: Callable[[NDArray[np.bool_]], AuditCounts]) -> AboveMedian:
        """Find the median; `count` counts the same rows with other decisions."""
        values = np.asarray(scores, dtype=np.float64)
        above = values > lower_median(values)
        return cls(float(np.median(values)), count(above).decided[..., 1])


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
    """

    counts: AuditCounts
    fewest: AuditCounts
    most: AuditCounts
    median: Number = None
    kind: Literal["", "sample median", "edge of the score grid"] = ""

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


def above_the_median(counts: AuditCounts, exact: AboveMedian | None = None) -> Selections | None:
    """Count scores above their median as selected; None without rows or scores.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     None, [0, 0, 1], sensitive_features=["F", "M", "M"], scores=[0.1, 0.2, 0.7]
    ... )
    >>> above = above_the_median(rows)
    >>> above.median, above.counts.decided.sum(axis=(0, 1, 2)).tolist()
    (0.2, [2, 1])
    """
    if exact is not None:
        return _above_exact_median(counts, exact)
    if counts.grid is None or counts.scored is None or not counts.rows.any():
        return None
    below = np.cumsum(counts.scored.sum(axis=(0, 1, 2)))  # rows at or below each edge
    n, withheld = int(below[-1]), int(counts.withheld.sum())
    edges = counts.grid.edges

    def edge(rows: float) -> int:
        return min(int(np.searchsorted(below, rows)), len(edges) - 1)

    # With w more rows, i of them at or below an edge, half of n + w are there if n_≤ + i is.
    middle, low, high = (edge((n + more) / 2) for more in (0, -withheld, withheld))
    return Selections(
        counts=counts.at_edge(middle),
        fewest=counts.at_edge(high),
        most=counts.at_edge(low),
        median=edges[middle],
        kind="edge of the score grid",
    )


def _above_exact_median(counts: AuditCounts, exact: AboveMedian) -> Selections:
    if counts.withheld.any():
        raise ConfigError("audit: an exact median needs all rows, and some are withheld")
    if exact.rows.shape != counts.rows.shape or (exact.rows > counts.rows).any():
        raise DataError("audit: rows above the median are counted on other rows than decisions")
    split = replace(counts, decided=np.stack([counts.rows - exact.rows, exact.rows], axis=-1))
    return Selections(
        counts=split, fewest=split, most=split, median=exact.median, kind="sample median"
    )


# ------------------------------------------------------------------ a table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Category:
    """One category before it is compared with others."""

    groups: tuple[str, ...]
    share: Share
    bounds: Interval | None
    part: float | None
    left_out: bool

    @property
    def name(self) -> str:
        return " × ".join(self.groups)

    @property
    def small(self) -> bool:
        return self.part is not None and self.part < SMALL_SHARE

    @property
    def may_have_people(self) -> bool:
        return self.share.rows > 0 or self.bounds is not None

    @property
    def compared(self) -> bool:
        return self.share.rows > 0 and not self.left_out

    @property
    def ends(self) -> Interval:
        """The bounds of the rate; nan of a category that can have no members."""
        return self.bounds or Interval(self.share.value, self.share.value)


def _table(
    name: TableName, attributes: tuple[str, ...], selections: Selections, settings: AuditSettings
) -> BiasTable:
    counts, measure = selections.counts, selections.measure
    categories = _categories(attributes, selections, settings)
    # The highest rate; of several the largest category, then the first.
    reference = max(
        (category for category in categories if category.compared),
        key=lambda category: (category.share.value, category.share.rows),
        default=None,
    )
    return BiasTable(
        name=name,
        title=f"{_TITLES[name]}: {measure}",
        attributes=attributes,
        measure=measure,
        rows=_rows(categories, reference, f"{measure}_rate", settings.level),
        unknown=int(counts.rows.sum()) - sum(category.share.rows for category in categories),
        withheld=int(counts.withheld.sum()),
        median=selections.median,
        median_kind=selections.kind,
        justification=(settings.small_categories or "")
        * any(category.left_out for category in categories),
        notes=_notes(categories, reference),
    )


def _categories(
    attributes: tuple[str, ...], selections: Selections, settings: AuditSettings
) -> list[_Category]:
    counts = selections.counts
    people = counts.decided.sum(axis=(0, 2))  # (C, 2)
    total = int(people.sum())
    grouping = counts.cells.grouping(*attributes)
    recorded = {attribute.name: attribute.recorded for attribute in counts.attributes}
    names = product(*(recorded[name] for name in attributes))  # in the order of the grouping
    tables = (grouping.membership.astype(np.int64) @ people).tolist()
    bounds = selections.bounds(attributes)
    categories = []
    for g, (groups, (refused, selected)) in enumerate(zip(names, tables, strict=True)):
        category = _Category(
            groups=groups,
            share=Share(selected, refused + selected),
            bounds=bounds.interval(g),
            part=(refused + selected) / total if total else None,
            left_out=False,
        )
        left_out = settings.small_categories is not None and category.small
        categories.append(replace(category, left_out=left_out))
    return categories


def _rows(
    categories: Sequence[_Category], reference: _Category | None, rate: str, level: float
) -> list[BiasRow]:
    p_values = [
        fisher(category.share, reference.share)
        if reference is not None and category is not reference and category.compared
        else None
        for category in categories
    ]
    highest = _highest(categories, reference)
    return [
        BiasRow(
            category=category.name,
            groups=category.groups,
            applicants=category.share.rows,
            selected=category.share.hits,
            share=category.part,
            rate=_rate(category, rate, level),
            impact_ratio=_impact_ratio(category, reference, categories, level),
            p_value=p_value,
            p_holm=corrected,
            highest=category in highest,
            reference=category is reference,
            small=category.small,
            left_out=category.left_out,
        )
        for category, p_value, corrected in zip(categories, p_values, holm(p_values), strict=True)
    ]


def _highest(categories: Sequence[_Category], reference: _Category | None) -> list[_Category]:
    """Return the categories whose rate is that of the reference."""
    return [
        category
        for category in categories
        if reference is not None
        and category.compared
        and category.share.value == reference.share.value
    ]


def _rate(category: _Category, name: str, level: float) -> Measured:
    share, bounds = category.share, category.bounds
    if not share.rows:
        return Measured(name=name, value=None, bounds=bounds, undefined="no person is known")
    lower, upper = wilson(share.hits, share.rows, level)
    return Measured(
        name=name, value=share.value, interval=(float(lower), float(upper)), bounds=bounds
    )


def _impact_ratio(
    category: _Category,
    reference: _Category | None,
    categories: Sequence[_Category],
    level: float,
) -> Measured:
    name, share = "impact_ratio", category.share
    if category.left_out:
        return Measured(name=name, value=None, undefined="left out: under 2 % of the rows")
    bounds = _ratio_bounds(category, [other for other in categories if not other.left_out])
    if not share.rows:
        return Measured(name=name, value=None, bounds=bounds, undefined="no person is known")
    if reference is None or not reference.share.hits:
        return Measured(name=name, value=None, bounds=bounds, undefined="the highest rate is 0")
    interval = None if category is reference else ratio_interval(share, reference.share, level)
    value = share.value / reference.share.value
    return Measured(name=name, value=value, interval=interval, bounds=bounds)


def _ratio_bounds(category: _Category, compared: Sequence[_Category]) -> Interval | None:
    """Bound a rate divided by the highest, from bounds of the rates; None if all are known."""
    if all(other.bounds is None for other in compared):
        return None
    low, high = category.ends
    if math.isnan(low):
        return None
    others = [x.ends for x in compared if x is not category and x.may_have_people]
    most = max((upper for _, upper in others), default=0.0)
    least = max((lower for lower, _ in others), default=0.0)
    # The ratio grows with its own rate and falls with the highest of the others.
    lower = low / max(low, most) if low else 0.0
    upper = high / max(high, least) if high else 0.0
    return Interval(lower, upper)


def _notes(categories: Sequence[_Category], reference: _Category | None) -> list[str]:
    """Explain how to read the table."""
    notes = []
    if reference is not None:
        top = [category.name for category in _highest(categories, reference)]
        tied = f" ({' and '.join(top)} have the same rate; the largest is taken)"
        notes.append(f"Compared with the highest rate, {reference.name}{tied * (len(top) > 1)}.")
    small = [category for category in categories if category.small]
    if small:
        names = ", ".join(f"{category.name} ({category.share.rows:,})" for category in small)
        left_out = any(category.left_out for category in small)
        what = "left out of the ratios" if left_out else "ratios of so few people say little"
        notes.append(f"Under 2 % of the rows: {names}; {what}.")
    return [*notes, _FOUR_FIFTHS]
