"""How far groups differ, from rows or from a `Tally`: for each notion three numbers.

* `<notion>_violation` is the paper's Eq. 7: the largest absolute deviation of a group's rate from
  the overall rate. Of several attributes the worst counts.
* `<notion>_difference` and `<notion>_ratio` compare the groups with one another, and equal the
  functions of these names in fairlearn (for accuracy parity its `MetricFrame` of accuracies)
  wherever every group has rows of every label. Several attributes are crossed, as there.

Where a group has no such rows fairlearn skips it or takes its rate for 0; here the number is
undefined: nan, with an `UndefinedMetricWarning` that names the group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.metrics import as_tally, defined
from mfairfl.fairness.notions import notion
from mfairfl.fairness.rates import Aggregate, Kind, Method, group_measure, measured_groupings
from mfairfl.fairness.tally import Tally


def demographic_parity_violation(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    attribute: str | None = None,
) -> float:
    """Return the largest deviation of a group's selection rate from the overall one.

    Parameters
    ----------
    y_true
        Labels 0 or 1, or a `Tally` (then nothing but `attribute`).
    y_pred
        Decisions 0 or 1.
    sensitive_features
        One column, or several as a frame, a dict or a 2-d array.
    clients
        Accepted so that all metrics have the same signature; the number does not depend on it.
    attribute
        Which sensitive attribute, or ``intersection``; None is the worst over the attributes.

    Examples
    --------
    >>> demographic_parity_violation([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("demographic_parity", "violation", tally, attribute)


def demographic_parity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the difference between the groups' highest and lowest selection rate.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, clients
        As in `demographic_parity_violation`.
    method
        ``between_groups``: highest minus lowest; ``to_overall``: largest deviation from overall.
    attribute
        Which sensitive attribute; None, or ``intersection``, is all of them crossed.

    Examples
    --------
    >>> demographic_parity_difference([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=list("aabb"))
    1.0
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("demographic_parity", "difference", tally, attribute, method=method)


def demographic_parity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the ratio of the groups' lowest and highest selection rate.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, clients, attribute
        As in `demographic_parity_difference`.
    method
        ``between_groups``: lowest over highest; ``to_overall``: the smallest ratio, at most 1, of
        a group's rate and the overall rate.

    Examples
    --------
    >>> demographic_parity_ratio([1, 0, 1, 0], [1, 1, 1, 0], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("demographic_parity", "ratio", tally, attribute, method=method)


def equalized_odds_violation(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    attribute: str | None = None,
) -> float:
    """Return the largest deviation of a group's true or false positive rate from the overall one.

    Arguments as in `demographic_parity_violation`.

    Examples
    --------
    >>> equalized_odds_violation([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("equalized_odds", "violation", tally, attribute)


def equalized_odds_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    agg: Aggregate = "worst_case",
    attribute: str | None = None,
) -> float:
    """Return the difference between the groups' highest and lowest true or false positive rate.

    Arguments as in `demographic_parity_difference`; `agg` takes the larger of the two differences
    (``worst_case``) or their ``mean``.

    Examples
    --------
    >>> equalized_odds_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    1.0
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("equalized_odds", "difference", tally, attribute, method=method, agg=agg)


def equalized_odds_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    agg: Aggregate = "worst_case",
    attribute: str | None = None,
) -> float:
    """Return the ratio of the groups' lowest and highest true or false positive rate.

    Arguments as in `equalized_odds_difference`. If there are no false positives at all, only
    true positive rates are compared; without any true positive the ratio is undefined.

    Examples
    --------
    >>> equalized_odds_ratio([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.0
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("equalized_odds", "ratio", tally, attribute, method=method, agg=agg)


def equal_opportunity_violation(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    attribute: str | None = None,
) -> float:
    """Return the largest deviation of a group's true positive rate from the overall one.

    Arguments as in `demographic_parity_violation`.

    Examples
    --------
    >>> equal_opportunity_violation([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("equal_opportunity", "violation", tally, attribute)


def equal_opportunity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the difference between the groups' highest and lowest true positive rate.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> equal_opportunity_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    1.0
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("equal_opportunity", "difference", tally, attribute, method=method)


def equal_opportunity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the ratio of the groups' lowest and highest true positive rate.

    Arguments as in `demographic_parity_ratio`.

    Examples
    --------
    >>> equal_opportunity_ratio([1, 0, 1, 0], [1, 1, 1, 1], sensitive_features=list("aabb"))
    1.0
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("equal_opportunity", "ratio", tally, attribute, method=method)


def accuracy_parity_violation(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    attribute: str | None = None,
) -> float:
    """Return the largest deviation of a group's accuracy from the overall one.

    Arguments as in `demographic_parity_violation`.

    Examples
    --------
    >>> accuracy_parity_violation([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.25
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("accuracy_parity", "violation", tally, attribute)


def accuracy_parity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the difference between the groups' highest and lowest accuracy.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> accuracy_parity_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("accuracy_parity", "difference", tally, attribute, method=method)


def accuracy_parity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the ratio of the groups' lowest and highest accuracy.

    Arguments as in `demographic_parity_ratio`.

    Examples
    --------
    >>> accuracy_parity_ratio([1, 0, 1, 0], [1, 1, 1, 0], sensitive_features=list("aabb"))
    0.5
    """
    tally = as_tally(y_true, y_pred, sensitive_features, clients)
    return _measured("accuracy_parity", "ratio", tally, attribute, method=method)


def accuracy_parity_loss_violation(
    statistics: Statistics, cells: Cells, *, attribute: str | None = None
) -> float:
    """Return the largest |mean loss of a group − mean loss| (the paper's Eq. 6).

    Parameters
    ----------
    statistics
        Sums over (cell, label). A tally is not enough: it counts decisions, not losses.
    cells
        The cells the sums are over.
    attribute
        As in `demographic_parity_violation`.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> rows = dict(cells=[0, 1], y=[1, 0], decisions=[1, 1], scores=[0.9, 0.6])
    >>> sums = Statistics.from_rows(size=2, losses=[0.1, 0.9], **rows)
    >>> accuracy_parity_loss_violation(sums, Cells((Attribute("sex", ("F", "M")),)))
    0.4
    """
    groupings = measured_groupings(cells, "violation", attribute)
    constraints = Constraints(cells, notion("accuracy_parity_loss"), groupings)
    gaps = np.abs(constraints.gaps(statistics))
    empty = [label for label, gap in zip(constraints.labels, gaps, strict=True) if np.isnan(gap)]
    reason = f"group '{empty[0][3]}' of '{empty[0][2]}' has no rows" if empty else ""
    return defined("accuracy_parity_loss_violation", float(gaps.max()), reason)


def _measured(name: str, kind: Kind, tally: Tally, attribute: str | None, **options: Any) -> float:
    groupings = measured_groupings(tally.cells, kind, attribute)
    found = group_measure(kind, notion(name), tally.counts, groupings, **options)
    return defined(f"{name}_{kind}", *found)
