"""From a sensitive column to group codes."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from mfairfl.data.columns import Column
from mfairfl.data.task import Sensitive
from mfairfl.data.text import MISSING
from mfairfl.errors import DataError, unknown

__all__ = ["group_codes", "group_gaps"]

_MOST_GROUPS = 50  # more are a number or an identifier that was meant to be binned


def group_codes(
    column: Column, sensitive: Sensitive
) -> tuple[npt.NDArray[np.int16], Sensitive, tuple[str, ...]]:
    """Code the groups of a column that has no unnamed missing value.

    Returns
    -------
    codes, sensitive, notes
        Codes index ``sensitive.groups``, which is filled in.

    Examples
    --------
    >>> import pandas as pd
    >>> column = Column("people", pd.Series(["m", "f", "f", "m"], name="sex"))
    >>> codes, resolved, notes = group_codes(column, Sensitive(column="sex"))
    >>> codes.tolist(), resolved.groups
    ([1, 0, 0, 1], ('f', 'm'))
    """
    levels = sensitive.levels or tuple(sorted(set(column.texts)))
    if sensitive.levels is None and len(levels) > _MOST_GROUPS:
        raise DataError(
            f"{column.table}: sensitive column '{column.name}' has {len(levels)} distinct values "
            f"('{levels[0]}', '{levels[1]}', ...): form a few groups with bins"
        )
    codes = _binned(column, sensitive, levels) if sensitive.bins else _listed(column, levels)
    outside = codes < 0
    if outside.any():
        if sensitive.rest is None:
            _outside(column, int(outside.argmax()), sensitive, levels)
        codes[outside] = levels.index(sensitive.rest)
    counts = np.bincount(codes, minlength=len(levels))
    notes = _check_members(column, sensitive, levels, counts)
    return codes, sensitive.model_copy(update={"groups": levels}), notes


def group_gaps(column: Column, sensitive: Sensitive) -> npt.NDArray[np.bool_]:
    """Say which rows have no group because their value is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> column = Column("people", pd.Series(["m", "", "f"], name="sex"))
    >>> group_gaps(column, Sensitive(column="sex")).tolist()
    [False, True, False]
    """
    if not sensitive.bins:
        return column.missing & (MISSING not in (sensitive.groups or ()))
    named = [value for b in sensitive.bins for value in b.values or ()]
    intervals = any(b.values is None for b in sensitive.bins)
    gaps = column.missing_number if intervals else column.missing
    return gaps & ~np.isin(column.texts.astype(np.str_), named)


def _listed(column: Column, levels: tuple[str, ...]) -> npt.NDArray[np.int16]:
    code = {level: i for i, level in enumerate(levels)}
    return np.array([code.get(text, -1) for text in column.texts], dtype=np.int16)


def _binned(
    column: Column, sensitive: Sensitive, levels: tuple[str, ...]
) -> npt.NDArray[np.int16]:
    named = {value: b.name for b in sensitive.bins for value in b.values or ()}
    codes = np.array(
        [levels.index(named[t]) if t in named else -1 for t in column.texts], dtype=np.int16
    )
    intervals = [b for b in sensitive.bins if b.values is None]
    if intervals:
        left = np.flatnonzero(codes < 0)
        numbers = Column(column.table, column.series.iloc[left]).numbers
        for b in intervals:
            low, high = b.interval
            codes[left[(low <= numbers) & (numbers <= high)]] = levels.index(b.name)
    return codes


def _outside(
    column: Column, position: int, sensitive: Sensitive, levels: tuple[str, ...]
) -> NoReturn:
    text = column.texts[position]
    if sensitive.bins:
        raise DataError(
            f"{column.place(position)}: '{text}' is in no bin of '{sensitive.name}' "
            f"({', '.join(levels)}): add a bin, or rest= for all other values"
        )
    raise DataError(
        f"{column.place(position)}: {unknown('group', text, levels)}: "
        "add it to groups, or give rest= for all other values"
    )


def _check_members(
    column: Column,
    sensitive: Sensitive,
    levels: tuple[str, ...],
    counts: npt.NDArray[np.intp],
) -> tuple[str, ...]:
    """Refuse groups that cannot be compared, unless the groups were fixed beforehand."""
    where = f"{column.table}: sensitive column '{column.name}'"
    sizes = dict(zip(levels, counts.tolist(), strict=True))
    out = sizes.pop(MISSING, 0)
    notes = (f"{where}: not recorded in {out} of {counts.sum()} rows",) * bool(out)
    if sensitive.groups is not None:
        small = ", ".join(f"'{group}' ({n})" for group, n in sizes.items() if n < 2)
        return notes + (f"{where}: groups with fewer than two members: {small}",) * bool(small)
    if sum(n > 0 for n in sizes.values()) < 2:
        only = max(sizes, key=lambda group: sizes[group], default=MISSING)
        raise DataError(
            f"{where} is constant: every row is in group '{only}': choose another column, or fix "
            "groups= if other files hold the other groups"
        )
    for group, count in sizes.items():
        if count < 2:
            members = "no member" if count == 0 else "one member"
            raise DataError(
                f"{where}: group '{group}' has {members}: merge it with others by bins"
                " (or values and rest)"
            )
    return notes
