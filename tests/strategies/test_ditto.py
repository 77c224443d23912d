"""Ditto against FedAvg, against training alone, and against its update rule written out."""

from __future__ import annotations

from dataclasses import replace

import mfairfl_naive as naive
import numpy as np
import pytest
import torch

import federations as fed
from mfairfl.engine.checkpoint import parse
from mfairfl.errors import ConfigError
from mfairfl.randomness import stream
from mfairfl.strategies import create
from mfairfl.training.batches import RowStore
from mfairfl.training.trainer import Work, run_works
from rounds import FLOAT32, close

NAMES = ("east", "north", "south", "west")
SGD = {"optimizer": "sgd", "schedule": "constant", "weight_decay": 0.0, "batch_size": 512}


def held(watch, round_):
    """Each client's own model after a round."""
    slots = parse(watch.dumps[round_], "watch").slots
    return {name: slot["personal"] for name, slot in slots.items() if "personal" in slot}


# ------------------------------------------------------------------ the global part


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_the_global_part_is_fedavg_whatever_the_pull(federation, weights):
    _, plain = fed.run(fed.setup_for(federation, create("fedavg", weights=weights)), federation)
    for pull in (0.0, 1.0, 5.0):
        strategy = create("ditto", pull=pull, weights=weights)
        _, watch = fed.run(fed.setup_for(federation, strategy), federation)
        for ours, theirs in zip(watch.weights, plain.weights, strict=True):
            assert np.array_equal(ours, theirs)
        assert [r.coefficients for r in watch.records] == [r.coefficients for r in plain.records]


def test_own_models_stay_with_their_clients(federation):
    seen = {"ditto": [], "fedavg": []}
    for name, replies in seen.items():
        setup = fed.setup_for(federation, name)
        fed.drive(setup, federation, lambda _, answer, to=replies: to.extend(answer) or answer)
    assert [r.client for r in seen["ditto"]] == [*NAMES] * 3
    for ours, theirs in zip(seen["ditto"], seen["fedavg"], strict=True):
        assert np.array_equal(ours.update, theirs.update)


# ------------------------------------------------------------------ the personal part


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_without_pull_a_client_trains_alone(federation, optimizer):
    setup = fed.setup_for(federation, create("ditto", pull=0), rounds=3, optimizer=optimizer)
    result, _ = fed.run(setup, federation)
    for k, client in enumerate(federation.clients):
        shard = client.train
        store, (rows,) = RowStore.from_arrays([(shard.X, shard.y, shard.cells)], cells=4)
        own = fed.model_of(setup).init(stream(0, "init"))
        for round_ in range(3):
            rng = stream(0, "batches", round_, client.name, "personal")
            plan = setup.recipe.plan(round_, 3)
            work = Work(plan=plan, start=own, rows=rows, rng=rng)
            (update,) = run_works([work], fed.model_of(setup), store)
            own = own - update
        assert np.array_equal(result.served.members[k], own)


def test_without_pull_company_changes_nothing(federation):
    strategy = create("ditto", pull=0)
    together, _ = fed.run(fed.setup_for(federation, strategy), federation)
    for k, client in enumerate(federation.clients):
        alone = replace(federation, clients=(client,))
        own, _ = fed.run(fed.setup_for(alone, strategy), alone)
        assert np.array_equal(own.served.members[0], together.served.members[k])
        for split in ("train", "test"):
            ours, theirs = (r.measured[0][split][client.name] for r in (together, own))
            assert np.array_equal(ours.losses, theirs.losses)


@pytest.mark.parametrize(("lr", "pull"), [(0.5, 2.0), (0.5, 0.7), (0.1, 0.0)])
def test_three_rounds_written_out(federation, lr, pull):
    """v ← v − η(∇L_k(v) + λ(v − w_t)); for ηλ = 1 that is w_t − η∇L_k(v)."""
    setup = fed.setup_for(
        federation, create("ditto", pull=pull), rounds=3, local_epochs=3, **SGD, lr=lr
    )
    _, watch = fed.run(setup, federation)
    for name, rows in naive.rows_of(federation).items():
        v = watch.weights[0].astype(float)
        for t in range(3):
            w = watch.weights[t].astype(float)
            for _ in range(3):
                slope = naive.gradient(lambda u, rows=rows: naive.loss(u, rows), v)
                v = w - lr * slope if lr * pull == 1 else v - lr * (slope + pull * (v - w))
            close(held(watch, t + 1)[name], v, FLOAT32)


