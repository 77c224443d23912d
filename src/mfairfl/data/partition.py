"""Distribute a table's rows over clients: published splits, Dirichlet, by column, iid, by size.

Every scheme but ``column`` is a matrix of shares, groups × clients: within each group the rows
are shuffled and cut into consecutive chunks of these shares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.coding import Treated
from mfairfl.data.encoder import EncoderConfig
from mfairfl.data.federation import Federation, assemble, split_client
from mfairfl.data.table import Table
from mfairfl.data.task import Attribute
from mfairfl.data.values import Floats, Integers
from mfairfl.errors import DataError, require_known
from mfairfl.randomness import stream

_HIGH = ((0.5, 0.1, 0.1, 0.2, 0.1), (0.1, 0.4, 0.3, 0.1, 0.1))
_LOW = ((0.3, 0.3, 0.2, 0.1, 0.1), (0.1, 0.2, 0.2, 0.2, 0.3))
# The client-fairness experiment as its text says it: 40 % of group 0 and 60 % of group 1 unused.
_CF_LITERAL = ((0.5, 0.1, 0.0, 0.0, 0.0), (0.0, 0.0, 0.1, 0.2, 0.1))
_DEFAULT_CLIENTS = 5


@dataclass(frozen=True, slots=True)
class SchemeInput:
    """What a scheme reads; `attribute` is a column of the table's groups, if it has any."""

    table: Table
    attribute: int | None
    clients: int | None
    rng: np.random.Generator
    options: Mapping[str, Any]

    @property
    def count(self) -> int:
        """How many clients to make."""
        return _DEFAULT_CLIENTS if self.clients is None else self.clients

    @property
    def read(self) -> Attribute:
        """The attribute whose groups are spread over the clients."""
        if self.attribute is None:
            raise DataError(
                f"table '{self.table.name}' has no sensitive attribute that this scheme could "
                "read: use scheme 'iid'"
            )
        return self.table.attributes[self.attribute]

    @property
    def groups(self) -> Integers:
        """Each row's group in the attribute."""
        column = self.table.attributes.index(self.read)
        return self.table.groups[:, column].astype(np.int64)


class Shares(NamedTuple):
    """Each row's group, and which share of every group each client gets (groups × clients)."""

    groups: Integers
    matrix: Floats
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scheme:
    """A rule, the options it takes with their defaults, and what helps against empty clients."""

    rule: Callable[[SchemeInput], Shares]
    options: Mapping[str, Any]
    remedy: str


