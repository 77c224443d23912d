"""What `mfairfl init` proposes: roles of columns, groups of numbers, and a commented TOML file."""

import itertools
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel

from mfairfl.checks import Finding, by_weight, column_checks
from mfairfl.checks.base_rates import base_rate_lines
from mfairfl.data import MISSING, Bin, Reading, Sensitive, Table, Task, canonical_text
from mfairfl.data.columns import Column, columns_of, require_columns
from mfairfl.data.files import FileContent
from mfairfl.data.quality import Trap, traps_of
from mfairfl.data.table import table_from_columns
from mfairfl.errors import DataError
from mfairfl.files import toml_key, toml_text
from mfairfl.runs.config import Config, FairnessConfig, make_config

_SENSITIVE = re.compile(
    r"(^|[^a-z])(sex|gender|race|ethnic\w*|age|marital\w*|religion|nation\w*|disab\w*)([^a-z]|$)"
)
_CLIENT = re.compile(
    r"(^|[^a-z])(client|site|silo|hospital|branch|region|centre|center|bank)s?([^a-z]|$)"
)
_GOOD = ("yes", "true", "1", "good", "granted", "approved", "accepted", "hired", "pass")
_MANY_VALUES = 10
_USELESS = {
    "identifier": "it names rows",
    "duplicate": "it repeats another column",
    "constant": "it never changes",
}
_WIDTH = 90
_OMITTED = frozenset(
    {"columns", "fold", "options"}
)  # blocks of their own, and keys that are rarely set


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The content of the TOML file, and what there is to say about it."""

    path: Path
    content: FileContent
    task: Task
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    columns: tuple[column_checks.ColumnFacts, ...]


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


def propose(path: Path, content: FileContent, draft: Task) -> Proposal:
    """Complete a task that has its label, groups and client, and check it against the file."""
    keys = [draft.label, *(s.column for s in draft.sensitive), *filter(None, [draft.client])]
    draft, table = _applied(path, content, draft, keys)
    traps = traps_of(table)
    useless = {t.column: t for t in traps if t.kind in _USELESS and t.column not in keys}
    ignored = (*draft.ignore, *useless)
    task = draft.model_copy(update=_settled(table, useless) | {"ignore": ignored})
    used = replace(table, X=table.X.drop(columns=list(useless)))
    clients = column_checks.rows_by_client(used)
    others = [trap for trap in traps if trap.column not in useless]
    notes = [
        *content.notes,
        *(f"column '{name}' is ignored: it is empty" for name in draft.ignore),
        *(_useless_note(trap, table.task) for trap in useless.values()),
        *(_thirds_note(sensitive) for sensitive in draft.sensitive if sensitive.bins),
        *_without(useless, table.notes),
        *(line for _, line in base_rate_lines(table, FairnessConfig().notion)),
    ]
    findings = [
        *(Finding("warn", "data", warning) for warning in _without(useless, table.warnings)),
        *column_checks.feature_findings(used, clients, others),
    ]
    return Proposal(
        path=path,
        content=content,
        task=task,
        notes=tuple(notes),
        findings=tuple(by_weight(findings)),
        columns=tuple(column_checks.column_facts(content.frame, task, str(path))),
    )


def _applied(
    path: Path, content: FileContent, draft: Task, keys: Sequence[str]
) -> tuple[Task, Table]:
    """Bin sensitive numbers, ignore empty columns but the task's own, and apply the task."""
    columns = columns_of(content.frame, str(path))
    require_columns(columns, keys, str(path))
    empty = [c for c in columns if c not in keys and columns[c].missing_number.all()]
    groups = tuple(
        Sensitive(column=s.column, bins=_bins_of(columns[s.column])) for s in draft.sensitive
    )
    draft = draft.model_copy(update={"sensitive": groups, "ignore": tuple(empty)})
    named = {name: column.but(table=path.name) for name, column in columns.items()}
    return draft, table_from_columns(named, draft, name=path.name, sha256=content.sha256)


def _useless_note(trap: Trap, task: Task) -> str:
    role = "numeric" if trap.column in (task.numeric or ()) else "categorical"
    why = f"{_USELESS[trap.kind]} ({trap.why})"
    return f"column '{trap.column}' is ignored: {why}; to use it, move it from ignore to {role}"


