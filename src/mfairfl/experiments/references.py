"""The pooled references that a study asks for, as a work list beside that of its methods."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from mfairfl.errors import ConfigError
from mfairfl.experiments.study import DataVariant, Study, base_settings, row_settings, run_name
from mfairfl.fairness import notion as notion_of
from mfairfl.references import ReferenceName
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import nested


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTrial:
    """A pooled reference of a study, and where it stands in the tables.

    It has no rounds: the same one stands in the table of every protocol.
    """

    data: str
    split: str
    protocol: str
    strategy: ReferenceName
    notion: str
    seed: int
    config: Config

    def directory(self, folder: Path) -> Path:
        """Return the folder it is kept in, below `folder`."""
        words = (self.data, self.split, "pooled", self.strategy, self.notion or "any", self.seed)
        return folder / run_name(words, self.config)


def reference_trials(study: Study) -> list[ReferenceTrial]:
    """Return the pooled references of a study, for every protocol, data set, split and seed.

    Examples
    --------
    >>> study = Study(data=("adult",), strategies=("fedavg",), references=("boosting",), seeds=2)
    >>> [(t.strategy, t.notion, t.seed) for t in reference_trials(study)]
    [('boosting', '', 0), ('boosting', '', 1)]
    """
    places = itertools.product(study.protocols, study.data, study.splits, study.seeds)
    return [
        ReferenceTrial(
            data=data.label,
            split=split,
            protocol=protocol,
            strategy=name,
            notion=notion,
            seed=seed,
            config=_reference_config(study, data, split, seed, notion),
        )
        for protocol, data, split, seed in places
        for name in study.references
        for notion in (study.notions if name == "boosting-threshold" else ("",))
    ]


def _reference_config(
    study: Study, data: DataVariant, split: str, seed: int, notion: str
) -> Config:
    """Return the rows and, for thresholds, the goal; how methods train plays no part."""
    sections = ("data", "task", "clients", *(("fairness", "output") if notion else ()))
    base = {key: value for key, value in base_settings(study, data).items() if key in sections}
    goal = {"fairness.notion": notion, "output.rule": "threshold"} if notion else {}
    who = f"references on {data.label}"
    config = make_config(nested(row_settings(data, split, seed) | goal, base), who)
    losses = [name for name in config.fairness.notion if notion_of(name).statistic == "loss"]
    if notion and losses:
        raise ConfigError(
            f"{who}: boosting-threshold changes decisions, not losses; leave it out or "
            f"use another notion than '{losses[0]}'"
        )
    return config
