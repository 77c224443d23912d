"""What one client's column holds and the others' does not: from a few numbers of each client.

The numbers may be taken from rows (medians) or from the sums that clients send (means): the
same rules apply.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from mfairfl.data.sums import EncoderStatistics, NumericStatistics
from mfairfl.data.values import MISSING, Floats, canonical_text
from mfairfl.files import toml_key, toml_text
from mfairfl.text import some_of

FEW_ROWS = 30
"""A client with fewer rows is too small to be judged."""

DifferenceKind = Literal["rows", "units", "constant", "empty", "spelling", "client"]

_EMPTY = 0.95  # share of missing values
_UNLIKELY = 1e-3
_TIMES = 2.0  # a factor too large for a difference between people
_VAST = 5.0  # one that is seen in long tails too
_SURE = 0.2  # relative error of a centre
_ALIKE = 1.6  # ratio of two spreads that are about equal
_FAR = 3.0
_IQR = 1.349  # interquartile range of a normal distribution with deviation 1


class ClientColumn(NamedTuple):
    """One client's column.

    Parameters
    ----------
    rows, values : int
        All rows, and those with a value.
    mean, deviation : float
        Of numbers; the deviation is exactly 0 if all are equal.
    centre, spread : float
        Median and a robust deviation where rows are comparable, else mean and deviation.
    most : float
        No number is in a larger share of the rows that have one.
    levels : dict of str to int, optional
        Rows of each category; None for numbers.
    """

    rows: int
    values: int
    mean: float = 0.0
    deviation: float = 0.0
    centre: float = 0.0
    spread: float = 0.0
    most: float = 1.0
    levels: Mapping[str, int] | None = None

    @classmethod
    def numbers(cls, numbers: Floats) -> ClientColumn:
        """Describe a client's numbers; nan is missing."""
        x = numbers[~np.isnan(numbers)]
        if not len(x):
            return cls(len(numbers), 0)
        low, middle, high = np.quantile(x, (0.25, 0.5, 0.75)).tolist()
        deviation = float(x.std()) if x.min() < x.max() else 0.0
        mean = float(x.mean()) if deviation else float(x[0])
        most = float(np.unique(x, return_counts=True)[1].max()) / len(x)
        return cls(len(numbers), len(x), mean, deviation, middle, (high - low) / _IQR, most)

    @classmethod
    def sums(cls, sums: NumericStatistics) -> ClientColumn:
        """Describe a client's numbers by their sums."""
        rows, moments = sums.count + sums.missing, (sums.mean, sums.deviation)
        return cls(rows, sums.count, *moments, *moments)

    @classmethod
    def categories(cls, counts: Mapping[str, int]) -> ClientColumn:
        """Describe a client's categories."""
        levels = {level: n for level, n in counts.items() if level != MISSING and n}
        return cls(sum(counts.values()), sum(levels.values()), levels=levels)

    @property
    def only(self) -> str | None:
        """The value of every row that has one, if they are all equal."""
        if not self.values:
            return None
        if self.levels is not None:
            return next(iter(self.levels)) if len(self.levels) == 1 else None
        return None if self.deviation else canonical_text(self.mean)


class Difference(NamedTuple):
    """What is odd about a column (or none: about the client), where, and what to do about it."""

    kind: DifferenceKind
    column: str
    clients: tuple[str, ...]
    message: str


Columns = Mapping[str, Mapping[str, ClientColumn]]
"""By column, then by client."""


def columns_of_sums(
    clients: Mapping[str, EncoderStatistics],
) -> dict[str, dict[str, ClientColumn]]:
    """Describe the columns of clients that sent sums."""
    columns = defaultdict[str, dict[str, ClientColumn]](dict)
    for client, sums in clients.items():
        for name, numbers in sums.numeric.items():
            columns[name][client] = ClientColumn.sums(numbers)
        for name, counts in sums.categorical.items():
            columns[name][client] = ClientColumn.categories(counts)
    return columns


def find_differences(columns: Columns, *, sensitive: Collection[str] = ()) -> list[Difference]:
    """Compare each column between clients.

    Parameters
    ----------
    columns
        What each client holds in each column.
    sensitive
        Columns whose groups may well live apart: one group at a client is not reported.

    Examples
    --------
    >>> chol = {"a": ClientColumn(90, 90, 245.0, 55.0, 240.0, 50.0), "b": ClientColumn(50, 50)}
    >>> find_differences({"chol": chol})[0].clients
    ('b',)
    """
    differences = list(_few_rows(columns))
    for name, clients in columns.items():
        differences += _of_column(name, clients, sensitive=name in sensitive)
    return differences


