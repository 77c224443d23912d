"""Measurements against hand-made logits and row-by-row numpy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_naive import make_shard, net

from metric_tables import score_numbers
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.models import MLP, logistic
from mfairfl.training import measure as measuring
from mfairfl.training.batches import LANES, RowStore, whole_lanes
from mfairfl.training.execution import steady_arithmetic
from mfairfl.training.measure import Probe, logits, measure, score_sums
from rounds import close

RULE = Thresholds([[-math.inf, 0.5], [0.0, math.inf]], [[0.25, 0.75], [0.4, 0.6]])
IDENTITY = np.array([1.0, 0.0], dtype=np.float32)  # logistic(1): the feature is the logit


def shard_of(z, y, cells):
    return np.array(z, np.float32)[:, None], np.array(y, np.int8), np.array(cells, np.int32)


def test_sums_by_hand():
    # σ(0) = ½, σ(± ln 3) = ¾, ¼; a logit of exactly 0 is not a positive decision.
    log3 = math.log(3)
    shard = shard_of([0, log3, -log3, log3], y=[0, 1, 1, 0], cells=[0, 0, 1, 1])
    store, (rows,) = RowStore.from_arrays([shard], cells=3)
    (found,) = measure([Probe(IDENTITY, rows)], logistic(1), store)
    assert found.counts.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert found.positives.tolist() == [[0, 1], [1, 0], [0, 0]]
    np.testing.assert_allclose(found.scores, [[0.5, 0.75], [0.75, 0.25], [0, 0]], atol=1e-7)
    expected = [[math.log(2), math.log(4 / 3)], [math.log(4), math.log(4)], [0, 0]]
    np.testing.assert_allclose(found.losses, expected, atol=1e-7)


def test_extreme_logits_have_finite_losses():
    shard = shard_of([1000, -1000, 1000, -1000], y=[1, 0, 0, 1], cells=[0, 0, 1, 1])
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    (found,) = measure([Probe(IDENTITY, rows)], logistic(1), store)
    assert found.losses.tolist() == [[0, 0], [1000, 1000]]
    assert found.scores.tolist() == [[0, 1], [1, 0]]


def test_a_client_without_rows_measures_zeros():
    shards = [shard_of([1.0], [1], [0]), shard_of([], [], [])]
    store, ranges = RowStore.from_arrays(shards, cells=2)
    full, empty = measure([Probe(IDENTITY, rows) for rows in ranges], logistic(1), store)
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
    store, ranges = RowStore.from_arrays(shards, cells=3)
    probe = Probe(weights, ranges[1])
    X, y, cells = shards[1]
    (z,) = logits([probe], model, store)
    expected = net(torch.tensor(weights).double(), torch.tensor(X).double(), hidden)
    torch.testing.assert_close(z.double(), expected, rtol=1e-5, atol=1e-5)
    (found,) = measure([probe], model, store)
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
    store, ranges = RowStore.from_arrays(shards, cells=2)
    together = measure([Probe(w, r) for w, r in zip(bank, ranges, strict=True)], model, store)
    for weights, shard, found in zip(bank, shards, together, strict=True):
        own, (rows,) = RowStore.from_arrays([shard], cells=2)
        (alone,) = measure([Probe(weights.copy(), rows)], model, own)
        for name in ("counts", "positives", "scores", "losses"):
            assert np.array_equal(getattr(found, name), getattr(alone, name)), name


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 90) | st.integers(500, 700), min_size=2, max_size=40),
    questions=st.lists(st.integers(0, 3), min_size=2, max_size=40),
    inputs=st.sampled_from([1, 5, 17, 64]),
    hidden=st.sampled_from([(), (4,), (9, 11), (16,), (32, 32)]),
    seed=st.integers(0, 2**32),
)
def test_any_questions_together_equal_each_alone(sizes, questions, inputs, hidden, seed):
    """One model for many clients, models of their own, ensembles and rules, in any order."""
    model, rng = MLP(inputs, hidden), np.random.default_rng(seed)
    shards = [make_shard(n, inputs, seed + i) for i, n in enumerate(sizes)]
    store, ranges = RowStore.from_arrays(shards, cells=2)
    shared, ensemble = model.init(rng), np.stack([model.init(rng) for _ in range(3)])
    probes = []
    for rows, kind in zip(ranges, questions, strict=False):
        probes.append(
            [
                Probe(shared, rows),
                Probe(model.init(rng), rows),
                Probe(ensemble, rows, np.array([0.5, 0.3, 0.2])),
                Probe(shared, rows, thresholds=RULE),
            ][kind]
        )
    for sums in (measure, score_sums, partial(score_sums, drawn=True)):
        together = sums(probes, model, store)
        for probe, found in zip(probes, together, strict=True):
            (alone,) = sums([probe], model, store)
            for name in ("counts", "positives", "rows", "sums", "scores", "losses"):
                if hasattr(found, name):
                    assert np.array_equal(getattr(found, name), getattr(alone, name)), name
            if hasattr(found, "histogram"):
                assert np.array_equal(found.histogram.counts, alone.histogram.counts)
    for probe, z in zip(probes, logits(probes, model, store), strict=True):
        assert torch.equal(z, logits([probe], model, store)[0])


@pytest.mark.parametrize("hidden", [(), (16,), (64, 64), (48, 16, 112)])
@pytest.mark.parametrize("inputs", [1, 2, 3, 8, 13, 64, 108, 300])
def test_a_rows_bits_are_the_same_anywhere_in_a_block(inputs, hidden):
    """On it rests that small clients share blocks: `rows_stand_alone` of these models."""
    model, rng = MLP(inputs, hidden), np.random.default_rng(inputs)
    assert model.rows_stand_alone
    rows = torch.from_numpy(rng.normal(size=(5 * LANES, inputs)).astype(np.float32))
    weights = torch.zeros(1, whole_lanes(model.size))
    weights[0, : model.size] = torch.from_numpy(model.init(rng))

    def logit(blocks):
        with torch.no_grad():
            return model.forward(weights.expand(len(blocks), -1), blocks)[0].reshape(-1)

    with steady_arithmetic():
        # A client of one row: the row stands for itself in all places of its block.
        alone = torch.cat([logit(row.expand(1, LANES, -1).clone())[:1] for row in rows])
        for turn in range(LANES):
            order = torch.from_numpy(np.roll(rng.permutation(len(rows)), turn))
            for stack in (1, 5):
                blocks = rows[order].reshape(-1, stack, LANES, inputs)
                found = torch.cat([logit(block.clone()) for block in blocks])
                assert torch.equal(found, alone[order])


@pytest.mark.parametrize(("hidden", "blocks"), [((), 24), ((16, 32), 24), ((9, 11), 40)])
def test_small_clients_share_blocks_where_no_bit_changes(monkeypatch, hidden, blocks):
    model, rng = MLP(5, hidden), np.random.default_rng(0)
    store, ranges = RowStore.from_arrays([make_shard(19, 5, i) for i in range(40)], cells=2)
    weights, shapes, forward = model.init(rng), [], MLP.forward

    def counted(self, weights, inputs, *others):
        shapes.append(inputs.shape)
        return forward(self, weights, inputs, *others)

    monkeypatch.setattr(MLP, "forward", counted)
    together = measure([Probe(weights, rows) for rows in ranges], model, store)
    assert shapes == [(blocks, 32, 5)]  # 40 · 19 rows fill 23.75 blocks
    for rows, found in zip(ranges, together, strict=True):
        (alone,) = measure([Probe(weights, rows)], model, store)
        assert np.array_equal(found.losses, alone.losses)


def test_clients_with_models_of_their_own_share_no_block(monkeypatch):
    # Equal weights in other memory are another model, and so is the next of an ensemble.
    model, rng = MLP(5, (16,)), np.random.default_rng(0)
    store, ranges = RowStore.from_arrays([make_shard(4, 5, i) for i in range(6)], cells=2)
    one, two = model.init(rng), np.stack([model.init(rng) for _ in range(2)])
    models = [one, one.copy(), two, two, one, one]
    rows, forward = [], MLP.forward

    def counted(self, weights, inputs, *others):
        rows.append(len(inputs))
        return forward(self, weights, inputs, *others)

    monkeypatch.setattr(MLP, "forward", counted)
    logits([Probe(w, at) for w, at in zip(models, ranges, strict=True)], model, store)
    assert rows == [7]  # 1 + 1 + 2 + 2, and one that the last two share


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_a_row_counts_the_same_wherever_it_stands(n, seed):
    # The feature is the logit, exactly: the sums must be those of one-row clients, added in order.
    rng = np.random.default_rng(seed)
    z, y, cells = 4 * rng.normal(size=n), rng.integers(0, 2, n), rng.integers(0, 2, n)
    store, (rows,) = RowStore.from_arrays([shard_of(z, y, cells)], cells=2)
    (found,) = measure([Probe(IDENTITY, rows)], logistic(1), store)
    each = measure([Probe(IDENTITY, range(i, i + 1)) for i in range(n)], logistic(1), store)
    for name in ("counts", "positives", "scores", "losses"):
        total = np.zeros((2, 2))
        for one in each:
            total += getattr(one, name)
        assert np.array_equal(getattr(found, name), total), name


def test_more_rows_than_are_counted_at_once(monkeypatch):
    model, rng = MLP(5, (4,)), np.random.default_rng(0)
    shards = [make_shard(n, 5, seed=n) for n in (40, 0, 700, 90, 10)]
    store, ranges = RowStore.from_arrays(shards, cells=2)
    weights = model.init(rng)
    probes = [Probe(weights, rows) for rows in ranges]
    whole = measure(probes, model, store)
    monkeypatch.setattr(measuring, "_COUNTED_ROWS", 100)
    for found, expected in zip(measure(probes, model, store), whole, strict=True):
        assert np.array_equal(found.losses, expected.losses)
        assert np.array_equal(found.counts, expected.counts)


def test_no_probes_no_answers():
    store, _ = RowStore.from_arrays([shard_of([1.0], [1], [0])], cells=1)
    assert measure([], logistic(1), store) == []
    assert logits([], logistic(1), store) == []
    assert score_sums([], logistic(1), store) == []


# ------------------------------------------------------------------ ensembles


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize("shares", [None, (0.5, 0.25, 0.25), (0.0, 0.9, 0.1)])
def test_an_ensemble_answers_with_the_mean_of_probabilities(shares):
    model, rng = MLP(5, (4,)), np.random.default_rng(3)
    members = np.stack([3 * model.init(rng) for _ in range(3)])
    X, y, cells = make_shard(700, 5, seed=1, cells=3)
    store, (rows,) = RowStore.from_arrays([(X, y, cells)], cells=3)
    own = [logits([Probe(w, rows)], model, store)[0].numpy() for w in members]
    p = np.tensordot(np.full(3, 1 / 3) if shares is None else shares, sigmoid(np.array(own)), 1)
    probe = Probe(members, rows, None if shares is None else np.array(shares))
    (z,) = logits([probe], model, store)
    close(sigmoid(z.numpy()), p, 1e-12)
    (found,) = measure([probe], model, store)
    loss = -np.log(np.where(y == 1, p, 1 - p))
    for cell in range(3):
        for label in (0, 1):
            here = (cells == cell) & (y == label)
            assert found.positives[cell, label] == (p[here] > 0.5).sum()
            np.testing.assert_allclose(found.scores[cell, label], p[here].sum(), rtol=1e-12)
            np.testing.assert_allclose(found.losses[cell, label], loss[here].sum(), rtol=1e-9)


def test_an_ensemble_is_no_mean_of_logits():
    # P = (σ(ln 9) + σ(−ln 3))/2 = (.9 + .25)/2 = .575, though the logits' mean is ln 3 / 2.
    members = np.array([[math.log(9), 0.0], [-math.log(3), 0.0]], np.float32)
    store, (rows,) = RowStore.from_arrays([shard_of([1.0], [1], [0])], cells=1)
    (found,) = measure([Probe(members, rows)], logistic(1), store)
    assert found.scores[0, 1] == pytest.approx(0.575, abs=1e-7)
    assert found.losses[0, 1] == pytest.approx(-math.log(0.575), abs=1e-7)


@pytest.mark.parametrize("size", [60.0, 500.0])
def test_extreme_members_have_finite_losses(size):
    # Both sure of the wrong answer: −log(1 − P) = size; at odds: P = ½, loss ln 2.
    shard = shard_of([1, 1, -1], y=[0, 1, 1], cells=[0, 0, 1])
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    sure = np.array([[size, 0.0], [size, 0.0]], np.float32)
    (found,) = measure([Probe(sure, rows)], logistic(1), store)
    np.testing.assert_allclose(found.losses, [[size, 0.0], [0.0, size]], rtol=1e-12, atol=1e-20)
    odds = np.array([[size, 0.0], [-size, 0.0]], np.float32)
    (found,) = measure([Probe(odds, rows)], logistic(1), store)
    expected = [[math.log(2), math.log(2)], [0.0, math.log(2)]]
    np.testing.assert_allclose(found.losses, expected, rtol=1e-12)
    assert found.positives.sum() == 0  # exactly ½ is no favourable decision


def test_an_ensemble_of_one_is_that_model_bit_for_bit():
    model = MLP(5, (4,))
    weights = model.init(np.random.default_rng(0))
    store, (rows,) = RowStore.from_arrays([make_shard(100, 5, seed=2)], cells=2)
    one, single = logits(
        [Probe(weights[None], rows, np.array([1.0])), Probe(weights, rows)], model, store
    )
    assert torch.equal(one, single)


# ------------------------------------------------------------------ thresholds and histograms


def test_thresholds_give_expected_counts():
    # Cell 0 decides 1 with chance ¼, and always from ½ on; cell 1 with chance .4 from 0 on.
    shard = shard_of([0.25, 0.5, 3, -1, 0, -0.25], y=[0, 0, 1, 1, 1, 0], cells=[0, 0, 0, 0, 1, 1])
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    found, plain = measure(
        [Probe(IDENTITY, rows, thresholds=RULE), Probe(IDENTITY, rows)], logistic(1), store
    )
    np.testing.assert_allclose(found.positives, [[1.25, 1.25], [0.0, 0.4]], rtol=1e-15)
    assert plain.positives.tolist() == [[2, 1], [0, 0]]
    for name in ("counts", "scores", "losses"):  # decisions change, probabilities do not
        assert np.array_equal(getattr(found, name), getattr(plain, name))


def test_scores_are_counted_for_each_probe():
    first = shard_of([-9, 0.0, 0.01, 9], y=[0, 1, 1, 1], cells=[0, 0, 0, 1])
    empty = shard_of([], [], [])
    store, ranges = RowStore.from_arrays([first, empty], cells=2)
    full, none = score_sums([Probe(IDENTITY, rows) for rows in ranges], logistic(1), store)
    assert none.histogram.counts.shape == full.histogram.counts.shape == (2, 2, 2048)
    assert none.histogram.counts.sum() == 0
    # In 512, bins are 1/32 wide, the first is open below −8 + 1/32, bin 256 begins at 0.
    expected = np.zeros((2, 2, 512), int)
    expected[0, 0, 0] = 1
    expected[0, 1, 256] = 2
    expected[1, 1, 511] = 1
    assert np.array_equal(full.histogram.coarse(512).counts, expected)
    (sums,) = measure([Probe(IDENTITY, ranges[0])], logistic(1), store)
    np.testing.assert_allclose(full.losses, sums.losses, rtol=1e-9)
    np.testing.assert_allclose(full.sums.sum(axis=2), sums.scores, rtol=1e-12)


def test_several_models_score_by_their_mean_or_by_chance():
    # z of the members: x and −x + 1, so 2, ½ and −1 against −1, ½ and 2.
    shard = shard_of([2.0, 0.5, -1.0], y=[1, 0, 1], cells=[0, 0, 0])
    store, (rows,) = RowStore.from_arrays([shard], cells=1)
    members = np.stack([IDENTITY, np.array([-1.0, 1.0], np.float32)])
    probe = Probe(members, rows, np.array([0.75, 0.25]))
    (mean,) = score_sums([probe], logistic(1), store)
    (drawn,) = score_sums([probe], logistic(1), store, drawn=True)

    def sigma(z):
        return 1 / (1 + math.exp(-z))

    p = [0.75 * sigma(2) + 0.25 * sigma(-1), sigma(0.5), 0.75 * sigma(-1) + 0.25 * sigma(2)]
    np.testing.assert_allclose(mean.sums.sum(axis=2), [[p[1], p[0] + p[2]]], rtol=1e-7)
    loss = [-math.log(1 - p[1]), -math.log(p[0]) - math.log(p[2])]
    np.testing.assert_allclose(mean.losses, [loss], rtol=1e-7)
    # Decided favourably with chance ¾, 1 and ¼; the loss is a drawn member's, on average.
    np.testing.assert_allclose(drawn.sums.sum(axis=2), [[1.0, 1.0]], rtol=1e-12)
    far = -0.75 * (math.log(sigma(2)) + math.log(sigma(-1)))
    far -= 0.25 * (math.log(sigma(-1)) + math.log(sigma(2)))
    np.testing.assert_allclose(drawn.losses, [[-math.log(1 - sigma(0.5)), far]], rtol=1e-7)
    # Both rows with y = 1 are decided favourably less often.
    assert score_numbers(drawn)["roc_auc"][0] == 0.0


@pytest.mark.parametrize("slope", [np.nan, np.inf, -np.inf])
def test_a_model_that_diverged_is_measured_without_a_warning(slope):
    shard = shard_of([1.0, 2.0, 3.0], y=[0, 1, 1], cells=[0, 0, 1])
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    (found,) = measure([Probe(np.array([slope, 0.0], np.float32), rows)], logistic(1), store)
    assert found.counts.tolist() == [[1, 1], [0, 1]]
    assert not np.isfinite(found.losses[found.counts > 0]).all()


def test_a_model_that_diverged_has_no_scores_to_count():
    shard = shard_of([1.0, 2.0], y=[0, 1], cells=[0, 0])
    store, (rows,) = RowStore.from_arrays([shard], cells=1)
    broken = np.array([np.nan, 0.0], np.float32)
    (found,) = score_sums([Probe(broken, rows)], logistic(1), store)
    assert found.counts.tolist() == [[0, 0]]
