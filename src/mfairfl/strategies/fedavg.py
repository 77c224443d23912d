"""FedAvg: local training, then the size-weighted mean of the clients' models.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017.

Symbols: K clients, n_k rows at client k, n = Σ n_k, w_t server weights, w_k client k's weights
after E local epochs from w_t, g_k = w_t − w_k.

Update: w_{t+1} = Σ_k (n_k/n) w_k = w_t − Σ_k (n_k/n) g_k.

Deviations: the local optimiser is the project's shared recipe (AdamW, fresh each round), as for
every method; the paper uses SGD (`training.optimizer = "sgd"`). `weights = "uniform"` uses 1/K.
"""

from dataclasses import dataclass

from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Weights
from mfairfl.training.plan import Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg(Strategy):
    """Size-weighted (or uniform) federated averaging.

    Parameters
    ----------
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    weights: Weights = "size"

    card = Card(title="Federated averaging", paper="McMahan et al. 2017", measures="none")

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k = n_k/n over the clients that reported."""
        return Step(round.shares(reports, self.weights))
