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

from mfairfl.data import MISSING, Attribute, Reading, Task
from mfairfl.data.predictions import PredictionColumns
from mfairfl.engine.output import Rule
from mfairfl.engine.state import Ask, Measure, Train
from mfairfl.errors import MessageError
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.constraints import Goal
from mfairfl.silo.silo_file import AuditConsent
from mfairfl.strategies.base import Strategy, trial_jobs
from mfairfl.training.plan import Job, Recipe
from mfairfl.wire.enrolment_messages import ModelTerms

_TASK_KEYS = (
    *("label", "favourable", "ignore", "sensitive_as_features"),
    *(*Reading.model_fields, "missing", "unknown_category"),
)
_OF_DATA = {  # keys of a job whose values the data decide
    *("client", "plan.linear", "plan.controller.multipliers", "plan.controller.step"),
    *("plan.controller.offset", "plan.controller.counts", "plan.controller.scale"),
}
_TABLES = ("plan.loss_table", "plan.score_table")  # of prices: whether there are any is a setting
_OF_TRAINING = ("plan.epochs", "plan.batch_size", "plan.optimizer.")


def _require(key: str, asked: object, agreed: object, source: str) -> None:
    if asked != agreed:
        shown = "none" if agreed is None else repr(agreed)
        raise MessageError(
            f"the coordinator asks for {key} = {asked!r}; agreed to: {shown} ({source})"
        )


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
            _require(f"task.{key}", getattr(asked, key), getattr(self.task, key), self.source)
        theirs, agreed = (
            # Rows without a value may get a group of their own when all files are known.
            [(s.column, [b for b in s.bins if b.name != MISSING]) for s in task.sensitive]
            for task in (asked, self.task)
        )
        named, columns = ([column for column, _ in bins] for bins in (theirs, agreed))
        _require("task.sensitive", named, columns, self.source)
        _require("bins of task.sensitive", theirs, agreed, self.source)

    def require_model(self, asked: ModelTerms) -> None:
        """Refuse another model."""
        for key in ("kind", "hidden"):
            _require(f"model.{key}", getattr(asked, key), getattr(self.model, key), self.source)

    def require(self, ask: Ask, attributes: Sequence[Attribute]) -> None:
        """Refuse training that the agreed method does not ask for, and decisions by other rules.

        Parameters
        ----------
        attributes : sequence of Attribute
            Of the enrolled task.
        """
        if isinstance(ask, Measure) and ask.thresholds is not None:
            _require("output.rule", "threshold", self.rule, self.source)
        if not isinstance(ask, Train):
            return
        if ask.round >= self.rounds:
            raise MessageError(
                f"the coordinator asks for round {ask.round + 1}; agreed to: {self.rounds} rounds "
                f"({self.source})"
            )
        agreed = [self._settings(job) for job in self._jobs(ask.round, tuple(attributes))]
        if len(ask.jobs) > len(agreed):
            raise MessageError(
                f"the coordinator asks for {len(ask.jobs)} jobs in a round; agreed to: "
                f"{len(agreed)} ({self.source})"
            )
        for job in ask.jobs:
            asked = self._settings(job)
            nearest = min(agreed, key=lambda settings: len(_different(asked, settings)))
            for key in _different(asked, nearest):
                _require(key, asked.get(key), nearest.get(key), self.source)

    def _jobs(self, round_: int, attributes: tuple[Attribute, ...]) -> list[Job]:
        """Return what the agreed method asks of a client in a round."""
        if self.strategy is None:
            return [Job(client="", plan=self.recipe.plan(round_, self.rounds))]
        return trial_jobs(
            self.strategy, self.recipe, attributes, self.goal, index=round_, rounds=self.rounds
        )

    def _settings(self, job: Job) -> dict[str, Any]:
        """Return the settings of a job that were agreed on, by dotted key."""
        flat = dict(_flat(asdict(replace(job, plan=replace(job.plan, linear=None)))))
        for table in _TABLES:
            flat[table] = "none" if flat[table] is None else "prices"
        compared = ("",) if self.strategy is not None else _OF_TRAINING
        return {k: v for k, v in flat.items() if k not in _OF_DATA and k.startswith(compared)}


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _different(asked: dict[str, Any], agreed: dict[str, Any]) -> list[str]:
    """Return the keys of settings that differ."""
    return sorted(key for key in asked | agreed if asked.get(key) != agreed.get(key))


# ------------------------------------------------------------------ audits


def require_columns_agreed(
    consent: AuditConsent, asked: PredictionColumns, grid: ScoreGrid | None = None
) -> PredictionColumns:
    """Refuse other columns, another threshold or range than agreed; return how to read the file.

    Parameters
    ----------
    grid : ScoreGrid, optional
        Where scores are counted.
    """
    if asked.client is not None:
        raise MessageError("an audit over silos has no column of clients: a silo is one client")
    _require_sensitive(consent, asked.sensitive)
    for key in ("label", "prediction", "score", "threshold", "favourable", "selected"):
        wanted, stated = getattr(asked, key), getattr(consent, key)
        # How a file writes its good values is a help to read it: it need not be stated.
        if wanted is not None and (stated is not None or key not in ("favourable", "selected")):
            _require_stated(key, wanted, stated)
    if grid is not None:
        _require_stated("score_range", (grid.lowest, grid.highest), consent.score_range)
    return asked.model_copy(
        update={
            "favourable": asked.favourable or consent.favourable,
            "selected": asked.selected or consent.selected,
        }
    )


def require_model_agreed(consent: AuditConsent, task: Task, audited: tuple[str, ...]) -> None:
    """Refuse to apply a model unless the silo agreed to that, and to the columns it is about."""
    if not consent.models:
        raise MessageError(
            "it applies no model that it is sent (models = true under [audit] of its silo.toml "
            "would allow it)"
        )
    _require_stated("label", task.label, consent.label)
    if consent.favourable is not None:
        _require_stated("favourable", task.favourable, consent.favourable)
    _require_sensitive(consent, tuple(s.column for s in task.sensitive if s.name in audited))


def _require_sensitive(consent: AuditConsent, asked: tuple[str, ...]) -> None:
    for column in asked:
        if column not in consent.sensitive:
            raise MessageError(
                f"the coordinator asks for sensitive = '{column}'; agreed to: "
                f"{', '.join(consent.sensitive)} (sensitive under [audit] of its silo.toml)"
            )


def _require_stated(key: str, asked: object, stated: object) -> None:
    _require(key, asked, stated, f"{key} under [audit] of its silo.toml")
