"""What a job computes does not depend on its company: bit for bit, on one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from training_naive import make_shard

from mfairfl.fairness.constraints import Goal
from mfairfl.models import MLP, ModuleModel
from mfairfl.training.batches import RowStore
from mfairfl.training.controller import Multipliers
from mfairfl.training.execution import steady_arithmetic
from mfairfl.training.measure import Probe, measure
from mfairfl.training.plan import Controller, Optimizer, Plan, Prices
from mfairfl.training.trainer import Work, run_works
from rounds import SEX

TABLE = st.none() | st.sampled_from([((1.0, 0.5), (2.0, 1.5)), ((0.3, -0.4), (0.0, 0.7))])


@st.composite
def optimizers(draw):
    name = draw(st.sampled_from(["adamw", "sgd", "gradient"]))
    return Optimizer(
        name=name,
        lr=draw(st.sampled_from([1e-3, 1e-2, 3e-2])),
        weight_decay=draw(st.sampled_from([0.0, 0.1, 3.0])),
        momentum=draw(st.sampled_from([0.0, 0.9])) if name == "sgd" else 0.0,
    )


@st.composite
def controllers(draw):
    notion = draw(st.sampled_from(["dp", "ap", "ap-loss"]))
    return Controller(
        goal=Goal(notions=(notion,)),
        multipliers=(0.2, -0.1),
        step=(1.0, 0.5),
        offset=draw(st.none() | st.just((0.1, -0.1))),
        every=draw(st.integers(1, 2)),
        relative=draw(st.booleans()),
        prices=Prices(driven_by=draw(st.sampled_from(["hard", "smooth"]))),
    )


@st.composite
def jobs(draw):
    """A client's rows, its plan and which vectors it is given."""
    rows = draw(st.integers(1, 40) | st.integers(41, 300))
    plan = Plan(
        epochs=draw(st.integers(1, 3)),
        batch_size=draw(st.sampled_from([20, 32, 50, 77, 512])),
        optimizer=draw(optimizers()),
        loss_table=draw(TABLE),
        score_table=draw(TABLE),
        proximal=draw(st.sampled_from([0.0, 0.0, 0.3])),
        controller=draw(st.none() | controllers()),
    )
    return rows, plan, draw(st.booleans()), draw(st.integers(0, 2**32))


def make_work(job, rows, model):
    """The same work every time: its vectors and its stream come from the job's own seed."""
    _, plan, linear, seed = job
    rng = np.random.default_rng(seed)
    start, centre, slope = model.init(rng), model.init(rng), 0.01 * model.init(rng)
    moving = None if plan.controller is None else Multipliers(plan.controller, SEX)
    return Work(
        plan=plan,
        start=start,
        rows=rows,
        rng=rng,
        centre=centre,
        linear=slope if linear else None,
        multipliers=moving,
    )


def same(a, b):
    """Whether two works ended in the same update and the same multipliers, bit for bit."""
    return np.isfinite(a[0]).all() and all(map(np.array_equal, a, b))


def ends(works, model, store):
    """Train works; return each one's update, its multipliers and gaps."""
    updates = run_works(works, model, store)
    moving = [work.multipliers for work in works]
    return [
        (update, *((m.values.tolist(), m.gaps.tolist()) if m is not None else ()))
        for update, m in zip(updates, moving, strict=True)
    ]


def train_together(drawn, model):
    shards = [make_shard(job[0], model.inputs, seed=job[3]) for job in drawn]
    store, ranges = RowStore.from_arrays(shards, cells=2)
    works = [make_work(job, rows, model) for job, rows in zip(drawn, ranges, strict=True)]
    return ends(works, model, store)


def check(drawn, model):
    together = train_together(drawn, model)
    for job, found in zip(drawn, together, strict=True):
        (alone,) = train_together([job], model)
        assert same(found, alone)


@settings(max_examples=40, deadline=None)
@given(
    drawn=st.lists(jobs(), min_size=2, max_size=6),
    inputs=st.integers(1, 15),
    hidden=st.sampled_from([(), (2,), (4,), (5, 3), (16, 7), (32, 32)]),
)
def test_any_mix_of_jobs_equals_each_alone(drawn, inputs, hidden):
    check(drawn, MLP(inputs, hidden))


@settings(max_examples=30, deadline=None)
@given(
    job=jobs(),
    changes=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([1e-3, 1e-2])), min_size=2, max_size=7
    ),
    inputs=st.integers(1, 40),
    hidden=st.sampled_from([(), (4,), (5, 3), (9, 11), (32, 32)]),
)
def test_jobs_that_share_a_stack_equal_each_alone(job, changes, inputs, hidden):
    # The same parts and batch shape, other rates, epochs and rows: one stack for certain.
    rows, plan, linear, seed = job
    drawn = []
    for i, (epochs, lr) in enumerate(changes):
        optimizer = Optimizer(
            name=plan.optimizer.name,
            lr=lr,
            weight_decay=plan.optimizer.weight_decay * i,
            momentum=plan.optimizer.momentum,
        )
        changed = replace(plan, epochs=epochs, optimizer=optimizer)
        drawn.append((rows, changed, linear, seed + i))
    check(drawn, MLP(inputs, hidden))


