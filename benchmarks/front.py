"""The front: all methods under one rule and one tolerance, and mFairFL without a tolerance.

Every method is trained with the stated tolerance; its last model is served with group thresholds
for the same tolerance (as `--output-rule thresholds --by group` does), so that no table compares
different demands. Which of the others stands beside mFairFL is chosen on folds of train rows
(`--part folds`, seeds from 0); the page shows test rows of seeds from 70. Runs are kept (and
resumed) below --runs; thresholds are fitted to the scores that are kept with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from mfairfl.fairness import Demand, MetricTable, fit_thresholds
from mfairfl.fairness.rule_counts import tally_under
from mfairfl.fairness.uncertainty import verdict
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import RunRequest, run_requests
from mfairfl.runs.record import RunRecord

DATA = ("adult", "bank", "compas")
NOTIONS = {"dp": "demographic_parity", "eo": "equalized_odds", "ap": "accuracy_parity"}
TOLERANCES = (0.01, 0.02, 0.05)
METHODS = ("mfairfl", "fedavg", "fpfl", "fedfb", "fairfed")
FIRST = {"folds": 0, "test": 70}
FOLDS = 5
AT_ONCE = 8  # runs that are trained side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One line of the page's tables; a tolerance of 0 stands for none, and for the own rule."""

    part: str
    data: str
    notion: str
    tolerance: float
    method: str
    seed: int
    blind: bool = False

    @property
    def config(self) -> Config:
        """What is trained: FedAvg depends on neither notion nor tolerance."""
        clients: dict[str, Any] = {"scheme": "high"}
        if self.part == "folds":
            clients |= {"folds": FOLDS, "fold": self.seed % FOLDS}
        fairness: dict[str, Any] = {"blind": self.blind}
        if self.method != "fedavg":
            fairness |= {"notion": self.notion, "tolerance": self.tolerance or None}
        return make_config(
            {
                "seed": self.seed,
                "data": {"name": self.data},
                "clients": clients,
                "fairness": fairness,
                "strategy": {"name": self.method},
                "output": {"rule": "last"} if self.tolerance else {},
            }
        )

    @property
    def folder(self) -> str:
        """Where the run is kept."""
        goal = "" if self.method == "fedavg" else f"-{self.notion}-{self.tolerance:g}"
        blind = "-blind" * self.blind
        return f"{self.part}-{self.data}-{self.method}{goal}{blind}-s{self.seed}"


def trials(part: str, seeds: int, data: Sequence[str], notions: Sequence[str]) -> Iterator[Trial]:
    """Yield what the page needs of one part."""
    for seed in range(FIRST[part], FIRST[part] + seeds):
        for name in data:
            for notion in notions:
                shared = {"part": part, "data": name, "notion": notion, "seed": seed}
                for tolerance in TOLERANCES:
                    for method in METHODS:
                        yield Trial(**shared, tolerance=tolerance, method=method)
                for method in ("mfairfl", "fedavg"):
                    yield Trial(**shared, tolerance=0.0, method=method)
                if name == "adult":
                    yield Trial(**shared, tolerance=0.0, method="mfairfl", blind=True)


def carry_out(wanted: Sequence[Trial], folder: Path) -> None:
    """Train what is not there yet, some runs at a time."""
    folders = {trial.folder: trial for trial in wanted}
    done = {path.parent.name for path in folder.glob("*/scores.safetensors")}
    missing = [trial for name, trial in folders.items() if name not in done]
    for start in range(0, len(missing), AT_ONCE):
        chosen = missing[start : start + AT_ONCE]
        run_requests(
            [RunRequest(config=trial.config, out=folder / trial.folder) for trial in chosen],
            workers=1,
        )
        print(f"{start + len(chosen)} of {len(missing)} runs", flush=True)


def finished(folder: Path) -> Iterator[Trial]:
    """Yield the trials of each data set and seed of which all are there."""
    for part, data in product(FIRST, DATA):
        for seed in range(FIRST[part], FIRST[part] + 20):
            wanted = [t for t in trials(part, 20, [data], [*NOTIONS]) if t.seed == seed]
            if all((folder / trial.folder / "scores.safetensors").exists() for trial in wanted):
                yield from wanted


def numbers(trial: Trial, folder: Path) -> dict[str, Any]:
    """Return what the page says of a trial."""
    directory = RunDirectory(folder / trial.folder)
    record = RunRecord.read(directory.path)
    table, excess = record.table("test"), 0.0
    measure = f"{NOTIONS[trial.notion]}_violation"
    at_half = table["accuracy"].value, table[measure].value
    if trial.tolerance:
        scores, attributes = directory.read_scores(record), record.task.attributes
        aim = make_config({"fairness": {"notion": trial.notion, "tolerance": trial.tolerance}})
        constraints = aim.goal(tuple(a.name for a in attributes)).constraints(attributes)
        rows = [histogram.rows for histogram in scores["test"].values()]
        demand = Demand(by="group", tolerance=aim.allowed(constraints, rows).output)
        fitted = fit_thresholds(scores["train"], constraints, demand)
        tally = tally_under(fitted.thresholds, scores["test"], attributes)
        table, excess = MetricTable.from_tally(tally), fitted.excess
    violation, groups = table[measure], record.table("test").sections[0].groups
    of_group = np.array([group.rows for group in groups])
    areas = np.array([group["roc_auc"].value for group in groups], dtype=float)
    return {
        **{name: getattr(trial, name) for name in Trial.__slots__},
        "accuracy": table["accuracy"].value,
        "violation": violation.value,
        "floor": violation.noise_floor,
        "verdict": verdict(violation.interval, trial.tolerance) if trial.tolerance else "",
        "true_positive_rate": table["true_positive_rate"].value,
        "auc_in_groups": float(areas @ of_group / of_group.sum()),
        "excess": excess,
        "half_accuracy": at_half[0],
        "half_violation": at_half[1],
    }


