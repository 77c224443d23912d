"""From raw columns to codes: the label, the groups, and rows whose value is missing.

Each step adds lines to the table's `Remarks`: what was left out, filled in or merged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from mfairfl.data.columns import MOST_GROUPS, Column, Columns
from mfairfl.data.task import Sensitive, Task
from mfairfl.data.values import MISSING, Integers, Labels, Mask, Policy
from mfairfl.errors import DataError, unknown

ORDERED_LABELS = (["0", "1"], ["-1", "1"], ["False", "True"], ["false", "true"])
"""Labels whose second value is the favourable one, regardless of their meaning."""

_TRUE = frozenset({"true", "yes", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "n", "f", "0"})


MANY_ROWS = 0.05
"""Leaving out a larger share of rows is a warning."""
MOVED_RATE = 0.01
"""So is moving the share of favourable labels by more."""
_MOST_SHOWN = 10  # groups that a warning counts

TreatmentKind = Literal["dropped", "filled", "merged", "proxy"]
"""Rows or columns left out, values filled in, values merged, a feature that reveals the group."""


class Treated(NamedTuple):
    """One line about what was done, or about what a feature gives away."""

    kind: TreatmentKind
    line: str


@dataclass(slots=True)
class Remarks:
    """What an auditor should know about how a table was made, in the order in which it was.

    Examples
    --------
    >>> remarks = Remarks()
    >>> remarks.add("column 'age': 3 of 9 values missing, kept", kind="filled")
    >>> remarks.add("column 'age' holds only numbers below 1", warn=True)
    >>> remarks.notes, len(remarks.warnings), remarks.treatment[0].kind
    (["column 'age': 3 of 9 values missing, kept"], 1, 'filled')
    """

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    treatment: list[Treated] = field(default_factory=list)

    def add(self, line: str, *, kind: TreatmentKind | None = None, warn: bool = False) -> None:
        """Add a line as a note or as a warning; with a `kind` it is part of the treatment."""
        (self.warnings if warn else self.notes).append(line)
        if kind is not None:
            self.treatment.append(Treated(kind, line))


def spelling(text: str) -> str:
    """Return what a label means regardless of case: true, True, yes and 1 are one answer.

    Examples
    --------
    >>> spelling("Yes"), spelling("1"), spelling(">50K")
    ('true', 'true', '>50k')
    """
    plain = text.casefold()
    return "true" if plain in _TRUE else "false" if plain in _FALSE else plain


def label_codes(labels: Iterable[str], task: Task) -> dict[str, int]:
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
    texts = sorted(set(labels))
    exact = _codes_by_meaning({t: t for t in texts}, task.favourable, task.unfavourable, task)
    other = None if task.unfavourable is None else spelling(task.unfavourable)
    if len(exact) == len(texts) or other == spelling(task.favourable):
        return exact
    meanings = {text: spelling(text) for text in texts}
    alike = _codes_by_meaning(meanings, spelling(task.favourable), other, task)
    return alike if len(alike) == len(texts) else exact


def _codes_by_meaning(
    meanings: Mapping[str, str], favourable: str, unfavourable: str | None, task: Task
) -> dict[str, int]:
    """Code each text by its meaning, as long as there are two meanings in all."""
    others = set(meanings.values()) - {favourable}
    if favourable not in meanings.values() and unfavourable is None:
        return {}
    if not task.others_unfavourable and (unfavourable is not None or len(others) > 1):
        others &= {unfavourable}
    coded = {favourable, *others}
    return {text: int(m == favourable) for text, m in meanings.items() if m in coded}


def coded_labels(column: Column, task: Task, remarks: Remarks) -> tuple[Labels, Task]:
    """Code the label, 1 = favourable, and fill in the unfavourable value."""
    where = f"{column.table}: label column '{column.name}'"
    levels = list(column.levels)
    codes = label_codes(levels, task)
    if task.unfavourable is None and len(levels) == 1:
        raise DataError(f"{where} holds only '{levels[0]}': a model needs rows with both values")
    if len(codes) < len(levels):
        _refuse_labels(column, task, codes)
    if task.unfavourable is None:
        other = min((text for text in levels if not codes[text]), key=lambda t: -column.levels[t])
        other = f"not {task.favourable}" if task.others_unfavourable else other
        task = task.model_copy(update={"unfavourable": other})
    if len(levels) == 1:
        remarks.add(f"{where} holds only {listed(levels)}")
    for line in _merged_labels(column, task, codes):
        remarks.add(line, kind="merged")
    # Every row has a label here; `get` is for the text of a missing one, which no row holds.
    return column.each(lambda text: codes.get(text, -1), np.int8), task


def _merged_labels(column: Column, task: Task, codes: Mapping[str, int]) -> Iterator[str]:
    """Yield which values of the label are taken together."""
    where = f"{column.table}: label column '{column.name}'"
    for code, value in ((1, task.favourable), (0, task.unfavourable)):
        alike = [text for text in column.levels if codes[text] == code and text != value]
        if task.others_unfavourable and not code:
            if len(alike) > 1:
                yield f"{where}: {listed(alike)} all count as unfavourable"
        elif alike:
            yield f"{where}: {listed(alike)} means '{value}' (case and spelling aside)"


def _refuse_labels(column: Column, task: Task, codes: Mapping[str, int]) -> NoReturn:
    """Refuse a label with values that are neither favourable nor unfavourable."""
    where = f"{column.table}: label column '{column.name}'"
    levels = list(column.levels)
    if task.unfavourable is not None:
        strange = next(text for text in levels if text not in codes)
        position = int(column.each(strange.__eq__, np.bool_).argmax())
        raise DataError(
            f"{column.place(position)}: label '{strange}' is neither favourable "
            f"('{task.favourable}') nor unfavourable ('{task.unfavourable}'): correct it"
        )
    if spelling(task.favourable) not in map(spelling, levels):
        raise DataError(
            f"{where} never holds the favourable value '{task.favourable}': "
            f"set favourable to one of {listed(levels)}"
        )
    raise DataError(
        f"{where} has {len(levels)} distinct values ({listed(levels)}): choose a column with "
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


def coded_groups(
    columns: Columns, task: Task, remarks: Remarks
) -> tuple[npt.NDArray[np.int16], Task]:
    """Code the groups of every attribute, (rows, A), and fill in which there are."""
    rows = len(next(iter(columns.values())).series)
    codes, sensitive = np.empty((rows, len(task.sensitive)), np.int16), list(task.sensitive)
    for i, s in enumerate(task.sensitive):
        codes[:, i], sensitive[i] = group_codes(columns[s.column], s, remarks)
    return codes, task.model_copy(update={"sensitive": tuple(sensitive)})


def group_codes(
    column: Column, sensitive: Sensitive, remarks: Remarks | None = None
) -> tuple[npt.NDArray[np.int16], Sensitive]:
    """Code the groups of a column that has no unnamed missing value.

    Returns
    -------
    codes, sensitive
        Codes index ``sensitive.groups``, which is filled in.

    Examples
    --------
    >>> import pandas as pd
    >>> column = Column("people", pd.Series(["m", "f", "f", "m"], name="sex"))
    >>> codes, resolved = group_codes(column, Sensitive(column="sex"))
    >>> codes.tolist(), resolved.groups
    ([1, 0, 0, 1], ('f', 'm'))
    """
    levels = sensitive.levels or tuple(sorted(column.counts))
    if not sensitive.levels and len(levels) > MOST_GROUPS:
        raise DataError(
            f"{column.table}: sensitive column '{column.name}' has {len(levels)} distinct values "
            f"('{levels[0]}', '{levels[1]}', ...): form a few groups with bins"
        )
    names = sensitive.bin_of_value if sensitive.bins else dict(zip(levels, levels, strict=True))
    by_text = {text: levels.index(name) for text, name in names.items()}
    codes = column.each(lambda text: by_text.get(text, -1), np.int16)
    if sensitive.intervals:
        others = np.flatnonzero(codes < 0)
        numbers = column.take(codes < 0).numbers
        for interval in sensitive.intervals:
            low, high = interval.interval
            codes[others[(low <= numbers) & (numbers <= high)]] = levels.index(interval.name)
    outside = codes < 0
    if outside.any():
        if sensitive.rest is None:
            _refuse_group(column, int(outside.argmax()), sensitive, levels)
        codes[outside] = levels.index(sensitive.rest)
    sizes = dict(zip(levels, np.bincount(codes, minlength=len(levels)).tolist(), strict=True))
    _check_groups(column, sensitive, sizes, Remarks() if remarks is None else remarks)
    return codes, sensitive.model_copy(update={"groups": levels})


def group_gaps(column: Column, sensitive: Sensitive) -> Mask:
    """Return which rows have no group because their value is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> column = Column("people", pd.Series(["m", "", "f"], name="sex"))
    >>> group_gaps(column, Sensitive(column="sex")).tolist()
    [False, True, False]
    """
    if not sensitive.bins:
        return column.missing & (MISSING not in (sensitive.groups or ()))
    gaps = column.missing_number if sensitive.intervals else column.missing
    in_bin: Mask = column.each(sensitive.bin_of_value.__contains__, np.bool_)
    return gaps & ~in_bin


def _refuse_group(
    column: Column, position: int, sensitive: Sensitive, levels: tuple[str, ...]
) -> NoReturn:
    text, add = column.text(position), "add it to groups"
    problem = unknown("group", text, levels)
    if sensitive.bins:
        add = "add a bin"
        problem = f"'{text}' is in no bin of '{sensitive.name}' ({', '.join(levels)})"
    raise DataError(f"{column.place(position)}: {problem}: {add}, or rest= for all other values")


def _check_groups(
    column: Column, sensitive: Sensitive, sizes: dict[str, int], remarks: Remarks
) -> None:
    """Refuse groups that cannot be compared, unless the groups were fixed beforehand."""
    where = f"{column.table}: sensitive column '{column.name}'"
    rows = sum(sizes.values())
    if unrecorded := sizes.pop(MISSING, 0):
        remarks.add(f"{where}: not recorded in {unrecorded} of {rows} rows")
    if sensitive.groups is not None:
        if small := ", ".join(f"'{group}' ({n})" for group, n in sizes.items() if n < 2):
            remarks.add(f"{where}: groups with fewer than two members: {small}")
        return
    if sum(n > 0 for n in sizes.values()) < 2:
        only = max(sizes, key=lambda group: sizes[group], default=MISSING)
        raise DataError(
            f"{where} is constant: every row is in group '{only}': choose another column, or fix "
            "groups= if other files hold the other groups"
        )
    if few := [group for group, count in sizes.items() if count < 2]:
        members = "one member" if sizes[few[0]] else "no member"
        raise DataError(f"{where}: group '{few[0]}' has {members}: merge it with others by bins")


class Gap(NamedTuple):
    """Rows of a column that have no value, and what happens to them."""

    column: Column
    rows: Mask
    policy: Policy

    @property
    def extent(self) -> str:
        """How many rows have no value, in words."""
        return f"{self.rows.sum()} of {len(self.rows)}"


def without_missing(
    columns: Columns, task: Task, remarks: Remarks, *, partial: bool
) -> tuple[Columns, Task, Integers | None]:
    """Leave out rows without a label or a client, and apply the policy to other gaps.

    A feature without any value is refused, unless the table is one of several (`partial`).

    Returns
    -------
    columns, task, places
        The task has the group ``?`` where a sensitive value is missing. `places` are the rows
        that are left, or None if all are.
    """
    features, groups = feature_gaps(columns, task), sensitive_gaps(columns, task)
    empty = next((gap.column for gap in features if gap.rows.all()), None)
    if empty is not None and not partial:
        raise DataError(f"{empty.table}: column '{empty.name}' has no value: list it in ignore")
    keys = [columns[key] for key in (task.label, task.client) if key is not None]
    gaps = [Gap(column, column.missing, _key_policy(task, column.name)) for column in keys]
    gaps += [*groups, *features]
    refuse_missing(gaps, "fill it in, or set missing='level' or 'drop'")
    sensitive = list(task.sensitive)
    for i, (column, rows, policy) in enumerate(groups):
        if policy == "level" and rows.any():
            sensitive[i] = sensitive[i].with_unrecorded(list(column.levels))
    task = task.model_copy(update={"sensitive": tuple(sensitive)})
    places = None
    if dropping := [gap for gap in gaps if gap.policy == "drop" and gap.rows.any()]:
        lost = np.any([gap.rows for gap in dropping], axis=0)
        _note_dropped(dropping, lost, columns, task, remarks)
        columns = {c: column.take(~lost) for c, column in columns.items()}
        places = np.flatnonzero(~lost)
    _note_filled(features, task, remarks)
    return columns, task, places


def _key_policy(task: Task, column: str) -> Policy:
    """Return what happens to rows without a label or a client, which nothing can stand for."""
    return "error" if task.policy(column) == "error" else "drop"


def _note_filled(features: Sequence[Gap], task: Task, remarks: Remarks) -> None:
    for gap in features:
        if gap.policy == "level" and gap.rows.any():
            numeric = gap.column.name in (task.numeric or ())
            fate = "filled with the mean and marked" if numeric else "kept as the level '?'"
            line = f"{gap.column.table}: column '{gap.column.name}': {gap.extent} values missing"
            remarks.add(f"{line}, {fate}", kind="filled")


def _note_dropped(
    gaps: Sequence[Gap],
    lost: Mask,
    columns: Columns,
    task: Task,
    remarks: Remarks,
) -> None:
    """Note how many rows are left out, and warn if that changes the table; refuse to lose all."""
    name = gaps[0].column.table
    counts = ", ".join(f"{gap.column.name} {gap.rows.sum()}" for gap in gaps)
    if lost.all():
        raise DataError(
            f"{name}: every row has a missing value where none may be ({counts}): use "
            "missing='level', or choose other columns"
        )
    line = f"{name}: {lost.sum()} of {len(lost)} rows left out, missing values ({counts})"
    effect = _effect_of_leaving_out(lost, columns, task)
    remarks.add("; ".join([line, *effect]), kind="dropped", warn=bool(effect))


def _effect_of_leaving_out(lost: Mask, columns: Columns, task: Task) -> list[str]:
    """Return how leaving out rows changes the table; nothing if it hardly does."""
    labels = columns[task.label]
    codes = label_codes(labels.levels, task)
    y = labels.each(lambda text: codes.get(text, -1), np.int64)
    before, after = ((y[rows] == 1).mean() for rows in (y >= 0, (y >= 0) & ~lost))
    if lost.mean() <= MANY_ROWS and abs(after - before) <= MOVED_RATE:
        return []
    label = f"{task.label} = {task.favourable}"
    effect = [f"{label} in {before:.1%} of the rows before, {after:.1%} now"]
    for sensitive in task.sensitive:
        column = columns[sensitive.column]
        gone = column.take(lost).counts
        groups = sorted(column.counts.items())[:_MOST_SHOWN]
        shown = ", ".join(f"{g} {gone[g]} of {rows}" for g, rows in groups if gone[g])
        effect.append(f"rows left out by {sensitive.name}: {shown or 'none'}")
    return effect


def feature_gaps(columns: Columns, task: Task) -> list[Gap]:
    """List the feature columns with their missing rows, except those that are a group."""
    groups, gaps = {s.column: s for s in task.sensitive}, list[Gap]()
    for name in task.features:
        column = columns[name]
        rows = column.missing_number if name in (task.numeric or ()) else column.missing
        if name in groups:
            rows = rows & group_gaps(column, groups[name])
        gaps.append(Gap(column, rows, task.policy(name)))
    return gaps


def sensitive_gaps(columns: Columns, task: Task) -> list[Gap]:
    """List each attribute's rows that have no group."""
    return [
        Gap(columns[s.column], group_gaps(columns[s.column], s), task.policy(s.column))
        for s in task.sensitive
    ]


def refuse_missing(gaps: Sequence[Gap], fix: str) -> None:
    """Refuse the first missing value in a column that may have none."""
    for gap in gaps:
        if gap.policy == "error" and gap.rows.any():
            place = gap.column.place(int(gap.rows.argmax()))
            raise DataError(f"{place}: value missing, in {gap.extent} rows: {fix}")
