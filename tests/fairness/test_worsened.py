"""What got worse: values against the metric table, chance against formulas and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from mfairfl.data import Attribute
from mfairfl.errors import DataError
from mfairfl.fairness import Event, MetricTable, Notion, Tally, notion
from mfairfl.fairness.worsened import worsened

SEX = Attribute("sex", ("F", "M"))
AGE = Attribute("age", ("old", "young"))


def tally(rows, favourable, attributes=(SEX,), clients=None):
    """Rows and favourable decisions by (client,) cell and label."""
    rows, favourable = (np.array(x).reshape(-1, *np.shape(x)[-2:]) for x in (rows, favourable))
    counts = np.stack([rows - favourable, favourable], axis=-1)
    return Tally(counts, clients or tuple(f"c{k}" for k in range(len(rows))), tuple(attributes))


def drawn(rows, rates, seed, coincide=0.0):
    """Two models' decisions at the rates of two lists; a share of rows is decided alike."""
    rng, rows = np.random.default_rng(seed), np.array(rows)
    found = np.zeros((2, *rows.shape), dtype=int)
    for place, n in np.ndenumerate(rows):
        first = rng.random(n)
        second = np.where(rng.random(n) < coincide, first, rng.random(n))
        found[0][place] = (first < rates[0][place]).sum()
        found[1][place] = (second < rates[1][place]).sum()
    return [tally(rows, decided) for decided in found]


def measured(table, item):
    """The same number as the metric table has it."""
    if item.part == "attribute":
        return table.measures(item.attribute)[item.number].value
    if item.part == "client":
        return table.by_client[item.whom][item.number].value
    return table.by_group[item.attribute][item.whom][item.number].value


@given(seed=st.integers(0, 10_000))
def test_values_are_those_of_the_metric_table(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 30, (3, 4, 2))
    own = Notion("wrong_refusals", (Event("y=1", (1,)),), "error")
    notions = [notion("dp"), notion("eo"), notion("ap"), own]
    both = [tally(rows, rng.integers(0, rows + 1), (SEX, AGE)) for _ in range(2)]
    before, after = (MetricTable.from_tally(x, notions=notions, draws=1) for x in both)
    found = worsened(*both, level=0.0, notions=notions)  # at level 0 chance explains nothing
    # By sex, by age, by both: notions, and two shares of each group; two shares of each client.
    assert len(found) == 3 * 4 + 2 * (2 + 2 + 4) + 2 * 3
    for item in found:
        assert item.before == pytest.approx(measured(before, item), abs=1e-12)
        assert item.after == pytest.approx(measured(after, item), abs=1e-12)
    losses = [item.loss for item in found]
    assert losses == sorted(losses, reverse=True)


def test_a_share_is_tested_by_the_normal_approximation_of_smoothed_shares():
    # Accuracy and true positive rate of two clients, 4 numbers, all of rows with y = 1.
    before, after = (
        tally([[[0, 100]], [[0, 60]]], [[[0, north]], [[0, south]]], attributes=())
        for north, south in ((80, 50), (55, 51))
    )
    c = norm.isf(0.05 / 4) ** 2
    p, q = (80 + c / 2) / (100 + c), (55 + c / 2) / (100 + c)
    single = norm.sf((p - q) / np.sqrt((p * (1 - p) + q * (1 - q)) / (100 + c)))
    found = worsened(before, after)
    assert [(x.part, x.whom, x.number) for x in found] == [
        ("client", "c0", "accuracy"),
        ("client", "c0", "true_positive_rate"),
    ]
    # After Holm: four times the smaller of two equal ones, and no less for the other.
    assert [x.p_holm for x in found] == pytest.approx([4 * single, 4 * single], rel=1e-9)
    assert str(found[0]) == "accuracy of c0: 80.0 to 55.0 %"


