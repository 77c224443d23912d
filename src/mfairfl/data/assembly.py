"""From clients' rows to an encoded federation; only sums over train rows fit the encoder.

A client's split depends on the seed, its name and its own rows, never on the other clients: a
silo that holds only its own file arrives at the same split.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mfairfl.data.binning import Histogram
from mfairfl.data.coding import Treated
from mfairfl.data.columns import Column
from mfairfl.data.encoder import Encoder, EncoderConfig, Inputs, fit_encoder
from mfairfl.data.federation import SPLITS, Client, Federation, Shard, Split
from mfairfl.data.sums import EncoderStatistics, statistics
from mfairfl.data.table import Table
from mfairfl.errors import DataError
from mfairfl.randomness import stream
from mfairfl.text import some_of


@dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """A client before encoding: its table, and the row numbers of each split."""

    name: str
    table: Table
    rows: Mapping[Split, npt.NDArray[np.int64]]

    def statistics(self, *splits: Split) -> EncoderStatistics:
        """Return the sums over the rows of some splits that an encoder is fitted from."""
        rows = np.concatenate([self.rows[split] for split in splits])
        return statistics(self.table.X, self.table.task, rows)

    def histogram(self, column: str, cuts: npt.NDArray[np.float64]) -> Histogram:
        """Count the train rows between cuts of a numeric column."""
        return Histogram.of(Column.of(self.table.X, column, self.rows["train"]).numbers, cuts)


def federation_from_tables(
    tables: Mapping[str, Table],
    *,
    seed: int = 0,
    test: float = 0.2,
    validation: float = 0.0,
    encoder: EncoderConfig | None = None,
    name: str = "tables",
) -> Federation:
    """Make a federation of clients that hold a table each.

    Every table needs the same resolved task: fix ``numeric``, ``categorical``, ``unfavourable``
    and each attribute's ``groups`` in the `Task`, so that no client's file decides them. `encoder`
    says how features become numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data import Task, table_from_frame
    >>> task = Task(label="y", favourable=1, sensitive=("s",))
    >>> frame = pd.DataFrame({"x": range(8), "s": list("abababab"), "y": [0, 1, 1, 0] * 2})
    >>> tables = {name: table_from_frame(frame, task, name=name) for name in ("north", "south")}
    >>> [(c.name, len(c.train), len(c.test)) for c in federation_from_tables(tables).clients]
    [('north', 6, 2), ('south', 6, 2)]
    """
    if not tables:
        raise DataError("no client tables: give a mapping of client name to table")
    tables = dict(sorted(tables.items()))
    _check_tasks(tables)
    split = functools.partial(split_client, seed=seed, test=test, validation=validation)
    sums = "".join(f"{client} {table.sha256}\n" for client, table in tables.items())
    return assemble(
        [split(client, table) for client, table in tables.items()],
        notes=tuple(f"{c}: {note}" for c, table in tables.items() for note in table.notes),
        treatment=tuple(
            Treated(kind, f"{client}: {line}")
            for client, table in tables.items()
            for kind, line in table.treatment
        ),
        table_name=name,
        sha256=hashlib.sha256(sums.encode()).hexdigest(),
        scheme="tables",
        seed=seed,
        options={"test": test, "validation": validation},
        encoding=encoder,
    )


def _check_tasks(tables: Mapping[str, Table]) -> None:
    (first, table), *others = tables.items()
    for other, second in others:
        theirs = dict(second.task)
        for key, value in table.task:
            if theirs[key] != value:
                raise DataError(
                    f"clients '{first}' and '{other}' differ in their task's {key} "
                    f"({value!r} and {theirs[key]!r}): set {key} in the Task both tables are "
                    "read with"
                )


def assemble(
    clients: Sequence[ClientRows],
    *,
    notes: tuple[str, ...],
    options: Mapping[str, Any],
    encoding: EncoderConfig | None = None,
    **about: Any,
) -> Federation:
    """Fit the encoder, encode every row once, cut the shards.

    Means, scales and edges come from train rows only. The levels of categories are the schema of
    the whole table, as silos would agree on beforehand: they do not depend on the split.
    """
    clients = sorted(clients, key=lambda client: client.name)
    task = clients[0].table.task
    _require_both_labels(clients)
    config = encoding or EncoderConfig()
    # The default encoding is not an option of the federation.
    default = config == EncoderConfig()
    encoding_option = {} if default else {"encoder": config.model_dump(mode="json")}
    encoder = _fitted(clients, config)
    parts = [(client.table, client.rows[split]) for split in SPLITS for client in clients]
    ends = np.cumsum([len(rows) for _, rows in parts]).tolist()
    pool = Shard(
        Inputs.empty(ends[-1], encoder.layout),
        np.empty(ends[-1], np.int8),
        np.empty(ends[-1], np.int32),
        np.empty(ends[-1], np.int64),
    )
    places = [slice(a, b) for a, b in itertools.pairwise([0, *ends])]
    # Neighbours on one table are encoded together: there may be thousands of clients.
    start = 0
    for _, same in itertools.groupby(parts, key=lambda part: id(part[0])):
        group = list(same)
        table, rows = group[0][0], np.concatenate([rows for _, rows in group])
        place = slice(start, start + len(rows))
        encoder.encode(table.X, rows, out=pool.inputs[place])
        pool.y[place], pool.rows[place] = table.y[rows], rows
        pool.cells[place] = table.cells_of(rows)
        start += len(rows)
    # Before the shards are cut: a slice taken earlier would stay writeable.
    pool.inputs.protect()
    for array in (pool.y, pool.cells, pool.rows):
        array.flags.writeable = False
    shards = [pool[place] for place in places]
    k = len(clients)
    return Federation(
        clients=tuple(Client(c.name, *shards[i::k]) for i, c in enumerate(clients)),
        pool=pool,
        attributes=clients[0].table.attributes,
        encoder=encoder,
        task=task,
        notes=notes,
        warnings=(
            *dict.fromkeys(warning for client in clients for warning in client.table.warnings),
            *_warnings(clients),
        ),
        options={**options, **encoding_option},
        **about,
    )


def _require_both_labels(clients: Sequence[ClientRows]) -> None:
    """Refuse rows that all have one label: there is nothing to learn, and nothing unfair."""
    labels = {int(y) for c in clients for y in np.unique(c.table.y[c.rows["train"]])}
    if len(labels) == 1:
        task = clients[0].table.task
        only = task.favourable if labels == {1} else task.unfavourable
        raise DataError(
            f"label column '{task.label}': every train row holds '{only}': a model needs rows "
            "with both values"
        )


def _fitted(clients: Sequence[ClientRows], config: EncoderConfig) -> Encoder:
    """Fit the encoder to the sums of all clients; being exact, they may be taken in any parts."""
    clients = _joined(clients)
    train = functools.reduce(operator.add, [c.statistics("train") for c in clients])
    others = [c.statistics("validation", "test") for c in clients]

    def count(cuts: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, Histogram]:
        return {
            name: functools.reduce(operator.add, [c.histogram(name, edges) for c in clients])
            for name, edges in cuts.items()
        }

    return fit_encoder(
        config,
        clients[0].table.task,
        train=train,
        schema=functools.reduce(operator.add, others, train),
        count=count,
    )


def _joined(clients: Sequence[ClientRows]) -> list[ClientRows]:
    """Return the rows of all clients on one table as one client's."""
    tables: dict[int, list[ClientRows]] = {}
    for client in clients:
        tables.setdefault(id(client.table), []).append(client)
    return [
        ClientRows(
            same[0].name,
            same[0].table,
            {split: np.concatenate([client.rows[split] for client in same]) for split in SPLITS},
        )
        for same in tables.values()
    ]


