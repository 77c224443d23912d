"""mfairfl as in `ours`, with a run directory: history and a checkpoint after every round."""

from __future__ import annotations

import tempfile
from pathlib import Path

from peer_runs import ours
from peer_runs.pace import Pace
from peer_runs.work import Work


def run(work: Work, pace: Pace) -> None:
    with tempfile.TemporaryDirectory(dir=Path(work.rows).parent) as folder:
        ours.run(work, pace, out=Path(folder) / "run")
