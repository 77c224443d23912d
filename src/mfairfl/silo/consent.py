"""What a silo agreed to, in its own copy of run.toml and under [audit] of its silo.toml.

A request for another task, model, training or method, or for other columns of an audit, is
refused in one line. What the agreed method would ask for is found out by letting it plan the round
here, with made-up counts: its settings are compared, and not the numbers that depend on data
(prices, multipliers, corrections).

This makes attacks harder but does not rule them out: weights that are made for the purpose still
pass (docs/what-leaves.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mfairfl.data import MISSING, Attribute, Reading, Task
from mfairfl.data.predictions import PredictionColumns
from mfairfl.engine.output import Rule
from mfairfl.engine.state import Ask, Measure, Train
from mfairfl.errors import MessageError
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.randomness import stream
from mfairfl.silo.silo_file import AuditConsent
from mfairfl.strategies.base import Measurement, Round, Strategy, Summary
from mfairfl.training.plan import Job, Recipe
from mfairfl.wire.enrolment_messages import ModelTerms

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
    """Return the settings of a job that do not depend on data, by dotted key."""
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


# ------------------------------------------------------------------ audits


def require_columns_agreed(consent: AuditConsent, asked: PredictionColumns) -> PredictionColumns:
    """Refuse a request for other columns than the silo agreed to; return how to read its file."""
    for key in ("label", "prediction", "score"):
        wanted, named = getattr(asked, key), getattr(consent, key)
        if wanted is not None and wanted != named:
            raise _refusal(key, wanted, named)
    if asked.client is not None:
        raise MessageError("an audit over silos has no column of clients: a silo is one client")
    _require_sensitive(consent, asked.sensitive)
    values = {}
    for key in ("favourable", "selected"):
        wanted, named = getattr(asked, key), getattr(consent, key)
        if wanted is not None and named is not None and wanted != named:
            raise _refusal(key, wanted, named)
        values[key] = named if wanted is None else wanted
    return asked.model_copy(update=values)


def require_scores_agreed(
    consent: AuditConsent, threshold: float | None, grid: ScoreGrid | None
) -> None:
    """Refuse to decide by another threshold, or to count scores between other limits."""
    if threshold is not None and threshold != consent.threshold:
        agreed = None if consent.threshold is None else f"{consent.threshold:g}"
        raise _refusal("threshold", f"{threshold:g}", agreed)
    if grid is not None and (grid.lowest, grid.highest) != consent.score_range:
        lowest, highest = consent.score_range
        agreed = f"{lowest:g} to {highest:g}"
        raise _refusal("score_range", f"{grid.lowest:g} to {grid.highest:g}", agreed)


def require_model_agreed(consent: AuditConsent, task: Task, audited: tuple[str, ...]) -> None:
    """Refuse to apply a model unless the silo agreed to that, and to the columns it is about."""
    if not consent.models:
        raise MessageError(
            "it applies no model that it is sent (models = true under [audit] of its silo.toml "
            "would allow it)"
        )
    if task.label != consent.label:
        raise _refusal("label", task.label, consent.label)
    if consent.favourable is not None and task.favourable != consent.favourable:
        raise _refusal("favourable", task.favourable, consent.favourable)
    _require_sensitive(consent, tuple(s.column for s in task.sensitive if s.name in audited))


def _require_sensitive(consent: AuditConsent, asked: tuple[str, ...]) -> None:
    for column in asked:
        if column not in consent.sensitive:
            raise MessageError(
                f"the audit asks for sensitive = '{column}'; agreed to: "
                f"{', '.join(consent.sensitive)} (sensitive under [audit] of its silo.toml)"
            )


def _refusal(key: str, asked: str, agreed: str | None) -> MessageError:
    shown = "none" if agreed is None else f"'{agreed}'"
    return MessageError(
        f"the audit asks for {key} = '{asked}'; agreed to: {shown} ({key} under [audit] of its "
        "silo.toml)"
    )
