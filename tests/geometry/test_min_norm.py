"""The least norm against scipy, closed forms, and the optimality conditions by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from mfairfl.errors import ConfigError, DataError
from mfairfl.geometry import min_norm, min_norm_coefficients, project_box_simplex

seeds = st.integers(0, 2**32 - 1)
clients = st.integers(1, 12)
trusts = st.sampled_from([0.01, 0.05, 0.1, 0.3, 1.0])


def instance(seed, count, *, kind="generic"):
    """Random vectors of different lengths and a centre."""
    rng = np.random.default_rng(seed)
    width = {"generic": count + 3, "singular": max(1, count // 2)}.get(kind, 6)
    G = rng.normal(size=(count, width)) + rng.choice([0.0, 0.5, 3.0]) * rng.normal(size=width)
    G *= 10 ** rng.uniform(-rng.choice([0, 1, 2]), 0, size=(count, 1))
    if kind == "twins":
        G = G[rng.integers(0, count, size=count)] * rng.choice([-1.0, 1.0], p=[0.2, 0.8])
    if kind == "grid":
        G = np.round(2 * G) / 2  # ties, right angles, opposite and zero vectors
    return G, rng.dirichlet(np.ones(count))


def box(centre, epsilon):
    return np.maximum(0, centre - epsilon), np.minimum(1, centre + epsilon)


def least_linear(slope, lower, upper):
    """min slope·s over the feasible s."""
    bounds = list(zip(lower, upper, strict=True))
    size = np.abs(slope).max() or 1.0  # scipy's own tolerance is absolute
    found = linprog(slope / size, A_eq=np.ones((1, len(slope))), b_eq=[1], bounds=bounds)
    return size * found.fun


def assert_optimal(G, x, centre, epsilon):
    """Feasible; and no feasible point is shorter, by scipy's linear programme on the gradient."""
    lower, upper = box(centre, epsilon)
    assert x.sum() == pytest.approx(1, abs=1e-11)
    assert (x >= lower).all()
    assert (x <= upper).all()
    step = x @ G
    length = np.linalg.norm(G, axis=1)
    size = max(x @ length, 1e-8 * length.max()) ** 2  # a zero vector may have taken everything
    slope = G @ step
    least = least_linear(slope, lower, upper)
    # f convex: f(y) ≥ f(x) + 2 slope·(y − x).
    assert min(2 * (slope @ x - least), step @ step) <= 1e-9 * size


# Independent oracles


