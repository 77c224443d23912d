"""Runs of a study on disk: one directory a run, and one row a run in results.csv and .parquet."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.experiments.study import Trial
from mfairfl.fairness import Tally, frontier
from mfairfl.files import write_atomically
from mfairfl.runs.config import Config
from mfairfl.runs.workers import Progress, run_many

__all__ = ["VIOLATIONS", "carry_out", "folder_name", "path_of", "results", "write_results"]

VIOLATIONS = (
    "demographic_parity_difference",
    "equalized_odds_difference",
    "accuracy_parity_difference",
)
_NUMBERS = (
    "accuracy",
    "balanced_accuracy",
    "true_positive_rate",
    "selection_rate",
    *VIOLATIONS,
    "equal_opportunity_difference",
    "accuracy_parity_loss_difference",
    "client_accuracy_std",
    "client_accuracy_gap",
    "worst_client_accuracy",
)
_FLOORS = (*VIOLATIONS, "client_accuracy_std", "client_accuracy_gap")


def folder_name(words: Sequence[str | int], config: Config) -> str:
    """Return a run directory's name: readable, and different for different settings."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return re.sub(r"[^\w.+-]+", "_", "-".join(str(word) for word in words)) + f"-{digest}"


def carry_out(
    work: Sequence[Trial], folder: Path, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Run what has not been run yet, each trial in its directory below `folder`.

    Trials that ask for the same run share it. Returns the records in order.
    """
    runs = {path_of(trial, folder): trial.config for trial in work}
    records = run_many([(config, path) for path, config in runs.items()], progress=progress)
    found = dict(zip(runs, records, strict=True))
    return [found[path_of(trial, folder)] for trial in work]


def path_of(trial: Trial, folder: Path) -> Path:
    """Return the run directory of a trial."""
    config = trial.config
    budget = f"{config.training.rounds}x{config.training.local_epochs}"
    words = (trial.data, trial.split, budget, config.strategy.name, trial.notion or "any")
    return folder / folder_name((*words, trial.seed), config)


def results(work: Sequence[Trial], records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row a run: where it stands, test numbers, floors, frontier, provenance."""
    rows = [_row(trial, record) for trial, record in zip(work, records, strict=True)]
    return pd.DataFrame(rows)


def write_results(frame: pd.DataFrame, folder: Path, name: str = "results") -> None:
    """Write the rows as CSV and Parquet; the same rows are the same bytes."""
    text = frame.to_csv(index=False, lineterminator="\n")
    write_atomically(folder / f"{name}.csv", text.encode())
    write_atomically(folder / f"{name}.parquet", frame.to_parquet(index=False))


def _row(trial: Trial, record: Mapping[str, Any]) -> dict[str, Any]:
    test, train = record["metrics"]["test"], record["metrics"]["train"]
    floors = record["noise_floor"]["test"]
    names = [s["name"] or s["column"] for s in record["task"]["sensitive"]]
    return {
        "data": trial.data,
        "split": trial.split,
        "protocol": trial.protocol,
        "strategy": trial.strategy,
        "notion": trial.notion,
        "seed": trial.seed,
        **{name: _number(test[name]) for name in _NUMBERS},
        **{
            f"{name}[{attribute}]": _number(test["by_attribute"][attribute][name])
            for name in VIOLATIONS
            for attribute in (names if len(names) > 1 else ())
        },
        **{f"floor_{name}": _number(floors[name]) for name in _FLOORS},
        **_frontiers(record),
        "train_accuracy": _number(train["accuracy"]),
        **{f"train_{name}": _number(train[name]) for name in VIOLATIONS},
        "constant_accuracy": _number(record["constant_classifier"]["test"]["accuracy"]),
        "unsettled": "settled" in record["served"]["note"],
        "near_constant": bool(record["warnings"]),
        "hyper_parameters": _hyper_parameters(trial.config),
        "identity": record["identity"],
        "data_sha256": record["data"]["sha256"],
        "version": record["versions"]["mfairfl"],
    }


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _frontiers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the best accuracy any classifier could have at the run's own violations."""
    tally = Tally.from_json(record["tallies"]["test"])
    found = {}
    for name in VIOLATIONS:
        value = record["metrics"]["test"][name]
        bound = {name.removesuffix("_difference"): value}
        found[f"frontier_{name}"] = (
            float("nan") if value is None else frontier(tally, **bound).accuracy
        )
    return found


def _hyper_parameters(config: Config) -> str:
    """Return what a reader needs to make the run again, beside data, split, budget and seed."""
    given = {
        "training": config.training.model_dump(mode="json", exclude={"rounds", "local_epochs"}),
        "strategy": config.strategy.model_dump(mode="json"),
    }
    return json.dumps(given, sort_keys=True)
