"""A sensitive attribute: its name and the names of its groups."""

from __future__ import annotations

from dataclasses import dataclass

from mfairfl.data.text import MISSING

__all__ = ["Attribute"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A sensitive attribute; a row's group code is an index into `groups`.

    The group ``?`` holds the rows of which the attribute is not recorded. They count like all
    others, but are outside every comparison of its groups, on both sides.

    Examples
    --------
    >>> race = Attribute("race", ("Black", "White", "?"))
    >>> race.size, race.recorded
    (3, ('Black', 'White'))
    """

    name: str
    groups: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many groups the attribute has."""
        return len(self.groups)

    @property
    def recorded(self) -> tuple[str, ...]:
        """The groups that are compared: all but ``?``."""
        return tuple(group for group in self.groups if group != MISSING)
