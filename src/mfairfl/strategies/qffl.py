"""q-FFL: clients with a higher loss count more, with a step length from the curvature.

T. Li, M. Sanjabi, A. Beirami, V. Smith: Fair Resource Allocation in Federated Learning. ICLR 2020.

Symbols: K clients, p_k = 1/K or n_k/n; w_t server weights, L_k client k's mean loss at w_t, w_k
its weights after E local epochs of SGD at rate η, g_k = w_t − w_k, q ≥ 0 the strength. The
objective is Σ p_k L_k^{q+1}/(q + 1); 1/η stands for the Lipschitz constant of ∇L_k.

Update: q-FedAvg (`update = "local"`) has v_k = g_k/η, q-FedSGD (`update = "gradient"`) has
v_k = ∇L_k(w_t), one full batch a server step and a server step for every local epoch. In both
h_k = q L_k^{q−1} |v_k|² + L_k^q/η and w_{t+1} = w_t − Σ_k p_k L_k^q v_k / Σ_j p_j h_j. Hence
q-FedAvg's coefficient of g_k is p_k L_k^q / Σ_j p_j [L_j^q + q L_j^{q−1} |g_j|²/η];
q = 0 is FedAvg with uniform weights.

Deviations:
- SGD, not the shared AdamW: 1/η means nothing for an adaptive step. `lr` stands for
  `training.lr`; schedule and decay per step are those of the shared recipe (q-FedSGD's bare
  gradients have no decay).
- As in the paper v_k = g_k/η is a sum over all local steps, not a mean: with S steps |v_k|² is of
  order S² |∇L_k|², so many local steps and a large q make the server's steps short.
- L_k + 1e-10 stands for L_k, as in the authors' code.
- The authors draw clients with probability p_k and then weight them alike, which is
  `weights = "uniform"` where all take part.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mfairfl.strategies import base
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, parameter
from mfairfl.training.plan import Job, Reports

_LEAST = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class QFFL(Strategy):
    """q-FedAvg, or q-FedSGD.

    Parameters
    ----------
    q : float
        q ≥ 0; the larger, the more the worst-off clients count and the shorter the steps.
    update : {"local", "gradient"}
        E local epochs (q-FedAvg), or one full-batch gradient per server step (q-FedSGD).
    lr : float
        η in the first round: the local SGD rate, or the server's step for q = 0. A small rate
        needs a lower `training.weight_decay`: decay per step is shared, so it gains on the
        gradient.
    weights : {"uniform", "size"}
        p_k = 1/K or n_k/n.
    """

    q: float = parameter(1.0, grid=(0.01, 0.02, 1.0, 2.0, 5.0, 10.0), least=0)
    update: Literal["local", "gradient"] = "local"
    lr: float = parameter(1.0, above=0)
    weights: base.Weights = "uniform"

    @property
    def card(self) -> Card:
        """q-FedSGD steps by gradients."""
        return Card(
            title="Clients count by loss and curvature",
            paper="Li et al. 2020",
            protects="clients",
            needs="norms",
            reveals="individual",
            steps=self.update,
        )

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Every participant trains with SGD, or takes one gradient, at the server's weights."""
        plan = round.sgd(self.lr)
        if self.update == "gradient":
            plan = plan.by_gradient()
        return state, round.jobs(plan)

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k ∝ p_k L_k^q, shortened by the clients' curvature."""
        p, lr = round.shares(reports, self.weights), reports[0].lr  # one plan, one rate
        loss = round.losses(reports) + _LEAST
        # η |v_k|² q/L_k: what the second-order term of h_k adds to its first-order term.
        size = np.diag(gram) * (lr if self.update == "gradient" else 1 / lr)
        curvature = self.q * size / loss
        c = p
        if self.q > 0:
            raw = p * (loss / loss.max()) ** self.q  # relative: no power under- or overflows
            c = raw / (raw * (1 + curvature)).sum()
        return Step(
            c,
            scale=lr if self.update == "gradient" else 1.0,
            log={"curvature": base.by_client(reports, curvature)},
        )
