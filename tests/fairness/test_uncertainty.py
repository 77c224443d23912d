"""Intervals: Wilson against scipy, coverage by simulation, too little data, verdicts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from metric_tables import limits, quick_table, values
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness import Interval, MetricTable, Tally, verdict
from mfairfl.fairness.resampling import resampled, smoothed
from mfairfl.fairness.uncertainty import wilson

SEX = Attribute("sex", ("F", "M"))


@given(st.integers(1, 500), st.data(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(trials, data, level):
    successes = data.draw(st.integers(0, trials))
    expected = binomtest(successes, trials).proportion_ci(level, method="wilson")
    lower, upper = wilson(successes, trials, level)
    assert lower == pytest.approx(expected.low, abs=1e-12)
    assert upper == pytest.approx(expected.high, abs=1e-12)


def tally_of(counts):
    return Tally(np.array(counts), tuple("abcdef"[: len(counts)]), (SEX,))


def test_shares_are_wilsons():
    # Pooled (y, ŷ): 40 10 / 20 30; F 25 5 / 10 10, M 15 5 / 10 20.
    tally = tally_of([[[[25, 5], [10, 10]], [[15, 5], [10, 20]]]])
    table = quick_table(tally)

    def scipys(successes, trials):
        ends = binomtest(successes, trials).proportion_ci(method="wilson")
        return pytest.approx((ends.low, ends.high))

    assert table["accuracy"].interval == scipys(70, 100)
    assert table["selection_rate"].interval == scipys(40, 100)
    assert table["true_positive_rate"].interval == scipys(30, 50)
    assert table["false_positive_rate"].interval == scipys(10, 50)
    assert table.by_group["sex"]["F"]["base_rate"].interval == scipys(20, 50)
    assert table.by_group["sex"]["M"]["true_positive_rate"].interval == scipys(20, 30)
    assert table.by_client["a"]["accuracy"].interval == scipys(70, 100)
    # One client: worst and best are that client, at the plain level.
    assert table["worst_client_accuracy"].interval == scipys(70, 100)
    # F1 through J = 30 / 60.
    low, high = table["f1"].interval
    ends = binomtest(30, 60).proportion_ci(method="wilson")
    assert low / (2 - low) == pytest.approx(ends.low)
    assert high / (2 - high) == pytest.approx(ends.high)


def test_worst_and_best_hold_for_all_clients_together():
    # Accuracies 9/10 and 80/100; Šidák for two clients: level √.95 each.
    none = [[0, 0], [0, 0]]
    tally = tally_of([[[[9, 1], [0, 0]], none], [[[80, 20], [0, 0]], none]])
    found = limits(quick_table(tally))
    level = math.sqrt(0.95)
    small = binomtest(9, 10).proportion_ci(level, method="wilson")
    large = binomtest(80, 100).proportion_ci(level, method="wilson")
    worst, best = found["worst_client_accuracy"], found["best_client_accuracy"]
    assert worst.lower == pytest.approx(min(small.low, large.low))
    assert worst.upper == pytest.approx(min(small.high, large.high))
    assert best.lower == pytest.approx(max(small.low, large.low))
    assert best.upper == pytest.approx(max(small.high, large.high))


def test_balanced_accuracy_by_hand():
    # Square-and-add (Newcombe): b ± ½ √((t − l_t)² + (u_f − f)²), t = .6 of 50, f = .2 of 50.
    tally = tally_of([[[[40, 10], [20, 30]], [[0, 0], [0, 0]]]])
    hit = binomtest(30, 50).proportion_ci(method="wilson")
    miss = binomtest(10, 50).proportion_ci(method="wilson")
    found = limits(quick_table(tally))["balanced_accuracy"]
    assert found.lower == pytest.approx(0.7 - 0.5 * math.hypot(0.6 - hit.low, miss.high - 0.2))
    assert found.upper == pytest.approx(0.7 + 0.5 * math.hypot(hit.high - 0.6, 0.2 - miss.low))


ROWS = np.array([[[120, 60], [80, 40]], [[50, 50], [60, 40]], [[30, 20], [40, 30]]])
UNFAIR = np.array(
    [[[0.1, 0.6], [0.3, 0.8]], [[0.2, 0.5], [0.25, 0.7]], [[0.15, 0.55], [0.3, 0.75]]]
)
FAIR = np.broadcast_to([0.2, 0.8], ROWS.shape)  # EO, AP and client accuracies exactly equal
SPARSE = np.array([[[30, 8], [6, 5]], [[20, 9], [7, 4]]])
SPARSE_RATES = np.array([[[0.05, 0.9], [0.1, 0.8]], [[0.02, 0.8], [0.1, 0.7]]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "rates"),
    [(ROWS, UNFAIR), (ROWS, FAIR), (SPARSE, SPARSE_RATES)],
    ids=["unfair", "fair", "sparse"],
)
def test_coverage(rows, rates):
    """Rows are drawn 200 times from a known population; intervals must hold its true numbers."""
    repetitions, level = 200, 0.95
    expected = np.stack([rows * (1 - rates), rows * rates], axis=-1)
    clients = tuple("abc"[: len(rows)])
    truth = values(quick_table(Tally(expected, clients, (SEX,))))
    shares = expected.reshape(len(rows), -1) / rows.sum(axis=(1, 2))[:, None]
    rng = np.random.default_rng(1)
    held: dict[str, list[bool]] = {name: [] for name in told(truth)}
    for repetition in range(repetitions):
        drawn = rng.multinomial(rows.sum(axis=(1, 2)), shares).reshape(expected.shape)
        table = MetricTable.from_tally(Tally(drawn, clients, (SEX,)), draws=200, seed=repetition)
        for name, interval in limits(table).items():
            if interval is not None:
                held[name].append(interval.lower - 1e-9 <= truth[name] <= interval.upper + 1e-9)
    for name, each in held.items():
        assert len(each) > 0.9 * repetitions, name  # hardly ever undefined
        least = level - 3 * math.sqrt(level * (1 - level) / len(each))
        assert np.mean(each) >= least, name


def test_the_true_numbers_of_the_fair_population():
    expected = np.stack([ROWS * (1 - FAIR), ROWS * FAIR], axis=-1)
    truth = values(quick_table(Tally(expected, tuple("abc"), (SEX,))))
    assert truth["accuracy"] == pytest.approx(0.8)
    for name in ("equalized_odds", "equal_opportunity", "accuracy_parity"):
        assert truth[f"{name}_violation"] == pytest.approx(0.0, abs=1e-12)
    assert truth["client_accuracy_std"] == pytest.approx(0.0, abs=1e-12)
    # Selection .2 + .6·P(y=1): F 130/330, M 110/290, overall 240/620 positives.
    deviation = 0.6 * (240 / 620 - 110 / 290)
    assert truth["demographic_parity_violation"] == pytest.approx(deviation)


def test_intervals_shrink_with_the_square_root_of_the_rows():
    counts = np.array([[[[30, 10], [10, 30]], [[25, 15], [15, 25]]]])
    small = limits(MetricTable.from_tally(tally_of(counts), seed=3))
    large = limits(MetricTable.from_tally(tally_of(counts * 100), seed=3))

    def width(interval):
        return interval.upper - interval.lower

    # q is N's quantile ∝ 1/√n where the interval is not clipped at 0: the large one's is not.
    name = "equalized_odds_violation"
    value = values(quick_table(tally_of(counts)))[name]
    q = small[name].upper - value
    assert width(large[name]) == pytest.approx(2 * q / 10, rel=0.15)
    assert large[name].lower > 0 == small[name].lower


def test_q_is_the_normal_quantile_for_two_groups():
    # Two groups of n rows each, selection p: F − F_g = ±(p_1 − p_2)/2, of standard error
    # ½ √(2 p(1−p)/n); the 95 % quantile of its absolute value is 1.96 of them.
    n, p = 2000, 0.3
    cell = [[0, 0], [round(n * (1 - p)), round(n * p)]]
    found = limits(MetricTable.from_tally(tally_of([[cell, cell]]), draws=8000))[
        "demographic_parity_violation"
    ]
    assert found.lower == 0.0
    assert found.upper == pytest.approx(1.96 * 0.5 * math.sqrt(2 * p * (1 - p) / n), rel=0.03)


def test_a_small_group_does_not_hide_what_a_large_one_shows():
    # Selected: 700 of 1,000, 300 of 1,000, 20 of 40; overall half. Delta method: the deviation of
    # the first is p₁(1 − s₁) − Σ s_g p_g over the others; rates p and shares s both vary.
    counts = [[[[0, 0], [300, 700]], [[0, 0], [700, 300]], [[0, 0], [20, 20]]]]
    tally = Tally(np.array(counts), ("all",), (Attribute("group", ("a", "b", "c")),))
    found = limits(MetricTable.from_tally(tally, draws=8000))["demographic_parity_violation"]
    rows, p = np.array([1000, 1000, 40]), np.array([0.7, 0.3, 0.5])
    share = rows / rows.sum()
    weight = np.array([1 - share[0], *share[1:]])
    error = math.sqrt(
        (weight**2 * p * (1 - p) / rows).sum() + (share @ p**2 - (share @ p) ** 2) / rows.sum()
    )
    # The quantile is at least that of one normal number and at most Bonferroni's for three; one
    # for all groups would be that of the 40: 1.96 √(¼/40) = .155.
    least, most = 0.97 * 1.96 * error, 1.03 * 2.394 * error
    assert 0.2 - most < found.lower < 0.2 - least
    assert 0.2 + least < found.upper < 0.2 + most


def test_a_group_without_enough_rows_says_nothing_and_hides_nothing():
    # Two rows of c: any violation may be theirs, but that of a and b stays what it is.
    counts = [[[[0, 0], [300, 700]], [[0, 0], [700, 300]], [[0, 0], [1, 1]]]]
    tally = Tally(np.array(counts), ("all",), (Attribute("group", ("a", "b", "c")),))
    found = limits(MetricTable.from_tally(tally))["demographic_parity_violation"]
    assert found.upper == 1.0
    assert 0.15 < found.lower < 0.2


def test_a_tiny_group_tells_nothing():
    # Two rows in group F, one selected, as half of M: 14 % (e⁻²) of resamples have no row of F, so
    # no upper limit below 1 can be claimed though no defined resample is farther than ½.
    found = limits(MetricTable.from_tally(tally_of([[[[1, 1], [0, 0]], [[50, 50], [50, 50]]]])))
    assert found["demographic_parity_violation"] == Interval(0.0, 1.0)


@pytest.mark.parametrize("clients", [1, 4])
def test_none_selected_of_a_few_is_no_certainty(clients):
    # 0 of 8 and 0 of 100 selected, however held: a true rate of .2 in the small group gives 0 of 8
    # in .8⁸ = 17 % of samples, so a deviation of .2·100/108 = .185 must not be excluded.
    cells = np.array([[[8, 0], [0, 0]], [[100, 0], [0, 0]]]) // clients
    found = limits(MetricTable.from_tally(tally_of([cells] * clients)))
    assert found["demographic_parity_violation"].upper >= 0.185


def test_a_few_right_decisions_are_no_certainty_about_a_client():
    # 8 of 8 and 100 of 100 right: .8 for the small client is not excluded, a gap of .2.
    cells = [[[[8, 0], [0, 0]], [[0, 0], [0, 0]]], [[[100, 0], [0, 0]], [[0, 0], [0, 0]]]]
    assert limits(MetricTable.from_tally(tally_of(cells)))["client_accuracy_gap"].upper >= 0.2


def test_undefined_stays_undefined():
    table = MetricTable.from_tally(tally_of([[[[5, 5], [0, 0]], [[5, 5], [4, 4]]]]))
    assert table["equalized_odds_violation"].interval is None
    assert table["demographic_parity_violation"].interval is not None
    assert table.by_group["sex"]["F"]["true_positive_rate"].interval is None
    empty = MetricTable.from_tally(Tally(np.zeros((1, 2, 2, 2), int), ("a",), (SEX,)))
    assert set(limits(empty).values()) == {None}
    nobody = MetricTable.from_tally(Tally(np.zeros((0, 2, 2, 2), int), (), (SEX,)))
    assert set(limits(nobody).values()) == {None}


def told(values):
    """The names that have intervals: differences and ratios stand beside their violation."""
    return [n for n in values if n != "n" and not n.endswith(("_difference", "_ratio"))]


def test_every_number_of_the_summary_has_an_interval_that_holds_it():
    rng = np.random.default_rng(0)
    attributes = (SEX, Attribute("age", ("a", "b", "c")))
    tally = Tally(rng.integers(5, 60, size=(3, 6, 2, 2)), tuple("abc"), attributes)
    table = MetricTable.from_tally(tally, draws=200)
    parts = [table.overall, *(table.measures(section.attribute) for section in table.sections)]
    parts += [client.numbers for client in table.clients]
    parts += [group.numbers for section in table.sections for group in section.groups]
    assert len(parts) == 1 + 3 + 3 + 11  # sex, age and both crossed: 2 + 3 + 6 groups
    for numbers in parts:
        assert list(limits(numbers)) == told(values(numbers))
        for name, interval in limits(numbers).items():
            assert interval.lower <= numbers[name].value <= interval.upper
    json.loads(table.to_frame().to_json(orient="records"))


def test_same_seed_same_intervals():
    tally = tally_of([[[[30, 10], [10, 30]], [[25, 15], [15, 25]]]])
    assert MetricTable.from_tally(tally, seed=1) == MetricTable.from_tally(tally, seed=1)
    assert MetricTable.from_tally(tally, seed=1) != MetricTable.from_tally(tally, seed=2)


def test_smoothing_and_resampling_keep_the_rows():
    counts = np.array(
        [[[[4, 0], [0, 0]], [[10, 2], [0, 6]]], [[[0, 0], [0, 0]], [[0, 0], [0, 0]]]]
    )
    # Each cell a group of its own, one pseudo-row: 0 of 4 is (0 + ½)/5, 2 of 12 is (2 + ½)/13.
    smooth = smoothed(counts, counts.sum(axis=(0, 3)), 1.0)
    assert smooth.sum(axis=-1) == pytest.approx(counts.sum(axis=-1).astype(float))
    assert smooth[0, 0, 0].tolist() == pytest.approx([3.6, 0.4])
    assert smooth[0, 1, 0].tolist() == pytest.approx([12 - 12 * 2.5 / 13, 12 * 2.5 / 13])
    # Compared by client: its 20 right of 22 rows become (20 + ½)/23, whatever the cells.
    by_client = smoothed(counts, counts.sum(axis=(1, 2, 3))[:, None, None], 1.0)[0]
    right = by_client[:, 0, 0].sum() + by_client[:, 1, 1].sum()
    assert right == pytest.approx(22 * 20.5 / 23)
    drawn = resampled(smooth, 50, np.random.default_rng(0))
    assert drawn.shape == (50, 2, 2, 2, 2)
    assert set(drawn.sum(axis=(2, 3, 4))[:, 0].tolist()) == {22}
    assert not drawn[:, 1].any()
    many = resampled(smooth, 20000, np.random.default_rng(0)).mean(axis=0)
    assert many == pytest.approx(smooth, abs=0.08)


@pytest.mark.parametrize("more", [{"level": 0.0}, {"level": 95}, {"draws": 0}])
def test_bad_arguments(more):
    with pytest.raises(ConfigError, match=next(iter(more))):
        MetricTable.from_tally(tally_of([[[[1, 1], [1, 1]], [[1, 1], [1, 1]]]]), **more)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Interval(0.0, 0.05), "met"),
        (Interval(0.0, 0.0501), "too few rows to tell"),
        (Interval(0.0501, 0.2), "not met"),
        (Interval(0.05, 0.2), "too few rows to tell"),
        (0.05, "met"),
        (0.06, "not met"),
        (float("nan"), "too few rows to tell"),
        (None, "too few rows to tell"),
    ],
)
def test_verdict(found, expected):
    assert verdict(found, 0.05) == expected
