"""Fairness multipliers that a client moves by itself between two rounds.

Executes `plan.Controller`; the mathematics is in its docstring.
"""

from collections.abc import Sized

import numpy as np

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.training.plan import Controller, adapted_gain, dead_zone


class Multipliers:
    """One job's multipliers on the move: `values` now, and `gaps` at the latest move.

    Parameters
    ----------
    setting : Controller
        The plan's controller.
    attributes : tuple of Attribute
        The task's sensitive attributes.
    start : ndarray (3, J), optional
        What the client kept from its last job: multipliers, gains, gaps.
    """

    def __init__(
        self,
        setting: Controller,
        attributes: tuple[Attribute, ...],
        start: np.ndarray | None = None,
    ) -> None:
        self.setting, self._constraints = setting, setting.goal.constraints(attributes)
        count = len(self._constraints)
        self.values = np.asarray(setting.multipliers, dtype=np.float64)
        self._gain, self.gaps = np.ones(count), np.zeros(count)
        if start is not None:
            self.values, self._gain, self.gaps = start
        self._first: np.ndarray | None = None
        lengths: dict[str, Sized | None] = {
            "multipliers": self.values,
            "step": setting.step,
            "offset": setting.offset,
        }
        for name, given in lengths.items():
            if given is not None and len(given) != count:
                raise ConfigError(
                    f"controller.{name}: {len(given)} numbers for {count} constraints; give one "
                    "for each"
                )

    def begin(self, counts: np.ndarray, sums: Statistics | None) -> None:
        """Take what holds at the start of the job.

        Parameters
        ----------
        counts : ndarray (C, 2)
            The client's rows by (cell, label).
        sums : Statistics, optional
            Its sums there, which `relative` steps are measured from; others need none.
        """
        setting = self.setting
        used = counts if setting.counts is None else setting.counts
        self._counts = np.asarray(used, dtype=np.float64)
        if setting.relative and sums is not None:
            self._first = self._constraints.gaps(sums, setting.prices.driven_by)

    def move(self, sums: Statistics) -> None:
        """μ ← [μ + gain · step · dead(offset + d − d₀)], within what a price may show."""
        setting = self.setting
        gaps = self._constraints.gaps(sums, setting.prices.driven_by)
        if self._first is not None:
            gaps = gaps - self._first
        # A group the client does not have gives no evidence: only the offset counts then.
        gaps = np.nan_to_num(gaps, nan=0.0)
        if setting.offset is not None:
            gaps = gaps + np.asarray(setting.offset)
        self._gain = adapted_gain(self._gain, gaps, self.gaps, setting.shrink)
        self.gaps = gaps
        dead = dead_zone(gaps, setting.goal.dead_zone)
        most = self._constraints.limits(self._counts, setting.prices.cap)
        self.values = np.clip(self.values + self._gain * setting.step * dead, -most, most)

    def prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what to add to the score table B and the loss table A, each (C, 2)."""
        setting = self.setting
        return setting.prices.tables(self._constraints, self.values, self._counts, setting.scale)

    @property
    def memory(self) -> np.ndarray:
        """What the client keeps for its next job, (3, J): multipliers, gains, gaps."""
        return np.stack([self.values, self._gain, self.gaps])