def _thirds_note(sensitive: Sensitive) -> str:
    bins = ", ".join(b.name for b in sensitive.bins)
    return f"groups of {sensitive.column}: {bins} (thirds of the rows)"


def _without(columns: Collection[str], messages: Sequence[str]) -> list[str]:
    """Leave out messages about how columns were read that are not used."""
    return [m for m in messages if not any(f"column '{name}'" in m for name in columns)]


def _settled(table: Table, useless: Collection[str]) -> dict[str, Any]:
    """Return the parts of a task that the table decides, without the useless columns."""
    task = table.task
    features = {
        role: tuple(name for name in getattr(task, role) or () if name not in useless)
        for role in ("numeric", "categorical")
    }
    if not any(features.values()):
        raise DataError(
            f"{table.name}: no feature is left: every other column names rows, never changes or "
            f"repeats another ({', '.join(useless)})"
        )
    rules = {name: rules for name, rules in task.columns.items() if name not in useless}
    return {**features, "unfavourable": task.unfavourable, "columns": rules}


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
    ends = [0]
    cuts = np.quantile(values, (1 / 3, 2 / 3), method="inverted_cdf")
    for end in np.searchsorted(values, cuts, side="right").tolist():
        # Ties may leave too few rows on a side; a group needs two members.
        if min(end - ends[-1], len(values) - end) >= 2:
            ends.append(end)
    if len(ends) == 1:
        return ()
    bins: list[Bin] = []
    for start, end in itertools.pairwise([*ends, len(values)]):
        low, high = float(values[start]), float(values[end - 1])
        if start == 0:
            bins.append(Bin(name=f"<= {high:.12g}", max=high))
        elif end == len(values):
            bins.append(Bin(name=f">= {low:.12g}", min=low))
        else:
            bins.append(Bin(name=f"{low:.12g} to {high:.12g}", min=low, max=high))
    return tuple(bins)


# ------------------------------------------------------------------ the TOML file


def toml_file(proposal: Proposal, target: Path) -> str:
    """Return the text of the file that `target` will hold, validated."""
    content, task = proposal.content, proposal.task
    csv = Path(os.path.relpath(proposal.path, target.parent)).as_posix()
    split = {"scheme": "column"} if task.client else {"scheme": "iid", "count": 5}
    data = {"csv": csv, **asdict(content.format)}
    config = make_config({"data": data, "task": task.model_dump(), "clients": split})
    values = config.model_dump(exclude_none=True)
    values["task"]["sensitive"] = [
        sensitive.model_dump(exclude_none=True, exclude_defaults=True, exclude={"name"})
        for sensitive in task.sensitive
    ]
    blocks = ["# Settings for mfairfl: check with `mfairfl doctor`, run with `mfairfl train`."]
    for name, section in config:
        if isinstance(section, BaseModel):
            lines = _lines(type(section), values[name])
            blocks.append("\n".join([f"[{name}]", *lines]))
            for column, rules in values[name].get("columns", {}).items():
                lines = (f"{key} = {toml_text(value)}" for key, value in rules.items() if value)
                blocks.append("\n".join([f"[task.columns.{toml_key(column)}]", *lines]))
        else:
            blocks.append(_line(name, section, Config.model_fields[name].description))
    text = "\n\n".join(blocks) + "\n"
    make_config(tomllib.loads(text), str(target))
    return text


def _lines(section: type[BaseModel], values: dict[str, Any]) -> Iterator[str]:
    """Yield the keys that are set, and as comments those that have an example."""
    # How cells are read is a detail: it comes after what the columns mean.
    fields = sorted(section.model_fields.items(), key=lambda item: item[0] in Reading.model_fields)
    for key, field in fields:
        stated = values.get(key) or key not in Reading.model_fields
        if stated and key in values.keys() - _OMITTED:
            yield _line(key, values[key], field.description)
        elif field.examples:
            yield _line(f"# {key}", field.examples[0], field.description)


def _line(key: str, value: Any, comment: str | None) -> str:
    text = f"{key} = {toml_text(value)}"
    if len(text) <= _WIDTH or not isinstance(value, list | tuple):
        return f"{text}  # {comment}"
    inner = "".join(f"\n  {toml_text(item)}," for item in value)
    return f"{key} = [  # {comment}{inner}\n]"
