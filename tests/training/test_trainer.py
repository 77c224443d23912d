"""The trainer against a plain single-client loop with autograd and `torch.optim`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from training_naive import make_shard, naive_train, net, objective

from mfairfl.fairness.constraints import Goal
from mfairfl.models import MLP, ModuleModel
from mfairfl.training.batches import RowStore
from mfairfl.training.controller import Multipliers
from mfairfl.training.plan import Controller, Optimizer, Plan, Prices
from mfairfl.training.trainer import Work, run_works
from rounds import SEX

A = ((1.5, 0.25), (0.75, 2.0))
B = ((0.5, -1.0), (-0.25, 0.75))
ADAMW = Optimizer(lr=5e-3, weight_decay=0.5)
SGD = Optimizer(name="sgd", lr=0.1, weight_decay=0.01, momentum=0.9)
GRADIENT = Optimizer(name="gradient")


def pair_of_works(shard, model, plan, *, extras=False, seed=3):
    """Two equal works (their streams are used up separately) and the store of the first."""
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    rng = np.random.default_rng(seed)
    start = model.init(rng)
    more = {}
    if extras:
        more = {"centre": model.init(rng), "linear": 0.01 * model.init(rng)}
    works = [
        Work(plan=plan, start=start, rows=rows, rng=np.random.default_rng(seed), **more)
        for _ in range(2)
    ]
    return works, store


@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=lambda o: o.name)
@pytest.mark.parametrize("hidden", [(), (4,), (8, 8)])
@pytest.mark.parametrize(
    ("tables", "extras"),
    [
        ({}, False),
        ({"loss_table": A}, False),
        ({"score_table": B}, True),
        ({"loss_table": A, "score_table": B, "proximal": 0.5}, True),
    ],
)
def test_equals_a_plain_loop(optimizer, hidden, tables, extras):
    # 75 rows in batches of 20: the last batch of each epoch is the mean of 15 rows.
    shard, model = make_shard(75, 3, seed=1), MLP(3, hidden)
    plan = Plan(epochs=4, batch_size=20, optimizer=optimizer, **tables)
    (mine, theirs), store = pair_of_works(shard, model, plan, extras=extras)
    (update,) = run_works([mine], model, store)
    assert mine.steps == 4 * 4
    assert update.dtype == np.float32
    expected = naive_train(shard, hidden, theirs)
    assert np.abs(expected).max() > 0.02  # something was learnt
    np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-5)


def test_the_centre_of_the_pull_is_the_start_unless_said():
    shard, model = make_shard(64, 3, seed=1), MLP(3, (4,))
    plan = Plan(epochs=6, batch_size=32, optimizer=SGD, proximal=2.0)
    (mine, theirs), store = pair_of_works(shard, model, plan)
    (update,) = run_works([mine], model, store)
    np.testing.assert_allclose(update, naive_train(shard, (4,), theirs), atol=1e-5)


def test_one_client_with_all_rows_is_centralised_training():
    # K = 1: nn.Sequential, BCEWithLogitsLoss and AdamW, as anyone would write it.
    X, y, cells = make_shard(200, 5, seed=2)
    model = ModuleModel(lambda d: nn.Sequential(nn.Linear(d, 8), nn.Tanh(), nn.Linear(8, 1)), 5)
    start = model.init(np.random.default_rng(0))
    store, (rows,) = RowStore.from_arrays([(X, y, cells)], cells=2)
    plan = Plan(epochs=3, batch_size=64, optimizer=Optimizer(lr=1e-2, weight_decay=0.1))
    work = Work(plan=plan, start=start, rows=rows, rng=np.random.default_rng(7))
    (update,) = run_works([work], model, store)

    module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    nn.utils.vector_to_parameters(torch.tensor(start), module.parameters())
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)
    rng, loss = np.random.default_rng(7), nn.BCEWithLogitsLoss()
    for _ in range(3):
        order = rng.permutation(200)
        for at in range(0, 200, 64):
            chosen = order[at : at + 64]
            optimizer.zero_grad()
            target = torch.tensor(y[chosen], dtype=torch.float32)
            loss(module(torch.tensor(X[chosen])).squeeze(1), target).backward()
            optimizer.step()
    end = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.testing.assert_allclose(start - update, end, rtol=1e-5, atol=1e-5)


# --- the full-batch gradient -----------------------------------------------------------------


@pytest.mark.parametrize("batch", [7, 32, 1000])
@pytest.mark.parametrize("hidden", [(), (4,), (8, 8)])
def test_gradient_is_autograd_of_the_mean_objective(hidden, batch):
    shard, model = make_shard(90, 3, seed=4), MLP(3, hidden)
    plan = Plan(
        epochs=9,  # without effect: the gradient is one pass
        batch_size=batch,
        optimizer=GRADIENT,
        loss_table=A,
        score_table=B,
        proximal=0.5,
    )
    (work, _), store = pair_of_works(shard, model, plan, extras=True)
    (update,) = run_works([work], model, store)
    flat = torch.tensor(work.start).double().requires_grad_()
    value = objective(flat, shard, hidden, A, B)
    # The pull and the correction count once, however many batches make up the mean.
    value = value + 0.25 * ((flat - torch.tensor(work.centre).double()) ** 2).sum()
    (value + torch.tensor(work.linear).double() @ flat).backward()
    np.testing.assert_allclose(update, flat.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_gradient_is_the_slope_of_the_objective_by_finite_differences():
    shard, hidden, model = make_shard(60, 3, seed=5), (4,), MLP(3, (4,))
    plan = Plan(epochs=1, batch_size=32, optimizer=GRADIENT, loss_table=A, score_table=B)
    (work, _), store = pair_of_works(shard, model, plan)
    (update,) = run_works([work], model, store)
    start, step = torch.tensor(work.start).double(), 1e-6
    for j in range(model.size):
        nudge = torch.zeros_like(start)
        nudge[j] = step
        up, down = (objective(start + s * nudge, shard, hidden, A, B) for s in (1, -1))
        slope = float(up - down) / (2 * step)
        assert update[j] == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("notion", ["dp", "eo", "ap"])
def test_size_weighted_client_gradients_are_the_pooled_lagrangians(notion):
    """Σ (n_k/n) ∇J_k = ∇[CE + Σ_j μ_j (F_e − F_{e,g})] with smooth group means, by autograd."""
    shards, hidden = [make_shard(n, 3, seed=n) for n in (40, 75, 130)], (4,)
    X, y, cells = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    constraints = Goal(notions=(notion,)).constraints(SEX)
    mu = np.linspace(-0.7, 0.9, len(constraints))
    counts = np.array([[np.sum((cells == c) & (y == v)) for v in (0, 1)] for c in (0, 1)])
    score, _ = constraints.prices(mu, counts)

    model = MLP(3, hidden)
    start = model.init(np.random.default_rng(0))
    table = tuple(tuple(row) for row in score.tolist())
    plan = Plan(epochs=1, batch_size=32, optimizer=GRADIENT, score_table=table)
    store, ranges = RowStore.from_arrays(shards, cells=2)
    rng = np.random.default_rng(0)
    works = [Work(plan=plan, start=start, rows=rows, rng=rng) for rows in ranges]
    updates = run_works(works, model, store)
    mixed = sum(len(s[1]) / len(y) * g for s, g in zip(shards, updates, strict=True))

    flat = torch.tensor(start).double().requires_grad_()
    z = net(flat, torch.tensor(X).double(), hidden)
    label = torch.tensor(y).double()
    value = binary_cross_entropy_with_logits(z, label)
    f = (torch.sigmoid(z) - label).abs() if notion == "ap" else torch.sigmoid(z)
    events = {"all": y >= 0, "y=0": y == 0, "y=1": y == 1}
    for weight, (_, event, _, group) in zip(mu, constraints.labels, strict=True):
        member = events[event] & (cells == "FM".index(group))
        value = value + weight * (f[events[event]].mean() - f[member].mean())
    value.backward()
    np.testing.assert_allclose(mixed, flat.grad.numpy(), rtol=1e-5, atol=1e-6)


# --- multipliers that move inside a job ------------------------------------------------------


def test_a_moving_multiplier_equals_a_plain_loop():
    """DP, smooth gaps, every second epoch, on top of tables of the plan's own."""
    shard, hidden, model = make_shard(90, 3, seed=6), (4,), MLP(3, (4,))
    X, _, cells = shard
    controller = Controller(
        goal=Goal(dead_zone=0.01),
        multipliers=(0.3, -0.2),
        step=(2.0, 1.0),
        offset=(0.05, -0.02),
        every=2,
        relative=True,
        prices=Prices(driven_by="smooth"),
    )
    plan = Plan(
        epochs=5, batch_size=32, optimizer=SGD, loss_table=A, score_table=B, controller=controller
    )
    (mine, theirs), store = pair_of_works(shard, model, plan)
    moving = Multipliers(controller, SEX)
    own = Work(plan=plan, start=mine.start, rows=mine.rows, rng=mine.rng, multipliers=moving)
    (update,) = run_works([own], model, store)

    sizes = np.array([np.sum(cells == g) for g in (0, 1)])
    mu, seen = np.array([0.3, -0.2]), []

    def gaps(flat):
        p = torch.sigmoid(net(flat, torch.tensor(X).double(), hidden)).numpy()
        return np.array([p.mean() - p[cells == g].mean() for g in (0, 1)])

    def tables():
        price = mu.sum() - mu * len(X) / sizes
        return np.array(A), np.array(B) + price[:, None]

    first = gaps(torch.tensor(mine.start).double())

    def after_epoch(epoch, flat):
        nonlocal mu
        if epoch % 2 == 0:
            gap = np.array([0.05, -0.02]) + gaps(flat) - first
            seen.append(gap)
            mu = mu + np.array([2.0, 1.0]) * np.sign(gap) * np.maximum(np.abs(gap) - 0.01, 0)
        return tables()

    # The first epochs run at the prices of the multipliers the plan starts with.
    begin = tuple(tuple(row) for row in tables()[1].tolist())
    started = Plan(epochs=5, batch_size=32, optimizer=SGD, loss_table=A, score_table=begin)
    work = Work(plan=started, start=theirs.start, rows=theirs.rows, rng=theirs.rng)
    expected = naive_train(shard, hidden, work, after_epoch)
    np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moving.values, mu, rtol=1e-5)
    np.testing.assert_allclose(moving.gaps, seen[-1], rtol=1e-4)
    assert len(seen) == 2