@pytest.mark.parametrize(
    "rows", [[[70, 30]] * 2, [[14, 6], [700, 300]], [[3, 2], [6, 4], [90, 40]]]
)
@pytest.mark.parametrize("rates", [(0.1, 0.6), (0.3, 0.9)])
def test_equal_models_are_hardly_ever_told_apart(rows, rates):
    attribute = Attribute("group", tuple("abc"[: len(rows)]))
    rng, shares, false = np.random.default_rng(5), np.tile(rates, (len(rows), 1)), 0
    for _ in range(400):
        both = (tally(rows, rng.binomial(rows, shares), [attribute]) for _ in range(2))
        false += bool(worsened(*both))
    # At most 1 in 20 by the promise; of 400 draws at that rate 33 or more occur 1 time in 200.
    assert false < 33


@pytest.mark.parametrize("coincide", [0.0, 0.7, 1.0])
def test_a_gap_that_only_turns_round_is_no_larger_gap(coincide):
    rows, names = [[400, 200], [400, 200]], set()
    low, high, middle = (0.2, 0.6), (0.4, 0.8), (0.3, 0.7)
    false = 0
    for seed in range(200):
        both = drawn(rows, (np.array([low, middle]), np.array([high, middle])), seed, coincide)
        names = {x.number for x in worsened(*both) if x.part == "attribute"}
        false += bool(names)
    assert false < 20  # 1 in 20 by the promise; 20 or more of 200 occur 4 times in 1,000


def test_a_larger_gap_and_its_victims_are_named_and_a_smaller_one_is_not():
    rows = [[3000, 300], [5000, 2000]]
    fedavg, fair = tally(rows, [[100, 180], [650, 1310]]), tally(rows, [[250, 240], [280, 1000]])
    named = {(x.part, x.whom, x.number) for x in worsened(fedavg, fair)}
    assert ("group", "M", "true_positive_rate") in named
    assert ("attribute", "", "equalized_odds_violation") in named
    assert ("attribute", "", "demographic_parity_violation") not in named
    back = {(x.part, x.whom, x.number) for x in worsened(fair, fedavg)}
    assert ("attribute", "", "demographic_parity_violation") in back
    assert not named & back
    assert worsened(fair, fair) == []


def test_a_group_of_few_rows_leaves_open_how_large_a_gap_was_but_not_what_others_lost():
    three = Attribute("group", ("few", "many", "most"))
    rows = [[2, 2], [800, 800], [3000, 3000]]
    before = tally(rows, [[1, 1], [400, 400], [1500, 1500]], [three])
    after = tally(rows, [[1, 1], [400, 100], [1500, 1500]], [three])
    found = {(x.part, x.whom, x.number) for x in worsened(before, after)}
    assert found == {("group", "many", "accuracy"), ("group", "many", "true_positive_rate")}
    without = [
        tally(x.counts.sum(-1)[:, 1:], x.counts[:, 1:, :, 1], [SEX]) for x in (before, after)
    ]
    assert ("attribute", "equalized_odds_violation") in [
        (x.part, x.number) for x in worsened(*without)
    ]


def test_groups_without_rows_and_rows_without_a_group_are_left_out():
    attribute = Attribute("group", ("a", "b", "none", "?"))
    rows = [[500, 500], [500, 500], [0, 0], [90, 10]]
    before = tally(rows, [[50, 450], [50, 450], [0, 0], [9, 9]], [attribute])
    after = tally(rows, [[50, 450], [50, 50], [0, 0], [90, 0]], [attribute])
    found = {(x.part, x.whom, x.number) for x in worsened(before, after)}
    assert found == {("group", "b", "accuracy"), ("group", "b", "true_positive_rate")}


def test_expected_counts_of_drawn_decisions_are_compared():
    rows = [[500, 500], [500, 500]]
    before, after = (
        tally(rows, np.array(x)) for x in ([[50.5, 450]] * 2, [[50, 450], [50, 99.5]])
    )
    assert worsened(before, after)[0].whom == "M"


@pytest.mark.parametrize(
    "other",
    [
        tally([[5, 5], [5, 6]], [[1, 1], [1, 1]]),
        tally([[5, 5], [5, 5]], [[1, 1], [1, 1]], [AGE]),
        tally([[5, 5], [5, 5]], [[1, 1], [1, 1]], clients=("x",)),
    ],
)
def test_other_rows_are_refused(other):
    with pytest.raises(DataError, match="not of the same rows"):
        worsened(tally([[5, 5], [5, 5]], [[1, 1], [1, 1]]), other)
