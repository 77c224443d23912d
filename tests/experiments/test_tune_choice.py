"""The rule of choice, on trials whose right answer is plain to see."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.errors import ConfigError
from mfairfl.experiments.search.trials import Scored, allowed, choose


def scored(accuracy, violation, floor=0.005, constant=0.70):
    return Scored(accuracy=accuracy, violation=violation, floor=floor, constant_accuracy=constant)


CONSTANT = scored(0.70, 0.0, floor=0.0)


def test_the_most_accurate_of_the_fair_is_chosen():
    found = choose([scored(0.80, 0.004), scored(0.84, 0.009), scored(0.86, 0.011)], 0.01)
    assert found.index == 1
    assert "highest accuracy of the 2 with violation ≤ max(0.01," in found.reason
    assert "constant" not in found.reason


def test_the_constant_classifier_is_the_fairest_and_is_not_chosen():
    trials = [CONSTANT, scored(0.84, 0.009)]
    assert min(trials, key=lambda t: t.violation) is CONSTANT  # the trap
    assert choose(trials, 0.01).index == 1


def test_a_constant_answer_is_not_chosen_even_where_it_alone_is_fair():
    found = choose([scored(0.84, 0.2), scored(0.82, 0.1), CONSTANT], 0.01)
    assert found.index == 1
    assert "no useful trial has violation ≤ max(0.01" in found.reason


def test_a_tolerance_below_the_noise_floor_is_raised_to_1_3_floors():
    trials = [scored(0.80, 0.004, floor=0.02), scored(0.84, 0.0259, floor=0.02)]
    assert choose(trials, 0.01).index == 1
    assert choose([trials[0], scored(0.84, 0.0261, floor=0.02)], 0.01).index == 0


def test_each_trial_is_held_to_its_own_floor():
    trials = [scored(0.8, 0.02, floor=0.001), scored(0.75, 0.02, floor=0.02)]
    assert choose(trials, 0.01).index == 1


def test_the_bound_itself_passes():
    assert choose([scored(0.80, 0.001), scored(0.84, 0.01, floor=0.0)], 0.01).index == 1


def test_if_none_is_fair_the_fairest_of_the_useful_is_chosen():
    near_constant = scored(0.705, 0.05)
    found = choose([scored(0.86, 0.2), near_constant, scored(0.82, 0.1)], 0.01)
    assert found.index == 2
    assert found.reason.startswith("no useful trial has violation ≤ max(0.01, 1.3 × noise floor)")
    assert "lowest violation of the 2 clearly more accurate than a" in found.reason


@pytest.mark.parametrize(("accuracy", "index"), [(0.71, 1), (0.7099, 0)])
def test_useful_means_a_hundredth_above_the_constant_classifier(accuracy, index):
    assert choose([scored(0.80, 0.2), scored(accuracy, 0.1)], 0.01).index == index


def test_a_gain_of_exactly_a_hundredth_does_not_fail_by_rounding():
    assert 0.82 - 0.81 < 0.01  # in binary
    trials = [scored(0.90, 0.2, constant=0.81), scored(0.82, 0.1, constant=0.81)]
    assert choose(trials, 0.01).index == 1


def test_if_none_is_fair_or_useful_the_most_accurate_is_chosen_and_it_is_said():
    found = choose([scored(0.69, 0.05), scored(0.705, 0.3)], 0.01)
    assert found.index == 1
    assert found.reason.startswith("no trial is 0.01 more accurate than a constant classifier")


def test_equal_trials_are_told_apart_by_the_other_number_then_by_order():
    assert choose([scored(0.8, 0.009), scored(0.8, 0.003), scored(0.8, 0.003)], 0.01).index == 1
    assert choose([scored(0.8, 0.1), scored(0.9, 0.1), scored(0.9, 0.1)], 0.01).index == 1


def test_an_undefined_violation_passes_no_bound():
    assert choose([scored(0.9, math.nan), scored(0.8, 0.1)], 0.01).index == 1
    assert choose([scored(0.9, math.nan), scored(0.8, math.nan)], 0.01).index == 0
    assert choose([scored(0.9, math.nan), scored(0.6, 0.1)], 0.01).index == 1


def test_an_undefined_floor_leaves_the_tolerance():
    assert allowed(scored(0.8, 0.1, floor=math.nan), 0.01) == 0.01


def test_an_undefined_accuracy_is_never_chosen():
    assert choose([scored(math.nan, 0.0), scored(0.6, 0.9)], 0.01).index == 1
    for trials in ([], [scored(math.nan, 0.0)]):
        with pytest.raises(ConfigError, match="no complete trial with a defined accuracy"):
            choose(trials, 0.01)


@pytest.mark.parametrize("tolerance", [-0.01, 1.5, math.nan])
def test_a_tolerance_is_a_share(tolerance):
    with pytest.raises(ConfigError, match=f"tolerance: must be between 0 and 1, not {tolerance}"):
        choose([scored(0.8, 0.1)], tolerance)


numbers = st.floats(0, 1)
trials_of = st.lists(st.builds(scored, numbers, numbers, numbers, numbers), min_size=1, max_size=8)


@given(trials_of, numbers)
def test_nothing_fair_and_useful_is_more_accurate_than_the_choice(trials, tolerance):
    found = choose(trials, tolerance)
    useful = [t for t in trials if round(t.accuracy - t.constant_accuracy, 12) >= 0.01]
    fair = [t for t in useful if t.violation <= max(tolerance, 1.3 * t.floor)]
    if fair:
        assert trials[found.index] in fair
        assert trials[found.index].accuracy == max(t.accuracy for t in fair)
    assert "\n" not in found.reason
