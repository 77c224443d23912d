"""Rows of which an attribute is not recorded are outside its comparisons, and nowhere else.

The table of the hand-made numbers, rows and selected rows by race:

               y = 0    y = 1    all
    Black       3/30     5/10     8/40
    White      18/40    16/20    34/60
    recorded   21/70    21/30    42/100
    ?          20/25     5/25    25/50
"""

from __future__ import annotations

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as skm

from metric_tables import floors, limits, marginal, quick_table, values
from mfairfl import fairness
from mfairfl.data import Attribute
from mfairfl.errors import DataError
from mfairfl.fairness import (
    Cells,
    Constraints,
    Demand,
    MetricTable,
    ScoreHistogram,
    Statistics,
    Tally,
    UndefinedMetricWarning,
    fit_thresholds,
    frontier,
    notion,
    resampling,
)
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.resampling import resampled
from mfairfl.fairness.results import compares_groups

RACE = Attribute("race", ("Black", "White", "?"))
ROWS = np.array([[30, 10], [40, 20], [25, 25]])
SELECTED = np.array([[3, 5], [18, 16], [20, 5]])
HAND = Tally(np.stack([ROWS - SELECTED, SELECTED], axis=-1)[None], ("all",), (RACE,))
METHODS = ("between_groups", "to_overall")
SEX = Attribute("sex", ("F", "M"))


def partly_recorded(seed, n=400):
    """Labels, decisions, clients, two attributes; race is missing for a third, sex for a few."""
    rng = np.random.default_rng(seed)
    race = rng.choice(["Asian", "Black", "White"], n).astype(object)
    sex = rng.choice(["F", "M"], n).astype(object)
    y = rng.integers(0, 2, n)
    chance = 0.3 + 0.3 * y + 0.2 * (race == "White") - 0.1 * (sex == "F")
    lost = rng.random(n) < 0.35
    # Who is not recorded fares otherwise: leaking into a rate would show.
    decision = (rng.random(n) < np.where(lost, 0.95, chance)).astype(int)
    race[lost] = None
    sex[rng.random(n) < 0.1] = None
    return y, decision, rng.choice(["a", "b", "c"], n), pd.DataFrame({"sex": sex, "race": race})


# ------------------------------------------------------------------ metrics


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_metrics_on_all_rows_are_fairlearn_s_on_the_recorded_ones(seed, method):
    y, p, _, features = partly_recorded(seed)
    for name, column in features.items():
        here = column.notna().to_numpy()
        theirs = {"sensitive_features": column[here], "method": method}
        ours = {"sensitive_features": features, "method": method, "attribute": name}
        for metric in (
            "demographic_parity_difference",
            "demographic_parity_ratio",
            "equalized_odds_difference",
            "equalized_odds_ratio",
            "equal_opportunity_difference",
            "equal_opportunity_ratio",
        ):
            expected = getattr(fl, metric)(y[here], p[here], **theirs)
            assert getattr(fairness, metric)(y, p, **ours) == pytest.approx(expected, abs=1e-12)
        frame = fl.MetricFrame(
            metrics=skm.accuracy_score,
            y_true=y[here],
            y_pred=p[here],
            sensitive_features=column[here],
        )
        found = fairness.accuracy_parity_difference(y, p, **ours)
        assert found == pytest.approx(frame.difference(method=method), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_violation_is_the_worst_attribute_s_on_its_recorded_rows(seed):
    y, p, _, features = partly_recorded(seed)
    worst = max(
        fl.demographic_parity_difference(
            y[column.notna()],
            p[column.notna()],
            sensitive_features=column[column.notna()],
            method="to_overall",
        )
        for _, column in features.items()
    )
    found = fairness.demographic_parity_violation(y, p, sensitive_features=features)
    assert found == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_an_intersection_needs_every_attribute_recorded(method):
    y, p, _, features = partly_recorded(5)
    here = features.notna().all(axis=1).to_numpy()
    expected = fl.demographic_parity_difference(
        y[here], p[here], sensitive_features=features[here], method=method
    )
    found = fairness.demographic_parity_difference(
        y, p, sensitive_features=features, method=method
    )
    assert found == pytest.approx(expected, abs=1e-12)


def test_all_rows_count_for_accuracy_and_clients():
    y, p, clients, features = partly_recorded(6)
    tally = Tally.from_predictions(y, p, sensitive_features=features, clients=clients)
    right = pd.Series(y == p).groupby(clients).mean()
    assert fairness.accuracy(tally) == pytest.approx(skm.accuracy_score(y, p), abs=1e-12)
    assert fairness.client_accuracy_std(tally) == pytest.approx(right.std(ddof=0), abs=1e-12)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, "?"])
