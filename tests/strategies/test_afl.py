"""AFL against arithmetic by hand, a root finder's projection and the game written out."""

from __future__ import annotations

import mfairfl_naive as naive
import numpy as np
import pytest
from scipy.optimize import brentq

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal
from mfairfl.strategies import create
from mfairfl.strategies.base import Summary
from rounds import FLOAT32, NO_GRAM, a_round, close, measured, reports


def onto_simplex(v):
    """max(v − θ, 0) with the θ that makes the sum 1, by bracketing."""
    v = np.asarray(v, dtype=float)
    theta = brentq(
        lambda x: np.maximum(v - x, 0).sum() - 1, v.min() - 1.5, v.max(), xtol=1e-14, rtol=1e-14
    )
    return np.maximum(v - theta, 0)


def mixture(*values):
    return {"clients": list("abcdefgh"[: len(values)]), "mixture": np.array(values)}


def combined(gamma, state, losses, reporting):
    known = measured(losses)
    strategy = create("afl", gamma=gamma)
    return strategy.combine(state, a_round(known), reports(reporting), NO_GRAM)


def test_the_weights_are_used_first_and_then_moved():
    step = combined(0.5, mixture(0.5, 0.5), [0.2, 0.6], "ab")  # ½ + ½·(.2, .6) = (.6, .8)
    np.testing.assert_allclose(step.coefficients, [0.5, 0.5], rtol=1e-15)
    np.testing.assert_allclose(step.state["mixture"], [0.4, 0.6], rtol=1e-12)
    assert step.log == {"mixture": pytest.approx({"a": 0.4, "b": 0.6}, rel=1e-12)}
    step = combined(0.5, step.state, [0.1, 2.6], "ab")  # (.45, 1.9): b alone
    np.testing.assert_allclose(step.coefficients, [0.4, 0.6], rtol=1e-12)
    np.testing.assert_allclose(step.state["mixture"], [0.0, 1.0], rtol=1e-12)


def test_absent_clients_keep_their_weight():
    # a and b share .5 as .4 : .6; (.4, .6) + (.3, .1) = (.7, .7), so half each.
    before = mixture(0.2, 0.3, 0.5)
    step = combined(1.0, before, [0.3, 0.1, 9.0], "ab")
    np.testing.assert_allclose(step.coefficients, [0.4, 0.6], rtol=1e-12)
    np.testing.assert_allclose(step.state["mixture"], [0.25, 0.25, 0.5], rtol=1e-12)
    assert before["mixture"].tolist() == [0.2, 0.3, 0.5]  # the old state is left alone


def test_clients_that_count_nothing_share_equally_when_nobody_else_came():
    step = combined(1.0, mixture(0.0, 0.0, 1.0), [0.3, 0.1, 9.0], "ab")
    assert step.coefficients.tolist() == [0.5, 0.5]
    assert step.state["mixture"].tolist() == [0.0, 0.0, 1.0]


def test_a_lone_client_and_losses_of_0():
    assert combined(1.0, mixture(1.0), [0.0], "a").coefficients.tolist() == [1.0]
    step = combined(1.0, mixture(0.5, 0.5), [0.0, 0.0], "ab")
    assert step.state["mixture"].tolist() == [0.5, 0.5]


def test_a_client_without_rows_has_no_weight():
    counts = {"b": np.ones((1, 2)), "a": np.ones((1, 2)), "void": np.zeros((1, 2))}
    state = create("afl").start(Summary(counts=counts, attributes=(), goal=Goal()))
    assert state["clients"] == ["a", "b"]
    assert state["mixture"].tolist() == [0.5, 0.5]


def test_the_game_written_out(federation):
    """Three server steps with full-batch gradients, λ by the root finder."""
    gamma = 2.0
    strategy = create("afl", gamma=gamma)
    _, watch = fed.run(fed.setup_for(federation, strategy, optimizer="gradient"), federation)
    parts = list(naive.rows_of(federation).values())
    w, weights = watch.weights[0].astype(float), np.full(len(parts), 1 / len(parts))
    for record, after in zip(watch.records[1:], watch.weights[1:], strict=True):
        np.testing.assert_allclose(list(record.coefficients.values()), weights, atol=1e-6)
        losses = np.array([naive.loss_at(w, rows) for rows in parts])
        slopes = [naive.gradient(lambda v, r=rows: naive.loss(v, r), w) for rows in parts]
        w = w - sum(c * slope for c, slope in zip(weights, slopes, strict=True))
        weights = onto_simplex(weights + gamma * losses)
        close(after, w, FLOAT32)
    assert np.ptp(weights) > 0.1  # the clients were told apart


def test_a_negative_step_is_refused():
    with pytest.raises(ConfigError, match=r"^strategy\.gamma must be at least 0, not -1\.0$"):
        create("afl", gamma=-1)
