"""From mFairFL's multipliers to one client's plan: prices in its tables, or a controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.strategies.base import Measurement, State
from mfairfl.strategies.lagrangian import Lagrangian, as_table
from mfairfl.training.plan import Controller, Plan

if TYPE_CHECKING:
    from mfairfl.strategies.mfairfl import MFairFL

__all__ = ["Pricing"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pricing:
    """What a round's multipliers mean for one client's rows."""

    rule: MFairFL
    law: Lagrangian
    goal: Goal
    state: State
    whole: Statistics
    measured: Sequence[str]

    def plan(self, measurement: Measurement, plan: Plan) -> Plan:
        """Return the client's plan: prices in its tables, or a controller that moves them."""
        controller = self._controller(measurement, plan.epochs)
        loss, score = self.tables(measurement, groups=controller is None)
        return replace(
            plan, controller=controller, loss_table=as_table(loss), score_table=as_table(score)
        )

    def tables(self, measurement: Measurement, *, groups: bool) -> tuple[Floats, Floats]:
        """Return A and B; `groups` says whether the group constraints are priced in them."""
        score = self._parity_price(measurement)
        loss = np.ones_like(score)
        if groups and self.rule.constraint and self.rule.scope == "global":
            signed = self.law.signed(self.state["multipliers"], self.whole)
            scale = self._scale(measurement)
            on_score, on_loss = self.law.prices(signed, self.whole.counts, scale)
            return loss + on_loss, score + on_score
        return loss, score

    def rank(self, measurement: Measurement) -> float:
        """Return the number by which clients are ordered: L_k, or J_k with its prices."""
        if self.rule.ordering == "loss":
            return measurement.loss
        loss, score = self.tables(measurement, groups=True)
        sums = measurement.statistics
        return float((loss * sums.losses + score * sums.scores).sum() / measurement.rows)

    def _scale(self, measurement: Measurement) -> float:
        """Return (n_k/n)/p_k."""
        if self.rule.weights == "size":
            return 1.0
        return float(len(self.measured) * measurement.rows / self.whole.counts.sum())

    def _parity_price(self, measurement: Measurement) -> Floats:
        """Return the price on σ of the clients' error gaps: u_k = Σ_j μ_j − μ_k n/n_k.

        The sum is over the clients whose rows make up n.
        """
        mu = dict(zip(self.state["clients"], self.state["client_multipliers"], strict=True))
        share = measurement.rows / self.whole.counts.sum()
        u = sum(mu[name] for name in self.measured) - mu[measurement.client] / share
        u = float(
            np.clip(self._scale(measurement) * u, -self.rule.counter_cap, self.rule.counter_cap)
        )
        # As for groups: where errors must rise, price false positives only.
        both = u > 0 or not self.rule.one_sided
        return np.tile([u, -u if both else 0.0], (len(self.whole.counts), 1))

    def _controller(self, measurement: Measurement, epochs: int) -> Controller | None:
        """Return the multipliers' moves inside the round, if there are any."""
        rule, law, mu = self.rule, self.law, self.state["multipliers"]
        if not rule.constraint or rule.update == "gradient":
            return None
        shared: dict[str, Any] = {
            "goal": self.goal,
            "every": min(rule.every, epochs),
            "one_sided": rule.one_sided,
            "price_cap": rule.price_cap,
            "counter_cap": rule.counter_cap,
            "hard": rule.driven_by == "hard",
        }
        if rule.scope == "local":
            own = law.steps(measurement.statistics.counts)
            zeros = tuple(0.0 for _ in mu)
            shared |= {"shrink": rule.shrink, "slot": "multipliers"}
            return Controller(multipliers=zeros, step=tuple(own), **shared)
        if rule.multiplier == "paper" or epochs <= rule.every:
            return None
        return Controller(
            multipliers=tuple(law.signed(mu, self.whole)),
            step=tuple(self.state["gain"] * law.steps(self.whole.counts)),
            offset=tuple(law.gaps(self.whole) + self.state["shift"]),
            relative=True,
            counts=as_table(self.whole.counts),
            scale=self._scale(measurement),
            **shared,
        )
