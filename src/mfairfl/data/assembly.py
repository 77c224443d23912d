"""From clients' rows to an encoded federation; the encoder sees sums of train statistics only.

A client's split depends on the seed, its name and its own rows, never on the other clients: a
silo that holds only its own file arrives at the same split.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mfairfl.data.encoder import Encoder, EncoderStatistics, statistics
from mfairfl.data.federation import PARTS, Client, Federation, Part, Shard
from mfairfl.data.split import hold_out, split_rows
from mfairfl.data.table import Table
from mfairfl.errors import DataError
from mfairfl.randomness import stream

__all__ = ["ClientRows", "assemble", "federation_from_tables", "split_client", "sums_of"]


@dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """A client before encoding: its table, and the row numbers of its three parts."""

    name: str
    table: Table
    parts: Mapping[Part, npt.NDArray[np.int64]]


def split_client(
    name: str,
    table: Table,
    rows: npt.NDArray[np.int64],
    *,
    seed: int,
    test: float,
    validation: float,
    fold: tuple[int, int] | None = None,
) -> ClientRows:
    """Split a client's rows of a table, stratified by cell and label.

    With `fold` = (number, of how many) the train rows alone are used: that fold of them takes the
    place of the test rows.
    """
    if seed < 0:
        raise DataError(f"seed={seed}: give a whole number from 0")
    if not (0 <= test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise DataError(
            f"test={test:g} and validation={validation:g}: give shares from 0 that sum below 1"
        )
    strata = table.cells[rows].astype(np.int64) * 2 + table.y[rows]
    rng = stream(seed, "split", name)
    split = split_rows(strata, test=test, validation=validation, rng=rng)
    if fold is not None:
        number, count = fold
        if not 0 <= number < count:
            raise DataError(f"fold={number} of {count}: give a number from 0 to {count - 1}")
        train = split[0]
        rng = stream(seed, "folds", name)
        kept, held = hold_out(strata[train], fold=number, folds=count, rng=rng)
        split = train[kept], train[:0], train[held]
    return ClientRows(name, table, {p: rows[at] for p, at in zip(PARTS, split, strict=True)})


def sums_of(silo: ClientRows, parts: Sequence[Part]) -> EncoderStatistics:
    """Return the sums over a client's rows that an encoder is fitted from."""
    rows = np.concatenate([silo.parts[part] for part in parts])
    return statistics(silo.table.X.iloc[rows], silo.table.task)


def assemble(silos: Sequence[ClientRows], *, notes: tuple[str, ...], **about: Any) -> Federation:
    """Fit the encoder, encode every row once, cut the shards.

    Means and scales come from train rows only. The levels of categories are the schema of the
    whole table, as silos would agree on beforehand: the width of the encoding, and with it the
    shape of the model, does not depend on the split.
    """
    silos = sorted(silos, key=lambda silo: silo.name)
    task = silos[0].table.task
    train = [sums_of(silo, ("train",)) for silo in silos]
    others = [sums_of(silo, ("validation", "test")) for silo in silos]
    fitted = functools.reduce(operator.add, train)
    encoder = Encoder.fit(fitted, task, schema=functools.reduce(operator.add, others, fitted))
    cuts = [(part, silo) for part in PARTS for silo in silos]
    total = sum(len(silo.parts[part]) for part, silo in cuts)
    pool = Shard(
        np.empty((total, len(encoder.feature_names)), np.float32),
        np.empty(total, np.int8),
        np.empty(total, np.int32),
        np.empty(total, np.int64),
    )
    ends = np.cumsum([len(silo.parts[part]) for part, silo in cuts]).tolist()
    places = [slice(a, b) for a, b in itertools.pairwise([0, *ends])]
    for (part, silo), place in zip(cuts, places, strict=True):
        rows, table = silo.parts[part], silo.table
        pool.X[place] = encoder.transform(table.X.iloc[rows])
        pool.y[place], pool.cells[place], pool.rows[place] = table.y[rows], table.cells[rows], rows
    # Before the shards are cut: a slice taken earlier would stay writeable.
    for array in (pool.X, pool.y, pool.cells, pool.rows):
        array.flags.writeable = False
    shards = [pool[place] for place in places]
    k = len(silos)
    clients = tuple(Client(silo.name, *shards[i::k]) for i, silo in enumerate(silos))
    return Federation(
        clients=clients,
        pool=pool,
        attributes=silos[0].table.attributes,
        encoder=encoder,
        task=task,
        notes=notes,
        warnings=tuple(_warnings(silos)),
        **about,
    )


def _warnings(silos: Sequence[ClientRows]) -> list[str]:
    """Say which clients cannot see a class or a group in training, or have nothing to test on."""
    found = []
    for silo in silos:
        rows, table = silo.parts["train"], silo.table
        labels = table.y[rows]
        if labels.min() == labels.max():
            which = "favourable" if labels[0] == 1 else "unfavourable"
            found.append(f"{silo.name}: every train label is {which}")
        for column, attribute in enumerate(table.attributes):
            present = set(table.groups[rows, column].tolist())
            held = [attribute.groups[code] for code in present]
            absent = [group for group in attribute.recorded if group not in held]
            if absent:
                found.append(f"{silo.name}: no train row of {attribute.name} {', '.join(absent)}")
        if len(silo.parts["test"]) == 0:
            found.append(f"{silo.name}: no test row")
    return found


def federation_from_tables(
    tables: Mapping[str, Table],
    *,
    seed: int = 0,
    test: float = 0.2,
    validation: float = 0.0,
    name: str = "tables",
) -> Federation:
    """Join clients that hold a table each; only encoder statistics are summed over them.

    Every table needs the same resolved task: fix ``numeric``, ``categorical``, ``unfavourable``
    and each attribute's ``groups`` in the `Task`, so that no client's file decides them.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data import Task, table_from_frame
    >>> task = Task(label="y", favourable=1, sensitive=("s",))
    >>> frame = pd.DataFrame({"x": range(8), "s": list("abababab"), "y": [0, 1, 1, 0] * 2})
    >>> tables = {one: table_from_frame(frame, task, name=one) for one in ("north", "south")}
    >>> [(c.name, len(c.train), len(c.test)) for c in federation_from_tables(tables).clients]
    [('north', 6, 2), ('south', 6, 2)]
    """
    if not tables:
        raise DataError("no client tables: give a mapping of client name to table")
    names = sorted(tables)
    first = tables[names[0]]
    for other in names[1:]:
        _same_task(names[0], first, other, tables[other])
    silos = [
        split_client(
            one,
            tables[one],
            np.arange(len(tables[one])),
            seed=seed,
            test=test,
            validation=validation,
        )
        for one in names
    ]
    sums = "".join(f"{one} {tables[one].sha256}\n" for one in names)
    return assemble(
        silos,
        notes=tuple(f"{one}: {note}" for one in names for note in tables[one].notes),
        table_name=name,
        sha256=hashlib.sha256(sums.encode()).hexdigest(),
        scheme="tables",
        seed=seed,
        options={"test": test, "validation": validation},
    )


def _same_task(name: str, table: Table, other: str, second: Table) -> None:
    for key, value in table.task:
        found = getattr(second.task, key)
        if found != value:
            raise DataError(
                f"clients '{name}' and '{other}' differ in their task's {key} "
                f"({value!r} and {found!r}): set {key} in the Task both tables are read with"
            )
