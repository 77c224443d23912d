"""Accuracy and its relatives over all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.inputs import as_tally, defined
from mfairfl.fairness.rates import PROPORTIONS, pooled_table

__all__ = [
    "accuracy",
    "balanced_accuracy",
    "f1",
    "false_positive_rate",
    "performance",
    "selection_rate",
    "true_positive_rate",
]


def accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the share of rows decided correctly.

    Parameters
    ----------
    y_true
        Labels 0 or 1, or a `Tally` (then nothing else).
    y_pred
        Decisions 0 or 1.
    sensitive_features, clients
        Accepted so that all metrics are called alike; the number does not depend on them.

    Examples
    --------
    >>> accuracy([1, 0, 1, 0], [1, 0, 0, 0])
    0.75
    """
    return _number("accuracy", y_true, y_pred, sensitive_features, clients)


def selection_rate(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the share of rows with a favourable decision; arguments as in `accuracy`.

    Examples
    --------
    >>> selection_rate([1, 0, 1, 0], [1, 0, 0, 0])
    0.25
    """
    return _number("selection_rate", y_true, y_pred, sensitive_features, clients)


def true_positive_rate(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return P(ŷ=1 | y=1); arguments as in `accuracy`.

    Examples
    --------
    >>> true_positive_rate([1, 0, 1, 0], [1, 0, 0, 0])
    0.5
    """
    return _number("true_positive_rate", y_true, y_pred, sensitive_features, clients)


def false_positive_rate(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return P(ŷ=1 | y=0); arguments as in `accuracy`.

    Examples
    --------
    >>> false_positive_rate([1, 0, 1, 0], [1, 1, 0, 0])
    0.5
    """
    return _number("false_positive_rate", y_true, y_pred, sensitive_features, clients)


def balanced_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the mean of the accuracies on y = 0 and on y = 1; arguments as in `accuracy`.

    Examples
    --------
    >>> balanced_accuracy([1, 0, 0, 0], [0, 0, 0, 0])
    0.5
    """
    return _number("balanced_accuracy", y_true, y_pred, sensitive_features, clients)


def f1(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return 2TP / (2TP + FP + FN), y = 1 being positive; arguments as in `accuracy`.

    Examples
    --------
    >>> f1([1, 0, 0, 1], [1, 1, 0, 1])
    0.8
    """
    return _number("f1", y_true, y_pred, sensitive_features, clients)


def performance(name: str, table: NDArray[np.float64]) -> tuple[float, str]:
    """Return one of this module's numbers on a (2, 2) table, and why it would be undefined."""
    if name == "f1":
        share = float(PROPORTIONS["jaccard"].value(table))
        return 2.0 * share / (1.0 + share), PROPORTIONS["jaccard"].needs
    if name == "balanced_accuracy":
        sensitivity, miss = PROPORTIONS["true_positive_rate"], PROPORTIONS["false_positive_rate"]
        value = float(sensitivity.value(table) + 1.0 - miss.value(table)) / 2.0
        return value, miss.needs if table[1].sum() else sensitivity.needs
    return float(PROPORTIONS[name].value(table)), PROPORTIONS[name].needs


def _number(name: str, y_true: Any, y_pred: Any, features: Any, clients: Any) -> float:
    table = pooled_table(as_tally(y_true, y_pred, features, clients).counts)
    return defined(name, *performance(name, table))
