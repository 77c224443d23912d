from __future__ import annotations

import math
import statistics as standard

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mfairfl.experiments.tabulate import paired, summary
from mfairfl.fairness.uncertainty import holm


def test_three_pairs_by_hand():
    # Differences .03, .02, .01: mean .02, deviation .01, t = 2√3. With two degrees of freedom the
    # t-distribution has the closed form P(|T| > t) = 1 − t/√(2 + t²).
    found = paired([0.84, 0.85, 0.86], [0.81, 0.83, 0.85])
    assert found.pairs == 3
    assert found.difference == pytest.approx(0.02)
    assert found.effect == pytest.approx(2.0)
    assert found.t_p == pytest.approx(1 - math.sqrt(12) / math.sqrt(14))
    assert found.wilcoxon_p == 0.25


def test_two_pairs_by_hand():
    # One degree of freedom is Cauchy's distribution: P(|T| > t) = 1 − 2 arctan(t)/π.
    found = paired([3.0, 5.0], [2.0, 2.0])
    assert found.difference == pytest.approx(2.0)
    assert found.effect == pytest.approx(math.sqrt(2))
    assert found.t_p == pytest.approx(1 - 2 * math.atan(2.0) / math.pi)
    assert found.wilcoxon_p == 0.5


def test_wilcoxon_with_a_tie_and_a_zero_by_hand():
    # The zero is left out; |d| = 1, 1, 2 have ranks 1½, 1½, 3. The negative one has 1½: of the
    # eight sign patterns three have a rank sum up to that (0, 1½, 1½), so p = 2 · 3/8.
    found = paired([1.0, 0.0, 2.0, 7.0], [0.0, 1.0, 0.0, 7.0])
    assert found.wilcoxon_p == 0.75


def test_five_seeds_cannot_be_significant_by_wilcoxon():
    found = paired(np.arange(1.0, 6.0), np.zeros(5))
    assert found.wilcoxon_p == 1 / 16


whole_hundredths = st.integers(-40, 40).map(lambda n: n / 100)
matched = st.lists(st.tuples(whole_hundredths, whole_hundredths), min_size=2, max_size=6)


@given(matched)
def test_agrees_with_scipy(pairs):
    a, b = np.array(pairs).T
    d = np.array([round(100 * x) - round(100 * y) for x, y in pairs])
    found = paired(a, b)
    if np.ptp(d) > 0:
        assert found.t_p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-6)
        # Relative, as the effect has no bound; differences keep twelve digits.
        assert found.effect == pytest.approx(d.mean() / d.std(ddof=1), rel=1e-9, abs=1e-9)
    if np.any(d):
        exact = stats.PermutationMethod(n_resamples=10_000)
        kept = d[d != 0].astype(float)
        # scipy's permutations need two values; one difference can have either sign.
        p = stats.wilcoxon(kept, method=exact).pvalue if len(kept) > 1 else 1.0
        assert found.wilcoxon_p == pytest.approx(p)


def test_agrees_with_scipy_exactly_without_ties():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 20))
    assert paired(a, b).wilcoxon_p == pytest.approx(stats.wilcoxon(a, b, method="exact").pvalue)


@given(matched)
def test_turning_the_pair_around_turns_the_sign(pairs):
    a, b = np.array(pairs).T
    one, other = paired(a, b), paired(b, a)
    assert (one.difference, one.t_p, one.wilcoxon_p) == (
        -other.difference,
        other.t_p,
        other.wilcoxon_p,
    )


def test_equal_values():
    found = paired([0.8, 0.9], [0.8, 0.9])
    assert (found.difference, found.t_p, found.wilcoxon_p, found.effect) == (0, 1, 1, 0)
    assert paired([0.0, 0.0], [0.0, 0.0]).t_p == 1


def test_values_equal_but_for_rounding():
    found = paired([0.1 + 0.2, 0.7], [0.3, 0.1 + 0.6])
    assert (found.difference, found.t_p, found.wilcoxon_p, found.effect) == (0, 1, 1, 0)


def test_constant_difference():
    # In floating point .3 − .2 and .4 − .3 are not the same number.
    found = paired([0.3, 0.4, 0.5], [0.2, 0.3, 0.4])
    assert found.difference == pytest.approx(0.1)
    assert found.t_p == 0
    assert found.wilcoxon_p == 0.25
    assert math.isnan(found.effect)


def test_too_few_pairs():
    assert paired([], []) is None
    assert paired([0.8], [0.7]) is None


def test_holm_by_hand():
    # Sorted: 4 · .005 = .02, 3 · .01 = .03, 2 · .03 = .06, 1 · .04 = .04, raised to .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_what_was_not_tested():
    first, none, second, nan = holm([0.02, None, 0.03, math.nan])
    assert (first, second) == pytest.approx((0.04, 0.04))
    assert none is None
    assert math.isnan(nan)


def test_holm_stays_a_probability():
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.integers(0, 1000).map(lambda n: n / 1000), max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values):
    level = 0.0501  # no p-value times a whole number below 13 is exactly this
    rejected = set()
    for step, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[i] >= level / (len(p_values) - step):
            break
        rejected.add(i)
    assert {i for i, p in enumerate(holm(p_values)) if p < level} == rejected


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_summary_is_the_sample_mean_and_deviation(values):
    mean, std = summary(values)
    assert mean == pytest.approx(standard.mean(values), abs=1e-9)
    assert std == pytest.approx(standard.stdev(values), abs=1e-9)


def test_summary_of_too_few():
    assert summary([0.25])[0] == 0.25
    assert math.isnan(summary([0.25])[1])
    assert all(map(math.isnan, summary([])))
