"""How much of the answer is in the question: columns that give the label away, copied rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.federation import Federation
from mfairfl.data.table import Table

__all__ = ["Alone", "Copies", "alone", "copies_of"]

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


def alone(column: pd.Series[Any], y: Labels) -> Alone:
    """Judge the best rule on one column: a threshold, or an answer for each value.

    The answers for values are learned on one half of the rows and judged on the other, so that
    a value of a single row says nothing.

    Examples
    --------
    >>> y = np.array([0, 0, 1, 1] * 3, dtype=np.int8)
    >>> alone(pd.Series([1.0, 2.0, 3.0, 4.0] * 3), y)
    Alone(accuracy=1.0, auc=1.0, constant=0.5)
    """
    share = float(y.mean())
    constant = max(share, 1 - share)
    codes, uniques = pd.factorize(column)
    rules = [(constant, 0.5)]
    if 2 * len(uniques) <= len(y):
        rules.append(_by_values(codes + 1, y))
    if pd.api.types.is_numeric_dtype(column):
        rules.append(_by_threshold(column.to_numpy(dtype=np.float64), y))
    return Alone(max(right for right, _ in rules), max(auc for _, auc in rules), constant)


def _by_threshold(numbers: npt.NDArray[np.float64], y: Labels) -> tuple[float, float]:
    """Return accuracy and ROC-AUC of the number as a score; missing ones lie above all others."""
    order = np.argsort(numbers, kind="stable")  # nan comes last
    values, labels = numbers[order], y[order].astype(np.int64)
    ones = np.append(0, np.cumsum(labels))
    # Below cut i unfavourable, above it favourable; a cut lies between unequal values only.
    right = np.arange(len(y) + 1) - 2 * ones + ones[-1]
    cuts = np.append(np.append(True, values[1:] != values[:-1]), True)
    auc = _auc(np.nan_to_num(numbers, nan=np.inf), y)
    return float(np.maximum(right, len(y) - right)[cuts].max() / len(y)), max(auc, 1 - auc)


def _by_values(codes: npt.NDArray[np.intp], y: Labels) -> tuple[float, float]:
    """Return accuracy and ROC-AUC of the label's share in each value, learned on other rows."""
    half = np.empty(len(y), dtype=np.intp)
    for label in (0, 1):
        half[y == label] = np.arange(int((y == label).sum())) % 2
    scores = np.empty(len(y))
    for here in (0, 1):
        learned, judged = half != here, half == here
        rows = np.bincount(codes[learned], minlength=codes.max() + 1)
        ones = np.bincount(codes[learned], weights=y[learned], minlength=codes.max() + 1)
        rates = (ones + y.mean()) / (rows + 1)  # an unseen value has the overall rate
        scores[judged] = rates[codes[judged]]
    aucs = [_auc(scores[half == here], y[half == here]) for here in (0, 1)]
    return float(((scores > 0.5) == y).mean()), float(np.mean(aucs))


def _auc(scores: npt.NDArray[np.float64], y: Labels) -> float:
    """Return the chance that a row with label 1 scores above one with label 0 (a tie: half)."""
    ones = int(y.sum())
    zeros = len(y) - ones
    if not ones or not zeros:
        return 0.5
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return float((ranks[place][y == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))


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
    X, n = table.X, len(table)
    marks = _marks(X, table.y)
    chances = {c: _pairs(pd.factorize(X[c])[0]) / max(n * (n - 1) / 2, 1) for c in X.columns}
    finest = min(chances, key=lambda name: chances[name])
    train, test = (marks[federation.pooled(split).rows] for split in ("train", "test"))
    return Copies(
        test=len(test),
        copied=int(np.isin(test, train).sum()),
        pairs=_pairs(marks),
        expected=_pairs(_marks(X.drop(columns=finest), table.y)) * chances[finest],
    )


def _marks(X: pd.DataFrame, y: Labels) -> npt.NDArray[np.uint64]:
    """Return a number for each row, equal for equal rows."""
    if X.empty:
        return y.astype(np.uint64)
    marks = pd.util.hash_pandas_object(X, index=False).to_numpy(dtype=np.uint64)
    return np.asarray(marks * np.uint64(2) + y.astype(np.uint64))


def _pairs(values: npt.NDArray[Any]) -> float:
    """Count the pairs of equal values."""
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())
