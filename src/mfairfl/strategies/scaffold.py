"""SCAFFOLD: control variates take the clients' drift out of local training.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh: SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning. ICML 2020.

Symbols: N clients, S those of this round, p_k = 1/N or n_k/n; w_t server weights, c the server's
control variate, c_k client k's (kept by the client), both 0 at first; η the local rate, η_g the
server's, s_k the number of local steps.

Update: client k ∈ S takes s_k steps w ← w − η(∇L_k(w) − c_k + c) from w_t to w_k, then
c_k⁺ = c_k − c + (w_t − w_k)/(s_k η) (the paper's option II) and sends g_k = w_t − w_k and
Δ_k = c_k⁺ − c_k. The server moves w_{t+1} = w_t − η_g Σ_{k∈S} p_k g_k / Σ_{j∈S} p_j and
c ← c + Σ_{k∈S} p_k Δ_k, with p_k the share of all clients: c stays Σ_k p_k c_k.

Deviations:
- SGD, not the shared AdamW: c_k is a gradient only if steps are gradients times η. `lr` stands
  for `training.lr`; schedule and decay per step are those of the shared recipe.
- The paper has p_k = 1/N (`weights = "uniform"`); "size" is the same rule for the mean over rows.
- A client whose reply is lost keeps its new c_k although c has not heard of Δ_k.
"""

from dataclasses import dataclass, replace

import numpy as np

from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Weights, parameter
from mfairfl.training.plan import Job, Reports

_CONTROL = "control"  # c at the server, c_k in the client's slot of the same name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold(Strategy):
    """Averaging with control variates.

    Parameters
    ----------
    lr : float
        η in the first round. A small rate needs a lower `training.weight_decay`: decay per step is
        shared, so it gains on the gradient.
    server_lr : float
        η_g, the server's step.
    weights : {"uniform", "size"}
        p_k = 1/N or n_k/n.
    """

    lr: float = parameter(1.0, above=0)
    server_lr: float = parameter(1.0, grid=(0.5, 1.0, 1.5), above=0)
    weights: Weights = "uniform"

    card = Card(
        title="Averaging with control variates",
        paper="Karimireddy et al. 2020",
        measures="none",
        keeps=("control",),
    )

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Every participant trains with SGD, corrected by c − c_k."""
        corrected = replace(
            round.sgd(self.lr), linear=round.vectors.get(_CONTROL), linear_slot=_CONTROL
        )
        return state, [
            Job(client=name, plan=corrected, keep_control=_CONTROL) for name in round.participants
        ]

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Average the updates over the reports, and the variates over all clients."""
        rows = {name: round.summary.rows(name) for name in round.summary.counts}
        parts = {name: n if self.weights == "size" else 1.0 for name, n in rows.items() if n > 0}
        total = sum(parts.values())
        changes = {r.client: r.control_change for r in reports if r.control_change is not None}
        lengths = {client: float(np.linalg.norm(x.astype(float))) for client, x in changes.items()}
        return Step(
            round.shares(reports, self.weights),
            scale=self.server_lr,
            vectors={_CONTROL: np.array([parts[r.client] / total for r in reports])},
            log={"control_changes": lengths},
        )
