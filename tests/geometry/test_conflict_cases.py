"""The conflict step where the answer is known: special cases, degenerate updates, who and when."""

from __future__ import annotations

import numpy as np
import pytest
from geometry_naive import count_of, federation, projected, random_goals, targets_of, unit
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.geometry import cosines, diminish_conflicts, gram_matrix, rescaling
from mfairfl.geometry.conflicts import adjusted_count

seeds = st.integers(0, 2**32 - 1)
clients = st.integers(1, 11)
shares = st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])


@pytest.mark.parametrize("weights", [None, [0.5, 0.3, 0.2]])
def test_beta_zero_is_the_plain_mean(weights):
    G, losses = federation(3, 3)
    goals = random_goals(3, 3)
    found = diminish_conflicts(G @ G.T, losses, goals, beta=0, delta=0.1, weights=weights)
    assert found.coefficients.tolist() == ([1 / 3] * 3 if weights is None else weights)
    assert np.array_equal(found.goals, goals)
    assert rescaling(G @ G.T, found.coefficients, weights) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("beta", [0, 0.5, 1])
def test_one_client_is_left_alone(beta):
    found = diminish_conflicts([[4.0]], [0.3], beta=beta, delta=0.1)
    assert found.coefficients.tolist() == [1.0]
    assert found.goals.tolist() == [[0.0]]
    assert rescaling([[4.0]], found.coefficients) == 1.0


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(2, 11), beta=shares)
def test_the_first_round_is_fedfvs_projection(seed, count, beta):
    """Goals 0: the lowest losses lose their parts against the others, the rest keep theirs."""
    G, losses = federation(seed, count, common=0)
    targets = targets_of(losses, "loss")
    expected = projected(G, targets[: count_of(beta, count)], targets)
    scale = np.linalg.norm(expected, axis=1, keepdims=True)
    for goals in (None, np.zeros((count, count))):
        found = diminish_conflicts(G @ G.T, losses, goals, beta=beta, delta=0.1)
        assert (np.abs(found.rows @ G - expected) <= 1e-10 * scale).all()


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(2, 8), convention=st.sampled_from(["paper", "gradvac"]))
def test_the_first_cosines_are_weighed_by_the_convention(seed, count, convention):
    """The first target meets every update unadjusted, so its averages are known."""
    G, losses = federation(seed, count)
    found = diminish_conflicts(G @ G.T, losses, beta=1, delta=0.2, convention=convention)
    first = found.order[0]
    others = np.arange(count) != first
    share = 0.8 if convention == "paper" else 0.2
    expected = share * (unit(G) @ unit(G)[first])[others]
    np.testing.assert_allclose(found.goals[others, first], expected, rtol=0, atol=1e-14)
    assert np.diag(found.goals).tolist() == [0.0] * count


@settings(max_examples=50, deadline=None)
@given(
    seed=seeds,
    count=st.integers(1, 8),
    place=st.integers(0, 8),
    size=st.sampled_from([0.0, 1e-14]),
)
def test_a_zero_update_is_inert(seed, count, place, size):
    """So is one that is nothing but the others' rounding errors."""
    G, losses = federation(seed, count)
    goals = random_goals(seed, count)
    alone = diminish_conflicts(G @ G.T, losses, goals, beta=1, delta=0.1)
    at = min(place, count)
    nothing = size * np.linalg.norm(G, axis=1).max() * unit(-G)[0]
    G, losses = np.insert(G, at, nothing, axis=0), np.insert(losses, at, 0.7)
    wide = np.insert(np.insert(goals, at, 0.25, axis=0), at, 0.25, axis=1)
    found = diminish_conflicts(G @ G.T, losses, wide, beta=1, delta=0.1)
    others = np.arange(count + 1) != at
    expected = alone.coefficients * count / (count + 1)
    np.testing.assert_allclose(found.coefficients[others], expected, rtol=1e-12)
    np.testing.assert_allclose(found.goals[np.ix_(others, others)], alone.goals, atol=1e-12)
    assert (found.goals[at] == 0.25).all()
    assert (found.goals[:, at] == 0.25).all()
    assert not found.conflicts[at].any()
    assert not found.conflicts[:, at].any()


def test_all_updates_zero():
    found = diminish_conflicts(np.zeros((3, 3)), [1, 2, 3], beta=1, delta=0.1)
    assert found.coefficients.tolist() == [1 / 3] * 3
    assert rescaling(np.zeros((3, 3)), found.coefficients) == 0.0


