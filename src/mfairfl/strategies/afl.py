"""AFL: the model that is best for the worst mixture of clients.

M. Mohri, G. Sivek, A. T. Suresh: Agnostic Federated Learning. ICML 2019.

Symbols: K clients, λ on the simplex of client weights, λ_0 = 1/K; w_t server weights, L_k client
k's mean loss at w_t, g_k = w_t − w_k after local training, γ the step of λ.

Update, for min over w of max over λ of Σ λ_k L_k(w):
w_{t+1} = w_t − Σ_k λ_{t,k} g_k, then λ_{t+1} = the point of the simplex nearest to λ_t + γ L.

Deviations:
- g_k is the result of local epochs with the project's shared recipe; the paper's clients send one
  stochastic gradient.
- The paper's model is the mean of all iterates; its guarantee holds for that. Here the output rule
  decides: `last` by default, `average` for the mean of the second half of the rounds.
- Clients that did not report keep their λ; those that did share what they had, by λ among
  themselves (equally if they had nothing).
"""

from dataclasses import dataclass

import numpy as np

from mfairfl.geometry.min_norm import project_box_simplex
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Summary, parameter
from mfairfl.training.plan import Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class AFL(Strategy):
    """Averaging with weights that climb towards the worst mixture of clients.

    Parameters
    ----------
    gamma : float
        γ ≥ 0, the step of the clients' weights in a round.
    """

    gamma: float = parameter(1.0, grid=(0.01, 0.1, 1.0), least=0)

    card = Card(
        title="Best for the worst mix of clients",
        paper="Mohri et al. 2019",
        protects="clients",
    )

    def start(self, summary: Summary) -> State:
        """Every client with training rows starts with the same weight."""
        names = sorted(name for name, counts in summary.counts.items() if counts.sum() > 0)
        return {"clients": names, "mixture": np.full(len(names), 1 / len(names))}

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Weigh the clients that reported by λ, then move λ."""
        index = [state["clients"].index(report.client) for report in reports]
        mixture = state["mixture"].copy()
        mass = mixture[index].sum()
        present = mixture[index] / mass if mass > 0 else np.full(len(index), 1 / len(index))
        pushed = present + self.gamma * round.losses(reports)
        bounds = np.zeros(len(index)), np.ones(len(index))
        mixture[index] = mass * project_box_simplex(pushed - pushed.max(), *bounds)
        log = {"mixture": dict(zip(state["clients"], mixture.tolist(), strict=True))}
        return Step(present, state={**state, "mixture": mixture}, log=log)
