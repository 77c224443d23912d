"""How features become numbers: fitted from sums that clients can add up, kept as JSON."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field, ValidationError, model_validator

from mfairfl.data.columns import Column, require_columns
from mfairfl.data.sums import Bins, Count, EncoderStatistics, agree_bins
from mfairfl.data.task import Task
from mfairfl.data.values import (
    MISSING,
    DocumentedModel,
    Floats,
    Integers,
    StrictModel,
    canonical_text,
)
from mfairfl.errors import DataError, first_problem, unknown

SmallFloats = npt.NDArray[np.float32]

NO_INPUT = -1
"""The code of a row whose category has no input: all inputs of its column are 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A model's inputs of some rows, one-hot columns held as indices where an encoder says so.

    Parameters
    ----------
    numbers : ndarray, float32 (n, d)
        The first d inputs.
    codes : ndarray, int32 (n, g)
        For each of g one-hot columns, the number of the input that is 1 (from d up to width − 1),
        or `NO_INPUT`. Without such columns (g = 0) `numbers` has all inputs.
    width : int
        Number of the model's inputs.

    Examples
    --------
    >>> rows = Inputs(np.array([[0.5], [2.0]], np.float32), np.array([[3], [-1]], np.int32), 4)
    >>> rows.dense()
    array([[0.5, 0. , 0. , 1. ],
           [2. , 0. , 0. , 0. ]], dtype=float32)
    >>> rows[1:].dense()
    array([[2., 0., 0., 0.]], dtype=float32)
    """

    numbers: SmallFloats
    codes: npt.NDArray[np.int32]
    width: int

    @classmethod
    def of(cls, X: Inputs | SmallFloats) -> Inputs:
        """Return a dense array of all inputs, (n, width), as `Inputs`, without a copy."""
        if isinstance(X, Inputs):
            return X
        return cls(X, np.empty((len(X), 0), np.int32), X.shape[1])

    @property
    def layout(self) -> tuple[int, int, int]:
        """What must be equal for rows to be joined: d, g and width."""
        return self.numbers.shape[1], self.codes.shape[1], self.width

    @property
    def nbytes(self) -> int:
        """The memory that the rows take."""
        return self.numbers.nbytes + self.codes.nbytes

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.numbers)

    def __getitem__(self, rows: slice | Integers) -> Inputs:
        """Return consecutive rows as views, or a copy of the rows at some positions."""
        return Inputs(self.numbers[rows], self.codes[rows], self.width)

    def dense(self) -> SmallFloats:
        """Return all inputs, (n, width): `numbers` itself, or a new array if there are codes."""
        if not self.codes.shape[1]:
            return self.numbers
        X = np.zeros((len(self), self.width), np.float32)
        X[:, : self.numbers.shape[1]] = self.numbers
        rows, columns = np.nonzero(self.codes != NO_INPUT)
        X[rows, self.codes[rows, columns]] = 1
        return X


_COMPACT = 256  # one-hot inputs from which indices are faster, and much smaller, than numbers


class EncoderConfig(DocumentedModel):
    """How features become the model's inputs.

    Examples
    --------
    >>> EncoderConfig(numeric="standard", min_level_rows=25).indicators
    'atoms'
    """

    numeric: Literal["standard", "bins"] = "bins"
    """Numbers: standard, (x - mean) / deviation; or bins, also piecewise linear."""
    bins: int = Field(default=16, ge=2, le=64)
    """Bins of equal size of a numeric column; frequent values add more."""
    min_rows: int = Field(default=50, ge=1)
    """No bin holds fewer train rows of all clients."""
    indicators: Literal["none", "atoms", "bins"] = "atoms"
    """With bins, 0/1 inputs for: none, atoms (values that stand out) or bins."""
    min_level_rows: int = Field(default=10, ge=1)
    """Categories in fewer rows of all clients are merged into one."""


def fit_encoder(
    config: EncoderConfig,
    task: Task,
    *,
    train: EncoderStatistics,
    schema: EncoderStatistics,
    count: Count,
) -> Encoder:
    """Fit what a configuration asks for, wherever the rows are.

    Parameters
    ----------
    config, task
        The encoding, and the task of a table.
    train
        Sums over the train rows of all clients.
    schema
        Sums over all rows that will be encoded.
    count
        Counts the train rows of all clients between given cuts.
    """
    bins = {}
    if config.numeric == "bins":
        bins = agree_bins(train.numeric, count, bins=config.bins, min_rows=config.min_rows)
    options = config.model_dump(include={"indicators", "min_level_rows"})
    return Encoder.fit(train, task, schema=schema, bins=bins, **options)


def _increasing(values: Sequence[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))


class NumericColumn(StrictModel):
    """A number: standardised, and what is piecewise linear or 0/1 in it.

    Parameters
    ----------
    name : str
        The column.
    mean, scale : float
        It becomes (x − mean) / scale; a missing number becomes the mean.
    indicator : bool
        Whether a 0/1 input marks a missing number.
    edges : tuple of float
        For each two neighbours a < b, an input that rises from 0 at a to 1 at b.
    atoms : tuple of float
        For each of these values a 0/1 input, 1 where x equals it.
    bin_indicators : bool
        Whether each edge has a 0/1 input, 1 where x is at or above it and below the next; what is
        below the first edge belongs to it, too.

    Examples
    --------
    >>> age = NumericColumn(name="age", mean=40, scale=10, indicator=False, edges=(20, 30, 60),
    ...                     atoms=(40,))
    >>> age.derived_names
    ('age from 20 to 30', 'age from 30 to 60', 'age=40')
    >>> [column.tolist() for column in age.derived(np.array([25.0, 40.0]))]
    [[0.5, 1.0], [0.0, 0.3333333333333333], [0.0, 1.0]]
    """

    name: str
    mean: float
    scale: Annotated[float, Field(gt=0)]
    indicator: bool
    edges: tuple[float, ...] = ()
    atoms: tuple[float, ...] = ()
    bin_indicators: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not (_increasing(self.edges) and _increasing(self.atoms)):
            raise ValueError("edges and atoms must increase")
        if len(self.edges) < 2 and (self.edges or self.bin_indicators):
            raise ValueError("bins need at least two edges")
        if self.edges and not np.isfinite(self.edges[-1] - self.edges[0]):
            raise ValueError("edges are too far apart")
        return self

    @property
    def derived_names(self) -> tuple[str, ...]:
        """The names of the inputs beside the standardised number and the missing mark."""
        edges = [canonical_text(edge) for edge in self.edges]
        names = [f"{self.name} from {a} to {b}" for a, b in itertools.pairwise(edges)]
        names += [f"{self.name}={canonical_text(atom)}" for atom in self.atoms]
        if self.bin_indicators:
            names.append(f"{self.name}<{edges[1]}")
            inner = itertools.pairwise(edges[1:])
            names += [f"{self.name} in [{a}, {b})" for a, b in inner]
            names.append(f"{self.name}>={edges[-1]}")
        return tuple(names)

    def derived(self, numbers: Floats) -> Iterator[Floats]:
        """Yield these inputs one by one; of a missing number (nan), no 0/1 input is 1."""
        filled = np.where(np.isnan(numbers), self.mean, numbers)
        for low, high in itertools.pairwise(self.edges):
            # Clipped first: no number, however large, overflows.
            yield (np.clip(filled, low, high) - low) / (high - low)
        for atom in self.atoms:
            yield (numbers == atom).astype(np.float64)
        if self.bin_indicators:
            bounds = [-np.inf, *self.edges[1:], np.inf]
            for low, high in itertools.pairwise(bounds):
                yield ((numbers >= low) & (numbers < high)).astype(np.float64)


class CategoricalColumn(StrictModel):
    """A column that becomes one 0/1 input per level, and one for all rare levels together.

    Parameters
    ----------
    name : str
        The column.
    levels : tuple of str
        Levels with an input of their own.
    rare : tuple of str
        Levels that share the last input; a level that is in neither does, too, if there are any.
    """

    name: str
    levels: tuple[str, ...]
    rare: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        for levels in (self.levels, self.rare):
            if list(levels) != sorted(set(levels)):
                raise ValueError("levels must be sorted and distinct")
        if not set(self.levels).isdisjoint(self.rare):
            raise ValueError("a level cannot be rare and have an input of its own")
        return self

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        together = "(rare)"
        while together in self.levels:
            together = f"({together})"
        merged = (together,) if self.rare else ()
        return tuple(f"{self.name}={level}" for level in (*self.levels, *merged))


class Encoder(StrictModel):
    """How features become numbers: the same for every client, and all that prediction needs.

    Numeric columns are standardised (population standard deviation; a constant column becomes
    0), a missing number becomes the mean, that is 0, and is marked in an extra input if any was
    missing in the fit. With bins, more inputs follow (`NumericColumn`). Categorical columns are
    one-hot over their sorted levels.

    The inputs, in this order: every standardised number; the missing marks; for each numeric
    column what is piecewise linear, then what is 0/1; for each categorical column its levels.

    Examples
    --------
    >>> from mfairfl.data import statistics
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

    schema_version: Literal[2] = 2
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
        bins: Mapping[str, Bins] | None = None,
        indicators: Literal["none", "atoms", "bins"] = "none",
        min_level_rows: int = 1,
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
        bins
            Bins of numeric columns (`agree_bins`); a column without is only standardised.
        indicators
            Which 0/1 inputs columns with bins get.
        min_level_rows
            Levels in fewer rows of the schema are merged into one.
        """
        schema = statistics if schema is None else schema
        numeric = []
        for name, column in statistics.numeric.items():
            binned = (bins or {}).get(name, Bins())
            fitted = NumericColumn(
                name=name,
                mean=column.mean,
                scale=column.deviation or 1.0,
                indicator=schema.numeric[name].missing > 0,
                edges=binned.edges,
                atoms=binned.atoms if indicators == "atoms" else (),
                bin_indicators=indicators == "bins" and bool(binned.edges),
            )
            numeric.append(fitted)
        categorical = []
        for name, counts in schema.categorical.items():
            levels = tuple(sorted(level for level, n in counts.items() if n >= min_level_rows))
            rare = tuple(sorted(counts.keys() - set(levels)))
            categorical.append(CategoricalColumn(name=name, levels=levels, rare=rare))
        return cls(
            numeric=tuple(numeric),
            categorical=tuple(categorical),
            unknown_category=task.unknown_category,
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the inputs, in their order; ``age=?`` is the mark of a missing age."""
        return (
            *(column.name for column in self.numeric),
            *(f"{column.name}={MISSING}" for column in self.numeric if column.indicator),
            *(name for column in self.numeric for name in column.derived_names),
            *(name for column in self.categorical for name in column.input_names),
        )

    @property
    def compact(self) -> bool:
        """Whether `encode` holds categorical columns as indices: they have very many levels."""
        return sum(len(column.input_names) for column in self.categorical) >= _COMPACT

    @property
    def layout(self) -> tuple[int, int, int]:
        """The form of what `encode` returns: inputs held as numbers, as indices, all inputs."""
        width = len(self.feature_names)
        return (self._numbers, len(self.categorical), width) if self.compact else (width, 0, width)

    @property
    def row_bytes(self) -> int:
        """The memory that a row of `encode` takes."""
        numbers, indices, _ = self.layout
        return 4 * (numbers + indices)

    @property
    def _numbers(self) -> int:
        """How many inputs the numeric columns have; those of categorical columns follow."""
        return sum(1 + column.indicator + len(column.derived_names) for column in self.numeric)

    def encode(self, X: pd.DataFrame, rows: Integers | None = None) -> Inputs:
        """Encode features column by column, as engines hold them: dense, or `compact`.

        The layout depends on the encoder alone: all that have it agree on it.

        Parameters
        ----------
        X
            The features (`Table.X`, or `features_frame` of new rows).
        rows
            Positions of the rows to encode; all if omitted.
        """
        needed = [*(c.name for c in self.numeric), *(c.name for c in self.categorical)]
        require_columns(X.columns, needed, "features")
        count = len(X) if rows is None else len(rows)
        d, g, width = self.layout
        out = Inputs(np.empty((count, d), np.float32), np.empty((count, g), np.int32), width)
        first = self._numbers
        self._encode_numbers(X, rows, out.numbers[:, :first])
        out.numbers[:, first:] = 0
        for j, fitted in enumerate(self.categorical):
            positions = self._positions(Column.of(X, fitted.name, rows), fitted)
            if self.compact:
                out.codes[:, j] = np.where(positions < 0, NO_INPUT, positions + first)
            else:
                (filled,) = np.nonzero(positions >= 0)
                out.numbers[filled, first + positions[filled]] = 1
            first += len(fitted.input_names)
        return out

    def transform(self, X: pd.DataFrame, rows: Integers | None = None) -> SmallFloats:
        """Encode features as `encode` does, every input a number: it may take much more memory."""
        return self.encode(X, rows).dense()

    def _encode_numbers(self, X: pd.DataFrame, rows: Integers | None, out: SmallFloats) -> None:
        """Write the inputs of numeric columns."""
        mark = len(self.numeric)
        first = mark + sum(column.indicator for column in self.numeric)
        for j, fitted in enumerate(self.numeric):
            column = Column.of(X, fitted.name, rows)
            out[:, j] = _standardised(column, fitted)
            if fitted.indicator:
                out[:, mark] = np.isnan(column.numbers)
                mark += 1
            for values in fitted.derived(column.numbers):
                out[:, first] = values
                first += 1

    def _positions(self, column: Column, fitted: CategoricalColumn) -> Integers:
        """Return which of its column's inputs is 1 in each row; below 0 where none is."""
        levels = (*fitted.levels, *fitted.rare)
        index = {level: i for i, level in enumerate(levels)}
        codes: Integers = column.each(lambda text: index.get(text, -1), np.intp)
        strange = codes < 0
        if self.unknown_category == "error" and strange.any():
            position = int(strange.argmax())
            problem = unknown("category", column.text(position), levels)
            raise DataError(f"{column.place(position)}: {problem}: correct it or train with it")
        if fitted.rare:
            codes[strange] = len(fitted.levels)
        return np.minimum(codes, len(fitted.levels))  # all rare ones share an input

    def to_json(self) -> str:
        """Write as JSON; numbers keep every bit."""
        return json.dumps(self.model_dump(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, name: str = "encoder") -> Encoder:
        """Read what `to_json` wrote; `name` is what messages call it."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problem = f"{name} is not an encoder of mfairfl: {first_problem(error)}"
            raise DataError(f"{problem}: write it again") from error

    @property
    def sha256(self) -> str:
        """The fingerprint: equal if and only if the encoders are equal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _standardised(column: Column, fitted: NumericColumn) -> SmallFloats:
    with np.errstate(over="ignore"):  # refused below
        scaled = (column.numbers - fitted.mean) / fitted.scale
    beyond = np.abs(scaled) > np.finfo(np.float32).max
    if beyond.any():
        position = int(beyond.argmax())
        raise DataError(
            f"{column.place(position)}: {column.numbers[position]:g} is beyond any scale "
            f"(mean {fitted.mean:g}, deviation {fitted.scale:g}): correct it"
        )
    return np.where(np.isnan(scaled), 0, scaled).astype(np.float32)
