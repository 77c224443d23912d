"""What a run is asked to achieve: which notions, on which attributes, within which tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import notion


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The constraint |F_e − F_{e,g}| ≤ alpha for every event, group and notion chosen.

    Parameters
    ----------
    notions : tuple of str
        Names or aliases of notions; several hold together.
    attributes : tuple of str, optional
        Sensitive attributes; None means all of the task.
    intersections : bool
        Whether every intersection of the attributes is constrained as well.
    alpha : float
        Tolerance: gaps up to here are left alone.

    Examples
    --------
    >>> sex = Attribute("sex", ("F", "M"))
    >>> len(Goal(notions=("eo",)).constraints((sex,)))  # two labels × two groups
    4
    >>> age = Attribute("age", ("young", "old"))
    >>> len(Goal().constraints((sex, age))), len(Goal(attributes=("sex",)).constraints((sex, age)))
    (4, 2)
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # for whoever reads it from text

    notions: tuple[str, ...] = ("demographic_parity",)
    attributes: tuple[str, ...] | None = None
    intersections: bool = False
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ConfigError(f"fairness.alpha must lie in [0, 1), not {self.alpha}")
        for name in self.notions:
            notion(name)

    def constraints(self, attributes: Sequence[Attribute]) -> Constraints:
        """Return the constraints of this goal on a task with these attributes."""
        cells = Cells(tuple(attributes))
        groupings = cells.groupings(self.attributes, self.intersections)
        return Constraints(cells, [notion(name) for name in self.notions], groupings)
