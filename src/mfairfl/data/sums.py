"""Sums over rows that an encoder is fitted from.

The sums are exact: statistics of parts add up to those of the whole, bit for bit, in any order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field

from mfairfl.data.columns import Column, require_columns
from mfairfl.data.task import Task
from mfairfl.errors import ConfigError, DataError

MOST_ROWS = 2**40
"""Rows of one client: counts of thousands of clients add up exactly, as integers and floats."""

_CHUNK = 2**20  # rows summed at a time: far fewer than 2^26, and small temporary arrays
_LARGEST = 1e140  # of a number whose square is summed exactly
_MOST_PARTS = 64  # the 2,098 bits between the largest and the smallest float fill 40 of 53 bits

# What sums from elsewhere may hold: they are validated here alone.
_STRICT = {"extra": "forbid"}
_Count = Annotated[int, Field(strict=True, ge=0, le=MOST_ROWS)]
_Part = Annotated[float, Field(strict=True, ge=-1e300, le=1e300)]
_Parts = Annotated[tuple[_Part, ...], Field(max_length=_MOST_PARTS)]


def statistics(
    X: pd.DataFrame, task: Task, rows: npt.NDArray[np.int64] | None = None
) -> EncoderStatistics:
    """Sum up the features of some rows (by position), or of all.

    Examples
    --------
    >>> task = Task(label="y", favourable=1, sensitive=("sex",), numeric=("age",),
    ...             categorical=("sex",))
    >>> sums = statistics(pd.DataFrame({"age": [30.0, 50.0], "sex": ["f", "m"]}), task)
    >>> sums.numeric["age"].mean, sums.numeric["age"].deviation, sums.categorical["sex"]
    (40.0, 10.0, {'f': 1, 'm': 1})
    """
    if task.numeric is None or task.categorical is None:
        raise ConfigError("the task's columns have no roles yet: use the task of a table")
    require_columns(X.columns, (*task.numeric, *task.categorical), "features")
    return EncoderStatistics(
        {c: NumericStatistics.of(Column.of(X, c, rows).numbers) for c in task.numeric},
        {c: dict(sorted(Column.of(X, c, rows).counts.items())) for c in task.categorical},
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
    def of(cls, numbers: npt.NDArray[np.float64]) -> NumericStatistics:
        """Sum a column in which nan means missing."""
        x = numbers[~np.isnan(numbers)]
        if (np.abs(x) > _LARGEST).any():
            raise DataError(
                f"a number of {x[np.abs(x).argmax()]:g}: none beyond {_LARGEST:g} can be encoded; "
                "correct it or list the column in task.ignore"
            )
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


def _few(terms: npt.NDArray[np.float64]) -> Iterator[float]:
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


def _squares(x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """Return arrays that sum to Σx² exactly: each square's rounding, and its error.

    The error term follows from cutting x into two halves of at most 26 bits, whose products are
    exact (Dekker, 1971; no square over- or underflows for 1e-140 < |x| < 1e140).
    """
    shifted = x * 134217729.0  # 2^27 + 1
    high = shifted - (shifted - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low
