"""What a search leaves on disk beside its study: a table of trials and a picture of them."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from mfairfl.experiments.figures.runs import STYLE, save
from mfairfl.experiments.search.choice import allowed
from mfairfl.experiments.search.tuning_trials import SearchResult, Tried
from mfairfl.files import write_atomically

__all__ = ["draw_trials", "plot_trials", "write_trials"]


def write_trials(tuned: SearchResult, path: str | Path) -> None:
    """Write one row a trial: state, values, means over folds, then the numbers of each fold.

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


def draw_trials(tuned: SearchResult, path: str | Path) -> None:
    """Draw accuracy against violation of all complete trials (SVG or PNG by the ending).

    Examples
    --------
    >>> draw_trials(tuned, "trials.svg")  # doctest: +SKIP
    """
    save(plot_trials(tuned), Path(path))


@rc_context(STYLE)
def plot_trials(tuned: SearchResult) -> Figure:
    """Return the figure of `draw_trials`: trials, the Pareto set, the choice and its bound."""
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
