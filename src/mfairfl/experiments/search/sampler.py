"""Optuna's tree-structured Parzen estimator, with random numbers that survive a restart."""

from __future__ import annotations

import json
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from mfairfl.experiments.search.space import Choices, Range
from mfairfl.randomness import stream

__all__ = ["Sampler", "decoded", "encoded", "suggested"]


class Sampler(optuna.samplers.BaseSampler):
    """Draws a trial's values by what finished trials showed.

    The random numbers are a function of the seed, the trial's number and the key. So a search that
    was stopped goes on as if it had not been, and processes that share a study never draw alike.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every key is drawn by itself."""
        del study, trial
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Every key is drawn by itself."""
        del study, trial, search_space
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw the value of one key."""
        rng = stream(self._seed, "tune", trial.number, param_name)
        tpe = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)))
        return tpe.sample_independent(study, trial, param_name, param_distribution)


def suggested(trial: Trial, key: str, part: Choices | Range) -> Any:
    """Draw a trial's value for one key, or return what was drawn before."""
    if isinstance(part, Choices):
        texts = [encoded(part, value) for value in part.values]
        return decoded(part, trial.suggest_categorical(key, texts))
    if part.whole:
        return trial.suggest_int(key, int(part.low), int(part.high), log=part.log)
    return trial.suggest_float(key, part.low, part.high, log=part.log)


def encoded(part: Choices | Range, value: Any) -> Any:
    """Return a value as it is stored: choices as JSON, for a database holds no lists.

    Examples
    --------
    >>> encoded(Choices(([8], [8, 8])), [8]), encoded(Range(0.1, 0.2), 0.1)
    ('[8]', 0.1)
    """
    if isinstance(part, Choices):
        # As the space writes it: 1 and 1.0 are one value and two texts.
        return json.dumps(part.values[part.values.index(value)])
    return value


def decoded(part: Choices | Range, stored: Any) -> Any:
    """Return the value that is stored like this."""
    return json.loads(stored) if isinstance(part, Choices) else stored
