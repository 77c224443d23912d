"""From a frame and a `Task` to a `Table`: features, labels, group codes, clients, and notes.

A table keeps its task fully resolved (roles, groups, both label values), so that another file
read with ``table.task`` gets the same columns and codes.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ValidationError

from mfairfl.data import coding
from mfairfl.data.columns import (
    Column,
    Columns,
    columns_of,
    lookalike,
    require_columns,
    require_present,
)
from mfairfl.data.files import FileContent, FileFormat, read_file, read_frame
from mfairfl.data.task import Attribute, Sensitive, Task
from mfairfl.data.values import MISSING, Integers, Labels, Reading
from mfairfl.errors import ConfigError, DataError, first_problem


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
        What an auditor should see: columns left out, values filled or changed.
    warnings
        What may twist the result: many rows left out, cells that could not be read.
    treatment
        The lines about what was dropped, filled in or merged, by kind.
    places
        Where each row is in the file, from 0, if some were left out; None if none was.

    Examples
    --------
    >>> people = pd.DataFrame({"x": [1, 2, 3, 4], "sex": list("fmfm"), "hired": [0, 1, 1, 0]})
    >>> table = table_from_frame(people, task_from_roles(people, label="hired", sensitive="sex"))
    >>> table.y.tolist(), table.attributes[0].groups
    ([0, 1, 1, 0], ('f', 'm'))
    """

    X: pd.DataFrame
    y: Labels
    groups: npt.NDArray[np.int16]
    attributes: tuple[Attribute, ...]
    clients: npt.NDArray[np.str_] | None
    task: Task
    name: str
    sha256: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    treatment: tuple[coding.Treated, ...] = ()
    places: Integers | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def cells(self) -> Integers:
        """Each row's intersectional cell: the C-order ravel of its group codes."""
        return _cells(self.groups, self.attributes)

    def blind(self) -> Self:
        """Return the same rows without sensitive columns among the features.

        Examples
        --------
        >>> people = pd.DataFrame({"x": range(4), "sex": list("fmfm"), "hired": [0, 1, 1, 0]})
        >>> task = task_from_roles(people, label="hired", sensitive="sex")
        >>> table = table_from_frame(people, task)
        >>> list(table.X), list(table.blind().X)
        (['x', 'sex'], ['x'])
        """
        hidden = {sensitive.column for sensitive in self.task.sensitive}
        seen = {
            role: tuple(column for column in getattr(self.task, role) if column not in hidden)
            for role in ("numeric", "categorical")
        }
        return replace(
            self,
            X=self.X.drop(columns=[column for column in self.X if column in hidden]),
            task=self.task.model_copy(update={"sensitive_as_features": False, **seen}),
        )

    def cells_of(self, rows: Integers) -> Integers:
        """Return the cells of some rows, by position."""
        return _cells(self.groups[rows], self.attributes)


def read_table(
    path: str | PathLike[str],
    task: Task,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    sheet: str | None = None,
    name: str | None = None,
    reading: Reading | None = None,
) -> Table:
    r"""Read a file as `read_frame` does and apply a task to it.

    `reading` says how this file's cells are read where it differs from what the task says.

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
    content = read_file(path, FileFormat(delimiter, encoding, header, sheet))
    return table_from_content(content, task, name=name or Path(path).name, reading=reading)


def table_from_content(
    content: FileContent, task: Task, *, name: str, reading: Reading | None = None
) -> Table:
    """Apply a task to a file that was read already (`read_file`), as `read_table` does."""
    columns = columns_of(content.frame, name, task.read_as(reading))
    return table_from_columns(columns, task, name=name, sha256=content.sha256, notes=content.notes)


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
    columns = columns_of(read_frame(frame), name, task)
    return table_from_columns(columns, task, name=name, sha256=sha256)


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
    """Return the task of a frame of which a few columns are named.

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
    rules = {key: fields[key] for key in Reading.model_fields if key in fields}
    columns = columns_of(read_frame(frame), name, Reading(**rules))
    names = ", ".join(columns)
    if label is None:
        raise ConfigError(f"{name}: which column is predicted? Pass label= (columns: {names})")
    attributes = (sensitive,) if isinstance(sensitive, str | Sensitive) else tuple(sensitive)
    if not attributes:
        raise ConfigError(f"{name}: fair for whom? Pass sensitive= (columns: {names})")
    require_columns(columns, [label], name)
    if favourable is None:
        levels = list(columns[label].levels)
        if levels not in coding.ORDERED_LABELS:
            raise ConfigError(
                f"{name}: which value of '{label}' is good for a person? Pass favourable= "
                f"(values: {coding.listed(levels)})"
            )
        favourable = levels[1]
    fields |= {"label": label, "favourable": favourable, "sensitive": attributes, "client": client}
    try:
        task = Task(**fields)
    except ValidationError as error:
        raise ConfigError(f"{name}: {first_problem(error, Task)}") from error
    require_columns(columns, task.named_columns, name)
    return task


