"""FedProx: FedAvg with clients held near the server's weights while they train.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: Federated Optimization in
Heterogeneous Networks. MLSys 2020.

Symbols: n_k of n rows at client k, w_t server weights, L_k client k's mean loss, μ ≥ 0 the pull.

Update: client k trains L_k(w) + (μ/2)|w − w_t|² from w_t, ends at w_k and sends g_k = w_t − w_k;
w_{t+1} = w_t − Σ_k (n_k/n) g_k. μ = 0 is FedAvg.

Deviations:
- The local optimiser is the project's shared recipe (AdamW, fresh each round), through which the
  pull's gradient μ(w − w_t) passes like any other; the paper uses SGD (`training.optimizer`).
- Everyone trains all local epochs: the paper's varying amounts of work model slow devices.
- The paper draws clients in proportion to their rows and averages uniformly; with all clients in
  every round the mean by size is its expectation. `weights = "uniform"` uses 1/K.
"""

from dataclasses import dataclass, replace

from mfairfl.strategies.base import Card, Round, State, parameter
from mfairfl.strategies.fedavg import FedAvg
from mfairfl.training.plan import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProx(FedAvg):
    """Federated averaging with a proximal term.

    Parameters
    ----------
    mu : float
        μ ≥ 0, the strength of the pull to the server's weights.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    mu: float = parameter(0.01, grid=(0.001, 0.01, 0.1, 1.0), least=0)

    card = Card(title="Averaging with a proximal pull", paper="Li et al. 2020", measures="none")

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Every participant trains with the pull, from the server's weights."""
        pulled = replace(round.plan, proximal=self.mu)
        return state, round.jobs(pulled)
