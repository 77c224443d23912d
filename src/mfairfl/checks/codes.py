"""Values that stand for something else: -9 for "no value", 1131 and 1132 for occupations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.checks import Finding
from mfairfl.data import canonical_text
from mfairfl.files import toml_key, toml_text
from mfairfl.text import some_of, words_of

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# ------------------------------------------------------------------ codes of missing values

_NEGATIVE = frozenset({-1, *(-int(digit * n) for digit in "789" for n in range(1, 8))})
_HIGH = frozenset(
    {9, *(int(digit * n) for digit in "789" for n in range(2, 8)), 97, 98, 997, 998, 9997, 9998}
)
_TEXT = re.compile(
    r"na|#?n/a|n\.a\.|<na>|nan|null|none|nil|undefined|no data|unknown|unk|missing"
    r"|not (available|known|recorded|reported)|--?|\.|-1|-9{1,4}"
)
_FEW = 3  # columns that get a line each
_LONE = 5  # rows that any other value needs
_LONE_SHARE = 0.01


class MissingCodes(NamedTuple):
    """Values of a column that may mean "no value".

    Parameters
    ----------
    others : str
        Range of the other numbers; empty for texts.
    clients : tuple of str
        The clients that use them, if few do.
    """

    column: str
    codes: tuple[str, ...]
    rows: int
    others: str = ""
    clients: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The number of rows with these values, and their clients."""
        return f"{self.rows:,} rows" + f", all at {some_of(self.clients)}" * bool(self.clients)


def find_missing_codes(X: pd.DataFrame) -> list[MissingCodes]:
    """Return what looks like codes of missing values, for each feature.

    Numbers: usual codes (-1, -9, 99, 999, …) below or far above all others, a frequent value
    farther from the others than these from each other, and 0 where the others keep away from it.
    Texts: `NA`, `unknown`, `-` and the like.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [31.0, 45, 27, -9, 52], "job": ["cook", "NA", "cook", "-", "NA"]})
    >>> for codes in find_missing_codes(X):
    ...     print(codes)
    MissingCodes(column='age', codes=('-9',), rows=1, others='27 to 52', clients=())
    MissingCodes(column='job', codes=('-', 'NA'), rows=3, others='', clients=())
    """
    columns = [
        (_number_codes if pd.api.types.is_numeric_dtype(X[name]) else _text_codes)(X[name])
        for name in X.columns
    ]
    return [codes for codes in columns if codes is not None]


def _text_codes(column: pd.Series[Any]) -> MissingCodes | None:
    counts = column.value_counts()
    codes = sorted(level for level in counts.index if _TEXT.fullmatch(str(level).casefold()))
    if not codes:
        return None
    return MissingCodes(str(column.name), tuple(codes), int(counts[codes].sum()))


def _number_codes(column: pd.Series[Any]) -> MissingCodes | None:
    values, counts = np.unique(column.dropna().to_numpy(dtype=np.float64), return_counts=True)
    odd = _usual_codes(values, counts) | _apart(values, counts)
    if not odd.any():
        return None
    others = values[~odd]
    codes = tuple(canonical_text(value) for value in values[odd])
    spread = f"{others[0]:g} to {others[-1]:g}"
    return MissingCodes(str(column.name), codes, int(counts[odd].sum()), spread)


def _usual_codes(values: Floats, counts: Counts) -> Mask:
    """Find usual codes among numbers: below zero, and beyond a gap at the upper end."""
    odd = np.zeros(len(values), dtype=bool)
    below = values < 0
    # They are the only negative numbers; -1, 0, 1 may be an answer.
    usual = below.any() and not below.all() and _NEGATIVE.issuperset(values[below].tolist())
    if usual and values[-1] > 1:
        odd |= below
    for length in (1, 2, 3):
        codes, others = values[-length:], values[:-length]
        amounts = others[others >= 0]  # codes below zero leave a gap too
        if len(amounts) < 2 or not _HIGH.issuperset(codes.tolist()):
            break
        far = codes[0] - others[-1] >= 3 * np.diff(amounts).max(initial=0)
        if counts[-length:].sum() >= 2 and far:
            odd[-length:] = True
    return odd


def _apart(values: Floats, counts: Counts) -> Mask:
    """Find ends that are farther from all others than these are from each other, and lone zeros.

    An end must be frequent. A zero may be nearer, as in weights and blood pressures.
    """
    odd = np.zeros(len(values), dtype=bool)
    if len(values) <= 10:
        return odd
    frequent = counts >= max(_LONE, _LONE_SHARE * counts.sum())
    if values[0] != 0:
        odd[0] = frequent[0] and values[1] - values[0] > values[-1] - values[1]
    elif 2 <= counts[0] <= counts.sum() / 2:
        low, high = np.quantile(np.repeat(values[1:], counts[1:]), (0.25, 0.75))
        odd[0] = values[1] > high - low
    odd[-1] = frequent[-1] and values[-1] - values[-2] > values[-2] - values[0]
    return odd


