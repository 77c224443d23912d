"""RowStore and Deck: every row where it belongs, once an epoch, with the weight of a mean."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.training.batches import LANES, Deck, RowStore, padded_batch

ROWS, BATCH = st.integers(1, 400), st.integers(1, 600)


@given(rows=st.integers(0, 5000), batch=BATCH)
def test_a_padded_batch_holds_the_batch_in_whole_lanes(rows, batch):
    width = padded_batch(rows, batch)
    assert width % LANES == 0
    assert width >= min(rows, batch)
    assert width < max(2 * rows, LANES + 1)  # a small client is not padded to a large batch
    assert width < batch + LANES


@pytest.mark.parametrize(
    ("rows", "batch", "width"),
    [
        (0, 512, 32),
        (1, 512, 32),
        (32, 512, 32),
        (33, 512, 64),
        (65, 512, 96),
        (96, 512, 96),
        (97, 512, 128),
        (129, 512, 192),
        (200, 512, 256),
        (300, 512, 384),
        (400, 512, 512),
        (600, 512, 512),
        (10**6, 500, 512),
        (10**6, 33, 64),
    ],
)
def test_padded_batch_by_hand(rows, batch, width):
    assert padded_batch(rows, batch) == width


def deal(deck, count):
    """The next batches; what was in the memory before must not matter."""
    index, weight = np.full((count, deck.width), -1), np.full((count, deck.width), np.nan)
    deck.deal(index, weight)
    return index, weight.astype(np.float32)


@given(n=ROWS, batch=BATCH, start=st.integers(0, 10_000), epochs=st.integers(1, 3))
def test_every_row_comes_once_an_epoch_in_batches_that_are_means(n, batch, start, epochs):
    deck = Deck(range(start, start + n), batch, np.random.default_rng(0))
    expected = np.random.default_rng(0)
    sizes = [min(batch, n - at) for at in range(0, n, batch)]
    assert deck.batches == len(sizes)
    for _ in range(epochs):
        index, weight = deal(deck, deck.batches)
        assert index.shape == weight.shape == (len(sizes), deck.width)
        real = weight > 0
        assert (index[real] - start).tolist() == expected.permutation(n).tolist()
        assert sorted(index[real] - start) == list(range(n))
        assert real.sum(axis=1).tolist() == sizes
        np.testing.assert_allclose(weight.sum(axis=1), 1, rtol=1e-5)
        for row, size in zip(weight, sizes, strict=True):
            assert set(row.tolist()) <= {0.0, float(np.float32(1 / size))}
        assert ((index >= start) & (index < start + n)).all()  # padding points at own rows too


@given(n=ROWS, batch=BATCH, cuts=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_batches_do_not_depend_on_how_many_are_dealt_at_once(n, batch, cuts):
    one, many = (Deck(range(n), batch, np.random.default_rng(5)) for _ in range(2))
    parts = [deal(one, count) for count in cuts]
    index, weight = deal(many, sum(cuts))
    assert np.array_equal(np.concatenate([i for i, _ in parts]), index)
    assert np.array_equal(np.concatenate([w for _, w in parts]), weight)


@given(n=ROWS, batch=BATCH)
def test_without_a_stream_rows_come_in_order_and_share_one_mean(n, batch):
    deck = Deck(range(7, 7 + n), batch, None)
    index, weight = deal(deck, deck.batches)
    assert index[weight > 0].tolist() == list(range(7, 7 + n))
    assert set(weight[weight > 0].tolist()) == {float(np.float32(1 / n))}


def test_a_client_without_rows_has_no_batches():
    assert Deck(range(4, 4), 32, np.random.default_rng(0)).batches == 0


@given(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=5))
def test_the_pool_gives_back_every_shard(sizes):
    rng = np.random.default_rng(0)
    shards = [
        (
            rng.normal(size=(n, 3)).astype(np.float32),
            rng.integers(0, 2, n).astype(np.int8),
            rng.integers(0, 4, n).astype(np.int32),
        )
        for n in sizes
    ]
    store, ranges = RowStore.from_arrays(shards, cells=4)
    assert [len(rows) for rows in ranges] == sizes
    for rows, (X, y, cells) in zip(ranges, shards, strict=True):
        here = slice(rows.start, rows.stop)
        assert np.array_equal(store.X[here].numpy(), X)
        assert store.y[here].tolist() == y.tolist()
        assert (store.strata[here] // 2).tolist() == cells.tolist()
        assert (store.strata[here] % 2).tolist() == y.tolist()
    assert len(store.X) == len(store.y) == len(store.strata) == sum(sizes)


def test_neighbouring_shards_do_not_overlap():
    rows = [np.full((n, 1), n, dtype=np.float32) for n in (40, 1, 33)]
    shards = [(X, np.zeros(len(X)), np.zeros(len(X))) for X in rows]
    _, ranges = RowStore.from_arrays(shards, cells=1)
    assert not set(ranges[0]) & set(ranges[1]) | set(ranges[1]) & set(ranges[2])


def shards_of(arrays):
    return [(X, np.zeros(len(X), np.int8), np.zeros(len(X), np.int32)) for X in arrays]


@pytest.mark.parametrize("edges", [[0, 7, 7, 30], [2, 5, 30], [0, 0, 30], [0, 30]])
def test_adjacent_rows_of_one_array_are_not_copied(edges):
    whole = np.arange(90, dtype=np.float32).reshape(30, 3)
    whole.flags.writeable = False
    parts = [whole[a:b] for a, b in itertools.pairwise(edges)]
    store, ranges = RowStore.from_arrays(shards_of(parts), cells=1)
    assert np.shares_memory(store.X.numpy(), whole)
    for rows, part in zip(ranges, parts, strict=True):
        assert np.array_equal(store.X[rows.start : rows.stop].numpy(), part)


WHOLE = np.arange(90, dtype=np.float32).reshape(30, 3)


@pytest.mark.parametrize(
    "parts",
    [
        [WHOLE[10:], WHOLE[:10]],  # another order
        [WHOLE[:10], WHOLE[11:]],  # a row between
        [WHOLE[:10], WHOLE[:10]],  # twice the same
        [WHOLE[:10].copy(), WHOLE[10:]],  # of two owners
        [WHOLE[::2], WHOLE[1::2]],  # not every row
        [WHOLE.astype(np.float64)],
        [np.asfortranarray(WHOLE)],
    ],
)
def test_all_others_are_copied(parts):
    store, ranges = RowStore.from_arrays(shards_of(parts), cells=1)
    assert not any(np.shares_memory(store.X.numpy(), part) for part in parts)
    for rows, part in zip(ranges, parts, strict=True):
        assert np.array_equal(store.X[rows.start : rows.stop].numpy(), part)


def test_the_memory_of_a_view_is_kept_alive():
    parts = np.split(np.ones((1000, 50), np.float32), 2)
    store, _ = RowStore.from_arrays(shards_of(parts), cells=1)
    del parts
    np.zeros((1000, 50), np.float32)  # would take the place of what was freed
    assert bool((store.X == 1).all())


def test_read_only_arrays_are_fine():
    X, y, cells = np.ones((2, 1), np.float32), np.ones(2, np.int8), np.zeros(2, np.int32)
    for part in (X, y, cells):
        part.flags.writeable = False
    store, _ = RowStore.from_arrays([(X, y, cells)], cells=1)
    assert store.strata[:2].tolist() == [1, 1]
