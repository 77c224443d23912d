"""TERM against arithmetic by hand and the gradient of the tilted loss."""

from __future__ import annotations

import math

import mfairfl_naive as naive
import numpy as np
import pytest
import torch

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from rounds import NO_GRAM, a_round, close, measured, reports

KNOWN = measured([0.0, math.log(3), math.log(2)], rows=[30, 10, 20])


@pytest.mark.parametrize(
    ("options", "reporting", "expected"),
    [
        ({"t": 1}, "ab", [0.5, 0.5]),  # ¾·1 against ¼·3
        ({"t": 2}, "ab", [0.25, 0.75]),  # ¾·1 against ¼·9
        ({"t": 1, "weights": "uniform"}, "abc", [1 / 6, 3 / 6, 2 / 6]),
        ({"t": 1}, "abc", [3 / 10, 3 / 10, 4 / 10]),
        ({"t": 7}, "c", [1.0]),
        ({"t": 0}, "ab", [0.75, 0.25]),
        ({"t": 1e6}, "abc", [0.0, 1.0, 0.0]),  # only the worst client
    ],
)
def test_weights_by_hand(options, reporting, expected):
    step = create("term", **options).combine({}, a_round(KNOWN), reports(reporting), NO_GRAM)
    np.testing.assert_allclose(step.coefficients, expected, rtol=1e-12)
    assert step.scale == 1.0


def test_what_an_auditor_sees():
    step = create("term", t=1).combine({}, a_round(KNOWN), reports("ab"), NO_GRAM)
    assert step.log == {"tilt": pytest.approx({"a": 2 / 3, "b": 2.0}, rel=1e-12)}


def test_huge_losses_do_not_overflow():
    known = measured([5000.0, 5000.0 + math.log(3)])
    step = create("term", t=1).combine({}, a_round(known), reports("ab"), NO_GRAM)
    np.testing.assert_allclose(step.coefficients, [0.25, 0.75], rtol=1e-9)


def test_the_step_is_the_gradient_of_the_tilted_loss(federation):
    """∇ (1/t) log Σ p_k e^{t L_k}, by automatic differentiation."""
    t = 3.0
    setup = fed.setup_for(federation, create("term", t=t), rounds=1, optimizer="gradient")
    _, watch = fed.run(setup, federation)
    parts = naive.rows_of(federation)
    n = sum(len(rows) for rows in parts.values())

    def tilted(w):
        terms = [len(r) / n * torch.exp(t * naive.loss(w, r)) for r in parts.values()]
        return torch.log(sum(terms)) / t

    start = watch.weights[0].astype(float)
    close(watch.weights[1], start - naive.gradient(tilted, start), 1e-6)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_t_0_is_fedavg(weights, federation):
    own, plain = create("term", t=0, weights=weights), create("fedavg", weights=weights)
    fed.assert_same_runs(federation, own, plain)


def test_a_negative_t_is_refused():
    with pytest.raises(ConfigError, match=r"^strategy\.t must be at least 0, not -0\.5$"):
        create("term", t=-0.5)
