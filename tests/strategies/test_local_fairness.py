"""IndFair, FedAvg-f and CenFair: their limits, and multipliers written out with row masks."""

from __future__ import annotations

from dataclasses import replace

import mfairfl_naive as naive
import numpy as np
import pytest
import torch

import federations as fed
from mfairfl.data import Inputs
from mfairfl.data.federation import Client, Shard
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.output import Output
from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal
from mfairfl.strategies import create
from rounds import close

# Six epochs, so that the multipliers move inside a round too.
SIX = {"rounds": 4, "local_epochs": 6, "weight_decay": 0.1}
SELECT = Output(rule="select", tolerance=0.02)


def lone(federation, index):
    return replace(federation, clients=(federation.clients[index],))


def joined(federation, part):
    shards = [client.shard(part) for client in federation.clients]
    columns = ("X", "y", "cells", "rows")
    X, *others = (np.concatenate([getattr(s, c) for s in shards]) for c in columns)
    return Shard(Inputs.of(X), *others)


def chance(members, shares, shard):
    """Σ_k p_k P_k(x) of every row, in float64."""
    X = torch.from_numpy(shard.X.astype(float))
    rows = [
        1 / (1 + np.exp(-naive.logits(torch.from_numpy(w.astype(float)), X).numpy()))
        for w in members
    ]
    return np.tensordot(shares, rows, axes=1)


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize("index", [0, 3])
def test_with_one_client_all_three_are_the_same(federation, index):
    alone = lone(federation, index)
    runs = [
        fed.run(fed.setup_for(alone, name, output=SELECT, **SIX), alone)[0]
        for name in ("cenfair", "indfair", "fedavg-f")
    ]
    assert fed.bits(runs[0]) == fed.bits(runs[1]) == fed.bits(runs[2])


def test_cenfair_is_one_client_with_all_rows(federation):
    parts = (joined(federation, part) for part in ("train", "validation", "test"))
    whole = replace(federation, clients=(Client("all clients", *parts),))
    pooled, _ = fed.run(fed.setup_for(federation, "cenfair", **SIX), federation)
    single, _ = fed.run(fed.setup_for(whole, "fedavg-f", **SIX), whole)
    assert np.array_equal(pooled.served.members, single.served.members)
    for split in ("train", "test"):
        ours = sum(s.positives for s in pooled.measured[0][split].values())
        (theirs,) = single.measured[0][split].values()
        assert ours.tolist() == theirs.positives.tolist()


def test_cenfair_pools_the_rows_of_the_clients_that_are_there(federation):
    # The first client left out: pooling must not fall back on the first rows of the table.
    rest = replace(federation, clients=federation.clients[1:])
    parts = (joined(rest, part) for part in ("train", "validation", "test"))
    whole = replace(federation, clients=(Client("all clients", *parts),))
    pooled, _ = fed.run(fed.setup_for(rest, "cenfair", **SIX), rest)
    single, _ = fed.run(fed.setup_for(whole, "fedavg-f", **SIX), whole)
    assert np.array_equal(pooled.served.members, single.served.members)


