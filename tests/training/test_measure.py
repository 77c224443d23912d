"""Measurements against hand-made logits and row-by-row numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_naive import make_shard, net

from mfairfl.models import MLP, logistic
from mfairfl.training.batches import Pool
from mfairfl.training.measure import Probe, logits, measure

IDENTITY = np.array([1.0, 0.0], dtype=np.float32)  # logistic(1): the feature is the logit


def shard_of(z, y, cells):
    return np.array(z, np.float32)[:, None], np.array(y, np.int8), np.array(cells, np.int32)


def test_sums_by_hand():
    # σ(0) = ½, σ(± ln 3) = ¾, ¼; a logit of exactly 0 is not a positive decision.
    log3 = math.log(3)
    shard = shard_of([0, log3, -log3, log3], y=[0, 1, 1, 0], cells=[0, 0, 1, 1])
    pool, (rows,) = Pool.from_arrays([shard], cells=3)
    (found,) = measure([Probe(IDENTITY, rows)], logistic(1), pool)
    assert found.counts.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert found.positives.tolist() == [[0, 1], [1, 0], [0, 0]]
    np.testing.assert_allclose(found.scores, [[0.5, 0.75], [0.75, 0.25], [0, 0]], atol=1e-7)
    expected = [[math.log(2), math.log(4 / 3)], [math.log(4), math.log(4)], [0, 0]]
    np.testing.assert_allclose(found.losses, expected, atol=1e-7)


def test_extreme_logits_have_finite_losses():
    shard = shard_of([1000, -1000, 1000, -1000], y=[1, 0, 0, 1], cells=[0, 0, 1, 1])
    pool, (rows,) = Pool.from_arrays([shard], cells=2)
    (found,) = measure([Probe(IDENTITY, rows)], logistic(1), pool)
    assert found.losses.tolist() == [[0, 0], [1000, 1000]]
    assert found.scores.tolist() == [[0, 1], [1, 0]]


def test_a_client_without_rows_measures_zeros():
    shards = [shard_of([1.0], [1], [0]), shard_of([], [], [])]
    pool, ranges = Pool.from_arrays(shards, cells=2)
    full, empty = measure([Probe(IDENTITY, rows) for rows in ranges], logistic(1), pool)
    assert full.counts.sum() == 1
    for name in ("counts", "positives", "scores", "losses"):
        assert getattr(empty, name).tolist() == [[0, 0], [0, 0]]


def row_by_row(z, y, cells, size):
    """Sums over (cell, label) with nothing but a loop and `math`."""
    sums = np.zeros((4, size, 2))
    for value, label, cell in zip(z.tolist(), y.tolist(), cells.tolist(), strict=True):
        score = 1 / (1 + math.exp(-value))
        loss = -math.log(score if label else 1 - score)
        sums[:, cell, label] += (1, value > 0, score, loss)
    return sums


@pytest.mark.parametrize("hidden", [(), (4,), (32, 32)])
@pytest.mark.parametrize("n", [1, 31, 512, 513, 9000])
def test_random_rows_equal_numpy(hidden, n):
    # 9000 rows are more than one pass of 16 blocks of 512.
    model = MLP(5, hidden)
    weights = model.init(np.random.default_rng(n))
    shards = [make_shard(37, 5, seed=0, cells=3), make_shard(n, 5, seed=n, cells=3)]
    pool, ranges = Pool.from_arrays(shards, cells=3)
    probe = Probe(weights, ranges[1])
    X, y, cells = shards[1]
    (z,) = logits([probe], model, pool)
    expected = net(torch.tensor(weights).double(), torch.tensor(X).double(), hidden)
    torch.testing.assert_close(z.double(), expected, rtol=1e-5, atol=1e-5)
    (found,) = measure([probe], model, pool)
    sums = row_by_row(z.double(), y, cells, 3)
    for name, value in zip(("counts", "positives", "scores", "losses"), sums, strict=True):
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-9, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 700), min_size=2, max_size=5),
    inputs=st.integers(1, 17),
    hidden=st.sampled_from([(), (4,), (5, 3), (32, 32)]),
    seed=st.integers(0, 2**32),
)
def test_alone_equals_together_bit_for_bit(sizes, inputs, hidden, seed):
    model, rng = MLP(inputs, hidden), np.random.default_rng(seed)
    shards = [make_shard(n, inputs, seed + i) for i, n in enumerate(sizes)]
    bank = np.stack([model.init(rng) for _ in sizes])  # rows of odd alignment, as from a file
    pool, ranges = Pool.from_arrays(shards, cells=2)
    together = measure([Probe(w, r) for w, r in zip(bank, ranges, strict=True)], model, pool)
    for weights, shard, found in zip(bank, shards, together, strict=True):
        own, (rows,) = Pool.from_arrays([shard], cells=2)
        (alone,) = measure([Probe(weights.copy(), rows)], model, own)
        for name in ("counts", "positives", "scores", "losses"):
            assert np.array_equal(getattr(found, name), getattr(alone, name)), name
