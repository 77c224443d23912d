"""FedFB round by round: a's rows and b's make up the table of test_fairbatch.

        a: rows   losses  selected      b: rows   losses   selected
      y=0  y=1   y=0 y=1   y=0 y=1    y=0  y=1   y=0  y=1   y=0 y=1
F      20    4     3   3     1   1     10    6     3    6     2   3
M      10   16     5   6     6  14     30    4    11    2    12   2
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from math import sqrt

import numpy as np
import pytest
from biased_runs import violations

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.strategies import create, describe
from rounds import close, measurement, play

A = measurement("a", [[20, 4], [10, 16]], [[1, 1], [6, 14]], [[3, 3], [5, 6]])
B = measurement("b", [[10, 6], [30, 4]], [[2, 3], [12, 2]], [[3, 6], [11, 2]])
C = measurement("c", [[5, 5], [5, 5]])
WHOLE = np.array([[30.0, 10.0], [40.0, 20.0]])

# Moves of the men's λ at step 1 (see test_fairbatch).
F_LOSS = (16 - 8) / 60 - (6 - 9) / 40 + 30 / 40 - 40 / 60
F_RATE = 34 / 60 - 7 / 40
GAP = 0.1


def fedfb(**options):
    return create("fedfb", **({"step": GAP} | options))


# ------------------------------------------------------------------ groups


@pytest.mark.parametrize(("driven_by", "f"), [("loss", F_LOSS), ("rates", F_RATE)])
def test_pooled_sums_move_lambda(driven_by, f):
    step, _ = play(fedfb(driven_by=driven_by), [A, B])
    close(step.state["lambda"], [0.4 - GAP * f, 0.6 + GAP * f])


def test_the_step_falls_with_the_root_of_the_round():
    strategy, lam = fedfb(driven_by="loss"), 0.6
    state = None
    for t in (1, 2, 3):
        state = play(strategy, [A, B], state, index=t - 1)[0].state
        lam += GAP / sqrt(t) * F_LOSS
        close(state["lambda"], [1 - lam, lam])


def naive_nc(notion, lam, n):
    """nc_k of section 4 by its formulas, with λ as the paper indexes it; n is client k's."""
    group, label, total = WHOLE.sum(axis=1), WHOLE.sum(axis=0), WHOLE.sum()
    if notion == "dp":
        p = group / total
        parts = [(lam[z] * n[z, 0] + (2 * p[z] - lam[z]) * n[z, 1]) / group[z] for z in (0, 1)]
        return sum(parts)
    if notion == "eopp":
        return n[:, 0].sum() / total + sum(lam[z] * n[z, 1] / WHOLE[z, 1] for z in (0, 1))
    if notion == "eo":
        lam = np.reshape(lam, (2, 2))  # [y, z]
        return sum(lam[y, z] * n[z, y] / WHOLE[z, y] for y in (0, 1) for z in (0, 1))
    assert notion == "ap"
    assert label.sum() == total
    return sum(lam[z] * n[z].sum() / group[z] for z in (0, 1))


@pytest.mark.parametrize("notion", ["dp", "eopp", "eo", "ap"])
def test_clients_count_by_the_weight_of_their_rows(notion):
    step, plans = play(fedfb(step=0.5, driven_by="loss"), [A, B], notion=notion)
    nc = np.array([naive_nc(notion, step.state["lambda"], m.statistics.counts) for m in (A, B)])
    close(step.coefficients, nc / nc.sum())
    assert abs(step.coefficients[0] - 0.5) > 0.001  # not the 50 of 100 rows each has
    for m in (A, B):
        n = m.statistics.counts
        close((np.array(plans[m.client].loss_table) * n).sum() / n.sum(), 1.0)


@pytest.mark.parametrize("notion", ["dp", "eopp", "eo", "ap", "ap-loss"])
def test_the_weighted_sum_of_objectives_is_the_pooled_weighted_loss(notion):
    """Row by row: Σ_k c_k J_k = Σ_i A_i l_i / Σ_i A_i, whatever the losses."""
    step, plans = play(fedfb(step=0.5), [A, B], notion=notion)
    rng = np.random.default_rng(3)
    combined = top = bottom = 0.0
    weights = np.array(step.log["loss_weights"])
    for c, m in zip(step.coefficients, (A, B), strict=True):
        table, objective = np.array(plans[m.client].loss_table), 0.0
        for (z, y), rows in np.ndenumerate(m.statistics.counts):
            losses = rng.exponential(size=int(rows))
            objective += table[z, y] * losses.sum() / m.rows
            top += weights[z, y] * losses.sum()
            bottom += weights[z, y] * rows
        combined += c * objective
    close(combined, top / bottom)
    assert np.abs(weights - 1).max() > 0.01


def test_tables_are_all_that_changes_in_the_plan():
    _, plans = play(fedfb(), [A, B])
    _, plain = play(create("fedavg"), [A, B])
    for name, plan in plans.items():
        assert replace(plan, loss_table=None) == plain[name]


def test_those_who_reported_share_the_step():
    step, _ = play(fedfb(), [A, B, C], reporting="b")
    close(step.coefficients, [1.0])


def test_absent_rows_leave_the_masses_to_stand_on():
    """λ speaks of the federation's rows, though only a is measured."""
    step, _ = play(fedfb(), [A], absent=[B])
    f = 20 / 26 - 2 / 24  # a's own rates
    close(step.state["lambda"], [0.4 - GAP * f, 0.6 + GAP * f])
    later, _ = play(fedfb(), [B], step.state, absent=[A])
    g = 14 / 34 - 5 / 16
    close(later.state["lambda"], [0.4 - GAP * (f + g), 0.6 + GAP * (f + g)])


