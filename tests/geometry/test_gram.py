"""gram_matrix against float64 numpy and hand numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.errors import DataError
from mfairfl.geometry import gram_matrix


@settings(max_examples=25, deadline=None)
@given(clients=st.integers(1, 9), width=st.sampled_from([1, 7, 65536, 70001]), seed=st.integers(0))
def test_equals_the_dense_product_in_float64(clients, width, seed):
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(clients, width)).astype(np.float32)
    wide = updates.astype(np.float64)
    expected = np.einsum("im,jm->ij", wide, wide)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    gram = gram_matrix(list(updates))
    assert gram.dtype == np.float64
    assert np.abs(gram - expected).max() <= 1e-12 * scale.max()
    assert np.array_equal(gram, gram.T)
    assert np.array_equal(gram, gram_matrix(updates))  # a matrix is as good as a list


def test_accumulates_in_double_precision():
    # In float32 the sum of 2²⁴ and 1 is 2²⁴.
    assert gram_matrix([np.array([4096.0, 1.0], dtype=np.float32)]).tolist() == [[2.0**24 + 1]]


def test_blocks_add_up():
    # ones · ones over two whole blocks and a rest; an alternating vector is orthogonal to ones.
    width = 2 * 65536 + 10
    alternating = np.resize([1.0, -1.0], width)
    gram = gram_matrix([np.ones(width), 2 * alternating])
    assert gram.tolist() == [[width, 0], [0, 4 * width]]


def test_one_client_is_its_squared_norm():
    assert gram_matrix([[3.0, 4.0]]).tolist() == [[25.0]]


def test_no_client_has_an_empty_matrix():
    assert gram_matrix([]).shape == (0, 0)


@pytest.mark.parametrize("wrong", [65537, 3])
def test_updates_of_different_lengths_are_refused(wrong):
    # 65537: the surplus lies in a block the first update does not have.
    with pytest.raises(DataError, match="one length"):
        gram_matrix([np.ones(65536), np.ones(wrong)])


def test_matrices_in_place_of_vectors_are_refused():
    with pytest.raises(DataError, match="flat vectors"):
        gram_matrix(np.ones((2, 3, 4)))
