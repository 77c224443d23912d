"""The paper's experiments: from the files in results/paper to tables, figures and rows."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from mfairfl.errors import ConfigError, unknown
from mfairfl.experiments.outputs import Finished, publish_curves, publish_table
from mfairfl.experiments.results import carry_out, folder_name, path_of
from mfairfl.experiments.search.halving import RUNGS, halve, subjects, write_lock
from mfairfl.experiments.study import Study, Trial, load_study, trials
from mfairfl.experiments.tables.writers import read_csv
from mfairfl.files import write_atomically
from mfairfl.paper.claims import write_claims
from mfairfl.runs.config import Config
from mfairfl.runs.workers import run_many

__all__ = ["PAPER", "StudyWatcher", "experiments", "reproduce", "run_study", "tune_methods"]

PAPER = ("table-1", "table-2", "table-3", "table-s2", "table-s3", "figure-s1")


class StudyWatcher(Protocol):
    """Told what is going on."""

    def begin(self, name: str, total: int) -> None:
        """Start a list of `total` runs."""

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Take note of a run's completed round."""


def experiments() -> Path:
    """Return the folder of the paper's experiment files."""
    packed = Path(__file__).parent / "experiments"
    return packed if packed.is_dir() else Path(__file__).parents[3] / "results" / "paper"


def reproduce(
    names: Sequence[str],
    out: Path,
    *,
    seeds: int | None = None,
    protocols: Sequence[str] | None = None,
    lock: Path | None = None,
    watcher: StudyWatcher | None = None,
) -> dict[str, str]:
    """Make tables and figures of the paper anew; return what a terminal shows of each.

    Everything is written into `out`, the runs below ``out/runs``. Finished runs are not repeated,
    and whatever the interruptions, the tables have the same bytes.

    Parameters
    ----------
    names : sequence of str
        Some of `PAPER`.
    seeds : int, optional
        How many, instead of the files' number.
    protocols : sequence of str, optional
        Some of the files' budgets; by default all of them.
    lock : Path, optional
        Hyper-parameters, instead of the lock file beside the experiment files.
    """
    for name in names:
        if name not in PAPER:
            raise ConfigError(unknown("experiment", name, (*PAPER, "all", "tuning")))
    changes: dict[str, Any] = {}
    if seeds is not None:
        changes["seeds"] = tuple(range(seeds))
    for protocol in protocols or ():
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", protocol):
            raise ConfigError(f"protocol '{protocol}': give rounds x local epochs, such as 10x20")
    if protocols is not None:
        changes["protocols"] = tuple(protocols)
    if lock is not None:
        changes["lock"] = str(lock)
    found = {}
    for name in names:
        study = load_study(experiments() / f"{name}.toml").model_copy(update=changes)
        found[name] = run_study(name, study, out, watcher=watcher)
    _judge(out)
    return found


def _judge(out: Path) -> None:
    """Write what held and what did not, from the tables that are there."""
    tables = {
        name: read_csv(out / f"{name}.csv")
        for name in PAPER
        if name.startswith("table") and (out / f"{name}.csv").exists()
    }
    if tables:
        write_atomically(out / "reproduction.md", write_claims(tables).encode())


def run_study(name: str, study: Study, out: Path, *, watcher: StudyWatcher | None = None) -> str:
    """Carry out a study and publish it in `out`; return what a terminal shows."""
    started = time.perf_counter()
    work, runs = trials(study), out / "runs"
    if watcher is not None:
        watcher.begin(name, len({path_of(trial, runs) for trial in work}))
    records = carry_out(work, runs, None if watcher is None else watcher.on_round)
    done = Finished(name=name, study=study, work=work, records=records, runs=runs)
    publish = publish_table if study.kind == "table" else publish_curves
    text = publish(done, out)
    _tell(out / "made.json", name, work, records, time.perf_counter() - started)
    return text


def _tell(
    path: Path,
    name: str,
    work: Sequence[Trial],
    records: Sequence[Mapping[str, Any]],
    seconds: float,
) -> None:
    """Keep what the files took, on what machine; times stay out of the tables."""
    made = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    taken = {
        record["identity"]: record["timing"]["train_seconds"] / record["timing"]["runs_at_once"]
        for record in records
    }
    made[name] = {
        "runs": len(taken),
        "seeds": len({trial.seed for trial in work}),
        "protocols": list(dict.fromkeys(trial.protocol for trial in work)),
        "processor_minutes_of_all_runs": round(sum(taken.values()) / 60, 1),
        "minutes_of_this_call": round(seconds / 60, 1),
        "machine": {
            "processors": len(os.sched_getaffinity(0)),
            "architecture": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
            "torch": version("torch"),
        },
    }
    text = json.dumps(made, indent=2, sort_keys=True) + "\n"
    write_atomically(path, text.encode())


def tune_methods(file: Path, out: Path, *, watcher: StudyWatcher | None = None) -> None:
    """Choose hyper-parameters as the file says: lock.toml and tuning.csv in `out`."""
    study = load_study(file)

    def run(configs: Sequence[Config]) -> list[dict[str, Any]]:
        if watcher is not None:
            watcher.begin("tuning", len(configs))
        folders = [
            folder_name(("tuning", c.data.name or "own", c.strategy.name), c) for c in configs
        ]
        work = [(c, out / "runs" / folder) for c, folder in zip(configs, folders, strict=True)]
        return run_many(work, progress=None if watcher is None else watcher.on_round)

    found = halve(subjects(study, RUNGS[0].settings), run)
    rows = pd.DataFrame([row for one in found for row in one.trials])
    text = rows.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "tuning.csv", text.encode())
    write_atomically(out / "lock.toml", write_lock(found, study.title).encode())
