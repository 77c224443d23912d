"""Scores above the sample's median, which tables of scoring rates count.

Where all rows are at hand the median is exact. From counts on a grid it is the lowest edge with at
least half the rows at or below it: for scores that lie on edges the same rows are above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.geometry.robust import lower_median

MedianKind = Literal["sample median", "edge of the score grid"]


@dataclass(frozen=True, slots=True, eq=False)
class AboveMedian:
    """The exact median of all scores, and the rows above it by client, cell and label (K, C, 3).

    Examples
    --------
    >>> groups = {"sensitive_features": ["F", "F", "M", "M"]}
    >>> found = AboveMedian.of([0.1, 0.2, 0.3, 0.4], lambda above: AuditCounts.from_rows(
    ...     None, above, **groups))
    >>> found.median, found.rows[0, :, 2].tolist()
    (0.25, [0, 2])
    """

    median: float
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, scores: Any, count: Callable[[NDArray[np.bool_]], AuditCounts]) -> AboveMedian:
        """Find the median; `count` counts the same rows with other decisions."""
        values = np.asarray(scores, dtype=np.float64)
        above = values > lower_median(values)
        return cls(float(np.median(values)), count(above).decided[..., 1])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MedianSplit:
    """The counts if a score above the median were a favourable decision.

    Attributes
    ----------
    median, kind
        The median, and which one it is.
    counts
        Decisions at the median.
    fewest, most
        Decisions at the highest and at the lowest edge that the median of all rows can be, were
        the withheld ones known; `counts` where nothing is withheld.
    """

    median: float
    kind: MedianKind
    counts: AuditCounts
    fewest: AuditCounts
    most: AuditCounts


def split_at_median(counts: AuditCounts, exact: AboveMedian | None = None) -> MedianSplit | None:
    """Split the rows at the median of their scores; None without rows or scores.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     None, [0, 0, 1], sensitive_features=["F", "M", "M"], scores=[0.1, 0.2, 0.7]
    ... )
    >>> found = split_at_median(rows)
    >>> found.median, found.counts.decided.sum(axis=(0, 1, 2)).tolist()
    (0.2, [2, 1])
    """
    if exact is not None:
        return _exact(counts, exact)
    if counts.grid is None or counts.scored is None or not counts.rows.any():
        return None
    below = np.cumsum(counts.scored.sum(axis=(0, 1, 2)))  # rows at or below each edge
    n, withheld = int(below[-1]), int(counts.withheld.sum())
    edges = counts.grid.edges

    def edge(rows: float) -> int:
        return min(int(np.searchsorted(below, rows)), len(edges) - 1)

    # With w more rows, i of them at or below an edge, half of n + w are there if n_≤ + i is.
    middle, low, high = (edge((n + more) / 2) for more in (0, -withheld, withheld))
    return MedianSplit(
        median=edges[middle],
        kind="edge of the score grid",
        counts=counts.at_edge(middle),
        fewest=counts.at_edge(high),
        most=counts.at_edge(low),
    )


def _exact(counts: AuditCounts, exact: AboveMedian) -> MedianSplit:
    if counts.withheld.any():
        raise ConfigError("audit: an exact median needs all rows, and some are withheld")
    if exact.rows.shape != counts.rows.shape or (exact.rows > counts.rows).any():
        raise DataError("audit: rows above the median are counted on other rows than decisions")
    found = replace(counts, decided=np.stack([counts.rows - exact.rows, exact.rows], axis=-1))
    return MedianSplit(
        median=exact.median, kind="sample median", counts=found, fewest=found, most=found
    )
