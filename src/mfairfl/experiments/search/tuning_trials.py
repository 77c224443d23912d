"""What a search is about, what a trial showed, and what came of it: plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mfairfl.errors import ConfigError, unknown
from mfairfl.experiments.search.choice import Scored, allowed
from mfairfl.experiments.search.space import Space, applied, check_space, to_json
from mfairfl.runs.config import Config

__all__ = ["METRICS", "Search", "SearchResult", "Tried", "default_metrics"]

METRICS = (
    "demographic_parity_difference",
    "equalized_odds_difference",
    "equal_opportunity_difference",
    "accuracy_parity_difference",
    "client_accuracy_std",
    "client_accuracy_gap",
)


def default_metrics(config: Config) -> tuple[str, ...]:
    """Return what must be small: the notions' violations, or how far clients are apart.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> default_metrics(make_config({"fairness": {"notion": "eo"}}))
    ('equalized_odds_difference',)
    >>> default_metrics(make_config({"strategy": {"name": "qffl"}}))
    ('client_accuracy_std',)
    """
    strategy = config.strategy.create()
    if strategy.card.protects == "clients" or getattr(strategy, "parity", None) == "client":
        return ("client_accuracy_std",)
    return tuple(f"{name}_difference" for name in config.fairness.notion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched and how a trial is scored; the same for all who share a study.

    Parameters
    ----------
    config : Config
        What the trials have in common.
    space : mapping of str to Choices or Range
        What they differ in, by dotted key.
    metrics : tuple of str
        Names of `METRICS`; the largest mean over folds is a trial's violation.
    folds : int
        Parts of each client's train rows; each is measured once, on training with the others.
    """

    config: Config
    space: Space
    metrics: tuple[str, ...]
    folds: int = 3

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise ConfigError(unknown("metric", name, METRICS))
        if self.config.clients.folds is not None:
            raise ConfigError("clients.folds: a search makes its own folds; leave it out")
        check_space(self.config, self.space)

    def settings(self) -> dict[str, Any]:
        """Return all that must be equal in one study; where files lie does not matter."""
        values = self.config.model_dump(mode="json", exclude={"data": {"csv", "path"}})
        flat: dict[str, Any] = {}
        for section, inner in values.items():
            entries = inner.items() if isinstance(inner, dict) else ()
            flat |= {f"{section}.{key}": value for key, value in entries} or {section: inner}
        searched = {f"search of {key}": text for key, text in to_json(self.space).items()}
        keys = {"searched keys": sorted(self.space)}
        return {"folds": self.folds, "metric": list(self.metrics), **keys, **searched, **flat}

    def runs(self, values: Mapping[str, Any], folder: Path) -> list[tuple[Config, Path]]:
        """Return a trial's run for each fold, and its directory."""
        parts = [{"clients.folds": self.folds, "clients.fold": k} for k in range(self.folds)]
        return [
            (applied(self.config, {**values, **part}, "trial"), folder / f"fold-{k}")
            for k, part in enumerate(parts)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A trial: its values, and what each fold showed once it is complete.

    `folds` has one mapping a fold: ``accuracy``, ``constant_accuracy``, and for each metric
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