def test_every_spelling_of_missing_is_the_last_group(gap):
    tally = Tally.from_predictions([1, 0, 1], [1, 1, 0], sensitive_features=["b", gap, "a"])
    assert tally.attributes[0].groups == ("a", "b", "?")
    assert tally.counts[0].sum(axis=(1, 2)).tolist() == [1, 1, 1]


def test_numbers_are_sorted_as_numbers_beside_a_gap():
    tally = Tally.from_predictions([1] * 3, [1] * 3, sensitive_features=[10, None, 9])
    assert tally.attributes[0].groups == ("9", "10", "?")


def test_the_numbers_of_the_hand_made_table():
    table = quick_table(HAND)
    numbers = values(table)
    assert numbers["selection_rate"] == pytest.approx(67 / 150)
    assert numbers["demographic_parity_violation"] == pytest.approx(0.42 - 0.2)
    assert numbers["equalized_odds_violation"] == pytest.approx(21 / 70 - 3 / 30)
    # Wrong: 8 of 40, 22 of 60, 30 of 100.
    assert numbers["accuracy_parity_violation"] == pytest.approx(0.1)
    assert list(table.by_group["race"]) == ["Black", "White"]
    assert table.by_group["race"]["White"].rows == 60


def test_a_marginal_keeps_all_rows():
    y, p, clients, features = partly_recorded(7)
    tally = Tally.from_predictions(y, p, sensitive_features=features, clients=clients)
    alone = Tally.from_predictions(y, p, sensitive_features=features["race"], clients=clients)
    assert marginal(tally, "race") == alone


def test_where_nothing_is_recorded_a_number_is_undefined():
    tally = Tally.from_predictions(
        [1, 0], [1, 0], sensitive_features=[None, None], attributes=(RACE,)
    )
    with pytest.warns(UndefinedMetricWarning, match="group 'Black' of 'race' has no rows"):
        assert np.isnan(fairness.demographic_parity_violation(tally))
    with pytest.raises(DataError, match="'race' has no groups"):
        Cells((Attribute("race", ("?",)),))


# ------------------------------------------------------------------ chance


def recorded_alone(seed):
    """One attribute with gaps, and the same rows without the gaps."""
    y, p, clients, features = partly_recorded(seed)
    race = features["race"]
    here = race.notna().to_numpy()
    # "?" first: a share of 0 draws nothing, unless it comes last and takes what is left.
    groups = (Attribute("race", ("?", "Asian", "Black", "White")),)
    whole = Tally.from_predictions(
        y, p, sensitive_features=race, clients=clients, attributes=groups
    )
    part = Tally.from_predictions(
        y[here], p[here], sensitive_features=race[here], clients=clients[here]
    )
    return whole, part


def measures(part):
    return {name: value for name, value in part.items() if compares_groups(name)}


def test_intervals_of_groups_are_those_of_the_recorded_rows(monkeypatch):
    def anew(counts, draws, rng):  # all rows are drawn for the clients first: start again
        return resampled(counts, draws, np.random.default_rng(1))

    monkeypatch.setattr(resampling, "resampled", anew)
    whole, part = (MetricTable.from_tally(tally, draws=200) for tally in recorded_alone(8))
    assert measures(limits(whole)) == measures(limits(part))
    assert [limits(group) for group in whole.by_group["race"].values()] == [
        limits(group) for group in part.by_group["race"].values()
    ]
    assert whole["accuracy"].interval != part["accuracy"].interval


def test_noise_floors_of_groups_are_those_of_the_recorded_rows():
    whole, part = (MetricTable.from_tally(tally, draws=200) for tally in recorded_alone(9))
    assert measures(floors(whole)) == measures(floors(part))


def test_a_gap_in_one_attribute_leaves_the_intervals_of_another_alone():
    """Race is recorded of one group only and has no gap: all that differs is the sexes."""
    rng = np.random.default_rng(0)
    sex, y = rng.choice(["F", "M"], 4000), rng.integers(0, 2, 4000)
    decision = (rng.random(4000) < 0.03).astype(int)
    race = np.where(rng.random(4000) < 0.5, "White", None)
    tally = Tally.from_predictions(y, decision, sensitive_features={"sex": sex, "race": race})
    _, upper = MetricTable.from_tally(tally)["demographic_parity_violation"].interval
    # Half the gap of two equal groups: its standard deviation is √(.03·.97/4000) = .0027.
    own = fairness.demographic_parity_violation(tally, attribute="sex")
    assert own < upper < own + 3 * 0.0027