def _few_rows(columns: Columns) -> Iterator[Difference]:
    # Sums may leave out rare categories: the largest number is that of the rows.
    sizes = sorted((c, column.rows) for of in columns.values() for c, column in of.items())
    if small := {client: n for client, n in dict(sizes).items() if n < FEW_ROWS}:
        have = "1 client has" if len(small) == 1 else f"{len(small):,} clients have"
        named = some_of([f"{client} ({n})" for client, n in small.items()])
        message = f"{have} fewer than {FEW_ROWS} rows: {named}: merge with others or leave out"
        yield Difference("rows", "", tuple(small), message)


def _of_column(
    name: str, clients: Mapping[str, ClientColumn], *, sensitive: bool
) -> Iterator[Difference]:
    judged = {c: column for c, column in clients.items() if column.rows >= FEW_ROWS}
    if not sensitive:  # those rows are not recorded, as is noted elsewhere
        yield from _empty(name, judged)
    comparable = {c: column for c, column in judged.items() if column.values >= FEW_ROWS}
    only = {column.only for column in comparable.values()}
    if None not in only and len(only) > 1:
        fix = "it names the client, list it in ignore"
        message = f"column '{name}' has one value at each client: {fix}"
        yield Difference("client", name, tuple(comparable), message)
    elif len(comparable) > 1:
        yield from _spelling(name, comparable)
        if not sensitive:
            yield from _constant(name, comparable)
        yield from _units(name, comparable, only_by_factor=sensitive)


def _empty(name: str, clients: Mapping[str, ClientColumn]) -> Iterator[Difference]:
    gaps = {c: h.rows - h.values for c, h in clients.items() if h.values <= (1 - _EMPTY) * h.rows}
    if gaps and any(2 * column.values > column.rows for column in clients.values()):
        named = some_of([f"{c} ({n:,} of {clients[c].rows:,} rows)" for c, n in gaps.items()])
        where = f"column '{name}' has no value at {named}"
        message = f"{where}: list it in ignore, or fill it in there"
        yield Difference("empty", name, tuple(gaps), message)


def _constant(name: str, clients: Mapping[str, ClientColumn]) -> Iterator[Difference]:
    """Find clients at which a column has one value, though the others' rows make that unlikely."""
    others = [column for column in clients.values() if column.only is None]
    stuck = defaultdict[str, list[str]](list)
    for client, column in clients.items():
        value = column.only if others else None
        if value and _share(value, column.mean, others) ** column.values < _UNLIKELY:
            stuck[value].append(client)
    for value, where in stuck.items():
        named = some_of([f"{client} ({clients[client].values:,} rows)" for client in where])
        message = (
            f"column '{name}' is always {value} at {named} and varies elsewhere: if {value} means "
            f"missing, add columns.{toml_key(name)}.missing_codes = {toml_text([value])} to [task]"
        )
        yield Difference("constant", name, tuple(where), message)


def _share(value: str, number: float, others: Sequence[ClientColumn]) -> float:
    """Return the largest share of the others' rows that can hold a value."""
    rows = sum(other.values for other in others)
    if others[0].levels is not None:
        return sum((other.levels or {}).get(value, 0) for other in others) / rows
    # Cauchy and Schwarz: (E|x − v|)² ≤ P(x ≠ v) · E(x − v)².
    mean = sum(other.values * other.mean for other in others) / rows
    squares = sum(
        other.values * (other.deviation**2 + (other.mean - number) ** 2) for other in others
    )
    most = sum(other.values * other.most for other in others) / rows
    # Squares of numbers below 1e-154 are nothing.
    return min(most, 1 - (mean - number) ** 2 / (squares / rows)) if squares else most


