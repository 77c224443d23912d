"""FPFL by hand, against its message of sums by automatic differentiation, and against mFairFL.

Client a holds the women (40 rows), b the men (60 rows); thresholded and smooth sums:

              y = 0   y = 1     all     smooth
    a (F)     3/30    5/10      8/40    15/40
    b (M)    18/40   16/20     34/60    27/60
    both     21/70   21/30     42/100   42/100
"""

from __future__ import annotations

import json
from dataclasses import replace

import mfairfl_naive as naive
import numpy as np
import pytest
import torch
from biased_runs import violations

import federations as fed
import mfairfl
import rounds
from mfairfl.engine.embedded import summarize
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.strategies import create
from rounds import NO_GRAM, a_round, close, measurement, reports

WOMEN, MEN = [[30.0, 10.0], [0.0, 0.0]], [[0.0, 0.0], [40.0, 20.0]]
D = np.array([0.22, 0.42 - 34 / 60])
SMOOTH = np.array([0.42 - 15 / 40, 0.42 - 27 / 60])


A = measurement("a", WOMEN, [[3, 5], [0, 0]], WOMEN, [[9, 6], [0, 0]])
B = measurement("b", MEN, [[0, 0], [18, 16]], MEN, [[0, 0], [12, 15]])


def planned(strategy, state=None, known=(A, B), **goal):
    return rounds.planned(strategy, known, state, goal=Goal(**goal))


def answered(strategy, state, known=(A, B), reporting="ab", **goal):
    return strategy.combine(state, a_round(known, goal=Goal(**goal)), reports(reporting), NO_GRAM)


def price(mu):
    """u_g = Σ μ − μ_g n/n_g on every row of group g."""
    u = np.array([mu[0] + mu[1] - mu[0] / 0.4, mu[0] + mu[1] - mu[1] / 0.6])
    return np.repeat(u[:, None], 2, axis=1)


# ------------------------------------------------------------------ multipliers and prices


def test_signed_multipliers_by_hand():
    state, plans = planned(create("fpfl", gamma=0.5, damping=0.0))
    close(state["multipliers"], 0.5 * D)
    for plan in plans.values():
        close(plan.score_table, price(0.5 * D))
        close(plan.loss_table, np.ones((2, 2)))
        assert plan.optimizer == a_round().plan.optimizer
        assert plan.controller is None
    again, _ = planned(create("fpfl", gamma=0.5, damping=0.0), state)
    close(again["multipliers"], D)


def test_damping_is_priced_and_not_kept():
    state, plans = planned(create("fpfl", damping=2.0))
    close(state["multipliers"], D)
    close(plans["a"].score_table, price(3 * D))


def test_the_papers_multipliers_by_hand():
    # α = .1: h = (.12, .0467), λ = 2h, priced (2 + 3)h with the signs (+, −).
    h = np.abs(D) - 0.1
    strategy = create("fpfl", multiplier="paper", gamma=2.0, damping=3.0)
    state, plans = planned(strategy, dead_zone=0.1)
    close(state["multipliers"], 2 * h)
    close(plans["b"].score_table, price(5 * h * [1, -1]))


def test_a_gap_within_the_tolerance_neither_moves_nor_costs():
    """ReLU: h and its gradient are 0 there, whatever λ has become."""
    strategy = create("fpfl", multiplier="paper", gamma=2.0, damping=3.0)
    begun = {"multipliers": np.array([0.3, 0.7])}
    state, plans = planned(strategy, begun, dead_zone=0.2)  # |d| = .22, .147
    close(state["multipliers"], [0.3 + 2 * 0.02, 0.7])
    close(plans["a"].score_table, price(np.array([0.34 + 3 * 0.02, 0.0])))


def test_multipliers_may_follow_smooth_rates():
    state, _ = planned(create("fpfl", prices={"driven_by": "smooth"}))
    close(state["multipliers"], SMOOTH)
    state, _ = planned(create("fpfl", prices={"driven_by": "smooth"}, multiplier="paper"))
    close(state["multipliers"], np.abs(SMOOTH))


