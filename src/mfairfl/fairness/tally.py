"""Tally: counts over (client, cell, label, decision), all that evaluation needs from a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import MISSING, Attribute
from mfairfl.errors import ConfigError, DataError, require_known
from mfairfl.fairness.cells import Cells, Statistics


def hidden_cells(
    rows: NDArray[np.int64], names: Sequence[tuple[str, ...]], minimum: int
) -> NDArray[np.bool_]:
    """Return which (cell, label) entries of one client's table, (C, 2) or (C, 3), are hidden.

    A single hidden cell is the total minus the rest, so the smallest other cells are hidden with
    it until `minimum` rows, and so at least two cells, are; ties go by the cells' names, never by
    their order in a file.

    Examples
    --------
    >>> hidden_cells(np.array([[40, 3], [12, 30]]), [("F",), ("M",)], 10).tolist()
    [[False, True], [True, False]]
    """
    if minimum < 1:
        raise ConfigError(f"minimum = {minimum} rows per cell; use 1 (hide nothing) or more")
    hidden = np.zeros(rows.shape, dtype=bool)
    if rows.sum() < minimum:
        return ~hidden
    by_size = sorted(
        (int(rows[cell, label]), names[cell], label, cell)
        for cell, label in zip(*np.nonzero(rows), strict=True)
    )
    if by_size[0][0] >= minimum:
        return hidden
    total = 0
    for size, _, label, cell in by_size:
        if size >= minimum and total >= minimum:
            break
        hidden[cell, label] = True
        total += size
    return hidden


@dataclass(frozen=True, slots=True)
class CodedRows:
    """Whose each row is, and which cell it is in.

    Attributes
    ----------
    client, cell
        Codes of each row, (n,).
    clients, attributes
        What the codes stand for.
    """

    client: NDArray[np.intp]
    cell: NDArray[np.intp]
    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]

    @classmethod
    def of(
        cls,
        sensitive_features: Any,
        clients: Any,
        attributes: Sequence[Attribute] | None,
        *,
        lengths: Mapping[str, int],
    ) -> CodedRows:
        """Read groups and clients, arguments as in `Tally.from_predictions`.

        `lengths` are those of the other columns, the first of which is the number of rows.

        Examples
        --------
        >>> CodedRows.of(["F", "M"], None, None, lengths={"y_pred": 2}).cell.tolist()
        [0, 1]
        """
        stated = None if attributes is None else tuple(attributes)
        columns = named_columns(sensitive_features, stated)
        groups = {attribute.name: attribute.groups for attribute in stated or ()}
        coded = {name: group_column(col, name, groups.get(name)) for name, col in columns.items()}
        n = next(iter(lengths.values()))
        owners, expected = (clients, None) if clients is not None else (["all"] * n, ("all",))
        client, names = coded_column(owners, "clients", expected)
        sizes = {**lengths, "clients": len(client)}
        sizes |= {name: len(codes) for name, (codes, _) in coded.items()}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in sizes.items())
            raise DataError(f"columns differ in length: {listed}; give one value per row in each")
        sensitive = tuple(Attribute(name, names) for name, (_, names) in coded.items())
        codes = np.array([codes for codes, _ in coded.values()], dtype=np.intp)
        cell = Cells(sensitive).encode(codes.reshape(len(sensitive), n).T)
        return cls(client, cell, names, sensitive)

    def counted(self, codes: NDArray[np.intp], size: int) -> NDArray[np.int64]:
        """Count rows by client, cell and a code below `size`: (K, C, size)."""
        cells = Cells(self.attributes).size
        index = (self.client * cells + self.cell) * size + codes
        counts = np.bincount(index, minlength=len(self.clients) * cells * size)
        return counts.astype(np.int64).reshape(len(self.clients), cells, size)


Counts = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Counts[client, cell, y, ŷ]; adding two tallies is pooling their rows.

    Attributes
    ----------
    counts
        Shape (K, C, 2, 2). int64, or float64 for the expected counts of a randomised predictor
        (then the sum over ŷ is still a number of rows).
    clients
        The K clients' names.
    attributes
        The sensitive attributes; C is the product of their sizes (1 without attributes).

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 0], sensitive_features=["F", "M", "M"])
    >>> tally.n, tally.attributes[0].groups
    (3, ('F', 'M'))
    """

    counts: Counts
    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        kind = np.asarray(self.counts).dtype.kind
        if kind not in "iuf":
            raise DataError(f"tally: counts have dtype kind '{kind}'; use integers or floats")
        counts = np.array(self.counts, dtype=np.float64 if kind == "f" else np.int64)
        expected = (len(self.clients), Cells(self.attributes).size, 2, 2)
        if counts.shape != expected:
            raise DataError(f"tally: counts have shape {counts.shape}; expected {expected}")
        if not np.isfinite(counts).all() or (counts < 0).any():
            raise DataError("tally: counts hold a negative or missing number")
        if len(set(self.clients)) < len(self.clients):
            clients = list(self.clients)
            raise DataError(f"tally: clients {clients} contain a name twice; rename one")
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        clients: Any = None,
        attributes: Sequence[Attribute] | None = None,
    ) -> Tally:
        """Count rows.

        Parameters
        ----------
        y_true, y_pred
            Labels and decisions, 0 or 1 (1 = favourable).
        sensitive_features
            One column, or several as a frame, a dict of columns or a 2-d array. A row with a
            missing value is not recorded (group ``?``): it counts for everything else, but is
            outside the comparison of that attribute's groups.
        clients
            The client of each row; None means one client called ``all``.
        attributes
            The attributes with all their groups. Give them where a group may have no rows (one
            silo's data); by default the groups are the values that occur.

        Examples
        --------
        >>> columns = {"sex": ["F", "M"], "age": [30, 60]}
        >>> Tally.from_predictions(
        ...     [1, 0], [1, 1], sensitive_features=columns, clients=["a", "b"]
        ... ).counts.shape
        (2, 4, 2, 2)
        """
        y, decision = binary_column(y_true, "y_true"), binary_column(y_pred, "y_pred")
        lengths = {"y_true": len(y), "y_pred": len(decision)}
        rows = CodedRows.of(sensitive_features, clients, attributes, lengths=lengths)
        counts = rows.counted(2 * y + decision, 4)
        return cls(counts.reshape(*counts.shape[:2], 2, 2), rows.clients, rows.attributes)

    @classmethod
    def from_statistics(
        cls, clients: Mapping[str, Statistics], attributes: Sequence[Attribute]
    ) -> Tally:
        """Return the counts behind each client's sums, clients in name order."""
        names = sorted(clients)
        parts = [clients[name] for name in names]
        rows, positives = Statistics.tables(parts, ("counts", "positives")).values()
        counts = np.stack([rows - positives, positives], axis=-1)
        whole = np.rint(counts)
        # Randomised thresholds give expected counts.
        exact = whole.astype(np.int64) if np.array_equal(whole, counts) else counts
        return cls(exact, tuple(names), tuple(attributes))

    @property
    def n(self) -> int:
        """The number of rows."""
        return round(float(self.counts.sum()))

    @property
    def cells(self) -> Cells:
        """The cells the tally counts over."""
        return Cells(self.attributes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally) or self.clients != other.clients:
            return False
        same = bool(np.array_equal(self.counts, other.counts))
        return same and self.attributes == other.attributes

    def __hash__(self) -> int:
        return hash((self.clients, self.attributes, self.n))

    def __add__(self, other: Tally) -> Tally:
        if self.attributes != other.attributes:
            first, second = (
                "; ".join(f"{item.name}: {', '.join(item.groups)}" for item in tally.attributes)
                for tally in (self, other)
            )
            raise DataError(
                f"tallies over {first} and {second} cannot be added; state the same attributes "
                "and groups for both (attributes=)"
            )
        new = tuple(name for name in other.clients if name not in self.clients)
        clients = self.clients + new
        dtype = np.result_type(self.counts, other.counts)
        counts = np.zeros((len(clients), *self.counts.shape[1:]), dtype=dtype)
        counts[: len(self.clients)] += self.counts
        counts[[clients.index(name) for name in other.clients]] += other.counts
        return Tally(counts, clients, self.attributes)

    def pooled(self) -> Tally:
        """Return the tally of all rows as one client called ``all``."""
        return Tally(self.counts.sum(axis=0, keepdims=True), ("all",), self.attributes)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers."""
        return {
            "clients": list(self.clients),
            "attributes": [
                {"name": item.name, "groups": list(item.groups)} for item in self.attributes
            ],
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Tally:
        """Return the tally that `to_json` wrote.

        Examples
        --------
        >>> tally = Tally.from_predictions([1, 0], [1, 1], sensitive_features=["F", "M"])
        >>> Tally.from_json(tally.to_json()) == tally
        True
        """
        missing = {"clients", "attributes", "counts"} - set(document)
        if missing:
            raise DataError(f"tally: key '{min(missing)}' is missing; was it written by to_json?")
        attributes = tuple(
            Attribute(item["name"], tuple(item["groups"])) for item in document["attributes"]
        )
        shape = (len(document["clients"]), Cells(attributes).size, 2, 2)
        counts = np.array(document["counts"])
        # A tally without clients is an empty list, which has lost its shape.
        counts = counts.reshape(shape) if counts.size == 0 == np.prod(shape) else counts
        return cls(counts, tuple(document["clients"]), attributes)


def binary_column(values: Any, name: str) -> NDArray[np.intp]:
    """Return `values` as an array of 0 and 1; an error names the first row that is neither.

    Examples
    --------
    >>> binary_column([True, False, 1.0], "y_true").tolist()
    [1, 0, 1]
    """
    column = _column(values, name)
    is_one = np.asarray(column == 1, dtype=bool)
    wrong = np.flatnonzero(~is_one & np.asarray(column != 0, dtype=bool))
    if wrong.size:
        raise DataError(
            f"{name}: row {wrong[0]} holds {column[wrong[0]]!r}; use 0 and 1 (1 = favourable), "
            f"for example ({name} == favourable).astype(int)"
        )
    return is_one.astype(np.intp)


def coded_column(
    values: Any, name: str, groups: tuple[str, ...] | None = None
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the code of each row and the names the codes stand for.

    Without `groups` the names are the values that occur, sorted (numbers as numbers), ``?`` last.

    Examples
    --------
    >>> codes, names = coded_column([10, 9, 10], "age")
    >>> codes.tolist(), names
    ([1, 0, 1], ('9', '10'))
    """
    column = _column(values, name)
    codes, uniques = pd.factorize(column)
    if groups is None:
        recorded = [value for value in uniques if value != MISSING]
        numeric = all(isinstance(value, Number) for value in recorded)
        ordered = sorted(recorded) if numeric else sorted(recorded, key=str)
        groups = (*map(str, ordered), *[MISSING] * (len(recorded) < len(uniques)))
        if len(set(groups)) < len(groups):
            twice = next(group for group in groups if groups.count(group) > 1)
            raise DataError(f"{name}: {twice!r} occurs as text and as a number; use one type")
    place = {group: index for index, group in enumerate(groups)}
    require_known("group", map(str, uniques), groups, DataError, where=name)
    recode = np.array([place[str(value)] for value in uniques], dtype=np.intp)
    return (recode[codes] if len(codes) else np.zeros(0, dtype=np.intp)), groups


