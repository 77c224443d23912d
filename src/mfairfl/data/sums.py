"""What an encoder is fitted from: exact sums and counts over rows, and the bins agreed from them.

Sums are exact: statistics of parts add up to those of the whole, bit for bit, in any order.

For the edges of a column's bins a server proposes cuts. Every client counts its rows between them,
and names the value of the rows between two cuts if they share one. The server sums, cuts crowded
intervals finer, asks again, and derives the edges. They depend on the sums alone: however rows are
spread over clients, the edges are the same.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from mfairfl.data.columns import Column, require_columns
from mfairfl.data.task import Task
from mfairfl.data.values import Floats, Integers
from mfairfl.errors import DataError

MOST_ROWS = 2**40
"""Rows of one client: counts of thousands of clients add up exactly, as integers and floats."""

_CHUNK = 2**20  # rows summed at a time: far fewer than 2^26, and small temporary arrays
_MOST_PARTS = 64  # the 2,098 bits between the largest and the smallest float fill 40 of 53 bits

# What sums from elsewhere may hold: they are validated here alone.
_STRICT = {"extra": "forbid"}
_Count = Annotated[int, Field(strict=True, ge=0, le=MOST_ROWS)]
_Part = Annotated[float, Field(strict=True, ge=-1e300, le=1e300)]
_Parts = Annotated[tuple[_Part, ...], Field(max_length=_MOST_PARTS)]


def statistics(X: pd.DataFrame, task: Task, rows: Integers | None = None) -> EncoderStatistics:
    """Sum up the features of some rows (by position), or of all.

    Examples
    --------
    >>> task = Task(label="y", favourable=1, sensitive=("sex",), numeric=("age",),
    ...             categorical=("sex",))
    >>> sums = statistics(pd.DataFrame({"age": [30.0, 50.0], "sex": ["f", "m"]}), task)
    >>> sums.numeric["age"].mean, sums.numeric["age"].deviation, sums.categorical["sex"]
    (40.0, 10.0, {'f': 1, 'm': 1})
    """
    task.require_roles()
    require_columns(X.columns, task.features, "features")
    return EncoderStatistics(
        {c: NumericStatistics.of(Column.of(X, c, rows).numbers) for c in task.numeric or ()},
        {c: dict(sorted(Column.of(X, c, rows).counts.items())) for c in task.categorical or ()},
    )


@dataclass(frozen=True, slots=True)
class EncoderStatistics:
    """Per numeric column its sums, per categorical column how often each level occurs.

    Examples
    --------
    >>> a = EncoderStatistics(categorical={"sex": {"f": 2}})
    >>> b = EncoderStatistics(categorical={"sex": {"f": 1, "m": 4}})
    >>> (a + b).categorical
    {'sex': {'f': 3, 'm': 4}}
    """

    __pydantic_config__: ClassVar[Any] = _STRICT  # for servers, which read it from text

    numeric: Mapping[str, NumericStatistics] = field(default_factory=dict)
    categorical: Mapping[str, Mapping[str, _Count]] = field(default_factory=dict)

    def __add__(self, other: EncoderStatistics) -> EncoderStatistics:
        odd = self.numeric.keys() ^ other.numeric.keys()
        odd |= self.categorical.keys() ^ other.categorical.keys()
        if odd:
            raise DataError(
                f"column '{min(odd)}' is in one client's statistics and not in the other's: "
                "use one task for all clients"
            )
        return EncoderStatistics(
            {name: sums + other.numeric[name] for name, sums in self.numeric.items()},
            {
                name: dict(sorted((Counter(counts) + Counter(other.categorical[name])).items()))
                for name, counts in self.categorical.items()
            },
        )


@dataclass(frozen=True, slots=True)
class NumericStatistics:
    """One numeric column: values, missing values, and the exact sums of x and of x²."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    count: _Count = 0
    missing: _Count = 0
    total: _Parts = ()
    squares: _Parts = ()

    @classmethod
    def of(cls, numbers: Floats) -> NumericStatistics:
        """Sum a column in which nan means missing, and no number is beyond `LARGEST`."""
        x = numbers[~np.isnan(numbers)]
        chunks = [x[i : i + _CHUNK] for i in range(0, len(x), _CHUNK)]
        total = (part for chunk in chunks for part in _few(chunk))
        squares = (part for chunk in chunks for half in _squares(chunk) for part in _few(half))
        return cls(len(x), len(numbers) - len(x), _exact(total), _exact(squares))

    def __add__(self, other: NumericStatistics) -> NumericStatistics:
        return NumericStatistics(
            self.count + other.count,
            self.missing + other.missing,
            _exact(self.total + other.total),
            _exact(self.squares + other.squares),
        )

    @property
    def possible(self) -> bool:
        """Whether some numbers have these sums: Σx² ≥ 0 and (Σx)² ≤ n·Σx², but for rounding.

        Examples
        --------
        >>> NumericStatistics.of(np.array([3.0, 4.0])).possible
        True
        >>> NumericStatistics(count=2, total=(7.0,), squares=(24.0,)).possible
        False
        """
        total, squares = self._sum(self.total), self._sum(self.squares)
        if not self.count:
            return not total and not squares
        underflow = Fraction(self.count**2, 10**280)  # of squares of numbers below 1e-140
        return squares >= 0 and total**2 <= self.count * squares + underflow

    @property
    def mean(self) -> float:
        """The mean, correctly rounded; 0 without values."""
        return float(self._sum(self.total) / self.count) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The population standard deviation; 0 without values."""
        if not self.count:
            return 0.0
        mean = self._sum(self.total) / self.count
        variance = self._sum(self.squares) / self.count - mean * mean
        # Squares of numbers below 1e-140 underflow and may leave a negative trace.
        return math.sqrt(max(float(variance), 0.0))

    @staticmethod
    def _sum(parts: tuple[float, ...]) -> Fraction:
        return sum(map(Fraction, parts), Fraction(0))


def _exact(terms: Iterable[float]) -> tuple[float, ...]:
    """Write the exact sum of `terms` as few floats: its rounding, the rounding of the rest, ...

    The answer depends on the sum alone, never on the order or the grouping of the terms. It ends
    for any terms: each part leaves a rest of at most 2⁻⁵³ of it, and no rest is below 2⁻¹⁰⁷⁴.
    """
    remainder = list(terms)
    if not all(map(math.isfinite, remainder)):
        raise DataError("a sum of numbers that are not all finite: correct them")
    parts: list[float] = []
    try:
        while (part := math.fsum(remainder)) != 0:
            parts.append(part)
            remainder.append(-part)
    except OverflowError:
        raise DataError("a sum beyond what a float can hold: correct its numbers") from None
    return tuple(parts)


def _few(terms: Floats) -> Iterator[float]:
    """Yield a few floats with the same exact sum: two for each exponent among the terms.

    A term is an integer of 53 bits times a power of two. Its upper 26 and lower 27 bits are summed
    by exponent; 2^26 of them stay below 2^53, up to which float64 holds every integer.
    """
    mantissas, exponents = np.frexp(terms)
    digits = np.ldexp(mantissas, 53).astype(np.int64)
    lowest = int(exponents.min(initial=0))
    for shift, half in ((27, digits >> 27), (0, digits & (2**27 - 1))):
        sums = np.bincount(exponents - lowest, weights=half)
        yield from np.ldexp(
            sums, np.arange(len(sums), dtype=np.int32) + (lowest - 53 + shift)
        ).tolist()


def _squares(x: Floats) -> tuple[Floats, ...]:
    """Return arrays that sum to Σx² exactly: each square's rounding, and its error.

    The error term follows from cutting x into two halves of at most 26 bits, whose products are
    exact (Dekker, 1971; no square over- or underflows for 1e-140 < |x| < 1e140).
    """
    shifted = x * 134217729.0  # 2^27 + 1
    high = shifted - (shifted - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low


MOST_CUTS = 2**16
"""No column has more: at most 64 bins, 4 crowded intervals each, 63 new cuts in 3 rounds."""

_PARTS = 64  # into which a crowded interval is cut
_REFINEMENTS = 3
_AROUND = 2  # held intervals on either side of a value among which it may stand out
_DOMINANT = 0.35  # share of the rows there that it must hold
_MOST_DOMINANT = 64
_CROWDED = 4  # an interval with more than 1/4 of a bin's rows is cut finer


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Rows between cuts: below the first, from each to below the next, from the last upwards.

    Histograms with the same cuts add up.

    Parameters
    ----------
    cuts : ndarray (k,)
        In ascending order.
    counts : ndarray (k + 1,)
        Rows in each interval.
    values : ndarray (k + 1,)
        The value of all rows of an interval; nan if they hold several, or there are none.

    Examples
    --------
    >>> ages = np.array([17.0, 20.0, 20.0, 35.0, 36.0])
    >>> histogram = Histogram.of(ages, np.array([18.0, 30.0]))
    >>> histogram.counts.tolist(), histogram.values.tolist()
    ([1, 2, 2], [17.0, 20.0, nan])
    """

    cuts: Floats
    counts: Integers
    values: Floats

    @classmethod
    def of(cls, numbers: Floats, cuts: Floats) -> Histogram:
        """Count a column in which nan means missing."""
        x = np.sort(numbers[~np.isnan(numbers)])
        ends = np.array([0, *np.searchsorted(x, cuts), len(x)], dtype=np.int64)
        counts = np.diff(ends)
        filled = counts > 0
        values = np.full(len(counts), np.nan)
        low, high = x[ends[:-1][filled]], x[ends[1:][filled] - 1]
        values[filled] = np.where(low == high, low + 0.0, np.nan)  # + 0.0: there is one zero only
        return cls(cuts, counts, values)

    def __add__(self, other: Histogram) -> Histogram:
        same = (other.counts == 0) | (self.values == other.values)  # noqa: PD011 - no frame
        mine = np.where(same, self.values, np.nan)
        values = np.where(self.counts == 0, other.values, mine)
        return Histogram(self.cuts, self.counts + other.counts, values)

    @property
    def total(self) -> int:
        """All rows with a value."""
        return int(self.counts.sum())

    def with_floor(self, least: int) -> Histogram:
        """Count the rows of intervals with fewer than `least` in the next one; no row is lost.

        A value is disclosed only if at least that many rows hold it.
        """
        counts = np.zeros_like(self.counts)
        last, carried = len(counts) // 2, 0  # if all rows are too few: an uninformative place
        for i in np.flatnonzero(self.counts).tolist():
            carried += int(self.counts[i])
            if carried >= least:
                counts[i], last, carried = carried, i, 0
        counts[last] += carried
        # The few rows that join others do not hide the value that those hold.
        values = np.where(self.counts >= least, self.values, np.nan)
        return Histogram(self.cuts, counts, values)


