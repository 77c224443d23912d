"""DRFL: clients with a higher loss count more in the average.

Z. Zhao, G. Joshi: A Dynamic Reweighting Strategy for Fair Federated Learning. ICASSP 2022.

Symbols: n_k of n rows at client k, p_k = n_k/n or 1/K; w_t server weights, L_k client k's mean
loss at w_t, g_k = w_t − w_k after local training, q ≥ 0 the strength.

Update: w_{t+1} = Σ_k π_k w_k = w_t − Σ_k π_k g_k, π_k = p_k L_k^q / Σ_j p_j L_j^q. It is gradient
descent on Σ p_k L_k^{q+1}/(q + 1), q-FFL's objective, with a normalised step. q = 0 is FedAvg.

Deviations:
- L_k + 1e-10 stands for L_k: clients that fit perfectly keep a weight, however small.
- The paper also draws clients with a high loss more often. With all clients in every round that is
  void, and otherwise `training.participation` draws uniformly, as for every method.
- The local optimiser is the project's shared recipe; the paper uses SGD.
"""

from dataclasses import dataclass

import numpy as np

from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Card, parameter
from mfairfl.strategies.term import Tilted


@dataclass(frozen=True, slots=True, kw_only=True)
class DRFL(Tilted):
    """Averaging with weights that grow with the clients' losses.

    Parameters
    ----------
    q : float
        q ≥ 0; the larger, the more the worst-off clients count.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    q: float = parameter(2.0, grid=(0.01, 0.02, 1.0, 2.0, 5.0, 10.0), least=0)

    card = Card(title="Clients count by their loss", paper="Zhao & Joshi 2022", protects="clients")

    def exponents(self, losses: Floats) -> Floats:
        """Return q log L_k."""
        return self.q * np.log(losses + 1e-10)  # a loss of 0 has no logarithm
