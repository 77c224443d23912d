"""From sums and counts to the tally that every reported number comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mfairfl.data.attribute import Attribute
from mfairfl.engine.output import Served
from mfairfl.engine.state import Measured, Split
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.tally import Tally

__all__ = ["pooled_loss", "served_tally", "tally_of"]


def tally_of(clients: Mapping[str, Statistics], attributes: Sequence[Attribute]) -> Tally:
    """Return the counts[client, cell, y, ŷ] of one weight vector."""
    names = sorted(clients)
    counts = np.stack(
        [
            np.stack([s.counts - s.positives, s.positives], axis=-1)
            for s in (clients[name] for name in names)
        ]
    )
    return Tally(np.rint(counts).astype(np.int64), tuple(names), tuple(attributes))


def served_tally(
    served: Served, measured: Sequence[Measured], split: Split, attributes: Sequence[Attribute]
) -> Tally:
    """Return the served model's tally: exact counts, or expected ones for a mixture."""
    tallies = [tally_of(one[split], attributes) for one in measured]
    if served.kind == "single":
        return tallies[0]
    counts = np.tensordot(served.weights, [t.counts for t in tallies], axes=1)
    return Tally(counts, tallies[0].clients, tallies[0].attributes)


def pooled_loss(clients: Mapping[str, Statistics]) -> float:
    """Return the mean cross-entropy over all clients' rows."""
    # In name order: the same clients give the same bits however they are listed.
    losses = sum(float(clients[name].losses.sum()) for name in sorted(clients))
    rows = sum(float(s.counts.sum()) for s in clients.values())
    return losses / rows if rows else float("nan")
