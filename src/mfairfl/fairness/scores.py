"""What clients say of a model's scores: sums and counts that add up, and the numbers they give.

Decisions are counted by a `Tally`; this is about the scores behind them. A client sends a
histogram of logits (how well scores rank the rows: ROC-AUC), rows and sums of probabilities in
fifteen bins (how far probabilities are from what happens: calibration error) and sums of the
cross-entropy (log-loss), each by (cell, label), so that the numbers of all rows, of a group and of
a client come from the same message.

* **ROC-AUC**: the chance that a row with y = 1 has a higher score than one with y = 0; rows in
  the same bin of the logit (1/128 wide; all above 8 or below −8 are in one) count as ties, one
  half. The error this makes is at most half the share of such pairs. On test rows of trained
  models it was 1e-6 (Adult, 9,769 rows), 6e-5 (COMPAS, 1,442) and 9e-4 (German, 200 rows, on
  which the area has a standard error of 4e-2).
* **Expected calibration error**: Σ_b |Σ_{i∈b} p_i − Σ_{i∈b} y_i| / n over fifteen bins of equal
  width of the probability, exactly.
* **Loss**: the mean cross-entropy in nats, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri

from mfairfl.errors import DataError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.histogram import ScoreHistogram, pooled_histogram
from mfairfl.fairness.rates import NamedValues, divide, reported_groupings
from mfairfl.fairness.results import Place
from mfairfl.fairness.tally import CodedRows, Tally, binary_column
from mfairfl.fairness.uncertainty import Limits, interval_column

Floats = NDArray[np.float64]

SCORE_NUMBERS = ("roc_auc", "loss", "expected_calibration_error")
CALIBRATION_BINS = 15
LOGIT_BINS = 2048
_EDGES = np.arange(CALIBRATION_BINS + 1) / CALIBRATION_BINS
_CERTAIN = 40.0  # the logit that stands for a probability of 0 or 1: JSON and bins are finite
_NOT_FINITE = "not every row has a finite score"
_DRAWN = "the model is drawn at random: its score is the chance of a favourable decision"
_SMALLEST = float(np.finfo(np.float64).eps)  # what scikit-learn's log_loss takes a 0 for


@dataclass(frozen=True, slots=True, eq=False)
class RowScores:
    """A model's scores, row by row.

    Attributes
    ----------
    logits
        What rows are ranked by, (n,).
    probabilities
        Of the favourable label, or of a favourable decision where the model is drawn, (n,).
    losses
        The cross-entropy of each row if its label is 0 and if it is 1, (n, 2).

    Examples
    --------
    >>> RowScores.from_probabilities([0.5, 1.0]).losses.round(3).tolist()
    [[0.693, 0.693], [36.044, 0.0]]
    """

    logits: Floats
    probabilities: Floats
    losses: Floats

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> RowScores:
        """Return the scores of a model with these logits."""
        z = np.asarray(logits, dtype=np.float64)
        with np.errstate(invalid="ignore"):  # a model that diverged answers nan
            losses = np.stack([np.logaddexp(0, z), np.logaddexp(0, -z)], axis=-1)
        return cls(z, expit(z), losses)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike) -> RowScores:
        """Return the scores of a model that answers with probabilities.

        A probability of 0 or 1 that fails counts like scikit-learn's: as if it were 2e-16 away.
        """
        p = np.asarray(probabilities, dtype=np.float64)
        wrong = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))
        if p.ndim != 1 or wrong.size:
            fault = (
                f"row {wrong[0]} holds {p.flat[wrong[0]]}" if wrong.size else f"shape {p.shape}"
            )
            raise DataError(f"probabilities: {fault}; give one number from 0 to 1 for each row")
        inside = np.clip(p, _SMALLEST, 1.0 - _SMALLEST)
        losses = -np.log(np.stack([1.0 - inside, inside], axis=-1))
        return cls(_finite_logit(p), p, losses)

    @classmethod
    def of_mixture(cls, logits: ArrayLike, weights: ArrayLike) -> RowScores:
        """Return the scores of a model that draws one of R members for each decision.

        Its score is the probability of a favourable decision, its loss that of the drawn member
        on average.

        Parameters
        ----------
        logits
            Each member's, (R, n).
        weights
            Each member's probability, (R,).
        """
        z, share = np.asarray(logits, dtype=np.float64), np.asarray(weights, dtype=np.float64)
        chance = np.clip(share @ (z > 0), 0.0, 1.0)
        losses = np.tensordot(share, cls.from_logits(z).losses, axes=1)
        return cls(_finite_logit(chance), chance, losses)

    @classmethod
    def joined(cls, parts: Sequence[RowScores]) -> RowScores:
        """Return the scores of all parts' rows, one part after the other.

        Examples
        --------
        >>> RowScores.joined([RowScores.from_logits([0]), RowScores.from_logits([0, 40])]).logits
        array([ 0.,  0., 40.])
        """
        return cls(
            np.concatenate([part.logits for part in parts]),
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate([part.losses for part in parts]),
        )

    def __getitem__(self, rows: NDArray[Any]) -> RowScores:
        return RowScores(self.logits[rows], self.probabilities[rows], self.losses[rows])


@dataclass(frozen=True, slots=True, eq=False)
class ScoreSums:
    """Sums and counts of scores by (cell, label); adding two is pooling their rows.

    Attributes
    ----------
    histogram
        Rows by cell, label and bin of the logit.
    rows
        Rows by cell, label and bin of the probability, (C, 2, 15).
    sums
        Their sums of probabilities, (C, 2, 15).
    losses
        Sums of the cross-entropy by cell and label, (C, 2).

    Examples
    --------
    >>> scores = RowScores.from_probabilities([0.1, 0.4, 0.35, 0.8])
    >>> sums = ScoreSums.from_rows(scores, [0, 0, 0, 0], [0, 0, 1, 1], size=1)
    >>> sums.counts.tolist(), sums.losses.round(3).tolist()
    ([[2, 2]], [[0.616, 1.273]])
    """

    histogram: ScoreHistogram
    rows: NDArray[np.int64]
    sums: Floats
    losses: Floats

    def __post_init__(self) -> None:
        # Types and shapes are checked where sums arrive (`mfairfl.wire`).
        if not np.array_equal(self.rows.sum(axis=2), self.histogram.rows):
            raise DataError("scores: the bins of logits and of probabilities hold different rows")
        slack = 1e-9 * (1.0 + self.rows)  # rounding of the sums
        low, high = self.rows * _EDGES[:-1] - slack, self.rows * _EDGES[1:] + slack
        if (self.rows < 0).any() or not ((self.sums >= low) & (self.sums <= high)).all():
            raise DataError("scores: sums of probabilities that no rows of their bins can have")
        if not (np.isfinite(self.losses) & (self.losses >= -slack.max())).all():
            raise DataError("scores: losses hold a negative number or one that is not finite")

    @classmethod
    def from_rows(
        cls, scores: RowScores, cells: ArrayLike, labels: ArrayLike, *, size: int
    ) -> ScoreSums:
        """Sum over rows; a row without a finite score (training diverged) is not counted.

        Parameters
        ----------
        scores
            Of each row.
        cells, labels
            Its cell (0 … size − 1) and its label (0 or 1).
        size
            The number of cells.
        """
        (sums,) = cls.each_from_rows(
            scores, np.zeros(len(scores.logits), np.intp), cells, labels, size=size, owners=1
        )
        return sums

    @classmethod
    def each_from_rows(
        cls,
        scores: RowScores,
        owner: NDArray[np.intp],
        cells: ArrayLike,
        labels: ArrayLike,
        *,
        size: int,
        owners: int,
    ) -> list[ScoreSums]:
        """Sum over the rows of each owner, in their order; else as `from_rows`.

        Parameters
        ----------
        owner
            Whose each row is (0 … owners − 1).

        Examples
        --------
        >>> scores, owner = RowScores.from_logits([-1, 2, 1]), np.array([1, 0, 1])
        >>> sums = ScoreSums.each_from_rows(scores, owner, [0, 0, 0], [0, 1, 1], size=1, owners=2)
        >>> [each.counts.tolist() for each in sums]
        [[[0, 1]], [[1, 1]]]
        """
        y, cell = binary_column(labels, "labels"), np.asarray(cells, dtype=np.intp)
        if not len(y) == len(cell) == len(scores.logits):
            raise DataError(
                f"scores: {len(scores.logits)} scores, {len(cell)} cells and {len(y)} labels; "
                "give one of each per row"
            )
        finite = np.isfinite(scores.logits) & np.isfinite(scores.losses).all(axis=1)
        y, cell, owner, scores = y[finite], cell[finite], owner[finite], scores[finite]
        stratum, p = 2 * (owner * size + cell) + y, scores.probabilities
        # A probability on an edge is in the upper bin.
        bins = np.minimum((p * CALIBRATION_BINS).astype(np.intp), CALIBRATION_BINS - 1)
        place, shape = stratum * CALIBRATION_BINS + bins, (owners, size, 2, CALIBRATION_BINS)
        row_losses = scores.losses[np.arange(len(y)), y]
        rows = np.bincount(place, minlength=math.prod(shape)).astype(np.int64)
        sums = np.bincount(place, p, math.prod(shape)).astype(np.float64)
        losses = np.bincount(stratum, row_losses, math.prod(shape[:3])).astype(np.float64)
        histograms = ScoreHistogram.each_from_logits(
            scores.logits, owner, cell, y, size=size, bins=LOGIT_BINS, owners=owners
        )
        tables = rows.reshape(shape), sums.reshape(shape), losses.reshape(shape[:3])
        return list(map(cls, histograms, *tables))

    @classmethod
    def by_client(
        cls, scores: RowScores, rows: CodedRows, labels: NDArray[np.intp]
    ) -> dict[str, ScoreSums]:
        """Sum over each client's rows whose label is 0 or 1."""
        chosen, size = labels < 2, Cells(rows.attributes).size
        owner, cell = rows.client[chosen], rows.cell[chosen]
        sums = cls.each_from_rows(
            scores[chosen], owner, cell, labels[chosen], size=size, owners=len(rows.clients)
        )
        return dict(zip(rows.clients, sums, strict=True))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows by cell and label, (C, 2)."""
        counts: NDArray[np.int64] = self.rows.sum(axis=2)
        return counts

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return pooled_scores([self, other])

    def of_cells(self, cells: NDArray[Any]) -> ScoreSums:
        """Return what is known of these cells' rows alone (indices, or a mask)."""
        histogram = ScoreHistogram(self.histogram.counts[cells])
        return ScoreSums(histogram, self.rows[cells], self.sums[cells], self.losses[cells])


