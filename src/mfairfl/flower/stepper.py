"""The engines' round loop, run one answer at a time by whoever holds the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord

from mfairfl.data import Attribute
from mfairfl.engine.loop import federate
from mfairfl.engine.state import Ask, Measured, RoundRecord, RunState, Setup, Train
from mfairfl.engine.tallies import mean_loss, pooled, tally_of
from mfairfl.fairness import accuracy, worst_client_accuracy
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.flower.contents import ModelLayout
from mfairfl.models import Model
from mfairfl.strategies.base import Strategy, Summary
from mfairfl.training.plan import Job, Recipe, Report

__all__ = ["AppTerms", "Course"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTerms:
    """What is decided before anyone is asked."""

    strategy: Strategy
    recipe: Recipe
    goal: Goal
    attributes: tuple[Attribute, ...]
    seed: int
    participation: float

    @property
    def cells(self) -> int:
        """The number of cells."""
        return Cells(self.attributes).size

    def numbers(self, measured: Measured) -> dict[str, float]:
        """Return the global numbers of each split that has rows."""
        constraints = self.goal.constraints(self.attributes)
        found: dict[str, float] = {}
        for split, clients in measured.items():
            rows = {name: sums for name, sums in clients.items() if sums.counts.any()}
            if rows:
                tally, whole = tally_of(rows, self.attributes), pooled(rows)
                found[f"{split}_accuracy"] = accuracy(tally)
                found[f"{split}_violation"] = constraints.violation(whole)
                found[f"{split}_loss"] = mean_loss(whole)
                found[f"{split}_worst_client_accuracy"] = worst_client_accuracy(tally)
        return found


class Course:
    """A run of the loop with these clients; it waits for an answer between two calls.

    Parameters
    ----------
    terms : AppTerms
        What was decided.
    rounds : int
        How many.
    arrays : ArrayRecord
        The first model.
    known : mapping of str to Statistics
        Who takes part, with their training rows under the first model.
    history : list
        Gets the record of every round.
    """

    def __init__(
        self,
        terms: AppTerms,
        rounds: int,
        arrays: ArrayRecord,
        known: Mapping[str, Statistics],
        history: list[RoundRecord],
    ) -> None:
        counts = {name: known[name].counts for name in sorted(known)}
        summary = Summary(counts=counts, attributes=terms.attributes, goal=terms.goal)
        self._layout, self._history = ModelLayout.of(arrays), history
        self._rows = {name: int(table.sum()) for name, table in counts.items()}
        setup = Setup(
            strategy=terms.strategy,
            # The loop asks a model for its size alone; the rest is the clients' business.
            model=cast("Model", self._layout),
            recipe=terms.recipe,
            rounds=rounds,
            seed=terms.seed,
            summary=summary,
            participation=terms.participation,
            splits=("train",),
        )
        weights = self._layout.flat(arrays)
        self._state = RunState(round=0, weights=weights, strategy=terms.strategy.start(summary))
        self._loop = federate(setup, self._state, [self])
        self._ask: Ask = next(self._loop)

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Nothing has happened yet."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Keep the record of a round."""
        del setup, state
        self._history.append(record)

    def knows(self, name: str) -> bool:
        """Say whether a client takes part."""
        return name in self._rows

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the participants are to train now; nothing while a measurement is awaited."""
        return self._ask.jobs if isinstance(self._ask, Train) else ()

    def take(self, answer: Any) -> None:
        """Go on with reports, or with a measurement, up to the next request."""
        self._ask = self._loop.send(answer)

    def set_model(self, arrays: ArrayRecord) -> None:
        """Take these for the server's weights."""
        self._state.weights = self._layout.flat(arrays)

    def model(self) -> ArrayRecord:
        """Return the server's weights."""
        return self._layout.record(np.asarray(self._state.weights))

    def report(self, job: Job, arrays: ArrayRecord) -> Report:
        """Return what a client's trained arrays mean: its update."""
        return Report(
            client=job.client,
            update=self._state.weights - self._layout.flat(arrays),
            steps=job.plan.epochs * -(-self._rows[job.client] // job.plan.batch_size),
            lr=job.plan.optimizer.lr,
        )
