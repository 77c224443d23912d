"""Client fairness: how evenly accuracy is spread over the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.fairness.inputs import as_tally, defined
from mfairfl.fairness.rates import ClientSpread, client_accuracies
from mfairfl.fairness.tally import Tally

__all__ = [
    "best_client_accuracy",
    "client_accuracy_gap",
    "client_accuracy_std",
    "client_number",
    "worst_client_accuracy",
]

Floats = NDArray[np.float64]


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
        Accepted so that all metrics are called alike; the number does not depend on it.
    clients
        The client of each row.

    Examples
    --------
    >>> client_accuracy_std([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.25
    """
    return _number("client_accuracy_std", y_true, y_pred, sensitive_features, clients)


def client_accuracy_gap(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the best minus the worst client's accuracy; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> client_accuracy_gap([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.5
    """
    return _number("client_accuracy_gap", y_true, y_pred, sensitive_features, clients)


def worst_client_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the lowest accuracy of a client; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> worst_client_accuracy([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.5
    """
    return _number("worst_client_accuracy", y_true, y_pred, sensitive_features, clients)


def best_client_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the highest accuracy of a client; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> best_client_accuracy([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    1.0
    """
    return _number("best_client_accuracy", y_true, y_pred, sensitive_features, clients)


_OVER_CLIENTS: dict[str, Callable[[Floats], Floats]] = {
    "client_accuracy_std": lambda a: ClientSpread("std").norm([a]),
    "client_accuracy_gap": lambda a: ClientSpread("gap").norm([a]),
    "worst_client_accuracy": lambda a: np.asarray(a.min(axis=-1)),
    "best_client_accuracy": lambda a: np.asarray(a.max(axis=-1)),
}


def client_number(name: str, tally: Tally) -> tuple[float, str]:
    """Return one of this module's numbers, and why it would be undefined."""
    if not tally.clients:
        return float("nan"), "there are no clients"
    accuracies = client_accuracies(tally.counts)
    empty = [c for c, a in zip(tally.clients, accuracies, strict=True) if np.isnan(a)]
    reason = f"client '{empty[0]}' has no rows" if empty else ""
    return float(_OVER_CLIENTS[name](accuracies)), reason


def _number(name: str, y_true: Any, y_pred: Any, features: Any, clients: Any) -> float:
    if clients is None and not isinstance(y_true, Tally):
        raise ConfigError(f"{name} needs clients=, the client of each row (or a Tally)")
    return defined(name, *client_number(name, as_tally(y_true, y_pred, features, clients)))
