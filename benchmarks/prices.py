"""Candidates for the settings of fairness prices, on folds of train rows.

mFairFL and FPFL, which price rows by the same Lagrangian, on Adult, Bank and COMPAS, split high,
one model per notion; FedAvg, alone and with thresholds by group, and FedFB beside them. Test rows
are never looked at: a fold of each client's train rows measures. COMPAS is left out where it
cannot be loaded. Every run is a line of the CSV file, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mfairfl.data import Federation, Table, load_dataset, partition
from mfairfl.engine.embedded import counts_of
from mfairfl.errors import MfairflError
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.notions import notion
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.execute import RunRequest, run_requests
from mfairfl.runs.options import nested
from mfairfl.runs.record import RunRecord

FOLDS = 5
SEEDS = {"bank": 4, "compas": 6, "adult": 4}  # from 0 on: none reaches those of a final check
NOTIONS = ("dp", "eo", "ap")
AT_ONCE = 8

Setting = Mapping[str, Any]  # keys of the configuration, dotted

ERRORS = "standard errors"  # of a gap on the train rows: the dead zone in a setting
OLD: Setting = {
    "strategy.gamma": 1.0,
    "strategy.prices.cap": 20.0,
    "strategy.prices.shared_cap": 1e9,
    "fairness.dead_zone": 0.0,
}
SHARED: Setting = {**OLD, "strategy.prices.shared_cap": 0.5}
CHOSEN: Setting = {**SHARED, ERRORS: 1.0}
FEDFB: Setting = {"strategy.name": "fedfb", "fairness.dead_zone": 0.0}
FPFL: Setting = {"strategy.name": "fpfl"}
BEFORE = "version 0.9"
CANDIDATES: dict[str, tuple[Setting, tuple[str, ...]]] = {
    "FedAvg": ({"strategy.name": "fedavg"}, NOTIONS),
    "FedAvg, thresholds": ({"strategy.name": "fedavg-threshold"}, NOTIONS),
    BEFORE: (OLD, NOTIONS),
    "γ .5": ({**OLD, "strategy.gamma": 0.5}, NOTIONS),
    "dead zone 1 SE": ({**OLD, ERRORS: 1.0}, NOTIONS),
    "dead zone 2 SE": ({**OLD, ERRORS: 2.0}, NOTIONS),
    "cap 1": ({**OLD, "strategy.prices.cap": 1.0}, NOTIONS),
    "cap .5": ({**OLD, "strategy.prices.cap": 0.5}, ("ap",)),
    "shared cap .5": (SHARED, ("eo", "ap")),
    "shared cap .5, γ .5": ({**SHARED, "strategy.gamma": 0.5}, ("eo", "ap")),
    "shared cap .5, dead zone 1 SE": (CHOSEN, ("eo", "ap")),
    f"FPFL, {BEFORE}": ({**FPFL, **OLD}, ("eo", "ap")),
    "FPFL, shared cap .5, dead zone 1 SE": ({**FPFL, **CHOSEN}, ("eo", "ap")),
    f"FedFB, {BEFORE}": (FEDFB, ("eo",)),
    "FedFB, dead zone 1 SE": ({**FEDFB, ERRORS: 1.0}, ("eo",)),
}
NUMBERS = ("accuracy", "violation", "train_violation", "auc", "tpr")
HEAD = (
    "| candidate | accuracy | violation | on train rows | AUC inside groups | true positive "
    "rate | accuracy, change | violation, change | folds |"
)
RULE = "|" + " --- |" * HEAD.count("| ")
PAGE = (Path(__file__).parent / "prices_template.md").read_text(encoding="utf-8").rstrip()


class Run(NamedTuple):
    """One line of the CSV file, before it is run."""

    data: str
    notion: str
    candidate: str
    seed: int
    setting: str


class Results:
    """The CSV file: one line per run, written as soon as it is known."""

    FIELDS = (*Run._fields, *NUMBERS)

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, []
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                self.rows = list(csv.DictReader(file))

    def __contains__(self, run: Run) -> bool:
        key = [run.data, run.notion, str(run.seed), run.setting]
        names = ("data", "notion", "seed", "setting")
        return any([row[name] for name in names] == key for row in self.rows)

    def add(self, run: Run, record: RunRecord) -> None:
        """Append a run's numbers."""
        numbers = {name: f"{value:.6f}" for name, value in measured(run.notion, record).items()}
        self.rows.append({**{k: str(v) for k, v in run._asdict().items()}, **numbers})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        print(*run[:4], *numbers.values(), flush=True)


