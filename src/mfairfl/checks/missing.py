"""Values that may mean "no value": -9 among ages, 999 among days, 'unknown' among jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data import canonical_text
from mfairfl.files import toml_key, toml_text
from mfairfl.text import some_of

Floats = npt.NDArray[np.float64]

_NEGATIVE = frozenset({-1, *(-int(digit * n) for digit in "789" for n in range(1, 8))})
_HIGH = frozenset(
    {9, *(int(digit * n) for digit in "789" for n in range(2, 8)), 97, 98, 997, 998, 9997, 9998}
)
_TEXTS = frozenset(
    {
        "na",
        "n/a",
        "n.a.",
        "#n/a",
        "<na>",
        "nan",
        "null",
        "none",
        "nil",
        "unknown",
        "unk",
        "missing",
    }
    | {"not available", "not known", "not recorded", "not reported", "no data", "undefined"}
    | {"-", "--", ".", "-1", "-9", "-99", "-999", "-9999"}
)
_FEW = 3  # columns that get a line each
_LONE = 5  # rows that a value needs which is no usual code
_LONE_SHARE = 0.01


class MissingCodes(NamedTuple):
    """Values of a column that may mean "no value".

    Parameters
    ----------
    others : str
        Range of the other numbers; empty for texts.
    clients : tuple of str
        Who uses them, if few clients do.
    """

    column: str
    codes: tuple[str, ...]
    rows: int
    others: str = ""
    clients: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """How many rows hold them, and where."""
        return f"{self.rows:,} rows" + f", all at {some_of(self.clients)}" * bool(self.clients)


def find_missing_codes(X: pd.DataFrame) -> list[MissingCodes]:
    """Return what looks like codes of missing values, for each feature.

    Numbers: usual codes (-1, -9, 99, 999, …) below or far above all others, a frequent value
    farther from the others than these from each other, and 0 where the others keep away from it.
    Texts: `NA`, `unknown`, `-` and the like.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [31.0, 45, 27, -9, 52], "job": ["cook", "NA", "cook", "-", "NA"]})
    >>> for found in find_missing_codes(X):
    ...     print(found)
    MissingCodes(column='age', codes=('-9',), rows=1, others='27 to 52', clients=())
    MissingCodes(column='job', codes=('-', 'NA'), rows=3, others='', clients=())
    """
    found = []
    for name in X.columns:
        column = X[name]
        if pd.api.types.is_numeric_dtype(column):
            found += _of_numbers(str(name), column)
        else:
            found += _of_texts(str(name), column)
    return found


def _of_texts(name: str, column: pd.Series[Any]) -> list[MissingCodes]:
    counts = column.value_counts()
    codes = sorted(level for level in counts.index if str(level).casefold() in _TEXTS)
    return [MissingCodes(name, tuple(codes), int(counts[codes].sum()))] if codes else []


def _of_numbers(name: str, column: pd.Series[Any]) -> list[MissingCodes]:
    values, counts = np.unique(column.dropna().to_numpy(dtype=np.float64), return_counts=True)
    odd = _negative(values) | _high(values, counts) | _far(values, counts) | _zero(values, counts)
    if not odd.any():
        return []
    rest = values[~odd]
    codes = tuple(canonical_text(value) for value in values[odd])
    return [MissingCodes(name, codes, int(counts[odd].sum()), f"{rest[0]:g} to {rest[-1]:g}")]


def _negative(values: Floats) -> npt.NDArray[np.bool_]:
    """Find usual codes that are the only negative numbers; -1, 0, 1 may be an answer."""
    below = values < 0
    usual = below.any() and not below.all() and _NEGATIVE.issuperset(values[below].tolist())
    return below & (usual and values[-1] > 1)


def _high(values: Floats, counts: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Find usual codes at the upper end, beyond a gap that has no like among the others."""
    found = np.zeros(len(values), dtype=bool)
    for length in (1, 2, 3):
        codes, rest = values[-length:], values[:-length]
        if len(rest) < 2 or not _HIGH.issuperset(codes.tolist()):
            break
        own = rest[rest >= 0]  # codes below zero leave a gap too
        gap = codes[0] - rest[-1]
        if counts[-length:].sum() >= 2 and gap >= 3 * np.diff(own).max(initial=0) and len(own) > 1:
            found[-length:] = True
    return found


def _far(values: Floats, counts: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Find a frequent value that is farther from all others than these are from each other."""
    found = np.zeros(len(values), dtype=bool)
    frequent = counts >= max(_LONE, _LONE_SHARE * counts.sum())
    if len(values) > 10:
        if frequent[0] and values[1] - values[0] > values[-1] - values[1] and values[0] != 0:
            found[0] = True
        if frequent[-1] and values[-1] - values[-2] > values[-2] - values[0]:
            found[-1] = True
    return found


def _zero(values: Floats, counts: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Find zeros where the others keep a distance, as in weights and blood pressures."""
    found = np.zeros(len(values), dtype=bool)
    if len(values) > 10 and values[0] == 0 and 2 <= counts[0] <= counts.sum() / 2:
        low, high = np.quantile(np.repeat(values[1:], counts[1:]), (0.25, 0.75))
        found[0] = values[1] > high - low
    return found


def missing_code_lines(found: Iterable[MissingCodes]) -> list[str]:
    r"""Say what was found and how to declare it, in one line for many columns.

    Examples
    --------
    >>> (line,) = missing_code_lines([MissingCodes("age", ("-9",), 12, "18 to 90")])
    >>> print(line.replace(": if", "\n...if"))
    column 'age': -9 in 12 rows; the others are 18 to 90
    ...if it means missing, add columns.age.missing_codes = ["-9"] to [task]
    """
    numbers: dict[tuple[str, ...], list[MissingCodes]] = {}
    texts = []
    for one in found:
        if one.others:
            numbers.setdefault(one.codes, []).append(one)
        else:
            texts.append(one)
    return [line for same in numbers.values() for line in _number_lines(same)] + _text_lines(texts)


def _number_lines(found: list[MissingCodes]) -> list[str]:
    codes = f"missing_codes = {toml_text(found[0].codes)}"
    shown = ", ".join(found[0].codes)
    if len(found) > _FEW:
        named = some_of([f"{one.column} ({one.where})" for one in found])
        return [
            f"{shown} outside the other values of {len(found)} columns, {named}: if it means "
            f"missing, add {codes} to [task]"
        ]
    return [
        f"column '{one.column}': {shown} in {one.where}; the others are {one.others}: if it "
        f"means missing, add columns.{toml_key(one.column)}.{codes} to [task]"
        for one in found
    ]


def _text_lines(found: list[MissingCodes]) -> list[str]:
    if not found:
        return []
    named = [f"{one.column} {', '.join(map(repr, one.codes))} ({one.where})" for one in found]
    codes = tuple(sorted({code for one in found for code in one.codes}))
    return [
        f"categories that may mean missing: {some_of(named, most=10)}: if they do, add "
        f"missing_codes = {toml_text(codes)} to [task]"
    ]
