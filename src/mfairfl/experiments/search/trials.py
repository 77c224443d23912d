"""What a trial of a search showed, which one is chosen, and the files about it.

The most accurate trial that is fair enough is chosen, never the fairest one: a model that gives
everyone the same answer is exactly fair, and useless.
"""

import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from mfairfl.colours import INK, MUTED, PALETTE
from mfairfl.errors import ConfigError
from mfairfl.experiments.figures import STYLE, save_figure
from mfairfl.experiments.search.space import Search, applied
from mfairfl.files import toml_text, write_atomically
from mfairfl.runs.config import Config, make_config

FLOOR_FACTOR = 1.3  # a violation this close to its noise floor may be due to chance
USEFUL = 0.01  # accuracy a model must gain on the constant classifier to be of use


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a trial showed on rows it was not trained on.

    Parameters
    ----------
    accuracy, violation : float
        Means over the folds; nan where undefined.
    floor : float
        Mean violation on the same rows if the decisions were exactly fair; nan where undefined.
    constant_accuracy : float
        Accuracy of the constant classifier on the same rows.
    """

    accuracy: float
    violation: float
    floor: float
    constant_accuracy: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The position of the chosen trial, and why it was chosen, in one line."""

    index: int
    reason: str


def mean_of(values: Sequence[float | None]) -> float:
    """Return the mean over folds; nan if one of them has no value.

    Examples
    --------
    >>> mean_of([0.5, 0.75]), mean_of([0.5, None])
    (0.625, nan)
    """
    return float(np.array(values, dtype=np.float64).mean())


def allowed(trial: Scored, tolerance: float) -> float:
    """Return the largest acceptable violation: the tolerance, or 1.3 noise floors if that is more.

    Examples
    --------
    >>> allowed(Scored(accuracy=0.8, violation=0.12, floor=0.1, constant_accuracy=0.7), 0.01)
    0.13
    """
    noise = FLOOR_FACTOR * trial.floor
    return tolerance if math.isnan(noise) else max(tolerance, noise)


def choose(trials: Sequence[Scored], tolerance: float) -> Choice:
    """Choose the highest accuracy subject to violation ≤ max(tolerance, 1.3 × noise floor).

    Only trials at least .01 more accurate than the constant classifier count; if none of them is
    that fair, the one of lowest violation. If there is none of these, the most accurate. Of
    equals, the one that is better in the other number, then the first.

    Parameters
    ----------
    trials : sequence of Scored
        Complete trials. Those of undefined accuracy are never chosen, those of undefined violation
        only if there is no other.
    tolerance : float
        Largest violation that is acceptable.

    Examples
    --------
    >>> constant = Scored(accuracy=0.70, violation=0.0, floor=0.0, constant_accuracy=0.70)
    >>> fair = Scored(accuracy=0.80, violation=0.009, floor=0.006, constant_accuracy=0.70)
    >>> unfair = Scored(accuracy=0.85, violation=0.2, floor=0.006, constant_accuracy=0.70)
    >>> choose([constant, fair, unfair], tolerance=0.01).index
    1
    """
    if not 0 <= tolerance <= 1:
        raise ConfigError(f"tolerance: must be between 0 and 1, not {tolerance}")
    measured = [i for i, trial in enumerate(trials) if not math.isnan(trial.accuracy)]
    if not measured:
        raise ConfigError("no complete trial with a defined accuracy to choose from")
    defined = [i for i in measured if not math.isnan(trials[i].violation)]
    useful = [i for i in defined if _useful(trials[i])]
    fair = [i for i in useful if trials[i].violation <= allowed(trials[i], tolerance)]
    bound = f"violation ≤ max({tolerance:g}, {FLOOR_FACTOR:g} × noise floor)"
    if fair:
        best = min(fair, key=lambda i: (-trials[i].accuracy, trials[i].violation))
        return Choice(best, f"highest accuracy of the {len(fair)} with {bound}")
    if useful:
        best = min(useful, key=lambda i: (trials[i].violation, -trials[i].accuracy))
        why = f"lowest violation of the {len(useful)} clearly more accurate than a constant"
        return Choice(best, f"no useful trial has {bound}; {why}")
    best = min(defined or measured, key=lambda i: (-trials[i].accuracy, trials[i].violation))
    why = f"no trial is {USEFUL:g} more accurate than a constant classifier; highest accuracy"
    return Choice(best, f"{why}: widen the search")


