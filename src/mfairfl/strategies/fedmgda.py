"""FedMGDA+: a step that serves every client, along the shortest mean of their directions.

Z. Hu, K. Shaloudegi, G. Zhang, Y. Yu: Federated Learning Meets Multi-Objective Optimization.
IEEE Transactions on Network Science and Engineering 9, 2022.

Symbols: K clients with weights λ0_k = n_k/n, update g_k = w_t − w_k, direction u_k = g_k/|g_k|,
trust ε in the weights, global rate η, d_t the shared schedule's rate relative to its first round.

Update: λ⋆ = argmin |Σ λ_k u_k|² subject to Σ λ_k = 1, |λ_k − λ0_k| ≤ ε, λ ≥ 0;
v = Σ λ⋆_k u_k; w_{t+1} = w_t − ρ v, with

    ρ = |Σ λ0_k g_k| / |v|   (`step = "rescaled"`),
    ρ = η                    (`"constant"`), or ρ = η d_t (`"decay"`, the paper's).

With ε = 1, −v lowers every client's loss to first order; ε = 0 is the mean of the directions.

Deviations:
- The step has the length of the plain average by default. With the paper's ρ = η_t its length
  says nothing of how far the clients still have to go, and η must be found for every task.
- Where v has vanished against its parts (no direction serves all) the rescaled step is 0.
- The paper's η_t falls by a factor every so many rounds; `"decay"` follows the shared schedule.
- A client whose update is 0 is left out and its weight goes to the others.
- Local training is the shared recipe; the paper uses SGD. `normalise = false` takes g_k for u_k
  (FedMGDA, without the plus), `weights = "uniform"` takes λ0 = 1/K.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mfairfl.geometry.conflicts import cosines, rescaling
from mfairfl.geometry.gram import Floats
from mfairfl.geometry.min_norm import min_norm_coefficients
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Weights, parameter
from mfairfl.training.plan import Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class FedMGDA(Strategy):
    """Multi-objective descent on normalised updates.

    Parameters
    ----------
    epsilon : float
        ε: how far a client's weight may be from λ0_k.
    normalise : bool
        Combine directions, so that a long update has no more say than a short one.
    step : {"rescaled", "constant", "decay"}
        Length of the step: that of the plain average, η times the mean of the directions, or this
        with the shared schedule.
    eta : float
        η of the last two.
    weights : {"size", "uniform"}
        λ0_k = n_k/n or 1/K.
    """

    epsilon: float = parameter(0.1, grid=(0.01, 0.05, 0.1, 0.5, 1.0), least=0, most=1)
    normalise: bool = True
    step: Literal["rescaled", "constant", "decay"] = "rescaled"
    eta: float = parameter(1.0, least=0)
    weights: Weights = "size"

    card = Card(
        title="Common descent of normed updates",
        paper="Hu et al. 2022",
        protects="clients",
        measures="none",
        needs="gram",
        reveals="individual",
    )

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k = λ⋆_k/|g_k|, scaled by ρ."""
        p, length = round.shares(reports, self.weights), np.sqrt(np.diag(gram))
        moved = length > 0
        if not moved.any():
            return Step(np.zeros(len(p)))
        parts = np.ix_(moved, moved)
        centre = p[moved] / p[moved].sum()
        unit = cosines(gram[parts]) if self.normalise else gram[parts]
        mix, c = np.zeros(len(p)), np.zeros(len(p))
        mix[moved] = min_norm_coefficients(unit, centre=centre, epsilon=self.epsilon)
        c[moved] = mix[moved] / (length[moved] if self.normalise else 1.0)
        return Step(
            c,
            scale=self._scale(gram, c, p, round),
            log={
                "weights": mix.tolist(),
                "common_norm": float(np.sqrt(np.maximum(0.0, mix[moved] @ unit @ mix[moved]))),
                "harmed": [r.client for r, x in zip(reports, gram @ c, strict=True) if x < 0],
            },
        )

    def _scale(self, gram: Floats, c: Floats, p: Floats, round: Round) -> float:
        if self.step == "rescaled":
            # The plain average keeps its length to the last bit.
            return 1.0 if np.array_equal(c, p) else rescaling(gram, c, p)
        return self.eta * (round.decay if self.step == "decay" else 1.0)
