"""From what a user holds (lists, arrays, frames) to checked codes."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import MISSING, Attribute
from mfairfl.errors import DataError, require_known


def binary_column(values: Any, name: str) -> NDArray[np.intp]:
    """Return `values` as an array of 0 and 1, or say which row is neither.

    Examples
    --------
    >>> binary_column([True, False, 1.0], "y_true").tolist()
    [1, 0, 1]
    """
    column = _column(values, name)
    is_one = np.asarray(column == 1, dtype=bool)
    wrong = np.flatnonzero(~is_one & np.asarray(column != 0, dtype=bool))
    if wrong.size:
        raise DataError(
            f"{name}: row {wrong[0]} holds {column[wrong[0]]!r}; use 0 and 1 (1 = favourable), "
            f"for example ({name} == favourable).astype(int)"
        )
    return is_one.astype(np.intp)


def coded_column(
    values: Any, name: str, groups: tuple[str, ...] | None = None
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the code of each row and the names the codes stand for.

    Without `groups` the names are the values that occur, sorted (numbers as numbers), ``?`` last.

    Examples
    --------
    >>> codes, names = coded_column([10, 9, 10], "age")
    >>> codes.tolist(), names
    ([1, 0, 1], ('9', '10'))
    """
    column = _column(values, name)
    codes, found = pd.factorize(column)
    uniques = list(found)
    if groups is None:
        known = [value for value in uniques if value != MISSING]
        numeric = all(isinstance(value, Number) for value in known)
        ordered = sorted(known) if numeric else sorted(known, key=str)
        groups = (*map(str, ordered), *[MISSING] * (len(known) < len(uniques)))
        if len(set(groups)) < len(groups):
            twice = next(group for group in groups if groups.count(group) > 1)
            raise DataError(f"{name}: {twice!r} occurs as text and as a number; use one type")
    place = {group: index for index, group in enumerate(groups)}
    require_known("group", map(str, uniques), groups, DataError, where=name)
    recode = np.array([place[str(value)] for value in uniques], dtype=np.intp)
    return (recode[codes] if len(codes) else np.zeros(0, dtype=np.intp)), groups


def group_column(
    values: Any, name: str, groups: tuple[str, ...] | None = None
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return what `coded_column` does; a missing value has the group ``?``: not recorded.

    Groups that are given without it allow no missing value.

    Examples
    --------
    >>> codes, names = group_column(["m", None, "f"], "sex")
    >>> codes.tolist(), names
    ([1, 2, 0], ('f', 'm', '?'))
    """
    if groups is None or MISSING in groups:
        column = np.asarray(values, dtype=object)
        values = np.where(pd.isna(column), MISSING, column)
    return coded_column(values, name, groups)


def named_columns(
    sensitive_features: Any, attributes: tuple[Attribute, ...] | None
) -> dict[str, Any]:
    """Return the sensitive columns by name, from a column, an array, a frame or a mapping."""
    columns: dict[str, Any]
    stated = [attribute.name for attribute in attributes or ()]
    if isinstance(sensitive_features, Mapping):
        columns = {str(name): column for name, column in sensitive_features.items()}
    elif hasattr(sensitive_features, "columns"):
        columns = {str(name): sensitive_features[name] for name in sensitive_features.columns}
    elif np.ndim(sensitive_features) == 2:
        table = np.asarray(sensitive_features, dtype=object)
        columns = {f"sensitive_feature_{i}": table[:, i] for i in range(table.shape[1])}
        if len(stated) == len(columns):
            columns = dict(zip(stated, columns.values(), strict=True))
    else:
        only = stated[0] if len(stated) == 1 else None
        name = only or getattr(sensitive_features, "name", None) or "sensitive_feature"
        columns = {str(name): sensitive_features}
    if attributes is None:
        return columns
    if set(columns) != set(stated):
        raise DataError(f"sensitive_features has columns {sorted(columns)}; expected {stated}")
    return {name: columns[name] for name in stated}


def _column(values: Any, name: str) -> NDArray[Any]:
    """Return `values` as a one-dimensional object array without missing entries."""
    column = np.asarray(values, dtype=object)
    if column.ndim != 1:
        raise DataError(f"{name}: has shape {column.shape}; give one value per row")
    missing = np.flatnonzero(pd.isna(column))
    if missing.size:
        raise DataError(
            f"{name}: row {missing[0]} is missing ({missing.size} in all); drop or fill them"
        )
    return column
