"""Multiplier steps and prices by hand.

The model is logistic on one feature with weight 1: a row's feature is its logit. Group F has the
logits 1, −1 and group M has 1, 1, so F_F = ½, F_M = 1, F = ¾ and d = F − F_g = (¼, −¼).
"""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal
from mfairfl.models import logistic
from mfairfl.training.batches import RowStore
from mfairfl.training.controller import Multipliers
from mfairfl.training.measure import Probe, measure
from mfairfl.training.plan import Controller, Prices
from rounds import SEX

MODEL = logistic(1)
AS_IS = np.array([1.0, 0.0], dtype=np.float32)
ALL_POSITIVE = np.array([1.0, 5.0], dtype=np.float32)
FOUR = np.array([[1], [-1], [1], [1]], np.float32), np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1])
POOLED = ((30.0, 10.0), (20.0, 40.0))  # n = 100, n_F = 40, n_M = 60


def sums(store, weights):
    return measure([Probe(weights, range(len(store.y)))], MODEL, store)[0]


def begun(shard=FOUR, start=None, alpha=0.0, notion="dp", weights=AS_IS, **changes):
    goal = Goal(notions=(notion,), dead_zone=alpha)
    setting = {"multipliers": (0.0, 0.0), "step": (1.0, 1.0)} | changes
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    moving = Multipliers(Controller(goal=goal, **setting), SEX, start)
    moving.begin(store.counts(rows), sums(store, weights))
    return moving, store


def move(moving, store, weights=AS_IS):
    moving.move(sums(store, weights))
    return tuple(moving.values)


def test_local_steps_add_the_signed_gap():
    moving, store = begun()
    assert tuple(moving.values) == (0.0, 0.0)
    assert move(moving, store) == (0.25, -0.25)
    assert tuple(moving.gaps) == (0.25, -0.25)
    assert move(moving, store) == (0.5, -0.5)
    assert move(moving, store, ALL_POSITIVE) == (0.5, -0.5)  # no gap, no step
    assert tuple(moving.gaps) == (0.0, 0.0)


def test_each_constraint_has_its_own_step():
    moving, store = begun(step=(2.0, 0.5), multipliers=(1.0, 1.0))
    assert move(moving, store) == (1.5, 0.875)


@pytest.mark.parametrize(("alpha", "expected"), [(0.125, 0.125), (0.25, 0.0), (0.5, 0.0)])
def test_gaps_inside_the_tolerance_are_left_alone(alpha, expected):
    moving, store = begun(alpha=alpha)
    assert move(moving, store) == (expected, -expected)
    assert tuple(moving.gaps) == (
        0.25,
        -0.25,
    )  # the dead zone is in the step, not in what is reported


def test_relative_steps_follow_the_pooled_gap():
    # offset + d − d₀ = (½, −⅛) + (0, 0) − (¼, −¼) = (¼, ⅛); the dead zone takes 1/16 of each.
    moving, store = begun(relative=True, offset=(0.5, -0.125), alpha=0.0625, step=(2.0, 1.0))
    assert move(moving, store, ALL_POSITIVE) == (0.375, 0.0625)
    assert tuple(moving.gaps) == (0.25, 0.125)


def test_relative_without_movement_is_the_offset():
    moving, store = begun(relative=True, offset=(0.5, -0.125))
    assert move(moving, store) == (0.5, -0.125)


def test_smooth_gaps_are_means_of_scores():
    moving, store = begun(prices=Prices(driven_by="smooth"))
    up, down = 1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(1.0))
    overall, women, men = (3 * up + down) / 4, (up + down) / 2, up
    np.testing.assert_allclose(move(moving, store), [overall - women, overall - men], rtol=1e-6)


@pytest.mark.parametrize("relative", [False, True])
def test_a_group_the_client_lacks_moves_by_the_offset_alone(relative):
    women = tuple(part[:2] for part in FOUR)
    moving, store = begun(women, relative=relative)
    assert move(moving, store) == (0.0, 0.0)
    moving, store = begun(women, relative=relative, offset=(0.0, 0.5))
    assert move(moving, store) == (0.0, 0.5)


def test_a_client_without_rows_moves_by_the_offset_alone():
    moving, store = begun(tuple(part[:0] for part in FOUR), offset=(0.25, 0.5))
    assert move(moving, store) == (0.25, 0.5)
    assert [table.tolist() for table in moving.prices()] == [[[0, 0], [0, 0]]] * 2


def test_multipliers_held_by_the_client_win_over_the_plan():
    held = np.array([[0.5, -1.0], [1.0, 1.0], [0.0, 0.0]])
    moving, store = begun(start=held, multipliers=(9.0, 9.0))
    assert tuple(moving.values) == (0.5, -1.0)
    assert move(moving, store) == (0.75, -1.25)


