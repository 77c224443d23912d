"""Fair training without a fair server: IndFair, FedAvg-f and CenFair.

The baselines of C. Su, G. Yu, J. Wang, H. Li, Q. Li, H. Yu: Multi-dimensional Fair Federated
Learning. AAAI 2024; after Y. Zeng, H. Chen, K. Lee: Improving Fairness via Federated Learning.
2021 ("LFT + Ensemble", "LFT + FedAvg", "CFT").

Symbols: trainer k (a client; for CenFair one trainer with all rows) with n_k rows; constraint j
on its own rows with signed gap d_{k,j} = F_{k,e} − F_{k,e,g}, multiplier μ_{k,j}, tolerance α,
step γ.

Update: every trainer minimises its own Lagrangian L_k + Σ_j μ_{k,j} d_{k,j}, as mFairFL prices it,
and after every `every` epochs μ_{k,j} ← [μ_{k,j} + a γ (n_{k,e}/n_k) dead(d_{k,j}, α)], with
mFairFL's gain a and clipping [·]. Multipliers persist over rounds and never leave the trainer.
- `indfair`: nothing is averaged; the clients' models answer together, ŷ = [Σ_k p_k P_k(x) > ½].
- `fedavg-f`: w_{t+1} = Σ_k p_k w_k every round.
- `cenfair`: the pooled rows, one trainer: a reference line, not federated.

Deviations:
- The constraint is the Lagrangian that mFairFL uses (signed multipliers driven by thresholded
  rates), the same for all three, in place of FairBatch: a comparison with mFairFL then differs in
  the federation alone. FairBatch itself is `fedfb` and `fairfed`'s.
- IndFair's models go to the server every round, so that the loop can follow and choose among them
  (`select` over rounds); the method needs one message, at the end. `weights` sets the shares of
  the ensemble: the paper's Eq. 9 counts clients alike, the public code by size.
- A group that a client does not have leaves its multipliers at 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary, shares
from mfairfl.strategies.lagrangian import Lagrangian
from mfairfl.training.plan import Controller, Job, Report

__all__ = ["CenFair", "FedAvgFair", "IndFair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalFair:
    """What the three share: fair training on a trainer's own rows.

    Parameters
    ----------
    gamma : float
        γ, the multiplier step.
    shrink : float
        Factor on a multiplier's step when its gap changes sign; it recovers by 1.2 a step up to γ.
    every : int
        Epochs between multiplier steps; a shorter round ends with one.
    driven_by : {"hard", "smooth"}
        Whether thresholded or smooth rates move the multipliers.
    one_sided : bool
        Price only false positives where errors must rise.
    price_cap, counter_cap : float
        Bounds of prices that push rows towards their label, and away from it.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    gamma: float = field(default=1.0, metadata={"grid": (0.25, 0.5, 1.0, 2.0)})
    shrink: float = 0.5
    every: int = 5
    driven_by: Literal["hard", "smooth"] = "hard"
    one_sided: bool = True
    price_cap: float = 20.0
    counter_cap: float = 5.0
    weights: Literal["size", "uniform"] = "size"

    def __post_init__(self) -> None:
        for name in ("gamma", "price_cap", "counter_cap"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"strategy.{name} must be at least 0, not {getattr(self, name)}")
        if not 0 < self.shrink <= 1:  # a step of 0 would never recover
            raise ConfigError(f"strategy.shrink must lie in (0, 1], not {self.shrink}")
        if self.every < 1:
            raise ConfigError(f"strategy.every must be at least 1, not {self.every}")

    def start(self, summary: Summary) -> State:
        """Nothing: the trainers remember, the server does not."""
        del summary
        return {}

    def plan(
        self, state: State, context: Context, measurements: Sequence[Measurement]
    ) -> tuple[State, list[Job]]:
        """Every trainer gets a controller that moves its own multipliers."""
        return state, [self._job(context, measurement) for measurement in measurements]

    def _job(self, context: Context, measurement: Measurement) -> Job:
        goal = context.summary.goal
        law = Lagrangian(
            constraints=goal.constraints(context.summary.attributes),
            alpha=goal.alpha,
            gamma=self.gamma,
        )
        steps, plan = law.steps(measurement.statistics.counts), context.plan
        epochs = 1 if plan.optimizer.name == "gradient" else plan.epochs
        controller = Controller(
            goal=goal,
            multipliers=tuple(0.0 for _ in steps),
            step=tuple(steps),
            every=min(self.every, epochs),
            one_sided=self.one_sided,
            price_cap=self.price_cap,
            counter_cap=self.counter_cap,
            hard=self.driven_by == "hard",
            shrink=self.shrink,
            slot="multipliers",
        )
        return Job(client=measurement.client, plan=replace(plan, controller=controller))

    def combine(
        self,
        state: State,
        context: Context,
        measurements: Sequence[Measurement],
        reports: Sequence[Report],
        gram: NDArray[np.float64] | None,
    ) -> Step:
        """c_k = p_k over those who reported; the members of an ensemble move by themselves."""
        del context, gram
        p = shares(measurements, reports, self.weights)
        alone = self.card.serves == "ensemble"
        return Step(coefficients=np.ones(len(reports)) if alone else p, state=state)

    card: ClassVar[Card]


class IndFair(_LocalFair):
    """Every client trains its own fair model; all answer together."""

    __slots__ = ()
    card: ClassVar[Card] = Card(
        title="Clients' own fair models, together",
        paper="Zeng et al. 2021",
        protects="groups, by client",
        reveals="individual",
        serves="ensemble",
        constrained=True,
    )


class FedAvgFair(_LocalFair):
    """Local fair training, then federated averaging."""

    __slots__ = ()
    card: ClassVar[Card] = Card(
        title="Local fair training, then averaging",
        paper="Zeng et al. 2021",
        protects="groups, by client",
        constrained=True,
    )


class CenFair(_LocalFair):
    """Fair training on the pooled rows: the reference line."""

    __slots__ = ()
    card: ClassVar[Card] = Card(
        title="Fair training on pooled rows",
        paper="Zeng et al. 2021",
        protects="groups",
        reveals="individual",
        trains_on="pooled",
        constrained=True,
    )
