"""gram_matrix and weighted_sum against float64 numpy and hand numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.errors import DataError
from mfairfl.geometry import gram_matrix, weighted_sum

BLOCK = 16384
widths = st.sampled_from([1, 7, BLOCK, 3 * BLOCK + 10])


def dense(updates):
    wide = updates.astype(np.float64)
    expected = (wide[:, None] * wide).sum(axis=-1)  # pairwise sums: no error to speak of
    length = np.sqrt(np.diag(expected))
    return expected, np.outer(length, length)


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 9),
    width=widths,
    seed=st.integers(0),
    narrow=st.booleans(),
    kind=st.sampled_from(["normal", "positive", "heavy", "constant"]),
)
def test_is_the_dense_product(clients, width, seed, narrow, kind):
    """float32: within 1e-5 |g_i||g_j|, float64: 1e-13 (what must hold: 1e-3, 2e-12)."""
    rng = np.random.default_rng(seed)
    shape = (clients, width)
    updates = {
        "normal": lambda: rng.normal(size=shape),
        "positive": lambda: rng.random(shape),
        "heavy": lambda: rng.standard_t(1.5, size=shape),
        "constant": lambda: np.full(shape, 0.1),
    }[kind]().astype(np.float32 if narrow else np.float64)
    expected, scale = dense(updates)
    gram = gram_matrix(list(updates))
    assert gram.dtype == np.float64
    assert (np.abs(gram - expected) <= (1e-5 if narrow else 1e-13) * scale).all()
    assert np.array_equal(gram, gram.T)
    assert np.array_equal(gram, gram_matrix(updates))  # a matrix is as good as a list


def test_exact_where_float64_is():
    """Whole numbers: every product and sum is exact."""
    rng = np.random.default_rng(0)
    whole = rng.integers(-(2**18), 2**18, size=(5, 2 * BLOCK + 3))
    expected = [[int(sum(int(v) for v in a * b)) for a in whole] for b in whole]
    for updates in (whole, whole.astype(np.float64), list(whole.astype(np.float64))):
        assert gram_matrix(updates).tolist() == expected


def test_blocks_are_added_up_in_double_precision():
    """In float32, 4096² + 1 would be 4096²."""
    update = np.zeros(BLOCK + 1, dtype=np.float32)
    update[0], update[-1] = 4096, 1
    assert gram_matrix([update]).tolist() == [[2.0**24 + 1]]
    assert gram_matrix(update[None]).tolist() == [[2.0**24 + 1]]


def test_mixed_precision_is_computed_in_the_wider_one():
    updates = [np.array([4096.0, 1.0], dtype=np.float32), np.array([4096.0, 1.0])]
    assert gram_matrix(updates).tolist() == [[2.0**24 + 1] * 2] * 2


@pytest.mark.parametrize("size", [1e-25, 1e-18, 1.0, 1e18, 1e30])
def test_squares_outside_the_range_of_float32(size):
    """1e-25² would be 0 in float32 and 1e30² infinite; the cosine of the pair is 3/5."""
    updates = np.array([[size, 0], [3 * size, 4 * size]], dtype=np.float32)
    gram = gram_matrix(updates)
    np.testing.assert_allclose(gram, size**2 * np.array([[1, 3], [3, 25]]), rtol=1e-6)


def test_a_long_and_a_short_update_together():
    updates = np.array([[1e25, 0], [1e-25, 1e-25]], dtype=np.float32)
    np.testing.assert_allclose(gram_matrix(updates), [[1e50, 1], [1, 2e-50]], rtol=1e-6)


def test_more_clients_than_numpy_takes_arguments():
    updates = list(np.eye(100, dtype=np.float32))
    assert np.array_equal(gram_matrix(updates), np.eye(100))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("function", [gram_matrix, lambda G: weighted_sum(G, np.ones(20))])
def test_no_second_copy_of_the_updates(function, listed):
    """Twenty updates of a million weights: what is added stays below .3 of the updates."""
    updates = np.ones((20, 1_000_000), dtype=np.float32)
    given_ = list(updates) if listed else updates
    tracemalloc.start()
    try:
        function(given_)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.3 * updates.nbytes


def test_by_hand():
    assert gram_matrix([[3.0, 4.0]]).tolist() == [[25.0]]
    assert gram_matrix(np.array([[1, 2], [3, 4]])).tolist() == [[5, 11], [11, 25]]
    assert weighted_sum([[1, 2], [3, 4]], [2, -1]).tolist() == [-1, 0]


def test_no_client():
    assert gram_matrix([]).shape == (0, 0)
    assert gram_matrix(np.zeros((0, 5))).shape == (0, 0)
    assert weighted_sum([], []).shape == (0,)


def test_no_weights():
    assert gram_matrix(np.zeros((2, 0), dtype=np.float32)).tolist() == [[0, 0], [0, 0]]


@settings(max_examples=20, deadline=None)
@given(clients=st.integers(1, 9), width=widths, seed=st.integers(0), narrow=st.booleans())
def test_the_weighted_sum_is_computed_in_double_precision(clients, width, seed, narrow):
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(clients, width)).astype(np.float32 if narrow else np.float64)
    c = rng.normal(size=clients)
    found = weighted_sum(updates, c)
    expected = sum(k * update.astype(np.float64) for k, update in zip(c, updates, strict=True))
    parts = np.abs(c) @ np.abs(updates.astype(np.float64))
    assert (np.abs(found - expected) <= 1e-14 * parts).all()
    assert np.array_equal(found, weighted_sum(list(updates), c))


@pytest.mark.parametrize("wrong", [BLOCK + 1, 3])
def test_updates_of_different_lengths_are_refused(wrong):
    # One more than a block: the surplus lies in a block the first update does not have.
    updates = [np.ones(BLOCK), np.ones(wrong)]
    with pytest.raises(DataError, match="one length"):
        gram_matrix(updates)
    with pytest.raises(DataError, match="one length"):
        weighted_sum(updates, [1, 1])


def test_matrices_in_place_of_vectors_are_refused():
    with pytest.raises(DataError, match="flat vectors"):
        gram_matrix(np.ones((2, 3, 4)))
    with pytest.raises(DataError, match="flat vectors"):
        gram_matrix(np.ones((2, 3, 4)).tolist())


@pytest.mark.parametrize("coefficients", [[1.0], [[1.0], [1.0]], 1.0])
def test_one_coefficient_an_update(coefficients):
    with pytest.raises(DataError, match="for 2 updates: give one each"):
        weighted_sum(np.ones((2, 3)), coefficients)