@pytest.mark.parametrize("kind", ["generic", "singular", "twins", "grid"])
def test_no_solver_of_scipy_finds_a_shorter_combination(kind):
    for seed in range(60):
        count = 2 + seed % 8
        G, centre = instance(seed, count, kind=kind)
        epsilon = [0.05, 0.1, 0.3, 1.0][seed % 4]
        M = G @ G.T
        found = min_norm_coefficients(M, centre=centre, epsilon=epsilon)
        other = minimize(
            lambda x, M=M: x @ M @ x,
            centre,
            jac=lambda x, M=M: 2 * M @ x,
            bounds=list(zip(*box(centre, epsilon), strict=True)),
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        size = M.max() or 1.0
        assert found @ M @ found <= other.fun + 1e-9 * size
        if other.success and abs(other.x.sum() - 1) < 1e-12:
            assert found @ M @ found == pytest.approx(other.fun, rel=0, abs=1e-7 * size)


@settings(max_examples=200, deadline=None)
@given(
    seed=seeds,
    count=clients,
    epsilon=trusts,
    kind=st.sampled_from(["generic", "singular", "twins", "grid"]),
)
def test_feasible_and_optimal(seed, count, epsilon, kind):
    G, centre = instance(seed, count, kind=kind)
    assert_optimal(
        G, min_norm_coefficients(G @ G.T, centre=centre, epsilon=epsilon), centre, epsilon
    )


@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("centre", [0.5, 0.1, 0.97])
def test_two_vectors_in_closed_form(epsilon, centre):
    """λ₁ = (|b|² − a·b)/|a − b|², then clipped: the parabola has one minimum."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, b = rng.normal(size=(2, 4)) * 10 ** rng.uniform(-2, 2, size=(2, 1))
        free = (b @ b - a @ b) / ((a - b) @ (a - b))
        low, high = max(0, centre - epsilon), min(1, centre + epsilon)  # of both coordinates
        expected = min(max(free, low), high)
        gram = [[a @ a, a @ b], [a @ b, b @ b]]
        found = min_norm_coefficients(gram, centre=[centre, 1 - centre], epsilon=epsilon)
        np.testing.assert_allclose(found, [expected, 1 - expected], rtol=0, atol=1e-9)


def test_orthogonal_vectors_count_by_inverse_squares():
    squares = np.array([1.0, 4.0, 0.25, 9.0])
    expected = (1 / squares) / (1 / squares).sum()
    np.testing.assert_allclose(min_norm_coefficients(np.diag(squares)), expected, atol=1e-12)


def test_the_origin_is_found_inside_a_triangle():
    # 3a = 2c and 1.5b = 2c with a + b + c = 1: c = 1/3, a = 2/9, b = 4/9.
    G = np.array([[3.0, 0.0], [0.0, 1.5], [-2.0, -2.0]])
    found = min_norm_coefficients(G @ G.T)
    np.testing.assert_allclose(found, [2 / 9, 4 / 9, 3 / 9], atol=1e-9)


def test_short_vectors_beside_long_ones_keep_their_digits():
    """Orthogonal, so λ_k ∝ 1/|g_k|²."""
    found = min_norm_coefficients(np.diag([1e-6, 4e-6, 1e6]))
    np.testing.assert_allclose(found[:2], [0.8, 0.2], rtol=1e-9)
    assert found[2] == pytest.approx(0.8e-12, abs=1e-15)  # the digits that a sum of 1 has


@pytest.mark.parametrize("apart", [1e-2, 1e-5, 1e-8, 1e-11, 0.0])
def test_vectors_that_are_nearly_one(apart):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        G = rng.normal(size=9) + apart * rng.normal(size=(6, 9))
        centre = rng.dirichlet(np.ones(6))
        assert_optimal(G, min_norm_coefficients(G @ G.T, centre=centre), centre, 1.0)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, count=st.integers(2, 10))
def test_with_every_combination_allowed_the_step_serves_everyone(seed, count):
    """The point v of a hull that is nearest to the origin: g_k·v ≥ |v|² for every k."""
    G, _ = instance(seed, count)
    found = min_norm_coefficients(G @ G.T)
    v = found @ G
    size = (found @ np.linalg.norm(G, axis=1)) ** 2
    assert (G @ v >= v @ v - 1e-9 * size).all()


# Limits


def test_no_trust_returns_the_centre_itself():
    G, centre = instance(1, 5)
    assert min_norm_coefficients(G @ G.T, centre=centre, epsilon=0.0).tolist() == centre.tolist()
    assert min_norm_coefficients(G @ G.T, epsilon=0.0).tolist() == [0.2] * 5


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("square", [0.0, 1e-30, 4.0, 1e30])
def test_one_vector(epsilon, square):
    assert min_norm_coefficients([[square]], epsilon=epsilon).tolist() == [1.0]


def test_vectors_that_are_all_zero_stay_at_the_centre():
    assert min_norm_coefficients(np.zeros((3, 3))).tolist() == [1 / 3] * 3


def test_a_zero_vector_takes_all_it_may():
    G = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(min_norm_coefficients(G @ G.T), [0, 1, 0], atol=1e-12)
    found = min_norm_coefficients(G @ G.T, epsilon=0.2)
    np.testing.assert_allclose(found, [7 / 30, 16 / 30, 7 / 30], atol=1e-12)


def test_equal_vectors_share_what_one_of_them_would_get():
    G, _ = instance(5, 4)
    alone = min_norm_coefficients(G @ G.T) @ G
    twice = np.vstack([G, G[:2]])
    found = min_norm_coefficients(twice @ twice.T)
    np.testing.assert_allclose(found @ twice, alone, atol=1e-9)
    same = np.tile(G[:1], (3, 1))
    np.testing.assert_allclose(min_norm_coefficients(same @ same.T), 1 / 3, rtol=1e-12)


def test_a_centre_that_sums_to_one_but_for_rounding():
    centre = np.array([0.2, 0.3, 0.5]) * (1 + 5e-10)
    same = np.ones((3, 3))
    assert min_norm_coefficients(same, centre=centre).sum() == pytest.approx(1, abs=1e-12)


# Symmetries


@settings(max_examples=60, deadline=None)
@given(seed=seeds, count=clients, epsilon=trusts, power=st.integers(-60, 60))
def test_order_and_unit_of_length_change_nothing(seed, count, epsilon, power):
    G, centre = instance(seed, count)
    M = G @ G.T
    found = min_norm_coefficients(M, centre=centre, epsilon=epsilon)
    turn = np.random.default_rng(seed).permutation(count)
    moved = min_norm_coefficients(M[np.ix_(turn, turn)], centre=centre[turn], epsilon=epsilon)
    size = found @ np.linalg.norm(G, axis=1)
    np.testing.assert_allclose(moved @ G[turn], found @ G, rtol=0, atol=1e-6 * size)
    scaled = min_norm_coefficients(2.0**power * M, centre=centre, epsilon=epsilon)
    np.testing.assert_allclose(scaled @ G, found @ G, rtol=0, atol=1e-6 * size)


def test_a_gram_matrix_of_float32_vectors_is_good_enough():
    for seed in range(40):
        G, centre = instance(seed, 6, kind="singular")
        rough = G.astype(np.float32) @ G.astype(np.float32).T
        found = min_norm_coefficients((rough + rough.T) / 2, centre=centre, epsilon=0.3)
        exact = min_norm_coefficients(G @ G.T, centre=centre, epsilon=0.3)
        size = (exact @ np.linalg.norm(G, axis=1)) ** 2
        gain = found @ G @ G.T @ found - exact @ G @ G.T @ exact
        assert abs(gain) < 1e-4 * max(size, (G @ G.T).max() * 1e-3)


# The projection


@settings(max_examples=100, deadline=None)
@given(seed=seeds, count=clients, epsilon=trusts, size=st.sampled_from([0.1, 1.0, 100.0]))
def test_projection_satisfies_the_variational_inequality(seed, count, epsilon, size):
    """p is nearest iff (v − p)·(s − p) ≤ 0 for every feasible s; the worst s by scipy."""
    rng = np.random.default_rng(seed)
    centre, v = rng.dirichlet(np.ones(count)), size * rng.normal(size=count)
    lower, upper = box(centre, epsilon)
    p = project_box_simplex(v, lower, upper)
    assert p.sum() == pytest.approx(1, abs=1e-12 * max(1, size))
    assert ((lower <= p) & (p <= upper)).all()
    worst = -least_linear(-(v - p), lower, upper)
    assert worst - (v - p) @ p <= 1e-8 * size


def test_projection_by_hand():
    low, high = [0, 0, 0], [1, 1, 1]
    np.testing.assert_allclose(project_box_simplex([0.2, 0.3, 0.5], low, high), [0.2, 0.3, 0.5])
    np.testing.assert_allclose(project_box_simplex([5, 0, 0], low, high), [1, 0, 0])
    np.testing.assert_allclose(project_box_simplex([5, 0, 0], low, [0.6, 1, 1]), [0.6, 0.2, 0.2])
    np.testing.assert_allclose(project_box_simplex([1, 1], [0.3, 0.7], [0.3, 0.7]), [0.3, 0.7])


# What is refused


def test_bounds_that_no_mean_satisfies_are_refused():
    with pytest.raises(DataError, match="Σ lower ≤ 1 ≤ Σ upper"):
        project_box_simplex([0.5, 0.5], [0.6, 0.6], [1, 1])
    with pytest.raises(DataError, match="Σ lower ≤ 1 ≤ Σ upper"):
        project_box_simplex([0.5, 0.5], [0, 0], [0.4, 0.4])
    with pytest.raises(DataError, match="lower ≤ upper"):
        project_box_simplex([0.5, 0.5], [0.6, 0.0], [0.5, 1.0])


@pytest.mark.parametrize("epsilon", [-0.1, float("nan")])
def test_a_trust_below_zero_is_refused(epsilon):
    with pytest.raises(ConfigError, match="epsilon must be at least 0"):
        min_norm_coefficients([[1.0]], epsilon=epsilon)


def test_what_is_no_gram_matrix_or_no_mean_is_refused():
    with pytest.raises(DataError, match=r"centre sums to 0\.9"):
        min_norm_coefficients(np.eye(2), centre=[0.4, 0.5])
    with pytest.raises(DataError, match="no vectors give that"):
        min_norm_coefficients([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(DataError, match="a weight is not negative"):
        min_norm_coefficients(np.eye(2), centre=[-0.5, 1.5])


def test_an_answer_that_cannot_be_certified_is_an_error(monkeypatch):
    # Answers whose weights sum to 2 are never certain.
    monkeypatch.setattr(min_norm, "project_box_simplex", lambda v, lower, upper: upper)
    with pytest.raises(ArithmeticError, match="least norm"):
        min_norm_coefficients(np.diag([1.0, 4.0]))
