"""Candidates for the default setting against pooled gradient boosting, on folds of train rows.

FedAvg on Adult, Bank, COMPAS and German (split high, five clients), and on samples of ACS rows if
a Parquet file is given; boosting is fitted on the very same rows of all clients. Test rows are
never looked at: a fold of each client's train rows measures. Every run is a line of the CSV file,
and what is there is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import defaults_page
from mfairfl.data import Table, load_dataset, partition, table_from_frame, task_from_roles
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import RunRequest, run_requests
from mfairfl.runs.record import RunRecord

FOLDS = 5
ACS_ROWS = 100_000
LARGE = ("adult", "bank")
# How many seeds, from 0 on; none reaches those of the final check.
SCREENING = {"adult": 1, "bank": 1}
FINAL = {"adult": 8, "bank": 8, "compas": 10, "german": 10, "acs": 2, "acs-states": 1}
TWICE = {"adult": 2, "bank": 2}
MIDDLE = {"adult": 4, "bank": 4, "compas": 10, "german": 10}
FAIR_SEEDS, BUDGET_SEEDS = 3, 2
REPEATS = 3
BOOSTING = {"max_iter": 1000, "early_stopping": True}
MOST_LEVELS = 255  # that boosting takes in a column

Setting = Mapping[str, Any]  # keys of the configuration, dotted

OLD: Setting = {
    "encoder.numeric": "standard",
    "encoder.min_level_rows": 1,
    "model.hidden": [32, 32, 32, 32],
    "training.rounds": 40,
    "training.local_epochs": 5,
    "training.batch_size": 512,
    "training.lr": 2e-3,
    "training.weight_decay": 3.0,
}
BINS: Setting = {
    "encoder.numeric": "bins",
    "encoder.bins": 16,
    "encoder.min_rows": 50,
    "encoder.indicators": "atoms",
    "encoder.min_level_rows": 10,
    "model.hidden": [64, 64],
    "training.rounds": 40,
    "training.local_epochs": 1,
    "training.batch_size": 512,
    "training.lr": 4e-3,
    "training.weight_decay": 1.0,
}
TWO_EPOCHS: Setting = {**BINS, "training.local_epochs": 2}
CANDIDATES: dict[str, Setting] = {
    "old": OLD,
    "bins": BINS,
    "bins, 2 epochs, decay 1.5": {**TWO_EPOCHS, "training.weight_decay": 1.5},
    "bins, 2 epochs, decay 2": {**TWO_EPOCHS, "training.weight_decay": 2.0},
    "bins, 2 epochs, decay 1": TWO_EPOCHS,
    "bins, 2 epochs, decay 1, 30 rounds": {**TWO_EPOCHS, "training.rounds": 30},
    "bins, 2 epochs, decay 1.5, 30 rounds": {
        **TWO_EPOCHS,
        "training.rounds": 30,
        "training.weight_decay": 1.5,
    },
    "bins from 20 rows, 2 epochs, decay 1.5": {
        **TWO_EPOCHS,
        "encoder.min_rows": 20,
        "training.weight_decay": 1.5,
    },
    "bins, 128 × 128": {**BINS, "model.hidden": [128, 128]},
    "bins, 64 × 64 × 64": {**BINS, "model.hidden": [64, 64, 64]},
    "bins, 256": {**BINS, "model.hidden": [256]},
    "bins, batch 256": {**BINS, "training.batch_size": 256},
    "bins, decay 0.5": {**BINS, "training.weight_decay": 0.5},
    "bins, levels from 5 rows": {**BINS, "encoder.min_level_rows": 5},
    "bins, levels from 20 rows": {**BINS, "encoder.min_level_rows": 20},
    "bins from 20 rows": {**BINS, "encoder.min_rows": 20},
    "bins from 100 rows": {**BINS, "encoder.min_rows": 100},
    "bins, no indicators": {**BINS, "encoder.indicators": "none"},
    "bins, all indicators": {**BINS, "encoder.indicators": "bins"},
    "old encoding, training of bins": {
        **BINS,
        "encoder.numeric": "standard",
        "encoder.min_level_rows": 1,
    },
}
CHOSEN = "bins, 2 epochs, decay 1.5"
FINALISTS = ("bins", CHOSEN, f"{CHOSEN}, 30 rounds")
DEEPER = {
    "old": {**MIDDLE, "acs-states": 1},
    "bins": {**FINAL, "acs": 1},
    CHOSEN: FINAL,
    f"{CHOSEN}, 30 rounds": {**FINAL, "acs": 1},
    "bins, 2 epochs, decay 1": MIDDLE,
    "bins, 2 epochs, decay 1, 30 rounds": TWICE,
    "bins from 20 rows, 2 epochs, decay 1.5": TWICE,
}
# The paper's budget: 10 rounds of 20 local epochs.
PAPER = {"training.rounds": 10, "training.local_epochs": 20}
PUBLISHED_BUDGET: dict[str, Setting] = {
    "10 × 20, old": {**OLD, **PAPER},
    "10 × 20, decay 1": {**BINS, **PAPER},
    "10 × 20, decay 1.5": {**BINS, **PAPER, "training.weight_decay": 1.5},
    "10 × 20, decay 2": {**BINS, **PAPER, "training.weight_decay": 2.0},
    "10 × 20, decay 3": {**BINS, **PAPER, "training.weight_decay": 3.0},
}


def nested(setting: Setting) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in setting.items():
        section, name = key.split(".")
        found.setdefault(section, {})[name] = value
    return found


class Results:
    """The CSV file: one line per run, written as soon as it is known."""

    FIELDS = (
        "kind",
        "data",
        "candidate",
        "seed",
        "fold",
        "accuracy",
        "log_loss",
        "violation",
        "weights",
        "seconds",
        "setting",
    )
    KEY = ("kind", "data", "setting", "seed", "fold")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, ...], dict[str, str]] = {}
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    self.rows[tuple(row[name] for name in self.KEY)] = row

    def ensure(self, key: Mapping[str, Any], label: str, run: Callable[[], Setting]) -> None:
        """Carry out a run, unless its line is there."""
        place = tuple(str(key[name]) for name in self.KEY)
        if place in self.rows:
            return
        row = dict.fromkeys(self.FIELDS, "")
        row |= {name: str(value) for name, value in {**key, **run()}.items()}
        self.rows[place] = row | {"candidate": label}
        self.save()
        print({name: value for name, value in self.rows[place].items() if name != "setting"})

    def save(self) -> None:
        """Write all lines."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows.values())