def measured(short: str, record: RunRecord) -> dict[str, float]:
    """Return the numbers on the fold, and the violation on the rows that were trained on."""
    fold, name = record.metrics["test"], f"{notion(short).name}_violation"
    (groups,) = fold.by_group.values()
    rows = [group["n"] for group in groups.values()]
    return {
        "accuracy": fold["accuracy"],
        "violation": fold[name],
        "train_violation": record.metrics["train"][name],
        # Of the two groups, weighted by rows: how well scores rank people of one group.
        "auc": float(np.average([g["roc_auc"] for g in groups.values()], weights=rows)),
        "tpr": fold["true_positive_rate"],
    }


def configured(run: Run, federation: Federation) -> Config:
    setting = json.loads(run.setting)
    if ERRORS in setting:
        constraints = Goal(notions=(run.notion,)).constraints(federation.attributes)
        rows = np.sum(list(counts_of(federation, "train").values()), axis=0)
        setting["fairness.dead_zone"] = setting.pop(ERRORS) * constraints.standard_error(rows)
    where = {"clients.scheme": "high", "clients.folds": FOLDS, "clients.fold": run.seed % FOLDS}
    return make_config(
        nested({"seed": run.seed, **where, "fairness.notion": run.notion, **setting})
    )


def planned(data: str) -> Iterator[Run]:
    for name, (setting, notions) in CANDIDATES.items():
        for short, seed in itertools.product(notions, range(SEEDS[data])):
            yield Run(data, short, name, seed, json.dumps(setting))


def tables() -> Iterator[tuple[str, Table]]:
    for data in SEEDS:
        try:
            yield data, load_dataset(data)
        except MfairflError as error:
            print(f"{data} is left out: {error}")


def compare(results: Results) -> None:
    for data, table in tables():
        folds = {
            seed: partition(table, "high", seed=seed, fold=(seed % FOLDS, FOLDS))
            for seed in range(SEEDS[data])
        }
        todo = [run for run in planned(data) if run not in results]
        for first in range(0, len(todo), AT_ONCE):
            some = todo[first : first + AT_ONCE]
            requests = [
                RunRequest(config=configured(run, folds[run.seed]), rows=table) for run in some
            ]
            for run, done in zip(some, run_requests(requests, workers=1), strict=True):
                results.add(run, done.record)


def page(rows: pd.DataFrame) -> str:
    """Return the tables: means over folds, and what changes against version 0.9, fold by fold."""
    lines = [PAGE]
    for (data, short), cell in rows.groupby(["data", "notion"], sort=False):
        lines += ["", f"## {data}, {notion(short).name.replace('_', ' ')}", "", HEAD, RULE]
        before = cell[cell.candidate == BEFORE].set_index("seed")
        for name, runs in cell.groupby("candidate", sort=False):
            mean = runs[list(NUMBERS)].mean()
            change = (runs.set_index("seed")[list(NUMBERS)] - before[list(NUMBERS)]).dropna()
            cells = [name, *(f"{value:.4f}" for value in mean)]
            cells += [thousandths(change[column]) for column in ("accuracy", "violation")]
            lines.append("| " + " | ".join([*cells, str(len(runs))]) + " |")
    return "\n".join(lines) + "\n"


def thousandths(values: pd.Series) -> str:
    """Write a mean and its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{1000 * values.mean():+.1f} ± {1000 * error:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/prices.csv"))
    options = parser.parse_args()
    compare(Results(options.out))
    text = page(pd.read_csv(options.out))
    options.out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
