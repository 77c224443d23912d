"""How the cells of a file are read: notation of numbers and dates, codes for missing values."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from mfairfl.data.values import DocumentedModel, StrictModel, Text
from mfairfl.errors import ConfigError

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
            raise ConfigError(
                f"date '{self.date}' is not a format: give 'iso' or one such as '%d.%m.%Y'"
            )
        return self


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
        """Return the rules of a column: its own, and those of the file for what they leave out."""
        own = self.columns.get(column, ColumnRules())
        return ColumnRules(
            decimal=own.decimal or self.decimal,
            thousands=own.thousands or self.thousands,
            missing_codes=tuple(dict.fromkeys((*own.missing_codes, *self.missing_codes))),
            date=own.date,
            missing=own.missing,
        )

    def read_as(self, other: Reading | None) -> Reading:
        """Return how a file is read that has rules of its own; they override these."""
        if other is None:
            return self
        names = dict.fromkeys([*self.columns, *other.columns])
        merged = {name: _overridden(self.rules(name), other.rules(name)) for name in names}
        return Reading(
            decimal=other.decimal or self.decimal,
            thousands=other.thousands or self.thousands,
            missing_codes=tuple(dict.fromkeys((*other.missing_codes, *self.missing_codes))),
            columns=merged,
        )


def _overridden(rules: ColumnRules, own: ColumnRules) -> ColumnRules:
    codes = tuple(dict.fromkeys((*own.missing_codes, *rules.missing_codes)))
    set_here = own.model_dump(exclude_none=True) | {"missing_codes": codes}
    return rules.model_copy(update=set_here)