def test_prices_are_capped():
    _, plans = planned(create("fpfl", prices={"cap": 0.1, "counter_cap": 0.1}))
    close(plans["a"].score_table, [[-0.1, -0.1], [0.1, 0.1]])


@pytest.mark.parametrize("multiplier", ["signed", "paper"])
def test_a_group_that_nobody_present_has_is_left_alone(multiplier):
    """Women are with client a alone: without it their gap is unknown, not 0 and not a reward."""
    strategy = create("fpfl", multiplier=multiplier)
    begun = {"multipliers": np.array([0.3, 0.2])}
    state, plans = planned(strategy, begun, known=(B,), dead_zone=0.05)
    close(state["multipliers"], [0.3, 0.2])  # and the men's own gap to themselves is 0
    assert np.isfinite(plans["b"].score_table).all()


# ------------------------------------------------------------------ the server


def test_clients_count_by_their_rows():
    strategy = create("fpfl")
    state, _ = planned(strategy)
    assert answered(strategy, state).coefficients.tolist() == [0.4, 0.6]
    assert answered(strategy, state, reporting="b").coefficients.tolist() == [1.0]
    assert answered(strategy, state).scale == 1.0
    literal = create("fpfl", update="gradient", eta=0.07)
    assert answered(literal, state).scale == 0.07
    assert planned(literal)[1]["a"].optimizer.name == "gradient"


@pytest.mark.parametrize("multiplier", ["signed", "paper"])
def test_the_log_says_what_was_priced(multiplier):
    strategy = create("fpfl", damping=2.0, multiplier=multiplier)
    state, plans = planned(strategy)
    log = answered(strategy, state).log
    assert json.loads(json.dumps(log, allow_nan=False)) == log
    close(log["multipliers"], D if multiplier == "signed" else np.abs(D))
    close(log["score_prices"], plans["a"].score_table)
    close(log["score_prices"], price(3 * D))
    assert log["violation_hard"] == pytest.approx(0.22, rel=1e-12)


def test_a_secure_sum_would_do():
    card = mfairfl.strategies.describe("fpfl")
    assert (card.needs, card.reveals, card.constrained) == ("none", "sums", True)


@pytest.mark.parametrize("name", ["gamma", "damping", "eta"])
def test_a_number_below_zero_is_refused(name):
    with pytest.raises(ConfigError, match=rf"^strategy\.{name} must be at least 0, not -1"):
        create("fpfl", **{name: -1})


# ------------------------------------------------------------------ the literal reading


def setup_with(federation, strategy, notion, alpha, **recipe):
    goal = Goal(notions=(notion,), attributes=("sex", "age"), dead_zone=alpha)
    setup = fed.setup_for(federation, strategy, **recipe)
    return replace(setup, summary=summarize(federation, goal))


def message(w, part, labels):
    """z_k: n_k, loss, its gradient, and for every constraint F, ∇F, n of event and of group."""
    loss = float(naive.cross_entropy(torch.from_numpy(w), part).mean())
    slope = naive.gradient(lambda w: naive.cross_entropy(w, part).mean(), w)
    cells = []
    for label in labels:
        for mask in naive.masks(label, part):
            rows = torch.from_numpy(mask)

            def rate(w, label=label, rows=rows):
                return naive.value(naive.STATISTIC[label[0]], w, part)[rows].mean()

            if mask.any():
                value = float(rate(torch.from_numpy(w)))
                cells.append((int(mask.sum()), value, naive.gradient(rate, w)))
            else:
                cells.append((0, 0.0, np.zeros_like(w)))
    return len(part), loss, slope, cells