def test_a_gap_that_changes_sign_halves_the_step_and_is_remembered():
    # As it is, d = (¼, −¼); with all signs turned round, d = (−¼, ¼).
    moving, store = begun(shrink=0.5)
    assert move(moving, store) == (0.25, -0.25)
    assert move(moving, store, -AS_IS) == (0.125, -0.125)
    again, store = begun(start=moving.memory, shrink=0.5)
    found = move(again, store, -AS_IS)  # the same sign: the gain recovers to .6
    np.testing.assert_allclose(found, (0.125 - 0.15, -0.125 + 0.15))


def test_a_multiplier_stops_where_its_price_does():
    moving, store = begun(prices=Prices(cap=1.0))  # two rows of four each: |μ| · 2 ≤ 1
    for expected in (0.25, 0.5, 0.5):
        assert move(moving, store) == (expected, -expected)


def test_equalized_odds_compares_within_labels():
    # y = 0: F has logit 1, M has 1: no gap. y = 1: F has −1, M has 1: F_1 = ½, d = (½, −½).
    moving, store = begun(notion="eo", multipliers=(0.0,) * 4, step=(1.0,) * 4)
    assert move(moving, store) == (0.0, 0.0, 0.5, -0.5)


# --- prices ----------------------------------------------------------------------------------


def test_demographic_parity_prices_with_own_counts():
    # U_g = Σμ − μ_g n/n_g with μ = (¼, −¼), n/n_g = 2.
    moving, store = begun()
    move(moving, store)
    score, loss = moving.prices()
    assert loss.tolist() == [[0, 0], [0, 0]]
    assert score.tolist() == [[-0.5, -0.5], [0.5, 0.5]]


def test_given_counts_replace_the_clients_own():
    # Σμ = ¼: U_F = ¼ − ½·100/40 = −1, U_M = ¼ + ¼·100/60 = ⅔.
    moving, _ = begun(multipliers=(0.5, -0.25), counts=POOLED)
    score, _ = moving.prices()
    np.testing.assert_allclose(score, [[-1, -1], [2 / 3, 2 / 3]], rtol=1e-12)


def test_one_sided_accuracy_parity():
    # μ = (.4, 0): u_F = .4 − .4·100/40 = −.6 (errors must rise: false positives only),
    # u_M = .4 (errors must fall: +.4 on σ for y = 0, −.4 for y = 1).
    moving, _ = begun(notion="ap", multipliers=(0.4, 0.0), counts=POOLED)
    score, loss = moving.prices()
    assert loss.tolist() == [[0, 0], [0, 0]]
    np.testing.assert_allclose(score, [[-0.6, 0], [0.4, -0.4]], atol=1e-12)


def test_two_sided_accuracy_parity():
    moving, _ = begun(
        notion="ap", multipliers=(0.4, 0.0), counts=POOLED, prices=Prices(one_sided=False)
    )
    np.testing.assert_allclose(moving.prices()[0], [[-0.6, 0.6], [0.4, -0.4]], atol=1e-12)


def test_one_sided_parity_of_losses():
    # u_M = .4 raises the weight of M's loss; u_F = −.6 becomes a price on F's false positives.
    moving, _ = begun(notion="ap-loss", multipliers=(0.4, 0.0), counts=POOLED)
    score, loss = moving.prices()
    np.testing.assert_allclose(loss, [[0, 0], [0.4, 0.4]], atol=1e-12)
    np.testing.assert_allclose(score, [[-0.6, 0], [0, 0]], atol=1e-12)


def test_prices_stop_at_the_cap():
    # Uncapped: u_F = 10 − 25 = −15, u_M = 10.
    far = {"multipliers": (10.0, 0.0), "counts": POOLED}
    moving, _ = begun(notion="ap", **far)  # away from the label up to 5, both towards it up to ½
    assert moving.prices()[0].tolist() == [[-5, 0], [0.5, -0.5]]
    moving, _ = begun(notion="dp", **far)  # towards the label up to 20
    np.testing.assert_allclose(moving.prices()[0], [[-5, -15], [10, 5]])
    moving, _ = begun(notion="ap", **far, prices=Prices(cap=8.0, counter_cap=12.0, shared_cap=9))
    np.testing.assert_allclose(moving.prices()[0], [[-12, 0], [8, -8]])
    moving, _ = begun(notion="ap-loss", **far)
    assert [table.tolist() for table in moving.prices()] == [[[-5, 0], [0, 0]], [[0, 0], [5, 5]]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"multipliers": (0.0,)}, r"controller\.multipliers: 1 numbers for 2 constraints"),
        ({"step": (1.0,)}, r"controller\.step: 1 numbers for 2"),
        ({"offset": (1.0, 2.0, 3.0)}, r"controller\.offset: 3 numbers for 2"),
        ({"start": np.zeros((3, 4))}, r"controller\.multipliers: 4 numbers for 2"),
    ],
)
def test_one_number_for_each_constraint(changes, words):
    with pytest.raises(ConfigError, match=words):
        begun(**changes)