def _useful(trial: Scored) -> bool:
    # Both are shares of the same rows: a gain of exactly .01 must not fail by rounding.
    return round(trial.accuracy - trial.constant_accuracy, 12) >= USEFUL


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTrial:
    """A trial: its values, and what each fold showed once it is complete.

    Parameters
    ----------
    state : {"complete", "running", "fail"}
        Only a complete trial has been measured.
    values : mapping
        By dotted key of the configuration.
    metrics : tuple of str
        What must be small.
    folds : tuple of mapping
        One per fold: ``accuracy``, ``constant_accuracy``, and for each metric ``<metric>`` and
        ``floor_<metric>``; None where undefined.
    """

    number: int
    state: str
    values: Mapping[str, Any]
    metrics: tuple[str, ...]
    folds: tuple[Mapping[str, float | None], ...] = ()

    def mean(self, name: str) -> float:
        """Return the mean over folds; nan if a fold has none."""
        return mean_of([fold[name] for fold in self.folds])

    @property
    def violation(self) -> float:
        """The largest of the metrics' means."""
        return max(self.mean(metric) for metric in self.metrics)

    def scored(self, tolerance: float) -> Scored:
        """Return what the rule of choice reads; of several metrics, the one that fails most."""
        each = [
            Scored(
                accuracy=self.mean("accuracy"),
                violation=self.mean(metric),
                floor=self.mean(f"floor_{metric}"),
                constant_accuracy=self.mean("constant_accuracy"),
            )
            for metric in self.metrics
        ]
        return max(each, key=lambda score: score.violation - allowed(score, tolerance))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found: all trials in order, the Pareto set, and which one was chosen.

    Parameters
    ----------
    pareto : tuple of int
        Numbers of the trials that no other is better than in accuracy and violation.
    best : SearchTrial
        The trial that was chosen.
    reason : str
        Why, in one line.
    """

    search: Search
    trials: tuple[SearchTrial, ...]
    pareto: tuple[int, ...]
    best: SearchTrial
    reason: str
    tolerance: float

    @property
    def config(self) -> Config:
        """The configuration with the chosen values."""
        return applied(self.search.config, self.best.values)

    @property
    def complete(self) -> tuple[SearchTrial, ...]:
        """The trials that were measured."""
        return tuple(trial for trial in self.trials if trial.state == "complete")

    @property
    def chosen(self) -> str:
        """Which trial was chosen, in words."""
        return f"trial {self.best.number} (of {len(self.complete)} complete ones)"

    @property
    def numbers(self) -> str:
        """The chosen trial's means over folds, in one line."""
        means = {name: self.best.mean(name) for name in ("accuracy", *self.search.metrics)}
        return ", ".join(f"{name} {value:.4f}" for name, value in means.items())

    def __str__(self) -> str:
        values = ", ".join(f"{key} = {value}" for key, value in self.best.values.items())  # noqa: PD011 - a mapping
        return f"{self.chosen}: {values}\n{self.numbers}\n{self.reason}"

    def write(self, folder: Path) -> None:
        """Write trials.csv, trials.svg, trials.png and best.toml.

        trials.csv has one row per trial: state, values, means over folds, then the numbers of each
        fold. Trials that are not complete have no numbers.
        """
        rows = [_row(self, trial) for trial in self.trials]
        # Objects: whole numbers stay whole where a trial has none.
        frame = pd.DataFrame(rows, columns=list(_row(self, self.best)), dtype=object)
        text = frame.to_csv(index=False, lineterminator="\n")
        write_atomically(folder / "trials.csv", text.encode())
        write_atomically(folder / "best.toml", best_toml(self, folder).encode())
        save_figure(plot_trials(self), folder / "trials", kinds=("svg", "png"))


def best_toml(tuned: SearchResult, folder: Path) -> str:
    """Write the settings with the chosen values as a file for `mfairfl train`, in `folder`."""
    config, search = tuned.config, tuned.search
    values = config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    values["strategy"] = {"name": config.strategy.name} | values.get("strategy", {})
    for key in ("csv", "path"):
        place = values.get("data", {}).get(key)
        if place is not None and not Path(place).is_absolute():
            # Paths in a TOML file are relative to that file.
            values["data"][key] = Path(os.path.relpath(place, folder)).as_posix()
    lines = [
        f"# Chosen by mfairfl tune: {tuned.chosen}, on {search.folds} folds of the train rows.",
        f"# {tuned.numbers}",
        f"# {tuned.reason}",
    ]
    lines += [f"{k} = {toml_text(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section, inner in values.items():
        if isinstance(inner, dict):
            lines += ["", f"[{section}]", *(f"{k} = {toml_text(v)}" for k, v in inner.items())]
    text = "\n".join(lines) + "\n"
    make_config(tomllib.loads(text), "best.toml")  # a file that does not load is never written
    return text


def _row(tuned: SearchResult, trial: SearchTrial) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.number,
        "state": trial.state,
        "chosen": int(trial.number == tuned.best.number),
        "pareto": int(trial.number in tuned.pareto),
    }
    for key, value in trial.values.items():  # noqa: PD011
        row[key] = value if isinstance(value, str | int | float) else json.dumps(value)
    if trial.state != "complete":
        return row
    metrics = tuned.search.metrics
    row |= {"accuracy": trial.mean("accuracy"), "violation": trial.violation}
    numbers = ("constant_accuracy", *metrics, *(f"floor_{metric}" for metric in metrics))
    row |= {name: trial.mean(name) for name in numbers}
    for k, fold in enumerate(trial.folds):
        row |= {f"{name}[fold {k}]": fold[name] for name in ("accuracy", *metrics)}
    return row


@rc_context(STYLE)
def plot_trials(tuned: SearchResult) -> Figure:
    """Draw accuracy against violation: trials, the Pareto set, the choice and its bound."""
    metrics, best = tuned.search.metrics, tuned.best
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    panel = figure.subplots()
    points = {t.number: (t.violation, t.mean("accuracy")) for t in tuned.complete}
    pareto = sorted(points[number] for number in tuned.pareto)
    style: dict[str, Any] = {"linestyle": "", "color": PALETTE[0], "clip_on": False}
    hollow = style | {"markerfacecolor": "white"}
    joined = style | {"linestyle": ":"}
    star = style | {"marker": "*", "markersize": 16, "color": PALETTE[1]}
    panel.plot(*zip(*points.values(), strict=True), marker="o", label="trial", **hollow)
    panel.plot(*zip(*pareto, strict=True), marker="o", label="Pareto set", **joined)
    panel.plot(*points[best.number], label=f"chosen: trial {best.number}", **star)
    bound = allowed(best.scored(tuned.tolerance), tuned.tolerance)
    panel.axvline(bound, color=INK, linestyle="--", linewidth=0.9, label="small enough")
    constant = best.mean("constant_accuracy")
    panel.axhline(constant, color=MUTED, linewidth=2, zorder=0, label="constant classifier")
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