@settings(max_examples=50, deadline=None)
@given(seed=seeds, length=st.floats(0.01, 100), goal=st.floats(0, 1), narrow=st.booleans())
def test_an_antiparallel_pair_vanishes_and_stops(seed, length, goal, narrow):
    """Both become 0 whatever the goal; nothing is divided by their length."""
    g = np.random.default_rng(seed).normal(size=50)
    G = np.array([g, -length * g]).astype(np.float32 if narrow else np.float64)
    gram = gram_matrix(G)
    found = diminish_conflicts(gram, [0, 1], np.full((2, 2), goal), beta=1, delta=0.1)
    # A float32 cosine of −1 + 1e-7 leaves √2e-7 of the length, times 22.4 at goal .999.
    lost = np.linalg.norm(found.rows @ G.astype(float), axis=1) / np.linalg.norm(G, axis=1)
    assert (lost <= (0.02 if narrow else 1e-6)).all()
    assert np.isfinite(found.coefficients).all()
    if not narrow:
        assert found.norms == pytest.approx([0, 0], abs=1e-6 * max(length, 1) * np.linalg.norm(g))
        assert rescaling(gram, found.coefficients) == 0.0
    np.testing.assert_allclose(found.goals[[0, 1], [1, 0]], 0.1 * goal - 0.9, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_a_vanished_update_meets_no_further_target(seed):
    """The cosine of an antiparallel pair is −1 for some seeds and −1 + 1e-16 for others."""
    g, h = np.random.default_rng(seed).normal(size=(2, 5))
    G = np.array([g, -0.3 * g, h])
    goals = np.full((3, 3), 0.125)
    found = diminish_conflicts(G @ G.T, [0, 1, 2], goals, beta=1 / 3, delta=0.1)
    assert found.norms[0] == 0.0
    assert found.goals[0, 2] == 0.125
    assert found.conflicts[0].tolist() == [False, True, False]


def test_a_vanishing_mean_gives_no_step():
    """Three updates at 120° sum to nothing; projecting the first still leaves something."""
    G = np.array([[1, 0], [-0.5, np.sqrt(0.75)], [-0.5, -np.sqrt(0.75)]])
    found = diminish_conflicts(G @ G.T, [0, 1, 2], beta=1, delta=0.1)
    assert np.isfinite(found.coefficients).all()
    assert rescaling(G @ G.T, found.coefficients) == pytest.approx(0, abs=1e-7)
    assert rescaling(G @ G.T, np.full(3, 1 / 3)) == 0.0


def test_by_hand():
    """Updates (1, 0) twice and (−1, 1), goals 0, all adjusted.

    Clients 0 and 1 each gain ½ (−1, 1); client 2 gains (1, 0) once, and is then at a right angle
    to its duplicate.
    """
    G = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 1.0]])
    found = diminish_conflicts(G @ G.T, [0.1, 0.2, 0.3], beta=1, delta=0.1)
    np.testing.assert_allclose(
        found.rows, [[1, 0, 0.5], [0, 1, 0.5], [1, 0, 1]], rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(found.coefficients, [2 / 3, 1 / 3, 2 / 3], rtol=1e-15)
    np.testing.assert_allclose(found.norms, [np.sqrt(0.5), np.sqrt(0.5), 1], rtol=1e-15)
    r = np.sqrt(0.5)
    expected = 0.9 * np.array([[0, 1, -r], [1, 0, -r], [-r, 0, 0]])
    np.testing.assert_allclose(found.goals, expected, rtol=0, atol=1e-15)
    # The step (⅓, ⅔) is as long as the plain mean (⅓, ⅓) after ρ = √(2/5).
    rho = rescaling(G @ G.T, found.coefficients)
    assert rho == pytest.approx(np.sqrt(2 / 5), rel=1e-14)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, count=st.integers(1, 6), copies=st.integers(2, 4))
def test_identical_clients_give_their_common_update(seed, count, copies):
    """Without a conflict nothing is changed; duplicates of agreeing clients weigh as one."""
    rng = np.random.default_rng(seed)
    G = np.repeat(np.abs(rng.normal(size=(count, 9))), copies, axis=0)  # all cosines ≥ 0
    found = diminish_conflicts(G @ G.T, rng.random(len(G)), beta=1, delta=0.1)
    assert not found.conflicts.any()
    assert found.coefficients.tolist() == [1 / len(G)] * len(G)


@settings(max_examples=50, deadline=None)
@given(
    seed=seeds,
    count=clients,
    delta=st.floats(0, 1),
    convention=st.sampled_from(["paper", "gradvac"]),
)
def test_moving_averages_stay_cosines(seed, count, delta, convention):
    rng = np.random.default_rng(seed)
    goals = rng.choice([-1.0, 1.0], size=(count, count))
    for _ in range(3):
        G = rng.integers(-2, 3, size=(count, 2)).astype(float)  # many (anti)parallel pairs
        found = diminish_conflicts(
            G @ G.T, rng.random(count), goals, beta=1, delta=delta, convention=convention
        )
        goals = found.goals
        assert (np.abs(goals) <= 1).all()
        assert np.isfinite(found.coefficients).all()


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=clients, beta=shares, sized=st.booleans())
def test_the_rescaled_step_is_as_long_as_the_plain_mean(seed, count, beta, sized):
    G, losses = federation(seed, count)
    p = np.random.default_rng(seed).dirichlet(np.ones(count)) if sized else None
    goals = random_goals(seed, count)
    found = diminish_conflicts(G @ G.T, losses, goals, beta=beta, delta=0.1, weights=p)
    rho = rescaling(G @ G.T, found.coefficients, p)
    plain = G.mean(axis=0) if p is None else p @ G
    assert np.linalg.norm(rho * found.coefficients @ G) == pytest.approx(
        np.linalg.norm(plain), rel=1e-9
    )


