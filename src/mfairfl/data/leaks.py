"""How much of the answer is in the question: columns that give the label away, copied rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.federation import Federation
from mfairfl.data.table import Table

Codes = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]

_FEWER_ERRORS = 0.75  # share of the constant classifier's errors
_HIGH_AUC = 0.95
_MANY_COPIES = 0.01  # of the test rows
_MORE_PAIRS = 30  # than by chance; an occupation that goes with the rest makes 13 times as many


@dataclass(frozen=True, slots=True)
class Alone:
    """How well one column predicts the label, beside the constant classifier."""

    accuracy: float
    auc: float
    constant: float

    @property
    def suspicious(self) -> bool:
        """Whether it does so too well to be known before the label is."""
        fewer = (self.accuracy - self.constant) / (1 - self.constant)
        return fewer >= _FEWER_ERRORS or self.auc >= _HIGH_AUC


class Distinct(NamedTuple):
    """A column's values, told apart: each row's number among `uniques`, -1 where it is missing.

    They are numbered in the order in which they appear.
    """

    codes: Codes
    uniques: npt.NDArray[Any]
    numeric: bool

    @classmethod
    def of(cls, column: pd.Series[Any]) -> Distinct:
        """Tell the values of a column apart."""
        codes, uniques = pd.factorize(column)
        return cls(codes, np.asarray(uniques), pd.api.types.is_numeric_dtype(column))


def alone(column: Distinct, y: Labels) -> Alone:
    """Judge the best rule on one column: a threshold, or an answer for each value.

    The answers for values are learned on one half of the rows and judged on the other, so that
    a value of a single row says nothing.

    Examples
    --------
    >>> y = np.array([0, 0, 1, 1] * 3, dtype=np.int8)
    >>> alone(Distinct.of(pd.Series([1.0, 2.0, 3.0, 4.0] * 3)), y)
    Alone(accuracy=1.0, auc=1.0, constant=0.5)
    """
    share = float(y.mean())
    constant = max(share, 1 - share)
    counts = _counts(column, y)
    rules = [(constant, 0.5)]
    if 2 * len(column.uniques) <= len(y):
        rules.append(_by_values(counts, share))
    if column.numeric:
        numbers = np.append(column.uniques.astype(np.float64), np.inf)
        rules.append(_by_threshold(numbers, counts.sum(axis=0)))
    return Alone(max(right for right, _ in rules), max(auc for _, auc in rules), constant)


def _counts(column: Distinct, y: Labels) -> Codes:
    """Count the rows of each half, label and value; those without a value come last.

    Every other row of a label is in the first half.
    """
    size = len(column.uniques) + 1
    counts = np.empty((2, 2, size), dtype=np.intp)
    for label in (0, 1):
        codes = column.codes[y == label]
        for half in (0, 1):
            counts[half, label] = np.roll(np.bincount(codes[half::2] + 1, minlength=size), -1)
    return counts


def _by_threshold(numbers: Floats, counts: Codes) -> tuple[float, float]:
    """Return accuracy and ROC-AUC of the number as a score; missing ones lie above all others."""
    zeros, ones = counts[:, np.argsort(numbers)]
    n = int(counts.sum())
    # Below a cut between two values unfavourable, above it favourable; or the other way round.
    right = np.append(0, np.cumsum(zeros - ones)) + ones.sum()
    auc = _auc(numbers, counts)
    return float(np.maximum(right, n - right).max() / n), max(auc, 1 - auc)


def _by_values(counts: Codes, share: float) -> tuple[float, float]:
    """Return accuracy and ROC-AUC of the label's share in each value, learned on other rows."""
    right, aucs = 0, []
    for learned, (zeros, ones) in zip(counts[::-1], counts, strict=True):
        # A value that was not seen has the overall rate.
        rates = (learned[1] + share) / (learned.sum(axis=0) + 1)
        right += int(np.where(rates > 0.5, ones, zeros).sum())
        aucs.append(_auc(rates, np.stack([zeros, ones])))
    return float(right / counts.sum()), float(np.mean(aucs))


