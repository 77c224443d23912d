"""mFairFL with its defaults on fresh seeds, against the targets set for it.

Adult, COMPAS and Bank, both splits, one model per notion; means over seeds with 95 % t-intervals.
The floor is the noise floor of the same test rows. A target counts as reached when the interval of
the mean reaches it. Runs are kept (and resumed) below --runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress
from scipy.stats import t as student

from mfairfl.runs.config import Config, make_config
from mfairfl.runs.record import RunRecord
from mfairfl.runs.workers import run_many
from version_02 import ENCODER, MODEL, TRAINING

FIRST_SEED = 100
SEEDS = {"adult": 5, "compas": 10, "bank": 5}
SPLITS = ("high", "low")
METRIC = {
    "dp": "demographic_parity_violation",
    "eo": "equalized_odds_violation",
    "ap": "accuracy_parity_violation",
    "ap-loss": "accuracy_parity_loss_violation",
}
# (accuracy at least, violation at most, as a number or as a multiple of the floor), for high
TARGETS: dict[tuple[str, str], tuple[float, float | str]] = {
    ("adult", "dp"): (0.835, 0.008),
    ("compas", "dp"): (0.67, "1.3"),
    ("bank", "dp"): (0.90, "1.3"),
    ("adult", "eo"): (0.845, "1.2"),
    ("compas", "eo"): (0.675, "1.2"),
    ("bank", "eo"): (0.895, "1.5"),
    ("adult", "ap"): (0.82, 0.006),
    ("compas", "ap"): (0.675, "1.4"),
    ("adult", "ap-loss"): (0.845, 0.005),
    ("compas", "ap-loss"): (0.675, 0.025),
    ("bank", "ap-loss"): (0.86, 0.028),
}
# Published client fairness.
CLIENT_STD = {
    ("high", "adult"): 0.036,
    ("high", "compas"): 0.022,
    ("high", "bank"): 0.028,
    ("low", "adult"): 0.029,
    ("low", "compas"): 0.022,
    ("low", "bank"): 0.026,
}
HEAD = (
    "data",
    "notion",
    "accuracy",
    "violation",
    "floor",
    "target",
    "reached",
    "violation on train",
    "TPR",
    "balanced accuracy",
    "client std, ≤ max(published, floor)",
    "unsettled",
    "near constant",
)
Key = tuple[str, str, str, str]  # protocol, split, data, notion


def config(key: Key, seed: int) -> Config:
    protocol, split, data, notion = key
    rounds, epochs = (int(part) for part in protocol.split("x"))
    return make_config(
        {
            "seed": seed,
            "data": {"name": data},
            "clients": {"scheme": split},
            "encoder": ENCODER,
            "model": MODEL,
            "training": {**TRAINING, "rounds": rounds, "local_epochs": epochs},
            "fairness": {"notion": notion},
            "strategy": {"name": "mfairfl"},
        }
    )


def mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval."""
    spread = np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(student.ppf(0.975, len(values) - 1) * spread)


def on_test(records: Sequence[RunRecord], metric: str) -> list[float]:
    return [record.metrics["test"][metric] for record in records]


def floors(records: Sequence[RunRecord], metric: str) -> list[float]:
    return [record.noise_floor["test"][metric] for record in records]


