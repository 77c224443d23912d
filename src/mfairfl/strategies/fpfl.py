"""FPFL: fairness constraints on pooled statistics by differential multipliers with damping.

B. Rodríguez-Gálvez, F. Granqvist, R. van Dalen, M. Seigel: Enforcing Fairness in Private Federated
Learning via the Modified Method of Differential Multipliers. arXiv 2109.08604, 2021.

Symbols: K clients with n_k of n rows; constraint j with pooled gap d_j = F_e − F_{e,g}, tolerance
α, h_j = max(|d_j| − α, 0), multiplier λ_j ≥ 0 or μ_j; damping c, multiplier step γ, server step η;
client objective J_k = mean over its rows of [A[c, y]·CE + B[c, y]·σ(z)] with prices A, B.

Update, every round: d from the clients' summed counts at w_t, then

    λ ← λ + γ h, priced as (λ + c h) sign(d) where h > 0    (`multiplier = "paper"`), or
    μ ← μ + γ (n_e/n) dead(d, α), priced as μ + c (n_e/n) d (`multiplier = "signed"`);

w_{t+1} = w_t − η Σ (n_k/n) ∇J_k (`update = "gradient"`), or = w_t − Σ (n_k/n) (w_t − w_k) after E
local epochs on J_k (`update = "local"`). Σ (n_k/n) ∇J_k is exactly ∇L + Σ_j (λ_j + c h_j) ∇h_j.

Deviations (each is a hyper-parameter):
- Clients train local epochs under the shared recipe; the paper takes one gradient a round.
- Multipliers are signed and follow thresholded rates (`prices.driven_by`). λ on |d| can only grow
  and flips sign as a whole when d does; with local epochs in between it swings and costs accuracy.
- Where errors of a group must rise, only false positives are priced (`prices.one_sided`); prices
  are bounded (`prices.cap`, `prices.counter_cap`, `prices.shared_cap`).
- Clients send their statistics first and get prices back, so a gradient is one vector and not one
  for every group; the server's sum is the same. A new λ counts in the round that it is made in.
- Without the paper's clipping and noise. The server needs weighted sums alone, so a secure sum
  would do.

`fpfl-paper` is the literal reading, but for the last two. Unless rounds are stated it takes 200
server steps, as `mfairfl-paper` does, and serves the last model; η = .3 and γ = .05 as there.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from mfairfl.fairness.cells import Statistics
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Summary, parameter
from mfairfl.strategies.lagrangian import LITERAL_STEPS, Lagrangian
from mfairfl.training.plan import Job, Prices, Reports, as_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FPFL(Strategy):
    """Damped multipliers on pooled gaps, size-weighted averaging.

    Parameters
    ----------
    multiplier : {"signed", "paper"}
        Two-sided multipliers, or the paper's λ ≥ 0 on |d|.
    gamma : float
        γ, the multiplier step of a round. The paper's values are for its single gradients.
    damping : float
        c, strength of the quadratic penalty.
    prices : Prices
        Which rates move the multipliers, and how multipliers become prices on rows.
    update : {"local", "gradient"}
        E local epochs, or one full-batch gradient per client and server step.
    eta : float
        Server step η of `update = "gradient"`.
    """

    multiplier: Literal["signed", "paper"] = "signed"
    gamma: float = parameter(1.0, grid=(0.01, 0.05, 0.08, 1.0), least=0)
    damping: float = parameter(1.0, grid=(0.0, 1.0, 10.0), least=0)
    prices: Prices = field(default_factory=Prices)
    update: Literal["local", "gradient"] = "local"
    eta: float = parameter(0.3, least=0)

    @property
    def card(self) -> Card:
        """The paper's form steps by gradients."""
        literal = self.update == "gradient" and self.multiplier == "paper"
        return Card(
            title="Damped multipliers on pooled gaps",
            paper="Rodríguez-Gálvez 2021",
            protects="groups",
            steps=self.update,
            server_steps=LITERAL_STEPS if literal else None,
            constrained=True,
            output="last" if literal else None,
        )

    def start(self, summary: Summary) -> State:
        """All multipliers start at 0."""
        return {"multipliers": np.zeros(len(summary.constraints))}

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Move the multipliers by the pooled gaps; everyone trains under the same prices."""
        law, pooled = self._law(round.summary), round.pooled
        multipliers = self._moved(state["multipliers"], law, pooled)
        score, loss = law.prices(self._priced(multipliers, law, pooled), pooled.counts)
        plan = replace(round.plan, loss_table=as_table(1 + loss), score_table=as_table(score))
        if self.update == "gradient":
            plan = plan.by_gradient()
        return {"multipliers": multipliers}, round.jobs(plan)

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k = n_k/n over the clients that reported."""
        law, pooled = self._law(round.summary), round.pooled
        priced = self._priced(state["multipliers"], law, pooled)
        # What is priced holds the damping already.
        log = replace(law, damping=0.0).log(priced, pooled)
        return Step(
            round.shares(reports),
            scale=self.eta if self.update == "gradient" else 1.0,
            log={**log, "multipliers": state["multipliers"].tolist()},
        )

    def _law(self, summary: Summary) -> Lagrangian:
        """Return the signed Lagrangian; what the paper does differently is in this file."""
        prices, damping = self.prices, self.damping
        return Lagrangian.of(summary, gamma=self.gamma, damping=damping, pricing=prices)

    def _moved(self, multipliers: Floats, law: Lagrangian, pooled: Statistics) -> Floats:
        if self.multiplier == "signed":
            return law.moved(multipliers, pooled)
        return multipliers + self.gamma * _excess(law, pooled)

    def _priced(self, multipliers: Floats, law: Lagrangian, pooled: Statistics) -> Floats:
        """Return the signed multipliers that the prices come from."""
        if self.multiplier == "signed":
            return law.signed(multipliers, pooled)
        h = _excess(law, pooled)
        return np.where(h > 0, multipliers + self.damping * h, 0.0) * np.sign(law.gaps(pooled))


def _excess(law: Lagrangian, pooled: Statistics) -> Floats:
    """Return h; an undefined gap exceeds nothing."""
    return np.maximum(np.abs(law.gaps(pooled)) - law.alpha, 0.0)
