"""From numbers to places on a chart: ranges, round ticks, the width of a text."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_APART = 1e-9  # what is nearer is one place
_NARROW = frozenset("fijlrtIJ .,:;!|'`-()[]{}/\\·")
_WIDE = frozenset("mwMW@%…—→")


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale: `low` lies at `start`, `high` at `end`.

    Examples
    --------
    >>> Scale(low=0.0, high=1.0, start=10.0, end=110.0).at(0.25)
    35.0
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def fitted(
    values: Iterable[float | None],
    start: float,
    end: float,
    *,
    zero: bool = False,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Scale:
    """Return a scale that shows all values, with a little room around them.

    Parameters
    ----------
    values
        None are left out.
    start, end
        Where the scale begins and ends.
    zero
        Whether it must contain zero.
    bounds
        What no value can exceed; there is no room beyond.

    Examples
    --------
    >>> fitted([0.2, None, 0.4], 0, 100, bounds=(0, 1))
    Scale(low=0.19, high=0.41, start=0, end=100)
    >>> fitted([], 0, 100)
    Scale(low=0.0, high=1.0, start=0, end=100)
    """
    known = [float(value) for value in values if value is not None]
    if zero or not known:
        known.append(0.0)
    low, high = min(known), max(known)
    if high - low <= _APART * max(1.0, abs(low)):  # one value in the middle, zero at the edge
        nothing = abs(low) <= _APART
        room = 1.0 if nothing else abs(low) / 10
        low, high = (low, low + room) if zero or nothing else (low - room, high + room)
    else:
        room = (high - low) / 20
        low, high = (low if zero and low == 0 else low - room), high + room
    low, high = max(low, bounds[0]), min(high, bounds[1])
    return Scale(round(low, 12), round(high, 12), start, end)


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers between two values, `most` at most if there are that few.

    Examples
    --------
    >>> ticks(0.19, 0.41)
    [0.2, 0.3, 0.4]
    >>> ticks(0, 40, most=5)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for step in (factor * power * ten for ten in (1, 10) for factor in _STEPS):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]
    return []


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is in a wide sans-serif, which few fonts exceed.

    Examples
    --------
    >>> text_width("abc", 10.0), text_width("ill", 10.0), text_width("日本", 10.0)
    (18.6, 11.1, 20.0)
    """
    return round(size * sum(map(_width, text)), 6)


def _width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.37
    if character in _WIDE:
        return 0.94
    return 0.72 if character.isupper() else 0.62


def shortened(text: str, width: float, size: float) -> str:
    """Return the text, cut with an ellipsis where it is wider than `width`.

    Examples
    --------
    >>> shortened("Amsterdam", 40.0, 10.0), shortened("Ams", 40.0, 10.0)
    ('Amst…', 'Ams')
    """
    if text_width(text, size) <= width:
        return text
    kept = text
    while kept and text_width(kept + "…", size) > width:
        kept = kept[:-1]
    return kept.rstrip() + "…"
