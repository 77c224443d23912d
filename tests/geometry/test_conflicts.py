"""diminish_conflicts against a naive loop over the updates, closed forms and symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from geometry_naive import count_of, federation, naive, random_goals, targets_of, unit
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mfairfl.geometry import diminish_conflicts, gram_matrix

seeds = st.integers(0, 2**32 - 1)
clients = st.integers(1, 11)
shares = st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])
commons = st.sampled_from([0.0, 0.5, 2.0])


# The naive loop


@settings(max_examples=150, deadline=None)
@given(
    seed=seeds,
    count=clients,
    beta=shares,
    delta=st.sampled_from([0.001, 0.1, 0.5, 0.99]),
    common=commons,
    order=st.sampled_from(["loss", "reversed", "random", "fixed"]),
    convention=st.sampled_from(["paper", "gradvac"]),
    kept=st.sampled_from(["loss", "order"]),
    cap=st.sampled_from([0.9, 0.999]),
)
def test_equals_the_loop_over_clients_round_after_round(
    seed, count, beta, delta, common, order, convention, kept, cap
):
    goals = expected_goals = np.zeros((count, count))
    for step in range(4):
        G, losses = federation([seed, step], count, common=common)
        found = diminish_conflicts(
            G @ G.T,
            losses,
            goals,
            beta=beta,
            delta=delta,
            order=order,
            rng=np.random.default_rng(seed),
            convention=convention,
            kept=kept,
            goal_cap=cap,
        )
        drawn = np.random.default_rng(seed).permutation(count).tolist()
        targets = drawn if order == "random" else targets_of(losses, order)
        who = targets if kept == "order" else targets_of(losses, "loss")
        chosen = who[: count_of(beta, count)]
        adjusted, expected_goals = naive(
            G, chosen, targets, expected_goals, delta=delta, convention=convention, cap=cap
        )
        assert found.order.tolist() == targets
        assert np.flatnonzero(found.adjusted).tolist() == sorted(chosen)
        length = np.linalg.norm(adjusted, axis=1, keepdims=True)
        assert (np.abs(found.rows @ G - adjusted) <= 1e-10 * length).all()
        mean = adjusted.mean(axis=0)
        assert np.linalg.norm(found.coefficients @ G - mean) <= 1e-10 * length.sum()
        np.testing.assert_allclose(found.goals, expected_goals, rtol=0, atol=1e-10)
        goals = found.goals


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(2, 8), beta=shares)
def test_size_weights_weigh_the_adjusted_updates(seed, count, beta):
    G, losses = federation(seed, count)
    goals = random_goals(seed, count)
    p = np.random.default_rng(seed).dirichlet(np.ones(count))
    found = diminish_conflicts(G @ G.T, losses, goals, beta=beta, delta=0.1, weights=p)
    targets = targets_of(losses, "loss")
    adjusted, _ = naive(G, targets[: count_of(beta, count)], targets, goals, delta=0.1)
    scale = p @ np.linalg.norm(adjusted, axis=1)
    assert np.linalg.norm(found.coefficients @ G - p @ adjusted) <= 1e-10 * scale


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(2, 8), floor=st.sampled_from([-0.9, -0.2, 0.3]))
def test_goals_are_clipped_when_used_and_stored_raw(seed, count, floor):
    G, losses = federation(seed, count)
    goals = random_goals(seed, count)
    bounds = {"goal_floor": floor, "goal_cap": 0.4}
    found = diminish_conflicts(G @ G.T, losses, goals, beta=1, delta=0.3, **bounds)
    targets = targets_of(losses, "loss")
    adjusted, averages = naive(G, targets, targets, goals, delta=0.3, floor=floor, cap=0.4)
    length = np.linalg.norm(adjusted, axis=1, keepdims=True)
    assert (np.abs(found.rows @ G - adjusted) <= 1e-10 * length).all()
    np.testing.assert_allclose(found.goals, averages, rtol=0, atol=1e-10)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(1, 8))
def test_the_coefficients_are_those_of_the_loops_step_in_the_span(seed, count):
    """Solve for the coefficients from the loop's step: it lies in the span, and they are ours."""
    G, losses = federation(seed, count)
    G = unit(G)  # least squares needs a well-conditioned matrix
    goals = random_goals(seed, count)
    targets = targets_of(losses, "loss")
    step = naive(G, targets, targets, goals, delta=0.1)[0].mean(axis=0)
    solved, residual, *_ = np.linalg.lstsq(G.T, step)
    assert np.sqrt(residual).item() <= 1e-10 * max(1, np.linalg.norm(solved))
    found = diminish_conflicts(G @ G.T, losses, goals, beta=1, delta=0.1)
    np.testing.assert_allclose(found.coefficients, solved, rtol=1e-8, atol=1e-8)


# One adjustment


