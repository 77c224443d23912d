"""From a frame and a `Task` to a `Table`: features, labels, group codes, clients, and notes.

A table keeps its task fully resolved (roles, groups, both label values), so that another file
read with ``table.task`` gets the same columns and codes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ValidationError

from mfairfl.data.columns import (
    Column,
    Columns,
    columns_of,
    group_codes,
    group_gaps,
    lookalike,
    require_columns,
    require_present,
)
from mfairfl.data.frame import read_file, read_frame
from mfairfl.data.task import MISSING, Attribute, Sensitive, Task
from mfairfl.errors import ConfigError, DataError, first_problem

__all__ = [
    "Table",
    "cells_of",
    "features_frame",
    "read_table",
    "table_from_frame",
    "task_from_roles",
]

_Gap = tuple[Column, npt.NDArray[np.bool_]]
# Labels whose second value is the favourable one, whatever they are about.
_ORDERED_LABELS = (["0", "1"], ["-1", "1"], ["False", "True"], ["false", "true"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """A table that a task was applied to; row i of every field is the same person.

    Attributes
    ----------
    X
        Features: the task's numeric columns as float64 (missing: nan), then its categorical
        columns as text (missing: ``"?"``). Rows are numbered from 0.
    y
        int8, 1 = favourable.
    groups
        int16 of shape (n, A): each row's group in each attribute.
    attributes
        The sensitive attributes, one per column of `groups`.
    clients
        Each row's client name, or None if the task names no client column.
    task
        The task with roles, groups and label values filled in.
    name, sha256
        The file's or data set's name; the hash of the (decompressed) file, or of the frame's
        values.
    notes
        What an auditor should see: rows dropped, columns left out, values changed.
    """

    X: pd.DataFrame
    y: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int16]
    attributes: tuple[Attribute, ...]
    clients: npt.NDArray[np.str_] | None
    task: Task
    name: str
    sha256: str
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def cells(self) -> npt.NDArray[np.intp]:
        """Each row's intersectional cell: the C-order ravel of its group codes."""
        return _cells(list(self.groups.T), self.attributes)


def read_table(
    path: str | PathLike[str],
    task: Task,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    sheet: str | None = None,
    name: str | None = None,
) -> Table:
    r"""Read a file as `read_frame` does and apply a task to it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "people.csv")
    ...     size = path.write_text("age;sex;hired\n31;f;yes\n45;m;no\n27;f;no\n52;m;yes\n")
    ...     table = read_table(path, Task(label="hired", favourable="yes", sensitive=("sex",)))
    >>> table.y.tolist(), table.attributes[0].groups, table.task.numeric
    ([1, 0, 0, 1], ('f', 'm'), ('age',))
    """
    content = read_file(path, delimiter=delimiter, encoding=encoding, header=header, sheet=sheet)
    return _table(content.frame, task, name or Path(path).name, content.sha256, content.notes)


def table_from_frame(
    frame: Any, task: Task, *, name: str = "frame", sha256: str | None = None
) -> Table:
    """Apply a task to a pandas, polars or pyarrow frame.

    Without `sha256` the hash is that of the column names and values, as canonical text.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27, 52], "sex": list("fmfm"), "hired": [1, 0, 0, 1]})
    >>> task = Task(label="hired", favourable=1, sensitive=("sex",))
    >>> table_from_frame(frame, task).cells.tolist()
    [0, 1, 0, 1]
    """
    return _table(read_frame(frame), task, name, sha256, ())


def task_from_roles(
    frame: Any,
    *,
    label: str | None = None,
    favourable: object = None,
    sensitive: str | Sensitive | Sequence[str | Sensitive] = (),
    client: str | None = None,
    name: str = "frame",
    **fields: Any,
) -> Task:
    """Say what the columns of a frame mean, in the fewest words.

    Parameters
    ----------
    frame
        A pandas, polars or pyarrow frame.
    label, client
        Columns, as in `Task`.
    favourable
        The good value of the label; detected if omitted where the label is 0/1, -1/1 or
        False/True.
    sensitive
        One or more columns, or `Sensitive` attributes with groups of their own.
    name
        Name of the frame in messages.
    **fields
        Any other field of `Task`, such as ``ignore`` or ``missing``.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27, 52], "sex": list("fmfm"), "hired": [1, 0, 0, 1]})
    >>> task = task_from_roles(frame, label="hired", sensitive="sex")
    >>> task.favourable, task.sensitive[0].column
    ('1', 'sex')
    """
    columns = columns_of(read_frame(frame), name)
    known = ", ".join(columns)
    if label is None:
        raise ConfigError(f"{name}: which column is predicted? Pass label= (columns: {known})")
    chosen = (sensitive,) if isinstance(sensitive, str | Sensitive) else tuple(sensitive)
    if not chosen:
        raise ConfigError(f"{name}: fair for whom? Pass sensitive= (columns: {known})")
    require_columns(columns, [label], name)
    if favourable is None:
        favourable = _favourable(columns[label])
    fields |= {"label": label, "favourable": favourable, "sensitive": chosen, "client": client}
    try:
        task = Task(**fields)
    except ValidationError as error:
        raise ConfigError(f"{name}: {first_problem(error, Task)}") from error
    require_columns(columns, task.named_columns, name)
    return task