def row(key: Key, records: Sequence[RunRecord]) -> str:
    _, split, data, notion = key
    metric = METRIC[notion]
    accuracy, a = mean(on_test(records, "accuracy"))
    violation, v = mean(on_test(records, metric))
    train = np.mean([record.metrics["train"][metric] for record in records])
    clients, c = mean(on_test(records, "client_accuracy_std"))
    client_floor = np.mean(floors(records, "client_accuracy_std"))
    floor = None
    if notion != "ap-loss":
        floor = float(np.mean(floors(records, metric)))
    goal, reached = "-", "-"
    if split == "high" and (data, notion) in TARGETS:
        least, most = TARGETS[data, notion]
        bound = float(most) * (floor or 0) if isinstance(most, str) else most
        goal = f"≥ {least:g}, ≤ {bound:.4f}" + (f" ({most} × floor)" * isinstance(most, str))
        reached = " ".join(
            "yes" if ok else "**no**" for ok in (accuracy + a >= least, violation - v <= bound)
        )
    fair_clients = clients - c <= max(CLIENT_STD[split, data], client_floor)
    unsettled = sum("settled" in record.served.note for record in records)
    cells = [
        data,
        notion,
        f"{accuracy:.4f} ± {a:.4f}",
        f"{violation:.4f} ± {v:.4f}",
        "-" if floor is None else f"{floor:.4f}",
        goal,
        reached,
        f"{train:.4f}" + (" **> .01**" if train > 0.01 else ""),
        f"{np.mean(on_test(records, 'true_positive_rate')):.2f}",
        f"{np.mean(on_test(records, 'balanced_accuracy')):.3f}",
        f"{clients:.4f} {'yes' if fair_clients else '**no**'}",
        f"{unsettled} of {len(records)}",
        f"{sum(bool(record.warnings) for record in records)} of {len(records)}",
    ]
    return "| " + " | ".join(cells) + " |"


