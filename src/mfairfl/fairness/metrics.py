"""Every reported number, from rows or from a `Tally`; names as in fairlearn where it has them.

Group metrics are differences to the overall rate by default (`method="to_overall"`, the paper's
Eq. 7). A number that needs a rate without rows is nan, with an `UndefinedMetricWarning`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mfairfl.errors import ConfigError, unknown
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.client_metrics import (
    best_client_accuracy,
    client_accuracy_gap,
    client_accuracy_std,
    worst_client_accuracy,
)
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.inputs import UndefinedMetricWarning, as_tally, defined
from mfairfl.fairness.notions import notion
from mfairfl.fairness.performance import (
    accuracy,
    balanced_accuracy,
    f1,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
)
from mfairfl.fairness.rates import Disparity, Method, chosen_groupings

__all__ = [
    "UndefinedMetricWarning",
    "accuracy",
    "accuracy_parity_difference",
    "accuracy_parity_loss_difference",
    "accuracy_parity_ratio",
    "balanced_accuracy",
    "best_client_accuracy",
    "client_accuracy_gap",
    "client_accuracy_std",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "f1",
    "false_positive_rate",
    "selection_rate",
    "true_positive_rate",
    "worst_client_accuracy",
]

Aggregate = Literal["worst_case", "mean"]
AGGREGATES = ("worst_case", "mean")


def demographic_parity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    attribute: str | None = None,
) -> float:
    """Return how far the groups' selection rates differ.

    Parameters
    ----------
    y_true
        Labels 0 or 1, or a `Tally` (then nothing but `method`, `attribute`).
    y_pred
        Decisions 0 or 1.
    sensitive_features
        One column, or several as a frame, a dict or a 2-d array.
    clients
        Accepted so that all metrics are called alike; the number does not depend on it.
    method
        ``to_overall``: the largest |P(ŷ=1|s) − P(ŷ=1)|; ``between_groups``: highest minus lowest.
    attribute
        Which sensitive attribute, or ``intersection``; None is the worst over the attributes.

    Examples
    --------
    >>> demographic_parity_difference([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("demographic_parity", tally, method, attribute)


def demographic_parity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    attribute: str | None = None,
) -> float:
    """Return the smallest ratio (at most 1) of selection rates; arguments as for the difference.

    Examples
    --------
    >>> demographic_parity_ratio([1, 0, 1, 0], [1, 1, 1, 0], sensitive_features=list("aabb"),
    ...                          method="between_groups")
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("demographic_parity", tally, method, attribute, ratio=True)


def equalized_odds_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    agg: Aggregate = "worst_case",
    attribute: str | None = None,
) -> float:
    """Return how far the groups' true and false positive rates differ.

    Arguments as in `demographic_parity_difference`; `agg` takes the larger of the two differences
    (``worst_case``) or their ``mean``.

    Examples
    --------
    >>> equalized_odds_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("equalized_odds", tally, method, attribute, agg=agg)


def equalized_odds_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    agg: Aggregate = "worst_case",
    attribute: str | None = None,
) -> float:
    """Return the smallest ratio of true or of false positive rates.

    Arguments as in `equalized_odds_difference`. Undefined if there is no true or no false
    positive at all (0/0).

    Examples
    --------
    >>> equalized_odds_ratio([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.0
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("equalized_odds", tally, method, attribute, ratio=True, agg=agg)


def equal_opportunity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    attribute: str | None = None,
) -> float:
    """Return how far the groups' true positive rates differ.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> equal_opportunity_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("equal_opportunity", tally, method, attribute)


def accuracy_parity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    attribute: str | None = None,
) -> float:
    """Return how far the groups' accuracies (or error rates: the same number) differ.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> accuracy_parity_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.25
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("accuracy_parity", tally, method, attribute)


def accuracy_parity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "to_overall",
    attribute: str | None = None,
) -> float:
    """Return the smallest ratio (at most 1) of the groups' accuracies, not of error rates.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> accuracy_parity_ratio([1, 0, 1, 0], [1, 1, 1, 0], sensitive_features=list("aabb"),
    ...                       method="between_groups")
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _group_number("accuracy_parity", tally, method, attribute, ratio=True)


def accuracy_parity_loss_difference(
    statistics: Statistics, cells: Cells, *, attribute: str | None = None
) -> float:
    """Return the largest |mean loss of a group − mean loss| (the paper's Eq. 6).

    Parameters
    ----------
    statistics
        Sums over (cell, label); decisions do not tell a loss, so a tally is not enough.
    cells
        The cells the sums are over.
    attribute
        As in `demographic_parity_difference`.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> rows = dict(cells=[0, 1], y=[1, 0], decisions=[1, 1], scores=[0.9, 0.6])
    >>> sums = Statistics.from_rows(size=2, losses=[0.1, 0.9], **rows)
    >>> accuracy_parity_loss_difference(sums, Cells((Attribute("sex", ("F", "M")),)))
    0.4
    """
    parity = notion("accuracy_parity_loss")
    constraints = Constraints(cells, parity, chosen_groupings(cells, attribute))
    gaps = np.abs(constraints.gaps(statistics))
    empty = [label for label, gap in zip(constraints.labels, gaps, strict=True) if np.isnan(gap)]
    reason = f"group '{empty[0][3]}' of '{empty[0][2]}' has no rows" if empty else ""
    return defined("accuracy_parity_loss_difference", float(gaps.max()), reason)


def _group_number(
    name: str,
    tally: Any,
    method: Method,
    attribute: str | None,
    *,
    ratio: bool = False,
    agg: Aggregate = "worst_case",
) -> float:
    if agg not in AGGREGATES:
        raise ConfigError(unknown("agg", agg, AGGREGATES))
    groupings = tuple(chosen_groupings(tally.cells, attribute))
    disparity = Disparity(notion(name), groupings, method, ratio)
    norms = disparity.norms(disparity.vectors(tally.counts))  # (groupings, events)
    values = np.exp(-norms) if ratio else norms
    worst = np.min if ratio else np.max
    by_grouping = values.mean(axis=1) if agg == "mean" else worst(values, axis=1)
    value = worst(by_grouping)
    full = f"{name}_{'ratio' if ratio else 'difference'}"
    return defined(full, float(value), disparity.undefined(tally.counts))
