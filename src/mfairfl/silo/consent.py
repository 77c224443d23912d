"""What a silo agreed to: its own copy of run.toml binds the coordinator.

A request for another task, model, training or method is refused in one line. What the agreed
method would ask for is found out by letting it plan the round here, with made-up counts: its
settings are compared, and not the numbers that depend on data (prices, multipliers, corrections).

This is hardening, no guarantee: weights that are made for the purpose still pass
(docs/what-leaves.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mfairfl.data import MISSING, Attribute, Reading, Task
from mfairfl.engine.output import Rule
from mfairfl.engine.state import Ask, Measure, Train
from mfairfl.errors import MessageError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.randomness import stream
from mfairfl.strategies.base import Measurement, Round, Strategy, Summary
from mfairfl.training.plan import Job, Recipe
from mfairfl.wire.enrolment_answers import ModelTerms

_TASK_KEYS = (
    *("label", "favourable", "ignore", "sensitive_as_features"),
    *(*Reading.model_fields, "missing", "unknown_category"),
)
_CLIENT = "this silo"
_OF_DATA = {  # keys of a job whose values the data decide
    *("client", "plan.linear", "plan.controller.multipliers", "plan.controller.step"),
    *("plan.controller.offset", "plan.controller.counts", "plan.controller.scale"),
}
_TABLES = ("plan.loss_table", "plan.score_table")  # of prices: whether there are any is a setting
_OF_TRAINING = ("plan.epochs", "plan.batch_size", "plan.optimizer.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConsent:
    """The settings in a silo's own copy of run.toml.

    Parameters
    ----------
    source : str
        Name of the file.
    task : Task
    model : ModelTerms
    recipe, rounds
        ``[training]``.
    goal : Goal
        ``[fairness]``.
    strategy : Strategy, optional
        ``[strategy]``; None if its code is not here: then jobs need only keep to ``[training]``.
    rule : str
        The output rule.
    """

    source: str
    task: Task
    model: ModelTerms
    recipe: Recipe
    rounds: int
    goal: Goal
    strategy: Strategy | None
    rule: Rule

    def require_task(self, asked: Task) -> None:
        """Refuse a task other than the one agreed to; it may be more detailed."""
        for key in _TASK_KEYS:
            self._require(f"task.{key}", getattr(asked, key), getattr(self.task, key))
        theirs, agreed = (
            # Rows without a value may get a group of their own when all files are known.
            [(s.column, [b for b in s.bins if b.name != MISSING]) for s in task.sensitive]
            for task in (asked, self.task)
        )
        columns = [column for column, _ in theirs], [column for column, _ in agreed]
        self._require("task.sensitive", *columns)
        self._require("bins of task.sensitive", theirs, agreed)

    def require_model(self, asked: ModelTerms) -> None:
        """Refuse another model."""
        self._require("model.kind", asked.kind, self.model.kind)
        self._require("model.hidden", asked.hidden, self.model.hidden)

    def require(self, ask: Ask, attributes: Sequence[Attribute]) -> None:
        """Refuse training that the agreed method does not ask for, and decisions by other rules.

        Parameters
        ----------
        attributes : sequence of Attribute
            Of the enrolled task.
        """
        if isinstance(ask, Measure) and ask.thresholds is not None:
            self._require("output.rule", "threshold", self.rule)
        if not isinstance(ask, Train):
            return
        if ask.round >= self.rounds:
            raise MessageError(
                f"the coordinator asks for round {ask.round + 1}; agreed to: {self.rounds} rounds "
                f"({self.source})"
            )
        agreed = [_settings(job) for job in self._jobs(ask.round, tuple(attributes))]
        if len(ask.jobs) > len(agreed):
            raise MessageError(
                f"the coordinator asks for {len(ask.jobs)} jobs in a round; agreed to: "
                f"{len(agreed)} ({self.source})"
            )
        for job in ask.jobs:
            asked = _settings(job)
            differences = [list(self._different(asked, settings)) for settings in agreed]
            if all(differences):
                key, theirs, ours = min(differences, key=len)[0]
                self._require(key, theirs, ours)

    def _require(self, key: str, asked: object, agreed: object) -> None:
        if asked != agreed:
            raise MessageError(
                f"the coordinator asks for {key} = {asked!r}; agreed to: {agreed!r} "
                f"({self.source})"
            )

    def _jobs(self, round_: int, attributes: tuple[Attribute, ...]) -> list[Job]:
        """Return what the agreed method asks of a client in a round."""
        first, rate = (self.recipe.rate(at, self.rounds) for at in (0, round_))
        counts = np.full((Cells(attributes).size, 2), 100.0)
        chance = Statistics(
            counts=counts, positives=counts / 2, scores=counts / 2, losses=counts * np.log(2)
        )
        summary = Summary(counts={_CLIENT: counts}, attributes=attributes, goal=self.goal)
        this = Round(
            index=round_,
            rounds=self.rounds,
            participants=(_CLIENT,),
            plan=self.recipe.plan(round_, self.rounds),
            rng=stream(0),
            summary=summary,
            measurements=(Measurement(_CLIENT, chance),),
            decay=rate / first if first else 1.0,
        )
        if self.strategy is None:
            return this.jobs()
        return list(self.strategy.plan(self.strategy.start(summary), this)[1])

    def _different(
        self, asked: dict[str, Any], agreed: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        for key in sorted(asked.keys() | agreed.keys()):
            if self.strategy is not None or key.startswith(_OF_TRAINING):
                theirs, ours = asked.get(key), agreed.get(key)
                if theirs != ours:
                    yield key, theirs, ours


def _settings(job: Job) -> dict[str, Any]:
    """Return what a job says that no data decide, by dotted key."""
    flat = dict(_flat(asdict(replace(job, plan=replace(job.plan, linear=None)))))
    for table in _TABLES:
        flat[table] = "none" if flat[table] is None else "prices"
    return {key: value for key, value in flat.items() if key not in _OF_DATA}


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
