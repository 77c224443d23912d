"""DRFL against arithmetic by hand and the gradient of its objective."""

from __future__ import annotations

import mfairfl_naive as naive
import numpy as np
import pytest

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from rounds import NO_GRAM, a_round, close, measured, reports

KNOWN = measured([0.5, 1.0, 2.0], rows=[30, 10, 20])


@pytest.mark.parametrize(
    ("options", "reporting", "expected"),
    [
        ({"q": 2}, "ab", [0.1875 / 0.4375, 0.25 / 0.4375]),  # ¾·¼ against ¼·1
        ({"q": 2, "weights": "uniform"}, "ab", [0.2, 0.8]),
        ({"q": 1}, "abc", [15 / 65, 10 / 65, 40 / 65]),
        ({"q": 1}, "c", [1.0]),
        ({"q": 0}, "ab", [0.75, 0.25]),
    ],
)
def test_weights_by_hand(options, reporting, expected):
    step = create("drfl", **options).combine({}, a_round(KNOWN), reports(reporting), NO_GRAM)
    np.testing.assert_allclose(step.coefficients, expected, rtol=1e-9)
    assert step.scale == 1.0


def test_what_an_auditor_sees():
    step = create("drfl", q=2).combine({}, a_round(KNOWN), reports("ab"), NO_GRAM)
    assert step.log == {"tilt": pytest.approx({"a": 4 / 7, "b": 16 / 7}, rel=1e-9)}


def test_the_step_is_the_normalised_gradient_of_the_objective(federation):
    """∇ Σ p_k L_k^{q+1}/(q + 1) over Σ p_k L_k^q, by automatic differentiation."""
    setup = fed.setup_for(federation, create("drfl", q=3.0), rounds=1, optimizer="gradient")
    _, watch = fed.run(setup, federation)
    parts = naive.rows_of(federation)
    n = sum(len(rows) for rows in parts.values())

    def objective(w):
        return sum(len(rows) / n * naive.loss(w, rows) ** 4 / 4 for rows in parts.values())

    start = watch.weights[0].astype(float)
    sizes = [len(rows) / n * naive.loss_at(start, rows) ** 3 for rows in parts.values()]
    expected = start - naive.gradient(objective, start) / sum(sizes)
    close(watch.weights[1], expected, 1e-6)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_q_0_is_fedavg(weights, federation):
    own, plain = create("drfl", q=0, weights=weights), create("fedavg", weights=weights)
    fed.assert_same_runs(federation, own, plain)


@pytest.mark.parametrize("q", [0.01, 1.0, 500.0])
@pytest.mark.parametrize("losses", [[0.0, 0.0], [0.0, 1.0], [1e-9, 40.0]])
def test_losses_of_0_and_high_powers_stay_finite(q, losses):
    strategy = create("drfl", q=q, weights="uniform")
    c = strategy.combine({}, a_round(measured(losses)), reports("ab"), NO_GRAM).coefficients
    assert c.sum() == pytest.approx(1, abs=1e-12)
    assert (c >= 0).all()
    assert c[1] > c[0] or losses == [0.0, 0.0]


def test_equal_losses_of_0_give_the_shares():
    known = measured([0.0, 0.0], rows=[30, 10])
    step = create("drfl").combine({}, a_round(known), reports("ab"), NO_GRAM)
    assert step.coefficients.tolist() == [0.75, 0.25]


def test_a_negative_q_is_refused():
    with pytest.raises(ConfigError, match=r"^strategy\.q must be at least 0, not -1\.0$"):
        create("drfl", q=-1)
