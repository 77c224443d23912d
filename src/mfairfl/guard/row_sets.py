"""Which sets of rows may be told about, so that no combination of them isolates a few rows.

A silo tells counts and sums over sets of its rows: the levels of a column, the bins of a number,
the (cell, label) pairs of a split. Whoever has them can add and subtract them. Two sets that
differ in one row tell that row, however large they are.

Let X have a row for each person and a 0/1 column for each set that was told, and let H be the
projection onto its column space. A combination of what was told that depends on at most k rows is
a vector v = Hv with at most k entries that are not 0. Let i be the largest. Then

    |v_i| ≤ Σ_j |H_ij| |v_j| ≤ |v_i| · (sum of the k largest |H_ij|),   and
    v_i² ≤ H_ii |v|² ≤ H_ii k v_i².

So where every row i has H_ii < 1/k, or its k largest |H_ij| sum to less than 1, no combination of
what was told isolates k rows or fewer. H_ii is what statistics calls the leverage of a row. The
condition is sufficient, not necessary: finding the sparsest vector of a space is a hard problem.

A set that fails is told together with others: rare levels with other rare ones, a bin with its
neighbour (complementary suppression).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOWHERE", "RowClasses", "RowSets", "admit"]

Codes = NDArray[np.int32]
NOWHERE = -1
"""Code of a row that is in no set of a partition."""

_SURE = 1e-6  # rounding errs on the side of telling less
_BLOCK = 2**18  # rows looked at together: bounds memory
_FEW = 64  # exposed rows; of fewer, one is asked what exposes it
_MOST_WORK = 10**9  # numbers looked up where rows of high leverage are looked at one by one


@dataclass(frozen=True)
class RowSets:
    """Disjoint sets of rows that were told about, one partition for each thing that was told.

    Parameters
    ----------
    rows : int
        Rows of the file.
    partitions : tuple of ndarray (rows,)
        The set that each row is in, from 0, or `NOWHERE`.

    Examples
    --------
    A country of 100 rows, of which all but one are in its two cities:

    >>> country = np.zeros(100, np.int32)
    >>> city = np.repeat(np.int32([0, 1, NOWHERE]), [50, 49, 1])
    >>> RowSets(100, (country,)).exposed(10).any()
    np.False_
    >>> np.flatnonzero(RowSets(100, (country, city)).exposed(10)).tolist()
    [99]
    """

    rows: int
    partitions: tuple[Codes, ...] = ()

    def __add__(self, more: Sequence[Codes]) -> RowSets:
        return RowSets(self.rows, (*self.partitions, *more))

    @cached_property
    def sizes(self) -> list[int]:
        """The number of sets of each partition."""
        return [int(codes.max(initial=NOWHERE)) + 1 for codes in self.partitions]

    def exposed(self, floor: int) -> NDArray[np.bool_]:
        """Say which rows a combination of fewer than `floor` rows may centre on; safe if none."""
        most = floor - 1
        found = np.zeros(self.rows, dtype=bool)
        if most < 1 or not any(self.sizes):
            return found
        doubted = np.flatnonzero(self._leverages() >= 1 / most - _SURE)
        if len(doubted) * self.rows * len(self.partitions) > _MOST_WORK:  # not worth a closer look
            found[doubted] = True
            return found
        for row in doubted.tolist():
            reach = np.abs(self._projection(row))
            largest = np.partition(reach, max(0, self.rows - most))[-most:]
            found[row] = largest.sum() >= 1 - _SURE
        return found

    @cached_property
    def _starts(self) -> list[int]:
        """The first column of X of each partition."""
        return [0, *np.cumsum(self.sizes).tolist()]

    @cached_property
    def _inverse(self) -> NDArray[np.float64]:
        """(XᵀX)⁺; XᵀX counts the rows that two sets share."""
        starts, gram = self._starts, np.zeros((self._starts[-1],) * 2)
        for a, first in enumerate(self.partitions):
            for b, second in enumerate(self.partitions[: a + 1]):
                both = (first != NOWHERE) & (second != NOWHERE)
                shape = self.sizes[a], self.sizes[b]
                place = first[both].astype(np.int64) * shape[1] + second[both]
                shared = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
                rows, columns = slice(*starts[a : a + 2]), slice(*starts[b : b + 2])
                gram[rows, columns], gram[columns, rows] = shared, shared.T
        values, vectors = np.linalg.eigh(gram)
        # Far above the rounding of `eigh`, far below what independent sets of integers give.
        least = 64 * np.finfo(float).eps * max(values.max(initial=0), 1) * np.sqrt(len(values))
        kept = values > least
        return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)

    def _leverages(self) -> NDArray[np.float64]:
        """H_ii of every row: a row is in one set of each partition at most."""
        found = np.zeros(self.rows)
        padded = np.pad(self._inverse, (0, 1))  # the last is the set of rows that are nowhere
        for start in range(0, self.rows, _BLOCK):
            block = slice(start, start + _BLOCK)
            columns = [self._columns(place, block) for place in range(len(self.partitions))]
            for a, first in enumerate(columns):
                found[block] += padded[first, first]
                for second in columns[:a]:
                    found[block] += 2 * padded[first, second]
        return found

    def _columns(self, place: int, rows: slice) -> NDArray[np.int64]:
        """Return the column of X in which each row has its 1 of a partition; the last if none."""
        codes = self.partitions[place][rows].astype(np.int64)
        return np.where(codes == NOWHERE, self._starts[-1], codes + self._starts[place])

    def combination(self, row: int) -> list[NDArray[np.float64]]:
        """Return how much each set counts in what comes closest to a row, by partition."""
        own = [self._starts[p] + c[row] for p, c in enumerate(self.partitions) if c[row] >= 0]
        weights = self._inverse[:, own].sum(axis=1)
        return [weights[a:b] for a, b in itertools.pairwise(self._starts)]

    def _projection(self, row: int) -> NDArray[np.float64]:
        """H_ij of one row i with every row j."""
        weights = np.append(np.concatenate(self.combination(row)), 0.0)
        found = np.zeros(self.rows)
        for place in range(len(self.partitions)):
            found += weights[self._columns(place, slice(None))]
        return found


@dataclass(frozen=True, slots=True)
class RowClasses:
    """Classes of rows that a silo would like to tell about, part by part.

    Parameters
    ----------
    what : str
        What they are, in words.
    parts : ndarray (rows,)
        The part of the file that each row is in, from 0, or `NOWHERE`: a class is told about in
        each part by itself.
    classes : ndarray (rows,)
        The class of each row that is in a part, from 0.
    ordered : bool
        Whether a class that is too small is told together with a neighbour; else with all others
        that are.
    """

    what: str
    parts: Codes
    classes: Codes
    ordered: bool = False

    def partition(self, groups: Codes) -> Codes:
        """Return the sets that are told: the groups of each part, and what is not told apart."""
        inside, count = self.parts != NOWHERE, len(groups)
        own = groups[self.classes[inside]].astype(np.int64)
        own[own == NOWHERE] = count
        place = self.parts[inside].astype(np.int64) * (count + 1) + own
        codes = np.full(len(inside), NOWHERE, np.int32)
        codes[inside] = np.unique(place, return_inverse=True)[1]
        return codes


def admit(known: RowSets, candidates: Sequence[RowClasses], floor: int) -> list[Codes] | None:
    """Return into which group each class of each candidate is put, so that all may be told.

    `NOWHERE` is the group of the classes that are not told apart from each other. None if not even
    the parts as a whole may be told.

    Examples
    --------
    >>> levels = RowClasses("levels", *np.zeros((2, 40), np.int32))
    >>> levels.classes[:] = np.repeat([0, 1, 2, 3], [12, 6, 17, 5])
    >>> [groups.tolist() for groups in admit(RowSets(40), [levels], 10)]
    [[0, -1, 2, -1]]
    """
    drafts = [_Draft(candidate, floor) for candidate in candidates]
    while True:
        sets = known + [draft.partition for draft in drafts]
        rows = np.flatnonzero(sets.exposed(floor))
        if not len(rows):
            return [draft.groups for draft in drafts]
        merge = _merge_causes if len(rows) <= _FEW else _merge_smallest
        if not merge(sets, drafts, rows):
            return None


def _merge_causes(sets: RowSets, drafts: Sequence[_Draft], rows: NDArray[np.intp]) -> bool:
    """Merge what changes most the combination that exposes the first of these rows."""
    weights = sets.combination(int(rows[0]))[len(sets.partitions) - len(drafts) :]
    found = [draft.contrast(own) for draft, own in zip(drafts, weights, strict=True)]
    best = max(range(len(found)), key=lambda i: found[i][0], default=None)
    if best is None or found[best][0] == 0:
        return False
    drafts[best].join(found[best][1])
    return True


def _merge_smallest(sets: RowSets, drafts: Sequence[_Draft], rows: NDArray[np.intp]) -> bool:
    """Merge, for each of these rows, the smallest group that it is in."""
    del sets
    sizes = np.stack([draft.sizes_at(rows) for draft in drafts])
    smallest, changed = sizes.argmin(axis=0), False
    for place, draft in enumerate(drafts):
        own = rows[(smallest == place) & np.isfinite(sizes[place])]
        changed |= draft.merge(set(draft.groups[draft.candidate.classes[own]].tolist()))
    return changed


class _Draft:
    """A candidate whose classes are merged until they may be told."""

    def __init__(self, candidate: RowClasses, floor: int) -> None:
        self.candidate, self._floor = candidate, floor
        parts, classes = candidate.parts, candidate.classes
        self._inside = parts != NOWHERE
        count = int(classes[self._inside].max(initial=NOWHERE)) + 1
        self._parts = int(parts.max(initial=NOWHERE)) + 1
        place = parts[self._inside].astype(np.int64) * count + classes[self._inside]
        held = np.bincount(place, minlength=self._parts * count)
        self._rows = held.reshape(self._parts, count)  # of each part and class
        self.groups: Codes = np.arange(count, dtype=np.int32)
        self.merge(set(np.flatnonzero(self._is_small(self._rows)).tolist()))

    def _is_small(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether columns hold too few rows in some part."""
        return np.asarray(((rows > 0) & (rows < self._floor)).any(axis=0))

    @property
    def partition(self) -> Codes:
        """The sets that would be told."""
        return self.candidate.partition(self.groups)

    def contrast(self, weights: NDArray[np.float64]) -> tuple[float, int]:
        """Return how much the weights of sets differ most where a group is joined, and which.

        Parameters
        ----------
        weights : ndarray
            A number for each set of `partition`, part by part.
        """
        groups, held = np.unique(self.groups, return_inverse=True)
        if len(groups) < 2:
            return 0.0, NOWHERE
        rows = np.stack([np.bincount(held, part) for part in self._rows])
        rows = np.roll(rows, -1, axis=1) if groups[0] == NOWHERE else rows  # as in `partition`
        groups = np.roll(groups, -1) if groups[0] == NOWHERE else groups
        table = np.zeros(rows.shape)
        table[rows > 0] = weights
        if self.candidate.ordered:
            steps = np.abs(np.diff(table, axis=1)).max(axis=0)
            return float(steps.max()), int(groups[steps.argmax()])
        other = len(groups) - 1 if groups[-1] == NOWHERE else int(rows.sum(axis=0).argmin())
        steps = np.abs(table - table[:, [other]]).max(axis=0)
        return float(steps.max()), int(groups[steps.argmax()])

    def sizes_at(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """How large the group is that each row is in; infinite where it cannot be merged."""
        found = np.full(len(rows), np.inf)
        if len(np.unique(self.groups)) > 1:
            inside = self._inside[rows]
            totals = np.bincount(self.groups + 1, self._rows.sum(axis=0))  # 0: not told apart
            found[inside] = totals[self.groups[self.candidate.classes[rows[inside]]] + 1]
        return found

    def merge(self, groups: set[int]) -> bool:
        """Tell these groups together with others; say whether anything changed."""
        if not groups or len(np.unique(self.groups)) < 2:
            return False
        if self.candidate.ordered:
            self._merge_neighbours(groups)
        else:
            self._pool(groups)
        return True

    def join(self, group: int) -> None:
        """Tell a group together with the next, or with those that are not told apart."""
        if self.candidate.ordered:
            self.groups[self.groups > group] -= 1
        else:
            self._pool({group})

    def _pool(self, groups: set[int]) -> None:
        """Put groups among those that are not told apart, and more until these are enough."""
        before = len(np.unique(self.groups))
        self.groups[np.isin(self.groups, list(groups))] = NOWHERE
        if len(np.unique(self.groups)) == before:  # alone there, they would be told as before
            self._pool_smallest(np.ones(self._parts, dtype=bool))
        while (self.groups != NOWHERE).any():
            hidden = self._rows[:, self.groups == NOWHERE].sum(axis=1)
            lacking = (hidden > 0) & (hidden < self._floor)
            if not lacking.any():
                return
            self._pool_smallest(lacking)

    def _pool_smallest(self, parts: NDArray[np.bool_]) -> None:
        """Put one more among those: the smallest that has rows in these parts, if any has."""
        left = np.flatnonzero(self.groups != NOWHERE)
        adds = self._rows[parts][:, left].any(axis=0)
        choice = left[adds] if adds.any() else left
        self.groups[choice[self._rows[:, choice].sum(axis=0).argmin()]] = NOWHERE

    def _merge_neighbours(self, marked: set[int]) -> None:
        """Merge each marked group with its smaller neighbour, and what is still too small."""
        ends = np.flatnonzero(np.append(np.diff(self.groups) != 0, True)).tolist()
        starts = [0, *(end + 1 for end in ends[:-1])]
        rows = [self._rows[:, a : b + 1].sum(axis=1) for a, b in zip(starts, ends, strict=True)]
        due = [group in marked for group in range(len(ends))]
        place = 0
        while place < len(rows) and len(rows) > 1:
            if not (due[place] or self._is_small(rows[place][:, None])[0]):
                place += 1
                continue
            sides = [
                rows[i].sum() if 0 <= i < len(rows) else np.inf for i in (place - 1, place + 1)
            ]
            first = place - 1 if sides[0] <= sides[1] else place
            rows[first : first + 2] = [rows[first] + rows[first + 1]]
            due[first : first + 2] = [False]
            del ends[first]
            place = first
        self.groups[:] = np.searchsorted(ends, np.arange(len(self.groups)))
