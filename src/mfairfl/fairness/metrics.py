"""Accuracy and its relatives, over all rows and over clients, from rows or from a `Tally`.

A number that needs a rate without rows is nan, with an `UndefinedMetricWarning`. The numbers that
compare groups are in `mfairfl.fairness.group_metrics`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.fairness.rates import client_number, performance, pooled_table
from mfairfl.fairness.tally import Tally


class UndefinedMetricWarning(UserWarning):
    """A metric is undefined on these rows (nan, never 0); the message says why."""


def as_tally(y_true: Any, y_pred: Any, sensitive_features: Any, clients: Any) -> Tally:
    """Return the tally a metric was given, or count the rows it was given.

    Examples
    --------
    >>> as_tally([1, 0], [1, 1], None, ["a", "b"]).clients
    ('a', 'b')
    """
    if isinstance(y_true, Tally):
        if y_pred is not None or sensitive_features is not None or clients is not None:
            raise ConfigError("a Tally already holds decisions, groups and clients; pass it alone")
        return y_true
    if y_pred is None:
        raise ConfigError("y_pred is missing; pass y_true and y_pred, or a Tally")
    features = {} if sensitive_features is None else sensitive_features
    return Tally.from_predictions(y_true, y_pred, sensitive_features=features, clients=clients)


def defined(name: str, value: float, reason: str) -> float:
    """Return `value`; if it is nan, warn with the reason."""
    if math.isnan(value):
        warnings.warn(f"{name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=3)
    return value


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
        Accepted so that all metrics have the same signature; the number does not depend on them.

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


def client_accuracy_std(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the population standard deviation (ddof 0) of the clients' accuracies.

    Parameters
    ----------
    y_true
        Labels 0 or 1, or a `Tally` (then nothing else).
    y_pred
        Decisions 0 or 1.
    sensitive_features
        Accepted so that all metrics have the same signature; the number does not depend on it.
    clients
        The client of each row.

    Examples
    --------
    >>> client_accuracy_std([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.25
    """
    return _client_metric("client_accuracy_std", y_true, y_pred, sensitive_features, clients)


def client_accuracy_gap(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the best minus the worst client's accuracy; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> client_accuracy_gap([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.5
    """
    return _client_metric("client_accuracy_gap", y_true, y_pred, sensitive_features, clients)


def worst_client_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the lowest accuracy of a client; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> worst_client_accuracy([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.5
    """
    return _client_metric("worst_client_accuracy", y_true, y_pred, sensitive_features, clients)


def best_client_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the highest accuracy of a client; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> best_client_accuracy([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    1.0
    """
    return _client_metric("best_client_accuracy", y_true, y_pred, sensitive_features, clients)


def _number(name: str, y_true: Any, y_pred: Any, features: Any, clients: Any) -> float:
    table = pooled_table(as_tally(y_true, y_pred, features, clients).counts)
    return defined(name, *performance(name, table))


def _client_metric(name: str, y_true: Any, y_pred: Any, features: Any, clients: Any) -> float:
    if clients is None and not isinstance(y_true, Tally):
        raise ConfigError(f"{name} needs clients=, the client of each row (or a Tally)")
    return defined(name, *client_number(name, as_tally(y_true, y_pred, features, clients)))