def _warnings(clients: Sequence[ClientRows]) -> Iterator[str]:
    """Name the clients that lack a class or a group in training, or rows to test on."""
    for label, which in ((1, "favourable"), (0, "unfavourable")):
        names = [c.name for c in clients if (c.table.y[c.rows["train"]] == label).all()]
        yield from _line(names, f"every train label is {which}", f"only {which} train labels")
    for column, attribute in enumerate(clients[0].table.attributes):
        lacking: dict[str, list[str]] = {group: [] for group in attribute.recorded}
        for client in clients:
            codes = np.unique(client.table.groups[client.rows["train"], column])
            for group in set(lacking) - {attribute.groups[code] for code in codes}:
                lacking[group].append(client.name)
        # Groups that the same clients lack are named together.
        together: dict[tuple[str, ...], list[str]] = {}
        for group, names in lacking.items():
            together.setdefault(tuple(names), []).append(group)
        for names_of, groups in together.items():
            absent = f"no train row of {attribute.name} {some_of(groups, most=10)}"
            yield from _line(names_of, absent, absent)
    names = [client.name for client in clients if len(client.rows["test"]) == 0]
    yield from _line(names, "no test row", "no test row")


def _line(names: Sequence[str], singular: str, plural: str) -> Iterator[str]:
    """Yield one line, however many clients it is about; none for none."""
    if len(names) == 1:
        yield f"{names[0]}: {singular}"
    elif names:
        yield f"{len(names):,} clients have {plural}: {some_of(names)}"