# ------------------------------------------------------------------ the page


def half_width(values: np.ndarray) -> float:
    if len(values) < 2:
        return float("nan")
    return float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def mean_and_half(values: pd.Series) -> str:
    return f"{values.mean():.4f} ± {half_width(values.to_numpy()):.4f}"


def best_on_folds(folds: pd.DataFrame) -> str:
    """Return the other method of highest accuracy among those whose violation is not the larger.

    A method counts if its mean violation on held-out folds is at most the tolerance, or at most
    the lowest one of all plus .002.
    """
    others = folds[folds.method != "mfairfl"].groupby("method")[["accuracy", "violation"]].mean()
    allowed = max(folds.tolerance.iloc[0], others.violation.min() + 0.002)
    return str(others[others.violation <= allowed].accuracy.idxmax())


def compared(lines: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a row of the page for each data set, notion and tolerance."""
    with_tolerance = lines[lines.tolerance > 0]
    for key, group in with_tolerance.groupby(["data", "notion", "tolerance"], sort=False):
        folds, test = (group[group.part == part] for part in ("folds", "test"))
        if folds.empty or test.empty:
            continue
        other = best_on_folds(folds)
        ours = test[test.method == "mfairfl"].set_index("seed")
        theirs = test[test.method == other].set_index("seed").reindex(ours.index)
        gap = (ours.accuracy - theirs.accuracy).to_numpy()
        half = half_width(gap)
        reached = gap.mean() >= -max(0.002, half)
        floor, tolerance = ours.floor.mean(), float(group.tolerance.iloc[0])
        within = ours.violation.mean() <= max(tolerance, 1.3 * floor)
        met = ours.verdict.eq("met").mean()
        yield [
            *map(str, key),
            mean_and_half(ours.accuracy),
            mean_and_half(ours.violation),
            f"{met:.0%}",
            f"{ours.auc_in_groups.mean():.4f}",
            f"{other}: {theirs.accuracy.mean():.4f} at {theirs.violation.mean():.4f}",
            f"{gap.mean():+.4f} ± {half:.4f}",
            f"{floor:.4f}",
            "yes" if reached and within else "no",
        ]


def plain(lines: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a row for each data set and notion without a tolerance."""
    unset = lines[(lines.tolerance == 0) & (lines.part == "test")]
    for key, group in unset.groupby(["data", "notion", "method", "blind"], sort=False):
        yield [
            *map(str, key),
            mean_and_half(group.accuracy),
            mean_and_half(group.violation),
            f"{group.floor.mean():.4f}",
            f"{group.true_positive_rate.mean():.3f}",
            f"{group.auc_in_groups.mean():.4f}",
        ]


def earned(lines: pd.DataFrame) -> Iterator[list[str]]:
    """Yield what prices take from the violation before any rule, and what the rule takes."""
    test = lines[(lines.part == "test") & (lines.tolerance > 0)]
    for key, group in test.groupby(["data", "notion", "tolerance"], sort=False):
        ours, fedavg = (group[group.method == name] for name in ("mfairfl", "fedavg"))
        yield [
            *map(str, key),
            f"{fedavg.half_accuracy.mean():.4f} at {fedavg.half_violation.mean():.4f}",
            f"{ours.half_accuracy.mean():.4f} at {ours.half_violation.mean():.4f}",
            f"{ours.accuracy.mean():.4f} at {ours.violation.mean():.4f}",
        ]


def table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(lines: pd.DataFrame, template: str) -> str:
    seeds: Mapping[str, Any] = lines.groupby("part").seed.agg(["min", "max"]).to_dict("index")
    return template.format(
        folds=f"{seeds['folds']['min']} to {seeds['folds']['max']}",
        test=f"{seeds['test']['min']} to {seeds['test']['max']}",
        compared=table(
            (
                "data",
                "notion",
                "tolerance",
                "accuracy",
                "violation",
                "met",
                "AUC in groups",
                "best other, by folds",
                "difference in accuracy",
                "floor",
                "aim reached",
            ),
            compared(lines),
        ),
        earned=table(
            ("data", "notion", "tolerance", "FedAvg at ½", "mFairFL at ½", "mFairFL, thresholds"),
            earned(lines),
        ),
        plain=table(
            (
                "data",
                "notion",
                "method",
                "blind",
                "accuracy",
                "violation",
                "floor",
                "true positive rate",
                "AUC in groups",
            ),
            plain(lines),
        ),
    )


def main() -> None:
    """Train, or write the page of what there is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=["folds", "test", "page"], required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--notions", nargs="+", choices=[*NOTIONS], default=[*NOTIONS])
    parser.add_argument("--runs", type=Path, default=Path("runs/front"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    if asked.part != "page":
        wanted = trials(asked.part, asked.seeds, asked.data, asked.notions)
        carry_out(list(wanted), asked.runs)
        return
    lines = pd.DataFrame([numbers(trial, asked.runs) for trial in finished(asked.runs)])
    lines.to_csv(asked.out / "front.csv", index=False)
    template = Path(__file__).with_name("front_template.md").read_text(encoding="utf-8")
    (asked.out / "front.md").write_text(page(lines, template) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
