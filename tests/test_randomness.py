"""Streams are functions of their keys: not of order, not of company, not of how keys join."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from mfairfl.randomness import stream


def numbers(*keys):
    return stream(*keys).integers(2**62, size=4).tolist()


def test_the_same_keys_give_the_same_numbers_in_any_order_of_asking():
    keys = [(0, "batches", 1, "a"), (0, "batches", 1, "b"), (3, "init")]
    first = {key: numbers(*key) for key in keys}
    stream(0, "server", 9).random(1000)  # somebody else draws in between
    assert {key: numbers(*key) for key in reversed(keys)} == first


def test_different_keys_give_different_numbers():
    keys = [
        (0,),
        (1,),
        (0, 1),
        (0, "1"),
        (1, 0),
        (0, "a", "b"),
        (0, "b", "a"),
        (0, "ab"),
        (0, "a", ""),
        (0, "a"),
        (0, 12),
        (0, 1, 2),
        (0, 'a", "b'),
        (0, "a\x1fstr:b"),
    ]
    for a, b in combinations(keys, 2):
        assert numbers(*a) != numbers(*b), (a, b)


def test_numpy_strings_are_strings():
    # Client names read from an array must not start other streams than typed ones.
    assert numbers(0, np.str_("a")) == numbers(0, "a")


def test_a_key_without_one_spelling_is_refused():
    with pytest.raises(TypeError):
        stream(0, object())


def test_names_in_any_script_are_keys():
    assert numbers(0, "Krankenhaus Süd") != numbers(0, "Krankenhaus Sud")
    assert numbers(0, "\udc80") != numbers(0, "\udc81")  # undecodable bytes of a file name


def test_neighbouring_streams_are_uncorrelated():
    draws = np.stack([stream(0, "batches", r, "a").random(2000) for r in range(8)])
    # Off-diagonal correlations of independent draws have standard deviation 1/√2000 = .022.
    assert np.abs(np.corrcoef(draws) - np.eye(8)).max() < 0.12