def features_frame(frame: Any, task: Task, *, name: str = "the frame") -> pd.DataFrame:
    """Take only the features from a frame, for prediction: no label or group is needed.

    The task must be resolved (``table.task``). Rows are never dropped; a missing value is refused
    where the task says so (``missing="error"``).

    Examples
    --------
    >>> task = Task(label="hired", favourable=1, sensitive=("sex",),
    ...             numeric=("age",), categorical=("sex",))
    >>> features_frame(pd.DataFrame({"sex": ["f", None], "age": ["31", ""]}), task)
        age sex
    0  31.0   f
    1   NaN   ?
    """
    task.require_roles()
    columns = _with_absent(columns_of(read_frame(frame), name, task), task, name)
    require_present(columns, task.features, name)
    coding.refuse_missing(coding.feature_gaps(columns, task), "fill it in")
    return _features(columns, task)


def cells_of(frame: Any, task: Task, *, name: str = "the frame") -> Integers:
    """Return the intersectional cell of each row of a frame, for decisions that depend on it.

    The task must be resolved (``table.task``); every row needs a group of each attribute.

    Examples
    --------
    >>> sex = {"column": "sex", "groups": ("f", "m")}
    >>> task = Task(label="hired", favourable=1, sensitive=(sex,))
    >>> cells_of(pd.DataFrame({"sex": ["m", "f"]}), task).tolist()
    [1, 0]
    """
    columns = _with_absent(columns_of(read_frame(frame), name, task), task, name)
    require_present(columns, [s.column for s in task.sensitive], name)
    gaps = [gap._replace(policy="error") for gap in coding.sensitive_gaps(columns, task)]
    coding.refuse_missing(gaps, "fill it in: decisions depend on the group")
    groups, task = coding.coded_groups(columns, task, coding.Remarks())
    return _cells(groups, task.attributes)


def _cells(groups: npt.NDArray[np.int16], attributes: Sequence[Attribute]) -> Integers:
    if not attributes:
        return np.zeros(len(groups), dtype=np.intp)
    sizes = [attribute.size for attribute in attributes]
    return np.asarray(np.ravel_multi_index(list(groups.T), sizes), dtype=np.intp)


