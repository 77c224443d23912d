"""The columns of a raw frame: their values as text, as numbers, or as codes of groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.task import MISSING, Sensitive, canonical_text
from mfairfl.errors import DataError, require_known, unknown

__all__ = [
    "Column",
    "Columns",
    "columns_of",
    "group_codes",
    "group_gaps",
    "lookalike",
    "require_columns",
    "require_present",
]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
# Only in numeric columns: in text, "NA" may be Namibia and "None" an answer.
_MISSING_NUMBERS = frozenset({MISSING, "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"})
_MOST_GROUPS = 50  # more are a number or an identifier that was meant to be binned
_LARGEST = 1e100  # squares stay far from overflow


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a frame whose index is named "line" (of the file) or "row" (from 0).

    Examples
    --------
    >>> Column("people.csv", pd.Series(["7", "", "1e2"], name="age")).numbers
    array([  7.,  nan, 100.])
    """

    table: str
    series: pd.Series[Any]

    @property
    def name(self) -> str:
        """The column's name."""
        return str(self.series.name)

    def place(self, position: int) -> str:
        """Name the cell at `position` for a message."""
        index = self.series.index
        return f"{self.table}, {index.name or 'row'} {index[position]}, column '{self.name}'"

    @cached_property
    def _distinct(self) -> tuple[npt.NDArray[np.intp], list[str]]:
        """Each row's position among the distinct texts; rows without a value hold -1."""
        try:
            codes, uniques = pd.factorize(self.series)
        except TypeError as error:
            raise DataError(
                f"{self.table}: column '{self.name}' holds nested values ({error}): "
                "list it in ignore or split it into plain columns"
            ) from error
        # Plain str objects: walking an Arrow array is slow.
        plain = uniques.tolist() if self.series.dtype == "str" else uniques
        return codes, [canonical_text(value) for value in plain]

    def _spread(self, dtype: Any, convert: Callable[[str], Any], empty: Any) -> npt.NDArray[Any]:
        """Apply `convert` to the distinct texts and spread the results over the rows."""
        codes, texts = self._distinct
        # The extra entry at the end is where code -1 points.
        return np.array([*map(convert, texts), empty], dtype=dtype)[codes]

    @cached_property
    def texts(self) -> npt.NDArray[np.object_]:
        """The values as canonical text, a missing one as ``?``."""
        return self._spread(object, str, MISSING)

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """The values as float64, a missing one as nan; text and infinities are refused."""
        numbers: npt.NDArray[np.float64]
        if self.series.dtype.kind in "iuf":  # no detour through text for what is a number already
            numbers = self.series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            numbers = self._spread(np.float64, _number, np.nan)
        # nan is "missing"; inf marks what is not a number, as no number may be that large.
        refused = np.abs(numbers) > _LARGEST
        if refused.any():
            self._refuse(int(refused.argmax()))
        return numbers

    def _refuse(self, position: int) -> None:
        text = self.texts[position]
        place = self.place(position)
        if _NUMBER.fullmatch(text) or text.lstrip("+-").lower() in ("inf", "infinity"):
            raise DataError(
                f"{place}: the number {text} is too large (above {_LARGEST:g}): "
                "correct it or leave the cell empty"
            )
        has_comma = _NUMBER.fullmatch(text.replace(",", "."))
        comma = " (write a decimal point, not a comma)" if has_comma else ""
        raise DataError(
            f"{place}: '{text}' is not a number{comma}: "
            "correct it, leave the cell empty or list the column in categorical"
        )

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Which rows have no value, read as text."""
        return self._spread(np.bool_, lambda text: text == MISSING, True)

    @property
    def missing_number(self) -> npt.NDArray[np.bool_]:
        """Which rows have no value, read as a number: "NA" and its like are missing too."""
        if self.series.dtype.kind in "iuf":
            return self.series.isna().to_numpy(dtype=np.bool_)
        return self._spread(np.bool_, lambda text: text in _MISSING_NUMBERS, True)

    @property
    def not_numbers(self) -> npt.NDArray[np.bool_]:
        """Which rows hold text that does not read as a plain number ("007" does not)."""
        if self.series.dtype.kind in "iufb":
            return np.full(len(self.series), self.series.dtype.kind == "b")
        return self._spread(
            np.bool_, lambda t: t not in _MISSING_NUMBERS and not _plain_number(t), False
        )

    @property
    def coerced(self) -> int:
        """How many texts lost surrounding spaces or needless decimals on reading."""
        codes, uniques = pd.factorize(self.series)
        changed = [
            isinstance(v, str) and v.strip() not in ("", MISSING) and canonical_text(v) != v
            for v in uniques
        ]
        return int(np.array([*changed, False])[codes].sum())


def _plain_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and _LEADING_ZERO.match(text) is None


def _number(text: str) -> float:
    if text in _MISSING_NUMBERS:
        return np.nan
    if text in ("True", "False"):
        return float(text == "True")
    return float(text) if _NUMBER.fullmatch(text) else np.inf


Columns = Mapping[str, Column]


def columns_of(frame: pd.DataFrame, table: str) -> Columns:
    """Split a frame into columns, each of which is converted to text or numbers only once."""
    return {str(name): Column(table, frame[name]) for name in frame.columns}


def require_columns(present: Iterable[str], needed: Iterable[str], table: str) -> None:
    """Refuse a table that lacks a column, naming the nearest one."""
    require_known("column", needed, list(present), DataError, where=table)


def require_present(present: Iterable[str], needed: Iterable[str], table: str) -> None:
    """Refuse rows that lack columns which a model needs, naming those that may be meant.

    Examples
    --------
    >>> require_present(["age", "sex"], ["sex"], "new.csv")
    """
    known = list(present)
    lacking = [name for name in dict.fromkeys(needed) if name not in known]
    if not lacking:
        return
    several, named = len(lacking) > 1, ", ".join(f"'{name}'" for name in lacking)
    near = get_close_matches(lacking[0].lower(), [name.lower() for name in known], n=1)
    alike = next((name for name in known if [name.lower()] == near), None)
    shown = ", ".join(known[:10]) + ", ..." * (len(known) > 10)
    add = f"add {'them' if several else 'it'} (there are {shown})"
    fix = f"rename '{alike}' if it is meant" if alike else add
    raise DataError(f"{table} lacks the column{'s' * several} {named}: {fix}")


def lookalike(name: str, known: Iterable[str]) -> bool:
    """Say whether a known name differs in nothing but case, spaces and punctuation.

    Examples
    --------
    >>> lookalike("race", ["Race ", "age"]), lookalike("race", ["place"])
    (True, False)
    """

    def bare(text: str) -> str:
        return "".join(filter(str.isalnum, text)).casefold()

    return any(bare(other) == bare(name) for other in known)


def group_codes(
    column: Column, sensitive: Sensitive
) -> tuple[npt.NDArray[np.int16], Sensitive, tuple[str, ...]]:
    """Code the groups of a column that has no unnamed missing value.

    Returns
    -------
    codes, sensitive, notes
        Codes index ``sensitive.groups``, which is filled in.

    Examples
    --------
    >>> column = Column("people", pd.Series(["m", "f", "f", "m"], name="sex"))
    >>> codes, resolved, notes = group_codes(column, Sensitive(column="sex"))
    >>> codes.tolist(), resolved.groups
    ([1, 0, 0, 1], ('f', 'm'))
    """
    levels = sensitive.levels or tuple(sorted(set(column.texts)))
    if sensitive.levels is None and len(levels) > _MOST_GROUPS:
        raise DataError(
            f"{column.table}: sensitive column '{column.name}' has {len(levels)} distinct values "
            f"('{levels[0]}', '{levels[1]}', ...): form a few groups with bins"
        )
    codes = _codes(column, sensitive, levels)
    outside = codes < 0
    if outside.any():
        if sensitive.rest is None:
            _outside(column, int(outside.argmax()), sensitive, levels)
        codes[outside] = levels.index(sensitive.rest)
    counts = np.bincount(codes, minlength=len(levels))
    notes = _check_members(column, sensitive, levels, counts)
    return codes, sensitive.model_copy(update={"groups": levels}), notes


def group_gaps(column: Column, sensitive: Sensitive) -> npt.NDArray[np.bool_]:
    """Say which rows have no group because their value is missing.

    Examples
    --------
    >>> column = Column("people", pd.Series(["m", "", "f"], name="sex"))
    >>> group_gaps(column, Sensitive(column="sex")).tolist()
    [False, True, False]
    """
    if not sensitive.bins:
        return column.missing & (MISSING not in (sensitive.groups or ()))
    gaps = column.missing_number if sensitive.intervals else column.missing
    return gaps & ~np.isin(column.texts.astype(np.str_), list(sensitive.bin_of_value))


def _codes(column: Column, sensitive: Sensitive, levels: tuple[str, ...]) -> npt.NDArray[np.int16]:
    """Code each row's group as an index into `levels`; -1 where the value is in none."""
    names = sensitive.bin_of_value if sensitive.bins else {level: level for level in levels}
    code = {value: levels.index(name) for value, name in names.items()}
    codes = np.array([code.get(text, -1) for text in column.texts], dtype=np.int16)
    if sensitive.intervals:
        left = np.flatnonzero(codes < 0)
        numbers = Column(column.table, column.series.iloc[left]).numbers
        for b in sensitive.intervals:
            low, high = b.interval
            codes[left[(low <= numbers) & (numbers <= high)]] = levels.index(b.name)
    return codes


