"""FedMGDA+ against scipy on the updates themselves, by hand, and in its limits."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import federations as fed
import rounds
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from rounds import NAMES, close, measured

ROWS = (30, 10, 60)


def combined(strategy, updates, rows=ROWS, decay=1.0):
    """The server's answer to updates of clients a, b, … with so many rows."""
    known = measured([1.0] * len(rows), rows)
    return rounds.combined(strategy, known, dict(zip(NAMES, updates, strict=False)), decay=decay)


def moved(step, updates):
    return step.scale * step.coefficients @ np.array(updates, dtype=float)


def shortest(vectors, centre, epsilon):
    """The combination of least norm by scipy, on the vectors and not on their Gram matrix."""
    low, high = np.maximum(0, centre - epsilon), np.minimum(1, centre + epsilon)
    return minimize(
        lambda x: np.sum((x @ vectors) ** 2),
        centre,
        bounds=list(zip(low, high, strict=True)),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    ).x


# ------------------------------------------------------------------ the rule


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0])
def test_the_direction_is_scipys(normalise, epsilon):
    strategy = create("fedmgda+", epsilon=epsilon, normalise=normalise, step="constant", eta=0.7)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        G = rng.normal(size=(5, 8)) * rng.uniform(0.5, 2, size=(5, 1))
        rows = rng.integers(10, 60, size=5)
        step = combined(strategy, G, rows)
        vectors = G / np.linalg.norm(G, axis=1, keepdims=True) if normalise else G
        expected = shortest(vectors, rows / rows.sum(), epsilon)
        close(moved(step, G), 0.7 * expected @ vectors, 1e-5)
        close(step.log["weights"], expected, 1e-4)


def test_two_clients_at_right_angles_by_hand():
    # Directions (1, 0), (0, 1): λ⋆ = ½, ½ if allowed; from (.75, .25) with ε = .1: (.65, .35).
    updates, rows = [[4.0, 0.0], [0.0, 2.0]], (30, 10)
    step = combined(create("fedmgda+"), updates, rows)
    np.testing.assert_allclose(step.log["weights"], [0.65, 0.35], atol=1e-12)
    np.testing.assert_allclose(step.log["common_norm"], math.hypot(0.65, 0.35), rtol=1e-12)
    # |Σ p g| = |(3, .5)|.
    length = math.hypot(3, 0.5) / math.hypot(0.65, 0.35)
    np.testing.assert_allclose(moved(step, updates), [0.65 * length, 0.35 * length], rtol=1e-12)
    free = combined(create("fedmgda+", epsilon=1.0, step="constant"), updates, rows)
    np.testing.assert_allclose(moved(free, updates), [0.5, 0.5], atol=1e-12)
    uniform = combined(create("fedmgda+", weights="uniform", step="constant"), updates, rows)
    np.testing.assert_allclose(moved(uniform, updates), [0.5, 0.5], atol=1e-12)


@pytest.mark.parametrize(("kind", "scale"), [("constant", 0.2), ("decay", 0.05)])
def test_the_papers_step_knows_nothing_of_the_updates_lengths(kind, scale):
    strategy = create("fedmgda+", step=kind, eta=0.2)
    G = np.random.default_rng(1).normal(size=(3, 4))
    one, two = (combined(strategy, size * G, decay=0.25) for size in (1.0, 1e-3))
    assert one.scale == two.scale == pytest.approx(scale, rel=1e-15)
    np.testing.assert_allclose(moved(one, G), moved(two, 1e-3 * G), rtol=1e-9)


def test_the_rescaled_step_has_the_length_of_the_plain_average():
    for seed in range(20):
        G = np.random.default_rng(seed).normal(size=(3, 6)) + 1.0
        step = moved(combined(create("fedmgda+"), G), G)
        plain = np.array([0.3, 0.1, 0.6]) @ G
        assert np.linalg.norm(step) == pytest.approx(np.linalg.norm(plain), rel=1e-9)


def test_with_full_freedom_nobody_is_harmed():
    strategy = create("fedmgda+", epsilon=1.0)
    for seed in range(30):
        G = np.random.default_rng(seed).normal(size=(5, 9))
        step = combined(strategy, G, (10, 20, 30, 40, 50))
        assert (G @ moved(step, G) > 0).all()
        assert step.log["harmed"] == []