def test_a_float32_gram_matrix_cannot_stretch_a_cancelled_step():
    """Where float32 knows nothing about the length, ρ must not blow rounding noise up."""
    rng = np.random.default_rng(0)
    for size in 10.0 ** np.arange(-8, 0):
        G = rng.standard_t(2, size=(3, 20_000))
        G[2] = -G[0] - G[1] + size * rng.normal(size=20_000)
        G = G.astype(np.float32)
        c = np.ones(3)
        p = np.array([0.6, 0.3, 0.1])
        true = np.linalg.norm(c @ G.astype(float))
        step = rescaling(gram_matrix(G), c, p) * true
        assert step <= 1.5 * np.linalg.norm(p @ G.astype(float))
        assert (step > 0) == (true > 1e-3 * np.linalg.norm(G.astype(float), axis=1).sum())


def test_large_coefficients_are_rescaled():
    assert rescaling(np.eye(2), [1e200, 0.0]) == pytest.approx(np.sqrt(0.5) * 1e-200, rel=1e-14)


# Who is adjusted, in which order


def test_ties_go_by_position():
    G, _ = federation(5, 4)
    losses = [0.3, 0.1, 0.3, 0.1]
    found = diminish_conflicts(G @ G.T, losses, beta=0.75, delta=0.1)
    assert found.order.tolist() == [1, 3, 0, 2]
    assert found.adjusted.tolist() == [True, True, False, True]
    turned = diminish_conflicts(G @ G.T, losses, beta=0.75, delta=0.1, order="reversed")
    assert turned.order.tolist() == [2, 0, 3, 1]
    assert turned.adjusted.tolist() == [True, True, False, True]


def test_who_keeps_the_update_may_follow_the_order():
    options = {"beta": 0.5, "delta": 0.1, "order": "reversed"}
    M, losses = np.eye(4), [1.0, 2.0, 3.0, 4.0]
    by_loss = diminish_conflicts(M, losses, **options)
    by_order = diminish_conflicts(M, losses, kept="order", **options)
    assert by_loss.adjusted.tolist() == [True, True, False, False]
    assert by_order.adjusted.tolist() == [False, False, True, True]


def test_a_random_order_is_the_generators():
    drawn = [
        diminish_conflicts(
            np.eye(6),
            np.arange(6),
            beta=1,
            delta=0.1,
            order="random",
            rng=np.random.default_rng(s),
        ).order.tolist()
        for s in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[2]) == list(range(6))


@pytest.mark.parametrize("count", [1, 2, 5, 10, 25, 50, 150, 500])
def test_the_adjusted_share_is_rounded_half_up(count):
    """In whole percent p: ⌊pK/100 + ½⌋ = ⌊(2pK + 100) / 200⌋. In floats 0.29 · 50 < 14.5."""
    expected = [(2 * percent * count + 100) // 200 for percent in range(101)]
    assert [adjusted_count(percent / 100, count) for percent in range(101)] == expected


def test_half_of_five_is_three():
    found = diminish_conflicts(np.eye(5), np.arange(5), beta=0.5, delta=0.1)
    assert found.adjusted.tolist() == [True, True, True, False, False]


def test_the_goals_given_are_not_written_to():
    goals = np.full((2, 2), 0.5)
    diminish_conflicts(np.eye(2), [0, 1], goals, beta=1, delta=0.1)
    assert goals.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_cosines_by_hand():
    G = np.array([[3.0, 4.0], [4.0, -3.0], [0.0, 0.0], [-6.0, -8.0]])
    nan = np.nan
    expected = [[1, 0, nan, -1], [0, 1, nan, 0], [nan] * 4, [-1, 0, nan, 1]]
    np.testing.assert_allclose(cosines(G @ G.T), expected, rtol=0, atol=1e-15)


def test_cosines_do_not_leave_their_range():
    for g in np.random.default_rng(0).normal(size=(100, 5)):
        G = np.array([g, 3 * g, -0.7 * g])
        found = cosines(G @ G.T)
        assert (np.abs(found) <= 1).all()
        np.testing.assert_allclose(np.abs(found), 1, rtol=1e-15)