def _outside(
    column: Column, position: int, sensitive: Sensitive, levels: tuple[str, ...]
) -> NoReturn:
    text = column.texts[position]
    if sensitive.bins:
        raise DataError(
            f"{column.place(position)}: '{text}' is in no bin of '{sensitive.name}' "
            f"({', '.join(levels)}): add a bin, or rest= for all other values"
        )
    raise DataError(
        f"{column.place(position)}: {unknown('group', text, levels)}: "
        "add it to groups, or give rest= for all other values"
    )


def _check_members(
    column: Column,
    sensitive: Sensitive,
    levels: tuple[str, ...],
    counts: npt.NDArray[np.intp],
) -> tuple[str, ...]:
    """Refuse groups that cannot be compared, unless the groups were fixed beforehand."""
    where = f"{column.table}: sensitive column '{column.name}'"
    sizes = dict(zip(levels, counts.tolist(), strict=True))
    out = sizes.pop(MISSING, 0)
    notes = (f"{where}: not recorded in {out} of {counts.sum()} rows",) * bool(out)
    if sensitive.groups is not None:
        small = ", ".join(f"'{group}' ({n})" for group, n in sizes.items() if n < 2)
        return notes + (f"{where}: groups with fewer than two members: {small}",) * bool(small)
    if sum(n > 0 for n in sizes.values()) < 2:
        only = max(sizes, key=lambda group: sizes[group], default=MISSING)
        raise DataError(
            f"{where} is constant: every row is in group '{only}': choose another column, or fix "
            "groups= if other files hold the other groups"
        )
    for group, count in sizes.items():
        if count < 2:
            members = "no member" if count == 0 else "one member"
            raise DataError(
                f"{where}: group '{group}' has {members}: merge it with others by bins"
                " (or values and rest)"
            )
    return notes
