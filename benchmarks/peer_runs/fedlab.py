"""FedLab: `StandalonePipeline` with its FedAvg handler and serial trainer.

Two classes (cross-entropy), rows as tensors. Its trainer has SGD built in: a subclass makes an
AdamW for every client; `fedlab_sgd` leaves it as it is. Its FedAvg weights clients equally: sizes
are added to what clients send. Both in the way its documentation extends trainers and handlers.
"""

from __future__ import annotations

import logging

import peer_runs.vision  # noqa: F401  # isort: skip  # first: what follows imports torchvision
import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils.aggregator import Aggregators
from fedlab.utils.serialization import SerializationTool
from torch import Tensor

from peer_runs.pace import Pace
from peer_runs.work import LEARNING_RATE, WEIGHT_DECAY, Batches, Work


class Clients:
    """Gives the trainer a client's rows in batches."""

    def __init__(self, clients: list[tuple[Tensor, Tensor]]) -> None:
        self.clients = [(X, y.long()) for X, y in clients]

    def get_dataloader(self, client: int, batch_size: int) -> Batches:
        """Return anything that walks through batches."""
        return Batches(*self.clients[client], batch_size)


class Trainer(FedAvgSerialClientTrainer):
    """Sends each client's number of rows along."""

    def train(self, model_parameters: Tensor, train_loader: Batches) -> list[Tensor]:
        """Train one client."""
        size = torch.tensor(float(len(train_loader.y)))
        return [*super().train(model_parameters, train_loader), size]


class AdamWTrainer(Trainer):
    """Gives every client an optimiser of its own, so that no state leaks from one to the next."""

    def train(self, model_parameters: Tensor, train_loader: Batches) -> list[Tensor]:
        """Train one client."""
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        return super().train(model_parameters, train_loader)


class Handler(FedAvgServerHandler):
    """Averages by size."""

    def global_update(self, buffer: list[list[Tensor]]) -> None:
        """Set the mean of the models of a round."""
        models, sizes = zip(*buffer, strict=True)
        mean = Aggregators.fedavg_aggregate(list(models), torch.stack(sizes))
        SerializationTool.deserialize_model(self._model, mean)


class Pipeline(StandalonePipeline):
    """Keeps the pace where others evaluate."""

    def __init__(self, handler: Handler, trainer: Trainer, pace: Pace) -> None:
        super().__init__(handler, trainer)
        self.pace = pace

    def evaluate(self) -> None:
        """Tell of a complete round."""
        self.pace.lap()


def run(work: Work, pace: Pace, kind: type[Trainer] = AdamWTrainer) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    model = work.model(outputs=2)
    trainer = kind(model, len(work.clients))
    trainer.setup_dataset(Clients(work.clients))
    trainer.setup_optim(epochs=1, batch_size=work.batch, lr=0.1)
    handler = Handler(model, work.rounds, work.share)
    pipeline = Pipeline(handler, trainer, pace)
    pace.start("fedlab", "torch")
    pipeline.main()
