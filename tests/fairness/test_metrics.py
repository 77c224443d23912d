"""Metrics against fairlearn and scikit-learn wherever every cell has members; nan elsewhere."""

from __future__ import annotations

import math
import warnings

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as skm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mfairfl import fairness
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness import Cells, Statistics, Tally, UndefinedMetricWarning

METHODS = ("between_groups", "to_overall")
NAMES = ("demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity")
GROUP_METRICS = [f"{n}_{kind}" for n in NAMES for kind in ("violation", "difference", "ratio")]
CLIENT_METRICS = (
    "client_accuracy_std",
    "client_accuracy_gap",
    "worst_client_accuracy",
    "best_client_accuracy",
)


def expand(counts):
    """Rows (y, ŷ, group) of a table counts[group, y, ŷ]."""
    group, y, decision = (axis.ravel() for axis in np.indices(counts.shape))
    repeat = counts.ravel()
    return np.repeat(y, repeat), np.repeat(decision, repeat), np.repeat(group, repeat)


def filled(smallest):
    """Tables of 1 to 4 groups whose every count is at least `smallest`."""
    return st.integers(1, 4).flatmap(
        lambda groups: arrays(np.int64, (groups, 2, 2), elements=st.integers(smallest, 9))
    )


# Every (group, label) has a member.
rated = filled(0).filter(lambda table: bool((table.sum(axis=2) > 0).all()))
few = settings(max_examples=30, deadline=None)


def fairlearns(name, kind, y, p, s, **more):
    """What fairlearn gives; it has no function for the parity of accuracies."""
    if name != "accuracy_parity":
        return getattr(fl, f"{name}_{kind}")(y, p, sensitive_features=s, **more)
    frame = fl.MetricFrame(metrics=skm.accuracy_score, y_true=y, y_pred=p, sensitive_features=s)
    return getattr(frame, kind)(**more)