def _units(
    name: str, clients: Mapping[str, ClientColumn], *, only_by_factor: bool
) -> Iterator[Difference]:
    """Find clients whose numbers lie apart from the usual ones."""
    varied = {c: h for c, h in clients.items() if h.levels is None and h.spread > 0}
    if len(varied) < 2:
        return
    rows = [column.values for column in varied.values()]
    usual = [(column.centre, column.spread) for column in varied.values()]
    centre, spread = np.quantile(usual, 0.5, axis=0, weights=rows, method="inverted_cdf").tolist()
    furthest = math.inf if only_by_factor else _FAR
    odd = {}
    for client, column in varied.items():
        apart = abs(column.centre - centre) / (column.spread + spread)
        why = _unit(column, centre, spread) if apart > 1 or _vast(column, centre) else ""
        if why or apart > furthest:
            odd[client] = f"{client} ({column.centre:.4g}{why})"
    if odd:
        message = (
            f"column '{name}' is about {centre:.4g} at most clients, but not at "
            f"{some_of(list(odd.values()))}: if the unit differs, convert it there"
        )
        yield Difference("units", name, tuple(odd), message)


def _vast(column: ClientColumn, centre: float) -> bool:
    """Return whether a centre is a large multiple of the usual one, and not by chance."""
    error = column.spread / math.sqrt(column.values)
    if column.centre * centre <= 0 or error > _SURE * abs(column.centre):
        return False
    return max(column.centre / centre, centre / column.centre) >= _VAST


def _unit(column: ClientColumn, centre: float, spread: float) -> str:
    """Return by which factor numbers of about the same shape differ; nothing if they do not."""
    usual, here = (centre, spread), (column.centre, column.spread)
    for (low, cool), (high, warm) in ((usual, here), (here, usual)):
        if abs(high - (1.8 * low + 32)) < warm and 1 / _ALIKE < warm / (1.8 * cool) < _ALIKE:
            return ", as °F to °C"
    if column.centre * centre <= 0:
        return ""
    factor = column.centre / centre
    shape = (column.spread / column.centre) / (spread / centre)
    if max(factor, 1 / factor) < _TIMES or not 1 / _ALIKE < shape < _ALIKE:
        return ""
    times = f"{factor:.3g} times" if factor > 1 else f"1/{1 / factor:.3g}"
    return f", {times} as much"


def _spelling(name: str, clients: Mapping[str, ClientColumn]) -> Iterator[Difference]:
    """Find clients nearly all of whose categories are unknown to the others."""
    holders = Counter(level for column in clients.values() for level in column.levels or ())
    odd = {}
    for client, column in clients.items():
        strange = {level: n for level, n in (column.levels or {}).items() if holders[level] == 1}
        if sum(strange.values()) >= 0.9 * column.values:
            odd[client] = f"{client} ('{max(strange, key=lambda level: strange[level])}', …)"
    if odd:
        message = (
            f"column '{name}' has values at {some_of(list(odd.values()))} that no other client "
            "has: write the same value alike everywhere"
        )
        yield Difference("spelling", name, tuple(odd), message)


def difference_lines(differences: Iterable[Difference]) -> list[tuple[DifferenceKind, str]]:
    """Return a line for each finding; one line for many columns of the same clients.

    Examples
    --------
    >>> many = [Difference("empty", f"x{i}", ("a",), "...") for i in range(5)]
    >>> difference_lines(many)[0][1].split(": list")[0]
    '5 columns have no value at a: x0, x1, x2 and 2 more'
    """
    alike = defaultdict[tuple[DifferenceKind, tuple[str, ...]], list[Difference]](list)
    for difference in differences:
        alike[difference.kind, difference.clients].append(difference)
    lines: list[tuple[DifferenceKind, str]] = []
    for (kind, clients), same in alike.items():
        if len(same) <= 3:
            lines += [(kind, difference.message) for difference in same]
        else:
            verb, fix = _MANY[kind]
            named = some_of([difference.column for difference in same])
            line = f"{len(same)} columns {verb} {some_of(clients)}: {named}: {fix}"
            lines.append((kind, line))
    return lines


_MANY: dict[DifferenceKind, tuple[str, str]] = {
    "units": ("have other numbers than elsewhere at", "if the units differ, convert them there"),
    "constant": ("never change at", "if their value means missing, declare it in missing_codes"),
    "empty": ("have no value at", "list them in ignore, or fill them in there"),
    "spelling": (
        "have values that no other client has at",
        "write the same value alike everywhere",
    ),
    "client": (
        "have one value at each client, as for",
        "they name the client, list them in ignore",
    ),
}