class Tables:
    """The rows of each data set; of the ACS file another sample for every seed."""

    def __init__(self, acs: Path | None) -> None:
        self.acs = acs
        self.named = cache(load_dataset)
        self.sampled = cache(self._sample)

    def __call__(self, data: str, seed: int) -> Table:
        """Return the rows of a data set; a seed draws those of the ACS file."""
        return self.sampled(seed) if data.startswith("acs") else self.named(data)

    def _sample(self, seed: int) -> Table:
        assert self.acs is not None
        frame = pd.read_parquet(self.acs)
        drawn = np.random.default_rng(1000 + seed).choice(len(frame), ACS_ROWS, replace=False)
        task = task_from_roles(
            frame,
            label="PINCP",
            favourable=">50K",
            sensitive="SEX",
            client="STATE",
            numeric=("AGEP", "WKHP"),
            categorical=("COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P"),
        )
        return table_from_frame(frame.iloc[np.sort(drawn)].reset_index(drop=True), task)


def scheme(data: str) -> str:
    """Five clients of equal size for `acs`, the states for `acs-states`."""
    return {"acs": "iid", "acs-states": "column"}.get(data, "high")


def trained(table: Table, data: str, setting: Setting, seed: int, strategy: str) -> RunRecord:
    config = make_config(
        {
            "seed": seed,
            "clients": {"scheme": scheme(data), "folds": FOLDS, "fold": seed % FOLDS},
            "strategy": {"name": strategy},
            **nested(setting),
        }
    )
    return run_requests([RunRequest(config=config, rows=table)])[0].record


def measured(table: Table, data: str, setting: Setting, seed: int, strategy: str) -> Setting:
    record = trained(table, data, setting, seed, strategy)
    metrics = record.metrics["test"]  # the fold
    return {
        "accuracy": metrics["accuracy"],
        "log_loss": metrics["loss"],
        "violation": metrics["demographic_parity_violation"],
        "weights": record.model.size,
    }


