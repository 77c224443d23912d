"""pfl (pfl-research): `FederatedAveraging` on a `SimulatedBackend`, in one process.

One logit, AdamW locally and SGD with rate 1 centrally, users as `PyTorchTensorDataset`s, weighted
by data points. Users come in turn (`minimize_reuse`), so that with everybody drawn each takes part
once; pfl walks through a user's rows in their order, without shuffling. Evaluation, which it does
in its very first iteration, happens in none that is measured.
"""

from __future__ import annotations

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from peer_runs.pace import Pace
from peer_runs.work import LEARNING_RATE, WEIGHT_DECAY, Work


class Network(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers
        self.loss_of = nn.BCEWithLogitsLoss()

    def loss(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return self.loss_of(self.layers(X).squeeze(1), y)

    @torch.no_grad()
    def metrics(self, X: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Return what is measured in the first iteration."""
        return {"loss": Weighted(float(self.loss(X, y)) * len(y), len(y))}


class Watch(TrainingProcessCallback):
    """Keeps the pace from inside the algorithm."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def after_central_iteration(
        self,
        aggregate_metrics: Metrics,  # noqa: ARG002
        model: PyTorchModel,  # noqa: ARG002
        *,
        central_iteration: int,
    ) -> tuple[bool, Metrics]:
        """Tell of a round; iteration 0 is the one with evaluation."""
        if central_iteration:
            self.pace.lap()
        else:
            self.pace.start("pfl", "torch")
        return False, Metrics()


def run(work: Work, pace: Pace) -> None:
    users = [PyTorchTensorDataset(pair, user_id=str(k)) for k, pair in enumerate(work.clients)]
    data = FederatedDataset(
        users.__getitem__, get_user_sampler("minimize_reuse", list(range(len(users))))
    )
    network = Network(work.model(outputs=1))
    model = PyTorchModel(
        network,
        lambda weights, lr: torch.optim.AdamW(weights, lr=lr, weight_decay=WEIGHT_DECAY),
        torch.optim.SGD(network.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.drawn,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=work.batch
        ),
        callbacks=[Watch(pace)],
    )
