"""Evaluate weights on clients' rows; what leaves a client are sums and counts over (cell, label).

Rows are taken in blocks of one fixed shape, so a row's logit does not depend on what else is
measured at the same time, and sums run in row order: the same measurement has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mfairfl.fairness.cells import Statistics
from mfairfl.models import Model, Workspace
from mfairfl.training.batches import BLOCK, Pool, padded_batch

__all__ = ["Probe", "logits", "measure"]

_BLOCKS = 16  # blocks evaluated at once


@dataclass(frozen=True, slots=True)
class Probe:
    """One question: these weights on these rows."""

    weights: np.ndarray
    rows: range


def measure(probes: Sequence[Probe], model: Model, pool: Pool) -> list[Statistics]:
    """Return loss, score and decision sums per (cell, label) for every probe."""
    found = logits(probes, model, pool)
    return [_statistics(z, probe.rows, pool) for z, probe in zip(found, probes, strict=True)]


@torch.no_grad()
def logits(probes: Sequence[Probe], model: Model, pool: Pool) -> list[Tensor]:
    """Return the logits of every probe's rows, float32 (n,)."""
    workspace: Workspace = {}
    return [_logits(probe, model, pool, workspace) for probe in probes]


def _logits(probe: Probe, model: Model, pool: Pool, workspace: Workspace) -> Tensor:
    # A copy, because torch aligns its own memory: products may depend on the alignment.
    weights = torch.tensor(probe.weights, dtype=torch.float32).unsqueeze(0)
    rows, width = probe.rows, padded_batch(len(probe.rows), BLOCK)
    found = []
    for start in range(rows.start, rows.stop, _BLOCKS * width):
        count = min(_BLOCKS, -(-(rows.stop - start) // width))
        # The last block may reach into the next shard; its answers there are dropped.
        inputs = pool.X[start : start + count * width].view(count, width, -1)
        values, _ = model.forward(weights.expand(count, -1), inputs, workspace)
        found.append(values.reshape(-1))
    return torch.cat(found)[: len(rows)] if found else torch.empty(0)


def _statistics(values: Tensor, rows: range, pool: Pool) -> Statistics:
    z = values.to(torch.float64)
    strata = pool.strata[rows.start : rows.stop]
    y = (strata % 2).to(torch.float64)
    bins = 2 * pool.cells

    def total(weights: Tensor | None) -> np.ndarray:
        sums = torch.bincount(strata, weights=weights, minlength=bins)
        return sums.to(torch.float64).numpy().reshape(pool.cells, 2)

    return Statistics(
        counts=total(None),
        positives=total((z > 0).to(torch.float64)),
        scores=total(torch.sigmoid(z)),
        losses=total(torch.nn.functional.softplus(z) - y * z),
    )
