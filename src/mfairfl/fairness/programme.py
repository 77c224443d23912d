"""The best thresholds under bounds: a linear programme over blocks and thresholds.

Symbols: S[e, t] rows of entry e, a (client, cell, label), with a logit of at least threshold t;
a *block* b is a set of entries that are decided by one threshold; x[b, t] ≥ 0 the probability with
which it is t, Σ_t x[b, t] = 1. The selected rows of entry e are s[e] = Σ_t x[b(e), t] S[e, t].

  maximise   Σ_b Σ_t x[b, t] G[b, t]   subject to   A s ≥ lowest.

There are M · 2,049 variables for M blocks, of which few matter. The programme begins with a few
thresholds for each block; at its prices, the threshold that would help a block most is added,
until none would (column generation: the optimum over all thresholds). An optimum at a vertex
randomises at most as many blocks as bounds bind.

For decisions without chance (`rounded`) each block takes its likeliest threshold, and blocks,
alone and in pairs, change theirs as long as that raises the objective minus ten times the excess
over the bounds: a local search, so better rules may exist; its excess is known exactly. It begins
with each client's own bounds, at the programme's prices of the bounds for everyone: a client that
has left the thresholds that meet its own bounds would hardly find them again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_PRECISION = 1e-7  # of the objective
_NEGLIGIBLE = 1e-9  # a probability below this is the solver's rounding
_SOLVER: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# Of a unit of excess over bounds for everyone, low at first: the search moves freely.
_EXCESS_PRICES = (1.0, 3.0, 10.0)
_OWN_PRICE = 10.0  # of one over a client's own bounds
_TRIED = 2e6  # numbers that are computed to try once the pairs of blocks of different clients
_TRIED_WITHIN = 2e7  # those of one client, which its own bounds tie together
_PAIRED_BLOCKS = 24  # beyond, blocks are paired within their client only


class Bounds(NamedTuple):
    """Rows a of A with a · s ≥ lowest.

    Attributes
    ----------
    matrix
        A, (R, E), sparse.
    lowest
        (R,).
    weight
        What an excess counts: the share of the rows that the bound is about.
    """

    matrix: Any
    lowest: Floats
    weight: Floats

    def raised(self, by: Floats) -> Bounds:
        """Return the same bounds, each raised by a number."""
        return self._replace(lowest=self.lowest + by)


class Solution(NamedTuple):
    """Which thresholds blocks use, and how often.

    Attributes
    ----------
    columns
        Pairs (block, place of the threshold), sorted, (N, 2).
    shares
        x of each, (N,).
    prices
        What raising each bound by 1 would cost the objective, (R,).
    extra
        The variable v ≥ 0, where one was asked for.
    """

    columns: Places
    shares: Floats
    prices: Floats
    extra: float = 0.0

    def of_block(self, block: int) -> tuple[Places, Floats]:
        """Return the places of the thresholds that a block uses, and their probabilities."""
        start, end = np.searchsorted(self.columns[:, 0], [block, block + 1])
        used = start + np.flatnonzero(self.shares[start:end] > _NEGLIGIBLE)
        return self.columns[used, 1], self.shares[used] / self.shares[used].sum()


@dataclass(frozen=True, eq=False)
class Programme:
    """What every threshold of every block gives; the first threshold is the usual one.

    Attributes
    ----------
    selected
        S, (E, T).
    worth
        What a selected row of each entry adds to the objective with each threshold, (E, T).
    blocks
        The entries of each block.
    owners
        Whose each block is, or −1 for everyone's.

    Examples
    --------
    Two blocks of ten rows; the first gains by every row, the second loses, and needs four:

    >>> from scipy.sparse import csr_array
    >>> selected = np.tile(np.arange(11.0), (2, 1))
    >>> worth = np.stack([selected[0], -(selected[1] ** 2)])
    >>> programme = Programme(selected, worth, [np.array([0]), np.array([1])], [-1, -1])
    >>> bounds = Bounds(csr_array([[0.0, 1.0]]), np.array([4.0]), np.ones(1))
    >>> solution = programme.optimum(bounds)
    >>> solution.of_block(0)[0].tolist(), solution.of_block(1)[0].tolist()
    ([10], [4])
    """

    selected: Floats
    worth: Floats
    blocks: Sequence[Places]
    owners: Sequence[int]

    @cached_property
    def gain(self) -> Floats:
        """G, (M, T)."""
        return self._by_block(self.worth)

    def _by_block(self, values: Floats) -> Floats:
        return np.stack([values[entries].sum(axis=0) for entries in self.blocks])

    def _first_columns(self) -> Places:
        """Return, for each block, the usual threshold and those that select all and none."""
        rows = self._by_block(self.selected)
        ends = (rows.max(axis=1), rows.min(axis=1))
        places = [np.argmax(rows == end[:, None], axis=1) for end in ends]
        every = np.arange(len(rows))
        pairs = [np.stack([every, place], axis=1) for place in (*places, np.zeros_like(every))]
        return np.unique(np.concatenate(pairs), axis=0)

    def _sums(self, bounds: Bounds, columns: Places) -> Any:
        """Return A · S of each column, (R, N)."""
        from scipy.sparse import csc_array  # noqa: PLC0415 - slow to load, rarely needed

        entries = [self.blocks[block] for block in columns[:, 0]]
        sizes = [len(part) for part in entries]
        rows = np.concatenate(entries)
        values = self.selected[rows, np.repeat(columns[:, 1], sizes)]
        shape = (len(self.selected), len(columns))
        return bounds.matrix @ csc_array((values, rows, np.cumsum([0, *sizes])), shape=shape)

    def values(self, bounds: Bounds, prices: Floats) -> Floats:
        """Return what each threshold of each block is worth at these prices, without G, (M, T)."""
        return self._by_block((bounds.matrix.T @ prices)[:, None] * self.selected)

    def optimum(
        self,
        bounds: Bounds,
        slack: Floats | None = None,
        *,
        sign: int = 1,
        start: Solution | None = None,
    ) -> Solution:
        """Return the best shares of the thresholds.

        Parameters
        ----------
        bounds
            They can be met, at least with the first columns or those of `start`.
        slack, sign
            If given, the bounds are A s + slack · v ≥ lowest and the objective is sign · v alone.
        start
            The columns to begin with.
        """
        columns = self._first_columns() if start is None else start.columns
        gain = self.gain if slack is None else np.zeros_like(self.gain)
        while True:
            solution, block_prices = self._solved(bounds, columns, gain, slack, sign)
            values = gain + self.values(bounds, solution.prices)
            best = values.argmax(axis=1)
            missed = values.max(axis=1) - block_prices
            new = np.flatnonzero(missed > _PRECISION / len(missed))
            added = np.unique(
                np.concatenate([columns, np.stack([new, best[new]], axis=1)]), axis=0
            )
            if missed[new].sum() <= _PRECISION or len(added) == len(columns):
                return solution
            columns = added

    def _solved(
        self, bounds: Bounds, columns: Places, gain: Floats, slack: Floats | None, sign: int
    ) -> tuple[Solution, Floats]:
        """Solve for these columns alone; return also what a share of each block is worth."""
        from scipy.optimize import linprog  # noqa: PLC0415 - slow to load, rarely needed
        from scipy.sparse import csr_array, hstack  # noqa: PLC0415 - slow to load, rarely needed

        blocks, thresholds = columns.T
        many, size = len(columns), len(self.blocks)
        extra = np.zeros(len(bounds.lowest)) if slack is None else slack
        left: Any = hstack([self._sums(bounds, columns), csr_array(extra[:, None])])
        one: Any = csr_array((np.ones(many), (blocks, np.arange(many))), shape=(size, many + 1))
        result = linprog(
            -np.append(gain[blocks, thresholds], 0 if slack is None else sign),
            A_ub=-left,
            b_ub=-bounds.lowest,
            A_eq=one,
            b_eq=np.ones(size),
            # The simplex method ends in a vertex: few blocks are decided by chance.
            method="highs-ds",
            options=_SOLVER,
        )
        # The bounds can be met: no solution would be a solver's failure.
        if result.status != 0 or result.x is None:
            raise RuntimeError(f"linear programme not solved: {result.message}")
        prices, shares = -result.ineqlin.marginals, np.maximum(result.x[:many], 0.0)
        return Solution(columns, shares, prices, float(result.x[many])), -result.eqlin.marginals

    def rounded(self, bounds: Bounds, solution: Solution) -> Solution:
        """Return one threshold for each block: a local search that begins with the likeliest."""
        search = _Rounding(self, bounds, solution)
        if search.of_one_client.any():  # clients' own bounds first
            search.settle(0.0)
        for price in _EXCESS_PRICES:
            search.settle(price)
        columns = np.stack([np.arange(len(search.chosen)), search.chosen], axis=1)
        return Solution(columns, np.ones(len(columns)), solution.prices)

    def excess(self, bounds: Bounds, solution: Solution) -> Floats:
        """Return how far each bound is from being met; 0 where it is, (R,)."""
        reached = self._sums(bounds, solution.columns) @ solution.shares
        return np.asarray(np.maximum(bounds.lowest - reached, 0.0))


class _Rounding:
    """One threshold for each block, changed while that raises gain − Σ price · excess."""

    def __init__(self, programme: Programme, bounds: Bounds, solution: Solution) -> None:
        self._programme, self._lowest, self._weight = programme, bounds.lowest, bounds.weight
        self._prices = solution.prices
        likeliest = [solution.of_block(block) for block in range(len(programme.blocks))]
        self.chosen = np.array([places[np.argmax(shares)] for places, shares in likeliest])
        matrix = bounds.matrix.tocsc()
        # The bounds that each block touches, and how.
        self._rows = [np.unique(matrix[:, entries].indices) for entries in programme.blocks]
        self._parts = [
            matrix[:, entries].tocsr()[rows].toarray()
            for rows, entries in zip(self._rows, programme.blocks, strict=True)
        ]
        self._reached = np.zeros(len(self._lowest))
        for block, place in enumerate(self.chosen):
            self._reached[self._rows[block]] += self._sums(block)[:, place]
        self._owners = np.array(programme.owners)
        self.of_one_client = self._find_own()
        self._pairs = list(self._paired())
        self._options = self._tried()

    def _find_own(self) -> NDArray[np.bool_]:
        """Return which bounds depend on one client's blocks alone, (R,)."""
        touched = np.zeros(len(self._lowest), dtype=np.intp)
        owners = np.unique(self._owners)
        for owner in owners:
            rows = [self._rows[block] for block in np.flatnonzero(self._owners == owner)]
            touched[np.unique(np.concatenate(rows))] += 1
        return np.asarray((touched == 1) & (len(owners) > 1))

    def _within(self, a: int, b: int) -> bool:
        """Return whether two blocks are one client's."""
        return bool(self._owners[a] == self._owners[b] >= 0)

    def _tried(self) -> dict[bool, list[Places]]:
        """Return the thresholds of each block that pairs try, within a client and between them.

        Half of them are best at the programme's prices, half are spread over what is selected.
        """
        numbers = {True: 1, False: 1}
        for a, b in self._pairs:
            numbers[self._within(a, b)] += len(np.union1d(self._rows[a], self._rows[b]))
        gain = self._programme.gain
        options: dict[bool, list[Places]] = {}
        for within in {self._within(a, b) for a, b in self._pairs}:
            most = _TRIED_WITHIN if within and self.of_one_client.any() else _TRIED
            half = int(np.clip(math.sqrt(most / numbers[within]), 16, 512)) // 2
            options[within] = []
            for block, entries in enumerate(self._programme.blocks):
                value = gain[block] + self._prices[self._rows[block]] @ self._sums(block)
                selected = self._programme.selected[entries].sum(axis=0)
                _, places = np.unique(selected, return_index=True)
                spread = np.linspace(0, len(places) - 1, min(half, len(places))).astype(np.intp)
                best = np.argsort(-value, kind="stable")[:half]
                options[within].append(np.union1d(best, places[spread]))
        return options

    def settle(self, price: float) -> None:
        """Change thresholds until none helps, at a price of an excess over bounds for everyone.

        At price 0, these bounds count as much as the programme's prices say, met or not.
        """
        self._price = np.where(self.of_one_client, _OWN_PRICE, price) * self._weight
        self._linear = np.where(self.of_one_client | (price > 0), 0.0, self._prices)
        while self.improved_alone() or self.improved_in_pairs():
            pass

    def _paired(self) -> Sequence[tuple[int, int]]:
        """Return the blocks that change together: all, or if they are many, those of a client."""
        owners = self._owners
        if len(owners) <= _PAIRED_BLOCKS:
            return list(combinations(range(len(owners)), 2))
        of_clients = (np.flatnonzero(owners == owner) for owner in np.unique(owners[owners >= 0]))
        return [(int(a), int(b)) for blocks in of_clients for a, b in combinations(blocks, 2)]

    def _sums(self, block: int) -> Floats:
        """Return what a block adds to the bounds that it touches with each threshold."""
        programme = self._programme
        return np.asarray(self._parts[block] @ programme.selected[programme.blocks[block]])

    def _cost(self, rows: Places, reached: Floats) -> Floats:
        """Return the price of what falls short of these bounds, (...)."""
        short = np.maximum(self._lowest[rows] - reached.T, 0.0)
        return np.asarray((short @ self._price[rows] - reached.T @ self._linear[rows]).T)

    def improved_alone(self) -> bool:
        """Give each block the best threshold beside the others'; return whether any changed."""
        improved = False
        for block, current in enumerate(self.chosen.tolist()):
            rows, sums = self._rows[block], self._sums(block)
            others = self._reached[rows] - sums[:, current]
            value = self._programme.gain[block] - self._cost(rows, others[:, None] + sums)
            best = int(np.argmax(value))
            if value[best] > value[current] + _PRECISION:
                self.chosen[block], improved = best, True
                self._reached[rows] = others + sums[:, best]
        return improved

    def improved_in_pairs(self) -> bool:
        """Give each pair of blocks its best two thresholds; return whether any changed."""
        improved = False
        for a, b in self._pairs:
            rows = np.union1d(self._rows[a], self._rows[b])
            options, sums = [], []
            for block in (a, b):
                tried = self._options[self._within(a, b)][block]
                places = np.append(tried, self.chosen[block])
                part = np.zeros((len(rows), len(places)))
                part[np.searchsorted(rows, self._rows[block])] = self._sums(block)[:, places]
                options.append(places)
                sums.append(part)
            others = self._reached[rows] - sums[0][:, -1] - sums[1][:, -1]
            first = others[:, None] + sums[0]
            gain, linear = self._programme.gain, self._linear[rows]
            value = (gain[a, options[0]] + linear @ first)[:, None]
            value = value + gain[b, options[1]] + linear @ sums[1]
            short = np.empty_like(value)
            # One bound after another, in one place: most of the time of a fit is spent here.
            for row, bound in enumerate(rows):
                np.add(first[row][:, None], sums[1][row], out=short)
                np.subtract(self._lowest[bound], short, out=short)
                np.maximum(short, 0.0, out=short)
                short *= self._price[bound]
                value -= short
            i, j = np.unravel_index(np.argmax(value), value.shape)
            if value[i, j] > value[-1, -1] + _PRECISION:
                self.chosen[[a, b]], improved = (options[0][i], options[1][j]), True
                self._reached[rows] = first[:, i] + sums[1][:, j]
        return improved