def missing_code_lines(columns: Iterable[MissingCodes]) -> list[str]:
    r"""Describe codes and how to declare them; many columns with equal codes share a line.

    Examples
    --------
    >>> (line,) = missing_code_lines([MissingCodes("age", ("-9",), 12, "18 to 90")])
    >>> print(line.replace(": if", "\n...if"))
    column 'age': -9 in 12 rows; the others are 18 to 90
    ...if it means missing, add columns.age.missing_codes = ["-9"] to [task]
    """
    numbers: defaultdict[tuple[str, ...], list[MissingCodes]] = defaultdict(list)
    texts = list[MissingCodes]()
    for column in columns:
        (numbers[column.codes] if column.others else texts).append(column)
    lines = [line for alike in numbers.values() for line in _number_lines(alike)]
    if texts:
        names = [f"{c.column} {', '.join(map(repr, c.codes))} ({c.where})" for c in texts]
        codes = toml_text(sorted({code for column in texts for code in column.codes}))
        lines.append(
            f"categories that may mean missing: {some_of(names, most=10)}: if they do, add "
            f"missing_codes = {codes} to [task]"
        )
    return lines


def _number_lines(columns: list[MissingCodes]) -> list[str]:
    codes = f"missing_codes = {toml_text(columns[0].codes)}"
    shown = ", ".join(columns[0].codes)
    if len(columns) > _FEW:
        names = some_of([f"{column.column} ({column.where})" for column in columns])
        return [
            f"{shown} outside the other values of {len(columns)} columns, {names}: if it means "
            f"missing, add {codes} to [task]"
        ]
    return [
        f"column '{column.column}': {shown} in {column.where}; the others are {column.others}: if "
        f"it means missing, add columns.{toml_key(column.column)}.{codes} to [task]"
        for column in columns
    ]


# ------------------------------------------------------------------ codes of categories

_CODE_WORD = re.compile(
    r"education|codes?|cod|cd|zip|zipcode|postal|postcode|plz|occp?|occupation|industry|naicsp?"
    r"|isco|nace|sic|icd|region|district|county|state|country|nation|birthplace|pobp|city|type"
    r"|category|kind|status|position|sector|branch|department|dept|race|rac1p|ethnicity|religion"
    r"|marital|marriage|gender|sex|job|relp|relationship|cow|id|channel|purpose|fips|puma"
)
_COUNT_WORD = re.compile(r"n|num|number|count|total|avg|mean|years|days")
_MOST = 1000  # distinct values that codes have
_SHARE = 0.05  # of the rows, unless the name says that they are codes
_DIGITS = 3


def find_category_codes(X: pd.DataFrame) -> dict[str, Floats]:
    """Return the distinct values of the numeric features that look like codes of categories.

    Those are whole numbers with few distinct values that either have a telling name, or have
    equally many digits, three at least, with gaps between them that amounts would not have.

    Examples
    --------
    >>> X = pd.DataFrame({"position": [1131.0, 1132.0, 1210.0] * 30, "age": [31.0, 45, 27] * 30})
    >>> find_category_codes(X)
    {'position': array([1131., 1132., 1210.])}
    """
    codes = {}
    for name in X.select_dtypes("number").columns:
        numbers = X[name].dropna().to_numpy(dtype=np.float64)
        values, counts = np.unique(numbers, return_counts=True)
        if _are_codes(str(name), values, counts):
            codes[str(name)] = values
    return codes


def _are_codes(name: str, values: Floats, counts: Counts) -> bool:
    rows, whole = counts.sum(), (values == np.round(values)).all()
    if not whole or not 3 <= len(values) <= min(_MOST, rows / 2) or values[0] < 0:
        return False
    words = words_of(name)
    named = any(map(_CODE_WORD.fullmatch, [*words, name.casefold()]))
    if named and not any(map(_COUNT_WORD.fullmatch, words)):
        return True
    few = bool(len(values) <= _SHARE * rows)
    alike = _DIGITS <= len(f"{values[0]:.0f}") == len(f"{values[-1]:.0f}")
    return few and alike and _holes(values, counts)


def _holes(values: Floats, counts: Counts) -> bool:
    """Return whether most values of the usual range never occur, in steps of their divisor."""
    ends = np.searchsorted(np.cumsum(counts) / counts.sum(), (0.05, 0.95))
    middle = values[ends[0] : ends[1] + 1].astype(np.int64)
    if len(middle) < 3:
        middle = values.astype(np.int64)
    step = int(np.gcd.reduce(np.diff(middle)))
    return bool(2 * len(middle) < (middle[-1] - middle[0]) / step + 1)


def category_code_findings(X: pd.DataFrame) -> list[Finding]:
    """Return a note that asks about all columns that may hold codes, or nothing.

    Examples
    --------
    >>> X = pd.DataFrame({"position": [1131.0, 1132.0, 1210.0] * 30})
    >>> print(*category_code_findings(X))
    note  codes: whole numbers that may be codes of categories: position (3 values: 1131, 1132, \
1210): if so, list them in categorical
    """
    columns = [
        f"{name} ({len(values):,} values: {', '.join(f'{v:.0f}' for v in values[:3])}"
        f"{', …' * (len(values) > 3)})"
        for name, values in find_category_codes(X).items()
    ]
    if not columns:
        return []
    message = f"whole numbers that may be codes of categories: {some_of(columns, most=10)}"
    return [Finding("note", "codes", f"{message}: if so, list them in categorical")]