def plain_jobs(count, **plan):
    plan = {"epochs": 2, "batch_size": 50} | plan
    return [(20 + 7 * i, Plan(**plan), False, i) for i in range(count)]


@pytest.mark.parametrize(("count", "rows", "batch"), [(40, 60, 33), (11, 700, 512)])
def test_more_jobs_than_one_stack_holds(count, rows, batch):
    drawn = [(rows, Plan(epochs=1 + i % 3, batch_size=batch), False, i) for i in range(count)]
    check(drawn, MLP(4, (6, 5)))


@pytest.mark.parametrize("hidden", [(64, 64), (33, 7)])
def test_the_stack_before_leaves_nothing_behind(hidden):
    """Stacks of other shapes use the same memory one after the other; each job's is as alone."""
    drawn = []
    for i, (rows, batch) in enumerate([(300, 512), (40, 32), (700, 512), (9, 512), (90, 64)]):
        optimizer = Optimizer(name=("adamw", "sgd", "gradient")[i % 3], lr=1e-2)
        plan = Plan(epochs=2, batch_size=batch, optimizer=optimizer, proximal=0.1 * (i % 2))
        drawn += [(rows, plan, i % 2 == 0, 10 * i + j) for j in range(3)]
    check(drawn, MLP(13, hidden))


def test_threads_that_train_and_measure_at_once_do_not_disturb_each_other():
    model = MLP(9, (16, 8))
    drawn = [(40 + 9 * i, Plan(epochs=3, batch_size=32), False, i) for i in range(12)]
    shards = [make_shard(job[0], 9, seed=job[3]) for job in drawn]
    store, ranges = RowStore.from_arrays(shards, cells=2)

    def some(first):
        chosen = list(zip(drawn, ranges, strict=True))[first::4]
        works = [make_work(job, rows, model) for job, rows in chosen]
        probes = [Probe(work.start, work.rows) for work in works]
        with steady_arithmetic():
            return ends(works, model, store), measure(probes, model, store)

    with steady_arithmetic(), ThreadPoolExecutor(4) as threads:
        alone = [some(first) for first in range(4)]
        for _ in range(5):
            together = threads.map(some, range(4))
            for found, expected in zip(together, alone, strict=True):
                assert all(map(same, found[0], expected[0]))
                for a, b in zip(found[1], expected[1], strict=True):
                    assert np.array_equal(a.losses, b.losses)


def test_the_order_of_jobs_changes_nothing():
    model, drawn = MLP(5, (8,)), plain_jobs(8)
    forward, backward = train_together(drawn, model), train_together(drawn[::-1], model)
    assert all(same(a, b) for a, b in zip(forward, backward[::-1], strict=True))


def test_the_same_seed_twice_and_another_seed():
    model, drawn = MLP(5, (8,)), plain_jobs(3)
    once, again = train_together(drawn, model), train_together(drawn, model)
    assert all(same(a, b) for a, b in zip(once, again, strict=True))
    (job,) = plain_jobs(1)
    shard = make_shard(job[0], 5, seed=0)
    store, (rows,) = RowStore.from_arrays([shard], cells=2)
    start = model.init(np.random.default_rng(0))
    updates = [
        run_works(
            [Work(plan=plan, start=start, rows=rows, rng=np.random.default_rng(seed))],
            model,
            store,
        )[0]
        for plan in (Plan(epochs=2, batch_size=7),)
        for seed in (0, 1)
    ]
    assert not np.array_equal(*updates)  # another order of batches


class _Residual(nn.Module):
    """Odd widths, a norm, a smooth activation: nothing the stack could be lucky with."""

    def __init__(self, inputs):
        super().__init__()
        self.first, self.norm = nn.Linear(inputs, 9), nn.LayerNorm(9)
        self.second, self.head = nn.Linear(9, 9), nn.Linear(9, 1)

    def forward(self, x):
        hidden = nn.functional.gelu(self.first(x))
        return self.head(hidden + self.norm(self.second(hidden))).squeeze(1)


@pytest.mark.parametrize(
    "factory",
    [
        lambda d: nn.Linear(d, 1),
        lambda d: nn.Sequential(nn.Linear(d, 7), nn.Tanh(), nn.Linear(7, 5), nn.Linear(5, 1)),
        _Residual,
    ],
    ids=["linear", "odd", "residual"],
)
@pytest.mark.parametrize("inputs", [1, 5, 13])
def test_modules_too(factory, inputs):
    for name in ("adamw", "sgd", "gradient"):
        optimizer = Optimizer(name=name, lr=1e-2, weight_decay=0.1)
        check(plain_jobs(5, optimizer=optimizer), ModuleModel(factory, inputs))


def test_numbers_drawn_elsewhere_change_nothing():
    model, drawn = MLP(5, (8,)), plain_jobs(2)
    once = train_together(drawn, model)
    torch.manual_seed(99)
    torch.rand(3)
    again = train_together(drawn, model)
    assert all(same(a, b) for a, b in zip(once, again, strict=True))
