"""Tallies and pooled losses from sums, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.engine.output import Served
from mfairfl.engine.tallies import mean_loss, pooled, served_tally, tally_of
from rounds import SEX, statistics

A = statistics([[4, 6], [3, 7]], [[1, 5], [0, 7]], [[1, 2], [3, 4]])
B = statistics([[2, 0], [0, 1]], [[2, 0], [0, 0]], [[5, 0], [0, 1]])


def test_a_tally_counts_decisions_by_client_in_name_order():
    tally = tally_of({"b": B, "a": A}, SEX)
    assert tally.clients == ("a", "b")
    assert tally.counts.dtype == np.int64
    # counts[client][group][label] = [refused, favoured]
    assert tally.counts.tolist() == [
        [[[3, 1], [1, 5]], [[3, 0], [0, 7]]],
        [[[0, 2], [0, 0]], [[0, 0], [1, 0]]],
    ]


def test_a_mixtures_tally_is_the_expected_one():
    other = statistics([[4, 6], [3, 7]], [[4, 6], [3, 7]])
    mixed = Served(
        kind="mixture",
        members=np.zeros((2, 1), np.float32),
        weights=np.array([0.25, 0.75]),
        names=("x", "y"),
    )
    tally = served_tally(mixed, [{"test": {"a": A}}, {"test": {"a": other}}], "test", SEX)
    # ¼·[3, 1] + ¾·[0, 4] = [.75, 3.25], and so on.
    assert tally.counts[0].tolist() == [[[0.75, 3.25], [0.25, 5.75]], [[0.75, 2.25], [0, 7]]]
    assert tally.counts.sum() == 20


def test_the_pooled_loss_is_a_mean_over_rows_not_over_clients():
    assert mean_loss(pooled({"a": A, "b": B})) == pytest.approx(16 / 23)
    none = statistics(np.zeros((2, 2)), np.zeros((2, 2)))
    assert np.isnan(mean_loss(pooled({"a": none})))


def test_the_pooled_loss_has_the_same_bits_however_clients_are_listed():
    """.1 + .2 + .3 is not .3 + .2 + .1 in floating point."""
    losses = {"a": 0.1, "b": 0.2, "c": 0.3}
    one = np.array([[1.0, 0.0], [0.0, 0.0]])
    parts = {n: statistics(one, 0 * one, one * loss) for n, loss in losses.items()}
    turned = dict(reversed(parts.items()))
    assert mean_loss(pooled(parts)) == mean_loss(pooled(turned)) == (0.1 + 0.2 + 0.3) / 3
