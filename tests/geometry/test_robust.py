"""Robust rules against ByzFL's stored outputs, the same rules written plainly, hand numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import robust_naive as naive
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mfairfl.errors import ConfigError, DataError
from mfairfl.geometry import gram_matrix, robust
from mfairfl.geometry.robust import (
    centred_clipping,
    distances,
    geometric_median,
    krum,
    mixed_gram,
    multi_krum,
    nearest_neighbour_mixing,
    norm_clipping,
)

BYZFL = json.loads((Path(__file__).parent / "byzfl_outputs.json").read_text())
OUTPUTS = [
    pytest.param(case["updates"], *found.values(), id=f"{case['seed']}-{found['rule']}-{at}")
    for case in BYZFL["cases"]
    for at, found in enumerate(case["outputs"])
]
# Every rule as a function of the Gram matrix and f.
RULES = {
    "clipping": lambda M, f: norm_clipping(M),
    "mixing": nearest_neighbour_mixing,
    "median": lambda M, f: geometric_median(M),
    "byzfl median": lambda M, f: geometric_median(M, nu=0.1, rounds=3),
    "krum": krum,
    "multi-krum": multi_krum,
    "centre": lambda M, f: centred_clipping(M, 1.0, rounds=3),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
many = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32)


@st.composite
def updates(draw, least=1, most=14):
    """Updates of norms over four decades, and how many of them may lie."""
    clients = draw(st.integers(least, most))
    f = draw(st.integers(0, (clients - 1) // 2))
    return naive.heterogeneous(draw(seeds), clients, draw(st.integers(2, 40))), f


def close(found, expected):
    """To 1e-9 of the length of each expected vector."""
    scale = np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-9)


# ByzFL


@pytest.mark.parametrize(("G", "rule", "options", "output"), OUTPUTS)
def test_is_byzfl(G, rule, options, output):
    c = getattr(robust, rule)(gram_matrix(np.array(G)), **options)
    close((np.diag(c) if rule == "norm_clipping" else c) @ G, np.array(output))


@pytest.mark.parametrize(("G", "rule", "options", "output"), OUTPUTS)
def test_the_plain_rules_are_byzfl_too(G, rule, options, output):
    plain = {
        "norm_clipping": naive.clipped,
        "nearest_neighbour_mixing": naive.mixed,
        "geometric_median": naive.median,
        "krum": naive.krum,
        "multi_krum": naive.multi_krum,
        "centred_clipping": naive.centre,
    }[rule]
    close(plain(np.array(G), **options), np.array(output))


def test_byzfl_documentation():
    """The examples printed in the docstrings of ByzFL 0.0.11."""
    G = np.arange(1.0, 10.0).reshape(3, 3)
    M = gram_matrix(G)
    median = geometric_median(M, nu=0.1, rounds=3) @ G
    np.testing.assert_allclose(median, [3.78788764, 4.78788764, 5.78788764], rtol=1e-8)
    assert (krum(M, 1) @ G).tolist() == [1, 2, 3]  # a tie of all three: the first


# The same rules, written plainly


@many
@given(updates())
def test_selections_are_the_plain_ones(drawn):
    G, f = drawn
    M = gram_matrix(G)
    close(nearest_neighbour_mixing(M, f) @ G, naive.mixed(G, f))
    close(multi_krum(M, f) @ G, naive.multi_krum(G, f))
    close(krum(M, f) @ G, naive.krum(G, f))


@many
@given(updates(), st.floats(1e-3, 1e3), st.integers(1, 20), seeds)
def test_iterations_are_the_plain_ones(drawn, size, rounds, seed):
    G, _ = drawn
    M = gram_matrix(G)
    weights, start = np.random.default_rng(seed).uniform(0.1, 1, size=(2, len(G)))
    close(norm_clipping(M, size)[:, None] * G, naive.clipped(G, size))
    close(
        geometric_median(M, weights, nu=size, rounds=rounds) @ G,
        naive.median(G, nu=size, rounds=rounds, weights=weights),
    )
    close(
        centred_clipping(M, size, rounds=rounds, start=start) @ G,
        naive.centre(G, tau=size, rounds=rounds, start=start @ G),
    )


@many
@given(updates())
def test_distances_are_those_of_the_updates(drawn):
    G, _ = drawn
    expected = [[naive.distance(a, b) for b in G] for a in G]
    scale = np.add.outer(*[np.linalg.norm(G, axis=1)] * 2)
    assert (np.abs(distances(gram_matrix(G)) - expected) <= 1e-7 * scale).all()


@many
@given(updates())
def test_mixing_before_another_rule(drawn):
    """Coefficients on what was mixed are Rᵀ c on the originals."""
    G, f = drawn
    rows = nearest_neighbour_mixing(gram_matrix(G), f)
    mixed = mixed_gram(gram_matrix(G), rows)
    np.testing.assert_allclose(mixed, gram_matrix(rows @ G), rtol=1e-9, atol=1e-9 * mixed.max())
    c = rows.T @ geometric_median(mixed, nu=0.1, rounds=5)
    close(c @ G, naive.median(naive.mixed(G, f), nu=0.1, rounds=5))


def test_mixing_that_cancels_leaves_a_gram_matrix():
    """Squares that are 0 but for rounding are not below it, and any rule takes what is left."""
    M = gram_matrix(np.random.default_rng(0).normal(size=(1, 900)).repeat(3, axis=0) / 3)
    rows = np.array([[1, -1, 0], [0.1, 0.2, -0.3], [0.7, -0.6, -0.1]])
    mixed = mixed_gram(M, rows)
    assert (np.diag(mixed) >= 0).all()
    assert np.array_equal(mixed, mixed.T)
    assert np.abs(mixed).max() < 1e-13
    assert multi_krum(mixed, 1).sum() == 1


# What the rules promise


@every_rule
@many
@given(drawn=updates(), seed=seeds)
def test_permuting_clients_permutes_the_answer(rule, drawn, seed):
    G, f = drawn
    assume(len(G) > 3 or rule is not krum)  # with one neighbour to count, the nearest two tie
    order = np.random.default_rng(seed).permutation(len(G))
    there, here = rule(gram_matrix(G[order]), f), rule(gram_matrix(G), f)
    moved = here[np.ix_(order, order)] if here.ndim == 2 else here[order]
    np.testing.assert_allclose(there, moved, rtol=1e-7, atol=1e-12)


@many
@given(updates())
def test_means_are_means(drawn):
    G, f = drawn
    M = gram_matrix(G)
    for c in [krum(M, f), multi_krum(M, f), geometric_median(M), *nearest_neighbour_mixing(M, f)]:
        assert (c >= 0).all()
        assert c.sum() == pytest.approx(1, abs=1e-12)
    assert np.count_nonzero(multi_krum(M, f)) == len(G) - f
    assert (np.diag(nearest_neighbour_mixing(M, f)) > 0).all()


@many
@given(updates(least=4), seeds)
def test_moving_all_updates_alike_changes_no_choice(drawn, seed):
    """Distances stay; the centre does if it starts at a mean, the median once it has converged."""
    G, f = drawn
    there = gram_matrix(G + 10 * np.random.default_rng(seed).normal(size=G.shape[1]))
    here, mean = gram_matrix(G), np.full(len(G), 1 / len(G))
    for rule in (krum, multi_krum, nearest_neighbour_mixing):
        assert np.array_equal(rule(here, f), rule(there, f))
    found = [centred_clipping(M, 1.0, rounds=5, start=mean) for M in (here, there)]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)


@many
@given(updates(), st.sampled_from([1e-20, 1e-6, 1e6, 1e20]))
def test_the_scale_of_all_updates_does_not_matter(drawn, size):
    G, f = drawn
    here, there = gram_matrix(G), gram_matrix(size * G)
    for name in ("clipping", "mixing", "median", "multi-krum"):
        np.testing.assert_allclose(RULES[name](here, f), RULES[name](there, f), atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    honest=st.integers(2, 12),
    seed=seeds,
    far=st.sampled_from([0.0, 1.0, 30.0, 1e6, 1e20]),
    spread=st.sampled_from([0.1, 1.0]),
    data=st.data(),
)
def test_liars_do_not_move_the_geometric_median_far(honest, seed, far, spread, data):
    """Within 2 (K − f) / (K − 2f) diameters of every honest update, and 5 % for what iterates.

    A point z whose sum of distances is no larger than that of an honest h obeys
    (K − f)(|z − h| − D) − f |z − h| ≤ (K − f) D, wherever the f liars are.
    """
    liars = data.draw(st.integers(0, honest - 1))
    rng = np.random.default_rng(seed)
    G = np.tile(rng.normal(size=20), (honest + liars, 1))
    G[:honest] += spread * rng.normal(size=(honest, 20))
    G[honest:] *= -far
    z = geometric_median(gram_matrix(G)) @ G
    diameter = max(naive.distance(a, b) for a in G[:honest] for b in G[:honest])
    farthest = max(naive.distance(z, g) for g in G[:honest])
    assert farthest <= 1.05 * 2 * honest / (honest - liars) * diameter


def test_a_client_that_sends_nothing_does_not_hold_the_median_at_nothing():
    """The iteration starts there: three rounds of it would stay."""
    G = np.vstack([np.zeros((2, 5)), np.random.default_rng(0).normal(1, 0.2, size=(8, 5))])
    M = gram_matrix(G)
    honest = G[2:].mean(axis=0)
    assert naive.distance(geometric_median(M) @ G, honest) < 0.1 * naive.length(honest)
    stuck = geometric_median(M, nu=1e-3, rounds=3) @ G
    assert naive.length(stuck) < 0.1 * naive.length(honest)


def test_smoothing_longer_than_the_updates_is_the_plain_mean():
    """ByzFL's nu = 0.1 with updates of length .01: the liar counts as much as anyone."""
    M = gram_matrix(0.01 * np.array([[1, 0], [1, 0.1], [1, -0.1], [-3, 0]]))
    np.testing.assert_allclose(geometric_median(M, nu=0.1, rounds=3), 0.25)
    assert geometric_median(M)[3] < 0.01


