"""Agree on one task over files that stay where they are.

Each client describes its file: columns, whether they hold numbers, how often each value of a text
column occurs. With a floor, values in so many rows are named, and nothing is counted. The majority
decides what a column is; a client whose file does not fit is refused, with a list of what
differs. A file may lack a sensitive column, or values of it, that others hold: those rows get the
group ``?``.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from mfairfl.data.coding import Treated, label_codes
from mfairfl.data.columns import MOST_GROUPS, Column, Columns, lookalike
from mfairfl.data.sums import MOST_ROWS
from mfairfl.data.task import Sensitive, Task
from mfairfl.data.values import MISSING, StrictModel, canonical_text
from mfairfl.errors import DataError, unknown

MOST_COLUMNS = 4096
"""Columns of a file."""

MOST_CELLS = 1024
"""Combinations of groups that files can agree on: each of them has its own counts."""

_LONGEST = 1000  # characters of a name or a value
_SHOWN = 5  # differences that a refusal lists
_NOTES = 20  # columns in few files that are named

_Count = Annotated[int, Field(ge=0, le=MOST_ROWS)]
_Name = Annotated[str, Field(max_length=_LONGEST)]


class ColumnProfile(StrictModel):
    """One column: how many values are text, and how often each value occurs.

    Parameters
    ----------
    values, texts, missing : int
        Rows with a value, those whose value is not a number, rows without a value.
    numeric : bool
        Whether the column is one of numbers; if so, its `texts` are read as missing.
    dates : bool
        Whether these numbers are written as dates or times.
    levels : dict of str to int
        How many rows hold each value; empty for a column of numbers.
    """

    model_config = ConfigDict(strict=True)

    name: _Name
    values: _Count
    texts: _Count
    missing: _Count
    numeric: bool = False
    dates: bool = False
    levels: dict[_Name, _Count]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.texts > self.values:
            raise ValueError("more texts than values")
        if sum(self.levels.values()) > self.values + self.missing:
            raise ValueError("levels in more rows than there are")
        # Two spellings of one value would be one group twice.
        if odd := [level for level in self.levels if level != canonical_text(level)]:
            raise ValueError(f"level {odd[0]!r} is not written as mfairfl writes values")
        return self

    @property
    def not_numbers(self) -> str:
        """How many values are texts, in words."""
        return f"{self.texts} of {self.values} values are not numbers"


class Profile(StrictModel):
    """What a client discloses about its file before anything is agreed.

    Parameters
    ----------
    floor : int
        The fewest rows that the client discloses. If it is above 1, nothing here is a count:
        `rows` is rounded up, every level that is named has `floor` rows, and whether other values
        occur, or some are missing, stays unknown.
    """

    model_config = ConfigDict(strict=True)

    client: _Name
    rows: _Count
    floor: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1
    columns: tuple[ColumnProfile, ...] = Field(strict=False, max_length=MOST_COLUMNS)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self._by_name) < len(self.columns):
            raise ValueError("a column occurs twice")
        for column in self.columns:
            if column.values + column.missing != self.rows:
                raise ValueError(f"column '{column.name}' does not have {self.rows} rows")
        return self

    @cached_property
    def _by_name(self) -> dict[str, ColumnProfile]:
        return {column.name: column for column in self.columns}

    def among(self, names: Iterable[str]) -> list[ColumnProfile]:
        """Return those of some columns that the file has, in their order."""
        return [self._by_name[name] for name in names if name in self._by_name]

    def levels(self, name: str) -> Mapping[str, int]:
        """Return the values that the file names in a column; none if it lacks the column."""
        return self._by_name[name].levels if name in self._by_name else {}


@dataclass(frozen=True, slots=True)
class Agreement:
    """The resolved task, why clients are refused, and what is done to columns and cells."""

    task: Task
    refused: Mapping[str, tuple[str, ...]]
    treatment: tuple[Treated, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What an auditor should know."""
        return tuple(treated.line for treated in self.treatment)