def group_column(
    values: Any, name: str, groups: tuple[str, ...] | None = None
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return what `coded_column` does; a missing value has the group ``?``: not recorded.

    Groups that are given without it allow no missing value.

    Examples
    --------
    >>> codes, names = group_column(["m", None, "f"], "sex")
    >>> codes.tolist(), names
    ([1, 2, 0], ('f', 'm', '?'))
    """
    if groups is None or MISSING in groups:
        column = np.asarray(values, dtype=object)
        values = np.where(pd.isna(column), MISSING, column)
    return coded_column(values, name, groups)


def named_columns(
    sensitive_features: Any, attributes: tuple[Attribute, ...] | None
) -> dict[str, Any]:
    """Return the sensitive columns by name, from a column, an array, a frame or a mapping."""
    columns: dict[str, Any]
    stated = [attribute.name for attribute in attributes or ()]
    if isinstance(sensitive_features, Mapping):
        columns = {str(name): column for name, column in sensitive_features.items()}
    elif hasattr(sensitive_features, "columns"):
        columns = {str(name): sensitive_features[name] for name in sensitive_features.columns}
    elif np.ndim(sensitive_features) == 2:
        table = np.asarray(sensitive_features, dtype=object)
        columns = {f"sensitive_feature_{i}": table[:, i] for i in range(table.shape[1])}
        if len(stated) == len(columns):
            columns = dict(zip(stated, columns.values(), strict=True))
    else:
        only = stated[0] if len(stated) == 1 else None
        name = only or getattr(sensitive_features, "name", None) or "sensitive_feature"
        columns = {str(name): sensitive_features}
    if attributes is None:
        return columns
    if set(columns) != set(stated):
        raise DataError(f"sensitive_features has columns {sorted(columns)}; expected {stated}")
    return {name: columns[name] for name in stated}


def _column(values: Any, name: str) -> NDArray[Any]:
    """Return `values` as a one-dimensional object array without missing entries."""
    column = np.asarray(values, dtype=object)
    if column.ndim != 1:
        raise DataError(f"{name}: has shape {column.shape}; give one value per row")
    missing = np.flatnonzero(pd.isna(column))
    if missing.size:
        raise DataError(
            f"{name}: row {missing[0]} is missing ({missing.size} in all); drop or fill them"
        )
    return column