@settings(max_examples=100, deadline=None)
@given(
    angle=st.floats(0.05, np.pi - 0.05),
    goal_angle=st.floats(0.1, np.pi / 2),
    long=st.floats(0.01, 100),
)
def test_one_adjustment_obeys_the_law_of_sines(angle, goal_angle, long):
    assume(abs(angle - goal_angle) > 1e-6)
    G = np.array([[long * np.cos(angle), long * np.sin(angle)], [1.0, 0.0]])
    goals = np.full((2, 2), np.cos(goal_angle))
    found = diminish_conflicts(G @ G.T, [0, 1], goals, beta=0.5, delta=0.1)
    a = found.rows[0] @ G
    if angle < goal_angle:
        assert not found.conflicts.any()
        assert a.tolist() == G[0].tolist()
    else:
        assert found.conflicts.tolist() == [[False, True], [False, False]]
        expected = long * np.sin(angle - goal_angle) / np.sin(goal_angle)
        np.testing.assert_allclose(found.rows[0, 1], expected, rtol=1e-7)
        np.testing.assert_allclose(np.arctan2(a[1], a[0]), goal_angle, rtol=1e-9)
        # The height above the target is untouched: |a'| sin b = |a| sin θ.
        np.testing.assert_allclose(
            found.norms[0] * np.sin(goal_angle), long * np.sin(angle), rtol=1e-9
        )
    np.testing.assert_allclose(
        found.goals[0, 1], 0.1 * np.cos(goal_angle) + 0.9 * np.cos(angle), atol=1e-12
    )


@settings(max_examples=100, deadline=None)
@given(seed=seeds, count=st.integers(2, 11), beta=shares, common=commons)
def test_coefficients_cosines_and_norms_of_a_pass(seed, count, beta, common):
    G, losses = federation(seed, count, common=common)
    goals = random_goals(seed, count)
    found = diminish_conflicts(G @ G.T, losses, goals, beta=beta, delta=0.1, goal_cap=0.9)
    off = ~np.eye(count, dtype=bool)
    assert np.array_equal(found.rows[off] > 0, found.conflicts[off])
    assert (found.rows[off] >= 0).all()
    assert np.diag(found.rows).tolist() == [1.0] * count
    assert not found.conflicts[~found.adjusted].any()
    A = found.rows @ G
    np.testing.assert_allclose(found.norms, np.linalg.norm(A, axis=1), rtol=1e-10)
    growth = found.norms / np.linalg.norm(G, axis=1)
    bound = (1 / np.sqrt(1 - 0.9**2)) ** found.conflicts.sum(axis=1)
    assert (growth <= bound * (1 + 1e-12)).all()
    after = unit(A) @ unit(G).T
    goal = np.clip(goals, 0, 0.9)
    for k in np.flatnonzero(found.conflicts.any(axis=1)):
        last = [i for i in found.order if found.conflicts[k, i]][-1]
        assert after[k, last] == pytest.approx(goal[k, last], abs=1e-10)
    end = found.order[-1]
    others = found.adjusted & (np.arange(count) != end)
    assert (after[others, end] >= goal[others, end] - 1e-10).all()


# Symmetries


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(2, 11), beta=shares)
def test_permuting_clients_permutes_the_outcome(seed, count, beta):
    G, losses = federation(seed, count)
    goals = random_goals(seed, count)
    p = np.random.default_rng([seed, 2]).permutation(count)
    settings_ = {"beta": beta, "delta": 0.1}
    found = diminish_conflicts(G @ G.T, losses, goals, **settings_)
    moved = diminish_conflicts(G[p] @ G[p].T, losses[p], goals[np.ix_(p, p)], **settings_)
    scale = np.abs(found.coefficients).max()
    assert np.abs(moved.coefficients - found.coefficients[p]).max() <= 1e-10 * scale
    np.testing.assert_allclose(moved.goals, found.goals[np.ix_(p, p)], rtol=0, atol=1e-10)
    assert np.array_equal(moved.conflicts, found.conflicts[np.ix_(p, p)])


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=clients, scale=st.sampled_from([2.0**-40, 0.3, 1e6]))
def test_rescaling_all_updates_changes_nothing(seed, count, scale):
    G, losses = federation(seed, count)
    goals = random_goals(seed, count)
    found = diminish_conflicts(G @ G.T, losses, goals, beta=0.8, delta=0.1)
    G = scale * G
    scaled = diminish_conflicts(G @ G.T, losses, goals, beta=0.8, delta=0.1)
    np.testing.assert_allclose(scaled.coefficients, found.coefficients, rtol=1e-10)
    np.testing.assert_allclose(scaled.goals, found.goals, rtol=0, atol=1e-10)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=clients)
def test_goals_follow_directions_alone(seed, count):
    G, losses = federation(seed, count)
    goals = random_goals(seed, count)
    found = diminish_conflicts(G @ G.T, losses, goals, beta=0.8, delta=0.1)
    s = 10 ** np.random.default_rng([seed, 3]).uniform(-3, 3, size=count)
    G = s[:, None] * G
    scaled = diminish_conflicts(G @ G.T, losses, goals, beta=0.8, delta=0.1)
    np.testing.assert_allclose(scaled.goals, found.goals, rtol=0, atol=1e-10)
    # a_k scales with s_k, and so its part of g_i with s_k / s_i.
    np.testing.assert_allclose(scaled.rows * s / s[:, None], found.rows, rtol=1e-9, atol=1e-12)


# Precision


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(2, 8))
def test_float32_updates_give_nearly_the_same_coefficients(seed, count):
    G, losses = federation(seed, count, width=3000)
    narrow = G.astype(np.float32)
    goals = random_goals(seed, count)
    found = diminish_conflicts(gram_matrix(narrow), losses, goals, beta=1, delta=0.1)
    wide = gram_matrix(narrow.astype(np.float64))
    expected = diminish_conflicts(wide, losses, goals, beta=1, delta=0.1)
    length = np.linalg.norm(G, axis=1)  # what a coefficient moves
    scale = np.abs(expected.rows) @ length
    assert (np.abs(found.rows - expected.rows) @ length <= 1e-5 * scale).all()
    np.testing.assert_allclose(found.goals, expected.goals, rtol=0, atol=1e-5)
