"""The columns of a raw frame: their values as text or as numbers, each distinct cell read once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.values import (
    LARGEST,
    MISSING,
    MISSING_NUMBERS,
    ColumnRules,
    Floats,
    Integers,
    Mask,
    Reading,
    Recognised,
    Texts,
    are_numbers,
    canonical_text,
    parse,
    recognise,
)
from mfairfl.errors import DataError, require_known

MOST_GROUPS = 50
"""Values of a sensitive column; more are a number or an identifier that was meant to be binned."""

_SHOWN = 3  # cells that a note names
_PLAIN = ColumnRules()


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a frame whose index is named "line" (of the file) or "row" (from 0).

    Parameters
    ----------
    table : str
        What messages call the table.
    series : pandas.Series
        The cells.
    rules : ColumnRules
        How they are read. Where they do not read every cell of a column of numbers, the notation
        is found out (`recognised`); cells that are not numbers are then missing.

    Examples
    --------
    >>> Column("people.csv", pd.Series(["7", "", "1e2"], name="age")).numbers
    array([  7.,  nan, 100.])
    """

    table: str
    series: pd.Series[Any]
    rules: ColumnRules = _PLAIN

    @classmethod
    def of(cls, features: pd.DataFrame, name: str, rows: Integers | None = None) -> Column:
        """Take some rows (by position), or all, of one column of a table's features."""
        series = features[name]
        return cls("features", series if rows is None else series.iloc[rows])

    @property
    def name(self) -> str:
        """The column's name."""
        return str(self.series.name)

    @property
    def _kind(self) -> str:
        """The kind of the values: text unless the frame has a type for them."""
        kind = self.series.dtype.kind
        return "m" if kind in "mM" else "n" if kind in "iuf" else kind

    def place(self, position: int) -> str:
        """Name the cell at `position` for a message."""
        index = self.series.index
        return f"{self.table}, {index.name or 'row'} {index[position]}, column '{self.name}'"

    def take(self, rows: Mask) -> Column:
        """Return the column with some of its rows."""
        return replace(self, series=self.series[rows])

    def as_numbers(self) -> Column:
        """Return the column with its notation settled, whichever of its rows are taken later."""
        return self if self.recognised is None else self.but(rules=self.recognised.rules)

    def but(self, **changes: Any) -> Column:
        """Return the same cells with another `table` or other `rules`, not factorised anew."""
        column = replace(self, **changes)
        if "_cells" in self.__dict__:
            column.__dict__["_cells"] = self._cells
        return column

    @cached_property
    def _cells(self) -> tuple[npt.NDArray[np.int32], Iterable[Any]]:
        """Each row's position among the distinct cells, and these; empty cells follow them."""
        try:
            codes, uniques = pd.factorize(self.series)
        except TypeError as error:
            raise DataError(
                f"{self.table}: column '{self.name}' holds nested values ({error}): "
                "list it in ignore or split it into plain columns"
            ) from error
        codes[codes < 0] = len(uniques)
        # int32: half the memory, for as long as the column lives. Plain str objects: walking an
        # Arrow array is slow.
        texts = uniques.tolist() if self.series.dtype == "str" else uniques
        return codes.astype(np.int32), texts

    @cached_property
    def _distinct(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Each row's position among the texts of the distinct cells, with ``?`` at the end."""
        codes, uniques = self._cells
        missing = set(self.rules.missing_codes)
        texts = (canonical_text(value) for value in uniques)
        return codes, [*(MISSING if text in missing else text for text in texts), MISSING]

    def each(self, convert: Callable[[str], Any], dtype: Any) -> npt.NDArray[Any]:
        """Convert each row's text, a missing one as ``?``; every distinct text only once.

        Examples
        --------
        >>> Column("people", pd.Series(["m", "", "f", "m"], name="sex")).each("?fm".index, int)
        array([2, 0, 1, 2])
        """
        codes, texts = self._distinct
        return np.array([convert(text) for text in texts], dtype=dtype)[codes]

    def text(self, position: int) -> str:
        """Return the text of one row, a missing one as ``?``."""
        codes, texts = self._distinct
        return texts[int(codes[position])]

    @property
    def levels(self) -> dict[str, int]:
        """How many rows hold each value, read as text and sorted; a missing one is left out."""
        return {text: n for text, n in sorted(self.counts.items()) if text != MISSING}

    @cached_property
    def texts(self) -> Texts:
        """The values as canonical text, a missing one as ``?``."""
        return self.each(str, object)

    @property
    def strings(self) -> pd.Series[str]:
        """The same texts as a series, numbered from 0."""
        codes, texts = self._distinct
        return pd.Series(texts, dtype="str").take(codes).reset_index(drop=True)

    @cached_property
    def counts(self) -> Counter[str]:
        """How many rows hold each text, a missing value as ``?``."""
        codes, texts = self._distinct
        counts: Counter[str] = Counter()
        rows = np.bincount(codes, minlength=len(texts)).tolist()
        for text, n in zip(texts, rows, strict=True):
            counts[text] += n  # several cells may have one text
        return +counts

    @cached_property
    def recognised(self) -> Recognised | None:
        """How the cells are read as numbers; None if the column is not one of numbers.

        Cells of a frame that have a type are judged by it, but for infinities.
        """
        if self._kind == "b":
            return None
        if self._kind == "m" or (self._kind == "n" and not (np.abs(self._typed) > LARGEST).any()):
            return Recognised(self.rules, {})
        levels = self.levels
        return recognise(list(levels), np.array([*levels.values()], dtype=np.intp), self.rules)

    @property
    def dated(self) -> bool:
        """Whether the column is one of numbers that are written as dates or times."""
        if self.series.dtype.kind in "mM":
            return True
        return self.recognised is not None and self.recognised.rules.date is not None

    @property
    def _typed(self) -> Floats:
        """The values of a column that the frame has as numbers or dates, codes not yet out."""
        if self._kind == "n":
            return self.series.to_numpy(dtype=np.float64, na_value=np.nan)
        values: Any = self.series
        if self.series.dtype.kind == "M":
            values = pd.to_datetime(self.series, utc=True) - pd.Timestamp(0, tz="UTC")
        days = values / pd.Timedelta(days=1)
        return np.asarray(days.to_numpy(dtype=np.float64, na_value=np.nan))

    @cached_property
    def numbers(self) -> Floats:
        """The values as float64, a missing one as nan; a column that is not numbers is refused."""
        if self._kind in "mn":  # no detour through text for what is a number already
            missing = parse(self.rules.missing_codes, _PLAIN)
            numbers = self._typed
            numbers = np.where(np.isin(numbers, missing[np.isfinite(missing)]), np.nan, numbers)
        else:
            codes, texts = self._distinct
            numbers = parse(texts, self.rules)[codes]
        # nan is "missing"; inf marks what is not a number, as no number may be that large.
        refused = np.abs(numbers) > LARGEST
        if not refused.any():
            return numbers
        recognised = self.recognised
        if recognised is not None:
            codes, texts = self._distinct
            return parse(texts, recognised.rules)[codes]
        position = int(refused.argmax())
        text, place = self.text(position), self.place(position)
        endless = text.lstrip("+-").lower() in ("inf", "infinity")
        if endless or np.isfinite(parse([text], self.rules)[0]):
            raise DataError(
                f"{place}: the number {text} is too large (above {LARGEST:g}): "
                "correct it or leave the cell empty"
            )
        raise DataError(
            f"{place}: '{text}' is not a number: correct it, leave the cell empty, declare it by "
            f"missing_codes in [task.columns.{self.name}], or list the column in categorical"
        )

    @property
    def missing(self) -> Mask:
        """Which rows have no value, read as text."""
        return self.each(lambda text: text == MISSING, np.bool_)

    @property
    def missing_number(self) -> Mask:
        """Which rows have no value, read as a number: "NA" and its like are missing too."""
        if self._kind in "mn":
            return np.isnan(self.numbers)
        missing = MISSING_NUMBERS.union(self.odd)
        return self.each(missing.__contains__, np.bool_)

    @property
    def odd(self) -> Mapping[str, int]:
        """The cells of a column of numbers that are not numbers, and in how many rows each is."""
        return {} if self.recognised is None else self.recognised.odd

    @property
    def not_numbers(self) -> Mask:
        """Which rows hold a text that does not read as a number ("007" does not)."""
        if self.recognised is not None:
            return self.each(self.odd.__contains__, np.bool_)
        levels = list(self.levels)
        odd = set(itertools.compress(levels, ~are_numbers(levels, self.rules)))
        return self.each(odd.__contains__, np.bool_)

    @property
    def example(self) -> str:
        """A cell that was not written as a plain number, and what it was read as."""
        if self.recognised is None or self._kind in "mn":
            return ""
        for text in self.levels:
            plain = text in MISSING_NUMBERS or are_numbers([text], _PLAIN)[0]
            if not plain and text not in self.odd:
                return f"'{text}' is read as {parse([text], self.recognised.rules)[0]:.12g}"
        return ""

    @property
    def doubts(self) -> list[str]:
        """What a reader should check of how a column of numbers was read."""
        question = "" if self.recognised is None else self.recognised.question
        doubts = [question and f"{self.table}: column '{self.name}': {question}", self.unread]
        return [doubt for doubt in doubts if doubt]

    @property
    def unread(self) -> str:
        """Which cells of a column of numbers could not be read; empty if all could."""
        if not self.odd:
            return ""
        total, count = sum(self.levels.values()), sum(self.odd.values())
        places = np.flatnonzero(self.not_numbers)[:_SHOWN]
        index = self.series.index
        cells = [f"{index.name or 'row'} {index[i]} holds '{self.text(i)}'" for i in places]
        more = f" and {count - _SHOWN} more" * (count > _SHOWN)
        return (
            f"{self.table}: column '{self.name}': {total - count:,} of {total:,} values are "
            f"numbers; {', '.join(cells)}{more}: read as missing"
        )

    @property
    def mixture(self) -> str:
        """A text that makes the column one of categories, if most of its values are numbers."""
        if self.recognised is not None:
            return ""
        text, values = self.not_numbers, sum(self.levels.values())
        if 2 * text.sum() >= values:
            return ""
        first = int(text.argmax())
        return (
            f"{self.place(first)}: '{self.text(first)}' is not a number, so the column is "
            f"categorical ({text.sum()} of {values} values are text); if it holds numbers, "
            "correct these cells or declare them as missing_codes"
        )

    @property
    def coerced(self) -> int:
        """How many texts lost surrounding spaces or needless decimals on reading."""
        codes, uniques = self._cells
        changed = [isinstance(v, str) and canonical_text(v) not in (v, MISSING) for v in uniques]
        return int(np.array([*changed, False])[codes].sum())


Columns = Mapping[str, Column]


def columns_of(frame: pd.DataFrame, table: str, reading: Reading | None = None) -> Columns:
    """Split a frame into columns, each of which is converted to text or numbers only once."""
    rules = Reading().rules if reading is None else reading.rules
    return {str(name): Column(table, frame[name], rules(str(name))) for name in frame.columns}


def require_columns(present: Iterable[str], needed: Iterable[str], table: str) -> None:
    """Refuse a table that lacks a column, naming the nearest one."""
    require_known("column", needed, list(present), DataError, where=table)


def require_present(present: Iterable[str], needed: Iterable[str], table: str) -> None:
    """Refuse rows that lack columns which a model needs, naming those that may be meant.

    Examples
    --------
    >>> require_present(["age", "sex"], ["sex"], "new.csv")
    """
    columns = list(present)
    lacking = [name for name in dict.fromkeys(needed) if name not in columns]
    if not lacking:
        return
    several, quoted = len(lacking) > 1, ", ".join(f"'{name}'" for name in lacking)
    lower = {name.lower(): name for name in columns}
    shown = ", ".join(columns[:10]) + ", ..." * (len(columns) > 10)
    fix = f"add {'them' if several else 'it'} (there are {shown})"
    if near := get_close_matches(lacking[0].lower(), lower, n=1):
        fix = f"rename '{lower[near[0]]}' if it is meant"
    raise DataError(f"{table} lacks the column{'s' * several} {quoted}: {fix}")


def lookalike(name: str, others: Iterable[str]) -> bool:
    """Return whether another name differs in nothing but case, spaces and punctuation.

    Examples
    --------
    >>> lookalike("race", ["Race ", "age"]), lookalike("race", ["place"])
    (True, False)
    """

    def bare(text: str) -> str:
        return "".join(filter(str.isalnum, text)).casefold()

    return any(bare(other) == bare(name) for other in others)
