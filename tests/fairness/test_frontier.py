"""The linear programme against published rows, closed forms and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metric_tables import marginal
from mfairfl import fairness
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import Tally, frontier


def table(*groups):
    """Counts n[group, label] from (rows, positives)."""
    return np.array([[rows - positives, positives] for rows, positives in groups])


ADULT = table((10860, 3256), (5421, 590))  # official test: male, female
COMPAS = table((5819, 2753), (1395, 498))  # all 7,214 rows: male, female

# DP, EO and AP bounds of a published row; best accuracy under DP + EO
# and under all three, at the printed values and with half a unit of rounding on every bound.
PUBLISHED = [
    (ADULT, (0.012, 0.003, 0.007), (0.791, 0.578), (0.792, 0.584)),
    (ADULT, (0.008, 0.002, 0.012), (0.782, 0.567), (0.783, 0.573)),
    (COMPAS, (0.005, 0.009, 0.003), (0.616, 0.578), (0.621, 0.583)),
    (COMPAS, (0.008, 0.006, 0.009), (0.617, 0.580), (0.621, 0.586)),
]


@pytest.mark.parametrize(("rows", "bounds", "printed", "rounded"), PUBLISHED)
def test_published_rows(rows, bounds, printed, rounded):
    for slack, (two, three) in ((0.0, printed), (0.0005, rounded)):
        dp, eo, ap = (bound + slack for bound in bounds)
        both = {"demographic_parity": dp, "equalized_odds": eo}
        assert frontier(rows, **both).accuracy == pytest.approx(two, abs=6e-4)
        assert frontier(rows, **both, accuracy_parity=ap).accuracy == pytest.approx(
            three, abs=6e-4
        )


def test_adult_at_the_frontier_is_almost_constant():
    # First published row: TPR ≈ .13, FPR ≈ 0. The bound on FPR binds: men 0,
    # women at .0035 above the overall rate, F_w (1 − 4831/12435) = .0035.
    rates = frontier(ADULT, demographic_parity=0.0125, equalized_odds=0.0035).rates
    assert rates[:, 1] == pytest.approx(0.13, abs=0.01)
    assert rates[:, 0] == pytest.approx([0.0, 0.0035 / (1 - 4831 / 12435)], abs=1e-7)


def test_no_bound_allows_perfection():
    point = frontier(ADULT)
    assert point.accuracy == pytest.approx(1.0)
    assert point.rates == pytest.approx(np.array([[0.0, 1.0], [0.0, 1.0]]))


filled = arrays(np.int64, st.tuples(st.integers(2, 4), st.just(2)), elements=st.integers(1, 50))


@settings(deadline=None)
@given(filled)
def test_exact_parity_closed_form(rows):
    # All groups select a common share t: group g errs on |t − b_g| of its rows at least, and
    # Σ w_g |t − b_g| is least at one of the base rates.
    base = rows[:, 1] / rows.sum(axis=1)
    weight = rows.sum(axis=1) / rows.sum()
    best = 1 - min(weight @ np.abs(t - base) for t in base)
    assert frontier(rows, demographic_parity=0.0).accuracy == pytest.approx(best, abs=1e-7)


@settings(deadline=None)
@given(filled)
def test_perfection_is_fair_by_odds_and_by_accuracy(rows):
    bounds = {"equalized_odds": 0.0, "equal_opportunity": 0.0, "accuracy_parity": 0.0}
    assert frontier(rows, **bounds).accuracy == pytest.approx(1.0, abs=1e-7)


def test_parity_and_odds_together_leave_a_constant():
    # Unequal base rates: TPR = FPR, so the best is the commoner label.
    rows = table((100, 60), (100, 20))
    best = frontier(rows, demographic_parity=0.0, equalized_odds=0.0).accuracy
    assert best == pytest.approx(120 / 200)


@pytest.mark.parametrize(
    ("rows", "dp", "eo", "ap"),
    [
        ([[7, 3], [4, 9]], 0.1, 0.1, None),
        ([[20, 3], [4, 2]], 0.05, None, 0.1),
        ([[5, 5], [1, 8]], 0.0, 0.2, 0.1),
    ],
)
def test_brute_force(rows, dp, eo, ap):
    """Rounding the optimum to a grid of this step moves every gap by at most one step."""
    rows, step = np.array(rows, float), 1 / 20
    axis = np.arange(0, 1 + step / 2, step)
    x = np.array(list(itertools.product(axis, repeat=4))).reshape(-1, 2, 2)
    n, size = rows.sum(), rows.sum(axis=1)
    selected = (x * rows).sum(axis=2)
    wrong = x[:, :, 0] * rows[:, 0] + (1 - x[:, :, 1]) * rows[:, 1]
    accuracy = 1 - wrong.sum(axis=1) / n

    def worst(sums, sizes):
        return np.abs(sums.sum(axis=1)[:, None] / sizes.sum() - sums / sizes).max(axis=1)

    by_label = [worst(x[:, :, y] * rows[:, y], rows[:, y]) for y in (0, 1)]
    violations = (worst(selected, size), np.maximum(*by_label), worst(wrong, size))

    def best(slack):
        allowed = np.ones(len(x), bool)
        for bound, violation in zip((dp, eo, ap), violations, strict=True):
            if bound is not None:
                allowed &= violation <= bound + slack
        return accuracy[allowed].max()

    found = frontier(rows, demographic_parity=dp, equalized_odds=eo, accuracy_parity=ap).accuracy
    assert best(1e-12) - 1e-9 <= found <= best(step) + step / 2


def test_several_attributes_meet_every_bound():
    rng = np.random.default_rng(0)
    attributes = (Attribute("sex", ("F", "M")), Attribute("age", ("a", "b", "c")))
    counts = rng.integers(1, 60, size=(2, 6, 2, 2))
    tally = Tally(counts, ("x", "y"), attributes)
    rows = counts.sum(axis=(0, 3))
    bounds = {"demographic_parity": 0.03, "equalized_odds": 0.05, "accuracy_parity": 0.02}
    point = frontier(tally, **bounds)
    same = frontier(rows, attributes=attributes, **bounds)
    assert point.accuracy == pytest.approx(same.accuracy)
    # The optimal rates as expected counts, measured by the metrics.
    reached = np.stack([rows * (1 - point.rates), rows * point.rates], axis=-1).clip(0)[None]
    measured = Tally(reached, ("all",), attributes)
    assert fairness.accuracy(measured) == pytest.approx(point.accuracy)
    for name, bound in bounds.items():
        assert getattr(fairness, f"{name}_violation")(measured) <= bound + 1e-7
    # A bound on one attribute more can only cost accuracy.
    one = frontier(marginal(tally, "sex"), **bounds)
    assert point.accuracy <= one.accuracy + 1e-9


def test_shares_do_as_well_as_counts_and_empty_cells_have_no_rate():
    rows = np.array([[10.0, 30.0], [30.0, 10.0], [0.0, 0.0]])
    counts = frontier(rows, demographic_parity=0.1)
    shares = frontier(rows / rows.sum(), demographic_parity=0.1)
    assert counts.accuracy == pytest.approx(shares.accuracy)
    assert np.isnan(counts.rates[2]).all()
    # Base rates .75 and .25 of equal groups, each within .1 of the overall rate: .5·(.15 + .15).
    assert counts.accuracy == pytest.approx(0.85)


def test_errors_name_the_fix():
    with pytest.raises(ConfigError, match=r"demographic_parity = -0\.1"):
        frontier(ADULT, demographic_parity=-0.1)
    with pytest.raises(ConfigError, match="accuracy_parity = nan"):
        frontier(ADULT, accuracy_parity=float("nan"))
    with pytest.raises(DataError, match="not all 0"):
        frontier(np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"expected \(2, 2\)"):
        frontier(np.ones((2, 3)))
    tally = Tally(np.zeros((1, 2, 2, 2), int), ("a",), (Attribute("sex", ("F", "M")),))
    with pytest.raises(DataError, match="not all 0"):
        frontier(tally)
    with pytest.raises(ConfigError, match="without attributes="):
        frontier(tally, attributes=())