def partition(
    table: Table,
    scheme: str | None = None,
    *,
    seed: int = 0,
    clients: int | None = None,
    test: float = 0.2,
    validation: float = 0.0,
    fold: tuple[int, int] | None = None,
    attribute: str | None = None,
    encoder: EncoderConfig | None = None,
    **options: Any,
) -> Federation:
    """Distribute a table's rows over clients and encode them.

    Parameters
    ----------
    table
        From `load_dataset`, `read_table` or `table_from_frame`.
    scheme
        ``high``, ``low``: the published splits for five clients; group 0 (50, 10, 10, 20, 10 % or
        30, 30, 20, 10, 10 %) against the rest (10, 40, 30, 10, 10 % or 10, 20, 20, 20, 30 %).
        Group 0 is the attribute's first group (Adult and COMPAS: Female; Bank: age outside
        25-60; COMPAS race: African-American), or the one named by ``group=``.
        ``cf-literal``: clients 1 and 2 get 50 and 10 % of group 0, clients 3 to 5 get 10, 20 and
        10 % of the rest; other rows stay unused.
        ``ratio``: ``ratios=``, a matrix groups × clients whose rows sum to at most 1.
        ``dirichlet``: shares of each label or group (``on="label"`` or ``"group"``) drawn from
        Dirichlet(``concentration``); a small one is a strong skew.
        ``iid``: equal random chunks. ``size-skew``: sizes fall as rank ** -``skew``.
        ``column``: the task's client column; the default if the table has one.
    seed
        Same seed, same federation.
    clients
        Number of clients, 5 if omitted; with ``ratio`` and ``column`` the data decides.
    test, validation
        Shares of each client's rows, stratified by sensitive cell and label.
    fold
        (number, of how many): cross-validation. Only the train rows are used; that fold of each
        client's train rows takes the place of its test rows.
    attribute
        Sensitive attribute that the scheme reads; the first if omitted.
    encoder
        How features become numbers; the defaults of `EncoderConfig` if omitted.

    Examples
    --------
    >>> from mfairfl.data import load_dataset
    >>> federation = partition(load_dataset("adult"), "high", seed=0)
    >>> [len(client) for client in federation.clients]
    [11361, 14679, 11414, 6504, 4884]
    """
    if scheme is None and table.clients is None:
        raise DataError(f"table '{table.name}' names no clients: give a scheme such as 'iid'")
    if clients is not None and clients < 1:
        raise DataError(f"clients={clients}: give a number from 1")
    settings: dict[str, Any] = {"test": test, "validation": validation}
    settings |= {} if fold is None else {"fold": list(fold)}
    notes = tuple[str, ...]()
    if scheme in (None, "column"):
        rows = _by_column(table, clients, options)
    else:
        source = _input(table, scheme, seed, clients, attribute=attribute, options=options)
        rows, notes = _by_shares(scheme, source)
        read = None if source.attribute is None else source.read.name
        settings |= {"clients": len(rows), "attribute": read}
        for option, value in source.options.items():  # a federation's options must fit into JSON
            settings[option] = value.tolist() if isinstance(value, np.ndarray) else value
    remaining = len(table) - sum(map(len, rows.values()))
    unused = [f"{remaining:,} of {len(table):,} rows belong to no client"] * (remaining > 0)
    split = partial(split_client, seed=seed, test=test, validation=validation, fold=fold)
    treatment = (*table.treatment, *(Treated("dropped", line) for line in unused))
    table = replace(table, notes=(*table.notes, *notes, *unused), treatment=treatment)
    return assemble(
        table,
        [split(name, table, chosen) for name, chosen in rows.items()],
        scheme=scheme or "column",
        seed=seed,
        options=settings,
        encoding=encoder,
    )


def _by_column(
    table: Table, clients: int | None, options: Mapping[str, Any]
) -> dict[str, Integers]:
    if options:
        raise DataError(f"scheme 'column' takes no option '{next(iter(options))}': remove it")
    if table.clients is None:
        raise DataError(
            f"table '{table.name}' names no clients: set client= in its task, or use another "
            "scheme, such as 'iid'"
        )
    rows = rows_by_name(table.clients)
    if clients not in (None, len(rows)):
        raise DataError(f"clients={clients}, but the client column names {len(rows)}: omit it")
    return rows


def rows_by_name(names: npt.NDArray[np.str_]) -> dict[str, Integers]:
    """Return the rows of each name, in the order of the names.

    Examples
    --------
    >>> {name: rows.tolist() for name, rows in rows_by_name(np.array(["b", "a", "b"])).items()}
    {'a': [1], 'b': [0, 2]}
    """
    rows: dict[Any, Any] = pd.Series(names).groupby(names).indices
    return {str(name): rows[name] for name in sorted(rows)}


def _input(
    table: Table,
    scheme: str,
    seed: int,
    clients: int | None,
    *,
    attribute: str | None,
    options: Mapping[str, Any],
) -> SchemeInput:
    """Check the names, and fill in the scheme's defaults."""
    require_known("scheme", [scheme], (*SCHEMES, "column"), DataError)
    defaults = SCHEMES[scheme].options
    require_known(f"option of scheme '{scheme}'", options, defaults, DataError)
    names = [sensitive.name for sensitive in table.attributes]
    if attribute is not None:
        require_known("sensitive attribute", [attribute], names, DataError)
    rng = stream(seed, "scheme", scheme)
    place = names.index(attribute or names[0]) if names else None
    return SchemeInput(table, place, clients, rng, {**defaults, **options})


