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
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.models import Model, Workspace
from mfairfl.training.batches import BLOCK, Desk, Pool, padded_batch
from mfairfl.training.deadline import check_time

__all__ = ["Probe", "logits", "measure", "score_sums"]

_BLOCKS = 16  # blocks evaluated at once


@dataclass(frozen=True, slots=True)
class Probe:
    """One question: what a model answers on these rows.

    Parameters
    ----------
    weights : ndarray (m,) or (R, m)
        One model, or an ensemble that answers with the mean of its members' probabilities.
    rows : range
        Rows of the pool.
    shares : ndarray (R,), optional
        Weights of an ensemble's members; None counts them alike.
    thresholds : Thresholds, optional
        How each cell's scores become decisions; None decides at score ½.
    """

    weights: np.ndarray
    rows: range
    shares: np.ndarray | None = None
    thresholds: Thresholds | None = None


def measure(probes: Sequence[Probe], model: Model, pool: Pool) -> list[Statistics]:
    """Return loss, score and decision sums per (cell, label) for every probe."""
    found = logits(probes, model, pool)
    return [_statistics(z, probe, pool) for z, probe in zip(found, probes, strict=True)]


def score_sums(
    probes: Sequence[Probe], model: Model, pool: Pool, *, drawn: bool = False
) -> list[ScoreSums]:
    """Return what rows of each (cell, label) have which score, for every probe.

    Parameters
    ----------
    drawn : bool
        Whether one of a probe's models is drawn for each decision; else they answer with the
        mean of their probabilities.
    """
    found = []
    for probe in probes:
        if drawn:
            members = [Probe(weights, probe.rows) for weights in np.atleast_2d(probe.weights)]
            z = np.stack([one.numpy() for one in logits(members, model, pool)])
            scores = RowScores.of_mixture(z, _shares(probe))
        else:
            scores = RowScores.from_logits(logits([probe], model, pool)[0].numpy())
        strata = pool.strata[probe.rows.start : probe.rows.stop].numpy()
        found.append(ScoreSums.from_rows(scores, strata // 2, strata % 2, size=pool.cells))
    return found


@torch.no_grad()
def logits(probes: Sequence[Probe], model: Model, pool: Pool) -> list[Tensor]:
    """Return the logits of every probe's rows, float64 (n,)."""
    workspace: Workspace = {}
    # Torch aligns its own memory, and products may depend on the alignment: rows are copied here.
    # Those after a client's last are left over from another; their answers are dropped.
    desk = Desk(pool, max(map(_block_rows, probes), default=0))
    found = []
    for probe in probes:
        members = [
            _logits(weights, probe.rows, model, desk, workspace)
            for weights in np.atleast_2d(probe.weights)
        ]
        found.append(members[0] if len(members) == 1 else _ensemble(members, _shares(probe)))
    return found


def _block_rows(probe: Probe) -> int:
    """Return how many rows are evaluated at once, the last block padded."""
    width = padded_batch(len(probe.rows), BLOCK)
    return width * min(_BLOCKS, -(-len(probe.rows) // width))


def _shares(probe: Probe) -> np.ndarray:
    """Return how much each model of a probe counts."""
    if probe.shares is not None:
        return probe.shares
    count = len(np.atleast_2d(probe.weights))
    return np.full(count, 1 / count)


def _ensemble(members: Sequence[Tensor], shares: np.ndarray) -> Tensor:
    """Return the logit of Σ_r s_r σ(z_r), without rounding a probability to 0 or 1."""
    log_share = torch.log(torch.tensor(shares, dtype=torch.float64)).unsqueeze(1)
    z = torch.stack(list(members))
    yes = torch.logsumexp(log_share + torch.nn.functional.logsigmoid(z), dim=0)
    no = torch.logsumexp(log_share + torch.nn.functional.logsigmoid(-z), dim=0)
    return yes - no


def _logits(
    vector: np.ndarray, rows: range, model: Model, desk: Desk, workspace: Workspace
) -> Tensor:
    weights = torch.tensor(vector, dtype=torch.float32).unsqueeze(0)  # a copy, hence aligned
    width = padded_batch(len(rows), BLOCK)
    found = []
    for start in range(rows.start, rows.stop, _BLOCKS * width):
        check_time()
        stop = min(start + _BLOCKS * width, rows.stop)
        count = -(-(stop - start) // width)
        inputs, codes = desk.take_run(range(start, stop), (count, width))
        values, _ = model.forward(weights.expand(count, -1), inputs, workspace, codes)
        found.append(values.reshape(-1))
    values = torch.cat(found)[: len(rows)] if found else torch.empty(0)
    return values.to(torch.float64)


def _statistics(z: Tensor, probe: Probe, pool: Pool) -> Statistics:
    strata = pool.strata[probe.rows.start : probe.rows.stop]
    y = (strata % 2).to(torch.float64)
    if probe.thresholds is None:
        decided = (z > 0).to(torch.float64)
    else:
        chance = probe.thresholds.positive_probability(z.numpy(), (strata // 2).numpy())
        decided = torch.from_numpy(chance)
    bins = 2 * pool.cells

    def total(weights: Tensor | None) -> np.ndarray:
        sums = torch.bincount(strata, weights=weights, minlength=bins)
        return sums.to(torch.float64).numpy().reshape(pool.cells, 2)

    return Statistics(
        counts=total(None),
        positives=total(decided),
        scores=total(torch.sigmoid(z)),
        losses=total(torch.nn.functional.softplus(z) - y * z),
    )
