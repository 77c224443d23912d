"""FedFV: conflicting updates are projected, the clients that fare worst last of all.

Z. Wang, X. Fan, J. Qi, C. Wen, C. Wang, R. Yu: Federated Learning with Fair Averaging. IJCAI 2021.

Symbols: K clients with weights p_k, update g_k = w_t − w_k, L_k the client's loss at w_t; α the
share of clients, those of largest L_k, that keep their update; V the clients in conflict with the
average.

Update, every round:
1. Clients in ascending order of L_k; the first ⌈(K − 1)(1 − α)⌉ give way: for every other client
   i, in order, where g_k'·g_i < 0, g_k' ← g_k' − (g_k'·g_i/|g_i|²) g_i, starting at g_k' = g_k.
2. ḡ = Σ p_k g_k'.
3. External conflicts: V = {k: ḡ·g_k < 0}, g_V = Σ_{k∈V} g_k; ḡ ← ḡ − (ḡ·g_V/|g_V|²) g_V.
4. ḡ is rescaled to |Σ p_k g_k|; w_{t+1} = w_t − ḡ.

Deviations:
- Step 3 is the paper's τ = 1. With τ > 1 it also treats the updates that absent clients sent in
  earlier rounds, for which the server would have to store them; here only those present count.
- p_k = n_k/n as for every method; the paper's mean is `weights = "uniform"`.
- Local training is the shared recipe; the paper uses SGD.
- Where the sum g_V has cancelled, step 3 is left out: its direction would be rounding.
- Where ḡ has cancelled to a thousandth of its parts, the step is 0 for the same reason.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mfairfl.geometry.conflicts import diminish_conflicts, rescaling
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Weights, parameter
from mfairfl.training.plan import Reports

_NOISE = 1e-6  # relative error to be expected of a float32 Gram matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class FedFV(Strategy):
    """Fair averaging by projecting conflicting updates.

    Parameters
    ----------
    alpha : float
        α, share of the clients, those of largest loss, that keep their update.
    external : bool
        Whether the average gives way to the clients that it would still harm (τ = 1).
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    alpha: float = parameter(0.1, grid=(0.0, 0.1, 0.2, 0.5), least=0, most=1)
    external: bool = True
    weights: Weights = "size"

    card = Card(
        title="Conflicting updates are projected",
        paper="Wang et al. 2021",
        protects="clients",
        needs="gram",
        reveals="individual",
    )

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Return the coefficients of the projected, averaged and rescaled updates."""
        names = [report.client for report in reports]
        p, goals = round.shares(reports, self.weights), np.zeros_like(gram)
        conflicts = diminish_conflicts(
            gram,
            round.losses(reports),
            goals,  # a cosine of 0 is what a projection reaches
            beta=giving_way(self.alpha, len(names)) / len(names),
            weights=p,
        )
        c, against = conflicts.coefficients, np.zeros(len(names), dtype=bool)
        if self.external:
            c, against = _give_way(gram, c)
        if conflicts.conflicts.any() or against.any():
            c = rescaling(gram, c, p) * c
        harmed = [names[i] for i in np.flatnonzero(against)]
        return Step(c, log={**conflicts.log(gram, goals, names), "external": harmed})


def giving_way(alpha: float, count: int) -> int:
    """Return ⌈(K − 1)(1 − α)⌉, the number of clients whose update may be projected.

    Examples
    --------
    >>> giving_way(0.1, 5), giving_way(0.0, 5), giving_way(0.8, 6)
    (4, 4, 1)
    """
    # 5 · (1 − .8) is 0.9999999999999998 in floating point, 5 · (1 − .4) just above 3.
    return int(np.ceil(round((count - 1) * (1 - alpha), 12)))


def _give_way(gram: Floats, c: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Remove ḡ's part against the sum of the updates in conflict with it; return these too."""
    products, length = gram @ c, np.sqrt(np.diag(gram))
    norm = np.sqrt(max(0.0, float(c @ products)))
    against = products < -_NOISE * norm * length
    square = float(gram[np.ix_(against, against)].sum())
    if square <= _NOISE * float(length[against].sum()) ** 2:
        return c, np.zeros_like(against)
    return c - products[against].sum() / square * against, against