# --- edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [ADAMW, SGD, GRADIENT], ids=lambda o: o.name)
def test_a_client_without_rows_stays_where_it_is(optimizer):
    model, shards = MLP(3, (4,)), [make_shard(50, 3, seed=0), make_shard(0, 3, seed=0)]
    store, ranges = RowStore.from_arrays(shards, cells=2)
    plan = Plan(epochs=2, batch_size=32, optimizer=optimizer)
    start = model.init(np.random.default_rng(0))
    works = [
        Work(plan=plan, start=start, rows=rows, rng=np.random.default_rng(0)) for rows in ranges
    ]
    full, empty = run_works(works, model, store)
    assert np.abs(full).max() > 0
    assert (works[1].steps, np.abs(empty).max()) == (0, 0)


def test_no_works_no_updates():
    store, _ = RowStore.from_arrays([make_shard(5, 3, seed=0)], cells=2)
    assert run_works([], MLP(3, (4,)), store) == []


def test_the_start_is_not_written_to():
    model, shard = MLP(3, (4,)), make_shard(50, 3, seed=0)
    (work, _), store = pair_of_works(shard, model, Plan(epochs=2, batch_size=32, optimizer=SGD))
    before = work.start.copy()
    rows = store.X.clone()
    run_works([work], model, store)
    assert np.array_equal(work.start, before)
    assert torch.equal(store.X, rows)


def test_a_table_of_the_wrong_size_is_an_error():
    plan = Plan(epochs=1, batch_size=32, loss_table=((1.0, 1.0),))
    (work, _), store = pair_of_works(make_shard(5, 3, seed=0), MLP(3, ()), plan)
    with pytest.raises(ValueError, match="has 2 numbers; 4 are needed"):
        run_works([work], MLP(3, ()), store)