@many
@given(updates())
def test_clipped_updates_are_no_longer_than_the_median(drawn):
    G, _ = drawn
    norms = np.linalg.norm(G, axis=1)
    bound = np.percentile(norms, 50, method="lower")
    clipped = norm_clipping(gram_matrix(G)) * norms
    np.testing.assert_allclose(clipped, np.minimum(norms, bound), rtol=1e-12)


def test_the_longer_of_two_updates_does_not_set_the_bound():
    assert norm_clipping(np.diag([1e6, 4.0])).tolist() == [0.002, 1.0]


@many
@given(updates(), st.floats(1e-3, 1e3), st.integers(1, 5))
def test_the_centre_moves_by_less_than_tau_a_round(drawn, tau, rounds):
    G, _ = drawn
    moved = centred_clipping(gram_matrix(G), tau, rounds=rounds) @ G
    assert naive.length(moved) <= rounds * tau * (1 + 1e-9)


# Inputs at the edge


def signs(count):
    return np.array([(-1.0) ** k for k in range(count)])


EDGES = {
    "one": np.array([[3.0, 4.0]]),
    "one of nothing": np.zeros((1, 2)),
    "two": np.array([[3.0, 4.0], [1.0, 0.0]]),
    "two of nothing": np.zeros((2, 3)),
    "nothing": np.zeros((5, 3)),
    "mostly nothing": np.diag([0.0, 0.0, 0.0, 1.0, 2.0]),
    "alike": np.full((6, 3), 0.1),
    "opposite": signs(6)[:, None] * np.array([0.1, 0.3]),
    "short and long": np.diag([1e-20, 1e-10, 1.0, 1e10, 1e20]),
    "one beyond all": np.vstack([np.random.default_rng(0).normal(size=(6, 4)), [[1e20] * 4]]),
    "all short": 1e-20 * np.random.default_rng(1).normal(size=(5, 4)),
}


