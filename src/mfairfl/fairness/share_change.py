"""How sure the change of a share is: an interval from two counts."""

from __future__ import annotations

import math

from mfairfl.fairness.uncertainty import Interval, wilson

Counted = tuple[float, float]
"""Rows that count as hits, and all rows."""


def share_change(before: Counted, after: Counted, *, level: float = 0.95) -> Interval | None:
    """Return an interval of the change of a share, None if either has no rows.

    Newcombe's hybrid score interval for independent samples (1998, method 10). If both shares are
    of the same rows and hits tend to coincide, as those of two models do, it is too wide.

    Parameters
    ----------
    before, after
        Hits and rows.
    level
        The confidence level.

    Examples
    --------
    >>> found = share_change((48, 80), (56, 70))
    >>> round(found.lower, 4), round(found.upper, 4)
    (0.0524, 0.3339)
    """
    if before[1] <= 0 or after[1] <= 0:
        return None
    old, new = before[0] / before[1], after[0] / after[1]
    old_low, old_high = map(float, wilson(*before, level))
    new_low, new_high = map(float, wilson(*after, level))
    down = math.hypot(new - new_low, old_high - old)
    up = math.hypot(new_high - new, old - old_low)
    return Interval(new - old - down, new - old + up)
