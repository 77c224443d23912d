"""The round loop, advanced one answer at a time by a caller that owns the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord

from mfairfl.data import Attribute
from mfairfl.engine.loop import federate
from mfairfl.engine.output import ClientSums
from mfairfl.engine.state import Answer, Ask, Refusal, RoundRecord, RunState, Setup, Train
from mfairfl.fairness import Tally, accuracy, worst_client_accuracy
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.flower.records import ModelLayout
from mfairfl.strategies.base import Strategy, Summary
from mfairfl.training.plan import Job, Recipe, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What a `FairStrategy` decides before any client is asked."""

    strategy: Strategy
    recipe: Recipe
    goal: Goal
    attributes: tuple[Attribute, ...]
    seed: int
    participation: float
    robust: str = "none"

    @property
    def cells(self) -> int:
        """The number of cells."""
        return Cells(self.attributes).size

    def metrics(self, measured: ClientSums) -> dict[str, float]:
        """Return the metrics of all clients together, for each split that has rows."""
        constraints = self.goal.constraints(self.attributes)
        metrics: dict[str, float] = {}
        for split, clients in measured.items():
            rows = {name: sums for name, sums in clients.items() if sums.counts.any()}
            if rows:
                tally = Tally.from_statistics(rows, self.attributes)
                pooled = Statistics.pooled(rows)
                metrics[f"{split}_accuracy"] = accuracy(tally)
                metrics[f"{split}_violation"] = constraints.violation(pooled)
                metrics[f"{split}_loss"] = pooled.mean_loss
                metrics[f"{split}_worst_client_accuracy"] = worst_client_accuracy(tally)
        return metrics


class StepwiseLoop:
    """A run of the loop with these clients; it waits for an answer between two calls.

    Parameters
    ----------
    settings : AppSettings
        What was decided.
    rounds : int
        How many.
    arrays : ArrayRecord
        The first model.
    known : mapping of str to Statistics
        The clients, with sums and counts of their training rows under the first model.
    history : list
        Gets the record of every round.
    """

    def __init__(
        self,
        settings: AppSettings,
        rounds: int,
        arrays: ArrayRecord,
        known: Mapping[str, Statistics],
        history: list[RoundRecord],
    ) -> None:
        counts = {name: known[name].counts for name in sorted(known)}
        summary = Summary(counts=counts, attributes=settings.attributes, goal=settings.goal)
        self._layout, self._history = ModelLayout.of(arrays), history
        self._rows = {name: int(table.sum()) for name, table in counts.items()}
        setup = Setup(
            strategy=settings.strategy,
            size=self._layout.size,
            recipe=settings.recipe,
            rounds=rounds,
            seed=settings.seed,
            summary=summary,
            participation=settings.participation,
            robust=settings.robust,
            splits=("train",),
        )
        weights = self._layout.flat(arrays)
        state = settings.strategy.start(summary)
        self._state = RunState(round=0, weights=weights, strategy=state)
        self._loop = federate(setup, self._state, [self])
        self._ask: Ask = next(self._loop)

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Nothing has happened yet."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Keep the record of a round."""
        del setup, state
        self._history.append(record)

    @property
    def clients(self) -> frozenset[str]:
        """Names of the clients that take part in the run."""
        return frozenset(self._rows)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the participants are to train now; empty while a measurement is awaited."""
        return self._ask.jobs if isinstance(self._ask, Train) else ()

    def send(self, answers: Mapping[str, Answer], faults: Mapping[str, str]) -> None:
        """Continue with the clients' answers up to the next request.

        `faults` holds the reasons why an answer could not be read.
        """
        refusals = {name: Refusal(why) for name, why in faults.items() if name in self.clients}
        self._ask = self._loop.send({**answers, **refusals})

    @property
    def arrays(self) -> ArrayRecord:
        """The server's weights, as the model's arrays."""
        return self._layout.record(np.asarray(self._state.weights))

    @arrays.setter
    def arrays(self, arrays: ArrayRecord) -> None:
        self._state.weights = self._layout.flat(arrays)

    def report(self, job: Job, arrays: ArrayRecord) -> Report:
        """Return the update that a client's trained arrays amount to."""
        trained = self._layout.flat(arrays)
        with np.errstate(over="ignore"):  # the loop sets aside what is not finite
            update = self._state.weights - trained
        return Report(
            client=job.client,
            update=update,
            steps=job.plan.epochs * -(-self._rows[job.client] // job.plan.batch_size),
            lr=job.plan.optimizer.lr,
        )
