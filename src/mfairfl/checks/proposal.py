"""What `mfairfl init` proposes: roles of the columns, groups of a numeric sensitive column."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.checks.facts import ColumnFacts, column_facts
from mfairfl.checks.features import examine_features
from mfairfl.checks.finding import Finding, by_weight
from mfairfl.checks.silos import rows_by_client
from mfairfl.data import MISSING, Bin, Sensitive, Table, Task, canonical_text
from mfairfl.data.columns import Column, columns_of, require_columns
from mfairfl.data.files import FileContent
from mfairfl.data.quality import Trap, traps_of
from mfairfl.data.table import table_from_columns
from mfairfl.errors import DataError

_SENSITIVE = re.compile(
    r"(^|[^a-z])(sex|gender|race|ethnic\w*|age|marital\w*|religion|nation\w*|disab\w*)([^a-z]|$)"
)
_CLIENT = re.compile(
    r"(^|[^a-z])(client|site|silo|hospital|branch|region|centre|center|bank)s?([^a-z]|$)"
)
_GOOD = ("yes", "true", "1", "good", "granted", "approved", "accepted", "hired", "pass")
_MANY_VALUES = 10
_IGNORED = ("identifier", "duplicate", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What goes into the TOML file."""

    path: Path
    content: FileContent
    task: Task
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    columns: tuple[ColumnFacts, ...]


def _values(frame: pd.DataFrame, column: str) -> list[str]:
    """Return the distinct values as text, without the missing one."""
    return sorted({canonical_text(value) for value in frame[column].unique()} - {MISSING})


def two_valued(frame: pd.DataFrame) -> list[str]:
    """Return the columns that could be a label, last one first: it tends to be the last column."""
    names = [c for c in frame.columns if len(frame[c].unique()) <= 3]
    return [c for c in reversed(names) if len(_values(frame, c)) == 2]


def label_values(frame: pd.DataFrame, label: str, name: str) -> list[str]:
    """Return a label's values, likely favourable ones first; errors call the rows `name`."""
    require_columns(frame.columns, [label], name)
    values = _values(frame, label)
    return sorted(values[:20], key=lambda value: (value.lower() not in _GOOD, value))


def likely_sensitive(frame: pd.DataFrame) -> list[str]:
    """Return the columns whose name suggests a sensitive attribute."""
    return [c for c in frame.columns if _SENSITIVE.search(c.lower())]


def likely_client(frame: pd.DataFrame) -> str:
    """Return the column whose name suggests a client, or an empty text."""
    return next((c for c in frame.columns if _CLIENT.search(c.lower())), "")


def propose(
    path: Path,
    content: FileContent,
    *,
    label: str,
    favourable: str,
    sensitive: Sequence[str],
    client: str | None = None,
    others_unfavourable: bool = False,
) -> Proposal:
    """Propose a task and check it against the file."""
    key_columns = [label, *sensitive, *([client] if client else [])]
    columns = columns_of(content.frame, str(path))
    require_columns(columns, key_columns, str(path))
    empty = [c for c in columns if c not in key_columns and columns[c].missing_number.all()]
    groups = [Sensitive(column=name, bins=_bins_of(columns[name])) for name in sensitive]
    draft = Task(
        label=label,
        favourable=favourable,
        sensitive=tuple(groups),
        ignore=tuple(empty),
        client=client,
        others_unfavourable=others_unfavourable,
    )
    table = table_from_columns(
        {name: column.but(table=path.name) for name, column in columns.items()},
        draft,
        name=path.name,
        sha256=content.sha256,
    )
    del columns  # a million rows are worth 100 MB of positions
    traps = traps_of(table)
    useless = {t.column: t for t in traps if t.kind in _IGNORED and t.column not in key_columns}
    ignored = {"ignore": (*empty, *useless)}
    task = draft.model_copy(update=_settled(table, useless) | ignored)
    return Proposal(
        path=path,
        content=content,
        task=task,
        notes=(
            *content.notes,
            *(f"column '{c}' is ignored: it is empty" for c in empty),
            *(_why_ignored(trap, table) for trap in useless.values()),
            *(_why_grouped(one) for one in groups if one.bins),
            *_about_others(table.notes, useless),
        ),
        findings=tuple(_findings(table, traps, useless)),
        columns=tuple(column_facts(content.frame, task, str(path))),
    )


