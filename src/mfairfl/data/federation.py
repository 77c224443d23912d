"""Clients with their encoded rows: how they are split and encoded, and who holds what.

A client's split depends on the seed, its name and its own rows, never on the other clients: a
silo that holds only its own file arrives at the same split. Only sums over train rows fit the
encoder.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.coding import Treated
from mfairfl.data.columns import Column
from mfairfl.data.encoder import Encoder, EncoderConfig, Inputs, fit_encoder
from mfairfl.data.sums import EncoderStatistics, Histogram, statistics
from mfairfl.data.table import Table
from mfairfl.data.task import Attribute, Task
from mfairfl.data.values import Floats, Integers, Labels
from mfairfl.errors import DataError
from mfairfl.randomness import stream
from mfairfl.text import aligned, some_of

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Encoded rows: features, label (1 = favourable), cell, and row number in the table.

    Examples
    --------
    >>> import mfairfl
    >>> test = mfairfl.partition(mfairfl.load_dataset("bank"), "iid", clients=2).clients[0].test
    >>> test.X.shape == (len(test), test.inputs.width), sorted(set(test.y.tolist()))
    (True, [0, 1])
    """

    inputs: Inputs
    y: Labels
    cells: npt.NDArray[np.int32]
    rows: Integers

    @property
    def X(self) -> npt.NDArray[np.float32]:  # noqa: N802 - as features are called everywhere
        """The encoded features, (rows, inputs), read-only where they are the federation's own.

        Of an encoder with very many categories (`Encoder.compact`) they are held as indices, and
        this makes a new, large array each time: take a slice first, or use `inputs`.
        """
        return self.inputs.dense()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.y)

    def __getitem__(self, rows: slice | Integers) -> Shard:
        """Return consecutive rows as views, or a copy of the rows at some positions."""
        return Shard(self.inputs[rows], self.y[rows], self.cells[rows], self.rows[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """One client and its three shards; validation and test may be empty.

    Examples
    --------
    >>> import mfairfl
    >>> client = mfairfl.partition(mfairfl.load_dataset("bank"), "iid", clients=2).clients[0]
    >>> client.name, len(client) == len(client.train) + len(client.test)
    ('client-1', True)
    """

    name: str
    train: Shard
    validation: Shard
    test: Shard

    def __len__(self) -> int:
        """Return the number of rows in all shards."""
        return sum(len(self.shard(split)) for split in SPLITS)

    def shard(self, split: Split) -> Shard:
        """Return the rows of a split."""
        shard: Shard = getattr(self, split)
        return shard


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Federation:
    """All clients, sorted by name, encoded alike.

    `pool` holds every row once: the train rows of all clients in their order, then the validation
    rows, then the test rows. The clients' shards are slices of it. `notes` say how the data was
    prepared; `warnings` name clients that lack a group, a class or test rows; `treatment` has the
    lines about what was dropped, filled in or merged, by kind.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data import partition, table_from_frame, task_from_roles
    >>> people = pd.DataFrame({"x": range(20), "sex": list("fm") * 10, "hired": [0, 1, 1, 0] * 5})
    >>> task = task_from_roles(people, label="hired", sensitive="sex")
    >>> federation = partition(table_from_frame(people, task), "iid", clients=2)
    >>> print(federation.describe().splitlines()[0])
    frame: 20 rows, 3 features, 2 clients, scheme iid, seed 0
    """

    clients: tuple[Client, ...]
    pool: Shard
    attributes: tuple[Attribute, ...]
    encoder: Encoder
    task: Task
    table_name: str
    sha256: str
    scheme: str
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    treatment: tuple[Treated, ...] = ()

    def pooled(self, split: Split) -> Shard:
        """Return the rows of all clients in one split, as a slice of `pool`."""
        ends = np.cumsum([0, *(sum(len(c.shard(s)) for c in self.clients) for s in SPLITS)])
        index = SPLITS.index(split)
        return self.pool[int(ends[index]) : int(ends[index + 1])]

    def summary(self) -> dict[str, Any]:
        """Return who holds what, in plain types for JSON; an undefined share or rate is None."""
        return {
            "table": self.table_name,
            "sha256": self.sha256,
            "scheme": self.scheme,
            "seed": self.seed,
            "options": dict(self.options),
            "features": self.pool.inputs.width,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "treatment": [treated._asdict() for treated in self.treatment],
            "clients": [self._count(client) for client in self.clients],
        }

    def _count(self, client: Client) -> dict[str, Any]:
        shards = [client.shard(split) for split in SPLITS]
        y = np.concatenate([shard.y for shard in shards])
        cells = np.concatenate([shard.cells for shard in shards])
        shape = [attribute.size for attribute in self.attributes]
        codes = np.unravel_index(cells, shape) if shape else ()
        groups = {
            attribute.name: {
                group: _counts(y[code == value], len(y))
                for value, group in enumerate(attribute.groups)
            }
            for attribute, code in zip(self.attributes, codes, strict=True)
        }
        sizes: dict[str, int] = dict(zip(SPLITS, map(len, shards), strict=True))
        return {"name": client.name, **sizes, **_counts(y, len(y)), "attributes": groups}

    def describe(self) -> str:
        """Return who holds what as text: a line per client, with its groups and base rates."""
        counts = [self._count(client) for client in self.clients]
        groups = [(a.name, group) for a in self.attributes for group in a.groups]
        head = ["client", *SPLITS, "favourable"]
        lines = [head + [f"{attribute} {group}" for attribute, group in groups]]
        for client in counts:
            cells = [client["attributes"][attribute][group] for attribute, group in groups]
            line = [client["name"], *(f"{client[split]:,}" for split in SPLITS)]
            line.append(_percent(client["base_rate"]))
            line += [f"{_percent(c['share'])} ({_percent(c['base_rate'])})" for c in cells]
            lines.append(line)
        text = [
            f"{self.table_name}: {sum(map(len, self.clients)):,} rows, {self.pool.inputs.width} "
            f"features, {len(counts)} clients, scheme {self.scheme}, seed {self.seed}",
            "share of the client's rows (base rate in brackets), '-' where undefined",
            *aligned(lines, right=range(1, len(head))),
            *(f"note: {note}" for note in self.notes),
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(text)


def _counts(y: Labels, of: int) -> dict[str, int | float | None]:
    rows, good = len(y), int(y.sum())
    return {
        "rows": rows,
        "share": rows / of if of else None,
        "favourable": good,
        "base_rate": good / rows if rows else None,
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


@dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """A client before encoding: its table, and the row numbers of each split."""

    name: str
    table: Table
    rows: Mapping[Split, Integers]

    def statistics(self, *splits: Split) -> EncoderStatistics:
        """Return the sums over the rows of some splits that an encoder is fitted from."""
        rows = np.concatenate([self.rows[split] for split in splits])
        return statistics(self.table.X, self.table.task, rows)

    def histogram(self, column: str, cuts: Floats) -> Histogram:
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
    (first, reference), *others = tables.items()
    for other, table in others:
        theirs = dict(table.task)
        for key, value in reference.task:
            if theirs[key] != value:
                raise DataError(
                    f"clients '{first}' and '{other}' differ in their task's {key} "
                    f"({value!r} and {theirs[key]!r}): set {key} in the Task both tables are "
                    "read with"
                )
    joined, numbers = _joined(name, tables)
    ends = np.cumsum([len(table) for table in tables.values()])
    rows = np.split(np.arange(len(joined)), ends[:-1])
    split = functools.partial(split_client, seed=seed, test=test, validation=validation)
    return assemble(
        joined,
        [split(client, joined, places) for client, places in zip(tables, rows, strict=True)],
        scheme="tables",
        seed=seed,
        options={"test": test, "validation": validation},
        encoding=encoder,
        numbers=numbers,
    )


def _joined(name: str, tables: Mapping[str, Table]) -> tuple[Table, Integers]:
    """Return the rows of several clients as one table, and their numbers in their own tables."""
    parts, notes, treatment = list(tables.values()), list[str](), list[Treated]()
    for client, table in tables.items():
        notes += [f"{client}: {note}" for note in table.notes]
        treatment += [Treated(kind, f"{client}: {line}") for kind, line in table.treatment]
    sums = "".join(f"{client} {table.sha256}\n" for client, table in tables.items())
    joined = replace(
        parts[0],
        X=pd.concat([part.X for part in parts], ignore_index=True),
        y=np.concatenate([part.y for part in parts]),
        groups=np.concatenate([part.groups for part in parts]),
        name=name,
        sha256=hashlib.sha256(sums.encode()).hexdigest(),
        notes=tuple(notes),
        warnings=tuple(dict.fromkeys(line for part in parts for line in part.warnings)),
        treatment=tuple(treatment),
    )
    return joined, np.concatenate([np.arange(len(part)) for part in parts])


def assemble(
    table: Table,
    clients: Sequence[ClientRows],
    *,
    scheme: str,
    seed: int,
    options: Mapping[str, Any],
    encoding: EncoderConfig | None = None,
    numbers: Integers | None = None,
) -> Federation:
    """Fit the encoder, encode every row once, cut the shards.

    Means, scales and edges come from train rows only. The levels of categories are the schema of
    the whole table, as silos would agree on beforehand: they do not depend on the split.

    Parameters
    ----------
    table, clients
        All rows, and which of them are in each client's splits.
    numbers
        The number by which a shard calls each row; its position in the table if omitted.
    """
    clients = sorted(clients, key=lambda client: client.name)
    config = encoding or EncoderConfig()
    if config != EncoderConfig():  # the default encoding is not an option of the federation
        options = {**options, "encoder": config.model_dump(mode="json")}
    together = {split: np.concatenate([c.rows[split] for c in clients]) for split in SPLITS}
    everyone = ClientRows("all clients", table, together)
    _require_both_labels(everyone)
    encoder = _fitted(everyone, config)
    rows = np.concatenate(list(together.values()))
    inputs, y = encoder.encode(table.X, rows), table.y[rows]
    cells = table.cells_of(rows).astype(np.int32)
    rows = rows if numbers is None else numbers[rows]
    # Before the shards are cut: a slice taken earlier would stay writeable.
    for array in (inputs.numbers, inputs.codes, y, cells, rows):
        array.flags.writeable = False
    pool = Shard(inputs, y, cells, rows)
    ends = np.cumsum([0, *(len(c.rows[split]) for split in SPLITS for c in clients)]).tolist()
    shards = [pool[start:end] for start, end in itertools.pairwise(ends)]
    k = len(clients)
    return Federation(
        clients=tuple(Client(c.name, *shards[i::k]) for i, c in enumerate(clients)),
        pool=pool,
        attributes=table.attributes,
        encoder=encoder,
        task=table.task,
        table_name=table.name,
        sha256=table.sha256,
        scheme=scheme,
        seed=seed,
        options=options,
        notes=table.notes,
        warnings=(*dict.fromkeys(table.warnings), *_warnings(clients)),
        treatment=table.treatment,
    )


def _require_both_labels(clients: ClientRows) -> None:
    """Refuse rows that all have one label: there is nothing to learn, and nothing unfair."""
    task, labels = clients.table.task, np.unique(clients.table.y[clients.rows["train"]])
    if len(labels) == 1:
        only = task.favourable if labels[0] else task.unfavourable
        raise DataError(
            f"label column '{task.label}': every train row holds '{only}': a model needs rows "
            "with both values"
        )


def _fitted(clients: ClientRows, config: EncoderConfig) -> Encoder:
    """Fit the encoder to the sums over the rows of all clients."""
    train = clients.statistics("train")

    def count(cuts: Mapping[str, Floats]) -> dict[str, Histogram]:
        return {name: clients.histogram(name, edges) for name, edges in cuts.items()}

    schema = train + clients.statistics("validation", "test")
    return fit_encoder(config, clients.table.task, train=train, schema=schema, count=count)


def _warnings(clients: Sequence[ClientRows]) -> Iterator[str]:
    """Name the clients that lack a class or a group in training, or rows to test on."""
    for label, which in ((1, "favourable"), (0, "unfavourable")):
        names = [c.name for c in clients if (c.table.y[c.rows["train"]] == label).all()]
        yield from _line(names, f"every train label is {which}", f"only {which} train labels")
    for column, attribute in enumerate(clients[0].table.attributes):
        present = {c.name: np.unique(c.table.groups[c.rows["train"], column]) for c in clients}
        # Groups that the same clients lack are named together.
        together = defaultdict[tuple[str, ...], list[str]](list)
        for group in attribute.recorded:
            code = attribute.groups.index(group)
            together[tuple(c for c, codes in present.items() if code not in codes)].append(group)
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


def split_client(
    name: str,
    table: Table,
    rows: Integers | None = None,
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
    if seed < 0:
        raise DataError(f"seed={seed}: give a whole number from 0")
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
    strata: Integers, *, test: float, validation: float, rng: np.random.Generator
) -> tuple[Integers, Integers, Integers]:
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
    strata: Integers, *, fold: int, folds: int, rng: np.random.Generator
) -> tuple[Integers, Integers]:
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


def _apportion(seats: int, sizes: Integers) -> Integers:
    """Spread `seats` over strata in proportion to size, leaving at least one row in each."""
    room = np.maximum(sizes - 1, 0)
    weights = np.where(room > 0, sizes, 0)
    seats = min(seats, int(room.sum()))
    quotas = seats * weights / max(int(weights.sum()), 1)
    shares: Integers = np.minimum(np.floor(quotas).astype(np.intp), room)
    while (missing := seats - int(shares.sum())) > 0:
        # Ties go to the first stratum; a full one is passed over.
        remainders = np.where(shares < room, quotas - shares, -np.inf)
        order = np.argsort(-remainders, kind="stable")[:missing]
        shares[order[remainders[order] > -np.inf]] += 1
    return shares