def check_seed(seed: int) -> None:
    """Refuse a negative seed."""
    if seed < 0:
        raise DataError(f"seed={seed}: give a whole number from 0")


def split_client(
    name: str,
    table: Table,
    rows: npt.NDArray[np.int64] | None = None,
    *,
    seed: int,
    test: float,
    validation: float,
    fold: tuple[int, int] | None = None,
) -> ClientRows:
    """Split a client's rows of a table (default: all), stratified by cell and label.

    With `fold` = (number, of how many) the train rows alone are used: that fold of them takes the
    place of the test rows.
    """
    check_seed(seed)
    if not (0 <= test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise DataError(
            f"test={test:g} and validation={validation:g}: give shares from 0 that sum below 1"
        )
    rows = np.arange(len(table)) if rows is None else rows
    strata = table.cells_of(rows).astype(np.int64) * 2 + table.y[rows]
    rng = stream(seed, "split", name)
    split = split_rows(strata, test=test, validation=validation, rng=rng)
    if fold is not None:
        number, count = fold
        if not 0 <= number < count:
            raise DataError(f"fold={number} of {count}: give a number from 0 to {count - 1}")
        train = split[0]
        rng = stream(seed, "folds", name)
        others, chosen = hold_out(strata[train], fold=number, folds=count, rng=rng)
        split = train[others], train[:0], train[chosen]
    return ClientRows(name, table, {s: rows[at] for s, at in zip(SPLITS, split, strict=True)})


def split_rows(
    strata: npt.NDArray[np.int64], *, test: float, validation: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Split positions 0..n-1 into train, validation and test, alike in every stratum.

    Sizes of test and validation are the shares of n, rounded, spread over the strata by largest
    remainders. Train keeps at least one row of each stratum, so a single row stays in train.

    Examples
    --------
    >>> from mfairfl.randomness import stream
    >>> parts = split_rows(np.array([0] * 8 + [1] * 2), test=.2, validation=0, rng=stream(0))
    >>> [len(part) for part in parts]
    [8, 0, 2]
    """
    _, codes, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    n = len(strata)
    test_sizes = _apportion(int(np.floor(n * test + 0.5)), sizes)
    validation_sizes = _apportion(int(np.floor(n * validation + 0.5)), sizes - test_sizes)
    # Shuffle, then bring each stratum together: the first of each go to test, then validation.
    shuffled = rng.permutation(n)
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    rank = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    to_test = rank < np.repeat(test_sizes, sizes)
    to_train = rank >= np.repeat(test_sizes + validation_sizes, sizes)
    to_validation = ~to_test & ~to_train
    return np.sort(order[to_train]), np.sort(order[to_validation]), np.sort(order[to_test])


def hold_out(
    strata: npt.NDArray[np.int64], *, fold: int, folds: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Split positions 0..n-1 into the other folds and fold number `fold`, stratified.

    With the same stream, the folds 0 … folds − 1 are disjoint and cover every row.

    Examples
    --------
    >>> from mfairfl.randomness import stream
    >>> others, chosen = hold_out(np.array([0] * 6 + [1] * 3), fold=0, folds=3, rng=stream(0))
    >>> len(others), chosen.tolist()
    (6, [2, 4, 8])
    """
    shuffled = rng.permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    # Counted on from stratum to stratum: folds differ by one row at most, in all and in each.
    chosen = np.arange(len(strata)) % folds == fold
    return np.sort(order[~chosen]), np.sort(order[chosen])


def _apportion(seats: int, sizes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Spread `seats` over strata in proportion to size, leaving at least one row in each."""
    room = np.maximum(sizes - 1, 0)
    weights = np.where(room > 0, sizes, 0)
    seats = min(seats, int(room.sum()))
    quotas = seats * weights / max(int(weights.sum()), 1)
    shares: npt.NDArray[np.intp] = np.minimum(np.floor(quotas).astype(np.intp), room)
    while (missing := seats - int(shares.sum())) > 0:
        # Ties go to the first stratum; a full one is passed over.
        remainders = np.where(shares < room, quotas - shares, -np.inf)
        order = np.argsort(-remainders, kind="stable")[:missing]
        shares[order[remainders[order] > -np.inf]] += 1
    return shares
