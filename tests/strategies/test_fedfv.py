"""FedFV against its loop over vectors, by hand, and against mFairFL without goals."""

from __future__ import annotations

import json
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import federations as fed
import rounds
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from mfairfl.strategies.fedfv import giving_way
from rounds import NAMES, close, measured


def combined(strategy, G, losses, rows=None):
    """The server's answer to updates of clients a, b, … with these mean losses."""
    women = (Attribute("sex", ("F",)),)
    updates = dict(zip(NAMES, G, strict=False))
    return rounds.combined(strategy, measured(losses, rows), updates, attributes=women)


def fair_averaging(G, losses, p, alpha, external):
    """FedFV on the vectors: loops and dot products; each vector ends in its coefficients."""
    K, width = G.shape
    order = sorted(range(K), key=lambda k: losses[k])
    keep = order[math.ceil(round((K - 1) * (1 - alpha), 9)) :]
    updates = np.hstack([G, np.eye(K)])

    def dot(a, b):
        return a[:width] @ b[:width]

    projected = []
    for k in range(K):
        g = updates[k]
        if k not in keep:
            for i in order:
                if i != k and dot(g, updates[i]) < 0:
                    g = g - dot(g, updates[i]) / dot(updates[i], updates[i]) * updates[i]
        projected.append(g)
    mean = sum(weight * g for weight, g in zip(p, projected, strict=True))
    harmed = [k for k in range(K) if dot(mean, updates[k]) < 0]
    if external and harmed:
        total = sum(updates[k] for k in harmed)
        if dot(mean, total) < 0:
            mean = mean - dot(mean, total) / dot(total, total) * total
    step, c, plain = mean[:width], mean[width:], p @ G
    cancelled = np.linalg.norm(step) <= 1e-3 * np.abs(c) @ np.linalg.norm(G, axis=1)
    if cancelled and not np.array_equal(c, p):
        return np.zeros(width), harmed
    return step / np.linalg.norm(step) * np.linalg.norm(plain), harmed


def crowd(seed, count, width=None):
    rng = np.random.default_rng(seed)
    width = width or rng.integers(2, 9)
    G = rng.normal(size=(count, width)) * 10 ** rng.uniform(-1, 1, size=(count, 1))
    return G, rng.permutation(count) + 0.5, rng.integers(5, 50, size=count).tolist()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(2, 8),
    alpha=st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 0.5, 0.8, 1.0]),
    external=st.booleans(),
    weights=st.sampled_from(["size", "uniform"]),
)
# The mean is all but opposite to b's update: under a thousandth of its parts is left, so no step.
@example(seed=69, count=3, alpha=0.0, external=True, weights="uniform")
def test_equals_the_loop_over_vectors(seed, count, alpha, external, weights):
    G, losses, rows = crowd(seed, count)
    p = np.array(rows) / sum(rows) if weights == "size" else np.full(count, 1 / count)
    expected, harmed = fair_averaging(G, losses, p, alpha, external)
    strategy = create("fedfv", alpha=alpha, external=external, weights=weights)
    step = combined(strategy, G, losses, rows)
    size = np.linalg.norm(p @ G)
    close(step.coefficients @ G, expected, 1e-9 * size)
    assert step.log["external"] == ([NAMES[k] for k in harmed] if external else [])
    assert step.scale == 1.0


def test_the_loop_meets_external_conflicts():
    """Or the test above would say nothing about them."""
    met = 0
    for seed in range(50):
        G, losses, _ = crowd(seed, 4, width=2)
        met += bool(fair_averaging(G, losses, np.full(4, 0.25), 0.1, True)[1])
    assert met > 10


# ------------------------------------------------------------------ by hand


def test_two_clients_by_hand():
    # Unit updates with cosine −½; a has the lower loss: g_a' = g_a + ½ g_b, then the mean
    # ½ g_a + ¾ g_b: its products with g_a, g_b are ⅛ and ½, so nobody is harmed.
    G = [[1.0, 0.0], [-0.5, math.sqrt(0.75)]]
    step = combined(create("fedfv", alpha=0.5), G, [1, 2])
    np.testing.assert_allclose(
        step.coefficients, math.sqrt(0.25 / 0.4375) * np.array([0.5, 0.75]), rtol=1e-12
    )
    assert (step.log["order"], step.log["adjusted"]) == (["a", "b"], ["a"])
    assert step.log["external"] == []