def value_groups(numbers: Floats, floor: int, least: int) -> Integers:
    """Return a group of neighbouring values for each row, each of at least `floor` rows.

    A value that so many rows hold has a group of its own, but for fewer rows beside it that would
    be too few for one. Groups of several values have at least `least` rows where they can.

    Examples
    --------
    >>> value_groups(np.array([1.0, 5, 2, 2, 2, 3, 4, 9]), 3, 4).tolist()
    [0, 1, 0, 0, 0, 1, 1, 1]
    """
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    groups, group, size = np.zeros(len(counts), dtype=np.int64), 0, 0
    for i, count in enumerate(counts.tolist()):
        if count >= floor <= size:  # those before are enough without it
            group, size = group + 1, 0
        groups[i] = group
        size += count
        if count >= floor or size >= least:
            group, size = group + 1, 0
    if 0 < size < floor and group:  # the last are too few: they join those before
        groups[groups == group] = group - 1
    return np.asarray(groups[place])


def stand_in(numbers: Floats, least: int) -> tuple[float, bool]:
    """Return a number that stands for all of some, and whether it is the value of most.

    It is a value only if `least` rows hold it. Otherwise it is the number of fewest binary digits
    above the smallest and up to the middle one: where they are, and a row's value only by chance.

    Examples
    --------
    >>> stand_in(np.array([40.0, 40, 40, 41]), 3), stand_in(np.array([17.3, 19.1, 22.8]), 3)
    ((40.0, True), (18.0, False))
    """
    values, counts = np.unique(numbers, return_counts=True)
    most = int(counts.argmax())
    if counts[most] >= least and 2 * counts[most] >= len(numbers):
        return float(values[most]) + 0.0, True
    if len(values) == 1:  # too few hold it: a number beside it
        return _roundest(values[0] - max(abs(values[0]), 1.0), values[0]), False
    middle = float(np.sort(numbers)[(len(numbers) - 1) // 2])
    return _roundest(float(values[0]), middle if middle > values[0] else float(values[-1])), False


def _roundest(low: float, high: float) -> float:
    """Return the multiple of the largest power of two in (low, high]."""
    power = math.frexp(high - low)[1]
    while True:
        multiple = math.ldexp(math.floor(math.ldexp(high, -power)), power)
        if multiple > low:
            return multiple
        power -= 1


@dataclass(frozen=True, slots=True)
class Bins:
    """The edges between a column's bins, and its dominant values, both in ascending order."""

    edges: tuple[float, ...] = ()
    atoms: tuple[float, ...] = ()


Count = Callable[[Mapping[str, Floats]], Mapping[str, Histogram]]
"""Given cuts by column, return the summed histograms of all clients."""


def agree_bins(
    sums: Mapping[str, NumericStatistics], count: Count, *, bins: int, min_rows: int
) -> dict[str, Bins]:
    """Agree on the bins of all columns, in at most four exchanges.

    Examples
    --------
    >>> grades = np.repeat([1.0, 2.0, 3.0, 4.0], [5, 90, 60, 45])
    >>> sums = {"grade": NumericStatistics.of(grades)}
    >>> def count(cuts):
    ...     return {name: Histogram.of(grades, edges) for name, edges in cuts.items()}
    >>> agree_bins(sums, count, bins=4, min_rows=20)["grade"].edges
    (2.0, 3.0, 4.0)
    """
    cuts = {name: first_cuts(column) for name, column in sums.items() if column.deviation > 0}
    histograms: dict[str, Histogram] = {}
    for _ in range(1 + _REFINEMENTS):
        if not cuts:
            break
        histograms |= count(cuts)
        finer = {name: finer_cuts(histograms[name], bins=bins, min_rows=min_rows) for name in cuts}
        cuts = {name: edges for name, edges in finer.items() if edges is not None}
    return {name: bins_of(h, bins=bins, min_rows=min_rows) for name, h in histograms.items()}


def first_cuts(sums: NumericStatistics) -> Floats:
    """Return cuts around the mean, a power of two apart, and ever wider ones further out.

    The step is between 1/16 and 1/8 of the deviation. As a power of two it keeps all cuts exact,
    and whole numbers apart once it is 1. No value of n lies further than √n deviations out.

    Examples
    --------
    >>> cuts = first_cuts(NumericStatistics.of(np.arange(100.0)))
    >>> cuts[:3].tolist(), cuts[64:67].tolist(), len(cuts)
    ([-464.0, -208.0, -80.0], [44.0, 46.0, 48.0], 133)
    """
    step = math.ldexp(1.0, math.frexp(sums.deviation)[1] - 4)
    reach, furthest = [*range(65)], 16 * math.sqrt(sums.count) + 1
    while reach[-1] < furthest:
        reach.append(2 * reach[-1])
    steps = np.array([*(-k for k in reach), *reach], dtype=np.float64)
    return np.unique(math.floor(sums.mean / step) * step + steps * step)


def finer_cuts(histogram: Histogram, *, bins: int, min_rows: int) -> Floats | None:
    """Add cuts where an interval is crowded and holds several values; None if none is.

    Crowded is one that holds more than a quarter of a bin's rows. Frequent values, which get edges
    of their own, do not count: a bin may be a small share of all rows.

    Examples
    --------
    >>> histogram = Histogram.of(np.array([0.0] * 90 + [*range(1, 11)]), np.array([0.0, 64.0]))
    >>> finer_cuts(histogram, bins=4, min_rows=5)[:5].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    others = histogram.total - int(histogram.counts[_frequent(histogram, bins, min_rows)].sum())
    crowded = np.isnan(histogram.values) & (histogram.counts * bins * _CROWDED > others)
    crowded &= histogram.counts >= max(min_rows, 2)
    bounded = crowded[1:-1]
    low, high = histogram.cuts[:-1][bounded], histogram.cuts[1:][bounded]
    cuts = np.union1d(histogram.cuts, np.linspace(low, high, _PARTS + 1))
    return cuts if len(cuts) > len(histogram.cuts) else None


def bins_of(histogram: Histogram, *, bins: int, min_rows: int) -> Bins:
    """Derive edges such that no bin, and nothing beyond the outer ones, is below `min_rows`.

    The outer edges are the values with `min_rows` rows at or beyond them. Between them, as far as
    rows allow: the frequent values, most frequent first; quantiles of the other rows, or each of
    their values if there are few. Where an interval holds several values, an edge is where it
    begins.

    A column of one or two values, or of too few rows, has no bins.
    """
    filled = np.flatnonzero(histogram.counts)
    if len(filled) < 3:
        return Bins()
    rows, values = histogram.counts[filled], histogram.values[filled]  # noqa: PD011
    single = ~np.isnan(values)
    starts = np.where(single, values, np.array([-np.inf, *histogram.cuts])[filled])
    below = np.cumsum(rows) - rows
    inside = (below + single * rows >= min_rows) & (histogram.total - below >= min_rows)
    places = np.flatnonzero(inside)
    if len(places) < 2 or below[places[-1]] - below[places[0]] < min_rows:
        return Bins()
    frequent = np.searchsorted(filled, _frequent(histogram, bins, min_rows))
    edges = [int(places[0]), int(places[-1])]
    for place in [*frequent, *_quantiles(rows, frequent, bins)]:
        at = bisect.bisect_left(edges, place)
        if 0 < at < len(edges):
            before, after = below[edges[at - 1]], below[edges[at]]
            if before + min_rows <= below[place] <= after - min_rows:
                edges.insert(at, int(place))
    return Bins(tuple(starts[edges].tolist()), _dominant(rows, values, min_rows))


def _frequent(histogram: Histogram, bins: int, min_rows: int) -> Integers:
    """Return where values are that hold more than 1/`bins` of the rows not held by such values.

    The most frequent comes first; there are at most `bins`.
    """
    single = np.flatnonzero(~np.isnan(histogram.values) & (histogram.counts >= min_rows))
    ordered = single[np.argsort(-histogram.counts[single], kind="stable")][:bins]
    rows = histogram.counts[ordered]
    others = histogram.total - (np.cumsum(rows) - rows)
    enough = rows * bins > others
    return ordered[: len(ordered) if enough.all() else int(enough.argmin())]


def _dominant(rows: Integers, values: Floats, min_rows: int) -> tuple[float, ...]:
    """Return the values that stand out: with enough rows, and most of those around them.

    Around a value are the two held intervals on either side. Whole numbers that are all about
    equally frequent stand out nowhere; 40 hours a week do, and so does every gain that a tax rule
    makes frequent among gains that hardly occur.
    """
    padded = np.pad(rows, _AROUND)
    width = 2 * _AROUND + 1
    around = np.lib.stride_tricks.sliding_window_view(padded, width).sum(axis=1)
    stands_out = ~np.isnan(values) & (rows >= min_rows) & (rows >= _DOMINANT * around)
    places = np.flatnonzero(stands_out)
    most = places[np.argsort(-rows[places], kind="stable")][:_MOST_DOMINANT]
    return tuple(values[np.sort(most)].tolist())


def _quantiles(rows: Integers, frequent: Integers, bins: int) -> Integers:
    """Return at which places bins of equal size begin, in the rows that no frequent value holds.

    All places, if they are no more than `bins`.
    """
    others = rows.copy()
    others[frequent] = 0
    places = np.flatnonzero(others)
    if len(places) <= bins:
        return places
    reached = np.cumsum(others)
    begins: Integers = np.searchsorted(
        reached * bins, np.arange(1, bins) * reached[-1], side="right"
    )
    return begins
