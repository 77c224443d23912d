"""What a trial of a search showed, what came of the search, and the files about it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from mfairfl.experiments.search.choice import Scored, allowed
from mfairfl.experiments.search.space import Search, applied
from mfairfl.files import write_atomically
from mfairfl.runs.config import Config
from mfairfl.runs.figures import STYLE

__all__ = ["SearchResult", "Tried", "plot_trials", "write_trials"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A trial: its values, and what each fold showed once it is complete.

    `folds` has one mapping per fold: ``accuracy``, ``constant_accuracy``, and for each metric
    ``<metric>`` and ``floor_<metric>``; None where undefined.
    """

    number: int
    state: str
    values: Mapping[str, Any]
    folds: tuple[Mapping[str, float | None], ...] = ()

    def mean(self, name: str) -> float:
        """Return the mean over folds; nan if a fold has none."""
        found = [fold[name] for fold in self.folds]
        return float(np.mean([math.nan if value is None else value for value in found]))

    def violation(self, metrics: Sequence[str]) -> float:
        """Return the largest of the metrics' means."""
        return max(self.mean(metric) for metric in metrics)

    def scored(self, metrics: Sequence[str], tolerance: float) -> Scored:
        """Return what the rule of choice reads; of several metrics, the one that fails most."""
        each = [
            Scored(
                accuracy=self.mean("accuracy"),
                violation=self.mean(metric),
                floor=self.mean(f"floor_{metric}"),
                constant_accuracy=self.mean("constant_accuracy"),
            )
            for metric in metrics
        ]
        return max(each, key=lambda score: score.violation - allowed(score, tolerance))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The outcome: all trials in order, the Pareto set's numbers, and which one was chosen."""

    search: Search
    trials: tuple[Tried, ...]
    pareto: tuple[int, ...]
    best: Tried
    reason: str
    tolerance: float

    @property
    def config(self) -> Config:
        """The configuration with the chosen values."""
        return applied(self.search.config, self.best.values)

    @property
    def complete(self) -> tuple[Tried, ...]:
        """The trials that were measured."""
        return tuple(trial for trial in self.trials if trial.state == "complete")


def write_trials(tuned: SearchResult, path: str | Path) -> None:
    """Write one row per trial: state, values, means over folds, then the numbers of each fold.

    `violation` is the largest of the metrics. Trials that are not complete have no numbers.

    Examples
    --------
    >>> write_trials(tuned, "trials.csv")  # doctest: +SKIP
    """
    rows = [_row(tuned, trial) for trial in tuned.trials]
    columns = _row(tuned, tuned.best)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(Path(path), text.getvalue().encode())


def _row(tuned: SearchResult, trial: Tried) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.number,
        "state": trial.state,
        "chosen": int(trial.number == tuned.best.number),
        "pareto": int(trial.number in tuned.pareto),
    }
    for key, value in trial.values.items():
        row[key] = value if isinstance(value, str | int | float) else json.dumps(value)
    if trial.state != "complete":
        return row
    metrics = tuned.search.metrics
    row |= {"accuracy": trial.mean("accuracy"), "violation": trial.violation(metrics)}
    numbers = ("constant_accuracy", *metrics, *(f"floor_{metric}" for metric in metrics))
    row |= {name: trial.mean(name) for name in numbers}
    for k, fold in enumerate(trial.folds):
        row |= {f"{name}[fold {k}]": fold[name] for name in ("accuracy", *metrics)}
    # Empty, not "nan", where a floor is undefined.
    return {name: "" if _undefined(value) else value for name, value in row.items()}


def _undefined(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


@rc_context(STYLE)
def plot_trials(tuned: SearchResult) -> Figure:
    """Draw accuracy against violation: trials, the Pareto set, the choice and its bound."""
    metrics, best = tuned.search.metrics, tuned.best
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    panel = figure.subplots()
    points = {t.number: (t.violation(metrics), t.mean("accuracy")) for t in tuned.complete}
    pareto = sorted(points[number] for number in tuned.pareto)
    style: dict[str, Any] = {"linestyle": "", "color": "black", "clip_on": False}
    hollow = style | {"markerfacecolor": "white"}
    joined = style | {"linestyle": ":"}
    star = style | {"marker": "*", "markersize": 16, "markerfacecolor": "0.7"}
    panel.plot(*zip(*points.values(), strict=True), marker="o", label="trial", **hollow)
    panel.plot(*zip(*pareto, strict=True), marker="o", label="Pareto set", **joined)
    panel.plot(*points[best.number], label=f"chosen: trial {best.number}", **star)
    bound = allowed(best.scored(metrics, tuned.tolerance), tuned.tolerance)
    panel.axvline(bound, color="black", linestyle="--", linewidth=0.9, label="small enough")
    constant = best.mean("constant_accuracy")
    panel.axhline(constant, color="0.55", linewidth=2, zorder=0, label="constant classifier")
    panel.set_xlim(left=0)
    names = [metric.replace("_", " ") for metric in metrics]
    panel.set_xlabel(names[0] if len(names) == 1 else f"largest of {', '.join(names)}")
    panel.set_ylabel("accuracy")
    panel.set_title(
        f"{tuned.search.config.strategy.name}: {len(points)} trials, means over "
        f"{tuned.search.folds} folds of the train rows"
    )
    figure.legend(loc="outside lower center", ncols=5, fontsize="small")
    return figure
