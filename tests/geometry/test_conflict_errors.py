"""What the conflict step refuses, in one line that names the argument, the value and the fix."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.errors import ConfigError, DataError
from mfairfl.geometry import cosines, diminish_conflicts, rescaling

M = np.array([[1.0, 0.5], [0.5, 1.0]])
BAD_GRAMS = [
    (1.0, r"gram: shape \(\); expected \(1, 1\)"),
    ([1.0, 2.0], r"gram: shape \(2,\); expected \(2, 2\)"),
    (np.zeros((0, 0)), r"gram: shape \(0, 0\); expected \(1, 1\)"),
    (np.ones((2, 3)), r"gram: shape \(2, 3\); expected \(2, 2\)"),
    ([[1, np.nan], [np.nan, 1]], r"gram\[0, 1\] is nan; expected a finite number"),
    ([[1, 0], [0, np.inf]], r"gram\[1, 1\] is inf"),
    ([[1, 0], [0, -2]], r"gram\[1, 1\] is -2.0; a squared length is not negative"),
    ([[1, 0.5], [-0.5, 1]], r"gram\[0, 1\] is 0.5; a Gram matrix is symmetric"),
]


def refused(error, match, *arguments, **changes):
    options = {"beta": 1, "delta": 0.1, **changes}
    with pytest.raises(error, match=match) as caught:
        diminish_conflicts(*arguments, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("gram", "match"), BAD_GRAMS)
def test_no_gram_matrix(gram, match):
    refused(DataError, match, gram, [0, 1])
    with pytest.raises(DataError, match=match):
        rescaling(gram, [0.5, 0.5])
    with pytest.raises(DataError, match=match):
        cosines(gram)


@pytest.mark.parametrize(
    ("losses", "match"),
    [
        ([1], r"losses: shape \(1,\); expected \(2,\)"),
        ([1, np.nan], r"losses\[1\] is nan; expected a finite number"),
    ],
)
def test_no_losses(losses, match):
    refused(DataError, match, M, losses)


@pytest.mark.parametrize(
    ("goals", "match"),
    [
        (np.zeros((3, 3)), r"goals: shape \(3, 3\); expected \(2, 2\)"),
        ([[0, np.nan], [0, 0]], r"goals\[0, 1\] is nan"),
        ([[0, 0], [-1.5, 0]], r"goals\[1, 0\] is -1.5; averages of cosines lie in \[−1, 1\]"),
    ],
)
def test_no_goals(goals, match):
    refused(DataError, match, M, [0, 1], goals)


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([1], r"weights: shape \(1,\); expected \(2,\)"),
        ([0.5, np.nan], r"weights\[1\] is nan"),
        ([1.5, -0.5], r"weights\[1\] is -0.5; a weight is not negative"),
    ],
)
def test_no_weights(weights, match):
    refused(DataError, match, M, [0, 1], weights=weights)
    with pytest.raises(DataError, match=match):
        rescaling(M, [0.5, 0.5], weights)


def test_coefficients_of_another_federation():
    with pytest.raises(DataError, match=r"coefficients: shape \(3,\); expected \(2,\)"):
        rescaling(M, [1, 1, 1])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"beta": 1.1}, r"beta must lie in \[0, 1\], not 1.1"),
        ({"beta": float("nan")}, "beta must lie"),
        ({"delta": -0.1}, r"delta must lie in \[0, 1\], not -0.1"),
        ({"goal_cap": 1.0}, "goal_cap < 1 must hold, not 0.0 and 1.0"),
        ({"goal_floor": 0.5, "goal_cap": 0.4}, "not 0.5 and 0.4"),
        ({"goal_floor": -1.0}, "−1 < goal_floor"),
        ({"order": "lost"}, "unknown order 'lost': did you mean 'loss'"),
        ({"order": "random"}, "order 'random' needs rng"),
        ({"convention": "papper"}, "unknown convention 'papper': did you mean 'paper'"),
        ({"kept": "ordr"}, "unknown value of kept 'ordr': did you mean 'order'"),
    ],
)
def test_no_settings(changes, match):
    refused(ConfigError, match, M, [0, 1], **changes)


def test_norms_that_grow_past_all_numbers():
    """300 right angles at goal .999: each adjustment multiplies by 22.4, 299 of them by 1e403."""
    refused(
        ConfigError,
        "lower goal_cap, now 0.999",
        np.eye(300),
        np.arange(300),
        np.ones((300, 300)),
    )
