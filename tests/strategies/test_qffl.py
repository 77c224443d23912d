"""q-FFL against arithmetic by hand and its two algorithms written out in m dimensions."""

from __future__ import annotations

import hypothesis.strategies as st
import mfairfl_naive as naive
import numpy as np
import pytest
from hypothesis import given

import federations as fed
import mfairfl
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from rounds import FLOAT32, a_round, close, measured, reports

# L = (½, 1), |g|² = (2, 1), η = ½, q = 2.
KNOWN, SQUARES = measured([0.5, 1.0], rows=[30, 10]), np.diag([2.0, 1.0])


def combined(known, gram, *, lr=0.5, reporting=None, **options):
    clients = reporting or [m.client for m in known]
    strategy = create("qffl", **options)
    return strategy.combine({}, a_round(known), reports(clients, lr=lr), gram)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # L² + 2 L |g|²/η: ¼ + 4 and 1 + 4.
        ({"q": 2}, [0.25 / 9.25, 1 / 9.25]),
        # The same, a three times heavier than b.
        ({"q": 2, "weights": "size"}, [0.1875 / 4.4375, 0.25 / 4.4375]),
        # 2 L |g|² + L²/η: 2 + ½ and 2 + 2.
        ({"q": 2, "update": "gradient"}, [0.25 / 6.5, 1 / 6.5]),
        # L + |g|²/η: ½ + 4 and 1 + 2.
        ({"q": 1}, [0.5 / 7.5, 1 / 7.5]),
        ({"q": 0}, [0.5, 0.5]),
        ({"q": 0, "update": "gradient"}, [0.25, 0.25]),
    ],
)
def test_coefficients_by_hand(options, expected):
    step = combined(KNOWN, SQUARES, **options)
    np.testing.assert_allclose(step.scale * step.coefficients, expected, rtol=1e-8)


def test_only_those_who_reported_count():
    known = measured([7.0, 0.5, 1.0])
    step = combined(known, SQUARES, q=2, reporting="bc")
    np.testing.assert_allclose(step.coefficients, [0.25 / 9.25, 1 / 9.25], rtol=1e-8)
    alone = combined(measured([0.5]), np.array([[2.0]]), q=1)
    np.testing.assert_allclose(alone.coefficients, [0.5 / 4.5], rtol=1e-8)  # L/(L + |g|²/η)


def test_what_an_auditor_sees():
    """q |g|²/(η L): how far a client's curvature shortens the step."""
    step = combined(KNOWN, SQUARES, q=2)
    assert step.log == {"curvature": pytest.approx({"a": 16.0, "b": 4.0}, rel=1e-8)}


@given(
    losses=st.lists(st.floats(0.01, 3), min_size=1, max_size=5),
    q=st.floats(0, 5),
    lr=st.floats(0.01, 1),
    seed=st.integers(0, 99),
)
def test_the_step_in_m_dimensions(losses, q, lr, seed):
    """Δ_k and h_k as vectors and numbers, as the paper has them."""
    G = np.random.default_rng(seed).normal(size=(len(losses), 6))
    F = np.array(losses) + 1e-10
    for update, V in {"local": G / lr, "gradient": G}.items():
        h = [q * f ** (q - 1) * (v @ v) + f**q / lr for f, v in zip(F, V, strict=True)]
        expected = sum(f**q * v for f, v in zip(F, V, strict=True)) / sum(h)
        step = combined(measured(losses), G @ G.T, lr=lr, q=q, update=update)
        np.testing.assert_allclose(step.scale * step.coefficients @ G, expected, rtol=1e-9)


@pytest.mark.parametrize("q", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("losses", [[0.0, 0.0], [0.0, 1.0], [30.0, 40.0]])
@pytest.mark.parametrize("squares", [[0.0, 0.0], [0.0, 1.0]])
def test_losses_of_0_and_updates_of_0_stay_finite(q, losses, squares):
    c = combined(measured(losses), np.diag(squares), q=q).coefficients
    assert np.isfinite(c).all()
    assert (c >= 0).all()
    assert 0 < c.sum() <= 1 + 1e-12


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_q_0_is_fedavg_with_sgd(weights, federation):
    lr = 0.125
    options = {"lr": lr, "schedule": "constant", "weight_decay": 0.5}
    shared = fed.setup_for(
        federation, create("fedavg", weights=weights), optimizer="sgd", **options
    )
    own = fed.setup_for(federation, create("qffl", q=0, lr=lr, weights=weights), **options)
    assert fed.bits(fed.run(own, federation)[0]) == fed.bits(fed.run(shared, federation)[0])


def test_q_fedavg_written_out(federation):
    """Three rounds, the rate on its cosine, decay of rate · decay = .02 · .5 at first."""
    q, lr = 1.5, 0.3
    strategy = create("qffl", q=q, lr=lr)
    options = {**naive.FULL, "weight_decay": 0.5, "local_epochs": 3}
    _, watch = fed.run(fed.setup_for(federation, strategy, **options), federation)
    parts, w = naive.rows_of(federation).values(), watch.weights[0].astype(float)
    for share, after in zip(naive.DECAY, watch.weights[1:], strict=True):
        top, bottom, eta = np.zeros_like(w), 0.0, lr * share
        for rows in parts:
            F = naive.loss_at(w, rows) + 1e-10
            v = (w - naive.sgd(w, rows, eta, 3, decay=0.02 * share * 0.5 / eta)) / eta
            top += F**q * v
            bottom += q * F ** (q - 1) * (v @ v) + F**q / eta
        w = w - top / bottom
        close(after, w, FLOAT32)


def test_q_fedsgd_written_out(federation):
    q, lr = 2.0, 0.6
    strategy = create("qffl", q=q, lr=lr, update="gradient")
    _, watch = fed.run(fed.setup_for(federation, strategy, **naive.FULL), federation)
    parts, w = naive.rows_of(federation).values(), watch.weights[0].astype(float)
    for share, after in zip(naive.DECAY, watch.weights[1:], strict=True):
        top, bottom = np.zeros_like(w), 0.0
        for rows in parts:
            F = naive.loss_at(w, rows) + 1e-10
            v = naive.gradient(lambda u, r=rows: naive.loss(u, r), w)
            top += F**q * v
            bottom += q * F ** (q - 1) * (v @ v) + F**q / (lr * share)
        w = w - top / bottom
        close(after, w, FLOAT32)


def test_q_fedsgd_takes_a_server_step_for_every_local_epoch():
    table, settings = fed.people_table(), {"rounds": 2, "local_epochs": 3, "hidden": (4,)}
    for update, steps in {"gradient": 6, "local": 2}.items():
        options = {"strategy": "qffl", "strategy.update": update}
        assert mfairfl.train(table, **options, **settings).record.rounds == steps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": -1}, r"^strategy\.q must be at least 0, not -1\.0$"),
        ({"lr": 0}, r"^strategy\.lr must be greater than 0, not 0\.0$"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        create("qffl", **options)
