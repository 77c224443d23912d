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

from dataclasses import dataclass, field, replace

import numpy as np

from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Weights, parameter
from mfairfl.strategies.lagrangian import Lagrangian
from mfairfl.training.plan import Job, Prices, Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalFair(Strategy):
    """What the three share: fair training on a trainer's own rows.

    Parameters
    ----------
    gamma : float
        γ, the multiplier step.
    shrink : float
        Factor on a multiplier's step when its gap changes sign; it recovers by 1.2 per step, up to
        γ.
    every : int
        Epochs between multiplier steps; a shorter round ends with one.
    prices : Prices
        Which rates move the multipliers, and how multipliers become prices on rows.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    gamma: float = parameter(1.0, grid=(0.25, 0.5, 1.0, 2.0), least=0)
    shrink: float = parameter(0.5, above=0, most=1)  # a step of 0 would never recover
    every: int = parameter(5, least=1)
    prices: Prices = field(default_factory=Prices)
    weights: Weights = "size"

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Every trainer gets a controller that moves its own multipliers."""
        summary, goal, shared = round.summary, round.summary.goal, round.plan
        law = Lagrangian.of(summary, gamma=self.gamma, pricing=self.prices)
        every = min(self.every, 1 if shared.optimizer.name == "gradient" else shared.epochs)
        jobs = []
        for client in round.participants:
            controller = law.local_controller(
                goal, summary.counts[client], every=every, shrink=self.shrink
            )
            jobs.append(Job(client=client, plan=replace(shared, controller=controller)))
        return state, jobs

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k = p_k over the clients that reported."""
        return Step(round.shares(reports, self.weights))


class IndFair(_LocalFair):
    """Every client trains its own fair model; all answer together."""

    __slots__ = ()

    @property
    def card(self) -> Card:
        """`weights` are the shares of the ensemble."""
        return Card(
            title="Clients' own fair models, together",
            paper="Zeng et al. 2021",
            protects="groups, by client",
            measures="none",
            reveals="individual",
            serves="ensemble",
            shares=self.weights,
            keeps=("multipliers",),
            constrained=True,
        )

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Nothing is averaged: every member moves by its own update."""
        return Step(np.ones(len(reports)))


class FedAvgFair(_LocalFair):
    """Local fair training, then federated averaging."""

    __slots__ = ()
    card = Card(
        title="Local fair training, then averaging",
        paper="Zeng et al. 2021",
        protects="groups, by client",
        measures="none",
        keeps=("multipliers",),
        constrained=True,
    )


class CenFair(_LocalFair):
    """Fair training on the pooled rows: the reference line."""

    __slots__ = ()
    card = Card(
        title="Fair training on pooled rows",
        paper="Zeng et al. 2021",
        protects="groups",
        measures="none",
        reveals="individual",
        trains_on="pooled",
        keeps=("multipliers",),
        constrained=True,
    )
