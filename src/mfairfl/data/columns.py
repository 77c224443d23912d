"""One raw column: its values as text or as numbers, and the place of a value for messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.text import MISSING, canonical_text
from mfairfl.errors import DataError

__all__ = ["Column", "Columns", "columns_of"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
# Only in numeric columns: in text, "NA" may be Namibia and "None" an answer.
_NO_NUMBER = frozenset({MISSING, "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"})
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
        # nan is "missing"; inf marks what is no number, as no number may be that large.
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
        comma = (
            " (write a decimal point, not a comma)"
            if _NUMBER.fullmatch(text.replace(",", "."))
            else ""
        )
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
        return self._spread(np.bool_, lambda text: text in _NO_NUMBER, True)

    @property
    def not_numbers(self) -> npt.NDArray[np.bool_]:
        """Which rows hold text that does not read as a plain number ("007" does not)."""
        if self.series.dtype.kind in "iufb":
            return np.full(len(self.series), self.series.dtype.kind == "b")
        return self._spread(
            np.bool_, lambda t: t not in _NO_NUMBER and not _plain_number(t), False
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


Columns = Mapping[str, Column]


def columns_of(frame: pd.DataFrame, table: str) -> dict[str, Column]:
    """Take a frame apart, so that each column is read as text or numbers once only."""
    return {str(name): Column(table, frame[name]) for name in frame.columns}


def _plain_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and _LEADING_ZERO.match(text) is None


def _number(text: str) -> float:
    if text in _NO_NUMBER:
        return np.nan
    if text in ("True", "False"):
        return float(text == "True")
    return float(text) if _NUMBER.fullmatch(text) else np.inf