def test_a_stronger_pull_keeps_own_models_nearer(federation):
    far = []
    for pull in (0.0, 1.0, 10.0):
        setup = fed.setup_for(
            federation, create("ditto", pull=pull), rounds=4, local_epochs=5, **SGD, lr=0.1
        )
        result, watch = fed.run(setup, federation)
        centre = watch.weights[-2]  # the pull is towards the weights the round began with
        far.append(np.linalg.norm(result.served.members - centre, axis=1))
    assert (far[0] > far[1]).all()
    assert (far[1] > far[2]).all()
    assert (far[2] > 0).all()


# ------------------------------------------------------------------ who takes part, who decides


def test_absent_clients_keep_their_models_and_start_where_they_first_join(federation):
    setup = fed.setup_for(federation, "ditto", rounds=6, participation=0.5, seed=3)
    _, watch = fed.run(setup, federation)
    joined = set()
    for t, record in enumerate(watch.records[1:], start=1):
        drawn = set(record.coefficients)
        assert len(drawn) == 2
        before, after = held(watch, t - 1), held(watch, t)
        joined |= drawn
        assert set(after) == joined
        for name in joined - drawn:
            assert np.array_equal(before[name], after[name])
        for name in drawn & set(before):
            assert not np.array_equal(before[name], after[name])
    # Some joined late, or that would not have been tested.
    assert held(watch, 1).keys() != held(watch, 6).keys()


def test_a_client_that_never_took_part_is_served_the_servers_model(federation):
    setup = fed.setup_for(federation, "ditto", rounds=1, participation=0.5)
    result, watch = fed.run(setup, federation)
    absent = [k for k, name in enumerate(NAMES) if name not in watch.records[1].coefficients]
    assert len(absent) == 2
    for k in absent:
        assert np.array_equal(result.served.members[k], watch.weights[1])


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_every_row_is_decided_by_its_own_clients_model(federation, participation):
    setup = fed.setup_for(
        federation, "ditto", rounds=2, participation=participation, lr=0.05, weight_decay=0.1
    )
    result, watch = fed.run(setup, federation)
    served = result.served
    assert (served.kind, served.clients, served.names) == ("personal", NAMES, ("round 2",) * 4)
    (measured,) = result.measured
    swapped = 0
    for client, own, other in zip(
        federation.clients, served.members, served.members[::-1], strict=True
    ):
        for split in ("train", "test"):
            shard = client.shard(split)
            z, not_its = (
                naive.logits(torch.tensor(w).double(), torch.tensor(shard.X).double()).numpy()
                for w in (own, other)
            )
            found = measured[split][client.name]
            for cell in range(4):
                for y in (0, 1):
                    rows = (shard.cells == cell) & (shard.y == y)
                    assert found.positives[cell, y] == (z[rows] > 0).sum()
            loss = (np.logaddexp(0, z) - shard.y * z).sum()
            np.testing.assert_allclose(found.losses.sum(), loss, rtol=1e-5)
            swapped += ((z > 0) != (not_its > 0)).sum()
            # What a round tells is what would be served.
            assert np.array_equal(
                watch.records[-1].measured[split][client.name].losses, found.losses
            )
    assert swapped > 0  # another client's model decides otherwise


def test_stopping_and_going_on_gives_the_same_bits(federation):
    setup = fed.setup_for(federation, "ditto", rounds=4, participation=0.5)
    fed.assert_resumes(setup, federation)


def test_a_negative_pull_is_refused():
    with pytest.raises(ConfigError, match=r"^strategy\.pull must be at least 0, not -1\.0$"):
        create("ditto", pull=-1)
