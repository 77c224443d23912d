"""Numbers that may be names of categories: occupations 10 to 9830, zip codes, 1131 and 1132."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.text import some_of, words_of

_WORDS = frozenset(
    {
        "education",
        "code",
        "codes",
        "cod",
        "cd",
        "zip",
        "zipcode",
        "postal",
        "postcode",
        "plz",
        "fips",
        "puma",
    }
    | {"occ", "occp", "occupation", "industry", "naics", "naicsp", "isco", "nace", "sic", "icd"}
    | {"region", "district", "county", "state", "country", "nation", "birthplace", "pobp", "city"}
    | {"type", "category", "kind", "status", "position", "sector", "branch", "department", "dept"}
    | {"race", "rac1p", "ethnicity", "religion", "marital", "marriage", "gender", "sex", "job"}
    | {"relp", "relationship", "cow", "id", "channel", "purpose"}
)
_COUNTING = frozenset({"n", "num", "number", "count", "total", "avg", "mean", "years", "days"})
_MOST = 1000  # distinct values that codes have
_SHARE = 0.05  # of the rows, unless the name says that they are codes
_DIGITS = 3
_SHOWN = 3


class CodeColumn(NamedTuple):
    """A column of whole numbers that may be categories; `examples` are some of its values."""

    column: str
    distinct: int
    examples: tuple[str, ...]


def find_codes(X: pd.DataFrame) -> list[CodeColumn]:
    """Return the numeric features that look like codes of categories.

    Those are whole numbers with few distinct values that either have a telling name, or as many
    digits each, three at least, and holes between them, as amounts do not have.

    Examples
    --------
    >>> X = pd.DataFrame({"position": [1131.0, 1132.0, 1210.0] * 30, "age": [31.0, 45, 27] * 30})
    >>> find_codes(X)
    [CodeColumn(column='position', distinct=3, examples=('1131', '1132', '1210'))]
    """
    numeric = [name for name in X.columns if pd.api.types.is_numeric_dtype(X[name])]
    return [found for name in numeric for found in _codes(str(name), X[name])]


def _codes(name: str, column: pd.Series[Any]) -> list[CodeColumn]:
    numbers = column.dropna().to_numpy(dtype=np.float64)
    values, counts = np.unique(numbers, return_counts=True)
    whole = bool((values == np.round(values)).all())
    if not whole or not 3 <= len(values) <= min(_MOST, len(numbers) / 2) or values[0] < 0:
        return []
    few = len(values) <= _SHARE * len(numbers)
    if _called_code(name) or (few and _equal_digits(values) and _holes(values, counts)):
        examples = tuple(f"{value:.0f}" for value in values[:_SHOWN])
        return [CodeColumn(name, len(values), examples)]
    return []


def _called_code(name: str) -> bool:
    words = words_of(name)
    return not _WORDS.isdisjoint({*words, name.casefold()}) and _COUNTING.isdisjoint(words)


def _equal_digits(values: npt.NDArray[np.float64]) -> bool:
    lengths = {len(f"{value:.0f}") for value in (values[0], values[-1])}
    return len(lengths) == 1 and lengths.pop() >= _DIGITS


def _holes(values: npt.NDArray[np.float64], counts: npt.NDArray[np.intp]) -> bool:
    """Say whether most values of the usual range never occur, counted in the steps that do."""
    ends = np.searchsorted(np.cumsum(counts) / counts.sum(), (0.05, 0.95))
    middle = values[ends[0] : ends[1] + 1].astype(np.int64)
    if len(middle) < 3:
        middle = values.astype(np.int64)
    step = int(np.gcd.reduce(np.diff(middle)))
    return bool(2 * len(middle) < (middle[-1] - middle[0]) / step + 1)


def code_lines(found: Iterable[CodeColumn]) -> list[str]:
    """Ask about all columns in one line.

    Examples
    --------
    >>> (line,) = code_lines([CodeColumn("position", 8, ("1131", "1132", "1210"))])
    >>> line.split(": ")[1]
    'position (8 values'
    """
    named = [
        f"{one.column} ({one.distinct:,} values: {', '.join(one.examples)}"
        f"{', …' * (one.distinct > _SHOWN)})"
        for one in found
    ]
    if not named:
        return []
    said = f"whole numbers that may be codes of categories: {some_of(named, most=10)}"
    return [f"{said}: if so, list them in categorical"]