def pooled_scores(parts: Sequence[ScoreSums]) -> ScoreSums:
    """Return the sums over all rows of one part or more, added up in their order.

    Examples
    --------
    >>> one = ScoreSums.from_rows(RowScores.from_logits([0.5]), [0], [1], size=1)
    >>> pooled_scores([one, one, one]).counts.tolist()
    [[0, 3]]
    """
    return ScoreSums(
        histogram=pooled_histogram([part.histogram for part in parts]),
        rows=np.sum([part.rows for part in parts], axis=0),
        sums=reduce(np.add, [part.sums for part in parts]),
        losses=reduce(np.add, [part.losses for part in parts]),
    )


def roc_aucs(histograms: Sequence[ScoreHistogram]) -> Floats:
    """Return the area under the ROC curve of each histogram, nan where a label has no rows.

    Examples
    --------
    >>> one = ScoreHistogram.from_logits([-1, 2, 1, 3], [0] * 4, [0, 0, 1, 1], size=1)
    >>> roc_aucs([one, one + one]).tolist()
    [0.75, 0.75]
    """
    many, bins = len(histograms), histograms[0].shape[2] if histograms else 1
    owner = np.repeat(np.arange(many), [len(histogram.places) for histogram in histograms])
    places = np.concatenate(
        [histogram.places for histogram in histograms] or [np.array([], dtype=np.intp)]
    )
    rows = np.concatenate([histogram.numbers for histogram in histograms] or [np.array([])])
    positive = places // bins % 2 == 1
    # The bins of one histogram after another; those of different cells and labels are the same.
    filled, place = np.unique(owner * bins + places % bins, return_inverse=True)
    owner = filled // bins
    hits = np.bincount(place, np.where(positive, rows, 0), len(filled))
    others = np.bincount(place, np.where(positive, 0, rows), len(filled))
    positives, negatives = np.bincount(owner, hits, many), np.bincount(owner, others, many)
    before = np.cumsum(negatives) - negatives
    lower = np.cumsum(others) - before[owner] - others / 2.0  # a tie counts one half
    return divide(np.bincount(owner, hits * lower, many), positives * negatives)


