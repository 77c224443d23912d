"""The client's half of a job, whoever carries the messages: what it starts from, what it keeps.

Slots are what a client holds between rounds under a name: Ditto's own model, SCAFFOLD's control
variate, local multipliers. They never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.randomness import stream
from mfairfl.training.controller import Multipliers
from mfairfl.training.plan import GLOBAL, Job, Plan, Report
from mfairfl.training.trainer import Outcome, Work


def batch_stream(seed: int, round_: int, job: Job) -> np.random.Generator:
    """Return the stream that orders a job's rows."""
    # Two jobs of one client in one round (Ditto) need streams of their own.
    return stream(seed, "batches", round_, job.client, job.keep or "")


def work_of(
    job: Job,
    *,
    server: np.ndarray,
    slots: Mapping[str, np.ndarray],
    rows: range,
    attributes: Sequence[Attribute],
    rng: np.random.Generator,
) -> Work:
    """Make a job concrete: fill in the server's weights, the client's slots and rows."""
    plan = job.plan
    start = server if job.start == GLOBAL else slots.get(job.start, server)
    linear = plan.linear
    if plan.linear_slot is not None:
        held = slots.get(plan.linear_slot, np.zeros_like(start))
        linear = -held if linear is None else linear - held
    moving = None
    if plan.controller is not None:
        key = plan.controller.slot
        kept = None if key is None else slots.get(key)
        moving = Multipliers(plan.controller, tuple(attributes), rows, kept)
    return Work(
        plan=plan,
        start=start,
        rows=rows,
        rng=rng,
        centre=server,
        linear=linear,
        multipliers=moving,
    )


def finish(
    job: Job, work: Work, outcome: Outcome, slots: MutableMapping[str, np.ndarray]
) -> Report:
    """Store what the client keeps; return what it says."""
    plan, change = job.plan, None
    if job.keep is not None:
        slots[job.keep] = work.start - outcome.update
    if job.keep_control is not None:
        change = _control_change(plan, outcome)
        held = slots.get(job.keep_control, np.zeros_like(change))
        slots[job.keep_control] = held + change
    kept = None if plan.controller is None else plan.controller.slot
    if kept is not None and outcome.memory is not None:
        slots[kept] = outcome.memory
    return Report(
        client=job.client,
        update=outcome.update,
        steps=outcome.steps,
        lr=plan.optimizer.lr,
        # What a client keeps to itself the server does not see.
        multipliers=() if kept else outcome.multipliers,
        gaps=() if kept else outcome.gaps,
        control_change=change,
    )


def _control_change(plan: Plan, outcome: Outcome) -> np.ndarray:
    """Return c_k⁺ − c_k = (w_t − w_k)/(steps·lr) − c (`strategies/scaffold.py`)."""
    if plan.optimizer.lr <= 0:
        raise ConfigError(
            "training.lr_final = 0: a control variate divides by the rate; give a rate > 0"
        )
    drift = outcome.update / np.float32(outcome.steps * plan.optimizer.lr)
    return np.asarray(drift if plan.linear is None else drift - plan.linear)
