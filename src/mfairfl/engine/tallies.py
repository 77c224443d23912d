"""From sums and counts to the tally that every reported number comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mfairfl.data import Attribute, Split
from mfairfl.engine.output import Served
from mfairfl.engine.state import Measured
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.tally import Tally

__all__ = ["mean_loss", "pooled", "served_tally", "tally_of"]


def tally_of(clients: Mapping[str, Statistics], attributes: Sequence[Attribute]) -> Tally:
    """Return the counts[client, cell, y, ŷ] of one model."""
    names = sorted(clients)
    rows = np.stack([clients[name].counts for name in names])
    positives = np.stack([clients[name].positives for name in names])
    counts = np.stack([rows - positives, positives], axis=-1)
    whole = np.rint(counts)
    # Randomised thresholds give expected counts.
    exact = whole.astype(np.int64) if np.array_equal(whole, counts) else counts
    return Tally(exact, tuple(names), tuple(attributes))


def served_tally(
    served: Served, measured: Sequence[Measured], split: Split, attributes: Sequence[Attribute]
) -> Tally:
    """Return the served model's tally: exact counts, or expected ones if it is randomised."""
    tallies = [tally_of(one[split], attributes) for one in measured]
    if served.kind != "mixture":
        return tallies[0]
    counts = np.tensordot(served.weights, [t.counts for t in tallies], axes=1)
    return Tally(counts, tallies[0].clients, tallies[0].attributes)


def pooled(clients: Mapping[str, Statistics]) -> Statistics:
    """Return the sums over all clients, added in name order."""
    return Statistics.total([clients[name] for name in sorted(clients)])


def mean_loss(statistics: Statistics) -> float:
    """Return the mean cross-entropy; nan without rows."""
    rows = float(statistics.counts.sum())
    return float(statistics.losses.sum()) / rows if rows else float("nan")
