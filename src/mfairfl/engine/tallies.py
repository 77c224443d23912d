"""From sums and counts to the tally that every reported number comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mfairfl.data import Attribute
from mfairfl.engine.output import Served
from mfairfl.engine.state import Measured, Split
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.masked import EVERYBODY, MaskedSums
from mfairfl.fairness.tally import Tally

__all__ = ["mean_loss", "pooled", "served_singles", "served_tally", "tally_of"]


def tally_of(clients: Mapping[str, Statistics], attributes: Sequence[Attribute]) -> Tally:
    """Return the counts[client, cell, y, ŷ] of one model; under masks all clients are one."""
    if isinstance(clients, MaskedSums):
        clients = {EVERYBODY: pooled(clients)}
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


def served_singles(served: Served, measured: Sequence[Measured], split: Split) -> Tally | None:
    """Return each client's right and wrong decisions by the served model, under masks; else None.

    They are counted in one cell, as if all labels were 0 (`Single`).
    """
    members = [sums for one in measured if isinstance(sums := one[split], MaskedSums)]
    if not members:
        return None
    tallies = [tally_of(dict(sums), ()) for sums in members]
    if served.kind != "mixture":
        return tallies[0]
    return Tally(
        np.tensordot(served.weights, [t.counts for t in tallies], axes=1), tallies[0].clients, ()
    )


def pooled(clients: Mapping[str, Statistics]) -> Statistics:
    """Return the sums over all clients, added in name order."""
    if isinstance(clients, MaskedSums):
        if clients.whole is None:
            raise FederationError("the sums over all silos cannot be read: one did not answer")
        return clients.whole
    return Statistics.total([clients[name] for name in sorted(clients)])


def mean_loss(statistics: Statistics) -> float:
    """Return the mean cross-entropy; nan without rows."""
    rows = float(statistics.counts.sum())
    return float(statistics.losses.sum()) / rows if rows else float("nan")
