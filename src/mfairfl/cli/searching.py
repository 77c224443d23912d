"""Carry out `mfairfl tune`: search space, progress, interruption, result."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from mfairfl.cli.flags import configuration
from mfairfl.cli.running import INTERRUPTED, default_folder
from mfairfl.cli.show import number, print_json, print_table, say, terminal
from mfairfl.cli.trial_progress import TrialProgress
from mfairfl.errors import ConfigError
from mfairfl.experiments.search.space import (
    Choices,
    Range,
    Search,
    default_metrics,
    default_space,
)
from mfairfl.experiments.search.trials import SearchResult, Tried, plot_trials, write_trials
from mfairfl.experiments.search.tune import tune
from mfairfl.files import toml_text, write_atomically
from mfairfl.runs.config import make_config
from mfairfl.runs.figures import save_figure
from mfairfl.runs.options import OPTIONS, comma_list, toml_value

__all__ = ["Wanted", "best_toml", "parse_search", "run_search"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The flags of `mfairfl tune` that are no settings of a run."""

    trials: int
    folds: int
    search: tuple[str, ...]
    metric: str | None
    tolerance: float
    study: str | None
    storage: str | None
    out: Path | None


def run_search(
    file: Path | None, flags: Mapping[str, Any], wanted: Wanted, *, as_json: bool
) -> None:
    """Search, write trials.csv, best.toml and pictures, and show what was chosen and why."""
    config = configuration(file, flags)
    named = wanted.metric
    search = Search(
        config=config,
        space=default_space(config.strategy.name) | parse_search(wanted.search),
        metrics=default_metrics(config) if named is None else tuple(comma_list(named)),
        folds=wanted.folds,
    )
    study = default_folder(config).name if wanted.study is None else wanted.study
    folder = Path("runs") / f"tune-{study}" if wanted.out is None else wanted.out
    try:
        with TrialProgress(terminal(stderr=True), search, wanted.trials, quiet=as_json) as watcher:
            tuned = tune(
                search,
                folder,
                trials=wanted.trials,
                study=study,
                storage=wanted.storage,
                tolerance=wanted.tolerance,
                watcher=watcher,
            )
    except KeyboardInterrupt:
        say("stopped; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None
    write_trials(tuned, folder / "trials.csv")
    write_atomically(folder / "best.toml", best_toml(tuned, folder).encode())
    save_figure(plot_trials(tuned), folder / "trials", kinds=("svg", "png"))
    if as_json:
        print_json(_as_json(tuned, study))
    else:
        _print_choice(tuned, folder)


def parse_search(pairs: Sequence[str]) -> dict[str, Choices | Range]:
    """Read the values of --search.

    Examples
    --------
    >>> parse_search(["lr=0.001:0.1:log"])
    {'training.lr': Range(low=0.001, high=0.1, log=True)}
    >>> parse_search(["strategy.beta=0.4,0.8", "model.hidden=[32],[8, 8]"])
    {'strategy.beta': Choices(values=(0.4, 0.8)), 'model.hidden': Choices(values=([32], [8, 8]))}
    """
    found: dict[str, Choices | Range] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not key or not text:
            raise ConfigError(
                f"--search {pair}: write key=a,b,c or key=low:high or key=low:high:log"
            )
        try:
            found[OPTIONS[key].key if key in OPTIONS else key] = _part(text)
        except ConfigError as error:
            raise ConfigError(f"--search {pair}: {error}") from None
    return found


def _part(text: str) -> Choices | Range:
    bounds = [toml_value(bound) for bound in text.removesuffix(":log").split(":")]
    if len(bounds) == 2 and all(type(bound) in (int, float) for bound in bounds):
        return Range(bounds[0], bounds[1], log=text.endswith(":log"))
    whole = toml_value(f"[{text}]")  # lists have commas of their own
    values = whole if isinstance(whole, list) else [toml_value(one) for one in comma_list(text)]
    if any(values.count(value) > 1 for value in values):
        raise ConfigError("a value is there twice; name it once")
    return Choices(tuple(values))


def best_toml(tuned: SearchResult, folder: Path) -> str:
    """Return the given settings with the chosen values, as a file for `mfairfl train`."""
    config = tuned.config
    values = config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    values["strategy"] = {"name": config.strategy.name} | values.get("strategy", {})
    for key in ("csv", "path"):
        place = values.get("data", {}).get(key)
        if place is not None and not Path(place).is_absolute():
            # Files are named relative to the TOML file that names them.
            values["data"][key] = Path(os.path.relpath(place, folder)).as_posix()
    lines = [
        f"# Chosen by mfairfl tune: {_which(tuned)}, on {tuned.search.folds} folds of the train "
        "rows.",
        f"# {_numbers(tuned, tuned.best)}",
        f"# {tuned.reason}",
    ]
    lines += [f"{k} = {toml_text(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section, inner in values.items():
        if isinstance(inner, dict):
            lines += ["", f"[{section}]", *(f"{k} = {toml_text(v)}" for k, v in inner.items())]
    text = "\n".join(lines) + "\n"
    make_config(tomllib.loads(text), "best.toml")  # nobody should see a file that does not load
    return text


def _which(tuned: SearchResult) -> str:
    return f"trial {tuned.best.number} (of {len(tuned.complete)} complete ones)"


def _numbers(tuned: SearchResult, trial: Tried) -> str:
    found = {name: trial.mean(name) for name in ("accuracy", *tuned.search.metrics)}
    return ", ".join(f"{name} {value:.4f}" for name, value in found.items())


def _print_choice(tuned: SearchResult, folder: Path) -> None:
    """Print the Pareto set and the choice, best accuracy first."""
    search, best = tuned.search, tuned.best
    shown = [t for t in tuned.complete if t.number in tuned.pareto or t.number == best.number]
    shown.sort(key=lambda trial: -trial.mean("accuracy"))
    heads = {"accuracy": "accuracy", "constant_accuracy": "constant classifier's"}
    for metric in search.metrics:
        heads |= {metric: metric.replace("_", " "), f"floor_{metric}": "noise floor"}
    rows = [
        [
            f"{trial.number}{' *' if trial.number == best.number else ''}",
            *(_shown(trial.values[key]) for key in search.space),
            *(number(_defined(trial.mean(name))) for name in heads),
        ]
        for trial in shown
    ]
    keys = [key.rpartition(".")[2] for key in search.space]
    print_table(
        ["trial", *keys, *heads.values()], rows, right=range(1, len(keys) + len(heads) + 1)
    )
    typer.echo(
        "The Pareto set: no trial is better than these in accuracy and violation. Means over "
        f"{search.folds} folds\nof the train rows; test rows are not used.\n"
        f"* chosen: {_which(tuned)}: {tuned.reason}"
    )
    running = [trial.number for trial in tuned.trials if trial.state == "running"]
    if running:
        typer.echo(
            f"warning: not finished: {', '.join(map(str, running))}; another folder of this study "
            "runs them, or stopped: give the same command there to go on"
        )
    typer.echo(f"files: {folder}/ (best.toml, trials.csv, trials.svg, trials.png)")
    typer.echo(f"next: mfairfl train {folder / 'best.toml'}")


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _as_json(tuned: SearchResult, study: str) -> dict[str, Any]:
    search = tuned.search

    def plain(trial: Tried) -> dict[str, Any]:
        means = {"accuracy": trial.mean("accuracy"), "violation": trial.violation(search.metrics)}
        done = means if trial.state == "complete" else {}
        values = dict(trial.values)
        return (
            {"trial": trial.number, "state": trial.state, "values": values}
            | done
            | {"folds": [dict(fold) for fold in trial.folds]}
        )

    return {
        "study": study,
        "metrics": list(search.metrics),
        "tolerance": tuned.tolerance,
        "best": plain(tuned.best),
        "reason": tuned.reason,
        "pareto": list(tuned.pareto),
        "trials": [plain(trial) for trial in tuned.trials],
    }
