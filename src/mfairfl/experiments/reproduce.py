"""The paper's experiments: from the files in results/paper to tables, figures and rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.experiments.config import Config
from mfairfl.experiments.halving import RUNGS, halve, subjects, write_lock
from mfairfl.experiments.launch import Progress, run_many
from mfairfl.experiments.store import folder_name
from mfairfl.experiments.study import load_study
from mfairfl.files import write_atomically

__all__ = ["experiments", "tune"]


def experiments() -> Path:
    """Return the folder of the paper's experiment files."""
    packed = Path(__file__).parent / "paper"
    return packed if packed.is_dir() else Path(__file__).parents[3] / "results" / "paper"


def tune(file: Path, out: Path, runs: Path, progress: Progress | None = None) -> None:
    """Choose hyper-parameters as the file says: lock.toml and tuning.csv in `out`."""
    study = load_study(file)

    def run(configs: Sequence[Config]) -> list[dict[str, Any]]:
        named = [(c, runs / folder_name(("tuning", c.strategy.name), c)) for c in configs]
        return run_many(named, progress=progress)

    found = halve(subjects(study, RUNGS[0].settings), run)
    rows = pd.DataFrame([row for one in found for row in one.trials])
    text = rows.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "tuning.csv", text.encode())
    write_atomically(out / "lock.toml", write_lock(found, study.title).encode())