def test_the_average_gives_way_to_whom_it_harms():
    # α = 1: nobody is projected. The mean of (3, 0) and (−1, 1) is (1, ½), against b with −½:
    # + ¼ (−1, 1) gives (¾, ¾), at right angles to b; then the length √1.25 of the mean.
    G = [[3.0, 0.0], [-1.0, 1.0]]
    step = combined(create("fedfv", alpha=1.0), G, [1, 2])
    np.testing.assert_allclose(step.coefficients @ G, [math.sqrt(0.625)] * 2, rtol=1e-12)
    assert step.log["external"] == ["b"]
    off = combined(create("fedfv", alpha=1.0, external=False), G, [1, 2])
    assert off.coefficients.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("alpha", "count", "expected"),
    [
        (0.1, 5, 4),  # ⌈3.6⌉: the worst client keeps its update
        (0.0, 5, 4),
        (0.5, 5, 2),
        (0.4, 6, 3),  # 5 · .6 is 3, though not in floating point
        (0.8, 6, 1),
        (0.1, 11, 9),
        (1.0, 5, 0),
        (0.1, 1, 0),
    ],
)
def test_how_many_give_way(alpha, count, expected):
    assert giving_way(alpha, count) == expected


# ------------------------------------------------------------------ limits


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 8))
def test_mfairfl_without_goals_is_fedfv_without_its_external_step(seed, count):
    G, losses, rows = crowd(seed, count)
    alpha = 0.3
    same = create(
        "mfairfl", beta=giving_way(alpha, count) / count, goals={"floor": 0.0, "cap": 0.0}
    )
    expected = combined(same, G, losses, rows)
    found = combined(create("fedfv", alpha=alpha, external=False), G, losses, rows)
    assert found.coefficients.tolist() == expected.coefficients.tolist()
    assert found.log["adjusted"] == expected.log["adjusted"]


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_with_nobody_giving_way_it_is_fedavg_bit_for_bit(weights, federation):
    off = create("fedfv", alpha=1.0, external=False, weights=weights)
    fed.assert_same_runs(federation, off, create("fedavg", weights=weights))


def test_without_conflict_it_is_the_plain_average_exactly():
    G = np.random.default_rng(0).uniform(0.1, 1, size=(4, 6))
    step = combined(create("fedfv"), G, [1, 2, 3, 4], [10, 20, 30, 40])
    assert step.coefficients.tolist() == [0.1, 0.2, 0.3, 0.4]


# ------------------------------------------------------------------ degenerate rounds


def test_one_client_alone():
    assert combined(create("fedfv"), [[3.0, 4.0]], [1]).coefficients.tolist() == [1.0]


def test_no_update_at_all():
    step = combined(create("fedfv"), np.zeros((3, 4)), [1, 1, 1])
    assert np.isfinite(step.coefficients).all()
    json.dumps(step.log, allow_nan=False)


def test_a_client_without_an_update_changes_nothing_but_the_mean():
    G = [[1.0, 0.0], [-0.5, math.sqrt(0.75)], [0.0, 0.0]]
    step = combined(create("fedfv", alpha=0.5), G, [1, 2, 0])
    # By loss: c, a, b. ⌈2 · ½⌉ = 1: only c gives way, and has nothing to give.
    np.testing.assert_allclose(step.coefficients, [1 / 3] * 3, rtol=1e-12)


def test_opposite_clients_stand_still():
    """a is projected away; the rest, b's own update, would be blown up to |½(g_a + g_b)|."""
    G = np.array([[2.0, 1.0], [-6.0, -3.0]])
    step = combined(create("fedfv"), G, [1, 2])
    # Mean of 0 and g_b is ½ g_b, in conflict with a: its part along a is all of it.
    np.testing.assert_allclose(step.coefficients @ G, [0, 0], atol=1e-12)
    assert step.log["external"] == ["a"]


def test_harmed_clients_that_cancel_leave_the_average_alone():
    # The mean (.5, 0) harms b and c, whose sum is (−1e-9, 0): no direction to give way to.
    G = [[2.0, 0.0, 0.0], [-5e-10, 3.0, 0.0], [-5e-10, -3.0, 0.0]]
    step = combined(create("fedfv", alpha=1.0), G, [1, 2, 3])
    np.testing.assert_allclose(step.coefficients, [1 / 3] * 3, rtol=1e-12)
    assert step.log["external"] == []


def test_partial_participation_treats_those_who_are_there(federation):
    setup = fed.setup_for(federation, "fedfv", rounds=4, participation=0.5)
    _, watch = fed.run(setup, federation)
    for record in watch.records[1:]:
        assert sorted(record.log["order"]) == sorted(record.coefficients)
        assert set(record.log["external"]) <= set(record.coefficients)


@pytest.mark.parametrize("wrong", [-0.1, 1.5])
def test_a_share_out_of_range_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"^strategy\.alpha must be at (least 0|most 1), not"):
        create("fedfv", alpha=wrong)
