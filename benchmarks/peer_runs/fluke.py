"""fluke: its `FedAVG`, clients with fixed rows, models kept in memory.

Two classes (cross-entropy), AdamW, rows in its own `FastDataLoader`, weighted by size, all
evaluation switched off. fluke clients keep their model and optimiser between rounds (its default).
"""

from __future__ import annotations

import peer_runs.vision  # noqa: F401  # isort: skip  # first: what follows imports torchvision
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver

from peer_runs.pace import Pace
from peer_runs.work import LEARNING_RATE, WEIGHT_DECAY, Work


class Watch(FederationObserver):
    """Keeps the pace from inside the algorithm."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def end_round(self, round: int) -> None:  # noqa: A002, ARG002
        """Tell of a complete round."""
        self.pace.lap()


def run(work: Work, pace: Pace) -> None:
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    loaders = [
        FastDataLoader(X, y.long(), num_labels=2, batch_size=work.batch, shuffle=True)
        for X, y in work.clients
    ]
    rows = DummyDataContainer(loaders, [None] * len(loaders), None, num_classes=2)
    federation = FedAVG(
        len(loaders),
        DataSplitter(rows),
        DDict(
            model=work.model(outputs=2),
            client=DDict(
                batch_size=work.batch,
                local_epochs=1,
                loss="CrossEntropyLoss",
                optimizer=DDict(name="AdamW", lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY),
                scheduler=DDict(name="StepLR", gamma=1, step_size=1),
            ),
            server=DDict(weighted=True),
        ),
    )
    federation.set_callbacks([Watch(pace)])
    pace.start("fluke-fl", "torch")
    federation.run(work.rounds, work.share)
