"""One line of the doctor."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """What a check found; printed as one line.

    Examples
    --------
    >>> print(Finding("warn", "groups", "sex f has 3 test rows"))
    warn  groups: sex f has 3 test rows
    """

    level: Literal["ok", "note", "warn", "fail"]
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.level:<4}  {self.check}: {self.message}"
