"""FairBatch's weights and moves against the papers' formulas, group by group.

100 rows, summed cross-entropies and decisions:

            rows          losses         selected
          y=0  y=1       y=0   y=1       y=0  y=1
    F      30   10        6     9         3    4
    M      40   20       16     8        18   16
"""

from __future__ import annotations

from itertools import permutations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from mfairfl.data import Attribute
from mfairfl.fairness.constraints import Goal
from mfairfl.strategies.fairbatch import FairBatch, moves, surrogate
from rounds import SEX, close, statistics

N = np.array([[30.0, 10.0], [40.0, 20.0]])
LOSSES = [[6.0, 9.0], [16.0, 8.0]]
SELECTED = [[3.0, 4.0], [18.0, 16.0]]
SUMS = statistics(N, SELECTED, LOSSES)
AGE = Attribute("age", ("young", "mid", "old"))


def constraints(notion, task=SEX, **goal):
    return Goal(notions=(notion,), **goal).constraints(task)


def after(notion, step, sums=SUMS, driven_by="loss", alpha=0.0, lam=None):
    index = constraints(notion)
    rule = FairBatch(constraints=index, counts=N, driven_by=driven_by, alpha=alpha)
    return rule.moved(rule.masses() if lam is None else np.array(lam), sums, step)


def masses(index, counts):
    return FairBatch(constraints=index, counts=counts).masses()


def loss_table(index, lam, counts):
    return FairBatch(constraints=index, counts=counts).weights(lam)


# ------------------------------------------------------------------ moves


def test_demographic_parity_moves_as_printed():
    # f_1 = (L_01 − L_11)/n_1 − (L_00 − L_10)/n_0 + n_00/n_0 − n_01/n_1.
    f = (16 - 8) / 60 - (6 - 9) / 40 + 30 / 40 - 40 / 60
    close(after("dp", 0.1), [0.4 - 0.1 * f, 0.6 + 0.1 * f])


def test_equal_opportunity_moves_as_printed():
    f = 8 / 20 - 9 / 10
    close(after("eopp", 0.1), [0.1 - 0.1 * f, 0.2 + 0.1 * f])


def test_equalized_odds_moves_both_labels():
    f0, f1 = 16 / 40 - 6 / 30, 8 / 20 - 9 / 10
    close(after("eo", 0.1), [0.3 - 0.1 * f0, 0.4 + 0.1 * f0, 0.1 - 0.1 * f1, 0.2 + 0.1 * f1])


@pytest.mark.parametrize("notion", ["ap", "ap-loss"])
def test_accuracy_parity_moves_as_printed(notion):
    f = 24 / 60 - 15 / 40
    close(after(notion, 0.1), [0.4 - 0.1 * f, 0.6 + 0.1 * f])


@pytest.mark.parametrize(
    ("notion", "moves_of_men"),
    [
        ("dp", [34 / 60 - 7 / 40]),  # selected more often: their y = 0 gain
        ("eopp", [4 / 10 - 16 / 20]),  # found more often: their y = 1 lose
        ("eo", [18 / 40 - 3 / 30, 4 / 10 - 16 / 20]),
        ("ap", [22 / 60 - 9 / 40]),  # misjudged more often: they gain
        ("ap-loss", [24 / 60 - 15 / 40]),
    ],
)
def test_decisions_may_drive_instead(notion, moves_of_men):
    found = after(notion, 0.1, driven_by="rates") - masses(constraints(notion), N)
    close(found, np.ravel([[-0.1 * f, 0.1 * f] for f in moves_of_men]))


@pytest.mark.parametrize(
    ("notion", "expected"),
    [
        ("dp", [0.0, 1.2]),  # λ_z ∈ [0, 2 p_z]
        ("eopp", [0.3, 0.0]),  # all of the event's mass goes to the women
        ("eo", [0.0, 0.7, 0.3, 0.0]),
        ("ap", [0.0, 1.0]),
    ],
)
def test_bounds(notion, expected):
    close(after(notion, 100.0), expected)


def test_losses_stand_for_errors():
    close(surrogate(SUMS).positives, [[6, 10 - 9], [16, 20 - 8]])
    close(surrogate(SUMS).losses, LOSSES)


