"""The fairness Lagrangian that several methods share: multipliers in, prices out.

Symbols: constraint j compares the rate F_e of an event with the rate F_{e,g} of a group in it;
d_j = F_e − F_{e,g} (signed), n_e rows in the event, n rows in all, α the tolerance, c the damping.

Signed multipliers:  μ_j ← [μ_j + γ (n_e/n) dead(d_j)]_j, priced as μ_j + c (n_e/n) d_j;
the paper's:         λ_j ← max(0, λ_j + γ h_j), priced as max(0, λ_j + c h_j) sign(d_j),

with dead(d) = sign(d)·max(|d| − α, 0), h_j = |d_j| − α, and [·]_j clipping to ±cap·n_{e,g}/n: a
multiplier does not grow beyond what its group's price may show (`Constraints.limits`).
Σ_j μ_j d_j is a mean of per-row prices (`Constraints.prices`), and prices are what clients train
on. The factor n_e/n is 1 for demographic and accuracy parity (where the attribute is recorded of
every row; else prices move as if the other rows were not there); for equalized odds, the label's
share, it gives both labels the same step, and the same damping, relative to their rows. (Damped by
c d_j the rarer label would swing from round to round.)
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np

from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Constraints, Goal, Kind
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Summary
from mfairfl.training.plan import Controller, Prices, dead_zone

LITERAL_STEPS = 200
"""Server steps of the literal readings: 10 rounds of 20 epochs, the budget of Su et al. 2024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lagrangian:
    """How multipliers move and what they cost; symbols and formulas at the top of the module."""

    constraints: Constraints
    alpha: float
    gamma: float = 1.0
    damping: float = 0.0
    multiplier: Literal["signed", "paper"] = "signed"
    pricing: Prices = field(default_factory=Prices)

    @classmethod
    def of(cls, summary: Summary, **settings: Any) -> Self:
        """Return the Lagrangian of a run's goal; the settings are the other fields."""
        return cls(constraints=summary.constraints, alpha=summary.goal.dead_zone, **settings)

    def gaps(self, statistics: Statistics) -> Floats:
        """Return d; an undefined gap is 0 here: it moves nothing and costs nothing."""
        return np.nan_to_num(self.constraints.gaps(statistics, self.pricing.driven_by), nan=0.0)

    def steps(self, counts: Floats) -> Floats:
        """Return γ n_e/n for each constraint."""
        return self.gamma * self._event_shares(counts)

    def _event_shares(self, counts: Floats) -> Floats:
        events, _ = self.constraints.counts(counts)
        return np.asarray(events / counts.sum())

    def moved(
        self, multipliers: Floats, statistics: Statistics, gain: Floats | float = 1.0
    ) -> Floats:
        """Return the multipliers after a step on pooled statistics; `gain` is for signed ones."""
        gaps = self.gaps(statistics)
        if self.multiplier == "paper":
            undefined = np.isnan(self.constraints.gaps(statistics, self.pricing.driven_by))
            excess = np.where(undefined, 0.0, np.abs(gaps) - self.alpha)
            return np.asarray(np.maximum(0.0, multipliers + self.gamma * excess))
        most = self.constraints.limits(statistics.counts, self.pricing.cap)
        steps = gain * self.steps(statistics.counts)
        return np.asarray(np.clip(multipliers + steps * dead_zone(gaps, self.alpha), -most, most))

    def signed(self, multipliers: Floats, statistics: Statistics) -> Floats:
        """Return the signed multipliers that are priced, with damping."""
        gaps = self.gaps(statistics)
        if self.multiplier == "paper":
            # Below 0 it would reward gaps that the tolerance allows.
            damped = np.maximum(0.0, multipliers + self.damping * (np.abs(gaps) - self.alpha))
            return np.asarray(damped * np.sign(gaps))
        damping = self.damping * self._event_shares(statistics.counts)
        return np.asarray(multipliers + damping * gaps)

    def prices(self, signed: Floats, counts: Floats, scale: float = 1.0) -> tuple[Floats, Floats]:
        """Return (score price, loss price) per (cell, label), scaled, within the caps.

        `scale` is (n_k/n)/p_k: 1 under size weights, K n_k/n under uniform ones, so that
        Σ p_k J_k stays the pooled Lagrangian.
        """
        return self.pricing.tables(self.constraints, signed, counts, scale)

    def local_controller(
        self, goal: Goal, counts: Floats, *, every: int, shrink: float
    ) -> Controller:
        """Return multipliers that a trainer moves by its own gaps and keeps to itself.

        `counts` are the trainer's rows per (cell, label).
        """
        steps = self.steps(counts)
        return Controller(
            goal=goal,
            multipliers=(0.0,) * len(steps),
            step=tuple(steps),
            every=every,
            prices=self.pricing,
            shrink=shrink,
            slot="multipliers",
        )

    def log(self, multipliers: Floats, pooled: Statistics) -> dict[str, Any]:
        """Return multipliers, prices and violations at the start of the round, for its log."""
        score, loss = self.prices(self.signed(multipliers, pooled), pooled.counts)
        violations = {
            f"violation_{kind}": self.constraints.violation(pooled, kind)
            for kind in get_args(Kind)
        }
        return {
            "constraints": [" | ".join(label) for label in self.constraints.labels],
            "multipliers": multipliers.tolist(),
            "score_prices": score.tolist(),
            "loss_prices": loss.tolist(),
            **{name: None if np.isnan(x) else float(x) for name, x in violations.items()},
        }
