"""Metrics as functions of rows or of a `Tally`: accuracy and its relatives, and group differences.

A number that needs a rate without rows is nan, with an `UndefinedMetricWarning`. For each notion
there are three numbers:

* `<notion>_violation` is the paper's Eq. 7: the largest absolute deviation of a group's rate from
  the overall rate. Of several attributes the worst counts.
* `<notion>_difference` and `<notion>_ratio` compare the groups with one another, and equal the
  functions of these names in fairlearn (for accuracy parity its `MetricFrame` of accuracies)
  wherever every group has rows of every label. Several attributes are crossed, as there.

Where a group has no such rows fairlearn skips it or takes its rate for 0; here the number is
undefined, and the warning names the group.
"""

import math
import warnings
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.fairness import rates
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import notion
from mfairfl.fairness.tally import Tally


class UndefinedMetricWarning(UserWarning):
    """A metric is undefined on these rows (nan, never 0); the message says why.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", UndefinedMetricWarning)
    ...     true_positive_rate([0, 0], [0, 1])
    Traceback (most recent call last):
    ...
    mfairfl.fairness.metrics.UndefinedMetricWarning: true_positive_rate is undefined: no row has \
y = 1
    """


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
    return _of_all_rows("accuracy", _tally(y_true, y_pred, sensitive_features, clients))