@every_rule
@pytest.mark.parametrize("G", EDGES.values(), ids=EDGES)
def test_answers_are_finite(rule, G):
    f = (len(G) - 1) // 2
    found = rule(gram_matrix(G), f)
    assert np.isfinite(found).all()
    assert np.isfinite(found @ G).all()


@pytest.mark.parametrize("G", [EDGES["alike"], EDGES["nothing"]], ids=["alike", "nothing"])
def test_means_of_equal_updates_are_that_update(G):
    M = gram_matrix(G)
    for c in [krum(M, 2), multi_krum(M, 2), geometric_median(M), *nearest_neighbour_mixing(M, 2)]:
        np.testing.assert_allclose(c @ G, G[0], rtol=1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-20, 5.0, 1e20])
def test_one_client_keeps_its_update(size):
    M = [[size**2]]
    for c in (norm_clipping(M), krum(M, 0), multi_krum(M, 0), geometric_median(M)):
        assert c.tolist() == [1.0]
    assert nearest_neighbour_mixing(M, 0).tolist() == [[1.0]]


@pytest.mark.parametrize("width", [10, 20_000])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-2, 1.0])
def test_noise_of_float32(width, spread):
    """An indefinite Gram matrix gives what the updates give, to the noise of their distances."""
    rng = np.random.default_rng(width)
    G = (rng.normal(size=width) + spread * rng.normal(size=(8, width))).astype(np.float32)
    noise = 1e-6 * rng.uniform(-1, 1, size=(8, 8))
    exact = gram_matrix(G.astype(np.float64))
    noisy = gram_matrix(G) * (1 + noise + noise.T)
    scale = np.sqrt(np.diag(exact).max())
    for rule in RULES.values():
        found, expected = rule(noisy, 3), rule(exact, 3)
        assert np.isfinite(found).all()
        if rule in (krum, multi_krum, nearest_neighbour_mixing):
            continue  # near-ties may fall either way
        apart = np.linalg.norm((found - expected) @ G)
        assert apart <= 3e-3 * scale


