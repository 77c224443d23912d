"""Looked-up rows and sums by code equal products with the one-hot matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.models import add_looked_up, sums_by_code, with_one_hot

SHAPES = {
    "stack": st.integers(1, 4),
    "batch": st.integers(1, 70),
    "units": st.sampled_from([1, 2, 5, 16, 33]),
    "numbers": st.integers(0, 4),
    "levels": st.lists(st.integers(1, 12), min_size=1, max_size=4),
    "gaps": st.sampled_from([0.0, 0.2, 1.0]),
    "seed": st.integers(0, 2**32),
}


def draw_codes(rng, stack, batch, numbers, levels, gaps):
    """Codes of columns that lie one after the other, some of which name nothing."""
    first = numbers + np.cumsum([0, *levels[:-1]])
    codes = first + rng.integers(0, levels, size=(stack, batch, len(levels)))
    codes[rng.random(codes.shape) < gaps] = -1
    return torch.tensor(codes, dtype=torch.int32)


def one_hot(codes, width):
    """The dense matrix, entry by entry."""
    found = np.zeros((*codes.shape[:2], width))
    for s, b, j in np.ndindex(*codes.shape):
        if codes[s, b, j] >= 0:
            found[s, b, codes[s, b, j]] += 1
    return found


@settings(max_examples=60, deadline=None)
@given(**SHAPES)
def test_both_products_are_exact(stack, batch, units, numbers, levels, gaps, seed):
    """On quarters, which no sum of them rounds."""
    rng, width = np.random.default_rng(seed), numbers + sum(levels)
    codes = draw_codes(rng, stack, batch, numbers, levels, gaps)
    X = one_hot(codes, width)
    weights, upper, out = (
        rng.integers(-9, 10, size=shape) / 4
        for shape in [(stack, width, units), (stack, batch, units), (stack, batch, units)]
    )
    found = torch.tensor(out, dtype=torch.float32)
    add_looked_up(found, torch.tensor(weights, dtype=torch.float32), codes)
    assert np.array_equal(found.numpy(), out + X @ weights)
    sums = sums_by_code(torch.tensor(upper, dtype=torch.float32), codes, numbers, width)
    assert np.array_equal(sums.numpy(), (X.transpose(0, 2, 1) @ upper)[:, numbers:])


@settings(max_examples=40, deadline=None)
@given(**SHAPES)
def test_real_numbers_come_near_and_have_the_same_bits_alone(
    stack, batch, units, numbers, levels, gaps, seed
):
    rng, width = np.random.default_rng(seed), numbers + sum(levels)
    codes = draw_codes(rng, stack, batch, numbers, levels, gaps)
    X = one_hot(codes, width)
    weights = torch.from_numpy(rng.normal(size=(stack, width, units)).astype(np.float32))
    upper = torch.from_numpy(rng.normal(size=(stack, batch, units)).astype(np.float32))
    out = torch.zeros(stack, batch, units)
    add_looked_up(out, weights, codes)
    sums = sums_by_code(upper, codes, numbers, width)
    np.testing.assert_allclose(out, X @ weights.numpy(), rtol=1e-5, atol=1e-5)
    slopes = (X.transpose(0, 2, 1) @ upper.numpy())[:, numbers:]
    np.testing.assert_allclose(sums, slopes, rtol=1e-4, atol=1e-4)
    for i in range(stack):
        alone = torch.zeros(1, batch, units)
        add_looked_up(alone, weights[i : i + 1].clone(), codes[i : i + 1].clone())
        assert torch.equal(alone[0], out[i])
        own = sums_by_code(upper[i : i + 1].clone(), codes[i : i + 1].clone(), numbers, width)
        assert torch.equal(own[0], sums[i])


def test_a_row_s_bits_do_not_depend_on_its_place():
    rng = np.random.default_rng(0)
    codes = draw_codes(rng, 1, 64, 3, [40, 7, 90], 0.1)
    weights = torch.from_numpy(rng.normal(size=(1, 140, 33)).astype(np.float32))
    straight, turned = torch.zeros(1, 64, 33), torch.zeros(1, 64, 33)
    add_looked_up(straight, weights, codes)
    add_looked_up(turned, weights, codes.flip(1))
    assert torch.equal(straight, turned.flip(1))


def test_padding_without_weight_adds_nothing_to_a_sum():
    """A batch's padding points at a row of its own client and has slope 0."""
    rng = np.random.default_rng(1)
    codes = draw_codes(rng, 1, 20, 0, [5, 8], 0.1)
    upper = torch.from_numpy(rng.normal(size=(1, 20, 4)).astype(np.float32))
    padded = torch.cat([codes, codes[:, :1].expand(1, 12, 2)], dim=1)
    zeros = torch.cat([upper, torch.zeros(1, 12, 4)], dim=1)
    assert torch.equal(sums_by_code(zeros, padded, 0, 13), sums_by_code(upper, codes, 0, 13))


@pytest.mark.parametrize("numbers", [0, 2])
def test_dense_rows_are_those_entry_by_entry(numbers):
    rng = np.random.default_rng(2)
    codes = draw_codes(rng, 2, 9, numbers, [3, 4], 0.3)
    values = torch.from_numpy(rng.normal(size=(2, 9, numbers)).astype(np.float32))
    X = one_hot(codes, numbers + 7).astype(np.float32)
    X[..., :numbers] = values
    assert np.array_equal(with_one_hot(values, codes, numbers + 7).numpy(), X)
