"""Whether two rates differ by more than chance: exact tests, corrections, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from mfairfl.fairness.uncertainty import Interval

_HALVINGS = 200  # of an interval of the logarithm: to the last digit of a float


class Share(NamedTuple):
    """So many of so many."""

    hits: int
    rows: int

    @property
    def value(self) -> float:
        """The rate; nan without rows."""
        return self.hits / self.rows if self.rows else math.nan


def fisher(one: Share, other: Share) -> float | None:
    """Return Fisher's exact p, two-sided, that two rates are equal; None if one has no rows.

    Examples
    --------
    >>> round(fisher(Share(1, 10), Share(6, 10)), 6)
    0.057276
    """
    if not one.rows or not other.rows:
        return None
    from scipy.stats import fisher_exact  # noqa: PLC0415 - slow to load

    table = np.array([[hits, rows - hits] for hits, rows in (one, other)])
    return min(float(fisher_exact(table).pvalue), 1.0)


def ratio_interval(one: Share, other: Share, level: float = 0.95) -> Interval | None:
    """Return Koopman's (1984) score interval of the ratio of two independent rates.

    It keeps its level for small groups and for a rate of 0, where a logarithm has no variance.
    None if a group has no rows, or if no row of the other group is a hit: then no limit is known.

    Examples
    --------
    >>> found = ratio_interval(Share(36, 40), Share(16, 80))
    >>> round(found.lower, 2), round(found.upper, 2)
    (2.94, 7.15)
    """
    if not one.rows or not other.rows or not other.hits:
        return None
    limit = float(ndtri(0.5 + level / 2.0)) ** 2
    estimate = one.value / other.value

    def far(ratio: float) -> bool:
        return _score(one, other, ratio) > limit

    lower = 0.0 if not one.hits else _crossing(far, estimate, downwards=True)
    return Interval(lower, _crossing(far, estimate or other.value / other.rows, downwards=False))


def _score(one: Share, other: Share, ratio: float) -> float:
    """Return the squared score statistic of "the first rate is `ratio` times the second"."""
    a = (one.rows + other.rows) * ratio
    b = -(ratio * (one.rows + other.hits) + one.hits + other.rows)
    c = one.hits + other.hits
    # Of both forms of the root the one without cancellation.
    second = min(2.0 * c / (-b + math.sqrt(max(b * b - 4.0 * a * c, 0.0))), 1.0)
    first = min(ratio * second, 1.0)
    spread = first * (1.0 - first) / one.rows + ratio**2 * second * (1.0 - second) / other.rows
    gap = (one.value - ratio * other.value) ** 2
    return gap / spread if spread > 0 else (math.inf if gap > 0 else 0.0)


def _crossing(far: Callable[[float], bool], start: float, *, downwards: bool) -> float:
    """Return where a test that accepts `start` begins to reject, going down or up."""
    inside, step = math.log(start), -1.0 if downwards else 1.0
    while not far(math.exp(inside + step)):
        inside, step = inside + step, 2.0 * step
    outside = inside + step
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2.0
        if far(math.exp(middle)):
            outside = middle
        else:
            inside = middle
    return math.exp(inside)


def mover(before: float, around: Interval, after: float, limits: Interval) -> Interval:
    """Return an interval of `after` − `before` from those of two independent numbers.

    Square-and-add of the distances to the limits (Newcombe 1998; Zou and Donner 2008).

    Examples
    --------
    >>> found = mover(0.5, Interval(0.2, 0.9), 0.7, Interval(0.3, 0.8))
    >>> round(found.upper, 9)  # 0.2 + √(0.1² + 0.3²)
    0.516227766
    """
    change = after - before
    return Interval(
        change - math.hypot(after - limits.lower, around.upper - before),
        change + math.hypot(limits.upper - after, before - around.lower),
    )
