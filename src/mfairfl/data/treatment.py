"""What was done to data before training: lines for an auditor, each with its kind."""

# Annotations are not postponed: pydantic 2.9 would look their names up in the module of the model
# that holds a `Treated`.
from collections.abc import Iterable
from typing import Literal, NamedTuple

TreatmentKind = Literal["dropped", "filled", "merged", "proxy"]
"""Rows or columns left out; values filled in; values made one; a feature that tells the group."""


class Treated(NamedTuple):
    """One line about what was done, or about what a feature gives away."""

    kind: TreatmentKind
    line: str


def treated(kind: TreatmentKind, lines: Iterable[str]) -> tuple[Treated, ...]:
    """Return lines of one kind.

    Examples
    --------
    >>> treated("dropped", ["3 of 9 rows left out"])
    (Treated(kind='dropped', line='3 of 9 rows left out'),)
    """
    return tuple(Treated(kind, line) for line in lines)
