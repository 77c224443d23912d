"""Recipe: the schedule of recipe.md, and one-line refusals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal
from mfairfl.training.plan import Controller, Job, Optimizer, Plan, Recipe


def test_the_default_is_the_documented_recipe():
    plan = Recipe().plan(0, 40)
    assert (plan.epochs, plan.batch_size) == (2, 512)
    assert plan.optimizer == Optimizer(name="adamw", lr=4e-3, weight_decay=1.5)
    assert (plan.loss_table, plan.score_table, plan.proximal) == (None, None, 0.0)
    assert (plan.linear, plan.controller) == (None, None)


@given(rounds=st.integers(2, 300), lr=st.floats(1e-6, 0.3), share=st.floats(0, 1))
def test_cosine_starts_at_lr_ends_at_lr_final_and_never_rises(rounds, lr, share):
    recipe = Recipe(lr=lr, lr_final=lr * share)
    rates = [recipe.rate(t, rounds) for t in range(rounds)]
    assert rates[0] == pytest.approx(lr, rel=1e-12)
    assert rates[-1] == pytest.approx(lr * share, rel=1e-12)
    assert all(b <= a for a, b in pairwise(rates))


def test_cosine_by_hand():
    # lr_t = 5e-5 + (2e-3 − 5e-5)·(1 + cos(π t/(T − 1)))/2 at the quarters of T = 5.
    recipe = Recipe(lr=2e-3, lr_final=5e-5)
    shares = [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]
    expected = [5e-5 + 1.95e-3 * share for share in shares]
    assert [recipe.rate(t, 5) for t in range(5)] == pytest.approx(expected, rel=1e-12)


def test_other_schedules():
    assert [Recipe(schedule="constant").rate(t, 9) for t in (0, 4, 8)] == [4e-3] * 3
    assert Recipe().rate(0, 1) == 4e-3
    low = Recipe(lr=1e-5, lr_final=5e-5)  # the rate never rises
    assert [low.rate(t, 4) for t in range(4)] == [1e-5] * 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("local_epochs", 0),
        ("batch_size", 0),
        ("lr", -1e-3),
        ("lr", math.nan),
        ("lr_final", math.inf),
        ("weight_decay", -1.0),
        ("momentum", -0.1),
    ],
)
def test_impossible_numbers_are_refused_by_name_and_value(key, value):
    with pytest.raises(ConfigError, match=rf"training\.{key} .*{value}") as caught:
        Recipe(**{key: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (Optimizer, "lr", -1e-3),
        (Optimizer, "lr", math.nan),
        (Optimizer, "weight_decay", math.inf),
        (Optimizer, "momentum", 1.0),
        (Optimizer, "beta1", -0.1),
        (Optimizer, "beta2", 1.0),
        (Optimizer, "eps", 0.0),
        (Plan, "epochs", 0),
        (Plan, "epochs", 2.5),
        (Plan, "batch_size", -1),
        (Plan, "batch_size", math.inf),
        (Plan, "proximal", math.nan),
        (Plan, "proximal", -0.5),
        (Controller, "every", 0),
        (Controller, "shrink", 1.5),
    ],
)
def test_no_plan_can_hold_what_nobody_can_train_with(kind, key, value):
    goal = Goal(notions=("dp",))
    given = {
        Optimizer: {},
        Plan: {"epochs": 1, "batch_size": 8},
        Controller: {"goal": goal, "multipliers": (0.0,), "step": (0.1,)},
    }[kind]
    name = kind.__name__.lower()
    with pytest.raises(ConfigError, match=rf"^{name}\.{key} must .*, not {value}$"):
        kind(**given | {key: value})


@given(rows=st.integers(0, 300), batch=st.integers(1, 400), epochs=st.integers(1, 4))
def test_steps_are_the_batches_of_all_epochs(rows, batch, epochs):
    plan = Plan(epochs=epochs, batch_size=batch)
    by_hand = len(range(0, rows, batch))
    assert plan.steps(rows) == epochs * by_hand
    assert plan.by_gradient().steps(rows) == by_hand


def test_a_decay_that_flips_signs_is_refused_for_adamw_only():
    with pytest.raises(ConfigError, match=r"= 1\.5 must stay below 1"):
        Recipe(lr=0.5, weight_decay=3.0)
    assert Recipe(lr=0.5, weight_decay=3.0, optimizer="sgd").lr == 0.5


def test_equal_plans_are_equal_data():
    def make():
        return Plan(epochs=1, batch_size=2, loss_table=((1.0, 2.0),), proximal=0.1)

    assert make() == make()
    assert hash(Job(client="a", plan=make())) == hash(Job(client="a", plan=make()))
    assert Plan(epochs=1, batch_size=2) != make()


@pytest.mark.parametrize("kind", [Optimizer, Controller, Plan, Job, Recipe])
def test_plans_cannot_be_changed(kind):
    assert kind.__dataclass_params__.frozen


def test_rates_are_plain_numbers():
    assert type(Recipe().rate(1, 3)) is float
    assert not isinstance(Recipe().rate(1, 3), np.floating)
