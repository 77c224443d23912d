"""What every metric shares: rows or a tally in, a number or a warned-of nan out."""

from __future__ import annotations

import math
import warnings
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.fairness.tally import Tally

__all__ = ["UndefinedMetricWarning", "as_tally", "defined"]


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