def test_gaps_within_the_tolerance_are_left_alone():
    # Women 4/10, men 16/20, all 20/30: d = (4/15, −2/15).
    close(after("eopp", 0.1, driven_by="rates", alpha=0.3), [0.1, 0.2])
    # At .2 only the women's gap counts, 1/15; men give what women get: as a gap of 1/15.
    close(after("eopp", 0.1, driven_by="rates", alpha=0.2), [0.1 + 0.1 / 15, 0.2 - 0.1 / 15])


def test_steps_add_up():
    once = after("eo", 0.05)
    f0, f1 = 16 / 40 - 6 / 30, 8 / 20 - 9 / 10
    twice = [0.3 - 0.1 * f0, 0.4 + 0.1 * f0, 0.1 - 0.1 * f1, 0.2 + 0.1 * f1]
    close(after("eo", 0.05, lam=once), twice)


# ------------------------------------------------------------------ more than two groups


def against_group_0(rates):
    """The papers' moves of λ for one event where λ grows with the rate (a loss, say)."""
    f = [rate - rates[0] for rate in rates]
    return np.array([-sum(f[1:]), *f[1:]])


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 500)), min_size=2, max_size=5))
def test_a_move_is_the_mean_of_the_papers_over_pairs(groups):
    rates, n = np.array([r for r, _ in groups]), np.array([c for _, c in groups], dtype=float)
    q = n / n.sum()
    total, weight = np.zeros(len(q)), 0.0
    for g in range(len(q)):
        for z in range(g):
            total[[g, z]] += q[g] * q[z] * against_group_0([rates[g], rates[z]])
            weight += q[g] * q[z]
    found = -moves(q @ rates - rates, q)
    close(found, total / weight, 1e-9)
    if len(q) == 2:
        close(found, against_group_0(rates), 1e-9)


def test_the_names_of_three_groups_do_not_matter():
    n = np.array([[20.0, 10.0], [30.0, 10.0], [10.0, 20.0]])
    losses = np.array([[5.0, 8.0], [6.0, 9.0], [7.0, 4.0]])
    index = constraints("ap", (AGE,))

    def run(order):
        sums = statistics(n[order], losses=losses[order])
        start = masses(index, n[order])
        return FairBatch(constraints=index, counts=n[order]).moved(start, sums, 0.3)

    first = run([0, 1, 2])
    for order in map(list, permutations(range(3))):
        close(run(order), first[order])
    # Compared with group 0, they would.
    rates = losses.sum(axis=1) / n.sum(axis=1)
    assert np.abs(against_group_0(rates)[::-1] - against_group_0(rates[::-1])).max() > 0.01


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize(
    ("notion", "lam", "expected"),
    [
        ("dp", [0.3, 0.9], [[0.75, 1.25], [1.5, 0.5]]),
        ("eopp", [0.15, 0.15], [[1, 1.5], [1, 0.75]]),
        ("eo", [0.15, 0.55, 0.2, 0.1], [[0.5, 2], [1.375, 0.5]]),
        ("ap", [0.5, 0.5], [[1.25, 1.25], [5 / 6, 5 / 6]]),
    ],
)
def test_weights_of_two_groups(notion, lam, expected):
    close(loss_table(constraints(notion), np.array(lam), N), expected)


@pytest.mark.parametrize("notion", ["dp", "eopp", "eo", "ap", "ap-loss"])
def test_at_the_start_every_row_weighs_exactly_1(notion):
    index = constraints(notion, (*SEX, AGE), attributes=("sex", "age"), intersections=True)
    n = np.array([[3, 7], [11, 2], [0, 5], [1, 0], [0, 0], [9, 13]], dtype=float)
    assert (loss_table(index, masses(index, n), n) == 1.0).all()


def test_several_attributes_add_their_deviations():
    index = constraints("dp", (*SEX, AGE), attributes=("sex", "age"))
    n = np.full((6, 2), 10.0)  # p: sex ½ each, age ⅓ each
    lam = np.array([0.25, 0.75, 1 / 6, 1 / 3, 1 / 2])  # δ = ∓½ and −½, 0, ½
    women, men = [[0, 2], [0.5, 1.5], [1, 1]], [[1, 1], [1.5, 0.5], [2, 0]]
    close(loss_table(index, lam, n), [*women, *men])


def test_no_weight_is_negative():
    index = constraints("dp", (*SEX, AGE), attributes=("sex", "age"))
    lam = np.array([0.0, 0.5, 0.0, 1 / 3, 1 / 3])  # young women: 1 − 1 − 1 on y = 0, 3 on y = 1
    close(loss_table(index, lam, np.full((6, 2), 10.0))[0], [0, 3])


