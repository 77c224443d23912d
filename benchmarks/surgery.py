"""Where mFairFL's conflict step lifts the worst client, and where it changes nothing.

Every variant of the server's rule runs on the same rows, clients, first weights and batches, so
differences are paired over seeds. Two kinds of settings: label skew, where one client holds few of
one label and many of the other, and the published splits. Runs are kept (and resumed) below
--runs; the page and its figure are made by `surgery_page.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.progress import Progress

from mfairfl.data import Table, load_dataset
from mfairfl.randomness import stream
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.workers import run_many
from surgery_page import Finished, draw, write_page
from version_02 import ENCODER, MODEL, TRAINING

FIRST_SEED = 100
SEEDS = {"adult": 5, "compas": 10, "bank": 5}
OTHERS = 4  # clients that share what client 5 does not get

UNIFORM = {"weights": "uniform"}
VARIANTS: dict[str, dict[str, Any]] = {
    "size-weighted average": {"conflict": False},
    "uniform average": {"conflict": False, **UNIFORM},
    "β = .8": UNIFORM,
    "β = .8, size weights": {},
    "β = .8, slow goals": {"goals": {"convention": "gradvac"}, "delta": 0.01, **UNIFORM},
    "β = 1": {"beta": 1.0, **UNIFORM},
    "β = .8, reversed order": {"order": "reversed", **UNIFORM},
    "β = .8, reversed order and keeping": {"order": "reversed-kept", **UNIFORM},
}
FEW = ("size-weighted average", "uniform average", "β = .8", "β = .8, size weights")
ON_OFF = ("size-weighted average", "β = .8, size weights")

# Client 5's share of the rows with each label.
SKEWS: dict[str, tuple[str, dict[str, float]]] = {
    "COMPAS": ("compas", {"0": 0.04, "1": 0.52}),
    "COMPAS mirrored": ("compas", {"1": 0.04, "0": 0.52}),
    "Bank": ("bank", {"no": 0.005, "yes": 0.2}),
}
SHORT = {"local_epochs": 1, "lr": 1e-3, "schedule": "constant", "weight_decay": 0.0}
BUDGETS: dict[str, dict[str, Any]] = {
    "40 × 1, weight decay 3": {"rounds": 40, **SHORT, "weight_decay": 3.0},
    "40 × 1, batch 64": {"rounds": 40, **SHORT, "batch_size": 64},
    "40 × 5": {"rounds": 40, **SHORT, "local_epochs": 5},
    "10 × 20": {"rounds": 10, **SHORT, "local_epochs": 20},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Rows, clients and budget on which variants are compared."""

    data: str
    variants: tuple[str, ...]
    training: Mapping[str, Any] = field(default_factory=dict)
    skew: str | None = None  # of SKEWS; None: a published split
    scheme: str = "column"
    constraint: bool = False


def seeds(data: str) -> range:
    return range(FIRST_SEED, FIRST_SEED + SEEDS[data])


def settings() -> dict[str, Setting]:
    found = {}
    for name, (data, _) in SKEWS.items():
        training = {"rounds": 20 if data == "bank" else 40, **SHORT}
        found[name] = Setting(data=data, skew=name, training=training, variants=tuple(VARIANTS))
    for name, training in BUDGETS.items():
        found[name] = Setting(data="compas", skew="COMPAS", training=training, variants=FEW)
    for data in ("adult", "compas"):
        for scheme in ("high", "low"):
            for constraint in (False, True):
                goal = "demographic parity" if constraint else "no constraint"
                found[f"{data}, {scheme}, {goal}"] = Setting(
                    data=data, scheme=scheme, constraint=constraint, variants=ON_OFF
                )
    return found


def deal(labels: NDArray[np.str_], skew: Mapping[str, float], seed: int) -> NDArray[np.str_]:
    """Return each row's client: `skew` of every label to client 5, the rest in equal parts."""
    clients = np.empty(len(labels), dtype="<U8")
    for label, share in skew.items():
        rows = stream(seed, "label skew", label).permutation(np.flatnonzero(labels == label))
        own = round(share * len(rows))
        clients[rows[:own]] = f"client-{OTHERS + 1}"
        for k, part in enumerate(np.array_split(rows[own:], OTHERS)):
            clients[part] = f"client-{k + 1}"
    return clients


def write_skewed(table: Table, skew: Mapping[str, float], seed: int, path: Path) -> None:
    """Write the rows with a column `client`, as a federation of one's own would come."""
    task = table.task
    labels = np.where(table.y == 1, str(task.favourable), str(task.unfavourable))
    frame = table.X.assign(**{task.label: labels, "client": deal(labels, skew, seed)})
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)


def config(setting: Setting, variant: str, seed: int, source: Mapping[str, Any]) -> Config:
    # Without a constraint, choosing the served round by its violation would be one.
    output = {} if setting.constraint else {"rule": "last"}
    return make_config(
        {
            "seed": seed,
            "clients": {"scheme": setting.scheme},
            "encoder": ENCODER,
            "model": MODEL,
            "training": {**TRAINING, **setting.training},
            "strategy": {"name": "mfairfl", "constraint": setting.constraint, **VARIANTS[variant]},
            "output": output,
            **source,
        }
    )


def skewed_sources(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Write every skewed federation; return the part of the configuration that names it."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for name, (data, skew) in SKEWS.items():
        table = load_dataset(data)
        task = table.task.model_dump(mode="json") | {"client": "client"}
        for seed in seeds(data):
            path = folder / f"{name}-{seed}.csv"
            write_skewed(table, skew, seed, path)
            found[name, seed] = {"data": {"csv": str(path)}, "task": task}
    return found


def counted(out: Path) -> float:
    """Return client 5's share of the coefficients, the mean over rounds."""
    rows = pd.read_csv(out / "clients.csv").dropna(subset="coefficient")
    table = rows.pivot_table(index="round", columns="client", values="coefficient")
    return float((table[f"client-{OTHERS + 1}"] / table.sum(axis=1)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/surgery"))
    parser.add_argument("--out", type=Path, default=Path("results/surgery.md"))
    options = parser.parse_args()
    skewed = skewed_sources(options.runs / "rows")
    jobs = []
    for name, setting in settings().items():
        for seed, variant in product(seeds(setting.data), setting.variants):
            source = {"data": {"name": setting.data}}
            if setting.skew is not None:
                source = skewed[setting.skew, seed]
            out = options.runs / name / variant / str(seed)
            jobs.append(((name, variant), config(setting, variant, seed, source), out))
    with Progress() as bar:
        task = bar.add_task("rounds", total=sum(c.training.rounds for _, c, _ in jobs))
        done: dict[str, int] = {}

        def tell(out: str, finished: int, _: int) -> None:
            done[out] = finished
            bar.update(task, completed=sum(done.values()))

        records = run_many([(c, out) for _, c, out in jobs], progress=tell)
    found: dict[str, dict[str, list[Finished]]] = {}
    for ((name, variant), _, out), record in zip(jobs, records, strict=True):
        run = Finished(record=record, counted=counted(out))
        found.setdefault(name, {}).setdefault(variant, []).append(run)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw({name: found[name] for name in SKEWS}, options.out.with_suffix(".svg"))
    options.out.write_text(write_page(found), encoding="utf-8")
    print(f"wrote {options.out} and {options.out.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
