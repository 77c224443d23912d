"""What `mfairfl init` proposes: roles of the columns, groups of a numeric sensitive column."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import MISSING, Bin, Sensitive, Task, canonical_text, table_from_frame
from mfairfl.data.columns import Column, require_columns
from mfairfl.data.frame import FileContent
from mfairfl.errors import DataError

__all__ = [
    "Proposal",
    "label_values",
    "likely_client",
    "likely_sensitive",
    "propose",
    "tercile_bins",
    "two_valued",
]

_SENSITIVE = re.compile(
    r"(^|[^a-z])(sex|gender|race|ethnic\w*|age|marital\w*|religion|nation\w*|disab\w*)([^a-z]|$)"
)
_CLIENT = re.compile(
    r"(^|[^a-z])(client|site|silo|hospital|branch|region|centre|center|bank)s?([^a-z]|$)"
)
_GOOD = ("yes", "true", "1", "good", "granted", "approved", "accepted", "hired", "pass")
_MANY_VALUES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What goes into the TOML file."""

    path: Path
    content: FileContent
    task: Task
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


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
    columns = {name: Column(str(path), content.frame[name]) for name in content.frame.columns}
    require_columns(columns, key_columns, str(path))
    notes = []
    ignore = [c for c in columns if c not in key_columns and _identifies_rows(columns[c])]
    notes += [f"column '{c}' is ignored: it identifies rows or is empty" for c in ignore]
    groups = []
    for name in sensitive:
        bins = _bins_of(columns[name])
        groups.append(Sensitive(column=name, bins=bins))
        if bins:
            notes.append(
                f"groups of {name}: {', '.join(b.name for b in bins)} (thirds of the rows)"
            )
    task = Task(
        label=label,
        favourable=favourable,
        sensitive=tuple(groups),
        ignore=tuple(ignore),
        client=client,
        others_unfavourable=others_unfavourable,
    )
    table = table_from_frame(content.frame, task, name=path.name, sha256=content.sha256)
    settled = ("numeric", "categorical", "unfavourable", "columns")
    task = task.model_copy(update={key: getattr(table.task, key) for key in settled})
    return Proposal(
        path=path,
        content=content,
        task=task,
        notes=(*content.notes, *notes, *table.notes),
        warnings=table.warnings,
    )


def _identifies_rows(column: Column) -> bool:
    """Whether a column is empty, or text that differs in every row."""
    empty = bool(column.missing_number.all())
    distinct = len(set(column.texts)) == len(column.texts) > 20
    return empty or (distinct and bool(column.not_numbers.all()))


def _bins_of(column: Column) -> tuple[Bin, ...]:
    """Return bins for numbers with many values, else none: each value is a group."""
    if column.not_numbers.any() or len(set(column.texts)) <= _MANY_VALUES:
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