# ------------------------------------------------------------------ constraints


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dp", [0.22, 0.42 - 34 / 60]),
        ("eo", [0.2, -0.15, 0.2, -0.1]),
        ("ap", [0.1, 0.3 - 22 / 60]),
        ("ap-loss", [0.1, 0.6 - 40 / 60]),
    ],
)
def test_gaps_are_those_of_the_recorded_rows(name, expected):
    losses = np.array([[12.0, 8.0], [20.0, 20.0], [99.0, 99.0]])
    sums = Statistics(counts=ROWS, positives=SELECTED, scores=SELECTED, losses=losses)
    index = Goal(notions=(name,)).constraints((RACE,))
    assert {label[3] for label in index.labels} == {"Black", "White"}
    np.testing.assert_allclose(index.gaps(sums), expected, rtol=0, atol=1e-14)


def test_prices_by_hand():
    # u_g = (n/n_e) Σ μ − μ_g n/n_g with n = 150, n_e = 100, μ = (.3, −.1); 0 for the others.
    score, loss = Constraints(Cells((RACE,)), notion("dp")).prices([0.3, -0.1], ROWS)
    black, white = 1.5 * 0.2 - 0.3 * 150 / 40, 1.5 * 0.2 + 0.1 * 150 / 60
    expected = [[black, black], [white, white], [0, 0]]
    np.testing.assert_allclose(score, expected, rtol=0, atol=1e-14)
    assert not loss.any()


def test_another_attribute_is_priced_all_the_same():
    index = Goal(attributes=("sex", "race")).constraints((SEX, RACE))
    n = np.full((6, 2), 10.0)
    score, _ = index.prices([0.3, -0.1, 0.0, 0.0], n)
    women, men = 0.2 - 0.3 * 2, 0.2 + 0.1 * 2
    np.testing.assert_allclose(score[:, 0], [women] * 3 + [men] * 3, rtol=0, atol=1e-14)
    score, _ = index.prices([0.0, 0.0, 0.4, 0.0], n)
    black, white = 1.5 * 0.4 - 0.4 * 3, 1.5 * 0.4
    np.testing.assert_allclose(score[:, 0], [black, white, 0.0] * 2, rtol=0, atol=1e-14)


# ------------------------------------------------------------------ thresholds, frontier


def scored(seed=3, n=600):
    rng = np.random.default_rng(seed)
    cell, y = rng.integers(0, 3, n), rng.integers(0, 2, n)
    # The third cell's best threshold is far from 0.
    return rng.normal(size=n) + y - 0.7 * (cell == 0) + 3 * (cell == 2), cell, y


def fit(histogram, constraints):
    """Return the randomised thresholds of groups that allow no violation."""
    demand = Demand(by="group", randomise=True)
    return fit_thresholds({"all": histogram}, constraints, demand).thresholds


def test_thresholds_of_unrecorded_rows_are_plain_and_the_others_as_without_them():
    z, cell, y = scored()
    whole = ScoreHistogram.from_logits(z, cell, y, size=3)
    found = fit(whole, Constraints(Cells((RACE,)), notion("dp")))
    here = cell < 2
    part = ScoreHistogram.from_logits(z[here], cell[here], y[here], size=2)
    two = Cells((Attribute("race", ("Black", "White")),))
    alone = fit(part, Constraints(two, notion("dp")))
    chance = found.positive_probability(z, cell)
    np.testing.assert_allclose(
        chance[here], alone.positive_probability(z[here], cell[here]), rtol=0, atol=1e-9
    )
    assert chance[~here].tolist() == (z[~here] >= 0).tolist()
    rates = [chance[cell == group].mean() for group in (0, 1)]
    assert rates[0] == pytest.approx(rates[1], abs=1e-9)


def test_without_a_recorded_row_every_threshold_is_plain():
    z, _, y = scored()
    whole = ScoreHistogram.from_logits(z, np.full(len(z), 2), y, size=3)
    found = fit(whole, Constraints(Cells((RACE,)), notion("eo")))
    assert found.to_json()["values"] == [[0.0]]


def test_a_cell_that_another_attribute_compares_is_fitted():
    z, cell, y = scored()
    whole = ScoreHistogram.from_logits(z, cell + 3 * (z > 1), y, size=6)
    both = Goal(attributes=("sex", "race")).constraints((SEX, RACE))
    chance = fit(whole, both).positive_probability(z, cell + 3 * (z > 1))
    rates = [chance[(z > 1) == men].mean() for men in (False, True)]
    assert rates[0] == pytest.approx(rates[1], abs=1e-9)


def test_the_frontier_is_free_on_unrecorded_rows():
    rows = [[10, 30], [30, 10], [13, 7]]
    # Of the 80 recorded rows 60 can be right under parity; of the others all 20.
    found = frontier(rows, attributes=(RACE,), demographic_parity=0.0)
    assert found.accuracy == pytest.approx((60 + 20) / 100, abs=1e-9)