def test_a_majority_of_zeros_has_its_median_at_zero():
    assert geometric_median(gram_matrix(EDGES["mostly nothing"])).tolist() == [*[1 / 3] * 3, 0, 0]


def test_a_client_without_weight_has_no_coefficient():
    for size in (0.0, 1.0):
        c = geometric_median(np.diag([size, 1.0, 1.0]), [0, 1, 1])
        np.testing.assert_allclose(c, [0, 0.5, 0.5])


# Refusals


@pytest.mark.parametrize("rule", [krum, multi_krum, nearest_neighbour_mixing])
@pytest.mark.parametrize(("count", "f"), [(1, 1), (4, 2), (5, 3), (5, -1), (5, 0.5)])
def test_more_liars_than_a_rule_bears(rule, count, f):
    match = rf"f must be a whole number from 0 and below K/2 = {count / 2}, not {f}$"
    with pytest.raises(ConfigError, match=match):
        rule(np.eye(count), f)


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_lengths_that_are_none(value):
    with pytest.raises(ConfigError, match="bound must be at least 0, not"):
        norm_clipping(np.eye(2), value)
    with pytest.raises(ConfigError, match="nu must be at least 0, not"):
        geometric_median(np.eye(2), nu=value)
    with pytest.raises(ConfigError, match="tau must be at least 0, not"):
        centred_clipping(np.eye(2), value)


def test_no_rounds():
    with pytest.raises(ConfigError, match="rounds must be at least 1, not 0"):
        geometric_median(np.eye(2), rounds=0)
    with pytest.raises(ConfigError, match="rounds must be at least 1, not 0"):
        centred_clipping(np.eye(2), 1.0, rounds=0)


def test_arguments_of_another_federation():
    with pytest.raises(DataError, match=r"weights: shape \(3,\); expected \(2,\)"):
        geometric_median(np.eye(2), [1, 1, 1])
    with pytest.raises(DataError, match="weights are all 0"):
        geometric_median(np.eye(2), [0, 0])
    with pytest.raises(DataError, match=r"start: shape \(3,\); expected \(2,\)"):
        centred_clipping(np.eye(2), 1.0, start=[1, 1, 1])
    with pytest.raises(DataError, match=r"rows: shape \(3, 3\); expected \(2, 2\)"):
        mixed_gram(np.eye(2), np.eye(3))


@pytest.mark.parametrize("rule", [*RULES.values(), lambda M, f: distances(M)])
def test_no_gram_matrix(rule):
    with pytest.raises(DataError, match=r"gram\[1, 1\] is -2.0; a squared length is not negative"):
        rule([[1, 0], [0, -2]], 0)
