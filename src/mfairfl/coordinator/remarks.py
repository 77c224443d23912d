"""What makes clients' columns doubtful, as far as their profiles, sums and counts show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mfairfl.data import SPLITS, EncoderStatistics, Split, Task
from mfairfl.data.agreement import Profile
from mfairfl.data.coding import Treated
from mfairfl.data.differences import FEW_ROWS, difference_lines, find_differences, held_in
from mfairfl.data.values import MISSING
from mfairfl.fairness.cells import Cells
from mfairfl.text import some_of


def unrecorded(task: Task, counts: Mapping[Split, Mapping[str, np.ndarray]]) -> Iterator[str]:
    """Yield a note for each attribute that is not recorded in all rows of all clients."""
    cells = Cells(task.attributes)
    for grouping in cells.groupings():
        lacking = []
        for name in counts["train"]:
            rows = sum(counts[part][name].sum(axis=1) for part in SPLITS)
            out = int(rows[~grouping.compared].sum())
            lacking += [f"{name} ({out} of {int(rows.sum())} rows)"] * (out > 0)
        if lacking:
            yield (
                f"{grouping.name} is not recorded at {some_of(lacking)}: these rows are outside "
                f"every comparison of {grouping.name}"
            )


def dominant(counts: Mapping[Split, Mapping[str, np.ndarray]]) -> Iterator[str]:
    """Yield a warning of a client with more train rows than all others together."""
    rows = {name: int(table.sum()) for name, table in counts["train"].items()}
    for name, own in rows.items():
        if len(rows) > 1 and 2 * own > sum(rows.values()):
            yield (
                f"{name} counts {own:,} of {sum(rows.values()):,} train rows: it weighs more than "
                "all others together; if that cannot be, set most_rows in the coordinator's file"
            )


def nameless(task: Task, profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield a warning of text columns in which no value is frequent enough to be named."""
    rare = []
    for name in task.categorical or ():
        held = [column for profile in profiles if (column := profile.column(name)) is not None]
        values = sum(column.values for column in held)
        if values >= FEW_ROWS and not any(column.levels for column in held):
            rare.append(f"{name} ({values:,} values)")
    if rare:
        yield (
            f"no value is frequent enough to be named in {some_of(rare)}: they name rows or are "
            "free text, list them in task.ignore"
        )


def odd_columns(task: Task, sums: Mapping[str, EncoderStatistics]) -> Iterator[str]:
    """Yield what the clients' sums show: columns that are empty, constant or in other units."""
    found = find_differences(held_in(sums), sensitive=[s.column for s in task.sensitive])
    yield from (line for _, line in difference_lines(found))


def left_out(profiles: Mapping[str, Profile], rows: Mapping[str, int]) -> Iterator[Treated]:
    """Yield a line for each client that uses fewer rows than its file has."""
    for name, used in rows.items():
        held = profiles[name].rows if profiles[name].floor == 1 else used  # else it is rounded
        if lost := held - used:
            line = f"{name}: {lost:,} of {held:,} rows left out, values missing where none may be"
            yield Treated("dropped", line)


def filled_in(sums: Mapping[str, EncoderStatistics]) -> Iterator[Treated]:
    """Yield a line for each column of which clients lack values."""
    numbers: dict[str, dict[str, tuple[int, int]]] = {}
    categories: dict[str, dict[str, tuple[int, int]]] = {}
    for client, own in sums.items():
        for name, column in own.numeric.items():
            numbers.setdefault(name, {})[client] = column.missing, column.count + column.missing
        for name, levels in own.categorical.items():
            held = levels.get(MISSING, 0), sum(levels.values())
            categories.setdefault(name, {})[client] = held
    kinds = (numbers, "filled with the mean and marked"), (categories, f"the level '{MISSING}'")
    for columns, how in kinds:
        for name, clients in columns.items():
            lacking = [f"{c} {missing:,}" for c, (missing, _) in clients.items() if missing]
            if lacking:
                lost, held = (sum(counts) for counts in zip(*clients.values(), strict=True))
                where = some_of(lacking)
                line = f"column '{name}': {lost:,} of {held:,} values missing ({where}), {how}"
                yield Treated("filled", line)
