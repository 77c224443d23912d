"""Rows as scikit-learn passes them: features, labels, groups and clients, put into one table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, column_or_1d

from mfairfl.data import MISSING, Sensitive, Table, Task, canonical_text, table_from_frame
from mfairfl.data.columns import MOST_GROUPS, Column
from mfairfl.data.files.records import column_names
from mfairfl.data.values import LARGEST
from mfairfl.errors import DataError
from mfairfl.fairness.tally import named_columns

_NESTED = (dict, list, tuple, set, frozenset, np.ndarray)

Values = NDArray[np.object_]


class Labels(NamedTuple):
    """Labels of two classes.

    Parameters
    ----------
    classes : ndarray (2,)
        The values, ascending.
    favourable : int
        Which of them is good for a person.
    codes : ndarray (n,)
        Each row's class.
    name : str
        What the label is called.
    """

    classes: NDArray[Any]
    favourable: int
    codes: NDArray[np.intp]
    name: str = "label"


def label_texts(classes: Iterable[Any]) -> list[str]:
    """Return two classes as a task writes them; 0 and 1 if that would not tell them apart.

    Examples
    --------
    >>> label_texts(["no", "yes"]), label_texts([0.0, 1.0]), label_texts(["?", "x"])
    (['no', 'yes'], ['0', '1'], ['0', '1'])
    """
    texts = [canonical_text(value) for value in classes]
    return ["0", "1"] if MISSING in texts or len(set(texts)) < 2 else texts


def label_column(y: Any) -> NDArray[Any]:
    """Return labels as one column; objects that are all numbers or all booleans as such.

    Examples
    --------
    >>> label_column(np.array([True, False], dtype=object)).dtype
    dtype('bool')
    """
    column: NDArray[Any] = column_or_1d(y, warn=True)
    return pd.Series(column).infer_objects().to_numpy() if column.dtype == object else column


def labels_of(y: Any, favourable: Any = None) -> Labels:
    """Check labels as scikit-learn does; there must be two classes.

    Parameters
    ----------
    y : array (n,)
        Values of any type.
    favourable : label, optional
        The class that is good for a person; None: the second.

    Examples
    --------
    >>> labels = labels_of([True, False, True])
    >>> labels.classes.tolist(), labels.favourable, labels.codes.tolist()
    ([False, True], 1, [1, 0, 1])
    """
    if y is None:
        raise DataError("requires y to be passed, but the target y is None")
    column = label_column(y)
    if (missing := pd.isna(column)).any():
        row = int(missing.argmax())
        raise DataError(f"Input y contains NaN: row {row} has no label ({missing.sum()} in all)")
    assert_all_finite(column, input_name="y")
    kind = type_of_target(column, input_name="y", raise_unknown=True)
    if kind.startswith("continuous"):
        raise DataError(f"Unknown label type: {kind}: y must hold two classes, not a quantity")
    classes, codes = np.unique(column, return_inverse=True)
    values = classes.tolist()
    if kind != "binary":
        raise DataError(
            f"Only binary classification is supported. The type of the target is {kind}, of "
            f"{len(values)} classes"
        )
    if len(values) < 2:
        raise DataError(f"y holds one class only, {values[0]!r}: a classifier needs rows of two")
    if favourable is not None and favourable not in values:
        raise DataError(f"favourable={favourable!r} is not a class of y: give one of {values}")
    place = 1 if favourable is None else values.index(favourable)
    return Labels(classes, place, codes, _name_of(y, "label"))


def features_of(X: Any) -> pd.DataFrame:
    """Return a frame, or a 2-d array, as a pandas frame whose columns have text names.

    The columns of an array are called x0, x1 and so on. Infinities are refused.

    Examples
    --------
    >>> features_of(np.array([[1.0, 2.0]])).columns.tolist()
    ['x0', 'x1']
    """
    if nw.dependencies.is_into_dataframe(X):
        frame = X if isinstance(X, pd.DataFrame) else nw.from_native(X).to_pandas()
        frame = frame.copy(deep=False)
        frame.columns = column_names(list(frame.columns), "X")
    else:
        names = [f"x{i}" for i in range(X.shape[1])]
        frame = pd.DataFrame(X, columns=pd.Index(names, dtype="str"))
    frame = frame.infer_objects()
    frame.index = pd.RangeIndex(len(frame), name="row")
    for name in frame.columns:
        _check_cells(Column("X", frame[name]))
    return frame


def _check_cells(column: Column) -> None:
    """Refuse infinities, and cells that are neither text nor number."""
    series = column.series
    if series.dtype.kind == "f":
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        if (infinite := np.abs(numbers) > LARGEST).any():
            place = column.place(int(infinite.argmax()))
            raise DataError(f"{place}: infinity, or a number above {LARGEST:g}: correct it")
    elif series.dtype == object:
        nested = np.array([isinstance(value, _NESTED) for value in series], dtype=np.bool_)
        if nested.any():
            row = int(nested.argmax())
            raise DataError(
                f"{column.place(row)} holds a {type(series[row]).__name__}: every cell of this "
                "argument must be a string or a number"
            )


def labelled_table(
    features: pd.DataFrame, labels: Labels, sensitive_features: Any, clients: Any
) -> Table:
    """Put features, labels, groups and clients side by side in a table.

    Every column of `features` is a feature. A sensitive column that is among them, by name and in
    every row, is that column; any other is not a feature.

    Parameters
    ----------
    features : DataFrame
        From `features_of`.
    labels : Labels
        From `labels_of`.
    sensitive_features : column, frame, mapping or 2-d array, optional
        The groups, as in `mfairfl.fairness`.
    clients : column, optional
        The client of each row.

    Examples
    --------
    >>> ages = features_of(pd.DataFrame({"age": [31, 45, 27, 52]}))
    >>> hired = labels_of(["yes", "no", "no", "yes"])
    >>> table = labelled_table(ages, hired, {"sex": list("fmfm")}, clients=None)
    >>> table.task.numeric, table.attributes[0].groups, table.y.tolist()
    (('age',), ('f', 'm'), [1, 0, 0, 1])
    """
    frame = features.copy(deep=False)
    for name in features.columns[features.isna().all()]:
        raise DataError(f"X: column '{name}' has no value: remove it")
    sensitive = []
    for name, values in _group_columns(sensitive_features, len(frame)).items():
        column = _place(frame, name, values)
        if column not in frame:
            frame[column] = values
        sensitive.append(_attribute(name, Column("sensitive_features", frame[column])))
    ignore = tuple(s.column for s in sensitive if s.column not in features)
    client = None
    if clients is not None:
        client = _free(_name_of(clients, "client"), frame.columns, "client")
        frame[client] = _client_column(clients, len(frame))
    label = _free(labels.name, frame.columns, "label")
    texts = label_texts(labels.classes.tolist())
    frame[label] = np.array(texts, dtype=object)[labels.codes]
    task = Task(
        label=label,
        favourable=texts[labels.favourable],
        unfavourable=texts[1 - labels.favourable],
        sensitive=tuple(sensitive),
        ignore=ignore,
        client=client,
    )
    return table_from_frame(frame, task)


def raw_rows(
    features: pd.DataFrame,
    columns: Sequence[str],
    task: Task,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
) -> pd.DataFrame:
    """Return new rows with the columns of the table that a model was trained on.

    Parameters
    ----------
    features : DataFrame
        From `features_of`; columns are taken in their order, whatever they are called.
    columns : sequence of str
        What they were called in training.
    task : Task
        The table's.
    sensitive_features, clients
        As in `labelled_table`; left out where they are not given.
    """
    frame = features.set_axis(list(columns), axis=1)
    if sensitive_features is not None and task.sensitive:
        groups = _group_columns(sensitive_features, len(frame), task)
        for s in task.sensitive:
            if s.column not in frame:
                frame[s.column] = groups[s.name]
            elif (different := ~_same(frame[s.column], groups[s.name])).any():
                raise DataError(
                    f"sensitive_features, row {int(different.argmax())}: '{s.name}' is not what "
                    f"the column '{s.column}' of X says: both are the same column in training"
                )
    if clients is not None and task.client is not None:
        frame[task.client] = _client_column(clients, len(frame))
    return frame


def _group_columns(
    sensitive_features: Any, rows: int, task: Task | None = None
) -> Mapping[str, Values]:
    """Return the sensitive columns by name; with a task, those it knows."""
    if sensitive_features is None:
        return {}
    columns = named_columns(sensitive_features, None if task is None else task.attributes)
    if not columns:
        raise DataError("sensitive_features has no column: give one, or remove it")
    return {
        name.strip() or "sensitive_feature": _values(values, rows, f"sensitive_features '{name}'")
        for name, values in columns.items()
    }


def _values(values: Any, rows: int, what: str) -> Values:
    column = np.asarray(values, dtype=object)
    if column.shape != (rows,):
        raise DataError(f"{what} has shape {column.shape}; give one value for each of {rows} rows")
    return column


def _client_column(clients: Any, rows: int) -> Values:
    """Return each row's client; a row without one would be lost."""
    column = _values(clients, rows, "clients")
    missing = np.array([canonical_text(value) == MISSING for value in column], dtype=np.bool_)
    if missing.any():
        raise DataError(
            f"clients: row {int(missing.argmax())} has none ({missing.sum()} in all); name them"
        )
    return column