def trade(label: str, metric: str, found: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """Accuracy against violation: the frontier that was reached."""
    lines = [
        f"| {label} | accuracy | violation on test | on train | floor | TPR |",
        "|" + " --- |" * 6,
    ]
    for name, records in found.items():
        accuracy, a = mean(on_test(records, "accuracy"))
        violation, v = mean(on_test(records, metric))
        train = np.mean([record.metrics["train"][metric] for record in records])
        floor = np.mean(floors(records, metric))
        rate = np.mean(on_test(records, "true_positive_rate"))
        lines.append(
            f"| {name} | {accuracy:.4f} ± {a:.4f} | {violation:.4f} ± {v:.4f} | {train:.4f} | "
            f"{floor:.4f} | {rate:.2f} |"
        )
    return lines


def changed(data: str, notion: str, seed: int, changes: Mapping[str, Mapping[str, Any]]) -> Config:
    plain = config(("40x5", "high", data, notion), seed).model_dump(mode="json")
    return make_config(
        {part: {**plain[part], **new} for part, new in changes.items()}
        | {part: value for part, value in plain.items() if part not in changes}
    )


# The hard cells: what was tried, each on the same seeds as the main table.
CAPS: dict[str, dict[str, dict[str, Any]]] = {
    f"prices.cap = {cap:g}": {"strategy": {"name": "mfairfl", "prices": {"cap": cap}}}
    for cap in (5.0, 10.0, 20.0)
}
RULES: dict[str, dict[str, dict[str, Any]]] = {
    f"{rule}": {"output": {"rule": rule}} for rule in ("select", "mixture", "last")
}
PARITY: dict[str, dict[str, dict[str, Any]]] = {
    **{
        f"mfairfl, α = {alpha:g}": {
            "strategy": {"name": "mfairfl"},
            "fairness": {"dead_zone": alpha},
            "output": {"tolerance": max(alpha, 0.005)},
        }
        for alpha in (0.0, 0.05, 0.1)
    },
    **{
        f"fedavg-threshold, tolerance {tolerance:g}": {
            "strategy": {"name": "fedavg-threshold"},
            "output": {"tolerance": tolerance},
        }
        for tolerance in (0.0, 0.05, 0.1)
    },
}


FAMILIES = (
    ("adult", "eo", RULES),
    ("bank", "eo", RULES),
    ("bank", "eo", CAPS),
    ("bank", "ap", PARITY),
)


def table(protocol: str, split: str, records: Mapping[Any, list[RunRecord]]) -> list[str]:
    rows = [
        row(key, records[key])
        for data in SEEDS
        for notion in METRIC
        if (key := (protocol, split, data, notion)) in records
    ]
    return [
        f"## {protocol}, {split}",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + " --- |" * len(HEAD),
        *rows,
        "",
    ]


def jobs_of(protocols: Sequence[str], runs: Path) -> list[tuple[Any, Config, Path]]:
    jobs: list[tuple[Any, Config, Path]] = []
    keys = [
        (protocol, split, data, notion)
        for protocol in protocols
        for split in SPLITS
        for data in SEEDS
        for notion in METRIC
    ]
    for key in keys:
        seeds = range(FIRST_SEED, FIRST_SEED + SEEDS[key[2]])
        jobs += [(key, config(key, seed), runs / "/".join(key) / str(seed)) for seed in seeds]
    for data, notion, family in FAMILIES:
        for name, changes in family.items():
            for seed in range(FIRST_SEED, FIRST_SEED + SEEDS[data]):
                out = runs / "tried" / data / notion / name.replace(" ", "") / str(seed)
                jobs.append(((data, notion, name), changed(data, notion, seed, changes), out))
    return jobs


def carry_out(jobs: Sequence[tuple[Any, Config, Path]]) -> dict[Any, list[RunRecord]]:
    with Progress() as bar:
        task = bar.add_task("rounds", total=sum(c.training.rounds for _, c, _ in jobs))
        done: dict[str, int] = {}

        def tell(out: str, finished: int, _: int) -> None:
            done[out] = finished
            bar.update(task, completed=sum(done.values()))

        found = run_many([(c, out) for _, c, out in jobs], progress=tell)
    records: dict[Any, list[RunRecord]] = {}
    for (key, _, _), record in zip(jobs, found, strict=True):
        records.setdefault(key, []).append(record)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocols", nargs="+", default=["40x5", "10x20"])
    parser.add_argument("--runs", type=Path, default=Path("runs/targets"))
    parser.add_argument("--out", type=Path, default=Path("results/mfairfl-targets.md"))
    options = parser.parse_args()
    records = carry_out(jobs_of(options.protocols, options.runs))
    seeds = ", ".join(f"{count} on {data}" for data, count in SEEDS.items())
    lines = [
        "# mFairFL against its targets",
        "",
        "Made by `make targets`: defaults, test rows, seeds from "
        f"{FIRST_SEED} on ({seeds}), mean ± half a",
        "95 % interval. Reached: accuracy and violation; a target is reached when the interval of",
        "the mean reaches it. Unsettled: runs whose violation still varied in late rounds;",
        "the record of each says so. Near constant: runs with a warning that nearly everyone gets",
        "the same decision.",
        "",
    ]
    for protocol in options.protocols:
        for split in SPLITS:
            lines += table(protocol, split, records)
    rules = {
        f"{data}, {name}": records[data, "eo", name]
        for data in ("adult", "bank")
        for name in RULES
    }
    lines += [
        "## Equalized odds: what the output rule does",
        "",
        "Some runs have no single model within the tolerance of .01 on train rows. A mixture,",
        "which decides by a model drawn at random, can be within it (40x5, high).",
        "",
        *trade("data, rule", METRIC["eo"], rules),
        "",
        "## Bank, equalized odds: fairness against the true positive rate",
        "",
        "The smaller group is harder to predict: its ROC curve lies below the larger one's.",
        "Parity of both error rates then means fewer approvals for everyone. The bound on prices",
        "(40x5, high) decides how much of it is reached.",
        "",
        *trade("bound", METRIC["eo"], {name: records["bank", "eo", name] for name in CAPS}),
        "",
        "## Bank, parity of error rates: the frontier that was reached",
        "",
        "Errors of the smaller group cannot be brought down to the larger one's, so parity raises",
        "the larger one's. Group thresholds on FedAvg's scores, fitted by a linear programme, are",
        "what a post-processor reaches. The published .844 at .003 is far beyond both.",
        "",
        *trade("method", METRIC["ap"], {name: records["bank", "ap", name] for name in PARITY}),
        "",
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
