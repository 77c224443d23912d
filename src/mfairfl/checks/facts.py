"""What was made of each column: role, type, missing values, values, an example."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from mfairfl.data import MISSING, Table, Task
from mfairfl.data.columns import Column
from mfairfl.data.values import Reading

Role = Literal["label", "client", "sensitive", "feature", "ignored"]
_DATE = re.compile(r"\d{4}[-/.]\d\d?[-/.]\d\d?([T ].*)?|\d\d?[-/.]\d\d?[-/.]\d{4}([T ].*)?")
_MOST_LEVELS = 0.5  # of the rows: more distinct texts are names
_LOOKED_AT = 100  # texts that show whether a column holds dates


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """What was made of one column.

    Parameters
    ----------
    type : str
        ``number``, ``category``, ``date``, or ``text``: hardly a value occurs twice.
    distinct : int
        Different values.
    low, high : float, optional
        Ends of a range of numbers.
    example : str
        The first value.
    """

    name: str
    role: Role
    type: Literal["number", "category", "date", "text"]
    missing: int
    distinct: int
    low: float | None
    high: float | None
    example: str

    @property
    def extent(self) -> str:
        """The range of numbers, or how many values there are."""
        if self.low is not None and self.high is not None:
            ends = [_plain(self.low), _plain(self.high)]
            return " to ".join(dict.fromkeys(ends))
        kind = {"category": "level", "text": "text", "date": "date", "number": "number"}[self.type]
        return f"{self.distinct:,} {kind}{'s' * (self.distinct != 1)}"


def _plain(number: float) -> str:
    """Write whole numbers in full, unless they are huge, and others with six digits."""
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e12 else f"{number:.6g}"


def column_facts(
    frame: pd.DataFrame, task: Task, name: str = "frame", reading: Reading | None = None
) -> list[ColumnFacts]:
    """Say what a task makes of each column of a frame; `reading` overrides how it reads cells.

    Examples
    --------
    >>> people = pd.DataFrame({"age": [31, 45, None], "sex": ["f", "m", "f"], "hired": [1, 0, 0]})
    >>> task = Task(label="hired", favourable=1, sensitive=("sex",))
    >>> for one in column_facts(people, task):
    ...     print(one.name, one.role, one.type, one.missing, one.extent, one.example)
    age feature number 1 31 to 45 31
    sex sensitive category 0 2 levels f
    hired label category 0 2 levels 1
    """
    # One column after the other: what is found out about one is not kept.
    rules = task.read_as(reading).rules
    return [_facts(Column(name, frame[c], rules(str(c))), task) for c in frame.columns]


def frame_of(table: Table) -> pd.DataFrame:
    """Return a table's columns as a frame, for data of which there is no file."""
    task = table.task
    extra: dict[str, object] = {}
    for i, sensitive in enumerate(task.sensitive):
        if sensitive.column not in table.X.columns:
            extra[sensitive.column] = np.array(table.attributes[i].groups)[table.groups[:, i]]
    if task.client is not None:
        extra[task.client] = table.clients
    extra[task.label] = np.array([task.unfavourable, task.favourable])[table.y]
    return pd.concat([table.X, pd.DataFrame(extra)], axis=1)


def _facts(column: Column, task: Task) -> ColumnFacts:
    gaps, distinct = column.missing, len(column.levels)
    texts = [column.text(row) for row in np.flatnonzero(~gaps)[:_LOOKED_AT].tolist()]
    kind = _type(column, task, texts, distinct)
    missing, low, high = int(gaps.sum()), None, None
    if kind == "number":
        numbers = column.numbers[~np.isnan(column.numbers)]
        missing = len(column.numbers) - len(numbers)
        if len(numbers):
            low, high = float(numbers.min()), float(numbers.max())
    return ColumnFacts(
        name=column.name,
        role=_role(column.name, task),
        type=kind,
        missing=missing,
        distinct=distinct,
        low=low,
        high=high,
        example=texts[0] if texts else MISSING,
    )


def _role(name: str, task: Task) -> Role:
    if name == task.label:
        return "label"
    if name == task.client:
        return "client"
    if name in {sensitive.column for sensitive in task.sensitive}:
        return "sensitive"
    if name in task.ignore:
        return "ignored"
    known = task.numeric is not None and task.categorical is not None
    features = (*(task.numeric or ()), *(task.categorical or ()))
    return "ignored" if known and name not in features else "feature"


def _type(
    column: Column, task: Task, texts: Sequence[str], distinct: int
) -> Literal["number", "category", "date", "text"]:
    name = column.name
    binned = {s.column for s in task.sensitive if s.bins}
    groups = {s.column for s in task.sensitive} - binned
    if name in {task.label, task.client, *(task.categorical or ()), *groups}:
        return "category"
    dates = texts and all(_DATE.fullmatch(text) for text in texts)
    if column.rules.date is not None or dates:
        return "date"
    if column.recognised is not None:
        return "number"
    values = sum(column.levels.values())
    return "text" if distinct > max(_MOST_LEVELS * values, 10) else "category"
