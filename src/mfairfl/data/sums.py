"""Sums from which an `Encoder` is fitted; those of shards add up to those of the pooled rows.

Every sum of floats is kept exactly, as the few floats whose sum it is (`_exact`), so the result
does not depend on how the rows are spread over shards, to the last bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.columns import Column
from mfairfl.data.preparation import require_columns
from mfairfl.data.task import Task
from mfairfl.errors import ConfigError, DataError

__all__ = ["EncoderStatistics", "NumericStatistics", "statistics"]


def _exact(terms: Iterable[float]) -> tuple[float, ...]:
    """Write the exact sum of `terms` as few floats: its rounding, the rounding of the rest, ...

    The answer depends on the sum alone, never on the order or the grouping of the terms.
    """
    rest = list(terms)
    parts: list[float] = []
    while (part := math.fsum(rest)) != 0:
        parts.append(part)
        rest.append(-part)
    return tuple(parts)


def _squares(x: npt.NDArray[np.float64]) -> list[float]:
    """Return floats that sum to Σx² exactly: each square as its rounding and its error.

    The error term follows from cutting x into two halves of at most 26 bits, whose products are
    exact (Dekker, 1971; no square over- or underflows for 1e-140 < |x| < 1e140).
    """
    shifted = x * 134217729.0  # 2^27 + 1
    high = shifted - (shifted - x)
    low = x - high
    square = x * x
    error = ((high * high - square) + 2 * high * low) + low * low
    return [*square.tolist(), *error.tolist()]


@dataclass(frozen=True, slots=True)
class NumericStatistics:
    """One numeric column: values, missing values, and the exact sums of x and of x²."""

    count: int = 0
    missing: int = 0
    total: tuple[float, ...] = ()
    squares: tuple[float, ...] = ()

    @classmethod
    def of(cls, numbers: npt.NDArray[np.float64]) -> NumericStatistics:
        """Sum a column in which nan means missing."""
        x = numbers[~np.isnan(numbers)]
        return cls(len(x), len(numbers) - len(x), _exact(x.tolist()), _exact(_squares(x)))

    def __add__(self, other: NumericStatistics) -> NumericStatistics:
        return NumericStatistics(
            self.count + other.count,
            self.missing + other.missing,
            _exact(self.total + other.total),
            _exact(self.squares + other.squares),
        )

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

    numeric: Mapping[str, NumericStatistics] = field(default_factory=dict)
    categorical: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __add__(self, other: EncoderStatistics) -> EncoderStatistics:
        for mine, theirs in (
            (self.numeric, other.numeric),
            (self.categorical, other.categorical),
        ):
            if odd := sorted(set(mine) ^ set(theirs)):
                raise DataError(
                    f"column '{odd[0]}' is in one client's statistics and not in the other's: "
                    "use one task for all clients"
                )
        return EncoderStatistics(
            {name: own + other.numeric[name] for name, own in self.numeric.items()},
            {
                name: dict(sorted((Counter(own) + Counter(other.categorical[name])).items()))
                for name, own in self.categorical.items()
            },
        )


def statistics(X: pd.DataFrame, task: Task) -> EncoderStatistics:
    """Sum up the features of some rows.

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
    columns = {c: Column("features", X[c]) for c in (*task.numeric, *task.categorical)}
    return EncoderStatistics(
        {c: NumericStatistics.of(columns[c].numbers) for c in task.numeric},
        {c: dict(sorted(Counter(columns[c].texts.tolist()).items())) for c in task.categorical},
    )
