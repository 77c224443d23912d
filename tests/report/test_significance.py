"""Tests and intervals of two rates, against tables of the literature, scipy and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, hypergeom
from scipy.stats.contingency import relative_risk

from mfairfl.fairness.uncertainty import Interval, holm
from mfairfl.report.significance import Share, fisher, mover, ratio_interval


def test_fisher_by_hand():
    """Fisher's tea: 3 of 4 against 1 of 4. Tables as likely or less: all but the even one.

    The chances of 0 … 4 hits are 1, 16, 36, 16, 1 of 70: p = (1 + 16 + 16 + 1) / 70.
    """
    assert fisher(Share(3, 4), Share(1, 4)) == pytest.approx(34 / 70, abs=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [((1, 10), (6, 10)), ((0, 7), (9, 30)), ((40, 90), (60, 80)), ((2, 2), (5, 5))],
)
def test_fisher_is_the_sum_of_splits_at_most_as_likely(one, other):
    (a, n), (b, m) = one, other
    chances = hypergeom(n + m, a + b, n).pmf(np.arange(n + 1))
    as_likely = chances[chances <= chances[a] * (1 + 1e-9)].sum()
    assert fisher(Share(a, n), Share(b, m)) == pytest.approx(as_likely, abs=1e-12)


def test_fisher_needs_rows():
    assert fisher(Share(0, 0), Share(1, 2)) is None


def test_holm_by_hand():
    """Sorted .005 .01 .02 .04 times 4 3 2 1: .02 .03 .04 .04; a larger one never falls below."""
    assert holm([0.02, 0.005, 0.04, 0.01]) == pytest.approx([0.04, 0.02, 0.04, 0.03])
    assert holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_holm_passes_over_what_was_not_tested():
    assert holm([None, 0.02, None]) == [None, 0.02, None]
    assert holm([]) == []


def test_ratio_of_koopmans_own_example():
    """36 of 40 against 16 of 80: 2.94 to 7.15 (Koopman 1984, table 1)."""
    found = ratio_interval(Share(36, 40), Share(16, 80))
    assert found == pytest.approx((2.94, 7.15), abs=0.005)


def test_limits_of_a_ratio_are_where_the_score_test_turns():
    """Pearson's statistic with rates fitted under the ratio equals the quantile at both ends.

    The fitted rate is found here by search, not by the formula.
    """
    one, other = Share(9, 20), Share(30, 40)
    for ratio in ratio_interval(one, other):
        second = np.linspace(1e-6, min(1.0, 1.0 / ratio) - 1e-6, 2_000_001)
        likelihood = binom.logpmf(9, 20, ratio * second) + binom.logpmf(30, 40, second)
        q = second[np.argmax(likelihood)]
        p = ratio * q
        chi = (9 - 20 * p) ** 2 / (20 * p * (1 - p)) + (30 - 40 * q) ** 2 / (40 * q * (1 - q))
        assert chi == pytest.approx(1.959964**2, rel=1e-4)


@pytest.mark.parametrize(
    ("a", "n", "b", "m"), [(5000, 20000, 9000, 30000), (700, 9000, 900, 9000)]
)
def test_ratio_of_many_rows_is_that_of_the_logarithm(a, n, b, m):
    low, high = relative_risk(a, n, b, m).confidence_interval(0.95)
    assert ratio_interval(Share(a, n), Share(b, m)) == pytest.approx((low, high), rel=2e-3)


@pytest.mark.parametrize(
    ("p", "n", "q", "m"), [(0.3, 25, 0.5, 40), (0.1, 60, 0.2, 30), (0.05, 15, 0.4, 200)]
)
def test_ratio_keeps_its_level_in_small_groups(p, n, q, m):
    """Exact coverage: over all outcomes, weighted by their chances, not simulated."""
    covered = total = 0.0
    for a in range(n + 1):
        for b in range(m + 1):
            chance = binom.pmf(a, n, p) * binom.pmf(b, m, q)
            if chance < 1e-6 or b == 0:
                continue
            low, high = ratio_interval(Share(a, n), Share(b, m))
            total += chance
            covered += chance * (low <= p / q <= high)
    assert total > 0.99
    assert 0.93 < covered / total < 0.98


@pytest.mark.parametrize(
    ("one", "other"), [((0, 10), (5, 10)), ((10, 10), (10, 10)), ((0, 1), (1, 1))]
)
def test_ratio_has_limits_at_the_ends(one, other):
    low, high = ratio_interval(Share(*one), Share(*other))
    assert 0.0 <= low <= one[0] / one[1] / (other[0] / other[1]) <= high < math.inf
    assert (low == 0.0) == (one[0] == 0)


def test_ratio_without_rows_or_hits_has_none():
    assert ratio_interval(Share(0, 0), Share(1, 2)) is None
    assert ratio_interval(Share(1, 2), Share(0, 2)) is None


def test_square_and_add_by_hand():
    """Change .1; down √(.1² + .2²), up √(.05² + .1²)."""
    found = mover(0.2, Interval(0.1, 0.4), 0.3, Interval(0.2, 0.35))
    assert found == pytest.approx((0.1 - math.hypot(0.1, 0.2), 0.1 + math.hypot(0.05, 0.1)))
