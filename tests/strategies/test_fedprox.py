"""FedProx against SGD written out with the pull, and against FedAvg without it."""

from __future__ import annotations

import mfairfl_naive as naive
import numpy as np
import pytest

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from rounds import FLOAT32, NO_GRAM, a_round, close, measured, reports


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_without_pull_it_is_fedavg(optimizer, weights, federation):
    own, plain = create("fedprox", mu=0, weights=weights), create("fedavg", weights=weights)
    fed.assert_same_runs(federation, own, plain, optimizer=optimizer)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_two_rounds_written_out(weights, federation):
    lr, mu = 0.5, 0.8
    options = {**naive.FULL, "optimizer": "sgd", "lr": lr, "schedule": "constant"}
    strategy = create("fedprox", mu=mu, weights=weights)
    setup = fed.setup_for(federation, strategy, rounds=2, local_epochs=4, **options)
    _, watch = fed.run(setup, federation)
    parts = naive.rows_of(federation)
    n = sum(len(rows) for rows in parts.values())
    w = watch.weights[0].astype(float)
    for weights_after in watch.weights[1:]:
        ends = [naive.sgd(w, rows, lr, 4, pull=mu) for rows in parts.values()]
        share = [len(r) / n if weights == "size" else 1 / len(parts) for r in parts.values()]
        w = sum(p * end for p, end in zip(share, ends, strict=True))
        close(weights_after, w, FLOAT32)


def test_a_stronger_pull_keeps_clients_nearer(federation):
    lengths = []
    for mu in (0.0, 1.0, 10.0):
        setup = fed.setup_for(
            federation, create("fedprox", mu=mu), rounds=1, local_epochs=20, **naive.FULL
        )
        lengths.append(fed.run(setup, federation)[1].records[1].norms)
    for client in lengths[0]:
        far, near, nearest = (norms[client] for norms in lengths)
        assert far > near > nearest > 0


def test_coefficients_are_shares_of_those_who_reported():
    known = measured([0.1, 0.2, 0.3], rows=[30, 10, 60])
    step = create("fedprox").combine({}, a_round(known), reports("ab"), NO_GRAM)
    np.testing.assert_allclose(step.coefficients, [0.75, 0.25], rtol=1e-15)


def test_a_negative_pull_is_refused():
    with pytest.raises(ConfigError, match=r"^strategy\.mu must be at least 0, not -1\.0$"):
        create("fedprox", mu=-1)
