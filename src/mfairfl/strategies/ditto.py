"""Ditto: a global model, and a personal one for every client that is pulled towards it.

T. Li, S. Hu, A. Beirami, V. Smith: Ditto: Fair and Robust Federated Learning Through
Personalization. ICML 2021.

Symbols: w_t server weights, v_k client k's personal model, L_k its loss, λ the pull, η the rate.

Update, every round: the global part is FedAvg, w_{t+1} = Σ_k p_k w_k. Beside it every participant
goes on with its own v_k ← v_k − η (∇L_k(v_k) + λ (v_k − w_t)), w_t fixed during the round; v_k
starts at the w_t of the first round that client k takes part in, and persists. Client k is served
v_k: every row is decided by its own client's model (the server's while it has none), and group
metrics are taken over all clients' rows together.

λ = 0 is training alone; ηλ = 1 under plain SGD puts v_k at w_t − η∇L_k(v_k) in every step.

Deviations: both parts use the shared optimiser (AdamW, fresh each round) where the paper has SGD;
both train for the same number of epochs; λ is the same for all clients (the paper also lets each
choose among three by its validation rows).
"""

from dataclasses import dataclass, replace

from mfairfl.strategies.base import Card, Round, State, parameter
from mfairfl.strategies.fedavg import FedAvg
from mfairfl.training.plan import PERSONAL, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Ditto(FedAvg):
    """Personal models pulled towards a federated average.

    Parameters
    ----------
    pull : float
        λ, strength of the pull.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K of the global part.
    """

    pull: float = parameter(1.0, grid=(0.01, 0.05, 0.1, 0.5, 1.0, 5.0), least=0)

    card = Card(
        title="Personal models near the average",
        paper="Li et al. 2021",
        protects="clients",
        measures="none",
        serves="personal",
        keeps=("model",),
    )

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Two jobs each: FedAvg's, and the personal model's, which is kept and not sent."""
        pulled = replace(round.plan, proximal=self.pull)
        jobs = []
        for name in round.participants:
            personal = Job(client=name, plan=pulled, start=PERSONAL, keep=PERSONAL, send=False)
            jobs += [Job(client=name, plan=round.plan), personal]
        return state, jobs
