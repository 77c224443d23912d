"""A sensitive attribute: its name and the names of its groups."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Attribute"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A sensitive attribute; a row's group code is an index into `groups`.

    Examples
    --------
    >>> Attribute("sex", ("Female", "Male")).size
    2
    """

    name: str
    groups: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many groups the attribute has."""
        return len(self.groups)