def _by_shares(scheme: str, source: SchemeInput) -> tuple[dict[str, Integers], tuple[str, ...]]:
    """Cut each group's shuffled rows by its shares; rounding the sums loses no row."""
    shares = SCHEMES[scheme].rule(source)
    count = shares.matrix.shape[1]
    chunks: list[list[Integers]] = [[] for _ in range(count)]
    for group, row in enumerate(shares.matrix):
        members = source.rng.permutation(np.flatnonzero(shares.groups == group))
        # Rounded to nine digits first, so that 70 % of 1,395 is 976.5 and not a hair less.
        ends = np.floor(np.round(np.cumsum(row).clip(max=1) * len(members), 9) + 0.5)
        for client, chunk in enumerate(np.split(members, ends.astype(np.int64))[:-1]):
            chunks[client].append(chunk)
    width = len(str(count))
    rows = {
        f"client-{client:0{width}d}": np.sort(np.concatenate(parts))
        for client, parts in enumerate(chunks, 1)
    }
    if empty := [name for name, chosen in rows.items() if not len(chosen)]:
        remedy = SCHEMES[scheme].remedy
        raise DataError(f"scheme '{scheme}' leaves {empty[0]} with no rows: {remedy}")
    return rows, shares.notes


def _published(matrix: tuple[tuple[float, ...], ...]) -> Scheme:
    def rule(source: SchemeInput) -> Shares:
        shares = np.array(matrix)
        if source.count != shares.shape[1]:
            raise DataError(
                f"clients={source.count}: this split is published for {shares.shape[1]} clients; "
                "leave clients out, or use scheme 'ratio' with ratios="
            )
        attribute = source.read
        group = source.options["group"]
        group = attribute.groups[0] if group is None else str(group)
        require_known(f"group of {attribute.name}", [group], attribute.groups, DataError)
        others = source.groups != attribute.groups.index(group)
        note = f"group 0 of the split is {attribute.name} {group}, group 1 is the rest"
        return Shares(others.astype(np.int64), shares, (note,))

    return Scheme(rule, {"group": None}, "use more rows or scheme 'iid'")


def _ratio(source: SchemeInput) -> Shares:
    attribute = source.read
    ratios = source.options["ratios"]
    wanted = f"{attribute.size} rows ({', '.join(attribute.groups)}) with one share per client"
    if ratios is None:
        raise DataError(f"scheme 'ratio' needs ratios=: {wanted}")
    try:
        shares = np.array(ratios, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"ratios={ratios!r}: not a matrix of numbers; give {wanted}") from error
    if shares.size == 0 or shares.shape[:-1] != (attribute.size,):
        raise DataError(f"ratios has shape {shares.shape}: give {wanted}")
    if source.clients not in (None, shares.shape[1]):
        raise DataError(f"ratios has {shares.shape[1]} columns but clients={source.clients}")
    beyond = np.where(shares >= 0, shares, np.inf).sum(axis=1) > 1 + 1e-9
    if beyond.any():
        group = int(beyond.argmax())
        raise DataError(
            f"ratios of group '{attribute.groups[group]}' are {shares[group].tolist()}: give "
            "shares from 0 that sum to at most 1"
        )
    return Shares(source.groups, shares)


def _dirichlet(source: SchemeInput) -> Shares:
    on, concentration = source.options["on"], _positive(source.options, "concentration")
    require_known("value of on=", [str(on)], ("label", "group"), DataError)
    if on == "label":
        groups, size = source.table.y.astype(np.int64), 2
    else:
        groups, size = source.groups, source.read.size
    return Shares(groups, source.rng.dirichlet(np.full(source.count, concentration), size=size))


def _iid(source: SchemeInput) -> Shares:
    return _one_group(source, np.full(source.count, 1 / source.count))


def _size_skew(source: SchemeInput) -> Shares:
    sizes = np.arange(1, source.count + 1) ** -_positive(source.options, "skew")
    return _one_group(source, sizes / sizes.sum())


def _one_group(source: SchemeInput, shares: Floats) -> Shares:
    return Shares(np.zeros(len(source.table), np.int64), shares[np.newaxis])


def _positive(options: Mapping[str, Any], key: str) -> float:
    value = options[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise DataError(f"{key}={value!r}: give a number above 0")
    return float(value)


SCHEMES: dict[str, Scheme] = {
    "high": _published(_HIGH),
    "low": _published(_LOW),
    "cf-literal": _published(_CF_LITERAL),
    "ratio": Scheme(_ratio, {"ratios": None}, "give the client a share above 0"),
    "dirichlet": Scheme(
        _dirichlet,
        {"on": "label", "concentration": 0.5},
        "raise concentration, lower clients or change the seed",
    ),
    "iid": Scheme(_iid, {}, "lower clients"),
    "size-skew": Scheme(_size_skew, {"skew": 1.0}, "lower skew or clients"),
}