def selection_rate(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the share of rows with a favourable decision; arguments as in `accuracy`.

    Examples
    --------
    >>> selection_rate([1, 0, 1, 0], [1, 0, 0, 0])
    0.25
    """
    return _of_all_rows("selection_rate", _tally(y_true, y_pred, sensitive_features, clients))


def true_positive_rate(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return P(ŷ=1 | y=1); arguments as in `accuracy`.

    Examples
    --------
    >>> true_positive_rate([1, 0, 1, 0], [1, 0, 0, 0])
    0.5
    """
    return _of_all_rows("true_positive_rate", _tally(y_true, y_pred, sensitive_features, clients))


def false_positive_rate(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return P(ŷ=1 | y=0); arguments as in `accuracy`.

    Examples
    --------
    >>> false_positive_rate([1, 0, 1, 0], [1, 1, 0, 0])
    0.5
    """
    return _of_all_rows("false_positive_rate", _tally(y_true, y_pred, sensitive_features, clients))


def balanced_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the mean of the accuracies on y = 0 and on y = 1; arguments as in `accuracy`.

    Examples
    --------
    >>> balanced_accuracy([1, 0, 0, 0], [0, 0, 0, 0])
    0.5
    """
    return _of_all_rows("balanced_accuracy", _tally(y_true, y_pred, sensitive_features, clients))


def f1(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return 2TP / (2TP + FP + FN), y = 1 being positive; arguments as in `accuracy`.

    Examples
    --------
    >>> f1([1, 0, 0, 1], [1, 1, 0, 1])
    0.8
    """
    return _of_all_rows("f1", _tally(y_true, y_pred, sensitive_features, clients))


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
    return _of_clients("client_accuracy_std", y_true, y_pred, sensitive_features, clients)


def client_accuracy_gap(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the best minus the worst client's accuracy; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> client_accuracy_gap([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.5
    """
    return _of_clients("client_accuracy_gap", y_true, y_pred, sensitive_features, clients)


def worst_client_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the lowest accuracy of a client; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> worst_client_accuracy([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    0.5
    """
    return _of_clients("worst_client_accuracy", y_true, y_pred, sensitive_features, clients)


def best_client_accuracy(
    y_true: Any, y_pred: Any = None, *, sensitive_features: Any = None, clients: Any = None
) -> float:
    """Return the highest accuracy of a client; arguments as in `client_accuracy_std`.

    Examples
    --------
    >>> best_client_accuracy([1, 1, 0, 0], [1, 0, 0, 0], clients=["a", "a", "b", "b"])
    1.0
    """
    return _of_clients("best_client_accuracy", y_true, y_pred, sensitive_features, clients)


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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("demographic_parity", "violation", tally, attribute)


def demographic_parity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("demographic_parity", "difference", tally, attribute, method=method)


def demographic_parity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("demographic_parity", "ratio", tally, attribute, method=method)


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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("equalized_odds", "violation", tally, attribute)


def equalized_odds_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
    agg: rates.Aggregate = "worst_case",
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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("equalized_odds", "difference", tally, attribute, method=method, agg=agg)


def equalized_odds_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
    agg: rates.Aggregate = "worst_case",
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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("equalized_odds", "ratio", tally, attribute, method=method, agg=agg)


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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("equal_opportunity", "violation", tally, attribute)


def equal_opportunity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the difference between the groups' highest and lowest true positive rate.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> equal_opportunity_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    1.0
    """
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("equal_opportunity", "difference", tally, attribute, method=method)


def equal_opportunity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the ratio of the groups' lowest and highest true positive rate.

    Arguments as in `demographic_parity_ratio`.

    Examples
    --------
    >>> equal_opportunity_ratio([1, 0, 1, 0], [1, 1, 1, 1], sensitive_features=list("aabb"))
    1.0
    """
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("equal_opportunity", "ratio", tally, attribute, method=method)


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
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("accuracy_parity", "violation", tally, attribute)


def accuracy_parity_difference(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the difference between the groups' highest and lowest accuracy.

    Arguments as in `demographic_parity_difference`.

    Examples
    --------
    >>> accuracy_parity_difference([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("accuracy_parity", "difference", tally, attribute, method=method)


def accuracy_parity_ratio(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    method: rates.Method = "between_groups",
    attribute: str | None = None,
) -> float:
    """Return the ratio of the groups' lowest and highest accuracy.

    Arguments as in `demographic_parity_ratio`.

    Examples
    --------
    >>> accuracy_parity_ratio([1, 0, 1, 0], [1, 1, 1, 0], sensitive_features=list("aabb"))
    0.5
    """
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _of_groups("accuracy_parity", "ratio", tally, attribute, method=method)


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
    groupings = rates.measured_groupings(cells, "violation", attribute)
    constraints = Constraints(cells, notion("accuracy_parity_loss"), groupings)
    gap = constraints.largest_gap(statistics)
    return _defined("accuracy_parity_loss_violation", *gap, depth=3)


def _of_all_rows(name: str, tally: Tally) -> float:
    return _defined(name, *rates.performance(name, rates.pooled_table(tally.counts)))


def _of_clients(
    name: str, y_true: Any, y_pred: Any, sensitive_features: Any, clients: Any
) -> float:
    if clients is None and not isinstance(y_true, Tally):
        raise ConfigError(f"{name} needs clients=, the client of each row (or a Tally)")
    tally = _tally(y_true, y_pred, sensitive_features, clients)
    return _defined(name, *rates.client_number(name, tally))


def _of_groups(
    name: str, kind: rates.Kind, tally: Tally, attribute: str | None, **options: Any
) -> float:
    groupings = rates.measured_groupings(tally.cells, kind, attribute)
    value, reason = rates.group_measure(kind, notion(name), tally.counts, groupings, **options)
    return _defined(f"{name}_{kind}", value, reason)


def _tally(y_true: Any, y_pred: Any, sensitive_features: Any, clients: Any) -> Tally:
    """Return the tally that a metric was given, or count the rows that it was given."""
    if isinstance(y_true, Tally):
        if y_pred is not None or sensitive_features is not None or clients is not None:
            raise ConfigError("a Tally already holds decisions, groups and clients; pass it alone")
        return y_true
    if y_pred is None:
        raise ConfigError("y_pred is missing; pass y_true and y_pred, or a Tally")
    features = {} if sensitive_features is None else sensitive_features
    return Tally.from_predictions(y_true, y_pred, sensitive_features=features, clients=clients)


def _defined(name: str, value: float, reason: str, *, depth: int = 4) -> float:
    """Return `value`; if it is nan, warn with the reason, at the line that called the metric."""
    if math.isnan(value):
        warnings.warn(f"{name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=depth)
    return value
