"""What happens to a frame before it is a table: roles, missing values, notes for the auditor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.columns import Column, Columns
from mfairfl.data.grouping import group_gaps
from mfairfl.data.task import Task
from mfairfl.data.text import MISSING, lookalike
from mfairfl.errors import DataError, unknown

__all__ = [
    "coercion_notes",
    "feature_gaps",
    "feature_notes",
    "refuse_missing",
    "require_columns",
    "with_absent",
    "with_roles",
    "without_missing",
]

Gap = tuple[Column, npt.NDArray[np.bool_]]


def require_columns(present: Iterable[str], needed: Iterable[str], name: str) -> None:
    """Refuse a table that lacks a column, naming the nearest one."""
    known = list(present)
    for column in needed:
        if column not in known:
            raise DataError(f"{name}: {unknown('column', column, known)}")


def with_absent(columns: Columns, task: Task, name: str) -> Columns:
    """Add sensitive columns that one of several files lacks: a value is missing in every row.

    For a resolved task only, where missing values have the group ``?``. A column of nearly that
    name is taken for a misspelt one, and nothing is added.
    """
    lacking = [
        s.column
        for s in task.sensitive
        if task.resolved and MISSING in (s.groups or ()) and not lookalike(s.column, columns)
    ]
    if not lacking or not columns:
        return columns
    index = next(iter(columns.values())).series.index
    empty = {c: pd.Series(None, index=index, name=c, dtype=object) for c in lacking}
    return {**columns, **{c: Column(name, series) for c, series in empty.items()}}


def with_roles(columns: Columns, task: Task, name: str) -> tuple[Task, list[str]]:
    """Fill in numeric and categorical; note which columns were left out or nearly numeric."""
    protected = {s.column for s in task.sensitive}
    never = {task.label, task.client, *task.ignore}
    if not task.sensitive_as_features:
        never |= protected
    numeric = [c for c in task.numeric or () if c not in never]
    categorical = [c for c in task.categorical or () if c not in never]
    others = [c for c in columns if c not in {*never, *numeric, *categorical}]
    notes = []
    if task.numeric is None or task.categorical is None:
        for column in (columns[c] for c in others):
            text = column.not_numbers
            (categorical if text.any() else numeric).append(column.name)
            if 0 < text.mean() < 0.1:
                first = int(text.argmax())
                notes.append(
                    f"{column.place(first)}: '{column.texts[first]}' is no number, so the column "
                    f"is categorical ({text.sum()} of {len(text)} values are text)"
                )
    elif left_out := [c for c in others if c not in protected]:
        notes.append(f"{name}: columns without a role, left out: {', '.join(left_out)}")
    if not numeric and not categorical:
        raise DataError(f"{name}: no feature columns are left: list some in numeric, categorical")
    roles = {"numeric": tuple(numeric), "categorical": tuple(categorical)}
    return task.model_copy(update=roles), notes


def feature_gaps(columns: Columns, task: Task) -> list[Gap]:
    """List the feature columns with their missing rows, except those that are a group."""
    groups = {s.column: s for s in task.sensitive}
    gaps = [(columns[c], columns[c].missing_number) for c in task.numeric or ()]
    gaps += [(columns[c], columns[c].missing) for c in task.categorical or ()]
    return [
        (c, gap & group_gaps(c, groups[c.name]) if c.name in groups else gap) for c, gap in gaps
    ]


def without_missing(
    columns: Columns, task: Task, name: str, *, partial: bool
) -> tuple[Columns, tuple[str, ...]]:
    """Apply the task's policy: drop rows with a missing value, or refuse them where it must.

    A feature without any value is refused, unless the table is a `partial` one, beside others.
    """
    keys = [(columns[c], columns[c].missing) for c in (task.label, task.client) if c is not None]
    keys += [(columns[s.column], group_gaps(columns[s.column], s)) for s in task.sensitive]
    gaps = feature_gaps(columns, task)
    for column, gap in gaps:
        if gap.all() and not partial:
            raise DataError(f"{name}: column '{column.name}' has no value: list it in ignore")
    if task.missing == "drop":
        lost = np.any([gap for _, gap in [*keys, *gaps]], axis=0)
        if lost.all():
            raise DataError(f"{name}: every row has a missing value: use missing='level'")
        counts = ", ".join(f"{c.name} {g.sum()}" for c, g in [*keys, *gaps] if g.any())
        note = f"{name}: {lost.sum()} of {len(lost)} rows dropped, missing values ({counts})"
        kept = {c: Column(name, column.series[~lost]) for c, column in columns.items()}
        return (kept, (note,)) if lost.any() else (columns, ())
    refuse_missing(keys, "fill it in, or set missing='drop'")
    if task.missing == "error":
        refuse_missing(gaps, "fill it in, or set missing='level' or 'drop'")
    return columns, tuple(
        f"{name}: column '{c.name}': {g.sum()} of {len(g)} values missing, kept "
        + ("as nan" if c.name in (task.numeric or ()) else f"as the level '{MISSING}'")
        for c, g in gaps
        if g.any()
    )


def refuse_missing(gaps: Sequence[Gap], fix: str) -> None:
    """Refuse the first column that has a missing value."""
    for column, gap in gaps:
        if gap.any():
            raise DataError(
                f"{column.place(int(gap.argmax()))}: value missing, in {gap.sum()} of {len(gap)} "
                f"rows: {fix}"
            )


def feature_notes(X: pd.DataFrame, name: str) -> list[str]:
    """Note features that are constant and texts that look like names of the rows."""
    notes = []
    for column in X.columns:
        distinct = X[column].nunique(dropna=False)
        if distinct == 1:
            notes.append(f"{name}: column '{column}' is constant: {X[column].iloc[0]}")
        elif distinct > len(X) / 2 > 10 and X[column].dtype != np.float64:
            notes.append(
                f"{name}: column '{column}' has {distinct} levels in {len(X)} rows: "
                "list it in ignore if it names the rows"
            )
    return notes


def coercion_notes(columns: Columns, task: Task, name: str) -> list[str]:
    """Note texts that were trimmed, in the columns that are read as text."""
    texts = [task.label, *(s.column for s in task.sensitive), *(task.categorical or ())]
    counts = {c: columns[c].coerced for c in texts}
    return [
        f"{name}: column '{c}': {n} values trimmed (spaces or needless decimals)"
        for c, n in counts.items()
        if n
    ]