def ours(name, kind, y, p, s, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        return getattr(fairness, f"{name}_{kind}")(y, p, sensitive_features=s, **more)


def same(value):
    return pytest.approx(value, abs=1e-12, nan_ok=True)


@pytest.mark.slow
@few
@given(rated)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_equals_fairlearn(name, table):
    """Also where nobody is selected: 0/0 is told, or left out, as fairlearn does it."""
    rows = expand(table)
    to_overall = fairlearns(name, "difference", *rows, method="to_overall")
    assert ours(name, "violation", *rows) == same(to_overall)
    for kind in ("difference", "ratio"):
        assert ours(name, kind, *rows) == same(fairlearns(name, kind, *rows))
        options = [{"method": method} for method in METHODS]
        if name == "equalized_odds":
            options = [{**more, "agg": agg} for more in options for agg in ("worst_case", "mean")]
        for more in options:
            assert ours(name, kind, *rows, **more) == same(fairlearns(name, kind, *rows, **more))


@pytest.mark.slow
@few
@given(filled(1), filled(1))
@pytest.mark.parametrize("name", NAMES)
def test_several_columns_are_crossed_as_in_fairlearn(name, first, second):
    parts = [np.array(expand(table)) for table in (first, second)]
    y, p, group = np.concatenate(parts, axis=1)
    half = np.repeat(["first", "second"], [part.shape[1] for part in parts])
    kept = group < min(len(first), len(second))  # so that every crossed cell has members
    rows = y[kept], p[kept], pd.DataFrame({"group": group, "half": half})[kept]
    for kind in ("difference", "ratio"):
        assert ours(name, kind, *rows) == same(fairlearns(name, kind, *rows))
    crossed = ours(name, "violation", *rows, attribute="intersection")
    assert crossed == same(fairlearns(name, "difference", *rows, method="to_overall"))
    singles = [
        fairlearns(name, "difference", *rows[:2], rows[2][column], method="to_overall")
        for column in rows[2]
    ]
    assert ours(name, "violation", *rows) == same(max(singles))


def test_the_four_fifths_rule_is_that_of_fairlearn():
    # Selection .3 of 100 and .21 of 300: overall .2325.
    y, s = np.zeros(400, int), np.repeat(["a", "b"], [100, 300])
    p = np.r_[np.repeat([1, 0], [30, 70]), np.repeat([1, 0], [63, 237])]
    assert fairness.demographic_parity_ratio(y, p, sensitive_features=s) == pytest.approx(0.7)
    assert fairness.demographic_parity_difference(y, p, sensitive_features=s) == pytest.approx(
        0.09
    )
    assert fairness.demographic_parity_violation(y, p, sensitive_features=s) == pytest.approx(
        0.3 - 0.2325
    )


@few
@given(filled(1))
def test_performance_equals_scikit_learn(table):
    y, p, _ = expand(table)
    assert fairness.accuracy(y, p) == pytest.approx(skm.accuracy_score(y, p), abs=1e-12)
    balanced = skm.balanced_accuracy_score(y, p)
    assert fairness.balanced_accuracy(y, p) == pytest.approx(balanced, abs=1e-12)
    assert fairness.f1(y, p) == pytest.approx(skm.f1_score(y, p), abs=1e-12)
    assert fairness.true_positive_rate(y, p) == pytest.approx(skm.recall_score(y, p), abs=1e-12)
    assert fairness.false_positive_rate(y, p) == pytest.approx(
        fl.false_positive_rate(y, p), abs=1e-12
    )
    assert fairness.selection_rate(y, p) == pytest.approx(p.mean(), abs=1e-12)


@few
@given(filled(1))
def test_client_metrics_equal_numpy(table):
    y, p, client = expand(table)
    accuracies = [(y == p)[client == k].mean() for k in np.unique(client)]
    expected = (np.std(accuracies), np.ptp(accuracies), min(accuracies), max(accuracies))
    for name, value in zip(CLIENT_METRICS, expected, strict=True):
        assert getattr(fairness, name)(y, p, clients=client) == pytest.approx(value, abs=1e-12)


@few
@given(rated, st.randoms(use_true_random=False))
def test_permuting_clients_or_rows_changes_nothing(table, random):
    y, p, s = expand(table)
    client = np.array([random.choice("abc") for _ in y])
    tally = Tally.from_predictions(y, p, sensitive_features=s, clients=client)
    order = random.sample(range(len(y)), len(y))
    renamed = np.array([{"a": "z", "b": "a", "c": "k"}[name] for name in client])
    other = Tally.from_predictions(
        y[order], p[order], sensitive_features=s[order], clients=renamed[order]
    )
    for name in (*CLIENT_METRICS, "demographic_parity_violation", "equalized_odds_violation"):
        metric = getattr(fairness, name)
        assert metric(tally) == pytest.approx(metric(other), abs=1e-12)


def test_two_group_identity():
    # With two groups the deviation is .667·gap (the larger share).
    y = np.zeros(300, int)
    s = np.repeat(["M", "F"], [200, 100])
    p = np.r_[np.repeat([1, 0], [100, 100]), np.repeat([1, 0], [20, 80])]
    gap = fairness.demographic_parity_difference(y, p, sensitive_features=s)
    assert gap == pytest.approx(0.3)
    deviation = fairness.demographic_parity_violation(y, p, sensitive_features=s)
    assert deviation == pytest.approx(2 / 3 * 0.3)


def test_numbers_of_adults_constant_classifier():
    # Adult's official test, constant 0: accuracy .764, AP .127, DP and EO 0.
    counts = np.zeros((1, 2, 2, 2), int)
    counts[0, :, :, 0] = [[5421 - 590, 590], [10860 - 3256, 3256]]
    tally = Tally(counts, ("all",), (Attribute("sex", ("Female", "Male")),))
    assert fairness.accuracy(tally) == pytest.approx(0.764, abs=5e-4)
    assert fairness.accuracy_parity_violation(tally) == pytest.approx(0.127, abs=5e-4)
    assert fairness.demographic_parity_violation(tally) == 0.0
    assert fairness.equalized_odds_violation(tally) == 0.0


TWO = pd.DataFrame({"sex": list("FFMM") * 2, "age": list("oyoy") * 2})
Y2 = [1, 1, 1, 1, 0, 0, 0, 0]
P2 = [1, 0, 1, 1, 0, 0, 1, 0]


def test_several_attributes_by_hand():
    # Selection: overall 4/8; F 1/4, M 3/4; o 3/4, y 1/4; F×o 1/2, F×y 0, M×o 1, M×y 1/2.
    tally = Tally.from_predictions(Y2, P2, sensitive_features=TWO)
    metric = fairness.demographic_parity_violation
    assert metric(tally, attribute="sex") == 0.25
    assert metric(tally, attribute="intersection") == 0.5
    assert fairness.demographic_parity_difference(tally) == 1.0
    assert fairness.demographic_parity_difference(tally, attribute="sex") == 0.5
    # Equal opportunity, y = 1: overall 3/4; F 1/2, M 1; o 1, y 1/2.
    assert fairness.equal_opportunity_violation(tally) == 0.25
    # Accuracy: overall 6/8; F 3/4, M 3/4; o 3/4, y 3/4.
    assert fairness.accuracy_parity_violation(tally) == 0.0


def test_a_violation_is_by_default_the_worst_attribute_s():
    frame = pd.DataFrame({"sex": list("FFMM"), "age": list("oyoy")})
    # Selection: F 1, M 0 (worse); o 1/2, y 1/2.
    tally = Tally.from_predictions([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=frame)
    assert fairness.demographic_parity_violation(tally) == 0.5
    assert fairness.demographic_parity_violation(tally, attribute="age") == 0.0
    assert fairness.demographic_parity_ratio(tally) == 0.0
    assert fairness.demographic_parity_ratio(tally, attribute="age") == 1.0


def test_one_group_differs_from_nothing():
    more = {"sensitive_features": ["a"] * 4}
    assert fairness.demographic_parity_violation([1, 0, 1, 0], [1, 0, 0, 0], **more) == 0.0
    assert fairness.equalized_odds_violation([1, 0, 1, 0], [1, 0, 0, 0], **more) == 0.0


def undefined(metric, *arguments, match, **more):
    with pytest.warns(UndefinedMetricWarning, match=match):
        value = metric(*arguments, **more)
    assert math.isnan(value)


def test_undefined_is_nan_with_its_reason():
    y, p, s = [1, 0, 1, 1], [1, 0, 1, 0], list("aabb")
    for kind in ("violation", "difference"):
        name = f"equalized_odds_{kind}"
        no_negative = f"{name} is undefined: group 'b' of 'sensitive_feature' has no"
        undefined(getattr(fairness, name), y, p, sensitive_features=s, match=no_negative)
    for method in METHODS:
        more = {"sensitive_features": s, "method": method}
        undefined(fairness.equalized_odds_ratio, y, p, match="has no rows with y=0", **more)
        undefined(
            fairness.demographic_parity_ratio, y, [0] * 4, match="no favourable decision", **more
        )
        wrong = [1 - label for label in y]
        undefined(fairness.accuracy_parity_ratio, y, wrong, match="no correct decision", **more)
    # Equal opportunity and accuracy parity need no row with y = 0.
    assert fairness.equal_opportunity_violation(y, p, sensitive_features=s) == pytest.approx(1 / 3)
    assert fairness.accuracy_parity_violation(y, p, sensitive_features=s) == 0.25


def test_a_declared_group_without_rows_is_undefined_not_zero():
    race = Attribute("race", ("a", "b", "never"))
    tally = Tally.from_predictions(
        [1, 0], [1, 0], sensitive_features={"race": ["a", "b"]}, attributes=(race,)
    )
    for name in GROUP_METRICS:
        undefined(getattr(fairness, name), tally, match="of 'race' has no rows")


def test_undefined_overall_and_client_numbers():
    undefined(fairness.true_positive_rate, [0, 0], [0, 1], match="no row has y = 1")
    undefined(fairness.false_positive_rate, [1, 1], [0, 1], match="no row has y = 0")
    undefined(fairness.balanced_accuracy, [0, 0], [0, 1], match="no row has y = 1")
    undefined(fairness.balanced_accuracy, [1, 1], [0, 1], match="no row has y = 0")
    undefined(fairness.f1, [0, 0], [0, 0], match="no label and no decision is 1")
    undefined(fairness.accuracy, [], [], match="there are no rows")
    tally = Tally(np.array([[[[1, 0], [0, 1]]], [[[0, 0], [0, 0]]]]), ("a", "away"), ())
    for name in CLIENT_METRICS:
        undefined(getattr(fairness, name), tally, match="client 'away' has no rows")
        nobody = Tally(np.zeros((0, 1, 2, 2)), (), ())
        undefined(getattr(fairness, name), nobody, match="there are no clients")


def test_calls_that_lack_something():
    tally = Tally.from_predictions([1, 0], [1, 0], sensitive_features=["a", "b"])
    for name in GROUP_METRICS:
        with pytest.raises(ConfigError, match="needs sensitive_features="):
            getattr(fairness, name)([1, 0], [1, 0])
    for name in CLIENT_METRICS:
        with pytest.raises(ConfigError, match=f"{name} needs clients="):
            getattr(fairness, name)([1, 0], [1, 0])
    with pytest.raises(ConfigError, match="y_pred is missing"):
        fairness.accuracy([1, 0])
    with pytest.raises(ConfigError, match="pass it alone"):
        fairness.accuracy(tally, [1, 0])
    with pytest.raises(ConfigError, match="unknown method 'overall'"):
        fairness.demographic_parity_difference(tally, method="overall")
    with pytest.raises(ConfigError, match="unknown agg 'max'"):
        fairness.equalized_odds_ratio(tally, agg="max")
    with pytest.raises(ConfigError, match="unknown sensitive attribute 'race'"):
        fairness.demographic_parity_violation(tally, attribute="race")
    for unknown in ("method", "agg", "sample_weight"):
        with pytest.raises(TypeError, match=f"'{unknown}'"):
            fairness.demographic_parity_violation(tally, **{unknown: None})
    with pytest.raises(TypeError, match="'sample_weight'"):
        fairness.accuracy([1, 0], [1, 0], sample_weight=[1, 2])
    with pytest.raises(TypeError, match="'sample_weight'"):
        fairness.demographic_parity_ratio(tally, sample_weight=[1, 2])


def test_a_warning_points_at_the_call():
    cells = Cells((Attribute("sex", ("F", "M")),))
    empty = Statistics(**{name: [[0, 0], [1, 1]] for name in fairness.cells.SUMS})
    for metric, arguments in (
        (fairness.true_positive_rate, ([0], [1])),
        (fairness.accuracy_parity_loss_violation, (empty, cells)),
    ):
        with pytest.warns(UndefinedMetricWarning) as caught:
            metric(*arguments)
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("name", [*GROUP_METRICS, *CLIENT_METRICS, "accuracy", "f1"])
def test_all_metrics_take_the_same_call(name):
    # By hand: 'a' (Y = 1, 0) is decided right, 'b' (1, 0) is decided 1, 1.
    metric = getattr(fairness, name)
    value = metric(
        [1, 0, 1, 0], [1, 0, 1, 1], sensitive_features=list("aabb"), clients=list("aabb")
    )
    expected = {
        "demographic_parity_violation": 0.25,
        "demographic_parity_difference": 0.5,
        "demographic_parity_ratio": 0.5,
        "equalized_odds_violation": 0.5,
        "equalized_odds_difference": 1.0,
        "equalized_odds_ratio": 0.0,
        "equal_opportunity_violation": 0.0,
        "equal_opportunity_difference": 0.0,
        "equal_opportunity_ratio": 1.0,
        "accuracy_parity_violation": 0.25,
        "accuracy_parity_difference": 0.5,
        "accuracy_parity_ratio": 0.5,
        "client_accuracy_std": 0.25,
        "client_accuracy_gap": 0.5,
        "worst_client_accuracy": 0.5,
        "best_client_accuracy": 1.0,
        "accuracy": 0.75,
        "f1": 0.8,
    }[name]
    assert value == pytest.approx(expected)


def test_loss_parity_by_hand():
    cells = Cells((Attribute("sex", ("F", "M")), Attribute("age", ("o", "y"))))
    rows = {"cells": [0, 1, 2, 2], "y": [0, 1, 0, 1], "decisions": [0] * 4, "scores": [0.5] * 4}
    sums = Statistics.from_rows(size=4, losses=[1.0, 3.0, 4.0, 8.0], **rows)
    # Mean 4; F 2, M 6; o 13/3, y 3.
    assert fairness.accuracy_parity_loss_violation(sums, cells) == 2.0
    assert fairness.accuracy_parity_loss_violation(sums, cells, attribute="age") == 1.0
    undefined(
        fairness.accuracy_parity_loss_violation,
        sums,
        cells,
        attribute="intersection",
        match="group 'M × y' of 'sex × age' has no rows",
    )
