"""Values of cells: compared as text, read as numbers or dates, in the notation of a file."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mfairfl.errors import ConfigError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.signedinteger[Any]]
Labels = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

MISSING = "?"
"""The text of a missing value: an empty cell, a null and a literal ``?`` are the same."""

_INTEGRAL = re.compile(r"(-?)(0|[1-9]\d*)\.0+")


def canonical_text(value: object) -> str:
    """Format a scalar as the text by which mfairfl compares values.

    Surrounding spaces are removed, whole numbers lose their decimals, a missing value is ``?``.
    Anything else stays as it is written: ``"007"`` is not ``"7"``, ``"1.50"`` is not ``"1.5"``.

    Examples
    --------
    >>> [canonical_text(v) for v in (1, 1.0, "1", " 1.0 ", "007", 2.5, True, None, "")]
    ['1', '1', '1', '1', '007', '2.5', 'True', '?', '?']
    """
    if value is None:
        return MISSING
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return MISSING
        if number.is_integer() and abs(number) < 1e18:
            return str(int(number))
    text = str(value).strip()
    if match := _INTEGRAL.fullmatch(text):
        return match[2] if match[2] == "0" else match[1] + match[2]
    return text or MISSING


def _scalar(value: object) -> str:
    if value is None or isinstance(value, (list, tuple, dict, set)):
        raise ConfigError(f"{value!r} is not a single value: give a text, a number or a boolean")
    return canonical_text(value)


Text = Annotated[str, BeforeValidator(_scalar)]
"""A text, a number or a boolean, kept as canonical text."""


class StrictModel(BaseModel):
    """Frozen data without unknown keys, infinities or nan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DocumentedModel(StrictModel):
    """A strict model whose fields are described by the texts below them.

    Pydantic reads the source for them, which takes milliseconds for each class.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)


_FORMAT = re.compile(r"%[YymdHMSjbBp]")

Policy = Literal["level", "drop", "error"]
"""What happens to a missing value; see `Task.missing`."""

Separator = Literal[",", ".", " ", "'"]


class ColumnRules(StrictModel):
    """How the cells of one column are read; what is left out is as for the whole file.

    Parameters
    ----------
    decimal, thousands
        Marks in numbers: with "," and "." the text ``1.200,5`` is 1200.5.
    missing_codes
        Texts that mean "no value" in this column, besides those of the whole file.
    date
        "iso" (2024-05-31, with or without a time) or a format such as ``%d.%m.%Y``. A date becomes
        the days since 1970-01-01, a time of day the hours since midnight.
    missing
        What happens to rows without a value: as `Task.missing`, for this column.

    Examples
    --------
    >>> ColumnRules(missing_codes=(-9,)).missing_codes
    ('-9',)
    """

    decimal: Literal[".", ","] | None = None
    thousands: Separator | None = None
    missing_codes: tuple[Text, ...] = ()
    date: str | None = None
    missing: Policy | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.thousands is not None and self.thousands == (self.decimal or "."):
            raise ConfigError(
                f"'{self.thousands}' cannot be both the decimal mark and the separator of "
                "thousands: set decimal as well"
            )
        if self.date is not None and self.date != "iso" and not _FORMAT.search(self.date):
            raise ConfigError(f"date '{self.date}' is not 'iso' or a format such as '%d.%m.%Y'")
        return self

    def over(self, others: ColumnRules) -> ColumnRules:
        """Return these rules, with `others` for what they leave out, and the codes of both.

        Examples
        --------
        >>> ColumnRules(date="iso").over(ColumnRules(date="%Y", missing_codes=(-9,)))
        ColumnRules(decimal=None, thousands=None, missing_codes=('-9',), date='iso', missing=None)
        """
        codes = tuple(dict.fromkeys((*self.missing_codes, *others.missing_codes)))
        stated = others.model_dump(exclude_none=True) | self.model_dump(exclude_none=True)
        return ColumnRules(**stated | {"missing_codes": codes})


class Reading(DocumentedModel):
    """How the cells of a file are read, and those of single columns where they differ.

    Examples
    --------
    >>> reading = Reading(decimal=",", columns={"age": ColumnRules(missing_codes=("-9",))})
    >>> reading.rules("age")
    ColumnRules(decimal=',', thousands=None, missing_codes=('-9',), date=None, missing=None)
    """

    decimal: Literal[".", ","] | None = Field(default=None, examples=[","])
    """Decimal mark of numbers; found out if omitted."""
    thousands: Separator | None = Field(default=None, examples=["."])
    """Separator of thousands; found out if omitted."""
    missing_codes: tuple[Text, ...] = Field(default=(), examples=[["-9", "unknown"]])
    """Texts that mean a missing value, in any column."""
    columns: dict[str, ColumnRules] = Field(default_factory=dict)
    """Rules of single columns: decimal, thousands, missing_codes, date, missing."""

    @model_validator(mode="after")
    def _compatible(self) -> Self:
        for name in self.columns:
            self.rules(name)
        return self

    def rules(self, column: str) -> ColumnRules:
        """Return the rules of a column, with those of the file for what they leave out."""
        return self.columns.get(column, ColumnRules()).over(self._whole)

    @property
    def _whole(self) -> ColumnRules:
        """The rules of the file."""
        stated = {key: getattr(self, key) for key in ("decimal", "thousands", "missing_codes")}
        # Not validated: a separator that clashes here may go with a column's own decimal mark.
        return ColumnRules.model_construct(**stated)

    def read_as(self, other: Reading | None) -> Reading:
        """Return how a file is read that has rules of its own; they override these."""
        if other is None:
            return self
        names = dict.fromkeys([*self.columns, *other.columns])
        columns = {name: other.rules(name).over(self.rules(name)) for name in names}
        whole = other._whole.over(self._whole).model_dump(exclude={"date", "missing"})
        return Reading(**whole, columns=columns)


LARGEST = 1e100
"""Above it a number is refused: squares stay far from overflow."""
# Only in numeric columns: in text, "NA" may be Namibia and "None" an answer.
MISSING_NUMBERS = frozenset({MISSING, "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"})
"""Texts that mean "no value" in a column of numbers."""

_SIGNS = "$€£¥"
_DRESS = re.compile(rf"([+-]?)\s*[{_SIGNS}]?\s*(.*?)\s*[{_SIGNS}%]?")
_DIGIT = re.compile(r"\d")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_THOUSANDS_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_THOUSANDS_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " "})
# Decimal mark and separator of thousands, likely ones first.
_NOTATIONS = ((".", ""), (".", ","), (",", ""), (",", "."), (",", " "), (".", " "), (".", "'"))
_DATES = ("iso", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%H:%M", "%H:%M:%S")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
_SAMPLE = 1000  # distinct texts that show whether a closer look is worth it
_ALMOST = 0.9  # a column with this share of numbers is one of numbers
_FEW_WORDS = 3  # or with half of it, if the rest is this many words
_CODES = 10  # numbers with no more distinct values may be codes, and words among them too


def parse(texts: Sequence[str], rules: ColumnRules) -> Floats:
    """Return the number that each text stands for: nan if it is missing, inf if there is none.

    Examples
    --------
    >>> parse(["1.200,50", "12 %", "?", "many"], ColumnRules(decimal=",", thousands="."))
    array([1200.5,   12. ,    nan,    inf])
    """
    missing = MISSING_NUMBERS.union(rules.missing_codes)
    if rules.date is None:
        decimal, thousands = rules.decimal or ".", rules.thousands or ""
        pattern = _number_pattern(decimal, thousands)
        read = [_number(text, pattern, decimal, thousands) for text in texts]
        numbers = np.array(read, np.float64)
    else:
        numbers = _parse_dates(texts, rules.date)
    return np.where([text in missing for text in texts], np.nan, numbers)


def _number(text: str, pattern: re.Pattern[str], decimal: str, thousands: str) -> float:
    if text in ("True", "False"):
        return float(text == "True")
    if not pattern.fullmatch(text):
        text = _bare(text)
        if not pattern.fullmatch(text):
            return np.inf
    if thousands:
        text = text.replace(thousands, "")
    return float(text.replace(decimal, "."))


def _bare(text: str) -> str:
    """Leave out currency and per cent signs."""
    dressed = _DRESS.fullmatch(text.translate(_SPACES))
    return text if dressed is None else dressed[1] + dressed[2]


@functools.lru_cache
def _number_pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    mark, gap = re.escape(decimal), re.escape(thousands)
    digits = rf"(?:\d{{1,3}}(?:{gap}\d{{3}})+|\d+)" if thousands else r"\d+"
    return re.compile(rf"[+-]?(?:{digits}(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?")


def _parse_dates(texts: Sequence[str], written: str) -> Floats:
    """Return days since 1970-01-01, or hours since midnight for a time without a date."""
    iso = written == "iso"
    plain = [text if not iso or _ISO.fullmatch(text) else None for text in texts]
    cells, style = pd.Series(plain, dtype="str"), "ISO8601" if iso else written
    # An unusable format is refused when the rules are made, so what fails here is a cell.
    moments = pd.to_datetime(cells, format=style, errors="coerce", utc=True)
    if iso or "%Y" in written or "%y" in written:
        distances = (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    else:
        distances = (moments - moments.dt.normalize()) / pd.Timedelta(hours=1)
    return np.asarray(distances.fillna(np.inf), np.float64)


@dataclass(frozen=True, slots=True)
class Recognised:
    """How a column's texts are read as numbers.

    Parameters
    ----------
    rules : ColumnRules
        Notation, with the texts that are not numbers among the missing codes.
    odd : dict of str to int
        These texts, and in how many rows they are.
    question : str
        What else the notation could mean, if it is not certain.
    """

    rules: ColumnRules
    odd: dict[str, int]
    question: str = ""


def recognise(texts: Sequence[str], counts: Integers, stated: ColumnRules) -> Recognised | None:
    """Find out how (distinct) texts are written as numbers or dates; None if they are neither.

    Parameters
    ----------
    texts, counts
        Distinct texts, and in how many rows each is.
    stated
        Rules that hold in any case: only what they leave out is found out.

    Examples
    --------
    >>> texts = [f"1,{i}.5" for i in range(100, 120)] + ["n/k"]
    >>> recognised = recognise(texts, np.ones(21, dtype=int), ColumnRules())
    >>> recognised.rules.thousands, recognised.odd
    (',', {'n/k': 1})
    """
    filled = np.array([text not in MISSING_NUMBERS for text in texts], dtype=bool)
    texts = list(itertools.compress(texts, filled))
    counts = np.asarray(counts)[filled]
    if not texts:
        return Recognised(stated, {})
    best, most = None, -1
    for rules in _candidates(texts, stated):
        numbers = are_numbers(texts, rules)
        rows = int(counts[numbers].sum())
        if rows > most:
            best, most = _judged(texts, counts, numbers, rules), rows
        if numbers.all():
            break
    return best


def are_numbers(texts: Sequence[str], rules: ColumnRules) -> Mask:
    """Return which texts read as numbers; with a leading zero, as in "007", they are codes."""
    numbers = parse(texts, rules)
    read: Mask = np.abs(numbers) <= LARGEST
    if rules.date is None:
        read &= np.array([_LEADING_ZERO.match(text) is None for text in texts], dtype=bool)
    return read


def _candidates(texts: Sequence[str], stated: ColumnRules) -> Iterator[ColumnRules]:
    """Yield the notations that read at least half of a sample."""
    if stated.date is not None:
        yield stated
        return
    sample = texts[:: max(1, len(texts) // _SAMPLE)]
    updates: list[dict[str, str | None]] = []
    for mark, gap in _NOTATIONS:
        if stated.decimal in (None, mark) and stated.thousands in (None, gap):
            decimal = stated.decimal if mark == "." else mark
            updates.append({"decimal": decimal, "thousands": gap or stated.thousands})
    if 2 * sum(_DIGIT.search(text) is not None for text in sample) >= len(sample):
        updates += [{"date": date} for date in _DATES]
    for update in updates:
        rules = stated.model_copy(update=update)
        if (np.abs(parse(sample, rules)) <= LARGEST).mean() >= 0.5:
            yield rules


def _judged(
    texts: Sequence[str],
    counts: Integers,
    read: Mask,
    rules: ColumnRules,
) -> Recognised | None:
    """Return the reading if the column is one of numbers, but for a few cells."""
    odd = {texts[i]: int(counts[i]) for i in np.flatnonzero(~read).tolist()}
    share = counts[read].sum() / counts.sum()
    almost = share >= _ALMOST or (share >= 0.5 and len(odd) <= _FEW_WORDS)
    leading_zeros = any(map(_LEADING_ZERO.match, odd))
    if odd and (not almost or leading_zeros or int(read.sum()) <= _CODES):
        return None
    codes = (*rules.missing_codes, *sorted(odd))
    settled = rules.model_copy(update={"missing_codes": codes})
    return Recognised(settled, odd, _question(texts, rules))


def _question(texts: Sequence[str], rules: ColumnRules) -> str:
    """Return what else a notation may mean where nothing in the column decides it."""
    if rules.date is not None:
        return _other_order(texts, rules.date)
    bare = [_bare(text) for text in texts]
    commas = [text for text in bare if rules.thousands == "," and "," in text]
    points = [text for text in bare if "." in text]
    if commas and not points and all(map(_THOUSANDS_COMMAS.fullmatch, commas)):
        reading = "with a comma between thousands; if it is a decimal comma, set decimal = ','"
        return f"'{commas[0]}' is read {reading}"
    # 950 beside 1.200: were it measured, it would have decimals too.
    mixed = rules.decimal is None and 0 < len(points) < len(bare)
    if mixed and all(map(_THOUSANDS_POINTS.fullmatch, points)):
        fix = "if points separate thousands, set thousands = '.' and decimal = ','"
        return f"'{points[0]}' is read with a decimal point; {fix}"
    return ""


def _other_order(texts: Sequence[str], date: str) -> str:
    """Return the question whether day and month are swapped, if every date can be read so."""
    other = {"%d/%m/%Y": "%m/%d/%Y", "%m/%d/%Y": "%d/%m/%Y"}.get(date)
    if other is None or not (np.abs(_parse_dates(texts, other)) <= LARGEST).all():
        return ""
    return f"read as {date}; if day and month are the other way, set date = '{other}'"
