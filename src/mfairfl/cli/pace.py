"""How long work will still take: an estimate that does not jump, and is silent until it is known.

The speed is that of the work so far, the latest counting most: work and time are both summed with
weights that decay over `MEMORY` of the time gone, near the end of the time left. What is shown
counts down by itself and moves towards the new estimate only as time passes, so neither a burst of
messages nor a pause shakes it.
"""

from __future__ import annotations

import math

MEMORY = 0.5  # of the time gone, or of that left if it is less
LEAST_MEMORY = 30.0  # seconds
FOLLOWS = 0.25  # of the time left: how long what is shown takes to follow the estimate
LEAST_FOLLOWS = 5.0  # seconds
BURST = 1.0  # seconds: messages so close to one another are one step
LARGEST = 0.2  # of what is shown: no step is longer
KNOWN_AFTER = 5.0  # seconds of work
KNOWN_STEPS = 5  # that are no burst


class Pace:
    """Estimates the time left, from amounts of work and the times at which they were done.

    Parameters
    ----------
    total : float
        The work there is, in any unit.
    now : float
        When it begins; seconds of any clock.

    Examples
    --------
    >>> pace = Pace(100, now=0.0)
    >>> for second in range(1, 11):
    ...     pace.advance(2, now=second)
    >>> pace.left(10), pace.left(15)
    (40.0, 35.0)
    """

    def __init__(self, total: float, now: float) -> None:
        self._left, self._begun, self._latest, self._burst = total, now, now, now
        self._work = self._time = 0.0
        self._steps = 0
        self._shown: tuple[float, float] | None = None  # read by the thread that draws
        self._settled: tuple[float, float] | None = None  # as it was before this burst

    def skip(self, work: float) -> None:
        """Take off work that need not be done."""
        self._left -= work

    def advance(self, work: float, now: float) -> None:
        """Count work that was done up to now."""
        self._left -= work
        gone, step = now - self._begun, now - self._latest
        near = gone if self._shown is None else min(gone, self._shown[0])
        fade = math.exp(-step / max(LEAST_MEMORY, MEMORY * near))
        self._work, self._time = fade * self._work + work, fade * self._time + step
        self._latest = now
        if now - self._burst >= BURST:
            self._burst, self._settled = now, self._shown
            self._steps += 1
        if self._work <= 0 or self._steps < KNOWN_STEPS or gone < KNOWN_AFTER:
            return
        estimate = max(0.0, self._left) * self._time / self._work
        self._shown = self._followed(estimate, now), now

    def left(self, now: float) -> float | None:
        """Return the seconds left, None as long as they are not known."""
        if self._shown is None:
            return None
        value, at = self._shown
        return max(0.0, value - (now - at))

    def _followed(self, estimate: float, now: float) -> float:
        """Move what is shown towards the estimate."""
        if self._settled is None:
            return estimate
        before, at = self._settled
        expected = before - (now - at)
        share = 1.0 - math.exp(-(now - at) / max(LEAST_FOLLOWS, FOLLOWS * before))
        step = share * (estimate - expected)
        return max(0.0, expected + max(-LARGEST * before, min(LARGEST * before, step)))
