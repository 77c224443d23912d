"""From raw columns to codes: the label, the groups, and rows whose value is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from mfairfl.data.columns import MOST_GROUPS, Column, Columns
from mfairfl.data.task import Sensitive, Task
from mfairfl.data.values import MISSING
from mfairfl.errors import DataError, unknown

ORDERED_LABELS = (["0", "1"], ["-1", "1"], ["False", "True"], ["false", "true"])
"""Labels whose second value is the favourable one, whatever they are about."""

_TRUE = frozenset({"true", "yes", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "n", "f", "0"})


def spelling(text: str) -> str:
    """Return what a label says, whatever its case: true, True, yes and 1 are one answer.

    Examples
    --------
    >>> spelling("Yes"), spelling("1"), spelling(">50K")
    ('true', 'true', '>50k')
    """
    plain = text.casefold()
    return "true" if plain in _TRUE else "false" if plain in _FALSE else plain


def label_codes(found: Iterable[str], task: Task) -> dict[str, int]:
    """Return 1 for every text that is the favourable label and 0 for every other that is known.

    Texts are compared as they are. Where that does not make two values of them, spellings of one
    answer are taken together: true, True, 1 and yes are told apart only where they differ. Texts
    that are neither value have no code.

    Examples
    --------
    >>> task = Task(label="hired", favourable="true", sensitive=("sex",))
    >>> label_codes(["1", "False", "True", "no"], task)
    {'1': 1, 'False': 0, 'True': 1, 'no': 0}
    >>> label_codes(["1", "yes"], task.model_copy(update={"favourable": "yes"}))
    {'1': 0, 'yes': 1}
    """
    texts = sorted(set(found))
    exact = _label_codes({text: text for text in texts}, task.favourable, task.unfavourable, task)
    folded = {text: spelling(text) for text in texts}
    other = None if task.unfavourable is None else spelling(task.unfavourable)
    if len(exact) == len(texts) or other == spelling(task.favourable):
        return exact
    alike = _label_codes(folded, spelling(task.favourable), other, task)
    return alike if len(alike) == len(texts) else exact


def _label_codes(
    said: dict[str, str], favourable: str, unfavourable: str | None, task: Task
) -> dict[str, int]:
    """Code each text by what it says, as long as there are two values in all."""
    others = {what for what in said.values() if what != favourable}
    if favourable not in said.values() and unfavourable is None:
        return {}
    if task.others_unfavourable:
        known = others
    elif unfavourable is not None:
        known = others & {unfavourable}
    else:
        known = others if len(others) == 1 else set()
    return {
        text: int(what == favourable)
        for text, what in said.items()
        if what == favourable or what in known
    }


def coded_labels(
    column: Column, task: Task
) -> tuple[npt.NDArray[np.int8], Task, list[str], list[str]]:
    """Code the label, 1 = favourable, and fill in the unfavourable value.

    Returns
    -------
    y, task, notes, respelt
        `respelt` says which values were taken for which.
    """
    where = f"{column.table}: label column '{column.name}'"
    found = list(column.levels)
    codes = label_codes(found, task)
    if task.unfavourable is None and len(found) == 1:
        raise DataError(f"{where} holds only '{found[0]}': a model needs rows with both values")
    if len(codes) < len(found):
        _refuse_labels(column, task, codes)
    if task.unfavourable is None:
        other = min((text for text in found if not codes[text]), key=lambda t: -column.levels[t])
        other = f"not {task.favourable}" if task.others_unfavourable else other
        task = task.model_copy(update={"unfavourable": other})
    notes, respelt = [], []
    if len(found) == 1:
        notes.append(f"{where} holds only {listed(found)}")
    for code, value in ((1, task.favourable), (0, task.unfavourable)):
        alike = [text for text in found if codes[text] == code and text != value]
        if alike and (code or not task.others_unfavourable):
            respelt.append(f"{where}: {listed(alike)} means '{value}' (case and spelling aside)")
        elif len(alike) > 1:
            respelt.append(f"{where}: {listed(alike)} all count as unfavourable")
    # Every row has a label here; `get` is for the text of a missing one, which no row holds.
    y = column.each(lambda text: codes.get(text, -1), np.int8)
    return y, task, notes, respelt


def _refuse_labels(column: Column, task: Task, codes: Mapping[str, int]) -> NoReturn:
    """Refuse a label with values that are neither favourable nor unfavourable."""
    where = f"{column.table}: label column '{column.name}'"
    found = list(column.levels)
    if task.unfavourable is not None:
        strange = next(text for text in found if text not in codes)
        position = int(column.each(strange.__eq__, np.bool_).argmax())
        raise DataError(
            f"{column.place(position)}: label '{strange}' is neither favourable "
            f"('{task.favourable}') nor unfavourable ('{task.unfavourable}'): correct it"
        )
    if spelling(task.favourable) not in map(spelling, found):
        raise DataError(
            f"{where} never holds the favourable value '{task.favourable}': "
            f"set favourable to one of {listed(found)}"
        )
    raise DataError(
        f"{where} has {len(found)} distinct values ({listed(found)}): choose a column with "
        "exactly two, or set others_unfavourable (--others-unfavourable) to count every value but "
        f"'{task.favourable}' as unfavourable"
    )


def listed(values: Sequence[str]) -> str:
    """Quote the first few values.

    Examples
    --------
    >>> listed(["no", "yes"])
    "'no', 'yes'"
    """
    return ", ".join(f"'{value}'" for value in values[:5]) + ", ..." * (len(values) > 5)


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
    >>> column = Column("people", pd.Series(["m", "f", "f", "m"], name="sex"))
    >>> codes, resolved, notes = group_codes(column, Sensitive(column="sex"))
    >>> codes.tolist(), resolved.groups
    ([1, 0, 0, 1], ('f', 'm'))
    """
    levels = sensitive.levels or tuple(sorted(column.counts))
    if sensitive.levels is None and len(levels) > MOST_GROUPS:
        raise DataError(
            f"{column.table}: sensitive column '{column.name}' has {len(levels)} distinct values "
            f"('{levels[0]}', '{levels[1]}', ...): form a few groups with bins"
        )
    codes = _group_codes(column, sensitive, levels)
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
    >>> column = Column("people", pd.Series(["m", "", "f"], name="sex"))
    >>> group_gaps(column, Sensitive(column="sex")).tolist()
    [False, True, False]
    """
    if not sensitive.bins:
        return column.missing & (MISSING not in (sensitive.groups or ()))
    gaps = column.missing_number if sensitive.intervals else column.missing
    listed: npt.NDArray[np.bool_] = column.each(sensitive.bin_of_value.__contains__, np.bool_)
    return gaps & ~listed


def _group_codes(
    column: Column, sensitive: Sensitive, levels: tuple[str, ...]
) -> npt.NDArray[np.int16]:
    """Code each row's group as an index into `levels`; -1 where the value is in none."""
    names = sensitive.bin_of_value if sensitive.bins else {level: level for level in levels}
    code = {value: levels.index(name) for value, name in names.items()}
    codes = column.each(lambda text: code.get(text, -1), np.int16)
    if sensitive.intervals:
        left = np.flatnonzero(codes < 0)
        numbers = column.take(codes < 0).numbers
        for b in sensitive.intervals:
            low, high = b.interval
            codes[left[(low <= numbers) & (numbers <= high)]] = levels.index(b.name)
    return codes


def _outside(
    column: Column, position: int, sensitive: Sensitive, levels: tuple[str, ...]
) -> NoReturn:
    text = column.text(position)
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