def _favourable(label: Column) -> str:
    """Return the favourable value of a label whose two values have an obvious order."""
    found = sorted(set(label.texts[~label.missing]))
    if found in _ORDERED_LABELS:
        return str(found[1])
    raise ConfigError(
        f"{label.table}: which value of '{label.name}' is good for a person? Pass favourable= "
        f"(values: {_listed(found)})"
    )


def _listed(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values[:5]) + ", ..." * (len(values) > 5)


def features_frame(frame: Any, task: Task, *, name: str = "the frame") -> pd.DataFrame:
    """Take only the features from a frame, for prediction: no label or group is needed.

    The task must be resolved (``table.task``). Rows are never dropped; a missing value is refused
    if the task has ``missing="error"``.

    Examples
    --------
    >>> task = Task(label="hired", favourable=1, sensitive=("sex",),
    ...             numeric=("age",), categorical=("sex",))
    >>> features_frame(pd.DataFrame({"sex": ["f", None], "age": ["31", ""]}), task)
        age sex
    0  31.0   f
    1   NaN   ?
    """
    if task.numeric is None or task.categorical is None:
        raise ConfigError("the task's columns have no roles yet: use the task of a table")
    columns = _with_absent(columns_of(read_frame(frame), name), task, name)
    require_present(columns, (*task.numeric, *task.categorical), name)
    if task.missing == "error":
        _refuse_missing(_feature_gaps(columns, task), "fill it in")
    return _features(columns, task)


def cells_of(frame: Any, task: Task, *, name: str = "the frame") -> npt.NDArray[np.intp]:
    """Return the intersectional cell of each row of a frame, for decisions that depend on it.

    The task must be resolved (``table.task``); every row needs a group of each attribute.

    Examples
    --------
    >>> sex = {"column": "sex", "groups": ("f", "m")}
    >>> task = Task(label="hired", favourable=1, sensitive=(sex,))
    >>> cells_of(pd.DataFrame({"sex": ["m", "f"]}), task).tolist()
    [1, 0]
    """
    columns = _with_absent(columns_of(read_frame(frame), name), task, name)
    require_present(columns, [s.column for s in task.sensitive], name)
    gaps = [(columns[s.column], group_gaps(columns[s.column], s)) for s in task.sensitive]
    _refuse_missing(gaps, "fill it in: decisions depend on the group")
    codes = [group_codes(columns[s.column], s)[0] for s in task.sensitive]
    return _cells(codes, task.attributes)


def _cells(
    codes: list[npt.NDArray[np.int16]], attributes: Sequence[Attribute]
) -> npt.NDArray[np.intp]:
    sizes = [attribute.size for attribute in attributes]
    return np.asarray(np.ravel_multi_index(codes, sizes), dtype=np.intp)


def _table(
    frame: pd.DataFrame, task: Task, name: str, sha256: str | None, notes: tuple[str, ...]
) -> Table:
    columns = columns_of(frame, name)
    sha256 = sha256 or _values_sha256(columns)
    columns = _with_absent(columns, task, name)
    require_columns(columns, task.named_columns, name)
    partial = task.resolved  # one of several files: it may lack values that others hold
    task, role_notes = _with_roles(columns, task, name)
    columns, missing_notes = _without_missing(columns, task, name, partial=partial)
    y, task, label_notes = _labels(columns[task.label], task)
    coded = [group_codes(columns[s.column], s) for s in task.sensitive]
    task = task.model_copy(update={"sensitive": tuple(resolved for _, resolved, _ in coded)})
    X = _features(columns, task)
    return Table(
        X=X,
        y=y,
        groups=np.stack([codes for codes, _, _ in coded], axis=1),
        attributes=task.attributes,
        clients=None if task.client is None else columns[task.client].texts.astype(np.str_),
        task=task,
        name=name,
        sha256=sha256,
        notes=(
            *notes,
            *role_notes,
            *missing_notes,
            *label_notes,
            *(note for _, _, group_notes in coded for note in group_notes),
            *_feature_notes(X, name),
            *_coercion_notes(columns, task, name),
        ),
    )


def _with_absent(columns: Columns, task: Task, name: str) -> Columns:
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
    empty = (pd.Series(None, index=index, name=c, dtype=object) for c in lacking)
    return {**columns, **{str(series.name): Column(name, series) for series in empty}}


def _with_roles(columns: Columns, task: Task, name: str) -> tuple[Task, list[str]]:
    """Fill in numeric and categorical; note which columns were left out or nearly numeric."""
    never = task.not_features
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
                    f"{column.place(first)}: '{column.texts[first]}' is not a number, so the "
                    f"column is categorical ({text.sum()} of {len(text)} values are text)"
                )
    elif left_out := [c for c in others if c not in {s.column for s in task.sensitive}]:
        notes.append(f"{name}: columns without a role, left out: {', '.join(left_out)}")
    if not numeric and not categorical:
        raise DataError(f"{name}: no feature columns are left: list some in numeric, categorical")
    roles = {"numeric": tuple(numeric), "categorical": tuple(categorical)}
    return task.model_copy(update=roles), notes