@pytest.mark.parametrize("weights", ["size", "uniform"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_without_steps_of_the_multipliers_fedavg_f_is_fedavg(federation, weights, optimizer):
    strategies = create("fedavg-f", gamma=0, weights=weights), create("fedavg", weights=weights)
    fed.assert_same_runs(federation, *strategies, optimizer=optimizer, **SIX)


def test_indfairs_members_are_the_models_of_lone_clients(federation):
    together, watch = fed.run(fed.setup_for(federation, "indfair", **SIX), federation)
    assert together.served.clients == ("east", "north", "south", "west")
    for k in range(4):
        alone = lone(federation, k)
        own, its = fed.run(fed.setup_for(alone, "fedavg-f", **SIX), alone)
        assert np.array_equal(together.served.members[k], own.served.members[0])
        for ours, theirs in zip(watch.weights, its.weights, strict=True):
            assert np.array_equal(ours[k], theirs)


def test_clients_without_a_common_model_stay_apart(federation):
    result, _ = fed.run(fed.setup_for(federation, "indfair", **SIX), federation)
    members = {member.tobytes() for member in result.served.members}
    assert len(members) == 4


# ------------------------------------------------------------------ how an ensemble answers


@pytest.mark.parametrize(
    ("weights", "shares"),
    [("size", np.array([72, 56, 32, 48]) / 208), ("uniform", np.full(4, 0.25))],
)
def test_the_ensemble_answers_with_the_mean_of_the_probabilities(federation, weights, shares):
    setup = fed.setup_for(federation, create("indfair", weights=weights), lr=0.05, **SIX)
    result, _ = fed.run(setup, federation)
    assert result.served.kind == "ensemble"
    np.testing.assert_allclose(result.served.weights, shares, rtol=1e-15)
    (measured,) = result.measured
    for client in federation.clients:
        for split in ("train", "test"):
            shard = client.shard(split)
            p = chance(result.served.members, shares, shard)
            found = measured[split][client.name]
            loss = -np.log(np.where(shard.y == 1, p, 1 - p))
            for cell in range(4):
                for y in (0, 1):
                    rows = (shard.cells == cell) & (shard.y == y)
                    assert found.positives[cell, y] == (p[rows] > 0.5).sum()
                    np.testing.assert_allclose(found.scores[cell, y], p[rows].sum(), atol=1e-4)
                    np.testing.assert_allclose(found.losses[cell, y], loss[rows].sum(), atol=1e-3)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_a_client_without_training_rows_has_no_say(federation, weights):
    north = federation.clients[1]
    clients = list(federation.clients)
    clients[1] = replace(north, train=north.train[:0])
    silent = replace(federation, clients=tuple(clients))
    without = replace(federation, clients=(clients[0], *clients[2:]))
    strategy = create("indfair", weights=weights)
    result, _ = fed.run(fed.setup_for(silent, strategy, **SIX), silent)
    assert result.served.weights[1] == 0
    assert result.served.weights.sum() == pytest.approx(1)
    fewer, _ = fed.run(fed.setup_for(without, strategy, **SIX), without)
    for name in ("east", "south", "west"):
        ours, theirs = (r.measured[0]["test"][name] for r in (result, fewer))
        assert ours.positives.tolist() == theirs.positives.tolist()
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-12)
    assert np.isfinite(result.measured[0]["test"]["north"].losses).all()


# ------------------------------------------------------------------ multipliers


def hard_gaps(w, rows, labels):
    """F_e − F_{e,g} of thresholded decisions; 0 where the client lacks the group."""
    decided = naive.logits(torch.from_numpy(w.astype(float)), rows.X).numpy() > 0
    gaps = []
    for label in labels:
        inside, member = naive.masks(label, rows)
        gaps.append(decided[inside].mean() - decided[member].mean() if member.any() else 0.0)
    return np.array(gaps)


def shares_of_groups(rows, labels):
    return np.array([naive.masks(label, rows)[1].mean() for label in labels])


@pytest.mark.parametrize("notion", ["dp", "eo"])
def test_multipliers_persist_with_each_client_as_written_out(federation, notion):
    goal = Goal(notions=(notion,), attributes=("sex", "age"), dead_zone=0.02)
    strategy = create("indfair", gamma=0.7, prices={"cap": 0.3})
    setup = fed.setup_for(federation, strategy, rounds=6, local_epochs=2, lr=0.1, weight_decay=0)
    setup = replace(setup, summary=replace(setup.summary, goal=goal))
    _, watch = fed.run(setup, federation)
    labels = goal.constraints(federation.attributes).labels
    capped = 0
    for k, (name, rows) in enumerate(naive.rows_of(federation).items()):
        mu, gain, before = np.zeros(len(labels)), np.ones(len(labels)), np.zeros(len(labels))
        events = np.array([naive.masks(label, rows)[0].mean() for label in labels])
        limit = 0.3 * shares_of_groups(rows, labels)
        for weights, data in zip(watch.weights[1:], watch.dumps[1:], strict=True):
            d = hard_gaps(weights[k], rows, labels)
            for j in range(len(labels)):
                gain[j] = 0.5 * gain[j] if d[j] * before[j] < 0 else min(1.0, 1.2 * gain[j])
                dead = np.sign(d[j]) * max(abs(d[j]) - 0.02, 0.0)
                mu[j] += gain[j] * 0.7 * events[j] * dead
                mu[j] = np.clip(mu[j], -limit[j], limit[j])
            before = d
            kept = parse(data, "watch").slots[name]["multipliers"]
            close(kept, [mu, gain, d], 1e-12)
        capped += (np.abs(mu) == limit).sum()
        if name == "north":  # it has no women
            assert not any(m for m, label in zip(mu, labels, strict=True) if label[3] == "F")
        assert np.abs(mu).max() > 0 or name == "south"
    assert capped > 0  # the cap was met, or it was not tested


@pytest.mark.parametrize("name", ["indfair", "fedavg-f", "cenfair"])
def test_the_server_never_sees_a_multiplier(federation, name):
    seen = []
    setup = fed.setup_for(federation, name, lr=0.1, **SIX)
    _, watch = fed.drive(setup, federation, lambda _, replies: seen.extend(replies) or replies)
    assert seen
    assert all(r.multipliers == () and r.gaps == () for r in seen)
    state = parse(watch.dumps[-1], "watch")
    assert state.strategy == {}
    assert any(np.abs(held["multipliers"][0]).max() > 0 for held in state.slots.values())


def test_multipliers_move_under_the_literal_gradient_too(federation):
    setup = fed.setup_for(federation, "fedavg-f", rounds=2, optimizer="gradient", seed=3)
    _, watch = fed.run(setup, federation)
    # One gradient is one epoch, whatever the recipe says: a move a round, from the start's gaps.
    labels = setup.summary.goal.constraints(federation.attributes).labels
    rows = naive.rows_of(federation)["east"]
    expected = hard_gaps(watch.weights[0], rows, labels) + hard_gaps(
        watch.weights[1], rows, labels
    )
    kept = parse(watch.dumps[-1], "watch").slots["east"]["multipliers"][0]
    close(kept, expected, 1e-12)
    assert np.abs(kept).max() > 0


def test_a_violation_within_a_client_falls(federation):
    # South hired nobody and north has no women: east and west can be fair on their own.
    found = {}
    for gamma in (0.0, 2.0):
        setup = fed.setup_for(
            federation, create("indfair", gamma=gamma), rounds=25, local_epochs=5, weight_decay=0.5
        )
        _, watch = fed.run(setup, federation)
        labels = setup.summary.goal.constraints(federation.attributes).labels
        parts = naive.rows_of(federation)
        found[gamma] = [
            np.abs(hard_gaps(watch.weights[-1][k], parts[name], labels)).max()
            for k, name in ((0, "east"), (3, "west"))
        ]
    assert all(fair < 0.6 * free for fair, free in zip(found[2.0], found[0.0], strict=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gamma": -1}, "strategy.gamma must be at least 0, not -1.0"),
        ({"prices": {"cap": -0.5}}, "strategy.prices.cap must be at least 0, not -0.5"),
        ({"shrink": 0}, "strategy.shrink must be greater than 0, not 0.0"),
        ({"shrink": 1.5}, "strategy.shrink must be at most 1, not 1.5"),
        ({"every": 0}, "strategy.every must be at least 1, not 0"),
    ],
)
@pytest.mark.parametrize("name", ["indfair", "fedavg-f", "cenfair"])
def test_settings_without_sense_are_refused(name, wrong, message):
    with pytest.raises(ConfigError) as error:
        create(name, **wrong)
    assert str(error.value) == message
