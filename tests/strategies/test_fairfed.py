"""FairFed by hand: a and b hold both sexes, c holds women alone.

        a: rows  selected     b: rows  selected     c: rows  selected
      y=0  y=1   y=0  y=1   y=0  y=1   y=0  y=1   y=0  y=1   y=0  y=1
F      12    8     2    4     6    4     3    3    10   10     1    3
M      15    5     6    3    20   20     6   14     –    –
"""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from biased_runs import violations

import federations as fed
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal
from mfairfl.strategies import create, describe
from mfairfl.strategies.fairfed import distance, reweighting
from rounds import SEX, close, measurement, play, statistics

A = measurement("a", [[12, 8], [15, 5]], [[2, 4], [6, 3]])
B = measurement("b", [[6, 4], [20, 20]], [[3, 3], [6, 14]])
C = measurement("c", [[10, 10], [0, 0]], [[1, 3], [0, 0]])
AGE = Attribute("age", ("young", "mid", "old"))

# P(F) − P(M) of all rows and of labels y = 1; c has none, and its accuracy is compared instead.
SPD, SPD_A, SPD_B = 16 / 50 - 29 / 60, 6 / 20 - 9 / 20, 6 / 10 - 20 / 40
EOD, EOD_A, EOD_B = 10 / 22 - 17 / 25, 4 / 8 - 3 / 5, 3 / 4 - 14 / 20
ACCURACY = (12 - 2 + 4 + 15 - 6 + 3 + 6 - 3 + 3 + 20 - 6 + 14 + 10 - 1 + 3) / 110
ACCURACY_C = (10 - 1 + 3) / 20
SIZES = np.array([40, 50, 20]) / 110


def fairfed(**options):
    return create("fairfed", **({"debias": "none", "beta": 0.1} | options))


# ------------------------------------------------------------------ Δ and the weights


@pytest.mark.parametrize(
    ("notion", "expected"),
    [
        ("dp", [abs(SPD - SPD_A), abs(SPD - SPD_B), abs(ACCURACY - ACCURACY_C)]),
        ("eopp", [abs(EOD - EOD_A), abs(EOD - EOD_B), abs(ACCURACY - ACCURACY_C)]),
    ],
)
def test_a_round_as_printed(notion, expected):
    step, _ = play(fairfed(), [A, B, C], notion=notion)
    close(list(step.log["distances"].values()), expected)
    moved = SIZES - 0.1 * (np.array(expected) - np.mean(expected))
    close(list(step.log["weights"].values()), moved)
    close(step.coefficients, moved / moved.sum())
    assert np.abs(step.coefficients - SIZES).max() > 0.005


def test_equalized_odds_takes_the_wider_of_both_labels():
    # y = 0: pooled 6/28 − 12/35, a 2/12 − 6/15; y = 1: EOD.
    apart = [abs((6 / 28 - 12 / 35) - (2 / 12 - 6 / 15)), abs(EOD - EOD_A)]
    step, _ = play(fairfed(), [A, B, C], notion="eo")
    close(step.log["distances"]["a"], max(apart))


def test_several_groups_compare_every_pair():
    index = Goal().constraints((AGE,))
    own = statistics([[10, 10]] * 3, [[2, 2], [5, 5], [4, 8]])  # .2 .5 .6
    whole = statistics([[20, 20]] * 3, [[8, 8], [4, 8], [10, 12]])  # .4 .3 .55
    rates = [(0.2, 0.4), (0.5, 0.3), (0.6, 0.55)]
    pairs = [abs((f - g) - (p - q)) for f, p in rates for g, q in rates]
    close(distance(index, own, whole), max(pairs))
    lacking = statistics([[10, 10], [0, 0], [10, 10]], [[2, 2], [0, 0], [4, 8]])
    close(distance(index, lacking, whole), (0.6 - 0.2) - (0.55 - 0.4))


def test_weights_persist():
    first, _ = play(fairfed(), [A, B, C])
    second, _ = play(fairfed(), [A, B, C], first.state)
    deltas = np.array(list(first.log["distances"].values()))
    moved = SIZES - 2 * 0.1 * (deltas - deltas.mean())
    close(second.coefficients, moved / moved.sum())


def test_negative_weights_count_as_0_and_are_remembered():
    # Δ = (.0133, .2633, .0091): b falls below 0 with β = 5.
    step, _ = play(fairfed(beta=5.0), [A, B, C])
    deltas = np.array(list(step.log["distances"].values()))
    moved = SIZES - 5 * (deltas - deltas.mean())
    assert moved[1] < 0 < moved[0]
    close(
        step.coefficients, [moved[0] / (moved[0] + moved[2]), 0, moved[2] / (moved[0] + moved[2])]
    )
    close(step.log["weights"]["b"], moved[1])


