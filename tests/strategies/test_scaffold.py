"""SCAFFOLD against its algorithm written out, plain SGD, and the optimum it must find."""

from __future__ import annotations

from dataclasses import replace

import mfairfl_naive as naive
import numpy as np
import pytest
import torch

import federations as fed
from mfairfl.engine.checkpoint import parse
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from mfairfl.training.plan import Recipe
from rounds import FLOAT32, NO_GRAM, a_round, close, measured, reports

COUNTS = {"a": [[20.0, 10.0]], "b": [[5.0, 5.0]], "c": [[40.0, 20.0]], "void": [[0.0, 0.0]]}


def this_round(known=(), vectors=None, decay=1.0):
    return a_round(
        known,
        participants=("a", "b"),
        counts={name: np.array(table) for name, table in COUNTS.items()},
        attributes=(),
        recipe=Recipe(lr=0.01, weight_decay=2.0),
        vectors=vectors or {},
        decay=decay,
    )


@pytest.mark.parametrize(
    ("weights", "step_shares", "control_shares"),
    [("uniform", [0.5, 0.5], [1 / 3, 1 / 3]), ("size", [0.75, 0.25], [0.3, 0.1])],
)
def test_updates_count_among_those_who_came_and_variates_among_all(
    weights, step_shares, control_shares
):
    known = measured([0.1, 0.2], rows=[30, 10])
    sent = reports("ab", control_change=np.array([3.0, 4.0], np.float32))
    strategy = create("scaffold", weights=weights, server_lr=0.7)
    step = strategy.combine({}, this_round(known), sent, NO_GRAM)
    np.testing.assert_allclose(step.coefficients, step_shares, rtol=1e-15)
    np.testing.assert_allclose(step.vectors["control"], control_shares, rtol=1e-15)
    assert step.scale == 0.7
    assert step.log == {"control_changes": {"a": 5.0, "b": 5.0}}


def test_the_clients_plan():
    c = np.array([1.0, -1.0], np.float32)
    _, jobs = create("scaffold", lr=0.4).plan({}, this_round(vectors={"control": c}, decay=0.5))
    assert [job.client for job in jobs] == ["a", "b"]
    for job in jobs:
        assert job.plan.optimizer.name == "sgd"
        assert job.plan.optimizer.lr == 0.2
        assert job.plan.optimizer.weight_decay == pytest.approx(0.1)  # .2 · .1 = .01 · 2
        assert np.array_equal(job.plan.linear, c)
        assert job.plan.linear_slot == job.keep_control == "control"


def test_one_client_is_sgd():
    """c_k = c after every round: the corrections cancel to the bit."""
    federation = fed.people_federation(fed.people(sites={"all": 150}))
    options = {"rounds": 4, "lr": 0.125, "schedule": "constant", "weight_decay": 0.5}
    own = fed.setup_for(federation, create("scaffold", lr=0.125), **options)
    plain = fed.setup_for(federation, "fedavg", optimizer="sgd", **options)
    found, watch = fed.run(own, federation)
    assert parse(watch.dumps[-1], "watch").vectors["control"].any()
    assert fed.bits(found) == fed.bits(fed.run(plain, federation)[0])


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_two_clients_written_out(weights):
    """Option II of Algorithm 1 for three rounds, with decay; c, c_k and w after each."""
    federation = fed.people_federation(fed.people(sites={"east": 90, "south": 40}))
    lr, server_lr = 0.3, 0.8
    strategy = create("scaffold", lr=lr, server_lr=server_lr, weights=weights)
    options = {**naive.FULL, "weight_decay": 0.5, "local_epochs": 3, "schedule": "constant"}
    _, watch = fed.run(fed.setup_for(federation, strategy, **options), federation)
    parts = naive.rows_of(federation)
    n = sum(len(rows) for rows in parts.values())
    p = {k: len(rows) / n if weights == "size" else 0.5 for k, rows in parts.items()}
    w, c = watch.weights[0].astype(float), np.zeros(len(watch.weights[0]))
    own = {k: np.zeros_like(c) for k in parts}
    for after, data in zip(watch.weights[1:], watch.dumps[1:], strict=True):
        move, change = np.zeros_like(w), np.zeros_like(c)
        for k, rows in parts.items():
            end = naive.sgd(w, rows, lr, 3, decay=0.02 * 0.5 / lr, shift=c - own[k])
            new = own[k] - c + (w - end) / (3 * lr)
            move += p[k] * (w - end)
            change += p[k] * (new - own[k])
            own[k] = new
        w, c = w - server_lr * move, c + change
        state = parse(data, "watch")
        close(after, w, FLOAT32)
        close(state.vectors["control"], c, FLOAT32)
        for k in parts:
            close(state.slots[k]["control"], own[k], FLOAT32)


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_the_servers_variate_stays_the_mean_of_the_clients(weights, federation):
    """Also where clients come and go; who never came has c_k = 0."""
    strategy = create("scaffold", weights=weights)
    setup = fed.setup_for(federation, strategy, rounds=6, participation=0.5)
    _, watch = fed.run(setup, federation)
    sizes = {c.name: len(c.train) for c in federation.clients}
    for record, data in zip(watch.records[1:], watch.dumps[1:], strict=True):
        assert len(record.coefficients) == 2
        state = parse(data, "watch")
        share = {k: n / 208 if weights == "size" else 0.25 for k, n in sizes.items()}
        mean = sum(share[k] * slots["control"] for k, slots in state.slots.items())
        close(state.vectors["control"], mean, 1e-6)


def test_local_steps_do_not_bias_the_optimum(federation):
    """Logistic model with an L2 term: SCAFFOLD ends where the mean gradient is 0, FedAvg not."""
    options = {
        "rounds": 40,
        "local_epochs": 10,
        "batch_size": 512,
        "lr": 0.5,
        "weight_decay": 0.1,
        "schedule": "constant",
        "hidden": (),
    }
    parts = naive.rows_of(federation).values()

    def mean(w):
        losses = []
        for rows in parts:
            z = rows.X @ w[:-1] + w[-1]
            losses.append((torch.nn.functional.softplus(z) - rows.y * z).mean())
        return sum(losses) / len(losses) + 0.05 * (w @ w)

    slopes = {}
    for strategy in (create("scaffold", lr=0.5), create("fedavg", weights="uniform")):
        setup = fed.setup_for(federation, strategy, optimizer="sgd", **options)
        w = fed.run(setup, federation)[0].served.members[0].astype(float)
        slopes[type(strategy).__name__] = np.linalg.norm(naive.gradient(mean, w))
    assert slopes["Scaffold"] < 1e-4
    assert slopes["FedAvg"] > 1e-2


def test_two_equal_clients_count_as_one():
    one = fed.people_federation(fed.people(sites={"east": 60}))
    east = one.clients[0]
    two = replace(one, clients=(replace(east, name="a"), replace(east, name="b")))
    runs = [fed.run(fed.setup_for(f, "scaffold", **naive.FULL), f)[0] for f in (one, two)]
    close(runs[0].served.members, runs[1].served.members, 1e-6)


@pytest.mark.parametrize("name", ["lr", "server_lr"])
def test_a_rate_of_0_is_refused(name):
    with pytest.raises(ConfigError, match=rf"^strategy\.{name} must be greater than 0, not 0\.0$"):
        create("scaffold", **{name: 0})
