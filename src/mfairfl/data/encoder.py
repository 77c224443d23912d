"""One-hot encoding and standardisation, fitted from sums that clients can add up, kept as JSON.

The sums are exact: statistics of parts add up to those of the whole, bit for bit, in any order.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field, ValidationError, model_validator

from mfairfl.data.columns import Column, require_columns
from mfairfl.data.task import MISSING, StrictModel, Task
from mfairfl.errors import ConfigError, DataError, first_problem, unknown

__all__ = [
    "CategoricalColumn",
    "Encoder",
    "EncoderStatistics",
    "NumericColumn",
    "NumericStatistics",
    "statistics",
]


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
        odd = (set(self.numeric) ^ set(other.numeric)) | (
            set(self.categorical) ^ set(other.categorical)
        )
        if odd:
            raise DataError(
                f"column '{min(odd)}' is in one client's statistics and not in the other's: "
                "use one task for all clients"
            )
        return EncoderStatistics(
            {name: own + other.numeric[name] for name, own in self.numeric.items()},
            {
                name: dict(sorted((Counter(own) + Counter(other.categorical[name])).items()))
                for name, own in self.categorical.items()
            },
        )


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


class NumericColumn(StrictModel):
    """A column that becomes (x − mean) / scale; `indicator` adds a 0/1 column for missing."""

    name: str
    mean: float
    scale: Annotated[float, Field(gt=0)]
    indicator: bool


class CategoricalColumn(StrictModel):
    """A column that becomes one 0/1 column per level."""

    name: str
    levels: tuple[str, ...]

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        if list(self.levels) != sorted(set(self.levels)):
            raise ValueError("levels must be sorted and distinct")
        return self


class Encoder(StrictModel):
    """How features become numbers: the same for every client, and all that prediction needs.

    Numeric columns are standardised (population standard deviation; a constant column becomes
    0), a missing number becomes the mean, that is 0, and is marked in an extra column if any was
    missing in the fit. Categorical columns are one-hot over their sorted levels.

    Examples
    --------
    >>> task = Task(label="y", favourable=1, sensitive=("sex",), numeric=("age",),
    ...             categorical=("sex",))
    >>> X = pd.DataFrame({"age": [30.0, 50.0], "sex": ["f", "m"]})
    >>> encoder = Encoder.fit(statistics(X, task), task)
    >>> encoder.feature_names
    ('age', 'sex=f', 'sex=m')
    >>> encoder.transform(X)
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]], dtype=float32)
    """

    schema_version: Literal[1] = 1
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    unknown_category: Literal["ignore", "error"]

    @classmethod
    def fit(
        cls,
        statistics: EncoderStatistics,
        task: Task,
        *,
        schema: EncoderStatistics | None = None,
        min_count: int = 1,
    ) -> Encoder:
        """Fit from (summed) statistics.

        Parameters
        ----------
        statistics
            Sums over the rows that means and scales are taken from.
        task
            The task of a table.
        schema
            Sums over all rows that will be encoded: which levels there are, and where values are
            missing. By default `statistics`.
        min_count
            Levels in fewer rows of the schema are left out, that is, encoded as all zeros like an
            unknown one.
        """
        schema = statistics if schema is None else schema
        if min_count > 1 and task.unknown_category == "error":
            raise ConfigError(
                f"min_count={min_count} leaves levels out, which unknown_category='error' would "
                "refuse: use unknown_category='ignore'"
            )
        numeric = tuple(
            NumericColumn(
                name=name,
                mean=column.mean,
                scale=column.deviation or 1.0,
                indicator=schema.numeric[name].missing > 0,
            )
            for name, column in statistics.numeric.items()
        )
        categorical = tuple(
            CategoricalColumn(
                name=name, levels=tuple(sorted(v for v, n in counts.items() if n >= min_count))
            )
            for name, counts in schema.categorical.items()
        )
        return cls(
            numeric=numeric, categorical=categorical, unknown_category=task.unknown_category
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns: numbers, missing marks (``age=?``), levels."""
        return (
            *(column.name for column in self.numeric),
            *(f"{column.name}={MISSING}" for column in self.numeric if column.indicator),
            *(f"{column.name}={level}" for column in self.categorical for level in column.levels),
        )

    def transform(self, X: pd.DataFrame) -> npt.NDArray[np.float32]:
        """Encode features (`Table.X`, or `features_frame` of new rows)."""
        needed = [*(c.name for c in self.numeric), *(c.name for c in self.categorical)]
        require_columns(X.columns, needed, "features")
        encoded = np.zeros((len(X), len(self.feature_names)), dtype=np.float32)
        indicators = iter(range(len(self.numeric), encoded.shape[1]))
        for j, fitted in enumerate(self.numeric):
            column = Column("features", X[fitted.name])
            encoded[:, j] = _standardised(column, fitted)
            if fitted.indicator:
                encoded[:, next(indicators)] = np.isnan(column.numbers)
        first = len(self.numeric) + sum(fitted.indicator for fitted in self.numeric)
        for levels in self.categorical:
            codes = self._codes(Column("features", X[levels.name]), levels)
            rows = np.flatnonzero(codes >= 0)
            encoded[rows, first + codes[rows]] = 1
            first += len(levels.levels)
        return encoded

    def _codes(self, column: Column, levels: CategoricalColumn) -> npt.NDArray[np.intp]:
        codes = pd.Index(levels.levels, dtype=object).get_indexer(
            pd.Index(column.texts, dtype=object)
        )
        strange = codes < 0
        if self.unknown_category == "error" and strange.any():
            position = int(strange.argmax())
            problem = unknown("category", column.texts[position], levels.levels)
            raise DataError(f"{column.place(position)}: {problem}: correct it or train with it")
        return codes

    def to_json(self) -> str:
        """Write as JSON; numbers keep every bit."""
        return json.dumps(self.model_dump(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, name: str = "encoder") -> Encoder:
        """Read what `to_json` wrote; `name` is what messages call it."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise DataError(
                f"{name} is not an encoder of mfairfl: {first_problem(error)}: write it again"
            ) from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write to a JSON file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Encoder:
        """Read a JSON file that `save` wrote."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}: check the path") from error
        return cls.from_json(data, name=str(path))

    @property
    def sha256(self) -> str:
        """The fingerprint: equal if and only if the encoders are equal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _standardised(column: Column, fitted: NumericColumn) -> npt.NDArray[np.float32]:
    scaled = (column.numbers - fitted.mean) / fitted.scale
    beyond = np.abs(scaled) > np.finfo(np.float32).max
    if beyond.any():
        position = int(beyond.argmax())
        raise DataError(
            f"{column.place(position)}: {column.numbers[position]:g} is beyond any scale "
            f"(mean {fitted.mean:g}, deviation {fitted.scale:g}): correct it"
        )
    return np.where(np.isnan(scaled), 0, scaled).astype(np.float32)