def test_where_all_weights_are_negative_sizes_count():
    step, _ = play(fairfed(beta=5.0), [A, B, C], reporting="b")
    close(step.coefficients, [1.0])
    state = {**step.state, "weights": np.array([-9.0, -900.0, -9.0])}
    both, _ = play(fairfed(beta=0.0), [A, B, C], state, reporting="ab")
    close(both.coefficients, [4 / 9, 5 / 9])


def test_absent_clients_keep_their_weight():
    step, _ = play(fairfed(), [A, B], absent=[C])
    spd = 12 / 30 - 29 / 60
    apart = 0.1 * (abs(spd - SPD_A) - abs(spd - SPD_B)) / 2
    moved = np.array([SIZES[0] - apart, SIZES[1] + apart])
    close(list(step.log["weights"].values()), [*moved, SIZES[2]])
    close(step.coefficients, moved / moved.sum())
    later, _ = play(fairfed(beta=0.0), [B, C], step.state, absent=[A])
    kept = np.array([moved[1], SIZES[2]])
    close(later.coefficients, kept / kept.sum())


def test_one_client_counts_fully():
    for m in (A, C):
        step, _ = play(fairfed(beta=5.0), [m])
        close(step.coefficients, [1.0])
        json.dumps(step.log, allow_nan=False)


def test_as_declearn_weighs():
    """Two rounds of declearn 2.9.1's aggregator on the sizes and SPDs of a, b and d.

    It counts w̄ in rows, so that its β is n times the paper's: 11 for β = .1.
    """
    d = measurement("d", [[6, 4], [6, 4]], [[1, 1], [4, 3]])
    first, _ = play(fairfed(), [A, B, d])
    second, _ = play(fairfed(), [A, B, d], first.state)
    close(second.coefficients, [0.4017316017316017, 0.4426406926406926, 0.15562770562770564])


# ------------------------------------------------------------------ local debiasing


def test_reweighting_of_own_counts():
    _, plans = play(fairfed(debias="reweighting"), [A, B, C])
    # a: n_F n_0/(n n_F0) = 20·27/(40·12), …
    close(
        plans["a"].loss_table,
        [[20 * 27 / 480, 20 * 13 / 320], [20 * 27 / 600, 20 * 13 / 200]],
    )
    close(plans["c"].loss_table, np.ones((2, 2)))  # one group: nothing to balance


def test_reweighted_labels_are_independent_of_the_group():
    n = B.statistics.counts
    weighted = n * reweighting(Goal().constraints(SEX), n)
    close(weighted.sum(), n.sum())
    close(weighted, np.outer(weighted.sum(axis=1), weighted.sum(axis=0)) / n.sum())


def test_reweighting_without_a_cell_or_a_class():
    index = Goal().constraints(SEX)
    close(reweighting(index, np.array([[5.0, 0.0], [3.0, 2.0]])), [[0.8, 1], [4 / 3, 0.5]])
    close(reweighting(index, np.array([[5.0, 0.0], [3.0, 0.0]])), np.ones((2, 2)))


def test_rows_that_are_not_recorded_are_not_reweighted():
    index = Goal().constraints((Attribute("sex", ("F", "M", "?")),))
    table = reweighting(index, np.array([[30.0, 10.0], [30.0, 30.0], [500.0, 7.0]]))
    close(table, [[0.8, 1.6], [1.2, 0.8], [1, 1]])  # 40 · 60/100 / 30 = .8, …
    alone = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 7.0]])
    close(reweighting(index, alone), np.ones((3, 2)))


def test_who_has_recorded_nothing_is_compared_by_accuracy():
    index = Goal().constraints((Attribute("sex", ("F", "M", "?")),))
    whole = statistics([[10, 10], [10, 10], [10, 10]], [[2, 6], [4, 8], [1, 9]])
    alone = statistics([[0, 0], [0, 0], [10, 10]], [[0, 0], [0, 0], [1, 9]])
    # 18 of 20 decided rightly, and of all 8 + 6 + 6 + 8 + 9 + 9 = 46 of 60.
    close(distance(index, alone, whole), 18 / 20 - 46 / 60)
    some = statistics([[10, 10], [10, 10], [0, 0]], [[2, 4], [4, 8], [0, 0]])
    close(distance(index, some, whole), abs((0.3 - 0.6) - (0.4 - 0.6)))


