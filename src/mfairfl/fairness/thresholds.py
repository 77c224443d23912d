"""Group thresholds, fitted from counts of scores that clients can add up.

Every client counts its rows by (cell, label, bin of the logit) on one fixed grid
(`ScoreHistogram`). Counts add up over clients, and their running sums are each cell's ROC curve,
exactly, at the thresholds of the grid. The best randomised thresholds under fairness constraints
are one linear programme over the vertices of their convex hulls: a mixture of thresholds selects
any point of the hull, and a vertex is a threshold. Hardt, Price, Srebro (2016), for several
notions and attributes at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import StrictFloat, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import ConfigError, DataError, first_problem
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.tally import binary_column

Floats = NDArray[np.float64]

_NEGLIGIBLE = 1e-9  # a probability below this is the solver's rounding
_CONSTANTS: dict[Any, float] = {"always": -math.inf, "never": math.inf}  # JSON has no infinity


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """For each cell a distribution over R thresholds on the logit.

    Attributes
    ----------
    values, probabilities
        Both (C, R). −∞ selects always, +∞ never; unused places have probability 0.

    Examples
    --------
    >>> rule = Thresholds([[0.0, 1.0], [0.5, 0.0]], [[0.25, 0.75], [1.0, 0.0]])
    >>> rule.positive_probability([0.5, 1.0, 0.5], [0, 0, 1]).tolist()
    [0.25, 1.0, 1.0]
    """

    values: Floats
    probabilities: Floats

    def __post_init__(self) -> None:
        for name in ("values", "probabilities"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        shape = self.values.shape
        if shape != self.probabilities.shape or len(shape) != 2 or shape[1] == 0:
            raise DataError(
                f"thresholds: values {shape} and probabilities {self.probabilities.shape}; "
                "expected two arrays of one shape (cells, thresholds)"
            )
        if np.isnan(self.values).any():
            raise DataError("thresholds: values hold nan; use a number, −inf or inf")
        sums = self.probabilities.sum(axis=1)
        good = (self.probabilities >= 0).all(axis=1) & (np.abs(sums - 1.0) <= _NEGLIGIBLE)
        if not good.all():
            cell = int(np.argmin(good))
            raise DataError(
                f"thresholds: cell {cell} has probabilities {self.probabilities[cell].tolist()}; "
                "they must be 0 or more and sum to 1"
            )

    def positive_probability(self, logits: ArrayLike, cells: ArrayLike) -> Floats:
        """Return each row's probability of decision 1: Σ_r p[c, r]·1{z ≥ t[c, r]}."""
        z, cell = checked_rows(logits, cells, len(self.values))
        passed = z[:, None] >= self.values[cell]
        chance: Floats = np.where(passed, self.probabilities[cell], 0.0).sum(axis=1)
        return np.minimum(chance, 1.0)  # a sum of shares may round to a hair above 1

    def to_json(self) -> dict[str, Any]:
        """Return plain lists; −∞ is written ``always``, +∞ ``never``."""
        names = {value: name for name, value in _CONSTANTS.items()}
        values = [[names.get(value, value) for value in row] for row in self.values.tolist()]
        return {"values": values, "probabilities": self.probabilities.tolist()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Thresholds:
        """Return the thresholds that `to_json` wrote.

        Examples
        --------
        >>> rule = Thresholds([[-np.inf, 0.5]], [[0.5, 0.5]])
        >>> rule.to_json()
        {'values': [['always', 0.5]], 'probabilities': [[0.5, 0.5]]}
        >>> Thresholds.from_json(rule.to_json()).values.tolist()
        [[-inf, 0.5]]
        """
        try:
            stored = _StoredThresholds.model_validate(document)
        except ValidationError as error:
            raise DataError(f"thresholds: {first_problem(error)}; write them by to_json") from None
        values = [[_CONSTANTS.get(value, value) for value in row] for row in stored.values]
        lengths = {len(row) for row in values} | {len(row) for row in stored.probabilities}
        if len(lengths) > 1:
            raise DataError("thresholds: lists differ in length; was the file cut?")
        return cls(np.array(values), np.array(stored.probabilities))


class _StoredThresholds(StrictModel):
    """Thresholds as `Thresholds.to_json` writes them."""

    values: list[list[StrictFloat | Literal["always", "never"]]]
    probabilities: list[list[StrictFloat]]


def refuse_losses(constraints: Constraints) -> None:
    """Refuse constraints that no threshold can meet, before anything is trained for them."""
    for notion in constraints.notions:
        if notion.statistic == "loss":
            raise ConfigError(
                f"notion '{notion.name}': thresholds change decisions, not losses; "
                "use 'accuracy_parity' (errors)"
            )


def fit_thresholds(
    histogram: ScoreHistogram, constraints: Constraints, *, tolerance: float = 0.0
) -> Thresholds:
    """Return the randomised thresholds of highest expected accuracy within the constraints.

    Parameters
    ----------
    histogram
        The pooled counts: the sum of the clients' histograms.
    constraints
        Any notions but loss-based ones, on any groupings of the same cells. An empty group
        constrains nothing; a cell without rows, or one that no grouping compares (not recorded),
        keeps the plain threshold 0, that is, score ½.
    tolerance
        The largest |F_e − F_{e,g}|, for every constraint. 0 is always possible.

    Notes
    -----
    Where several thresholds select the same rows, the one nearest 0 stands for them.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> from mfairfl.fairness import Cells, notion
    >>> parity = Constraints(Cells((Attribute("sex", ("F", "M")),)), notion("dp"))
    >>> z, cell, y = [-1, -1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 1, 1, 1]
    >>> rule = fit_thresholds(ScoreHistogram.from_logits(z, cell, y, size=2), parity)
    >>> rule.positive_probability([-1, 1, 1], [0, 0, 1]).round(6).tolist()
    [0.0, 1.0, 0.5]
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise ConfigError(f"tolerance = {tolerance}; use a number of 0 or more")
    n = histogram.counts.sum(axis=2)
    if not n.any():
        raise DataError("score histogram: no cell has rows; count the clients' training rows")
    refuse_losses(constraints)
    weight, offset = constraints.selected_weights(n)
    _, members = constraints.counts(n)
    weight, offset = weight[members > 0], offset[members > 0]
    compared = np.any([grouping.compared for grouping in constraints.groupings], axis=0)
    seen = np.flatnonzero(n.any(axis=1) & compared).tolist()
    if not seen:
        return Thresholds(np.zeros((len(n), 1)), np.ones((len(n), 1)))
    choices = {cell: _vertices(histogram, cell) for cell in seen}
    matrix = np.hstack([weight[:, cell] @ points.T for cell, (_, points) in choices.items()])
    gain = np.hstack([points @ [-1.0, 1.0] for _, points in choices.values()]) / n.sum()
    ends = np.cumsum([0, *(len(values) for values, _ in choices.values())])
    shares = _solve(gain, matrix, offset, ends, tolerance)
    chosen: list[tuple[Floats, Floats]] = [(np.zeros(1), np.ones(1))] * len(n)
    for (cell, (values, _)), (start, stop) in zip(choices.items(), pairwise(ends), strict=True):
        share = shares[start:stop]
        used = share > _NEGLIGIBLE
        chosen[cell] = values[used], share[used] / share[used].sum()
    width = max(len(values) for values, _ in chosen)
    table = np.zeros((2, len(n), width))
    for cell, (values, probabilities) in enumerate(chosen):
        table[:, cell, : len(values)] = values, probabilities
    return Thresholds(*table)


def _solve(
    gain: Floats, matrix: Floats, offset: Floats, ends: NDArray[np.int64], tolerance: float
) -> Floats:
    """Return shares x ≥ 0 of the vertices that maximise gain·x with |matrix·x + offset| ≤ tol."""
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to load, rarely needed

    many, sizes = len(offset), np.diff(ends)
    sums = np.repeat(np.eye(len(sizes)), sizes, axis=1)  # a cell's shares sum to 1
    # The gaps are variables of their own: two-sided bounds, and exact equality for tolerance 0.
    equal = np.block([[sums, np.zeros((len(sizes), many))], [matrix, -np.eye(many)]])
    result = linprog(
        np.concatenate([-gain, np.zeros(many)]),
        A_eq=equal,
        b_eq=np.concatenate([np.ones(len(sizes)), -offset]),
        bounds=[(0.0, None)] * len(gain) + [(-tolerance, tolerance)] * many,
        # The simplex method ends in a basic solution: at most three thresholds per cell, since a
        # cell's columns span three dimensions (its two counts and the sum of its shares).
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    # A fair coin for every row meets every bound: no solution would be a solver's failure.
    if result.status != 0 or result.x is None:
        raise RuntimeError(f"linear programme not solved: {result.message}")
    return result.x[: len(gain)]


def _vertices(histogram: ScoreHistogram, cell: int) -> tuple[Floats, Floats]:
    """Return the thresholds and (V, 2) selected counts at the corners of a cell's ROC hull."""
    nearest = np.argsort(np.abs(histogram.thresholds), kind="stable")
    selected = histogram.selected[cell].T[nearest]
    points, first = np.unique(selected, axis=0, return_index=True)
    # Python's integers: exact, so collinear points are seen as such (Qhull needs an area).
    corners = points.tolist()
    chosen = sorted({*_chain(corners, 1), *_chain(corners, -1)})
    return histogram.thresholds[nearest][first][chosen], points[chosen].astype(np.float64)


def _chain(points: list[list[int]], side: int) -> list[int]:
    """Return the upper (side 1) or lower (−1) hull of points sorted by (x, y): monotone chain."""
    hull: list[int] = []
    for index, (x, y) in enumerate(points):
        while len(hull) >= 2:
            (ax, ay), (bx, by) = points[hull[-2]], points[hull[-1]]
            if side * ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) < 0:
                break
            hull.pop()
        hull.append(index)
    return hull


