"""Group thresholds against fairlearn, closed forms, brute force and counts of rows."""

from __future__ import annotations

import itertools
import json
import math
from functools import reduce
from operator import add

import numpy as np
import pytest
from fairlearn.postprocessing import ThresholdOptimizer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.base import BaseEstimator, ClassifierMixin

from metric_tables import marginal
from mfairfl import fairness
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import (
    Cells,
    Constraints,
    Demand,
    ScoreHistogram,
    Tally,
    Thresholds,
    fit_thresholds,
    notion,
)

SEX = Attribute("sex", ("F", "M"))
AGE = Attribute("age", ("young", "mid", "old"))


def draw(seed, size, n=600):
    """Logits that say more about some cells than about others; base rates differ."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, size, n)
    y = (rng.random(n) < np.linspace(0.2, 0.6, size)[cell]).astype(int)
    z = rng.normal(2.0 * y - 1.0 + np.linspace(-1.0, 0.5, size)[cell], 1.0 + 0.3 * cell)
    return z, cell, y


def parity(attributes, *names, intersections=False):
    cells = Cells(attributes)
    chosen = [notion(name) for name in names]
    return Constraints(cells, chosen, cells.groupings(intersections=intersections))


def fit(histogram, constraints, tolerance=0.0):
    """The randomised thresholds of groups."""
    demand = Demand(by="group", tolerance=tolerance, randomise=True)
    return fit_thresholds({"all": histogram}, constraints, demand).thresholds


def expected_tally(rule, z, cell, y, attributes):
    """Expected counts, row by row."""
    counts = np.zeros((1, Cells(attributes).size, 2, 2))
    for p, c, label in zip(rule.positive_probability(z, cell), cell, y, strict=True):
        counts[0, c, label] += [1 - p, p]
    return Tally(counts, ("all",), attributes)


def errors_by_threshold(z, y, thresholds):
    return np.array([np.mean((z >= t) != y) for t in thresholds])


# --- histograms -----------------------------------------------------------------------------

edge_or_number = st.one_of(
    st.integers(-300, 300).map(lambda k: k / 32),  # on the edges of 512 bins and beyond them
    st.floats(-20, 20),
    st.floats(-20, 20, width=32),
    st.sampled_from([-0.0, 5e-324, -5e-324, 8.0, -8.0, math.nextafter(1.0, 0.0), -1e300, 1e300]),
)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(edge_or_number, st.integers(0, 2), st.integers(0, 1)), max_size=25),
    bins=st.sampled_from([2, 16, 512]),
)
def test_counts_equal_the_decisions_on_rows_exactly(rows, bins):
    z, cell, y = (np.array(column) for column in (zip(*rows, strict=True) if rows else [[]] * 3))
    cell = cell.astype(int)
    histogram = ScoreHistogram.from_logits(z, cell, y, size=3, bins=bins)
    assert histogram.counts.sum() == len(rows)
    assert histogram.thresholds.tolist() == sorted(
        [-math.inf, *(16 * k / bins - 8 for k in range(1, bins)), math.inf]
    )
    above = z[:, None] >= histogram.thresholds
    for c, label in itertools.product(range(3), range(2)):
        chosen = (cell == c) & (y == label)
        assert histogram.selected[c, label].tolist() == above[chosen].sum(axis=0).tolist()
    for k, t in enumerate(histogram.thresholds):
        rule = Thresholds(np.full((3, 1), t), np.ones((3, 1)))
        assert np.array_equal(rule.positive_probability(z, cell), above[:, k])


def test_single_precision_is_counted_as_it_is():
    # .03125 = 1/32 is an edge; float32 logits are compared in float64, where they are exact.
    z = np.array([1 / 32, np.nextafter(np.float32(1 / 32), np.float32(0))], dtype=np.float32)
    counts = ScoreHistogram.from_logits(z, [0, 0], [1, 1], size=1).counts
    assert counts[0, 1, 257] == 1  # [1/32, 2/32)
    assert counts[0, 1, 256] == 1  # [0, 1/32)


def test_histograms_add_up_and_federated_is_pooled():
    z, cell, y = draw(1, 6)
    client = np.random.default_rng(2).integers(0, 4, len(z))
    parts = [
        ScoreHistogram.from_logits(z[client == k], cell[client == k], y[client == k], size=6)
        for k in range(5)  # client 4 has no rows
    ]
    pooled = ScoreHistogram.from_logits(z, cell, y, size=6)
    summed = reduce(add, parts)
    assert np.array_equal(summed.counts, pooled.counts)
    constraints = parity((SEX, AGE), "dp", "eo")
    whole = fit(pooled, constraints, tolerance=0.01)
    for order in (parts, parts[::-1]):
        rule = fit(reduce(add, order), constraints, tolerance=0.01)
        assert rule.to_json() == whole.to_json()


# --- the optimum ----------------------------------------------------------------------------


def test_parity_of_two_groups_by_hand():
    # F: 4 negatives at −1, 4 positives at 1. M: 2 positives at 1. With a common selection rate s,
    # the right decisions are 4 + 8s (s ≤ .5) or 12 − 8s of F and 2s of M: best at s = .5, 9 of 10.
    # F decides by 0; M cannot tell its rows apart and selects half of them.
    z, cell, y = [-1] * 4 + [1] * 6, [0] * 8 + [1] * 2, [0] * 4 + [1] * 6
    rule = fit(ScoreHistogram.from_logits(z, cell, y, size=2), parity((SEX,), "dp"))
    assert rule.positive_probability([-1, 1, 1], [0, 0, 1]) == pytest.approx([0, 1, 0.5])
    measured = expected_tally(rule, z, cell, y, (SEX,))
    assert fairness.accuracy(measured) == pytest.approx(0.9)
    # Nearest to 0 among equals: F at 0; M at 0 (selects both) and at the edge above 1 (none).
    assert rule.values[0, rule.probabilities[0] > 0].tolist() == [0.0]
    assert sorted(rule.values[1].tolist()) == [0.0, 1 + 1 / 32]


def test_without_a_binding_constraint_each_cell_has_its_best_threshold():
    # F: labels 0 1 0 1 1 at −3 −2 −1 1 2. Errors: 1 at any t in (−3, −2] or (−1, 1] ⇒ 0 is best.
    # M: labels 0 0 1 at 1 2 3: no error at t in (2, 3]; the edge nearest 0 is 2 + 1/32.
    z = [-3, -2, -1, 1, 2, 1, 2, 3]
    y = [0, 1, 0, 1, 1, 0, 0, 1]
    cell = [0] * 5 + [1] * 3
    histogram = ScoreHistogram.from_logits(z, cell, y, size=2)
    rule = fit(histogram, parity((SEX,), "dp", "eo", "ap"), tolerance=1.0)
    measured = expected_tally(rule, z, cell, y, (SEX,))
    assert fairness.accuracy(measured) == pytest.approx(7 / 8)
    assert rule.values[1].tolist() == [2 + 1 / 32]
    assert rule.values[0, 0] in (-3 + 1 / 32, 0.0)


def test_a_cell_may_have_to_rank_worse_than_chance():
    # F: at 1 two positives, at −1 three positives and five negatives. Selecting a share s, it errs
    # on .5 − s up to s = .2 and on more after: least, .3, at s = .2 only. M: at 1 two negatives,
    # at −1 its one positive, at −2 seven negatives. By chance M errs on .1 + .8·.2 = .26; equal
    # selection and equal errors need .3: the two negatives, below the diagonal of its ROC.
    z = [1] * 2 + [-1] * 8 + [1] * 2 + [-1] + [-2] * 7
    y = [1] * 5 + [0] * 5 + [0, 0, 1] + [0] * 7
    cell = [0] * 10 + [1] * 10
    histogram = ScoreHistogram.from_logits(z, cell, y, size=2)
    rule = fit(histogram, parity((SEX,), "dp", "ap"))
    assert rule.positive_probability(z, cell) == pytest.approx(1.0 * (np.array(z) == 1), abs=1e-8)
    assert fairness.accuracy(expected_tally(rule, z, cell, y, (SEX,))) == pytest.approx(0.7)


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose only feature is its logit."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return (X[:, 0] >= 0).astype(int)

    def decision_function(self, X):
        return X[:, 0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("dp", "demographic_parity"),
        ("eo", "equalized_odds"),
        ("eopp", "true_positive_rate_parity"),
    ],
)
def test_as_good_as_fairlearn(ours, theirs, seed):
    z, cell, y = draw(seed, 3)
    # Centres of bins: both sides can tell the same rows apart, so no resolution is lost.
    z = np.clip(np.floor(z * 32) / 32, -7, 7) + 1 / 64
    race = (Attribute("race", ("a", "b", "c")),)
    optimizer = ThresholdOptimizer(
        estimator=Given().fit(z[:, None], y),
        constraints=theirs,
        objective="accuracy_score",
        prefit=True,
        predict_method="decision_function",
    ).fit(z[:, None], y, sensitive_features=cell)
    chance = optimizer._pmf_predict(z[:, None], sensitive_features=cell)[:, 1]
    their_accuracy = np.mean(np.where(y == 1, chance, 1 - chance))
    rule = fit(ScoreHistogram.from_logits(z, cell, y, size=3), parity(race, ours), tolerance=0.0)
    measured = expected_tally(rule, z, cell, y, race)
    violation = getattr(fairness, f"{notion(ours).name}_violation")(measured)
    assert violation <= 1e-8
    # fairlearn searches a grid of 1,000 rates: it is at most one step below the optimum.
    assert their_accuracy - 1e-8 <= fairness.accuracy(measured) <= their_accuracy + 2e-3


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.03, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_accuracy_parity_closed_form_and_brute_force(seed, tolerance):
    z, cell, y = draw(seed, 2, n=300)
    histogram = ScoreHistogram.from_logits(z, cell, y, size=2, bins=64)
    grid = histogram.thresholds
    error = [errors_by_threshold(z[cell == g], y[cell == g], grid) for g in (0, 1)]
    share = np.bincount(cell) / len(cell)
    # F − F_g = (1 − w_g)(F_other − F_g): the bound is |E_0 − E_1| ≤ tolerance / max w. Errors of
    # mixtures fill the interval between least and largest, so the better group gives way.
    least, bound = [e.min() for e in error], tolerance / share.max()
    assert max(least) <= min(e.max() for e in error)
    reached = [max(least[0], least[1] - bound), max(least[1], least[0] - bound)]
    rule = fit(histogram, parity((SEX,), "ap"), tolerance=tolerance)
    measured = expected_tally(rule, z, cell, y, (SEX,))
    assert fairness.accuracy(measured) == pytest.approx(1 - share @ reached, abs=1e-8)
    assert fairness.accuracy_parity_violation(measured) <= tolerance + 1e-8
    # No pair of plain thresholds is better.
    first, second = np.meshgrid(*error, indexing="ij")
    overall = share[0] * first + share[1] * second
    allowed = np.maximum(abs(overall - first), abs(overall - second)) <= tolerance
    best = (1 - overall)[allowed].max(initial=0.0)
    assert fairness.accuracy(measured) >= best - 1e-8


def all_threshold_optimum(z, cell, y, grid, size, groups, tolerance):
    """Demographic parity and equalized odds over all thresholds, from masks of rows."""
    decision = z[:, None] >= grid  # (n, T)
    columns = [decision * (cell == c)[:, None] for c in range(size)]
    chosen = np.hstack(columns)  # (n, C·T): what each variable selects
    gain = (chosen[y == 1].sum(axis=0) - chosen[y == 0].sum(axis=0)) / len(y)
    rows = []
    for event in (np.ones(len(y), bool), y == 0, y == 1):
        for group in groups:
            member = event & np.isin(cell, group)
            rows.append(chosen[event].mean(axis=0) - chosen[member].mean(axis=0))
    matrix = np.array(rows)
    result = linprog(
        -gain,
        A_ub=np.vstack([matrix, -matrix]),
        b_ub=np.full(2 * len(matrix), tolerance),
        A_eq=np.kron(np.eye(size), np.ones(len(grid))),
        b_eq=np.ones(size),
    )
    return np.mean(y == 0) - result.fun


@pytest.mark.parametrize("intersections", [False, True])
@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1])
def test_two_attributes_meet_every_bound_at_the_optimum(tolerance, intersections):
    z, cell, y = draw(5, 6)
    attributes = (SEX, AGE)
    histogram = ScoreHistogram.from_logits(z, cell, y, size=6, bins=64)
    constraints = parity(attributes, "dp", "eo", intersections=intersections)
    rule = fit(histogram, constraints, tolerance=tolerance)
    measured = expected_tally(rule, z, cell, y, attributes)
    tallies = [marginal(measured, "sex"), marginal(measured, "age")]
    groups = [[0, 1, 2], [3, 4, 5], [0, 3], [1, 4], [2, 5]]
    if intersections:
        six = Attribute("both", tuple("abcdef"))
        tallies.append(Tally(measured.counts, ("all",), (six,)))
        groups += [[c] for c in range(6)]
    for tally in tallies:
        assert fairness.demographic_parity_violation(tally) <= tolerance + 1e-8
        assert fairness.equalized_odds_violation(tally) <= tolerance + 1e-8
    best = all_threshold_optimum(z, cell, y, histogram.thresholds, 6, groups, tolerance)
    assert fairness.accuracy(measured) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("names", [("dp",), ("eo",), ("eopp",), ("ap",), ("dp", "eo", "ap")])
def test_more_tolerance_never_costs_accuracy(names):
    z, cell, y = draw(7, 6)
    histogram = ScoreHistogram.from_logits(z, cell, y, size=6)
    constraints = parity((SEX, AGE), *names, intersections=True)
    accuracies = []
    for tolerance in (0.0, 0.005, 0.02, 0.1, 0.3, 1.0):
        rule = fit(histogram, constraints, tolerance=tolerance)
        measured = expected_tally(rule, z, cell, y, (SEX, AGE))
        accuracies.append(fairness.accuracy(measured))
    assert (np.diff(accuracies) >= -1e-8).all()
    # Tolerance 1 binds nothing: every cell is at its least error.
    free = [errors_by_threshold(z[cell == c], y[cell == c], histogram.thresholds).min()
            for c in range(6)]  # fmt: skip
    assert accuracies[-1] == pytest.approx(1 - np.bincount(cell) @ free / len(cell), abs=1e-8)
    assert accuracies[0] < accuracies[-1] - 0.005


@pytest.mark.parametrize("seed", range(20))
def test_few_thresholds_a_cell(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, (12, 2, 32))
    cells = (Attribute("race", tuple("abcd")), AGE)
    chosen = rng.choice(["dp", "eo", "eopp", "ap"], size=rng.integers(1, 5), replace=False)
    constraints = parity(cells, *chosen, intersections=bool(rng.integers(2)))
    rule = fit(ScoreHistogram(counts), constraints, tolerance=rng.choice([0, 0.01]))
    # A point of a plane figure is a mixture of three corners.
    assert rule.values.shape[1] <= 3
    used = rule.probabilities > 0
    assert (rule.probabilities[used] > 1e-9).all()
    assert rule.probabilities.sum(axis=1) == pytest.approx(np.ones(12), abs=1e-12)


def test_probabilities_stay_within_one():
    shares = np.random.default_rng(0).dirichlet(np.ones(3), size=200)
    assert (shares.sum(axis=1) > 1).any()  # rounding
    rule = Thresholds(np.zeros((200, 3)), shares)
    assert rule.positive_probability(np.ones(200), np.arange(200)).max() == 1.0


# --- cells without rows or with one label -----------------------------------------------------


def test_an_unseen_cell_decides_plainly_and_binds_nothing():
    z, cell, y = draw(3, 2)
    race = (Attribute("race", ("a", "b", "never")),)
    rule = fit(
        ScoreHistogram.from_logits(z, cell, y, size=3), parity(race, "dp", "eo"), tolerance=0.01
    )
    two = fit(
        ScoreHistogram.from_logits(z, cell, y, size=2), parity((SEX,), "dp", "eo"), tolerance=0.01
    )
    assert rule.positive_probability([-1e-9, 0.0, 5.0], [2, 2, 2]).tolist() == [0, 1, 1]
    found = rule.positive_probability(z, cell), two.positive_probability(z, cell)
    assert np.array_equal(*found)


@pytest.mark.parametrize("name", ["dp", "eo", "eopp", "ap"])
def test_a_cell_with_one_label(name):
    # F has no positives, M both labels and scores that rank perfectly.
    z = np.array([-2.0, -1.0, 1.0, -2.0, 1.0])
    cell, y = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 1])
    rule = fit(ScoreHistogram.from_logits(z, cell, y, size=2), parity((SEX,), name))
    measured = expected_tally(rule, z, cell, y, (SEX,))
    # dp: with s for both, 3(1 − s) of F and 1 + 2s of M (s ≤ .5) are right: s = 0, 4 of 5.
    # eo: only y = 0 compares two groups; eopp: nothing does; ap: both can be faultless.
    assert fairness.accuracy(measured) == pytest.approx(0.8 if name == "dp" else 1.0)


def test_scores_that_say_nothing():
    # One bin: each cell is selected wholly or not; parity keeps the commoner label, 0.
    cell, y = np.repeat([0, 1], 10), np.array([0] * 7 + [1] * 3 + [0] * 6 + [1] * 4)
    histogram = ScoreHistogram.from_logits(np.full(20, 0.5), cell, y, size=2)
    rule = fit(histogram, parity((SEX,), "dp", "eo", "eopp"))
    assert rule.positive_probability(np.full(20, 0.5), cell) == pytest.approx(np.zeros(20))


def test_always_needs_infinity_where_logits_lie_below_the_grid():
    histogram = ScoreHistogram.from_logits([-50.0, -50.0, -9.0], [0, 0, 1], [1, 1, 1], size=2)
    rule = fit(histogram, parity((SEX,), "dp"))
    assert rule.values.tolist() == [[-math.inf], [-math.inf]]


# --- reading and writing ----------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False), st.floats(0, 1)),
        min_size=1,
        max_size=5,
    )
)
def test_json_keeps_every_bit(rows):
    rule = Thresholds([[a, b] for a, b, _ in rows], [[p, 1 - p] for _, _, p in rows])
    back = Thresholds.from_json(json.loads(json.dumps(rule.to_json(), allow_nan=False)))
    assert back.values.tobytes() == rule.values.tobytes()
    assert back.probabilities.tobytes() == rule.probabilities.tobytes()


def test_infinite_thresholds_are_words_in_json():
    document = {"values": [["always", 0.5], ["never", 0.0]], "probabilities": [[0.5, 0.5], [1, 0]]}
    rule = Thresholds.from_json(document)
    assert rule.positive_probability([-99, 1, 99], [0, 0, 1]).tolist() == [0.5, 1.0, 0.0]
    assert rule.to_json() == document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"values": [[0.0]]}, "probabilities: Field required"),
        ({"values": [0.0], "probabilities": [[1.0]]}, "values.0: Input should be a valid list"),
        ({"values": [[0.0], [0.0, 1.0]], "probabilities": [[1.0]]}, "differ in length"),
        ({"values": [[0.0], ["often"]], "probabilities": [[1.0], [1.0]]}, "values.1.0.*'often'"),
        ({"values": [[[0.0]]], "probabilities": [[1.0]]}, "values.0.0.*valid number"),
        ({"values": [[math.nan]], "probabilities": [[1.0]]}, "values.0.0.*finite number"),
        ({"values": [[math.inf]], "probabilities": [[1.0]]}, "values.0.0.*finite number"),
        ({"values": [[10**400]], "probabilities": [[1.0]]}, "values.0.0"),
        ({"values": [[True]], "probabilities": [[1.0]]}, "values.0.0.*True"),
        ({"values": [["never"]], "probabilities": [["always"]]}, "probabilities.0.0"),
        ({"values": [[0.0]], "probabilities": [[0.9]]}, r"probabilities \[0\.9\]; they must"),
        ({"values": [[0, 1]], "probabilities": [[2, -1]]}, "cell 0 has probabilities"),
        ({"values": [[0.0]], "probabilities": [[1.0, 0.0]]}, "differ in length"),
        ({"values": [[]], "probabilities": [[]]}, "expected two arrays of one shape"),
    ],
)
def test_a_damaged_document_is_named_on_one_line(document, message):
    with pytest.raises(DataError, match=message) as caught:
        Thresholds.from_json(document)
    assert "\n" not in str(caught.value)


def test_errors_name_the_fix():
    rows = {"size": 2, "bins": 4}
    with pytest.raises(ConfigError, match=r"bins = 100; use a power of two"):
        ScoreHistogram.from_logits([0.0], [0], [1], size=1, bins=100)
    with pytest.raises(DataError, match=r"logits: row 1 holds nan; has training diverged"):
        ScoreHistogram.from_logits([0.0, np.nan], [0, 0], [1, 1], **rows)
    with pytest.raises(DataError, match=r"cells: row 0 holds 2; expected 0 … 1"):
        ScoreHistogram.from_logits([0.0], [2], [1], **rows)
    with pytest.raises(DataError, match="cells: float64 values; use the integer codes"):
        ScoreHistogram.from_logits([0.0], [0.5], [1], **rows)
    with pytest.raises(DataError, match="labels: row 0 holds 2"):
        ScoreHistogram.from_logits([0.0], [0], [2], **rows)
    with pytest.raises(DataError, match="2 values for 1 logits"):
        ScoreHistogram.from_logits([0.0], [0], [1, 1], **rows)
    with pytest.raises(DataError, match=r"logits \(1,\) and cells \(2,\)"):
        ScoreHistogram.from_logits([0.0], [0, 1], [1], **rows)
    with pytest.raises(DataError, match="float64 counts"):
        ScoreHistogram(np.ones((2, 2, 4)))
    with pytest.raises(DataError, match=r"shape \(2, 4\)"):
        ScoreHistogram(np.ones((2, 4), int))
    with pytest.raises(DataError, match="negative"):
        ScoreHistogram(np.full((2, 2, 4), -1))
    empty = ScoreHistogram(np.zeros((2, 2, 4), int))
    with pytest.raises(DataError, match="cannot be added; use the same sensitive attributes"):
        empty + ScoreHistogram(np.zeros((3, 2, 4), int))
    dp = parity((SEX,), "dp")
    with pytest.raises(DataError, match="no cell has rows"):
        fit(empty, dp)
    full = ScoreHistogram(np.ones((2, 2, 4), int))
    for tolerance in (-0.1, math.nan, math.inf):
        with pytest.raises(ConfigError, match=r"output.tolerance must lie in \[0, 1\], not"):
            fit(full, dp, tolerance=tolerance)
    with pytest.raises(ConfigError, match=r"'accuracy_parity_loss': .* use 'accuracy_parity'"):
        fit(full, parity((SEX,), "dp", "ap-loss"))
    with pytest.raises(DataError, match=r"expected \(2, 2\)"):
        fit(ScoreHistogram(np.ones((3, 2, 4), int)), dp)
    with pytest.raises(DataError, match="values hold nan"):
        Thresholds([[np.nan]], [[1.0]])
