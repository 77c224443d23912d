"""Noise floors against closed forms and floors measured on Adult and COMPAS."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metric_tables import floors, quick_table
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness import MetricTable, Tally

SEX = Attribute("sex", ("M", "F"))
# Adult, 20 % test: 6,530 male and 3,238 female rows, of them 1,984 and 354 positive.
ADULT = np.array([[6530 - 1984, 1984], [3238 - 354, 354]])


def tally_at(rows, false_positive, true_positive, clients=("all",)):
    """Expected counts of decisions at P(ŷ=1 | y) on rows[…, cell, label]."""
    rows = np.asarray(rows, dtype=float).reshape(len(clients), -1, 2)
    rates = np.array([false_positive, true_positive])
    attributes = (SEX,) if rows.shape[1] == 2 else ()
    return Tally(np.stack([rows * (1 - rates), rows * rates], axis=-1), clients, attributes)


def floor_of(name, tally, **options):
    return MetricTable.from_tally(tally, **options)[name].noise_floor


def two_groups(p, first, second):
    """E of max |F − F_g| for two groups: share of the larger times E|N(0, se)|."""
    share = max(first, second) / (first + second)
    error = math.sqrt(p * (1 - p) * (1 / first + 1 / second))
    return share * error * math.sqrt(2 / math.pi)


@pytest.mark.parametrize("p", [0.1, 0.18, 0.2, 0.5])
def test_demographic_parity_closed_form(p):
    floor = MetricTable.from_tally(tally_at(ADULT, p, p), draws=20000)[
        "demographic_parity_violation"
    ].noise_floor
    assert floor == pytest.approx(two_groups(p, 6530, 3238), rel=0.02)


def test_adult_floors_of_the_recipe():
    # Measured on Adult: DP .0044 at TPR .54 and accuracy .839 (FPR .067, selection .18); EO .0197
    # at TPR .56 and accuracy .8456 (FPR .065); AP .0044 at accuracy .8207 (TPR .67, FPR .132).
    dp = MetricTable.from_tally(tally_at(ADULT, 0.067, 0.54))[
        "demographic_parity_violation"
    ].noise_floor
    eo = MetricTable.from_tally(tally_at(ADULT, 0.065, 0.56))[
        "equalized_odds_violation"
    ].noise_floor
    ap = MetricTable.from_tally(tally_at(ADULT, 0.132, 0.67))[
        "accuracy_parity_violation"
    ].noise_floor
    assert dp == pytest.approx(0.0044, abs=0.0002)
    assert eo == pytest.approx(0.0197, abs=0.0008)
    assert ap == pytest.approx(0.0044, abs=0.0002)


def test_equal_opportunity_closed_form():
    tally = tally_at(ADULT, 0.065, 0.56)
    floor = MetricTable.from_tally(tally, draws=20000)["equal_opportunity_violation"].noise_floor
    assert floor == pytest.approx(two_groups(0.56, 1984, 354), rel=0.02)


def test_client_floors_closed_form():
    # Five clients of 433 rows, accuracy about .66: range .053, std .019.
    # Range of five normals: 2.326 σ; population std: √(4/5) c4(5) σ = .8408 σ.
    rows = np.tile([[233, 200]], (5, 1, 1))
    tally = tally_at(rows, 0.34, 0.66, clients=tuple("abcde"))
    values = floors(MetricTable.from_tally(tally, draws=20000))
    sigma = math.sqrt(0.66 * 0.34 / 433)
    assert values["client_accuracy_gap"] == pytest.approx(2.326 * sigma, rel=0.02)
    assert values["client_accuracy_gap"] == pytest.approx(0.053, abs=0.0015)
    assert values["client_accuracy_std"] == pytest.approx(0.8408 * sigma, rel=0.02)
    assert values["client_accuracy_std"] == pytest.approx(0.019, abs=0.0005)
    assert set(values) == {"client_accuracy_std", "client_accuracy_gap"}


def test_the_floor_depends_on_sizes_and_overall_rates_only():
    # Selection 20 % in all, very unequally or equally shared: the same floor.
    fair = np.array([[[[80, 20], [0, 0]], [[80, 20], [0, 0]]]])
    unfair = np.array([[[[100, 0], [0, 0]], [[60, 40], [0, 0]]]])
    found = [floors(MetricTable.from_tally(Tally(c, ("a",), (SEX,)))) for c in (fair, unfair)]
    name = "demographic_parity_violation"
    assert found[0][name] == found[1][name] > 0


def test_several_attributes():
    attributes = (SEX, Attribute("age", ("o", "y")))
    counts = np.full((1, 4, 2, 2), 100)
    table = MetricTable.from_tally(Tally(counts, ("a",), attributes), draws=20000)
    name = "demographic_parity_violation"
    # Each marginal has two groups of 800; the worse of two floors is above both.
    each = two_groups(0.5, 800, 800)
    assert table.measures("sex")[name].noise_floor == pytest.approx(each, rel=0.02)
    assert table.measures("age")[name].noise_floor == pytest.approx(each, rel=0.02)
    # max of two independent |N|: E = (2/√π) σ against √(2/π) σ for one.
    assert table[name].noise_floor == pytest.approx(each * math.sqrt(2), rel=0.02)


def test_undefined_stays_undefined():
    tally = Tally(np.array([[[[5, 5], [0, 0]], [[5, 5], [4, 4]]]]), ("a",), (SEX,))
    values = floors(MetricTable.from_tally(tally, draws=100))
    assert values["equalized_odds_violation"] is None
    assert values["demographic_parity_violation"] > 0
    empty = quick_table(Tally(np.zeros((1, 2, 2, 2), int), ("a",), (SEX,)))
    assert set(floors(empty).values()) == {None}
    nobody = quick_table(Tally(np.zeros((0, 2, 2, 2), int), (), (SEX,)))
    assert set(floors(nobody).values()) == {None}


def test_bad_draws():
    with pytest.raises(ConfigError, match="draws = 0"):
        MetricTable.from_tally(Tally(np.ones((1, 2, 2, 2), int), ("a",), (SEX,)), draws=0)