def _attribute(name: str, column: Column) -> Sensitive:
    """Return an attribute with the groups that occur, however few members they have.

    Parts of the rows, as cross-validation takes them, may hold one member of a small group.
    """
    groups = tuple(column.levels)
    where = f"sensitive_features '{name}'"
    if len(groups) < 2:
        only = f"every row is in group '{groups[0]}'" if groups else "no row has a value"
        raise DataError(f"{where}: {only}, so there is nothing to compare: remove it")
    if len(groups) > MOST_GROUPS:
        raise DataError(
            f"{where}: {len(groups)} different values ('{groups[0]}', '{groups[1]}', ...): form "
            f"at most {MOST_GROUPS} groups, for example with pandas.cut"
        )
    return Sensitive(column=column.name, name=name, groups=groups)


def _place(frame: pd.DataFrame, name: str, values: Values) -> str:
    """Return the column for a group: the feature of its name if both are equal, or a new one."""
    if name in frame and _same(frame[name], values).all():
        return name
    return _free(name, frame.columns, "group")


def _same(series: pd.Series[Any], values: Values) -> NDArray[np.bool_]:
    mine, theirs = (Column("X", s).texts for s in (series, pd.Series(values)))
    return np.asarray(mine == theirs, dtype=np.bool_)


def _name_of(column: Any, default: str) -> str:
    return str(getattr(column, "name", None) or default).strip() or default


def _free(name: str, taken: Collection[str], role: str) -> str:
    """Return a name that no other column has."""
    while name in taken:
        name = f"{name} ({role})"
    return name