def describe_columns(columns: Columns, task: Task, client: str, *, floor: int = 1) -> Profile:
    """Describe a file; with a floor, name values that so many rows hold, and count nothing."""
    named = {task.label, *(s.column for s in task.sensitive), *(task.categorical or ())}
    left_out = {*task.ignore, task.client}
    profiles = [
        _described(column, named=name in named)
        for name, column in columns.items()
        if name not in left_out
    ]
    rows = max(len(column.series) for column in columns.values())
    if floor > 1:
        rows = _rounded_up(rows)
        profiles = [_without_counts(profile, rows, floor) for profile in profiles]
    return Profile(client=client, rows=rows, columns=tuple(profiles), floor=floor)


def _described(column: Column, *, named: bool) -> ColumnProfile:
    """Describe a column; values of one of numbers are counted only where the task names it."""
    missing, numeric = int(column.missing.sum()), column.recognised is not None
    return ColumnProfile(
        name=column.name,
        values=len(column.series) - missing,
        texts=int(column.not_numbers.sum()),
        missing=missing,
        numeric=numeric,
        dates=column.dated,
        levels=column.levels if named or not numeric else {},
    )


def _without_counts(column: ColumnProfile, rows: int, floor: int) -> ColumnProfile:
    """Keep the values that `floor` rows hold; no number depends on the rows any more."""
    values, missing = (rows, 0) if column.values else (0, rows)
    levels = {value: floor for value, n in column.levels.items() if n >= floor}
    counts = {"values": values, "texts": 0, "missing": missing, "levels": levels}
    return column.model_copy(update=counts)


