"""FedLab as in `fedlab`, with the SGD that its trainer has built in: a cheaper step than AdamW."""

from __future__ import annotations

from peer_runs import fedlab
from peer_runs.pace import Pace
from peer_runs.work import Work


def run(work: Work, pace: Pace) -> None:
    fedlab.run(work, pace, kind=fedlab.Trainer)