def _findings(table: Table, traps: Sequence[Trap], useless: Collection[str]) -> list[Finding]:
    """Return what is odd about the columns that are used."""
    kept = replace(table, X=table.X.drop(columns=list(useless)))
    left = [trap for trap in traps if trap.column not in useless]
    warnings = _about_others(table.warnings, useless)
    return by_weight(
        [
            *(Finding("warn", "data", warning) for warning in warnings),
            *examine_features(kept, rows_by_client(kept), left),
        ]
    )


def _about_others(said: Sequence[str], columns: Collection[str]) -> list[str]:
    """Leave out how columns were read that are not used."""
    return [one for one in said if not any(f"column '{name}'" in one for name in columns)]


def _why_grouped(sensitive: Sensitive) -> str:
    names = ", ".join(one.name for one in sensitive.bins)
    return f"groups of {sensitive.column}: {names} (thirds of the rows)"


def _settled(table: Table, useless: Collection[str]) -> dict[str, Any]:
    """Return the parts of a task that the table decides, without the useless columns."""
    task = table.task
    numeric, categorical = (
        tuple(name for name in names or () if name not in useless)
        for names in (task.numeric, task.categorical)
    )
    if not numeric and not categorical:
        raise DataError(
            f"{table.name}: no feature is left: every other column names rows, never changes or "
            f"repeats another ({', '.join(useless)})"
        )
    return {
        "numeric": numeric,
        "categorical": categorical,
        "unfavourable": task.unfavourable,
        "columns": {name: rules for name, rules in task.columns.items() if name not in useless},
    }


def _why_ignored(trap: Trap, table: Table) -> str:
    """Say why a column is ignored, and how to use it all the same."""
    role = "numeric" if trap.column in (table.task.numeric or ()) else "categorical"
    reason = {"identifier": "it names rows", "duplicate": "it repeats another column"}
    return (
        f"column '{trap.column}' is ignored: {reason.get(trap.kind, 'it never changes')} "
        f"({trap.why}); to use it, move it from ignore to {role}"
    )


def _bins_of(column: Column) -> tuple[Bin, ...]:
    """Return bins for numbers with many values, else none: each value is a group."""
    if column.not_numbers.any() or len(column.counts) <= _MANY_VALUES:
        return ()
    bins = tercile_bins(column.numbers[~np.isnan(column.numbers)])
    if not bins:
        raise DataError(f"{column.table}: column '{column.name}': nearly all values are equal")
    return bins


def tercile_bins(numbers: NDArray[np.float64]) -> tuple[Bin, ...]:
    """Cut numbers into thirds, as closed intervals between observed values.

    Examples
    --------
    >>> [b.name for b in tercile_bins(np.array([20, 30, 40, 50, 60, 70.0]))]
    ['<= 30', '40 to 50', '>= 60']
    """
    values = np.sort(numbers)
    ends: list[int] = []
    for share in (1 / 3, 2 / 3):
        cut = values[math.ceil(round(share * len(values), 9)) - 1]
        end = int(np.searchsorted(values, cut, side="right"))
        # Ties may leave too few rows on a side; a group needs two members.
        if end - (ends[-1] if ends else 0) >= 2 and len(values) - end >= 2:
            ends.append(end)
    if not ends:
        return ()
    borders = [0, *ends, len(values)]
    return tuple(_bin(values, a, b) for a, b in itertools.pairwise(borders))


def _bin(values: NDArray[np.float64], start: int, end: int) -> Bin:
    """Return the interval of values[start:end]; the first and the last are open outwards."""
    low, high = float(values[start]), float(values[end - 1])
    if start == 0:
        return Bin(name=f"<= {high:.12g}", max=high)
    if end == len(values):
        return Bin(name=f">= {low:.12g}", min=low)
    return Bin(name=f"{low:.12g} to {high:.12g}", min=low, max=high)
