"""Evaluate weights on clients' rows; what leaves a client are sums and counts over (cell, label).

Rows are taken in blocks whose width depends on their client alone, many blocks at a time. Small
clients that are measured with one model share blocks, if that changes no bit (`_lots`). Sums run
in row order: what is found for one probe does not depend on the others, bit for bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.models import Model, Workspace
from mfairfl.training.batches import BLOCK, LANES, RowStore, padded_batch, whole_lanes
from mfairfl.training.execution import check_time

_FORWARD_ROWS = 16 * BLOCK  # evaluated at once: the activations stay in the caches
_COUNTED_ROWS = 512 * BLOCK  # counted at once: bounds memory


class Probe(NamedTuple):
    """One question: what a model answers on these rows.

    Parameters
    ----------
    weights : ndarray (m,) or (R, m)
        One model, or an ensemble that answers with the mean of its members' probabilities.
    rows : range
        Rows of the store.
    shares : ndarray (R,), optional
        Weights of an ensemble's members; None counts them alike.
    thresholds : Thresholds, optional
        How each cell's scores become decisions; None decides at score ½.
    """

    weights: np.ndarray
    rows: range
    shares: np.ndarray | None = None
    thresholds: Thresholds | None = None


def measure(probes: Sequence[Probe], model: Model, store: RowStore) -> list[Statistics]:
    """Return loss, score and decision sums per (cell, label) for every probe."""
    measured: list[Statistics] = []
    for part in _bounded(probes):
        measured += _statistics(_joined_logits(part, model, store), part, store)
    return measured


def score_sums(
    probes: Sequence[Probe], model: Model, store: RowStore, *, drawn: bool = False
) -> list[ScoreSums]:
    """Return what rows of each (cell, label) have which score, for every probe.

    Parameters
    ----------
    drawn : bool
        Whether one of a probe's models is drawn for each decision; else they answer with the
        mean of their probabilities.
    """
    counted: list[ScoreSums] = []
    for part in _bounded(probes):
        scores, strata = _row_scores(part, model, store, drawn), store.strata.numpy()
        strata = strata[_row_numbers(part)]
        owner = np.repeat(np.arange(len(part)), [len(probe.rows) for probe in part])
        disclosed = strata < 2 * store.cells
        cells, y = strata[disclosed] // 2, strata[disclosed] % 2
        counted += ScoreSums.each_from_rows(
            scores[disclosed], owner[disclosed], cells, y, size=store.cells, owners=len(part)
        )
    return counted


def _row_scores(probes: Sequence[Probe], model: Model, store: RowStore, drawn: bool) -> RowScores:
    """Return the scores of all probes' rows, one probe after the other."""
    if not drawn:
        count = sum(len(probe.rows) for probe in probes)
        return RowScores.from_logits(_joined_logits(probes, model, store)[:count].numpy())
    members = [np.atleast_2d(probe.weights) for probe in probes]
    single = [Probe(m, p.rows) for p, models in zip(probes, members, strict=True) for m in models]
    z = iter(logits(single, model, store))
    return RowScores.joined(
        [
            RowScores.of_mixture(np.stack([next(z).numpy() for _ in models]), _shares(probe))
            for probe, models in zip(probes, members, strict=True)
        ]
    )


def logits(probes: Sequence[Probe], model: Model, store: RowStore) -> list[Tensor]:
    """Return the logits of every probe's rows, float64 (n,)."""
    z, counts = _joined_logits(probes, model, store), [len(probe.rows) for probe in probes]
    return list(torch.split(z[: sum(counts)], counts))


def _bounded(probes: Sequence[Probe]) -> Iterator[Sequence[Probe]]:
    """Yield the probes, so many at a time as have no more rows than are counted at once."""
    first = rows = 0
    for i, probe in enumerate(probes):
        evaluated = len(probe.rows) * _models(probe)
        if i > first and rows + evaluated > _COUNTED_ROWS:
            yield probes[first:i]
            first, rows = i, 0
        rows += evaluated
    yield probes[first:]


