"""Training and measuring on rows held as indices: near dense rows, same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from training_naive import make_shard, naive_train, net

from mfairfl.data import Inputs
from mfairfl.models import MLP, ModuleModel
from mfairfl.training.batches import RowStore
from mfairfl.training.measure import Probe, logits, measure
from mfairfl.training.plan import Optimizer, Plan
from mfairfl.training.trainer import Work, run_works

LEVELS = (40, 3, 17)
OPTIMIZERS = [
    Optimizer(name="adamw", lr=1e-2, weight_decay=0.1),
    Optimizer(name="sgd", lr=0.1, weight_decay=0.1),
    Optimizer(name="gradient"),
]


def wide_shard(n, numbers, seed, gaps=0.05):
    """Some numbers and three one-hot columns, some of whose rows name no level."""
    rng = np.random.default_rng(seed)
    X, y, cells = make_shard(n, max(1, numbers), seed)
    codes = numbers + np.cumsum([0, *LEVELS[:-1]]) + rng.integers(0, LEVELS, size=(n, 3))
    codes[rng.random(codes.shape) < gaps] = -1
    width = numbers + sum(LEVELS)
    return Inputs(X[:, :numbers].copy(), codes.astype(np.int32), width), y, cells


def works_of(model, ranges, plan, seeds):
    starts = [model.init(np.random.default_rng(seed)) for seed in seeds]
    return [
        Work(plan=plan, start=start, rows=rows, rng=np.random.default_rng(seed))
        for start, rows, seed in zip(starts, ranges, seeds, strict=True)
    ]


@pytest.mark.parametrize("optimizer", OPTIMIZERS[:2], ids=lambda o: o.name)
@pytest.mark.parametrize("hidden", [(), (8, 5)])
@pytest.mark.parametrize("numbers", [0, 4])
def test_training_equals_the_dense_loop_in_float64(numbers, hidden, optimizer):
    inputs, y, cells = wide_shard(150, numbers, seed=1)
    model = MLP(inputs.width, hidden)
    store, ranges = RowStore.from_arrays([(inputs, y, cells)], cells=2)
    plan = Plan(
        epochs=3, batch_size=40, optimizer=optimizer, loss_table=((1, 0.5), (2, 1.5)), proximal=0.1
    )
    (update,) = run_works(works_of(model, ranges, plan, [7]), model, store)
    (theirs,) = works_of(model, ranges, plan, [7])
    expected = naive_train((inputs.dense(), y, cells), hidden, theirs)
    assert np.abs(expected).max() > 0.02
    np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40) | st.integers(41, 300), min_size=2, max_size=6),
    numbers=st.integers(0, 9),
    hidden=st.sampled_from([(), (2,), (5, 3), (16, 7), (32, 32)]),
    batch=st.sampled_from([20, 32, 77, 512]),
    optimizer=st.sampled_from(OPTIMIZERS),
    gaps=st.sampled_from([0.0, 0.01, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_alone_equals_together_bit_for_bit(sizes, numbers, hidden, batch, optimizer, gaps, seed):
    shards = [wide_shard(n, numbers, seed + i, gaps) for i, n in enumerate(sizes)]
    model = MLP(numbers + sum(LEVELS), hidden)
    store, ranges = RowStore.from_arrays(shards, cells=2)
    plan, seeds = Plan(epochs=2, batch_size=batch, optimizer=optimizer), range(len(sizes))
    together = run_works(works_of(model, ranges, plan, seeds), model, store)
    weights = [model.init(np.random.default_rng(i)) for i in seeds]
    probes = [Probe(w, rows) for w, rows in zip(weights, ranges, strict=True)]
    measured = measure(probes, model, store)
    for i, shard in enumerate(shards):
        own, at = RowStore.from_arrays([shard], cells=2)
        (alone,) = run_works(works_of(model, at, plan, [i]), model, own)
        assert np.array_equal(alone, together[i])
        (one,) = measure([Probe(weights[i], at[0])], model, own)
        for name in ("counts", "positives", "scores", "losses"):
            assert np.array_equal(getattr(one, name), getattr(measured[i], name)), name


@pytest.mark.parametrize("hidden", [(), (8,), (32, 32)])
@pytest.mark.parametrize("numbers", [0, 5])
def test_small_clients_of_one_model_equal_each_alone_bit_for_bit(numbers, hidden):
    """They share blocks, and only some of them name no level: looked up in another way."""
    sizes, gaps = [1, 7, 20, 31, 32, 2, 90, 5, 5, 5, 30], [0.0, 0.3]
    shards = [wide_shard(n, numbers, i, gaps[i % 2]) for i, n in enumerate(sizes)]
    model = MLP(numbers + sum(LEVELS), hidden)
    weights = model.init(np.random.default_rng(0))
    store, ranges = RowStore.from_arrays(shards, cells=2)
    together = logits([Probe(weights, rows) for rows in ranges], model, store)
    for shard, found in zip(shards, together, strict=True):
        own, (rows,) = RowStore.from_arrays([shard], cells=2)
        (alone,) = logits([Probe(weights, rows)], model, own)
        assert torch.equal(found, alone)


@pytest.mark.parametrize("hidden", [(), (8,), (32, 32)])
@pytest.mark.parametrize("numbers", [0, 5])
def test_logits_equal_the_dense_network_wherever_a_row_stands(numbers, hidden):
    inputs, y, cells = wide_shard(700, numbers, seed=3)
    model = MLP(inputs.width, hidden)
    weights = model.init(np.random.default_rng(0))
    store, (rows,) = RowStore.from_arrays([(inputs, y, cells)], cells=2)
    (z,) = logits([Probe(weights, rows)], model, store)
    X = torch.from_numpy(inputs.dense()).double()
    expected = net(torch.tensor(weights).double(), X, hidden)
    torch.testing.assert_close(z, expected, rtol=1e-5, atol=1e-5)
    turned = np.roll(np.arange(700), 137)
    other, (at,) = RowStore.from_arrays([(inputs[turned], y[turned], cells[turned])], cells=2)
    (again,) = logits([Probe(weights, at)], model, other)
    assert np.array_equal(again.numpy(), z.numpy()[turned])


def test_a_module_gets_the_dense_rows():
    inputs, y, cells = wide_shard(90, 3, seed=4)
    module = ModuleModel(
        lambda d: nn.Sequential(nn.Linear(d, 7), nn.Tanh(), nn.Linear(7, 1)), inputs.width
    )
    plan, found = Plan(epochs=2, batch_size=32, optimizer=OPTIMIZERS[0]), []
    for X in (inputs, inputs.dense()):
        store, ranges = RowStore.from_arrays([(X, y, cells)], cells=2)
        (update,) = run_works(works_of(module, ranges, plan, [1]), module, store)
        (z,) = logits(
            [Probe(works_of(module, ranges, plan, [1])[0].start, ranges[0])], module, store
        )
        found.append((update, z.numpy()))
    for ours, dense in zip(*found, strict=True):
        assert np.array_equal(ours, dense)


def test_a_pool_of_adjacent_rows_copies_neither_numbers_nor_indices():
    whole, y, cells = wide_shard(50, 4, seed=5)
    shards = [(whole[a:b], y[a:b], cells[a:b]) for a, b in [(0, 20), (20, 20), (20, 50)]]
    store, ranges = RowStore.from_arrays(shards, cells=2)
    assert np.shares_memory(store.X.numpy(), whole.numbers)
    assert np.shares_memory(store.codes.numpy(), whole.codes)
    assert ranges == [range(20), range(20, 20), range(20, 50)]
    apart, _ = RowStore.from_arrays(shards[::-1], cells=2)
    assert np.array_equal(
        apart.codes.numpy(), np.concatenate([whole.codes[20:], whole.codes[:20]])
    )