def test_a_client_whose_rows_weigh_nothing_counts_for_nothing():
    men = measurement("men", [[0, 0], [0, 9]], [[0, 0], [0, 9]])
    both = measurement("all", [[20, 10], [20, 1]], [[0, 0], [20, 1]])
    strategy = fedfb(step=100.0)  # at once to the bounds: men's y = 1 rows weigh 0
    step, plans = play(strategy, [both, men])
    close(step.coefficients, [1.0, 0.0])
    assert np.isfinite(plans["men"].loss_table).all()
    alone, _ = play(strategy, [both, men], reporting=["men"])
    close(alone.coefficients, [0.0])


def test_one_client_and_one_group():
    step, plans = play(fedfb(), [measurement("a", [[7, 3], [0, 0]], [[2, 2], [0, 0]])])
    close(step.coefficients, [1.0])
    close(plans["a"].loss_table, np.ones((2, 2)))
    assert step.log["violation_hard"] == 0.0


def test_the_log_tells_what_moved():
    step, _ = play(fedfb(), [A, B])
    log = json.loads(json.dumps(step.log, allow_nan=False))
    assert log["constraints"] == [
        "demographic_parity | all | sex | F",
        "demographic_parity | all | sex | M",
    ]
    close(log["lambda"], step.state["lambda"])
    close(log["loss_weights"][1], [1 + GAP * F_RATE / 0.6, 1 - GAP * F_RATE / 0.6])
    close(log["violation_hard"], 0.41 - 7 / 40)
    undefined, _ = play(fedfb(), [measurement("a", [[5, 0], [3, 0]])], notion="eopp")
    assert undefined.log["violation_hard"] is None


# ------------------------------------------------------------------ clients as groups


@pytest.mark.parametrize(
    ("driven_by", "rates"),
    [("loss", [17 / 50, 22 / 50, 0.5]), ("rates", [12 / 50, 19 / 50, 0.5])],
)
def test_client_parity(driven_by, rates):
    # n = 50, 50, 20 of 120; the move is 2 q_k (F_k − F)/Σ q(1 − q).
    step, plans = play(fedfb(parity="client", driven_by=driven_by), [A, B, C])
    q = np.array([50, 50, 20]) / 120
    F = (50 * rates[0] + 50 * rates[1] + 20 * rates[2]) / 120
    expected = q + GAP * 2 * q * (np.array(rates) - F) / (q * (1 - q)).sum()
    close(step.coefficients, expected)
    close(list(step.log["lambda"].values()), expected)
    assert all(plan.loss_table is None for plan in plans.values())


def test_two_clients_move_as_printed():
    step, _ = play(fedfb(parity="client", driven_by="loss"), [A, B])
    close(step.coefficients, [0.5 - GAP * 5 / 50, 0.5 + GAP * 5 / 50])


def test_client_weights_stay_on_the_simplex():
    strategy = fedfb(parity="client", driven_by="loss", step=100.0)
    close(play(strategy, [A, B])[0].coefficients, [0.0, 1.0])


def test_absent_clients_keep_their_mass():
    strategy = fedfb(parity="client", driven_by="loss")
    step, _ = play(strategy, [A, B], absent=[C])
    lam = np.array([50 / 120 - GAP / 10, 50 / 120 + GAP / 10, 20 / 120])
    close(step.state["client_lambda"], lam)
    close(step.coefficients, lam[:2] / lam[:2].sum())
    later, _ = play(strategy, [B, C], step.state, absent=[A])
    close(later.state["client_lambda"].sum(), 1.0)
    close(later.state["client_lambda"][0], lam[0])


def test_where_the_absent_hold_all_mass_nothing_moves():
    strategy = fedfb(parity="client")
    begun, _ = play(strategy, [A, B], absent=[C])
    state = {**begun.state, "client_lambda": np.array([0.0, 0.0, 1.0])}
    step, _ = play(strategy, [A, B], state, absent=[C])
    close(step.coefficients, [0.0, 0.0])
    close(step.state["client_lambda"], [0.0, 0.0, 1.0])


def test_a_lone_client_keeps_its_mass():
    close(play(fedfb(parity="client"), [A])[0].coefficients, [1.0])


# ------------------------------------------------------------------ whole runs


def test_without_a_step_it_is_fedavg_bit_for_bit(federation):
    fed.assert_same_runs(federation, "fedavg", create("fedfb", step=0.0))


def test_client_parity_without_a_step_is_fedavg(federation):
    strategies = ("fedavg", create("fedfb", step=0.0, parity="client"))
    plain, own = (fed.run(fed.setup_for(federation, s), federation)[1] for s in strategies)
    close(own.weights, plain.weights, 1e-6)


@pytest.mark.parametrize("notion", ["dp", "eo", "eopp"])
def test_it_lowers_the_violation_of_fedavg(notion):
    plain, own = violations(notion, "fedavg", "fedfb")
    assert plain > 0.08
    assert own < plain / 3


# ------------------------------------------------------------------ what it says of itself


def test_card_and_grid():
    card = describe("fedfb")
    assert (card.needs, card.reveals, card.constrained) == ("none", "sums", True)
    grid = {f.name: f.metadata.get("grid") for f in fields(create("fedfb"))}["step"]
    assert grid == (0.001, 0.05, 0.08, 0.1, 0.2, 0.5, 1.0, 2.0)
    assert create("fedfb").step in grid


def test_a_negative_step_is_refused():
    with pytest.raises(ConfigError, match=r"^strategy\.step must be at least 0, not -1\.0$"):
        create("fedfb", step=-1.0)
