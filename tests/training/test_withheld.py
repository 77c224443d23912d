"""Rows of a withheld cell: the model learns from them, but no price or measurement is theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from training_naive import make_shard, naive_train, net

from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.models import MLP, logistic
from mfairfl.training.batches import RowStore
from mfairfl.training.controller import Multipliers
from mfairfl.training.measure import Probe, measure, score_sums
from mfairfl.training.plan import Controller, Optimizer, Plan, Prices
from mfairfl.training.trainer import Work, run_works
from rounds import SEX

CELLS = 2  # those that are told about; rows of cell 2 are withheld
A = ((1.5, 0.25), (0.75, 2.0))
B = ((0.5, -1.0), (-0.25, 0.75))
SHARD = make_shard(75, 3, seed=1, cells=CELLS + 1)
SGD = Optimizer(name="sgd", lr=0.1, weight_decay=0.0, momentum=0.0)


def work(model, plan, **more):
    store, (rows,) = RowStore.from_arrays([SHARD], cells=CELLS)
    start = model.init(np.random.default_rng(3))
    return Work(plan=plan, start=start, rows=rows, rng=np.random.default_rng(3), **more), store


def by_hand(start, A, B):
    """The gradient of mean_i A·CE + B·σ(z) at z = x·w + b, row by row."""
    X, y, cells = SHARD
    found = np.zeros(4)
    for x, label, cell in zip(X.astype(float), y, cells, strict=True):
        a, b = (A[cell][label], B[cell][label]) if cell < CELLS else (1.0, 0.0)
        p = 1 / (1 + np.exp(-(x @ start[:3] + start[3])))
        found += (a * (p - label) + b * p * (1 - p)) * np.append(x, 1.0)
    return found / len(y)


@pytest.mark.parametrize("tables", [{}, {"loss_table": A}, {"score_table": B}, None])
def test_a_step_is_that_of_all_rows_with_no_price_on_the_withheld(tables):
    tables = {"loss_table": A, "score_table": B} if tables is None else tables
    mine, store = work(logistic(3), Plan(epochs=1, batch_size=100, optimizer=SGD, **tables))
    (update,) = run_works([mine], logistic(3), store)
    given = tables.get("loss_table", np.ones((2, 2))), tables.get("score_table", np.zeros((2, 2)))
    gradient = by_hand(mine.start.astype(float), *given)
    np.testing.assert_allclose(update, 0.1 * gradient, rtol=1e-5, atol=1e-7)
    # They do count: without them the step is another.
    kept = SHARD[2] < CELLS
    assert 10 < (~kept).sum() < 65
    other, (rows,) = RowStore.from_arrays([tuple(part[kept] for part in SHARD)], cells=CELLS)
    alone = Work(plan=mine.plan, start=mine.start, rows=rows, rng=np.random.default_rng(3))
    (without,) = run_works([alone], logistic(3), other)
    assert np.abs(without - update).max() > 1e-3


@pytest.mark.parametrize("hidden", [(4,), (8, 8)])
@pytest.mark.parametrize("tables", [{"loss_table": A}, {"loss_table": A, "score_table": B}])
def test_many_steps_equal_a_plain_loop_with_neutral_prices(hidden, tables):
    model, plan = MLP(3, hidden), Plan(epochs=4, batch_size=20, optimizer=SGD, **tables)
    mine, store = work(model, plan)
    (update,) = run_works([mine], model, store)
    neutral = {"loss_table": (1.0, 1.0), "score_table": (0.0, 0.0)}
    whole = Plan(
        epochs=4,
        batch_size=20,
        optimizer=SGD,
        **{name: (*table, neutral[name]) for name, table in tables.items()},
    )
    theirs = Work(plan=whole, start=mine.start, rows=mine.rows, rng=np.random.default_rng(3))
    expected = naive_train(SHARD, hidden, theirs)
    assert np.abs(expected).max() > 0.02
    np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-5)


def test_moving_multipliers_neither_see_nor_price_them():
    (X, _, cells), told = SHARD, SHARD[2] < CELLS
    controller = Controller(
        goal=Goal(dead_zone=0.01),
        multipliers=(0.3, -0.2),
        step=(2.0, 1.0),
        offset=(0.05, -0.02),
        every=2,
        relative=True,
        prices=Prices(driven_by="smooth"),
    )
    model = logistic(3)
    plan = Plan(epochs=5, batch_size=32, optimizer=SGD, controller=controller)
    mine, store = work(model, plan)
    moving = Multipliers(controller, SEX)
    (update,) = run_works([replace(mine, multipliers=moving)], model, store)

    sizes = np.array([np.sum(cells == g) for g in (0, 1)])
    mu, seen = np.array([0.3, -0.2]), []

    def gaps(flat):
        """How far the mean score of each group is from that of all rows that are told about."""
        p = torch.sigmoid(net(flat, torch.tensor(X).double(), ())).numpy()
        return np.array([p[told].mean() - p[cells == g].mean() for g in (0, 1)])

    def tables():
        price = np.append(mu.sum() - mu * told.sum() / sizes, 0.0)
        return np.ones((3, 2)), np.stack([price, price], axis=1)

    first = gaps(torch.tensor(mine.start).double())

    def after_epoch(epoch, flat):
        nonlocal mu
        if epoch % 2 == 0:
            gap = np.array([0.05, -0.02]) + gaps(flat) - first
            seen.append(gap)
            mu = mu + np.array([2.0, 1.0]) * np.sign(gap) * np.maximum(np.abs(gap) - 0.01, 0)
        return tables()

    begin = tuple(tuple(row) for row in tables()[1].tolist())
    started = Plan(epochs=5, batch_size=32, optimizer=SGD, score_table=begin)
    theirs = Work(plan=started, start=mine.start, rows=mine.rows, rng=np.random.default_rng(3))
    expected = naive_train(SHARD, (), theirs, after_epoch)
    np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moving.values, mu, rtol=1e-5)
    np.testing.assert_allclose(moving.gaps, seen[-1], rtol=1e-4)


def rows_told():
    X, y, cells = SHARD
    told = cells < CELLS
    return (X, y, cells), (X[told], y[told], cells[told])


@pytest.mark.parametrize("thresholds", [None, Thresholds([[0.0], [0.3]], [[1.0], [1.0]])])
def test_measurements_are_those_of_the_other_rows(thresholds):
    every, told = rows_told()
    model = MLP(3, (4,))
    weights = model.init(np.random.default_rng(0))
    found = []
    for shard in (every, told):
        store, (rows,) = RowStore.from_arrays([shard], cells=CELLS)
        probe = Probe(weights, rows, thresholds=thresholds)
        (sums,), (scores,) = measure([probe], model, store), score_sums([probe], model, store)
        found.append((store.counts(rows), sums, scores))
    (counts, sums, scores), (true_counts, true_sums, true_scores) = found
    assert counts.tolist() == true_counts.tolist()
    assert counts.sum() == len(told[1]) < len(every[1])
    for name in ("counts", "positives", "scores", "losses"):
        np.testing.assert_allclose(getattr(sums, name), getattr(true_sums, name), rtol=1e-6)
        assert getattr(sums, name).shape == (CELLS, 2)
    assert np.array_equal(scores.histogram.counts, true_scores.histogram.counts)
    for name in ("rows", "sums", "losses"):
        np.testing.assert_allclose(getattr(scores, name), getattr(true_scores, name), rtol=1e-6)
