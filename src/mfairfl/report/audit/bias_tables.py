"""Tables in the form of 6 RCNY §5-301: selection or scoring rates and impact ratios.

A ratio alone says little in a small category: beside it stand its interval, Fisher's exact test
against the highest category (Holm-corrected within the table), and the bounds over people whose
category is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.rates import PROPORTIONS
from mfairfl.fairness.results import Measured
from mfairfl.fairness.uncertainty import Interval, holm, wilson
from mfairfl.report.audit.bounds import Outcomes, RateBounds, fitting
from mfairfl.report.audit.medians import AboveMedian, MedianSplit, split_at_median
from mfairfl.report.audit.significance import Share, fisher, ratio_interval
from mfairfl.report.audit_settings import AuditSettings
from mfairfl.report.document import BiasRow, BiasTable

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
    wanted: dict[TableName, tuple[str, ...]] = {}
    if sex is not None:
        wanted["sex"] = (sex,)
    if race is not None:
        wanted["race"] = (race,)
    if sex is not None and race is not None:
        wanted["sex_race"] = (sex, race)
    if not wanted:
        return []
    return [
        _table(name, attributes, decided, settings)
        for decided in _decided(counts, split_at_median(counts, above_median))
        for name, attributes in wanted.items()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Decided:
    """What is counted as selected: decisions, or scores above the median."""

    counts: AuditCounts
    fewest: AuditCounts
    most: AuditCounts
    split: MedianSplit | None = None

    @property
    def rate(self) -> str:
        """What the rate is called."""
        return "selection_rate" if self.split is None else "scoring_rate"

    def bounds(self, grouping: Grouping) -> RateBounds:
        """Bound the rates of the categories over people who are in none, or withheld."""
        what = Outcomes.of(PROPORTIONS["selection_rate"])
        maybe = fitting(self.counts.cells, grouping)
        low, high = (
            RateBounds.of(counts, what, grouping.membership, maybe)
            for counts in (self.fewest, self.most)
        )
        return replace(low, upper=high.upper)


def _decided(counts: AuditCounts, split: MedianSplit | None) -> Iterator[_Decided]:
    yield _Decided(counts, counts, counts)
    if split is not None:
        yield _Decided(split.counts, split.fewest, split.most, split)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Category:
    """One category before it is compared with others."""

    groups: tuple[str, ...]
    share: Share
    bounds: Interval | None
    part: float | None
    left_out: bool

    @property
    def small(self) -> bool:
        return self.part is not None and self.part < SMALL_SHARE

    @property
    def may_have_people(self) -> bool:
        return self.share.rows > 0 or self.bounds is not None

    @property
    def compared(self) -> bool:
        return self.share.rows > 0 and not self.left_out


def _table(
    name: TableName, attributes: tuple[str, ...], decided: _Decided, settings: AuditSettings
) -> BiasTable:
    counts, split = decided.counts, decided.split
    found = _categories(attributes, decided, settings)
    reference = _reference(found)
    return BiasTable(
        name=name,
        title=f"{_TITLES[name]}: {'selection' if split is None else 'scoring'}",
        attributes=attributes,
        measure="selection" if split is None else "scoring",
        rows=_rows(found, reference, decided.rate, settings.level),
        unknown=int(counts.rows.sum()) - sum(one.share.rows for one in found),
        withheld=int(counts.withheld.sum()),
        median=None if split is None else split.median,
        median_kind="" if split is None else split.kind,
        justification=(settings.small_categories or "") * any(one.left_out for one in found),
        notes=_notes(found, reference),
    )


def _categories(
    attributes: tuple[str, ...], decided: _Decided, settings: AuditSettings
) -> list[_Category]:
    counts = decided.counts
    people = counts.decided.sum(axis=(0, 2))  # (C, 2)
    total = int(people.sum())
    grouping = counts.cells.grouping(*attributes)
    known = {attribute.name: attribute.recorded for attribute in counts.attributes}
    names = product(*(known[name] for name in attributes))  # in the order of the grouping
    tables = (grouping.membership.astype(np.int64) @ people).tolist()
    bounds = decided.bounds(grouping)
    found = []
    for g, (groups, (refused, selected)) in enumerate(zip(names, tables, strict=True)):
        rows = refused + selected
        part = rows / total if total else None
        leave = settings.small_categories is not None and part is not None and part < SMALL_SHARE
        found.append(
            _Category(
                groups=groups,
                share=Share(selected, rows),
                bounds=bounds.interval(g),
                part=part,
                left_out=leave,
            )
        )
    return found


def _reference(found: Sequence[_Category]) -> _Category | None:
    """Return the category with the highest rate; of several the largest, then the first."""
    compared = [one for one in found if one.compared]
    return max(compared, key=lambda one: (one.share.value, one.share.rows), default=None)


def _rows(
    found: Sequence[_Category], reference: _Category | None, rate: str, level: float
) -> list[BiasRow]:
    tested = [
        fisher(one.share, reference.share)
        if reference is not None and one is not reference and one.compared
        else None
        for one in found
    ]
    return [
        BiasRow(
            category=" × ".join(one.groups),
            groups=one.groups,
            applicants=one.share.rows,
            selected=one.share.hits,
            share=one.part,
            rate=_rate(one, rate, level),
            impact_ratio=_impact_ratio(one, reference, found, level),
            p_value=p_value,
            p_holm=corrected,
            highest=one.compared and one.share.value == (reference or one).share.value,
            reference=one is reference,
            small=one.small,
            left_out=one.left_out,
        )
        for one, p_value, corrected in zip(found, tested, holm(tested), strict=True)
    ]


def _rate(one: _Category, name: str, level: float) -> Measured:
    if not one.share.rows:
        return Measured(name=name, value=None, bounds=one.bounds, undefined="nobody is known")
    lower, upper = wilson(one.share.hits, one.share.rows, level)
    return Measured(
        name=name,
        value=one.share.value,
        interval=(float(lower), float(upper)),
        bounds=one.bounds,
    )


def _impact_ratio(
    one: _Category, reference: _Category | None, found: Sequence[_Category], level: float
) -> Measured:
    name = "impact_ratio"
    if one.left_out:
        return Measured(name=name, value=None, undefined="left out: under 2 % of the rows")
    bounds = _ratio_bounds(one, [other for other in found if not other.left_out])
    if not one.share.rows:
        return Measured(name=name, value=None, bounds=bounds, undefined="nobody is known")
    if reference is None or not reference.share.hits:
        return Measured(name=name, value=None, bounds=bounds, undefined="the highest rate is 0")
    interval = None if one is reference else ratio_interval(one.share, reference.share, level)
    value = one.share.value / reference.share.value
    return Measured(name=name, value=value, interval=interval, bounds=bounds)


def _ratio_bounds(one: _Category, compared: Sequence[_Category]) -> Interval | None:
    """Bound a rate divided by the highest, from bounds of the rates; None if all are known."""
    if all(other.bounds is None for other in compared):
        return None
    low, high = _ends(one)
    if math.isnan(low):
        return None
    rest = [_ends(other) for other in compared if other is not one and other.may_have_people]
    most = max((upper for _, upper in rest), default=0.0)
    least = max((lower for lower, _ in rest), default=0.0)
    # The ratio grows with the own rate and falls with the highest of the others.
    lower = low / max(low, most) if low else 0.0
    upper = high / max(high, least) if high else 0.0
    return Interval(lower, upper)


def _ends(one: _Category) -> Interval:
    """Return the bounds of a rate; nan of a category that nobody can be in."""
    value = one.share.value
    return one.bounds or Interval(value, value)


def _notes(found: Sequence[_Category], reference: _Category | None) -> list[str]:
    """Say how to read the table."""
    notes = []
    if reference is not None:
        top = [one for one in found if one.compared and one.share.value == reference.share.value]
        tied = " and ".join(" × ".join(one.groups) for one in top)
        same = f" ({tied} have the same rate; the largest is taken)" if len(top) > 1 else ""
        notes.append(f"Compared with the highest rate, {' × '.join(reference.groups)}{same}.")
    small = [f"{' × '.join(one.groups)} ({one.share.rows:,})" for one in found if one.small]
    if small:
        left = any(one.left_out for one in found)
        what = "left out of the ratios" if left else "ratios of so few people say little"
        notes.append(f"Under 2 % of the rows: {', '.join(small)}; {what}.")
    return [*notes, _FOUR_FIFTHS]