def _without_missing(
    columns: Columns, task: Task, name: str, *, partial: bool
) -> tuple[Columns, tuple[str, ...]]:
    """Apply the task's policy: drop rows with a missing value, or refuse them where it must.

    A feature without any value is refused, unless the table is one of several (`partial`).
    """
    keys = [(columns[c], columns[c].missing) for c in (task.label, task.client) if c is not None]
    keys += [(columns[s.column], group_gaps(columns[s.column], s)) for s in task.sensitive]
    gaps = _feature_gaps(columns, task)
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
    _refuse_missing(keys, "fill it in, or set missing='drop'")
    if task.missing == "error":
        _refuse_missing(gaps, "fill it in, or set missing='level' or 'drop'")
    return columns, tuple(
        f"{name}: column '{c.name}': {g.sum()} of {len(g)} values missing, kept "
        + ("as nan" if c.name in (task.numeric or ()) else f"as the level '{MISSING}'")
        for c, g in gaps
        if g.any()
    )


def _feature_gaps(columns: Columns, task: Task) -> list[_Gap]:
    """List the feature columns with their missing rows, except those that are a group."""
    groups = {s.column: s for s in task.sensitive}
    gaps = [(columns[c], columns[c].missing_number) for c in task.numeric or ()]
    gaps += [(columns[c], columns[c].missing) for c in task.categorical or ()]
    return [
        (c, gap & group_gaps(c, groups[c.name]) if c.name in groups else gap) for c, gap in gaps
    ]


def _refuse_missing(gaps: Sequence[_Gap], fix: str) -> None:
    """Refuse the first column that has a missing value."""
    for column, gap in gaps:
        if gap.any():
            raise DataError(
                f"{column.place(int(gap.argmax()))}: value missing, in {gap.sum()} of {len(gap)} "
                f"rows: {fix}"
            )


def _labels(column: Column, task: Task) -> tuple[npt.NDArray[np.int8], Task, tuple[str, ...]]:
    """Code the label, 1 = favourable, and fill in the unfavourable value."""
    where = f"{column.table}: label column '{column.name}'"
    found = sorted(set(column.texts))
    listed = _listed(found)
    if task.unfavourable is None:
        if len(found) != 2:
            raise DataError(
                f"{where} has {len(found)} distinct values ({listed}): choose a column with "
                "exactly two"
            )
        if task.favourable not in found:
            raise DataError(
                f"{where} never holds the favourable value '{task.favourable}': "
                f"set favourable to one of {listed}"
            )
        other = found[1 - found.index(task.favourable)]
        task = task.model_copy(update={"unfavourable": other})
    strange = [value for value in found if value not in (task.favourable, task.unfavourable)]
    if strange:
        position = int((column.texts == strange[0]).argmax())
        raise DataError(
            f"{column.place(position)}: label '{strange[0]}' is neither favourable "
            f"('{task.favourable}') nor unfavourable ('{task.unfavourable}'): correct it"
        )
    notes = (f"{where} holds only {listed}",) if len(found) == 1 else ()
    return (column.texts == task.favourable).astype(np.int8), task, notes


def _features(columns: Columns, task: Task) -> pd.DataFrame:
    numeric: dict[str, Any] = {c: columns[c].numbers for c in task.numeric or ()}
    texts = {c: pd.Series(columns[c].texts, dtype="str") for c in task.categorical or ()}
    return pd.DataFrame(numeric | texts)


def _feature_notes(X: pd.DataFrame, name: str) -> Iterator[str]:
    """Note features that are constant and texts that look like names of the rows."""
    for column in X.columns:
        distinct = X[column].nunique(dropna=False)
        if distinct == 1:
            yield f"{name}: column '{column}' is constant: {X[column].iloc[0]}"
        elif distinct > len(X) / 2 > 10 and X[column].dtype != np.float64:
            yield (
                f"{name}: column '{column}' has {distinct} levels in {len(X)} rows: "
                "list it in ignore if it names the rows"
            )


def _coercion_notes(columns: Columns, task: Task, name: str) -> list[str]:
    """Note texts that were trimmed, in the columns that are read as text."""
    texts = dict.fromkeys([task.label, *(s.column for s in task.sensitive)])
    return [
        f"{name}: column '{c}': {n} values trimmed (spaces or needless decimals)"
        for c in texts | dict.fromkeys(task.categorical or ())
        if (n := columns[c].coerced)
    ]


def _values_sha256(columns: Columns) -> str:
    digest = hashlib.sha256()
    for name, column in columns.items():
        # JSON keeps the borders between values, which plain joining would blur.
        digest.update(json.dumps([name, column.texts.tolist()]).encode())
    return digest.hexdigest()