def _auc(scores: Floats, counts: Codes) -> float:
    """Return the chance that a row with label 1 scores above one with label 0 (a tie: half).

    `counts` are the rows of either label with each score.
    """
    zeros, ones = counts.sum(axis=1).tolist()
    if not ones or not zeros:
        return 0.5
    held = np.flatnonzero(counts.any(axis=0))
    _, place = np.unique(scores[held], return_inverse=True)
    both, favourable = (
        np.bincount(place, weights=c[held]) for c in (counts.sum(axis=0), counts[1])
    )
    ranks = np.cumsum(both) - (both - 1) / 2
    return float(((ranks * favourable).sum() - ones * (ones + 1) / 2) / (ones * zeros))


@dataclass(frozen=True, slots=True)
class Copies:
    """Test rows with the features and the label of some train row.

    Parameters
    ----------
    test, copied : int
        Test rows, and those of them that equal a train row.
    pairs, expected : float
        Pairs of equal rows in the table, and about how many different people would make.
    """

    test: int
    copied: int
    pairs: float
    expected: float

    @property
    def by_chance(self) -> bool:
        """Whether coarse columns explain them: different people, equal in what was asked."""
        return self.pairs <= _MORE_PAIRS * self.expected

    @property
    def serious(self) -> bool:
        """Whether enough test rows were seen in training to flatter the result."""
        return not self.by_chance and self.copied > _MANY_COPIES * self.test

    @property
    def line(self) -> str:
        """What was found, and what to do about it."""
        share = self.copied / max(self.test, 1)
        said = f"{self.copied:,} of {self.test:,} test rows ({share:.1%}) equal a train row"
        if not self.copied:
            return "no test row equals a train row"
        if self.by_chance:
            return f"{said} in features and label, as people do where columns have few values"
        return f"{said} in features and label: leave repeated rows out of the file"


def copies_of(table: Table, federation: Federation) -> Copies:
    """Count the test rows that equal a train row, of any client.

    Rows that agree in all columns but the finest one agree in that one too about as often as any
    two rows do, if they are of different people; if they are copies, they always do.

    Examples
    --------
    >>> from mfairfl.data import partition, table_from_frame, task_from_roles
    >>> people = pd.DataFrame({"x": [*range(20)] * 2, "sex": list("fm") * 20})
    >>> people["hired"] = people["x"] % 3 // 2
    >>> table = table_from_frame(people, task_from_roles(people, label="hired", sensitive="sex"))
    >>> found = copies_of(table, partition(table, "iid", clients=2))
    >>> found.test, found.pairs
    (8, 20.0)
    """
    n = len(table)
    # A random number for each value: their sum is equal for equal rows, and for no others.
    rng = np.random.default_rng(0)
    marks = _random(rng, 2)[table.y]
    fewest, finest = float("inf"), np.zeros_like(marks)
    for name in table.X.columns:
        column = Distinct.of(table.X[name])
        own = _random(rng, len(column.uniques) + 1)[column.codes]
        marks += own
        if (pairs := _pairs(column.codes + 1)) < fewest:
            fewest, finest = pairs, own
    rows = pd.factorize(marks)[0]
    train, test = (rows[federation.pooled(split).rows] for split in ("train", "test"))
    seen = np.zeros(n, dtype=bool)
    seen[train] = True
    return Copies(
        test=len(test),
        copied=int(seen[test].sum()),
        pairs=_pairs(rows),
        expected=_pairs(pd.factorize(marks - finest)[0]) * (fewest / max(n * (n - 1) / 2, 1)),
    )


def _random(rng: np.random.Generator, size: int) -> npt.NDArray[np.uint64]:
    return rng.integers(2**64, size=size, dtype=np.uint64)


def _pairs(codes: Codes) -> float:
    """Count the pairs of equal codes, which are numbers from 0."""
    counts = np.bincount(codes).astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())
