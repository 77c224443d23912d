"""A plan as one of Flower's records: all that a client written by others has to carry out."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Message
from pydantic import TypeAdapter, ValidationError

from mfairfl.errors import ConfigError, MessageError, first_problem
from mfairfl.training.plan import GLOBAL, Job, Plan, Table2

__all__ = ["PLAN", "plan_record", "read_plan"]

PLAN = "plan"
"""The name of the record in a training message."""

_NUMBERS = {"epochs": "epochs", "batch_size": "batch-size", "proximal": "proximal"}
_OPTIMIZER = {
    "name": "optimizer",
    "lr": "lr",
    "weight_decay": "weight-decay",
    "momentum": "momentum",
}
_TABLES = {"loss_table": "loss-table", "score_table": "score-table"}


def plan_record(job: Job) -> ConfigRecord:
    """Return a job's plan as plain values; a job that says more than they can is refused.

    Tables are lists (cell 0 label 0, cell 0 label 1, cell 1 label 0, …), absent where all rows
    count alike.

    Examples
    --------
    >>> table = ((0.5, 1.5), (1.0, 1.0))
    >>> record = plan_record(Job(client="a", plan=Plan(epochs=1, batch_size=32, loss_table=table)))
    >>> record["epochs"], record["optimizer"], record["loss-table"]
    (1, 'adamw', [0.5, 1.5, 1.0, 1.0])
    """
    if obstacle := _obstacle(job):
        raise ConfigError(obstacle)
    plan = job.plan
    values: dict[str, Any] = {key: getattr(plan, name) for name, key in _NUMBERS.items()}
    values |= {key: getattr(plan.optimizer, name) for name, key in _OPTIMIZER.items()}
    for name, key in _TABLES.items():
        table: Table2 | None = getattr(plan, name)
        if table is not None:
            values[key] = [float(number) for pair in table for number in pair]
    return ConfigRecord(values)


def read_plan(message: Message) -> Plan:
    """Return what a `FairStrategy` asks this client to do in this round.

    Read from it `epochs`, `batch_size` and `optimizer` (`name`, `lr`, `weight_decay`,
    `momentum`); `fair_loss` reads the tables and `proximal_term` the pull. The round is
    ``message.content["config"]["server-round"]``.
    """
    record = message.content.config_records.get(PLAN)
    if record is None:
        raise MessageError(
            "the message has no plan: only training messages of a FairStrategy have one"
        )
    try:
        plain: dict[str, Any] = {name: record[key] for name, key in _NUMBERS.items()}
        plain["optimizer"] = {name: record[key] for name, key in _OPTIMIZER.items()}
    except KeyError as error:
        raise MessageError(f"the plan lacks {error}; server and client must be alike") from None
    for name, key in _TABLES.items():
        if key in record:
            plain[name] = _pairs(key, record[key])
    try:
        return TypeAdapter(Plan).validate_python(plain)
    except ValidationError as error:
        raise MessageError(f"the plan: {first_problem(error)}") from None


def _pairs(key: str, numbers: Any) -> Table2:
    if not isinstance(numbers, list) or len(numbers) % 2:
        raise MessageError(f"the plan: {key} is no list of pairs, one for each cell")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _obstacle(job: Job) -> str:
    """Say what of a job only mfairfl's own clients can do; empty if there is nothing."""
    plan, slot = job.plan, None if job.plan.controller is None else job.plan.controller.slot
    held = (job.keep, job.keep_control, plan.linear_slot, slot)
    if job.start != GLOBAL or plan.linear is not None or any(name is not None for name in held):
        return "clients must keep something between rounds"
    if plan.controller is not None:
        return "multipliers move inside a round"
    if plan.optimizer.name == "gradient":
        return "clients send full-batch gradients, not weights"
    return ""