def roc_auc_interval(
    value: ArrayLike, positives: ArrayLike, negatives: ArrayLike, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Return confidence limits of areas under the ROC curve.

    The variance is Hanley and McNeil's (1982) at the limit itself, not at the estimate, as in
    Wilson's interval for a share: Newcombe (2006), method 5. It needs the area and two counts,
    and keeps a width where the area is 0 or 1.

    Examples
    --------
    >>> low, high = roc_auc_interval(0.8, 50, 100)
    >>> round(float(low), 3), round(float(high), 3)
    (0.713, 0.863)
    """
    area, up, down = (
        np.asarray(number, dtype=np.float64) for number in (value, positives, negatives)
    )
    z, typical = float(ndtri(0.5 + level / 2.0)), (up + down) / 2.0 - 1.0

    def reach(guess: Floats) -> Floats:
        """How far an estimate may be from this area."""
        more = typical * ((1.0 - guess) / (2.0 - guess) + guess / (1.0 + guess))
        return np.asarray(z * np.sqrt(divide(guess * (1.0 - guess) * (1.0 + more), up * down)))

    def limit(end: float) -> Floats:
        """Find between estimate and end the area farthest away that still reaches it."""
        inside, outside = area, np.full(area.shape, end)
        for _ in range(60):
            middle = (inside + outside) / 2.0
            reached = np.abs(area - middle) <= reach(middle)
            inside, outside = np.where(reached, middle, inside), np.where(reached, outside, middle)
        return inside

    return limit(0.0), limit(1.0)


def _finite_logit(p: Floats) -> Floats:
    return np.asarray(np.clip(logit(p), -_CERTAIN, _CERTAIN))


def score_numbers(
    tally: Tally,
    scores: Mapping[str, ScoreSums],
    losses: Sequence[Constraints] = (),
    *,
    randomised: bool = False,
    level: float = 0.95,
) -> dict[Place, tuple[NamedValues, Limits]]:
    """Return `SCORE_NUMBERS` of all rows, of each client and of each group, with their intervals.

    Where scores of fewer rows than the tally counts have arrived, the numbers are undefined.

    Parameters
    ----------
    tally, scores
        The rows, and the sums of each client's scores.
    losses
        Which groups' losses are compared, for one notion each (the paper's Eq. 6); of all rows and
        of each client's.
    randomised
        Whether a score is the chance of a favourable decision of a model that is drawn; that is no
        probability of the label, so it has no calibration error.
    level
        The confidence level.

    Examples
    --------
    >>> tally = Tally.from_predictions([0, 0, 1, 1], [0, 0, 0, 1], sensitive_features=list("abab"))
    >>> rows = RowScores.from_probabilities([0.1, 0.4, 0.35, 0.8])
    >>> sums = ScoreSums.from_rows(rows, [0, 1, 0, 1], [0, 0, 1, 1], size=2)
    >>> numbers = score_numbers(tally, {"all": sums})
    >>> values, limits = numbers["overall",]
    >>> values["roc_auc"][0]
    0.75
    >>> values, limits = numbers["group", "sensitive_feature", "a"]
    >>> values["roc_auc"][0]
    1.0
    """
    nothing = ScoreSums.from_rows(RowScores.from_logits([]), [], [], size=tally.cells.size)
    rows = np.rint(tally.counts.sum(axis=3)).astype(np.int64)
    by_client = [scores.get(name, nothing) for name in tally.clients]
    absent = {
        name: f"the scores of client '{name}' are missing"
        for name in tally.clients
        if name not in scores
    }
    lost = next(iter(absent.values()), _NOT_FINITE)
    total, together = pooled_scores([nothing, *by_client]), rows.sum(axis=0)
    numbers_of = partial(_numbers_of_sets, randomised=randomised, level=level)
    numbers: dict[Place, tuple[NamedValues, Limits]] = {
        ("overall",): numbers_of([total], together[None], [lost], losses)[0]
    }
    for grouping in reported_groupings(tally.cells):
        for group, members in zip(grouping.groups, grouping.membership, strict=True):
            sums = [total.of_cells(members)]
            place = ("group", grouping.name, group)
            numbers[place] = numbers_of(sums, together[None, members], [lost])[0]
    reasons = [absent.get(name, _NOT_FINITE) for name in tally.clients]
    of_clients = numbers_of(by_client, rows, reasons, losses)
    for name, values_and_limits in zip(tally.clients, of_clients, strict=True):
        numbers["client", name] = values_and_limits
    return numbers


def _numbers_of_sets(
    sums: Sequence[ScoreSums],
    rows: NDArray[np.int64],
    lost: Sequence[str],
    losses: Sequence[Constraints] = (),
    *,
    randomised: bool,
    level: float,
) -> list[tuple[NamedValues, Limits]]:
    """Return the numbers of some sets of rows over the same cells, and the intervals.

    Parameters
    ----------
    sums
        Of each of the P sets.
    rows
        How many rows each has, by cell and label, (P, C, 2).
    lost
        Why each may have fewer scores than rows.
    """
    shape = (*rows.shape, CALIBRATION_BINS)
    binned = np.array([part.rows for part in sums], dtype=np.int64).reshape(shape)
    chances = np.array([part.sums for part in sums], dtype=np.float64).reshape(shape)
    entropy = np.array([part.losses for part in sums], dtype=np.float64).reshape(rows.shape)
    counts = binned.sum(axis=3)
    complete = (counts == rows).all(axis=(1, 2))
    areas = np.where(complete, roc_aucs([part.histogram for part in sums]), np.nan)
    labels = counts.sum(axis=1)
    negatives, positives = labels.T
    scored = labels.sum(axis=1)
    gaps = chances.sum(axis=(1, 2)) - binned[:, :, 1].sum(axis=1)
    errors = divide(np.abs(gaps).sum(axis=1), scored)
    no_rows = ["" if many else "there are no rows" for many in scored.tolist()]
    one_label = [f"no row has y = {0 if many else 1}" for many in positives.tolist()]
    columns = {
        "roc_auc": (areas, one_label),
        "loss": (divide(entropy.sum(axis=(1, 2)), scored), no_rows),
        "expected_calibration_error": (errors, no_rows),
    }
    if randomised:
        drawn = [_DRAWN] * len(scored)
        columns["expected_calibration_error"] = np.full(len(scored), np.nan), drawn
    limits = interval_column(*roc_auc_interval(areas, positives, negatives, level))
    numbers: list[tuple[NamedValues, Limits]] = []
    for i, limit in enumerate(limits):
        values = {name: (float(value[i]), why[i]) for name, (value, why) in columns.items()}
        n = counts[i]
        statistics = Statistics(counts=n, positives=n, scores=n, losses=entropy[i])
        for item in losses:
            values[f"{item.notions[0].name}_violation"] = item.largest_gap(statistics)
        if not complete[i]:
            values = dict.fromkeys(values, (math.nan, lost[i]))
        numbers.append((values, {"roc_auc": limit}))
    return numbers
