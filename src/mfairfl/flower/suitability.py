"""Which strategies a plain Flower app can carry out: one trained model a client and round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.flower.plans import plan_record
from mfairfl.strategies import available, create
from mfairfl.strategies.base import Context, Measurement, Strategy, Summary
from mfairfl.training.plan import Job, Recipe

__all__ = ["fitting_strategy"]


def fitting_strategy(
    name: str,
    hyper_parameters: Mapping[str, Any],
    recipe: Recipe,
    goal: Goal,
    attributes: tuple[Attribute, ...],
) -> Strategy:
    """Return a strategy that a plain app can carry out; any other is refused in one line.

    Multipliers that would move inside a round (mfairfl's `every`, in epochs) move between rounds
    instead, unless `every` is given.
    """
    rows = np.full((Cells(attributes).size, 2), 10.0)
    summary = Summary(counts={"one": rows}, attributes=attributes, goal=goal)
    strategy = _between_rounds(name, hyper_parameters, recipe)
    if recipe.optimizer == "gradient":
        raise ConfigError("recipe.optimizer = 'gradient' sends no weights; use 'adamw' or 'sgd'")
    if obstacle := _obstacle(strategy, recipe, summary):
        fitting = [
            other
            for other in available()
            if not _obstacle(_between_rounds(other, {}, recipe), recipe, summary)
        ]
        raise ConfigError(
            f"strategy '{name}' does not fit a plain Flower app: {obstacle}; those that do, with "
            f"their defaults: {', '.join(fitting)}"
        )
    return strategy


def _between_rounds(name: str, hyper_parameters: Mapping[str, Any], recipe: Recipe) -> Strategy:
    strategy = create(name, **hyper_parameters)
    if hasattr(strategy, "every") and "every" not in hyper_parameters:
        longest = max(strategy.every, recipe.local_epochs)
        return create(name, **{**hyper_parameters, "every": longest})
    return strategy


def _obstacle(strategy: Strategy, recipe: Recipe, summary: Summary) -> str:
    """Say why a strategy does not fit; empty if it does. Its own plans decide, not its name."""
    card = strategy.card
    if card.trains_on == "pooled":
        return "it trains on the rows of all clients in one place"
    if card.serves != "global":
        return f"what it serves is no global model ({card.serves})"
    if card.output == "threshold":
        return "it fits a threshold for each group when training is over"
    jobs = _trial_jobs(strategy, recipe, summary)
    if not jobs:
        return "nobody trains"
    try:
        for job in jobs:
            plan_record(job)
    except ConfigError as error:
        return str(error)
    return ""


def _trial_jobs(strategy: Strategy, recipe: Recipe, summary: Summary) -> list[Job]:
    """Return what a client would be asked in a first round."""
    rows = summary.pooled
    sums = Statistics(counts=rows, positives=rows / 2, scores=rows / 2, losses=rows / 2)
    context = Context(
        round=0,
        rounds=1,
        participants=("one",),
        plan=recipe.plan(0, 1),
        rng=np.random.default_rng(0),
        summary=summary,
    )
    _, jobs = strategy.plan(strategy.start(summary), context, [Measurement("one", sums)])
    return jobs
