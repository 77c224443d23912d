"""Requests that a silo refuses before any work: absurd ones, too large ones, and too many.

An absurd request is refused whatever the limits are. What no `Plan` can hold (a rate below 0, a
fraction of an epoch …) is refused where plans are defined. Runs and requests are counted on the
silo's own disk, in a folder per run: the count outlives the process, and goes with the folder.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from mfairfl.data import Attribute
from mfairfl.data.values import StrictModel
from mfairfl.engine.state import Ask, Measure, Score, Train
from mfairfl.errors import ConfigError, MessageError
from mfairfl.files import make_private_folder, write_atomically
from mfairfl.silo.policy import DISCLOSED, Policy, refuse_beyond
from mfairfl.training.plan import Controller, Job, Optimizer, Plan, Table2
from mfairfl.wire.run_messages import Shape

_NAME = re.compile(r"[A-Za-z][\w.-]{0,59}", re.ASCII)
_RATES = {"adamw": 10.0, "sgd": 1e3, "gradient": 1e3}  # no training gets anywhere beyond
_LARGEST = 1e9  # a price, a multiplier or a pull; far below what float32 can hold
_ROUNDS = 1_000_000
_THRESHOLDS = 64  # of a cell; a fitted rule has at most three
_NOTIONS = 16

_COUNT = "requests.json"
_RUNS = "runs.txt"
_DAY = 24 * 60 * 60
_MEGABYTE = 10**6


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
        _require(ask.round < _ROUNDS, f"round {ask.round}: at most {_ROUNDS:,} are trained")
        for job in ask.jobs:
            _check_job(job, shape, attributes)
    else:
        _check_question(ask, shape)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MessageError(otherwise)


def _check_question(ask: Measure | Score, shape: Shape) -> None:
    """Look at a request for measurements or scores."""
    _require(len(set(ask.splits)) == len(ask.splits), f"splits {list(ask.splits)} repeat one")
    _check_slot("slot", ask.slot)
    if ask.shares is not None:
        good = (ask.shares >= 0).all() and abs(float(ask.shares.sum()) - 1) <= 1e-6
        _require(bool(good), "shares must be 0 or more and sum to 1")
    if isinstance(ask, Measure) and ask.thresholds is not None:
        cells, most = ask.thresholds.values.shape
        _require(cells == shape.cells, f"thresholds of {cells} cells; the task has {shape.cells}")
        _require(
            most <= _THRESHOLDS, f"{most} thresholds of a cell; at most {_THRESHOLDS} are used"
        )


def _check_job(job: Job, shape: Shape, attributes: Sequence[Attribute]) -> None:
    plan = job.plan
    for name in ("start", "keep", "keep_control"):
        _check_slot(name, getattr(job, name))
    _check_slot("plan.linear_slot", plan.linear_slot)
    _check_rate(plan.optimizer)
    _check_numbers("plan.proximal", [plan.proximal])
    _check_table("plan.loss_table", plan.loss_table, shape)
    _check_table("plan.score_table", plan.score_table, shape)
    if plan.controller is not None:
        _check_controller(plan.controller, shape, attributes)


def _check_rate(optimizer: Optimizer) -> None:
    lr, most = optimizer.lr, _RATES[optimizer.name]
    _require(lr <= most, f"optimizer.lr = {lr:g}: {optimizer.name} trains with at most {most:g}")
    shrink = lr * optimizer.weight_decay
    flips = optimizer.name == "adamw" and shrink >= 1  # as `Recipe` refuses it
    _require(not flips, f"optimizer.lr · optimizer.weight_decay = {shrink:g} must stay below 1")


def _check_controller(
    controller: Controller, shape: Shape, attributes: Sequence[Attribute]
) -> None:
    goal = controller.goal
    _require(len(goal.notions) <= _NOTIONS, f"{len(goal.notions)} notions; at most {_NOTIONS}")
    named = goal.attributes or ()
    _require(len(set(named)) == len(named), f"goal.attributes {list(named)} repeat one")
    count = len(goal.constraints(attributes))
    for name in ("multipliers", "step", "offset"):
        values = getattr(controller, name)
        if values is not None:
            _require(
                len(values) == count,
                f"controller.{name}: {len(values)} numbers for {count} constraints",
            )
            _check_numbers(f"controller.{name}", values)
    _check_table("controller.counts", controller.counts, shape)
    negative = any(n < 0 for pair in controller.counts or () for n in pair)
    _require(not negative, "controller.counts hold a negative number")
    for name in ("cap", "counter_cap"):
        _check_numbers(f"controller.prices.{name}", [getattr(controller.prices, name)])
    _check_numbers("controller.scale", [controller.scale])
    _check_slot("controller.slot", controller.slot)


def _check_table(name: str, table: Table2 | None, shape: Shape) -> None:
    if table is not None:
        _require(
            len(table) == shape.cells, f"{name} has {len(table)} cells; the task has {shape.cells}"
        )
        _check_numbers(name, [number for pair in table for number in pair])


def _check_numbers(name: str, values: Iterable[float]) -> None:
    for value in values:
        good = math.isfinite(value) and abs(value) <= _LARGEST
        _require(good, f"{name} holds {value:g}; use numbers within ±{_LARGEST:g}")


def _check_slot(name: str, slot: str | None) -> None:
    if slot is not None and not _NAME.fullmatch(slot):
        raise MessageError(f"{name} = {slot[:60]!r} is not a plain name (letters, digits, _ . -)")


# ------------------------------------------------------------------ runs, requests and the disk


class _Count(StrictModel):
    """When a run began here, and how many requests it has made."""

    began: float
    requests: int = Field(ge=0)


class Usage:
    """Counts what is done within a state folder, and refuses what is beyond the limits.

    Parameters
    ----------
    state : Path
        The silo's state folder.
    policy : Policy
        Its limits.
    now : callable
        Returns the time, in seconds since 1970.
    """

    def __init__(self, state: Path, policy: Policy, now: Callable[[], float] = time.time) -> None:
        self._state, self._policy, self._now = state, policy, now
        self._limits = policy.limits

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Let one request at a time pass, whatever process answers it."""
        make_private_folder(self._state)
        try:
            with FileLock(self._state / ".request.lock", timeout=self._limits.seconds, mode=0o600):
                yield
        except Timeout:
            raise MessageError("this silo is still busy with another request") from None

    def count(self, run: str) -> None:
        """Count a request of a run, unless it is one too many, or its run is."""
        count = _read(self._state / run / _COUNT)
        if count is None:
            today = 1 + sum(self._began_today(path) for path in self._state.glob(f"*/{_COUNT}"))
            refuse_beyond(self._limits, "runs_a_day", today, "runs within 24 hours")
            self._count_run(run)
            count = _Count(began=self._now(), requests=0)
        counted = count.model_copy(update={"requests": count.requests + 1})
        refuse_beyond(self._limits, "requests", counted.requests, "requests in a run")
        make_private_folder(self._state / run)
        write_atomically(self._state / run / _COUNT, counted.model_dump_json().encode())

    def _count_run(self, run: str) -> None:
        """Count a run for good: also if its folder is deleted later."""
        folder = make_private_folder(self._state / DISCLOSED)
        path = folder / _RUNS
        runs = path.read_text(encoding="utf-8").split() if path.exists() else []
        if run not in runs:
            disclosure = self._policy.disclosure
            refuse_beyond(disclosure, "runs", len(runs) + 1, "runs and audits in all")
            write_atomically(path, "\n".join([*runs, run]).encode(), private=True)

    def require_room(self, size: int) -> None:
        """Refuse to store so many bytes if the state folder would hold too much."""
        used = sum(map(_bytes, self._state.rglob("*"))) + size
        refuse_beyond(
            self._limits, "megabytes", -(-used // _MEGABYTE), "megabytes in the state folder"
        )

    def _began_today(self, path: Path) -> bool:
        count = _read(path)
        return count is not None and count.began > self._now() - _DAY


def _read(path: Path) -> _Count | None:
    try:
        return _Count.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        where = f"{path.parent.name}/{path.name} in the state folder"
        raise ConfigError(f"{where} is damaged; delete it to count its run as new") from None


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # Flower's own files in the folder come and go
        return 0