# ------------------------------------------------------------------ what is missing


@pytest.mark.parametrize("driven_by", ["loss", "rates"])
@pytest.mark.parametrize("notion", ["dp", "eopp", "eo", "ap", "ap-loss"])
@pytest.mark.parametrize(
    "present", [[[1, 1], [0, 0]], [[1, 0], [1, 0]], [[1, 0], [0, 1]], [[0, 1], [0, 0]]]
)
def test_missing_groups_and_classes_give_numbers(notion, driven_by, present):
    n = N * present
    index = constraints(notion)
    sums = statistics(n, np.array(SELECTED) * present, np.array(LOSSES) * present)
    start = masses(index, n)
    lam = FairBatch(constraints=index, counts=n, driven_by=driven_by).moved(start, sums, 0.1)
    table = loss_table(index, lam, n)
    assert np.isfinite(lam).all()
    assert np.isfinite(table).all()
    assert (table >= 0).all()
    if not np.array(present)[1].any():  # nobody to compare with
        close(lam, start)
        close(table, 1.0)


def test_rows_that_are_away_this_round_move_nothing():
    women = statistics(N * [[1], [0]], np.array(SELECTED) * [[1], [0]])
    close(after("dp", 0.1, women, driven_by="rates"), [0.4, 0.6])


def test_without_any_row_there_is_no_mass():
    assert not masses(constraints("eo"), np.zeros((2, 2))).any()


# ------------------------------------------------------------------ another implementation


def test_as_declearn_moves():
    """What declearn 2.9.1's controllers answer to the sums at the top with α = .01.

    It moves by ±α and not by α times the gap: with a = α/|gap| both must end at the same masses.
    """
    # FairBatch, equality of opportunity: P(y=1, F) .1 → .11, P(y=1, M) .2 → .19.
    close(after("eopp", 0.01 / 0.5), [0.11, 0.19])
    # FairBatch, equalized odds: the label of the larger gap alone, P(y=1, F) .11, P(y=1, M) .19.
    close(after("eo", 0.01 / 0.5)[2:], [0.11, 0.19])
    # FedFB, equalized odds: P(y=1, F) .1 → .100995, P(y=0, M) .4 → .409950 (by summed losses).
    found = after("eo", 0.01) - [0.3, 0.4, 0.1, 0.2]
    assert (np.sign(found) == np.sign([0.290050 - 0.3, 0.409950 - 0.4, 0.100995 - 0.1, -1])).all()
    # FedFB, demographic parity: women's y = 0 rows .3 → .292929, their y = 1 rows .1 → .107071.
    # (It moves the men the same way, which cannot narrow the gap: not followed here.)
    (women_0, women_1), (men_0, men_1) = loss_table(constraints("dp"), after("dp", 0.01), N)
    assert women_0 < 1 < women_1
    assert men_1 < 1 < men_0


# ------------------------------------------------------------------ rows that are not recorded


@pytest.mark.parametrize("notion", ["dp", "eo", "eopp", "ap"])
def test_rows_that_are_not_recorded_weigh_1_and_change_no_other_weight(notion):
    """The weights after two steps are those of the recorded rows alone."""
    own, more = constraints(notion), constraints(notion, (Attribute("sex", ("F", "?", "M")),))
    n, selected, losses = (np.insert(a, 1, 50.0, axis=0) for a in (N, SELECTED, LOSSES))
    everyone = statistics(n, selected, losses)

    def weights(index, sums):
        rule = FairBatch(constraints=index, counts=sums.counts, driven_by="rates")
        lam = rule.masses()
        for step in (0.1, 0.05):
            lam = rule.moved(lam, sums, step)
        return rule.weights(lam)

    expected = weights(own, SUMS)
    assert np.abs(expected - 1).max() > 0.05
    close(weights(more, everyone), np.insert(expected, 1, 1.0, axis=0))


def test_who_has_recorded_nothing_has_plain_weights():
    index = constraints("dp", (Attribute("sex", ("F", "M", "?")),))
    alone = np.array([[0.0, 0.0], [0.0, 0.0], [30.0, 10.0]])
    sums = statistics(alone, alone / 2, alone)
    start = masses(index, alone)
    lam = FairBatch(constraints=index, counts=alone).moved(start, sums, 1.0)
    assert lam.tolist() == start.tolist() == [0.0, 0.0]
    assert loss_table(index, lam, alone).tolist() == [[1, 1]] * 3