def table_from_columns(
    columns: Columns,
    task: Task,
    *,
    name: str,
    sha256: str | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    """Apply a task to columns that read their cells by its rules (`columns_of`)."""
    sha256 = sha256 or _values_sha256(columns)
    columns = _with_absent(columns, task, name)
    require_columns(columns, task.named_columns, name)
    partial = task.resolved  # one of several files: it may lack values that others hold
    remarks = coding.Remarks(list(notes))
    task = _with_roles(columns, task, name, remarks)
    columns, task = _read_numbers(columns, task, remarks, partial=partial)
    columns, task, places = coding.without_missing(columns, task, remarks, partial=partial)
    y, task = coding.coded_labels(columns[task.label], task, remarks)
    groups, task = coding.coded_groups(columns, task, remarks)
    protected = [sensitive.column for sensitive in task.sensitive]
    for column in dict.fromkeys([task.label, *protected, *(task.categorical or ())]):
        if count := columns[column].coerced:
            line = f"{count} values trimmed (spaces or needless decimals)"
            remarks.add(f"{name}: column '{column}': {line}", kind="merged")
    return Table(
        X=_features(columns, task),
        y=y,
        groups=groups,
        attributes=task.attributes,
        clients=None if task.client is None else columns[task.client].each(str, np.str_),
        task=task,
        name=name,
        sha256=sha256,
        notes=tuple(remarks.notes),
        warnings=tuple(remarks.warnings),
        treatment=tuple(sorted(remarks.treatment, key=lambda done: done.kind)),
        places=places,
    )


def _with_absent(columns: Columns, task: Task, name: str) -> Columns:
    """Add sensitive columns that one of several files lacks: a value is missing in every row.

    For a resolved task only, where missing values have the group ``?``. A column of nearly that
    name is taken for a misspelt one, and nothing is added.
    """
    index, absent = next(iter(columns.values())).series.index, {}
    for s in task.sensitive:
        if task.resolved and MISSING in (s.groups or ()) and not lookalike(s.column, columns):
            cells = pd.Series(None, index=index, name=s.column, dtype=object)
            absent[s.column] = Column(name, cells)
    return {**columns, **absent}


def _with_roles(columns: Columns, task: Task, name: str, remarks: coding.Remarks) -> Task:
    """Fill in numeric and categorical; note columns left out, warn of those that hold both."""
    never = task.not_features
    numeric, categorical = (
        [c for c in stated or () if c not in never] for stated in (task.numeric, task.categorical)
    )
    others = [c for c in columns if c not in {*never, *numeric, *categorical}]
    if task.has_roles:
        protected = {s.column for s in task.sensitive}
        if left_out := ", ".join(c for c in others if c not in protected):
            line = f"{name}: columns without a role, left out: {left_out}"
            remarks.add(line, kind="dropped")
    else:
        for column in (columns[c] for c in others):
            (categorical if column.recognised is None else numeric).append(column.name)
            if column.mixture:
                remarks.add(column.mixture, warn=True)
    if not numeric and not categorical:
        raise DataError(f"{name}: no feature columns are left: list some in numeric, categorical")
    roles = {"numeric": tuple(numeric), "categorical": tuple(categorical)}
    return task.model_copy(update=roles)


def _read_numbers(
    columns: Columns, task: Task, remarks: coding.Remarks, *, partial: bool
) -> tuple[Columns, Task]:
    """Settle the notation of the numeric columns, and keep it in the task unless it is fixed."""
    rules = {}
    for column in (columns[c] for c in task.numeric or ()):
        if example := column.example:
            remarks.add(f"{column.table}: column '{column.name}': {example}")
        for doubt in column.doubts:
            remarks.add(doubt, kind="filled" if doubt == column.unread else None, warn=True)
        columns = {**columns, column.name: column.as_numbers()}
        settled, stated = columns[column.name].rules, task.rules(column.name)
        if settled != stated:
            codes = tuple(c for c in settled.missing_codes if c not in task.missing_codes)
            update = {"missing_codes": codes, "missing": stated.missing}
            rules[column.name] = settled.model_copy(update=update)
    if not partial:
        task = task.model_copy(update={"columns": {**task.columns, **rules}})
    return columns, task


def _features(columns: Columns, task: Task) -> pd.DataFrame:
    numeric: dict[str, Any] = {c: columns[c].numbers for c in task.numeric or ()}
    texts = {c: columns[c].strings for c in task.categorical or ()}
    return pd.DataFrame(numeric | texts)


def _values_sha256(columns: Columns) -> str:
    digest = hashlib.sha256()
    for name, column in columns.items():
        # JSON keeps the borders between values, which plain joining would blur.
        digest.update(f"[{json.dumps(name)}, [".encode())
        digest.update(", ".join(column.each(json.dumps, object)).encode())
        digest.update(b"]]")
    return digest.hexdigest()
