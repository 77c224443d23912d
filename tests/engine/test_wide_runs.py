"""Whole runs on rows held as indices: no dense matrix, the same bits alone and resumed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.data import Inputs
from mfairfl.engine.clients import MemorySlots, SoleClient
from mfairfl.engine.embedded import run_all
from mfairfl.engine.state import Measure, Score, Train
from mfairfl.training.plan import Job


@pytest.fixture(scope="module")
def federation():
    return fed.wide_federation(validation=0.1)


@pytest.fixture
def no_dense(monkeypatch):
    """Make every attempt to write rows out an error."""

    def refuse(self):
        raise AssertionError(f"{len(self)} rows were made dense")

    monkeypatch.setattr(Inputs, "dense", refuse)


def densely(federation):
    """The same federation with every input as a number."""
    pool = replace(federation.pool, inputs=Inputs.of(federation.pool.X))
    clients = [
        replace(client, **{s: replace(shard, inputs=Inputs.of(shard.X)) for s, shard in shards})
        for client in federation.clients
        for shards in [[(s, client.shard(s)) for s in ("train", "validation", "test")]]
    ]
    return replace(federation, pool=pool, clients=tuple(clients))


@pytest.mark.parametrize("strategy", ["fedavg", "mfairfl", "cenfair", "ditto"])
def test_no_dense_matrix_is_made(federation, no_dense, strategy):
    result, _ = fed.run(fed.setup_for(federation, strategy, rounds=2), federation)
    assert np.isfinite(result.served.members).all()


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_runs_end_near_those_on_dense_rows(federation, hidden):
    setup = fed.setup_for(federation, "fedavg", rounds=2, hidden=hidden)
    found, watch = fed.run(setup, federation)
    dense, other = fed.run(setup, densely(federation))
    moved = np.abs(watch.weights[-1] - fed.first(setup).weights).max()
    assert moved > 0.01
    np.testing.assert_allclose(watch.weights, other.weights, atol=1e-4 * moved)
    assert found.served.names == dense.served.names


def test_a_client_answers_alone_as_among_others(federation):
    setup = fed.setup_for(federation, hidden=(8,))
    together, state = fed.clients_and_state(setup, federation)
    client = next(c for c in federation.clients if c.name == "west")
    model = fed.model_of(setup)
    alone = SoleClient(client, model, federation.attributes, setup.seed, MemorySlots({}))
    for round_ in range(2):
        plan = setup.recipe.plan(round_, setup.rounds)
        job = Job(client="west", plan=plan)
        ask = Train(round_, {"west": state.weights}, (job,))
        (ours,), (theirs,) = alone.answer(ask), together.answer({0: ask})[0]["west"]
        assert np.array_equal(ours.update, theirs.update)
    both = ("train", "test")
    (measured,) = together.answer({0: Measure((state.weights,), both)})[0]["west"]
    (own,) = alone.answer(Measure((state.weights,), both))
    scored = together.answer({0: Score(state.weights, both)})[0]["west"]
    for split, found in alone.answer(Score(state.weights, both)).items():
        assert np.array_equal(found.sums, scored[split].sums)
        for name in ("counts", "positives", "scores", "losses"):
            expected = getattr(measured[split], name)
            assert np.array_equal(getattr(own[split], name), expected)


def test_stopping_and_resuming_changes_no_bit(federation):
    fed.assert_resumes(fed.setup_for(federation, "mfairfl", rounds=2), federation)


def test_runs_of_one_width_and_different_layouts_run_side_by_side(federation):
    """A model of the same size may have rows as numbers or as indices."""
    setup, dense = fed.setup_for(federation, rounds=1), densely(federation)
    both = run_all([fed.member_of(setup, one) for one in (federation, dense)])
    for one, found in zip((federation, dense), both, strict=True):
        (alone,) = run_all([fed.member_of(setup, one)])
        assert fed.bits(found) == fed.bits(alone)


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same_bits(federation, workers):
    setup = fed.setup_for(federation, "mfairfl", rounds=2)
    (alone,) = run_all([fed.member_of(setup, federation)], workers=1)
    (shared,) = run_all([fed.member_of(setup, federation)], workers=workers)
    assert fed.bits(shared) == fed.bits(alone)