def _rounded_up(rows: int) -> int:
    """Return a number that shows the first two digits of a count at most.

    Examples
    --------
    >>> _rounded_up(1741), _rounded_up(99), _rounded_up(3)
    (1800, 100, 10)
    """
    step = int(10 ** max(1, len(str(rows)) - 2))
    return -(-rows // step) * step


def agree(profiles: Sequence[Profile], task: Task) -> Agreement:
    """Resolve a task over all files, and refuse those that do not fit.

    Examples
    --------
    >>> age = ColumnProfile(name="age", values=9, texts=0, missing=0, numeric=True, levels={})
    >>> sex = ColumnProfile(name="sex", values=9, texts=9, missing=0, levels={"f": 4, "m": 5})
    >>> hired = sex.model_copy(update={"name": "hired", "levels": {"no": 5, "yes": 4}})
    >>> north = Profile(client="north", rows=9, columns=(age, sex, hired))
    >>> task = Task(label="hired", favourable="yes", sensitive=("sex",))
    >>> agreed = agree([north], task).task
    >>> agreed.numeric, agreed.unfavourable, agreed.sensitive[0].groups
    (('age',), 'no', ('f', 'm'))
    """
    if not profiles:
        raise DataError("no client described its file: start the clients first")
    ordered = sorted(profiles, key=lambda profile: profile.client)
    resolved, few = _with_roles(ordered, task)
    numeric = resolved.numeric or ()
    sensitive = [
        s.model_copy(update={"groups": s.levels or _levels(ordered, s.column)})
        for s in task.sensitive
    ]
    _check_groups(sensitive)
    values = {
        "unfavourable": task.unfavourable or _other_label(ordered, task),
        "sensitive": tuple(sensitive),
    }
    resolved = resolved.model_copy(update=values)
    dated = _dated(ordered, numeric)
    refused, fitting = {}, []
    for profile in ordered:
        if lines := tuple(islice(_differences(profile, resolved, dated), _SHOWN)):
            refused[profile.client] = lines
        else:
            fitting.append(profile)
    treatment = [Treated("dropped", line) for line in few]
    for profile in fitting:
        for column in profile.among(numeric):
            if column.texts:
                where = f"{profile.client}: column '{column.name}'"
                line = f"{where}: {column.not_numbers}, read as missing"
                treatment.append(Treated("filled", line))
    unrecorded = tuple(_with_unrecorded(s, fitting, task) for s in sensitive)
    agreed = resolved.model_copy(update={"sensitive": unrecorded})
    return Agreement(agreed, refused, tuple(treatment))


def _dated(profiles: Sequence[Profile], numeric: Iterable[str]) -> set[str]:
    """Return the columns of numbers that most files write as dates."""
    columns = {name: _columns(profiles, name) for name in numeric}
    return {
        name
        for name, alike in columns.items()
        if _most(column.dates for column in alike if column.values and column.numeric)
    }


def _most(flags: Iterable[bool]) -> bool:
    """Return whether more than half of the flags are set."""
    counts = Counter(flags)
    return counts[True] > counts[False]


def settle(profiles: Sequence[Profile], task: Task) -> Agreement:
    """Agree as `agree` does; one file that keeps the others from agreeing is refused.

    Where half of the files or more would not fit, each is left out in turn. The one without which
    most fit is refused if that makes more fit than before.

    Examples
    --------
    >>> def file(name, *labels):
    ...     levels = dict.fromkeys(labels, 4)
    ...     column = ColumnProfile(name="hired", values=8, texts=8, missing=0, levels=levels)
    ...     sex = column.model_copy(update={"name": "sex", "levels": {"f": 4, "m": 4}})
    ...     return Profile(client=name, rows=8, columns=(column, sex))
    >>> files = [file("a", "yes", "no"), file("b", "True", "False"), file("c", "yes", "AAA")]
    >>> settle(files, Task(label="hired", favourable="yes", sensitive=("sex",))).refused
    {'c': ('without it 2 of the other files fit together, with it 1',)}
    """
    remaining, spoilers = list(profiles), dict[str, tuple[str, ...]]()
    while 2 * (most := _fitting(remaining, task)) <= len(remaining):
        without = {p.client: [q for q in remaining if q is not p] for p in remaining}
        fits = {client: _fitting(others, task) for client, others in without.items()}
        worst = max(sorted(fits), key=lambda client: fits[client], default="")
        if fits.get(worst, 0) <= most:
            break
        spoilers[worst] = (
            f"without it {fits[worst]} of the other files fit together, with it {most}",
        )
        remaining = without[worst]
    agreement = agree(remaining, task)
    return replace(agreement, refused={**agreement.refused, **spoilers})


def _fitting(profiles: Sequence[Profile], task: Task) -> int:
    """Return how many files fit together."""
    try:
        return len(profiles) - len(agree(profiles, task).refused)
    except DataError:
        return 0


def _check_groups(sensitive: Sequence[Sensitive]) -> None:
    """Refuse groups of which there are too many to compare."""
    sizes = [len(s.levels) for s in sensitive]
    for s, size in zip(sensitive, sizes, strict=True):
        if not s.bins and size > MOST_GROUPS:
            raise DataError(
                f"sensitive column '{s.column}': the files hold {size} distinct values; form a "
                "few groups with bins"
            )
    if math.prod(size + 1 for size in sizes) > MOST_CELLS:  # rows may have no value as well
        raise DataError(
            f"sensitive columns with {' · '.join(map(str, sizes))} groups: more than "
            f"{MOST_CELLS} combinations; form fewer groups with bins, or name fewer columns"
        )


def _with_roles(profiles: Sequence[Profile], task: Task) -> tuple[Task, list[str]]:
    """Fill in numeric and categorical as most files have them; list the columns left out."""
    if task.has_roles:
        return task, []
    numeric, categorical, few = list(task.numeric or ()), list(task.categorical or ()), list[str]()
    protected = {s.column for s in task.sensitive}
    with_role = {*task.not_features, *task.features}
    names = dict.fromkeys(c.name for profile in profiles for c in profile.columns)
    for name in (name for name in names if name not in with_role):  # in the order of the files
        columns = _columns(profiles, name)
        # A sensitive one is needed anyway: rows that lack it are marked by the encoder.
        if 2 * len(columns) <= len(profiles) and name not in protected:
            few.append(f"column '{name}' is in {len(columns)} of {len(profiles)} files: left out")
            continue
        filled = [column.numeric for column in columns if column.values]
        (numeric if not filled or _most(filled) else categorical).append(name)
    if len(few) > _NOTES:
        few[_NOTES:] = [f"{len(few) - _NOTES} more columns are in few files: left out"]
    roles = {"numeric": tuple(numeric), "categorical": tuple(categorical)}
    return task.model_copy(update=roles), few


def _columns(profiles: Sequence[Profile], name: str) -> list[ColumnProfile]:
    """Return the column of that name of every file that has it."""
    return [column for profile in profiles for column in profile.among([name])]


def _levels(profiles: Sequence[Profile], name: str) -> tuple[str, ...]:
    """Return the values of a column that any file names."""
    levels = {level for column in _columns(profiles, name) for level in column.levels}
    if not levels:
        raise DataError(f"no file holds column '{name}', or no value of it is frequent enough")
    return tuple(sorted(levels))


def _may_lack(sensitive: Sensitive, task: Task) -> bool:
    """Return whether rows without a value may be not recorded; a bin may claim them instead."""
    claimed = sensitive.bin_of_value.get(MISSING, MISSING) != MISSING
    as_level = task.policy(sensitive.column) == "level"
    return MISSING in sensitive.levels or (as_level and not claimed)


def _with_unrecorded(sensitive: Sensitive, profiles: Sequence[Profile], task: Task) -> Sensitive:
    """Add the group ``?`` to a resolved attribute if a file has rows without a value."""
    columns = _columns(profiles, sensitive.column)
    if profiles and not any(column.values for column in columns):
        raise DataError(
            f"sensitive column '{sensitive.column}': no file that fits holds a value of it; take "
            "it out of the task, or let a client that has it take part"
        )
    # With a floor it stays unknown whether values are missing, or in fewer rows than that.
    complete = len(columns) == len(profiles) and not any(column.missing for column in columns)
    complete &= all(profile.floor == 1 for profile in profiles)
    if complete or not _may_lack(sensitive, task):
        return sensitive
    return sensitive.with_unrecorded(sensitive.groups or ())


def _other_label(profiles: Sequence[Profile], task: Task) -> str:
    """Return the label value other than the favourable one that most files hold."""
    columns = _columns(profiles, task.label)
    if not columns:
        names = {column.name for profile in profiles for column in profile.columns}
        raise DataError("no file has the label: " + unknown("column", task.label, names))
    if task.others_unfavourable:
        return f"not {task.favourable}"
    counts = Counter(value for column in columns for value in column.levels)
    codes = {task.favourable: 1} | label_codes(counts, task)
    others = sorted(value for value in counts if not codes.get(value))
    if not others:
        clients = ", ".join(f"'{p.client}'" for p in profiles)
        raise DataError(
            f"label column '{task.label}': no file ({clients}) names a value other than "
            f"'{task.favourable}'; set task.label and task.favourable, or task.unfavourable"
        )
    return max(others, key=lambda value: counts[value])


def _differences(profile: Profile, task: Task, dated: Container[str]) -> Iterator[str]:
    """Yield how a file differs from what was agreed; nothing if it fits."""
    present = [column.name for column in profile.columns]
    may_lack = {s.column for s in task.sensitive if _may_lack(s, task)}
    for name in dict.fromkeys(task.named_columns):
        if name in present or name == task.client:
            continue
        if name not in may_lack or lookalike(name, present):
            yield unknown("column", name, present)
    yield from _other_kinds(profile, task.numeric or (), dated)
    yield from _other_values(profile, task)


def _other_kinds(profile: Profile, numeric: Sequence[str], dated: Container[str]) -> Iterator[str]:
    """Yield the numeric columns that hold texts, or dates where others hold numbers."""
    for column in profile.among(numeric):
        if column.values and not column.numeric:
            yield f"column '{column.name}': {column.not_numbers}; the other files hold numbers"
        elif column.values and column.dates != (column.name in dated):
            here, there = ("dates", "numbers") if column.dates else ("numbers", "dates")
            yield f"column '{column.name}' holds {here}; the other files hold {there}"


def _other_values(profile: Profile, task: Task) -> Iterator[str]:
    """Yield the label and the sensitive columns that hold a value which was not agreed."""
    label = profile.levels(task.label)
    fix = f"agreed are '{task.favourable}' and '{task.unfavourable}'"
    agreed = [("label", task.label, set(label_codes(label, task)), fix)]
    for s in task.sensitive:
        if not s.bins and s.rest is None:
            fix = f"agreed groups are {', '.join(s.levels)}: add bins, or rest, to the task"
            agreed.append(("sensitive", s.column, set(s.levels), fix))
    for role, name, values, fix in agreed:
        if odd := sorted(profile.levels(name).keys() - values):
            yield f"{role} column '{name}' holds '{odd[0]}'; {fix}"
