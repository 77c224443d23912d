"""Counts of rows by score: what is known of a model's scores without a single one of them.

Every client counts its rows by (cell, label, bin of the logit) on one fixed grid. Counts add up
over clients, and their running sums are each cell's ROC curve, exactly, at the thresholds of the
grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.tally import binary_column

Floats = NDArray[np.float64]

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
        owner = np.zeros(np.shape(logits), dtype=np.intp)
        (histogram,) = cls.each_from_logits(
            logits, owner, cells, labels, size=size, bins=bins, owners=1
        )
        return histogram

    @classmethod
    def each_from_logits(
        cls,
        logits: ArrayLike,
        owner: NDArray[np.intp],
        cells: ArrayLike,
        labels: ArrayLike,
        *,
        size: int,
        bins: int = 512,
        owners: int,
    ) -> list[ScoreHistogram]:
        """Count the rows of each owner (0 … owners − 1); else as `from_logits`.

        Examples
        --------
        >>> both = ScoreHistogram.each_from_logits(
        ...     [-3.0, 0.5], np.array([0, 1]), [0, 0], [0, 1], size=1, bins=4, owners=2
        ... )
        >>> [one.counts.tolist() for one in both]
        [[[[0, 1, 0, 0], [0, 0, 0, 0]]], [[[0, 0, 0, 0], [0, 0, 1, 0]]]]
        """
        z, cell = checked_rows(logits, cells, size)
        y = binary_column(labels, "labels")
        if len(y) != len(z):
            raise DataError(f"labels: {len(y)} values for {len(z)} logits; give one per row")
        position = np.searchsorted(_edges(bins), z, side="right")  # the number of edges ≤ z
        index = ((owner * size + cell) * 2 + y) * bins + position
        filled, numbers = np.unique(index, return_counts=True)
        width = size * 2 * bins
        ends = np.searchsorted(filled, width * np.arange(owners + 1)).tolist()
        return [
            cls.from_places(filled[start:stop] - i * width, numbers[start:stop], (size, 2, bins))
            for i, (start, stop) in enumerate(pairwise(ends))
        ]

    @classmethod
    def from_places(
        cls, places: NDArray[Any], numbers: NDArray[Any], shape: tuple[int, int, int]
    ) -> ScoreHistogram:
        """Return the histogram with these `places` and `numbers`, which are not checked."""
        histogram = cls.__new__(cls)
        histogram.shape = shape
        histogram.places, histogram.numbers = places.astype(np.intp), numbers.astype(np.int64)
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
