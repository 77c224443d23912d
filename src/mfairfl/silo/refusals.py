"""Requests that a silo refuses before any work: absurd, too large, or not as agreed.

An absurd request is refused whatever the limits are. What no `Plan` can hold (a rate below 0, a
fraction of an epoch …) is refused where plans are defined.

What was agreed is in the silo's own copy of run.toml and under [audit] of its silo.toml. What the
agreed method would ask for is found out by letting it plan the round here, with made-up counts:
its settings are compared, and not the numbers that depend on data (prices, multipliers,
corrections). This makes attacks harder but does not rule them out: weights that are made for the
purpose still pass (docs/what-leaves.md).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mfairfl.data import MISSING, Attribute, Reading, Task
from mfairfl.data.predictions import PredictionColumns
from mfairfl.engine.output import Rule
from mfairfl.engine.state import Ask, Measure, Score, Train
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.constraints import Goal
from mfairfl.silo.policy import Policy, refuse_beyond
from mfairfl.silo.silo_file import AuditConsent
from mfairfl.strategies.base import Strategy, trial_jobs
from mfairfl.training.plan import Job, Plan, Recipe
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import require
from mfairfl.wire.run_messages import Shape

_NAME = re.compile(r"[A-Za-z][\w.-]{0,59}", re.ASCII)
_RATES = {"adamw": 10.0, "sgd": 1e3, "gradient": 1e3}  # no training gets anywhere beyond
_LARGEST = 1e9  # a price, a multiplier or a pull; far below what float32 can hold
_ROUNDS = 1_000_000
_THRESHOLDS = 64  # of a cell; a fitted rule has at most three
_NOTIONS = 16

# Keys of a job: what is stored, and numbers (by cell and label, by constraint, and single ones).
_SLOTS = ("start", "keep", "keep_control", "plan.linear_slot", "plan.controller.slot")
_BY_CELL = ("plan.loss_table", "plan.score_table", "plan.controller.counts")
_BY_CONSTRAINT = tuple(f"plan.controller.{key}" for key in ("multipliers", "step", "offset"))
_SINGLE = (
    *("plan.proximal", "plan.controller.scale"),
    *(f"plan.controller.prices.{key}" for key in ("cap", "counter_cap", "shared_cap")),
)

# ------------------------------------------------------------------ absurd or too much


def refuse_excess(ask: Ask, policy: Policy, rows: int) -> None:
    """Refuse more work, models, rounds or higher prices than allowed; a job trains on `rows`."""
    limits, disclosure = policy.limits, policy.disclosure
    if isinstance(ask, Train):
        refuse_beyond(disclosure, "rounds", ask.round + 1, "rounds of training")
        refuse_beyond(limits, "jobs", len(ask.jobs), "jobs in a request")
        for job in ask.jobs:
            refuse_beyond(limits, "epochs", job.plan.epochs, "epochs in a job")
            refuse_beyond(limits, "steps", job.plan.steps(rows), "steps in a job")
            for price in _largest_prices(job.plan):
                refuse_beyond(disclosure, "price", price, "as a price")
    else:
        models = ask.weights if isinstance(ask, Measure) else (ask.weights,)
        count = sum(len(np.atleast_2d(weights)) for weights in models)
        refuse_beyond(disclosure, "models", count, "models in a request")


def _largest_prices(plan: Plan) -> Iterator[float]:
    if plan.controller is not None:
        caps = plan.controller.prices
        yield abs(plan.controller.scale) * max(caps.cap, caps.counter_cap)
    for table in (plan.loss_table, plan.score_table):
        yield from (abs(price) for pair in table or () for price in pair)


def refuse_absurd(ask: Ask, shape: Shape, attributes: Sequence[Attribute]) -> None:
    """Refuse what no honest run asks for, with the reason."""
    if isinstance(ask, Train):
        require(ask.round < _ROUNDS, f"round {ask.round}: at most {_ROUNDS:,} are trained")
        for job in ask.jobs:
            _check_job(job, shape, attributes)
    else:
        _check_question(ask, shape)


def _check_question(ask: Measure | Score, shape: Shape) -> None:
    """Check a request for measurements or scores."""
    require(len(set(ask.splits)) == len(ask.splits), f"splits {list(ask.splits)} repeat one")
    _check_slot("slot", ask.slot)
    if ask.shares is not None:
        good = (ask.shares >= 0).all() and abs(float(ask.shares.sum()) - 1) <= 1e-6
        require(good, "shares must be 0 or more and sum to 1")
    if isinstance(ask, Measure) and ask.thresholds is not None:
        cells, most = ask.thresholds.values.shape
        fits = cells in (1, shape.cells) and not ask.thresholds.clients
        require(fits, f"thresholds of {cells} cells; the task has {shape.cells}")
        require(
            most <= _THRESHOLDS, f"{most} thresholds of a cell; at most {_THRESHOLDS} are used"
        )


def _check_job(job: Job, shape: Shape, attributes: Sequence[Attribute]) -> None:
    values, optimizer, controller = _flat_job(job), job.plan.optimizer, job.plan.controller
    for key in _SLOTS:
        _check_slot(key, values.get(key))
    lr, most = optimizer.lr, _RATES[optimizer.name]
    require(lr <= most, f"optimizer.lr = {lr:g}: {optimizer.name} trains with at most {most:g}")
    shrink = lr * optimizer.weight_decay
    flips = optimizer.name == "adamw" and shrink >= 1  # as `Recipe` refuses it
    require(not flips, f"optimizer.lr · optimizer.weight_decay = {shrink:g} must stay below 1")
    lengths = dict.fromkeys(_BY_CELL, (shape.cells, "cells"))
    if controller is not None:
        _check_goal(controller.goal)
        count = len(controller.goal.constraints(attributes))
        lengths |= dict.fromkeys(_BY_CONSTRAINT, (count, "constraints"))
    for key in (*_BY_CELL, *_BY_CONSTRAINT, *_SINGLE):
        if values.get(key) is not None:
            _check_numbers(key, values[key], lengths.get(key))


def _check_numbers(key: str, value: Any, length: tuple[int, str] | None) -> None:
    """Refuse a number or a table of numbers that no plan needs, or that the task does not have."""
    numbers = np.asarray(value, dtype=float)
    if length is not None:
        count, of_what = length
        fault = f"{key} has {len(value)} entries; the task has {count} {of_what}"
        require(len(value) == count, fault)
    within = (np.abs(numbers) <= _LARGEST).all()  # nan is not, either
    require(within, f"{key} holds a number outside ±{_LARGEST:g}")
    negative = key == "plan.controller.counts" and (numbers < 0).any()
    require(not negative, f"{key} holds a negative number")


def _check_goal(goal: Goal) -> None:
    require(len(goal.notions) <= _NOTIONS, f"{len(goal.notions)} notions; at most {_NOTIONS}")
    named = goal.attributes or ()
    require(len(set(named)) == len(named), f"goal.attributes {list(named)} repeat one")


def _check_slot(name: str, slot: str | None) -> None:
    if slot is not None:
        plain = f"{name} = {slot[:60]!r} is not a plain name (letters, digits, _ . -)"
        require(_NAME.fullmatch(slot), plain)


# ------------------------------------------------------------------ other than agreed

_TASK_KEYS = (
    *("label", "favourable", "ignore", "sensitive_as_features"),
    *(*Reading.model_fields, "missing", "unknown_category"),
)
_OF_DATA = {  # keys of a job whose values the data decide
    *("client", "plan.linear", *_BY_CONSTRAINT),
    *("plan.controller.counts", "plan.controller.scale", "plan.controller.goal.dead_zone"),
}
_TABLES = ("plan.loss_table", "plan.score_table")  # of prices: whether there are any is a setting
_OF_TRAINING = ("plan.epochs", "plan.batch_size", "plan.optimizer.")
_ASKS = "the coordinator asks for"


def _require_agreed(key: str, asked: object, agreed: object, source: str) -> None:
    shown = "none" if agreed is None else repr(agreed)
    wanted = f"{_ASKS} {key} = {asked!r}"
    require(asked == agreed, f"{wanted}; agreed to: {shown} ({source})")


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
    by_group: bool = False

    def require_task(self, asked: Task) -> None:
        """Refuse a task other than the one agreed to; it may be more detailed."""
        for key in _TASK_KEYS:
            self._require_agreed(f"task.{key}", getattr(asked, key), getattr(self.task, key))
        theirs, agreed = (
            # Rows without a value may get a group of their own when all files are known.
            [(s.column, [b for b in s.bins if b.name != MISSING]) for s in task.sensitive]
            for task in (asked, self.task)
        )
        named, columns = ([column for column, _ in bins] for bins in (theirs, agreed))
        self._require_agreed("task.sensitive", named, columns)
        self._require_agreed("bins of task.sensitive", theirs, agreed)

    def require_model(self, asked: ModelTerms) -> None:
        """Refuse another model."""
        for key in ("kind", "hidden"):
            self._require_agreed(f"model.{key}", getattr(asked, key), getattr(self.model, key))

    def require(self, ask: Ask, attributes: Sequence[Attribute]) -> None:
        """Refuse training that the agreed method does not ask for, and decisions by other rules.

        Parameters
        ----------
        attributes : sequence of Attribute
            Of the enrolled task.
        """
        if isinstance(ask, Measure) and ask.thresholds is not None:
            self._require_agreed("output.rule", "thresholds", self.rule)
            if ask.thresholds.reads_group and not self.by_group:
                require(False, f"{_ASKS} thresholds by group; agreed to: none ({self.source})")
        if not isinstance(ask, Train):
            return
        asked, limit = f"round {ask.round + 1}", f"{self.rounds} rounds"
        require(ask.round < self.rounds, f"{_ASKS} {asked}; agreed to: {limit} ({self.source})")
        agreed = [self._settings(job) for job in self._jobs(ask.round, tuple(attributes))]
        asked, limit = f"{len(ask.jobs)} jobs in a round", f"{len(agreed)} ({self.source})"
        require(len(ask.jobs) <= len(agreed), f"{_ASKS} {asked}; agreed to: {limit}")
        for job in ask.jobs:
            settings = self._settings(job)
            nearest = min(agreed, key=lambda others: len(_different(settings, others)))
            for key in _different(settings, nearest):
                self._require_agreed(key, settings.get(key), nearest.get(key))

    def _require_agreed(self, key: str, asked: object, agreed: object) -> None:
        _require_agreed(key, asked, agreed, self.source)

    def _jobs(self, round_: int, attributes: tuple[Attribute, ...]) -> list[Job]:
        """Return what the agreed method asks of a client in a round."""
        if self.strategy is None:
            return [Job(client="", plan=self.recipe.plan(round_, self.rounds))]
        return trial_jobs(
            self.strategy, self.recipe, attributes, self.goal, index=round_, rounds=self.rounds
        )

    def _settings(self, job: Job) -> dict[str, Any]:
        """Return the settings of a job that were agreed on, by dotted key."""
        flat = _flat_job(job)
        for table in _TABLES:
            flat[table] = "none" if flat[table] is None else "prices"
        compared = ("",) if self.strategy is not None else _OF_TRAINING
        return {k: v for k, v in flat.items() if k not in _OF_DATA and k.startswith(compared)}


def _flat_job(job: Job) -> dict[str, Any]:
    """Return what a job states by dotted key, without the linear correction."""
    return dict(_flat(asdict(replace(job, plan=replace(job.plan, linear=None)))))


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
    no_clients = "an audit over silos has no column of clients: a silo is one client"
    require(asked.client is None, no_clients)
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
    why = "models = true under [audit] of its silo.toml would allow it"
    require(consent.models, f"it applies no model that it is sent ({why})")
    _require_stated("label", task.label, consent.label)
    if consent.favourable is not None:
        _require_stated("favourable", task.favourable, consent.favourable)
    _require_sensitive(consent, tuple(s.column for s in task.sensitive if s.name in audited))


def _require_sensitive(consent: AuditConsent, asked: tuple[str, ...]) -> None:
    agreed = f"{', '.join(consent.sensitive)} (sensitive under [audit] of its silo.toml)"
    for column in asked:
        wanted = f"{_ASKS} sensitive = '{column}'"
        require(column in consent.sensitive, f"{wanted}; agreed to: {agreed}")


def _require_stated(key: str, asked: object, stated: object) -> None:
    _require_agreed(key, asked, stated, f"{key} under [audit] of its silo.toml")
