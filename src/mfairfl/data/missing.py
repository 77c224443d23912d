"""Missing values: which rows are left out, what is filled, and what that does to a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mfairfl.data.columns import Column, Columns, group_gaps
from mfairfl.data.labels import label_codes
from mfairfl.data.task import Sensitive, Task
from mfairfl.data.values import MISSING
from mfairfl.errors import DataError

Gap = tuple[Column, npt.NDArray[np.bool_]]
"""A column, and which of its rows have no value."""

MANY_ROWS = 0.05
"""Leaving out a larger share of rows is a warning."""
MOVED_RATE = 0.01
"""So is moving the share of favourable labels by more."""
_MOST_SHOWN = 10  # groups that a warning counts


class WithoutGaps(NamedTuple):
    """Columns after missing values were dealt with, and what was done.

    Parameters
    ----------
    task : Task
        It has the group ``?`` where a sensitive value is missing.
    dropped, filled : tuple of str
        Lines about rows that were left out, and about values that were filled in.
    twisted : bool
        Whether leaving out rows changed the table enough to warn of it.
    kept : ndarray of bool, optional
        Which rows are left; None if all are.
    """

    columns: Columns
    task: Task
    dropped: tuple[str, ...]
    filled: tuple[str, ...]
    twisted: bool = False
    kept: npt.NDArray[np.bool_] | None = None


def without_missing(columns: Columns, task: Task, name: str, *, partial: bool) -> WithoutGaps:
    """Leave out rows without a label or a client, and do with other gaps as the policy says.

    A feature without any value is refused, unless the table is one of several (`partial`).
    """
    keys = [(columns[c], columns[c].missing) for c in (task.label, task.client) if c is not None]
    groups = [(columns[s.column], group_gaps(columns[s.column], s)) for s in task.sensitive]
    features = feature_gaps(columns, task)
    for column, gap in features:
        if gap.all() and not partial:
            raise DataError(f"{name}: column '{column.name}' has no value: list it in ignore")
    policies = {c.name: task.policy(c.name) for c, _ in [*keys, *groups, *features]}
    refuse_missing(
        [gap for gap in [*keys, *groups, *features] if policies[gap[0].name] == "error"],
        "fill it in, or set missing='level' or 'drop'",
    )
    dropped = [g for g in [*groups, *features] if policies[g[0].name] == "drop"]
    sensitive = tuple(
        _with_unrecorded(s, gap) if policies[s.column] == "level" else s
        for s, gap in zip(task.sensitive, groups, strict=True)
    )
    task = task.model_copy(update={"sensitive": sensitive})
    filled = tuple(
        f"{name}: column '{c.name}': {g.sum()} of {len(g)} values missing, "
        + ("filled with the mean and marked" if c.name in (task.numeric or ()) else
           f"kept as the level '{MISSING}'")
        for c, g in features
        if g.any() and policies[c.name] == "level"
    )  # fmt: skip
    gaps = [gap for gap in [*keys, *dropped] if gap[1].any()]
    if not gaps:
        return WithoutGaps(columns, task, (), filled)
    lost = np.any([gap for _, gap in gaps], axis=0)
    counts = ", ".join(f"{c.name} {g.sum()}" for c, g in gaps)
    if lost.all():
        raise DataError(
            f"{name}: every row has a missing value where none may be ({counts}): use "
            "missing='level', or choose other columns"
        )
    said = f"{name}: {lost.sum()} of {len(lost)} rows left out, missing values ({counts})"
    kept = {c: column.take(~lost) for c, column in columns.items()}
    twist = _twist(columns, task, lost)
    line = f"{said}; {twist}" if twist else said
    return WithoutGaps(kept, task, (line,), filled, bool(twist), ~lost)


def _with_unrecorded(sensitive: Sensitive, gap: Gap) -> Sensitive:
    """Add the group ``?`` if a value is missing."""
    column, missing = gap
    return sensitive.with_unrecorded(list(column.levels)) if missing.any() else sensitive


def _twist(columns: Columns, task: Task, lost: npt.NDArray[np.bool_]) -> str:
    """Say what leaving out rows does to the table; nothing if it is hardly anything."""
    label = columns[task.label]
    codes = label_codes(label.levels, task)
    y = label.each(lambda text: codes.get(text, -1), np.int64)
    before, after = ((y[rows] == 1).mean() for rows in (y >= 0, (y >= 0) & ~lost))
    if lost.mean() <= MANY_ROWS and abs(after - before) <= MOVED_RATE:
        return ""
    said = [
        f"{task.label} = {task.favourable} in {before:.1%} of the rows before, {after:.1%} now"
    ]
    for sensitive in task.sensitive:
        column = columns[sensitive.column]
        gone = column.take(lost).counts
        found = [(g, gone[g], rows) for g, rows in sorted(column.counts.items())]
        shown = ", ".join(f"{g} {n} of {rows}" for g, n, rows in found[:_MOST_SHOWN] if n)
        said.append(f"rows left out by {sensitive.name}: {shown or 'none'}")
    return "; ".join(said)


def feature_gaps(columns: Columns, task: Task) -> list[Gap]:
    """List the feature columns with their missing rows, except those that are a group."""
    groups = {s.column: s for s in task.sensitive}
    gaps = [(columns[c], columns[c].missing_number) for c in task.numeric or ()]
    gaps += [(columns[c], columns[c].missing) for c in task.categorical or ()]
    return [
        (c, gap & group_gaps(c, groups[c.name]) if c.name in groups else gap) for c, gap in gaps
    ]


def refuse_missing(gaps: Sequence[Gap], fix: str) -> None:
    """Refuse the first column that has a missing value."""
    for column, gap in gaps:
        if gap.any():
            raise DataError(
                f"{column.place(int(gap.argmax()))}: value missing, in {gap.sum()} of {len(gap)} "
                f"rows: {fix}"
            )