def test_reweighting_several_attributes_adds_the_deviations():
    index = Goal(attributes=("sex", "age")).constraints((*SEX, AGE))
    n = np.array([[4, 6], [2, 8], [5, 5], [9, 1], [7, 3], [8, 2]], dtype=float)
    sex, age = n.reshape(2, 3, 2).sum(axis=1), n.reshape(2, 3, 2).sum(axis=0)
    label, expected = n.sum(axis=0), np.zeros((6, 2))
    for s in range(2):
        for a in range(3):
            for y in range(2):
                by_sex = 30 * label[y] / (60 * sex[s, y])
                by_age = 20 * label[y] / (60 * age[a, y])
                expected[3 * s + a, y] = by_sex + by_age - 1
    close(reweighting(index, n), expected)


def test_every_client_moves_a_lambda_of_its_own():
    strategy = fairfed(debias="fairbatch", step=0.2, driven_by="rates")
    step, plans = play(strategy, [A, B, C])
    # Demographic parity: λ_M ← p_M + .2 (F_M − F_F), in shares of the client's own rows.
    close(step.state["lambda"], [[0.5 - 0.03, 0.53], [0.2 + 0.02, 0.78], [1, 0]])
    assert json.loads(json.dumps(step.log))["lambda"]["c"] == [1.0, 0.0]
    close(plans["a"].loss_table, [[0.94, 1.06], [1.06, 0.94]])
    close(plans["b"].loss_table, [[1.1, 0.9], [0.975, 1.025]])
    close(plans["c"].loss_table, np.ones((2, 2)))
    later, _ = play(strategy, [A, C], step.state, absent=[B], index=3)  # a/√4
    close(later.state["lambda"], [[0.5 - 0.045, 0.545], [0.22, 0.78], [1, 0]])


def test_losses_may_move_it():
    m = measurement("a", [[30, 10], [40, 20]], losses=[[6, 9], [16, 8]])
    step, _ = play(fairfed(debias="fairbatch", step=0.1, driven_by="loss"), [m], notion="eopp")
    close(step.state["lambda"], [[0.1 + 0.05, 0.2 - 0.05]])


def test_a_client_without_training_rows_has_no_mass():
    empty = measurement("z", np.zeros((2, 2)))
    step, _ = play(create("fairfed"), [A], absent=[empty])
    close(step.state["lambda"][1], [0, 0])
    close(step.state["weights"][1], 0)


# ------------------------------------------------------------------ whole runs


def test_without_budget_and_debiasing_it_is_fedavg_bit_for_bit(federation):
    fed.assert_same_runs(federation, "fedavg", fairfed(beta=0.0), participation=0.75)


def test_the_weights_of_a_run_follow_its_records(federation):
    """Every round's coefficients again, from the decisions that were measured before it."""
    setup = fed.setup_for(federation, create("fairfed", beta=0.5))
    state = fed.first(setup)
    _, watch = fed.run(setup, federation, state=state)
    index = setup.summary.goal.constraints(federation.attributes)
    names = sorted(c.name for c in federation.clients)
    bar = np.array([len(c.train) for c in sorted(federation.clients, key=lambda c: c.name)]) / 208
    for before, record in zip(watch.records[:-1], watch.records[1:], strict=True):
        train = before.measured["train"]
        whole = sum((train[name] for name in names[1:]), start=train[names[0]])
        deltas = np.array([distance(index, train[name], whole) for name in names])
        bar = bar - 0.5 * (deltas - deltas.mean())
        used = np.maximum(bar, 0)
        close([record.coefficients[name] for name in names], used / used.sum())


@pytest.mark.parametrize("notion", ["dp", "eopp"])
def test_it_lowers_the_violation_of_fedavg(notion):
    plain, own = violations(notion, "fedavg", "fairfed")
    assert plain > 0.08
    assert own < plain / 2


# ------------------------------------------------------------------ what it says of itself


def test_card_and_grid():
    card = describe("fairfed")
    assert (card.needs, card.reveals, card.constrained) == ("none", "sums", True)
    grid = {f.name: f.metadata.get("grid") for f in fields(create("fairfed"))}["beta"]
    assert grid == (0.01, 0.05, 0.1, 1.0, 2.0, 5.0)
    assert create("fairfed").beta in grid


@pytest.mark.parametrize("name", ["beta", "step"])
def test_negative_numbers_are_refused(name):
    with pytest.raises(ConfigError, match=rf"^strategy\.{name} must be at least 0, not -1\.0$"):
        create("fairfed", **{name: -1.0})
