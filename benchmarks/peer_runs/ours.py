"""mfairfl: `mfairfl.train` on clients in memory, strategy fedavg, everything else by default.

One logit, AdamW, weighted by size. Fairness, losses and accuracies of the clients are measured as
often as by default, on train and test rows. One worker, so that one thread is compared with one.
No run directory; `ours_written` has one.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import mfairfl
from mfairfl.engine.loop import RoundRecord, RunState, Setup
from mfairfl.runs.config import Config
from peer_runs.pace import Pace
from peer_runs.shapes import SHAPES, federation_of
from peer_runs.work import Work


class Watch:
    """Keeps the pace from inside a run."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Nothing to do before the first measurement."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:  # noqa: ARG002
        """Round 0 is the measurement before the first."""
        if state.round:
            self.pace.lap()
        else:
            self.pace.start("mfairfl", "torch")


def run(work: Work, pace: Pace, out: Path | None = None) -> None:
    shape = SHAPES[work.shape]
    more: dict[str, Any] = {"training.participation": shape.drawn / shape.clients}
    if "workers" in {*inspect.signature(mfairfl.train).parameters, *Config.model_fields}:
        more["workers"] = 1
    mfairfl.train(
        federation_of(shape),
        strategy="fedavg",
        hidden=shape.hidden,
        batch_size=shape.batch,
        local_epochs=1,
        rounds=work.rounds,
        seed=0,
        out=out,
        callbacks=[Watch(pace)],
        **more,
    )