def boosted(table: Table, data: str, seed: int) -> Setting:
    """Fit boosting on the train rows of all clients; a column's rarest levels may be merged."""
    federation = partition(table, scheme(data), seed=seed, fold=(seed % FOLDS, FOLDS))
    train, fold = (
        np.concatenate([getattr(client, part).rows for client in federation.clients])
        for part in ("train", "test")
    )
    X, y = table.X.copy(), np.asarray(table.y)
    for column in table.task.categorical:
        texts = X[column].astype(object)
        kept = texts.iloc[train].value_counts().index[: MOST_LEVELS - 1]
        X[column] = texts.where(texts.isin(kept), "(others)").astype("category")
    model = HistGradientBoostingClassifier(
        **BOOSTING, categorical_features="from_dtype", random_state=seed
    )
    margin = model.fit(X.iloc[train], y[train]).decision_function(X.iloc[fold])
    return {
        "accuracy": float(np.mean((margin >= 0) == (y[fold] == 1))),
        "log_loss": float(np.mean(np.logaddexp(0, np.where(y[fold] == 1, -margin, margin)))),
    }


def compare(results: Results, tables: Tables) -> None:
    for data, most in FINAL.items():
        if data.startswith("acs") and tables.acs is None:
            continue
        for seed in range(most):
            table = tables(data, seed)
            place = {"data": data, "seed": seed, "fold": seed % FOLDS}
            key = {**place, "kind": "reference", "setting": json.dumps(BOOSTING)}
            results.ensure(key, "boosting", partial(boosted, table, data, seed))
            for named in CANDIDATES.items():
                if seed < DEEPER.get(named[0], SCREENING).get(data, 0):
                    run(results, {**place, "kind": "candidate"}, named, table)


def run(
    results: Results,
    key: Mapping[str, Any],
    named: tuple[str, Setting],
    table: Table,
    strategy: str = "fedavg",
) -> None:
    name, setting = named
    job = partial(measured, table, key["data"], setting, key["seed"], strategy)
    results.ensure({**key, "setting": json.dumps(setting)}, name, job)


def published_budget(results: Results, tables: Tables) -> None:
    for seed in range(BUDGET_SEEDS):
        for data in LARGE:
            key = {"kind": "budget", "data": data, "seed": seed, "fold": seed % FOLDS}
            for named in PUBLISHED_BUDGET.items():
                run(results, key, named, tables(data, seed))


def fair(results: Results, tables: Tables) -> None:
    """MFairFL under its default notion, demographic parity, on Adult."""
    for seed in range(FAIR_SEEDS):
        key = {"kind": "mfairfl", "data": "adult", "seed": seed, "fold": seed % FOLDS}
        for name in ("old", *FINALISTS):
            named = (name, CANDIDATES[name])
            run(results, key, named, tables("adult", seed), "mfairfl")


def cost(results: Results, tables: Tables) -> None:
    """Processor seconds of whole runs on Adult, all candidates in turn, three times over."""
    table = tables("adult", 0)
    for repeat in range(REPEATS):
        for name in ("old", *FINALISTS):
            setting = CANDIDATES[name]
            key = {"kind": "cost", "data": "adult", "seed": 0, "fold": repeat}
            key["setting"] = json.dumps(setting)
            results.ensure(key, name, partial(timed, table, setting))


def timed(table: Table, setting: Setting) -> Setting:
    began = time.process_time()
    record = trained(table, "adult", setting, 0, "fedavg")
    spent = time.process_time() - began
    return {"seconds": round(spent, 2), "weights": record.model.size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acs", type=Path, help="Parquet file of ACS rows")
    parser.add_argument("--out", type=Path, default=Path("results/defaults.csv"))
    options = parser.parse_args()
    results, tables = Results(options.out), Tables(options.acs)
    compare(results, tables)
    fair(results, tables)
    published_budget(results, tables)
    cost(results, tables)
    page = options.out.with_suffix(".md")
    text = defaults_page.page(pd.read_csv(options.out), CHOSEN)
    page.write_text(text, encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