def _models(probe: Probe) -> int:
    return 1 if probe.weights.ndim == 1 else len(probe.weights)


def _shares(probe: Probe) -> np.ndarray:
    """Return how much each model of a probe counts."""
    if probe.shares is not None:
        return probe.shares
    return np.full(_models(probe), 1 / _models(probe))


def _spans(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return start, start + 1, … of each span, `count` numbers, one span after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def _joined_logits(probes: Sequence[Probe], model: Model, store: RowStore) -> Tensor:
    """Return the logits of all probes' rows, one probe after the other, in whole lanes.

    Elementwise kernels round the tail of an array differently. Computed on as they are, these
    have no tail, so a row has the same bits wherever it stands.
    """
    models = np.array([_models(probe) for probe in probes], dtype=np.int64)
    z = _evaluate(_lots(probes, model), _row_numbers(probes, models), model, store)
    return z if (models == 1).all() else _ensembles(z, probes)


@dataclass(slots=True)
class _Lot:
    """Rows that follow one another in blocks of one width, under one of a probe's models."""

    weights: np.ndarray
    place: int
    rows: int
    width: int


def _lots(probes: Sequence[Probe], model: Model) -> list[_Lot]:
    """Divide the rows of all probes, each as often as the probe has models, among blocks.

    Small clients that follow one another under one model are a lot together. A larger one in
    between has lanes of its own to fill, so little is lost by beginning afresh after it.
    """
    lots: list[_Lot] = []
    few, last = LANES if model.rows_stand_alone else -1, None
    for probe in probes:
        weights, rows = probe.weights, len(probe.rows)
        for place in range(_models(probe)):
            if (
                rows <= few
                and last is not None
                and last.width == LANES
                and last.weights is weights
                and last.place == place
            ):
                last.rows += rows
            else:
                last = _Lot(weights, place, rows, padded_batch(rows, BLOCK))
                lots.append(last)
    return lots


@torch.no_grad()
def _evaluate(lots: Sequence[_Lot], rows: np.ndarray, model: Model, store: RowStore) -> Tensor:
    """Return the logits of the rows of all lots, one after the other, float64, whole lanes."""
    counts = np.array([lot.rows for lot in lots], dtype=np.int64)
    widths = np.array([lot.width for lot in lots], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    z = torch.zeros(whole_lanes(len(rows)), dtype=torch.float64)
    workspace = Workspace()
    for width in np.unique(widths).tolist():
        owners, offsets = _blocks(np.where(widths == width, counts, 0), width)
        for at in range(0, len(owners), _FORWARD_ROWS // width):
            check_time()
            part = slice(at, at + _FORWARD_ROWS // width)
            owner, offset = owners[part], offsets[part]
            start, size = starts[owner] + offset, np.minimum(width, counts[owner] - offset)
            index = torch.from_numpy(rows[_padded_spans(start, size, width)])
            inputs, codes = store.take(index, workspace), store.take_codes(index)
            weights = _stacked([lots[i] for i in owner], model)
            values, _ = model.forward(weights, inputs, workspace, codes)
            z.numpy()[_spans(start, size)] = values.numpy()[np.arange(width) < size[:, None]]
    return z


def _row_numbers(probes: Sequence[Probe], times: np.ndarray | int = 1) -> np.ndarray:
    """Return the row numbers of all probes, one after the other, those of each so many times."""
    starts = np.array([probe.rows.start for probe in probes], dtype=np.int64)
    counts = np.array([len(probe.rows) for probe in probes], dtype=np.int64)
    return _spans(np.repeat(starts, times), np.repeat(counts, times))


def _padded_spans(starts: np.ndarray, counts: np.ndarray, width: int) -> np.ndarray:
    """Return (S, width) numbers, `count` from each start; its last stands in for the others."""
    index = starts[:, None] + np.arange(width)
    lacking = np.flatnonzero(counts < width)
    index[lacking] = np.minimum(index[lacking], (starts + counts - 1)[lacking, None])
    return index


def _blocks(counts: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whose rows each block holds, and how many of theirs come before it."""
    blocks = -(-counts // width)
    return np.repeat(np.arange(len(counts)), blocks), width * _spans(0 * blocks, blocks)


def _stacked(lots: Sequence[_Lot], model: Model) -> Tensor:
    """Return each block's weights, (S, m) in whole lanes; one model is not repeated."""
    alike = len({(id(lot.weights), lot.place) for lot in lots}) == 1
    stack = torch.zeros(1 if alike else len(lots), whole_lanes(model.size))
    for row, lot in zip(stack.numpy(), lots[: len(stack)], strict=True):
        row[: model.size] = np.atleast_2d(lot.weights)[lot.place]
    return stack.expand(len(lots), -1)


def _ensembles(z: Tensor, probes: Sequence[Probe]) -> Tensor:
    """Return the logits of all probes' rows, given those of each of their models."""
    joint = torch.zeros(whole_lanes(sum(len(probe.rows) for probe in probes)), dtype=torch.float64)
    at = to = 0
    for probe in probes:
        models, count = _models(probe), len(probe.rows)
        members = torch.zeros(models, whole_lanes(count), dtype=torch.float64)
        members[:, :count] = z[at : at + models * count].view(models, count)
        logit = members[0] if models == 1 else _ensemble(members, _shares(probe))
        joint[to : to + count] = logit[:count]
        at, to = at + models * count, to + count
    return joint


def _ensemble(members: Tensor, shares: np.ndarray) -> Tensor:
    """Return the logit of Σ_r s_r σ(z_r), without rounding a probability to 0 or 1."""
    log_share = torch.log(torch.tensor(shares, dtype=torch.float64)).unsqueeze(1)
    yes = torch.logsumexp(log_share + torch.nn.functional.logsigmoid(members), dim=0)
    no = torch.logsumexp(log_share + torch.nn.functional.logsigmoid(-members), dim=0)
    return yes - no


def _statistics(z: Tensor, probes: Sequence[Probe], store: RowStore) -> list[Statistics]:
    """Sum over the rows of each probe; a bin's rows are added in their order."""
    counts = np.array([len(probe.rows) for probe in probes], dtype=np.int64)
    rows = _row_numbers(probes)
    count, bins = len(rows), 2 * store.cells + 2  # the last two are not disclosed
    strata = store.strata.numpy()[rows]
    place = bins * np.repeat(np.arange(len(probes)), counts) + strata
    score, loss = torch.sigmoid(z)[:count], torch.nn.functional.softplus(z)[:count]
    loss -= torch.from_numpy(strata & 1) * z[:count]  # nan of a broken model: the server sees it
    logit = z[:count].numpy()

    def total(values: np.ndarray | None) -> np.ndarray:
        sums = np.bincount(place, values, minlength=bins * len(probes))
        table = sums.astype(np.float64, copy=False).reshape(len(probes), bins // 2, 2)
        return table[:, : store.cells]

    sums = (
        total(None),
        total(_decisions(logit, strata, probes, counts)),
        total(score.numpy()),
        total(loss.numpy()),
    )
    return [
        Statistics(counts=counts, positives=positives, scores=scores, losses=losses)
        for counts, positives, scores, losses in zip(*sums, strict=True)
    ]


def _decisions(
    logit: np.ndarray, strata: np.ndarray, probes: Sequence[Probe], counts: np.ndarray
) -> np.ndarray:
    """Return each row's probability of decision 1 under its probe's rule."""
    rules = {id(p.thresholds): p.thresholds for p in probes if p.thresholds is not None}
    decided = (logit > 0).astype(np.float64)
    for key, rule in rules.items():
        here = np.repeat([id(probe.thresholds) == key for probe in probes], counts)
        cells = np.minimum(strata[here] // 2, len(rule.values) - 1)  # beyond: not disclosed
        decided[here] = rule.positive_probability(logit[here], cells)
    return decided