def test_the_log_names_whom_the_step_harms():
    # λ0 = (.9, .1), ε = 0: the step is (.9 − .1, 0), against b.
    step = combined(create("fedmgda+", epsilon=0.0), [[1.0, 0.0], [-1.0, 0.0]], (90, 10))
    assert step.log["harmed"] == ["b"]
    assert json.loads(json.dumps(step.log, allow_nan=False)) == step.log


# ------------------------------------------------------------------ limits


def test_no_trust_is_the_mean_of_the_directions():
    G = np.random.default_rng(2).normal(size=(3, 5))
    step = combined(create("fedmgda+", epsilon=0.0, step="constant"), G)
    unit = G / np.linalg.norm(G, axis=1, keepdims=True)
    np.testing.assert_allclose(moved(step, G), np.array([0.3, 0.1, 0.6]) @ unit, rtol=1e-12)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_without_trust_and_directions_it_is_fedavg_bit_for_bit(weights, federation):
    off = create("fedmgda+", epsilon=0.0, normalise=False, weights=weights)
    fed.assert_same_runs(federation, off, create("fedavg", weights=weights))


def test_one_client_alone():
    updates = [[3.0, 4.0]]
    np.testing.assert_allclose(moved(combined(create("fedmgda+"), updates, (7,)), updates), [3, 4])
    literal = combined(create("fedmgda+", step="constant"), updates, (7,))
    np.testing.assert_allclose(moved(literal, updates), [0.6, 0.8], rtol=1e-12)


# ------------------------------------------------------------------ degenerate rounds


def test_a_client_without_an_update_is_left_out():
    # Of 30 and 60 rows: λ0 = (1/3, 2/3), at right angles with ε = .1: (.43…, .56…).
    updates = [[1.0, 0.0], [0.0, 0.0], [0.0, 5.0]]
    step = combined(create("fedmgda+", step="constant"), updates)
    np.testing.assert_allclose(step.log["weights"], [1 / 3 + 0.1, 0, 2 / 3 - 0.1], atol=1e-12)
    np.testing.assert_allclose(moved(step, updates), [1 / 3 + 0.1, 2 / 3 - 0.1], atol=1e-12)


@pytest.mark.parametrize("kind", ["rescaled", "constant", "decay"])
def test_no_update_at_all_is_no_step(kind):
    step = combined(create("fedmgda+", step=kind), np.zeros((3, 4)))
    assert step.coefficients.tolist() == [0, 0, 0]


def test_opposite_clients_stand_still():
    """−v would be 0: no direction serves both, and rounding is not blown up to a step."""
    updates = [[2.0, 1.0], [-6.0, -3.0]]
    step = combined(create("fedmgda+", epsilon=1.0), updates, (30, 10))
    np.testing.assert_allclose(step.log["weights"], [0.5, 0.5], atol=1e-9)
    assert moved(step, updates).tolist() == [0.0, 0.0]


def test_equal_clients_share_their_weight():
    updates = [[1.0, 2.0]] * 3
    step = combined(create("fedmgda+", weights="uniform"), updates)
    np.testing.assert_allclose(step.log["weights"], 1 / 3, rtol=1e-12)
    np.testing.assert_allclose(moved(step, updates), [1, 2], rtol=1e-12)


def test_partial_participation_centres_on_those_who_are_there(federation):
    strategy = create("fedmgda+", epsilon=0.0)
    _, watch = fed.run(fed.setup_for(federation, strategy, participation=0.5), federation)
    rows = {c.name: len(c.train) for c in federation.clients}
    for record in watch.records[1:]:
        present = np.array([rows[name] for name in record.coefficients])
        np.testing.assert_allclose(record.log["weights"], present / present.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": -0.1}, {"epsilon": 1.1}, {"eta": -1.0}, {"step": "long"}]
)
def test_a_setting_out_of_range_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"^strategy\.{name}") as caught:
        create("fedmgda+", **wrong)
    assert "\n" not in str(caught.value)


def test_a_long_update_has_no_more_say_than_a_short_one():
    """What the plus is for: an update grows a hundredfold, the weight of its direction stays."""
    G = np.random.default_rng(4).normal(size=(3, 6))
    loud = G * np.array([[100.0], [1.0], [1.0]])
    for strategy in (create("fedmgda+"), replace(create("fedmgda+"), epsilon=0.5)):
        one, two = combined(strategy, G), combined(strategy, loud)
        np.testing.assert_allclose(one.log["weights"], two.log["weights"], atol=1e-9)