_REACH = 8.0  # |logit| up to which bins are narrow: probabilities from .0003 to .9997


class ScoreHistogram:
    """Counts[cell, label, bin] of logits; adding two histograms is pooling their rows.

    Only bins that hold rows are kept: a client of twenty rows takes as much memory as it needs.

    Parameters
    ----------
    counts
        Shape (C, 2, B), integers; B a power of two. Inner bins are 16/B wide, so every edge is an
        exact float; the outer two are open.

    Attributes
    ----------
    shape
        (C, 2, B).
    places, numbers
        The entries of `counts` that are not 0, in C order, and the rows they hold.

    Examples
    --------
    >>> part = ScoreHistogram.from_logits([-3.0, 0.5], [0, 1], [0, 1], size=2, bins=4)
    >>> (part + part).counts.tolist()
    [[[0, 2, 0, 0], [0, 0, 0, 0]], [[0, 0, 0, 0], [0, 0, 2, 0]]]
    """

    __slots__ = ("numbers", "places", "shape")

    shape: tuple[int, int, int]
    places: NDArray[np.intp]
    numbers: NDArray[np.int64]

    def __init__(self, counts: ArrayLike) -> None:
        given = np.asarray(counts)
        if given.ndim != 3 or given.shape[1] != 2 or given.dtype.kind not in "iu":
            raise DataError(
                f"score histogram: {given.dtype} counts of shape {given.shape}; "
                "expected integers (cells, 2, bins)"
            )
        _edges(given.shape[2])
        if (given < 0).any():
            raise DataError("score histogram: counts hold a negative number; send counts of rows")
        self.shape = given.shape
        self.places = np.flatnonzero(given)
        self.numbers = given.reshape(-1)[self.places].astype(np.int64)

    @classmethod
    def from_logits(
        cls, logits: ArrayLike, cells: ArrayLike, labels: ArrayLike, *, size: int, bins: int = 512
    ) -> ScoreHistogram:
        """Count rows by cell (0 … size − 1), label (0 or 1) and bin of the logit."""
        z, cell = checked_rows(logits, cells, size)
        y = binary_column(labels, "labels")
        if len(y) != len(z):
            raise DataError(f"labels: {len(y)} values for {len(z)} logits; give one per row")
        position = np.searchsorted(_edges(bins), z, side="right")  # the number of edges ≤ z
        index = (cell * 2 + y) * bins + position
        histogram = cls.__new__(cls)  # counts of rows need no check, nor a place for empty bins
        histogram.shape = (size, 2, bins)
        histogram.places, histogram.numbers = np.unique(index, return_counts=True)
        return histogram

    @property
    def counts(self) -> NDArray[np.int64]:
        """All counts, (C, 2, B)."""
        counts = np.zeros(math.prod(self.shape), dtype=np.int64)
        counts[self.places] = self.numbers
        return counts.reshape(self.shape)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The number of rows by cell and label, (C, 2)."""
        cells, labels, bins = self.shape
        # Weights are floats, which are exact below 2⁵³ rows.
        rows = np.bincount(self.places // bins, self.numbers, cells * labels)
        return rows.astype(np.int64).reshape(cells, labels)

    @property
    def thresholds(self) -> Floats:
        """The B + 1 thresholds the counts can tell apart: −∞, the edges, +∞."""
        return np.concatenate([[-math.inf], _edges(self.shape[2]), [math.inf]])

    @property
    def selected(self) -> NDArray[np.int64]:
        """The (C, 2, B + 1) numbers of rows with logit ≥ each of `thresholds`, exactly."""
        above = np.cumsum(self.counts[:, :, ::-1], axis=2)[:, :, ::-1]
        return np.concatenate([above, np.zeros_like(above[:, :, :1])], axis=2)

    def coarse(self, bins: int) -> ScoreHistogram:
        """Return the same rows in fewer bins: every edge of theirs is one of these.

        Examples
        --------
        >>> fine = ScoreHistogram.from_logits([-3.0, 0.5], [0, 0], [0, 1], size=1, bins=64)
        >>> fine.coarse(4).counts.tolist()
        [[[0, 1, 0, 0], [0, 0, 1, 0]]]
        """
        _edges(bins)
        if bins > self.shape[2]:
            raise ConfigError(f"bins = {bins}; the histogram has {self.shape[2]} only")
        shape = (*self.shape[:2], bins, self.shape[2] // bins)
        return ScoreHistogram(self.counts.reshape(shape).sum(axis=3))

    def __add__(self, other: ScoreHistogram) -> ScoreHistogram:
        return pooled_histogram([self, other])


def pooled_histogram(parts: Sequence[ScoreHistogram]) -> ScoreHistogram:
    """Return the histogram of all rows of one part or more.

    Examples
    --------
    >>> part = ScoreHistogram.from_logits([0.5], [0], [1], size=1, bins=2)
    >>> pooled_histogram([part, part, part]).counts.tolist()
    [[[0, 0], [0, 3]]]
    """
    shape = parts[0].shape
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    for part in parts:
        if part.shape != shape:
            raise DataError(
                f"score histograms of shape {shape} and {part.shape} cannot be added; use the "
                "same sensitive attributes and bins"
            )
        counts[part.places] += part.numbers
    return ScoreHistogram(counts.reshape(shape))


def checked_rows(
    logits: ArrayLike, cells: ArrayLike, size: int
) -> tuple[Floats, NDArray[np.intp]]:
    """Return a logit and a cell for each row, checked."""
    z, codes = np.asarray(logits, dtype=np.float64), np.asarray(cells)
    if z.ndim != 1 or codes.shape != z.shape:
        raise DataError(f"logits {z.shape} and cells {codes.shape}: give one of each per row")
    wrong = np.flatnonzero(~np.isfinite(z))
    if wrong.size:
        raise DataError(f"logits: row {wrong[0]} holds {z[wrong[0]]}; has training diverged?")
    if codes.size and codes.dtype.kind not in "iu":
        raise DataError(f"cells: {codes.dtype} values; use the integer codes of Cells.encode")
    wrong = np.flatnonzero((codes < 0) | (codes >= size))
    if wrong.size:
        raise DataError(f"cells: row {wrong[0]} holds {codes[wrong[0]]}; expected 0 … {size - 1}")
    return z, codes.astype(np.intp)


def _edges(bins: int) -> Floats:
    """Return the inner edges of the grid; 0 is one of them."""
    if bins < 2 or bins & (bins - 1):
        raise ConfigError(f"bins = {bins}; use a power of two, such as 512, so edges are exact")
    return np.arange(1 - bins // 2, bins // 2, dtype=np.float64) * (2.0 * _REACH / bins)
