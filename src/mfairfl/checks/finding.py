"""One line of the doctor, and the order of many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

_LEVELS = ("fail", "warn", "note", "ok")
# Whom to trust, then what loses rows or gives the answer away; after these, as the checks are.
_FIRST = (
    "trust",
    "input",
    "data",
    "leakage",
    "copied rows",
    "label",
    "identifiers",
    "silos",
    "missing codes",
)


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


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Put what matters most first: failures, warnings, notes, then what is in order.

    Examples
    --------
    >>> found = [Finding("ok", "cost", "…"), Finding("warn", "groups", "…"),
    ...          Finding("warn", "leakage", "…")]
    >>> [finding.check for finding in by_weight(found)]
    ['leakage', 'groups', 'cost']
    """

    def weight(finding: Finding) -> tuple[int, int]:
        level, check = finding.level, finding.check
        if level == "warn" and check in _FIRST:
            return _LEVELS.index(level), _FIRST.index(check)
        # Notes on the data say where it is from: last.
        return _LEVELS.index(level), len(_FIRST) + (level == "note" and check == "data")

    return sorted(findings, key=weight)
