"""Fairness multipliers that a client moves by itself between two rounds.

Executes `plan.Controller`; the mathematics is in its docstring.
"""

from __future__ import annotations

import numpy as np

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.training.plan import Controller, adapted_gain, dead_zone


class Multipliers:
    """One job's multipliers on the move.

    Parameters
    ----------
    setting : Controller
        The plan's controller.
    attributes : tuple of Attribute
        The task's sensitive attributes.
    rows : range
        The client's training rows in the store.
    start : ndarray (3, J), optional
        What the client kept from its last job: multipliers, gains, gaps.
    """

    def __init__(
        self,
        setting: Controller,
        attributes: tuple[Attribute, ...],
        rows: range,
        start: np.ndarray | None = None,
    ) -> None:
        self.setting, self.rows = setting, rows
        self._constraints = setting.goal.constraints(attributes)
        count = len(self._constraints)
        self._mu = np.asarray(setting.multipliers, dtype=np.float64)
        self._gain, self._latest = np.ones(count), np.zeros(count)
        if start is not None:
            self._mu, self._gain, self._latest = start
        self._first: np.ndarray | None = None
        lengths = {"multipliers": len(self._mu), "step": len(setting.step)}
        if setting.offset is not None:
            lengths["offset"] = len(setting.offset)
        for name, length in lengths.items():
            if length != count:
                raise ConfigError(
                    f"controller.{name}: {length} numbers for {count} constraints; give one for "
                    "each"
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

    def due(self, epoch: int) -> bool:
        """Return whether the multipliers move after this epoch (counted from 1)."""
        return epoch % self.setting.every == 0

    def move(self, sums: Statistics) -> None:
        """μ ← [μ + gain · step · dead(offset + d − d₀)], within what a price may show."""
        setting = self.setting
        gap = self._constraints.gaps(sums, setting.prices.driven_by)
        if self._first is not None:
            gap = gap - self._first
        # A group the client does not have gives no evidence: only the offset counts then.
        gap = np.nan_to_num(gap, nan=0.0)
        if setting.offset is not None:
            gap = gap + np.asarray(setting.offset)
        self._gain = adapted_gain(self._gain, gap, self._latest, setting.shrink)
        self._latest = gap
        dead = dead_zone(gap, setting.goal.alpha)
        most = self._constraints.limits(self._counts, setting.prices.cap)
        self._mu = np.clip(self._mu + self._gain * setting.step * dead, -most, most)

    def prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what to add to the loss table A and the score table B, each (C, 2)."""
        setting = self.setting
        tables = setting.prices.tables(self._constraints, self._mu, self._counts, setting.scale)
        return tables[::-1]

    @property
    def values(self) -> tuple[float, ...]:
        """The multipliers now."""
        return tuple(float(x) for x in self._mu)

    @property
    def memory(self) -> np.ndarray:
        """What the client keeps for its next job, (3, J): multipliers, gains, gaps."""
        return np.stack([self._mu, self._gain, self._latest])

    @property
    def gaps(self) -> tuple[float, ...]:
        """The gaps at the latest move."""
        return tuple(float(x) for x in self._latest)
