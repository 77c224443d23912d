"""Intersectional cells of the sensitive attributes, and sums over (cell, label).

The cell of a row is the C-order ravel of its group codes, so a marginal group or an intersection
is a set of cells, and whatever is known per (cell, label) is known for every grouping.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.data import MISSING, Attribute
from mfairfl.errors import DataError, require_known

Floats = NDArray[np.float64]
SUMS = ("counts", "positives", "scores", "losses")  # of `Statistics`, in this order


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Cells in named groups; `membership[g, c]` says cell c is in group g.

    A cell is in one group, or in none if an attribute is not recorded there.

    Examples
    --------
    >>> cells = Cells((Attribute("sex", ("F", "M")),))
    >>> cells.groupings()[0].membership.tolist()
    [[True, False], [False, True]]
    """

    name: str
    groups: tuple[str, ...]
    membership: NDArray[np.bool_]

    @property
    def compared(self) -> NDArray[np.bool_]:
        """The cells in a group: what is "overall" for these groups, (C,)."""
        return np.asarray(self.membership.any(axis=0))


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of some attributes; without attributes there is one cell.

    Examples
    --------
    >>> cells = Cells((Attribute("sex", ("F", "M")), Attribute("age", ("young", "mid", "old"))))
    >>> cells.size, cells.names[4]
    (6, ('M', 'mid'))
    >>> [grouping.name for grouping in cells.groupings(intersections=True)]
    ['sex', 'age', 'sex × age']
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        names = [attribute.name for attribute in self.attributes]
        if len(set(names)) < len(names):
            raise DataError(f"sensitive attributes {names}: a name occurs twice; rename one")
        for attribute in self.attributes:
            groups = attribute.groups
            if not attribute.recorded:
                raise DataError(f"sensitive attribute '{attribute.name}' has no groups; name them")
            if len(set(groups)) < len(groups):
                raise DataError(f"sensitive attribute '{attribute.name}': a group occurs twice")

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of groups of each attribute."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def size(self) -> int:
        """The number of cells C: the product of the attributes' sizes."""
        return math.prod(self.shape)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The group names of each cell, one for each attribute."""
        return list(product(*(attribute.groups for attribute in self.attributes)))

    def encode(self, codes: ArrayLike) -> NDArray[np.intp]:
        """Return the cell of each row of an (n, A) array of group codes."""
        table = np.asarray(codes, dtype=np.intp)
        if not self.attributes:
            return np.zeros(len(table), dtype=np.intp)
        return np.asarray(np.ravel_multi_index(tuple(table.T), self.shape))

    def grouping(self, *names: str) -> Grouping:
        """Return the marginal of one attribute or the intersection of several.

        Cells where one of them is not recorded (``?``) are in no group.
        """
        attributes = [attribute.name for attribute in self.attributes]
        require_known("sensitive attribute", names, attributes)
        axes = [attributes.index(name) for name in names]
        chosen = Cells(tuple(self.attributes[axis] for axis in axes))
        codes = np.indices(self.shape).reshape(len(attributes), -1)
        group = chosen.encode(codes[axes].T)
        recorded = [index for index, name in enumerate(chosen.names) if MISSING not in name]
        groups = tuple(" × ".join(chosen.names[index]) for index in recorded)
        return Grouping(" × ".join(names), groups, group == np.array(recorded)[:, None])

    def groupings(
        self, attributes: Sequence[str] | None = None, intersections: bool = False
    ) -> list[Grouping]:
        """Return the marginals of `attributes` (all by default) and, if asked, every intersection.

        Parameters
        ----------
        attributes
            Names of attributes; None means all.
        intersections
            Add the grouping of every subset of two or more of them.
        """
        if attributes is None:
            attributes = [attribute.name for attribute in self.attributes]
        largest = len(attributes) if intersections else 1
        sets = (combinations(attributes, count) for count in range(1, largest + 1))
        return [self.grouping(*names) for names in chain.from_iterable(sets)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Sums over (cell, label), each a (C, 2) array; adding them is pooling the data.

    Attributes
    ----------
    counts
        Number of rows.
    positives
        Number of rows with decision 1.
    scores
        Σ σ(z).
    losses
        Σ of the per-row cross-entropy.

    Examples
    --------
    Eight rows of one cell, six of them of label 0:

    >>> sums = Statistics(counts=[[6, 2]], positives=[[1, 1]], scores=[[2, 1]], losses=[[2, 2]])
    >>> sums.accuracy, sums.mean_loss
    (0.75, 0.5)
    """

    counts: Floats
    positives: Floats
    scores: Floats
    losses: Floats

    def __post_init__(self) -> None:
        shape = len(self.counts), 2
        for name in SUMS:  # of thousands of clients: only what is not float64 yet is set again
            given = getattr(self, name)
            value = np.asarray(given, dtype=np.float64)
            if value.shape != shape:
                raise DataError(f"statistics: {name} has shape {value.shape}; expected (cells, 2)")
            if value is not given:
                object.__setattr__(self, name, value)

    @classmethod
    def from_rows(
        cls,
        *,
        size: int,
        cells: ArrayLike,
        y: ArrayLike,
        decisions: ArrayLike,
        scores: ArrayLike,
        losses: ArrayLike,
    ) -> Statistics:
        """Sum per-row values over the `size` cells and the two labels.

        Examples
        --------
        >>> rows = dict(cells=[0, 1], y=[1, 0], decisions=[1, 1], scores=[0.9, 0.6])
        >>> Statistics.from_rows(size=2, losses=[0.1, 0.9], **rows).scores.tolist()
        [[0.0, 0.9], [0.6, 0.0]]
        """
        index = 2 * np.asarray(cells, dtype=np.intp) + np.asarray(y, dtype=np.intp)

        def total(weights: ArrayLike | None) -> Floats:
            values = None if weights is None else np.asarray(weights, dtype=np.float64)
            sums = np.bincount(index, weights=values, minlength=2 * size)
            return sums.astype(np.float64).reshape(size, 2)

        return cls(
            counts=total(None),
            positives=total(decisions),
            scores=total(scores),
            losses=total(losses),
        )

    @staticmethod
    def tables(parts: Collection[Statistics], names: Sequence[str] = SUMS) -> dict[str, Floats]:
        """Return the sums of these names of all parts, (parts, C, 2) each.

        Examples
        --------
        >>> one = Statistics(**dict.fromkeys(SUMS, np.ones((1, 2))))
        >>> Statistics.tables([one, one, one])["losses"].shape
        (3, 1, 2)
        """
        # Twice as fast as np.stack: parts may be thousands.
        return {name: np.array([getattr(part, name) for part in parts]) for name in names}

    @classmethod
    def total(cls, parts: Sequence[Statistics]) -> Statistics:
        """Return the sum of all parts, added one after the other.

        Examples
        --------
        >>> one = Statistics(**dict.fromkeys(SUMS, np.ones((1, 2))))
        >>> Statistics.total([one, one, one]).counts.tolist()
        [[3.0, 3.0]]
        """
        sizes = dict.fromkeys(len(part.counts) for part in parts)
        if len(sizes) > 1:
            raise DataError(
                f"statistics of {' and '.join(map(str, sizes))} cells cannot be added; use the "
                "same sensitive attributes"
            )
        tables = cls.tables(parts)
        # Along the first axis numbers are added in their order, as a loop would.
        return cls(**{name: np.add.reduce(table, axis=0) for name, table in tables.items()})

    @classmethod
    def pooled(cls, clients: Mapping[str, Statistics]) -> Statistics:
        """Return the sums over all clients, added in name order."""
        return cls.total([clients[name] for name in sorted(clients)])

    @property
    def accuracy(self) -> float:
        """The share of correct decisions; nan without rows."""
        correct = self.counts[:, 0] - self.positives[:, 0] + self.positives[:, 1]
        rows = self.counts.sum()
        return float(correct.sum() / rows) if rows else float("nan")

    @property
    def mean_loss(self) -> float:
        """The mean cross-entropy; nan without rows."""
        rows = float(self.counts.sum())
        return float(self.losses.sum()) / rows if rows else float("nan")

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics.total([self, other])