def mmdm(w, lam, messages, *, gamma, damping, alpha):
    """One step of the modified method of differential multipliers from the clients' sums."""
    n = sum(m[0] for m in messages)
    total = sum(m[0] * m[2] for m in messages) / n
    moved = lam.copy()
    for j in range(len(lam)):
        pooled_rate, pooled_slope = [], []
        for side in (2 * j, 2 * j + 1):
            count = sum(m[3][side][0] for m in messages)
            pooled_rate.append(sum(m[3][side][0] * m[3][side][1] for m in messages) / count)
            pooled_slope.append(sum(m[3][side][0] * m[3][side][2] for m in messages) / count)
        d = pooled_rate[0] - pooled_rate[1]
        h = max(abs(d) - alpha, 0.0)
        moved[j] += gamma * h
        if h > 0:
            total = total + (moved[j] + damping * h) * np.sign(d) * (
                pooled_slope[0] - pooled_slope[1]
            )
    return total, moved


@pytest.mark.parametrize("notion", ["dp", "eo", "ap", "ap-loss"])
@pytest.mark.parametrize("damping", [0.0, 10.0])
def test_prices_to_the_clients_give_the_sum_of_their_messages(notion, damping, federation):
    """The paper's exchange, one gradient a group, and the two-phase one walk the same path."""
    rule = {"gamma": 40.0, "damping": damping}
    strategy = create("fpfl-paper", eta=0.5, **rule)
    setup = setup_with(federation, strategy, notion, 0.002, rounds=4)
    _, watch = fed.run(setup, federation)
    parts = naive.rows_of(federation)
    labels = setup.summary.goal.constraints(federation.attributes).labels
    w, lam = watch.weights[0].astype(np.float64), np.zeros(len(labels))
    for found, record in zip(watch.weights[1:], watch.records[1:], strict=True):
        messages = [message(w, part, labels) for part in parts.values()]
        step, lam = mmdm(w, lam, messages, alpha=0.002, **rule)
        w = w - 0.5 * step
        close(found, w, 1e-5)
        close(record.log["multipliers"], lam, 1e-6)
    assert np.abs(w - watch.weights[0]).max() > 0.1
    assert lam.max() > 0.1


@pytest.mark.parametrize("notion", ["dp", "eo"])
def test_without_damping_and_tolerance_it_is_mfairfl_without_surgery_bit_for_bit(
    notion, federation
):
    shared = {"gamma": 40.0, "eta": 0.5}
    one = create("fpfl-paper", damping=0.0, **shared)
    two = create("mfairfl-paper", weights="size", beta=0.0, **shared)
    runs = [
        fed.run(setup_with(federation, s, notion, 0.0, rounds=4), federation) for s in (one, two)
    ]
    assert np.array_equal(runs[0][1].weights, runs[1][1].weights)
    logs = [watch.records[-1].log["multipliers"] for _, watch in runs]
    assert logs[0] == logs[1]
    assert max(logs[0]) > 0.1


def test_without_multipliers_it_is_fedavg_bit_for_bit(federation):
    fed.assert_same_runs(federation, create("fpfl", gamma=0.0, damping=0.0), "fedavg")


def test_the_literal_reading_takes_a_server_step_for_every_local_epoch():
    options = {"rounds": 2, "local_epochs": 3, "hidden": (4,)}
    for name, steps in {"fpfl-paper": 6, "fpfl": 2}.items():
        run = mfairfl.train(fed.people_table(), strategy=name, **options)
        assert run.record.rounds == steps


def test_multipliers_go_on_under_partial_participation(federation):
    setup = fed.setup_for(federation, "fpfl", rounds=5, participation=0.5)
    _, watch = fed.run(setup, federation)
    constraints = setup.summary.goal.constraints(federation.attributes)
    expected = np.zeros(len(constraints))
    for before, record in zip(watch.records, watch.records[1:], strict=False):
        train = before.measured["train"]
        present = Statistics.pooled({name: train[name] for name in record.coefficients})
        expected += np.nan_to_num(constraints.gaps(present, "hard"))
        close(record.log["multipliers"], expected)
    assert len({tuple(record.coefficients) for record in watch.records[1:]}) > 1


# ------------------------------------------------------------------ it does what it is for


@pytest.mark.parametrize("notion", ["dp", "eo"])
def test_it_lowers_the_violation_of_fedavg(notion):
    plain, own = violations(notion, "fedavg", "fpfl")
    assert plain > 0.08
    assert own < plain / 3
