"""Whether two rates differ by more than chance: exact tests, corrections, intervals."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from mfairfl.fairness import rates
from mfairfl.fairness.results import Number
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import Interval

Place = tuple[Literal["all", "group", "client"], str, str]
"""Of whom a number is: part, attribute of a group, name of a group or client."""

_HALVINGS = 200  # of an interval of the logarithm: to the last digit of a float


class Share(NamedTuple):
    """So many of so many."""

    hits: int
    rows: int

    @property
    def value(self) -> float:
        """The rate; nan without rows."""
        return self.hits / self.rows if self.rows else math.nan


def tables_by_place(tally: Tally) -> dict[Place, Any]:
    """Return label × decision of everyone, of each group and of each client.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0], [1, 1], sensitive_features=["F", "M"])
    >>> tables_by_place(tally)["all", "", ""].tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    tables: dict[Place, Any] = {("all", "", ""): rates.pooled_table(tally.counts)}
    for place, table in rates.tables_by_place(tally).items():
        if place[0] == "group":
            tables["group", place[1], place[2]] = table
        else:
            tables["client", "", place[1]] = table
    return tables


def difference(before: Number, after: Number) -> Number:
    """Return by how much a number changed; None if it was or is undefined."""
    return None if before is None or after is None else after - before


def fisher(first: Share, second: Share) -> float | None:
    """Return Fisher's exact p, two-sided, that two rates are equal; None if one has no rows.

    Examples
    --------
    >>> round(fisher(Share(1, 10), Share(6, 10)), 6)
    0.057276
    """
    if not first.rows or not second.rows:
        return None
    from scipy.stats import fisher_exact  # noqa: PLC0415 - slow to load

    table = np.array([[hits, rows - hits] for hits, rows in (first, second)])
    return min(float(fisher_exact(table).pvalue), 1.0)


def ratio_interval(first: Share, second: Share, level: float = 0.95) -> Interval | None:
    """Return Koopman's (1984) score interval of the ratio of two independent rates.

    It keeps its level for small groups and for a rate of 0, where a logarithm has no variance.
    None if a group has no rows, or if no row of the second group is a hit: then no limit is known.

    Examples
    --------
    >>> interval = ratio_interval(Share(36, 40), Share(16, 80))
    >>> round(interval.lower, 2), round(interval.upper, 2)
    (2.94, 7.15)
    """
    if not first.rows or not second.rows or not second.hits:
        return None
    limit = float(ndtri(0.5 + level / 2.0)) ** 2
    estimate = first.value / second.value

    def far(ratio: float) -> bool:
        return _score(first, second, ratio) > limit

    lower = 0.0 if not first.hits else _crossing(far, estimate, downwards=True)
    return Interval(lower, _crossing(far, estimate or second.value / second.rows, downwards=False))


def _score(first: Share, second: Share, ratio: float) -> float:
    """Return the squared score statistic of "the first rate is `ratio` times the second"."""
    a = (first.rows + second.rows) * ratio
    b = -(ratio * (first.rows + second.hits) + first.hits + second.rows)
    c = first.hits + second.hits
    # Of both forms of the root the one without cancellation.
    q = min(2.0 * c / (-b + math.sqrt(max(b * b - 4.0 * a * c, 0.0))), 1.0)
    p = min(ratio * q, 1.0)
    spread = p * (1.0 - p) / first.rows + ratio**2 * q * (1.0 - q) / second.rows
    gap = (first.value - ratio * second.value) ** 2
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
    >>> interval = mover(0.5, Interval(0.2, 0.9), 0.7, Interval(0.3, 0.8))
    >>> round(interval.upper, 9)  # 0.2 + √(0.1² + 0.3²)
    0.516227766
    """
    change = after - before
    return Interval(
        change - math.hypot(after - limits.lower, around.upper - before),
        change + math.hypot(limits.upper - after, before - around.lower),
    )
