"""Scores: sums that add up, and numbers that scikit-learn and a loop over rows find too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import log_loss, roc_auc_score

from metric_tables import quick_table, score_numbers, values
from mfairfl.data import Attribute
from mfairfl.errors import DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.histogram import ScoreHistogram, pooled_histogram
from mfairfl.fairness.scores import (
    CALIBRATION_BINS,
    SCORE_NUMBERS,
    RowScores,
    ScoreSums,
    pooled_scores,
    roc_auc_interval,
    roc_aucs,
)

SEX = Attribute("sex", ("F", "M"))


def naive_calibration_error(y, p):
    """Guo et al. (2017), row by row."""
    total = 0.0
    for b in range(CALIBRATION_BINS):
        end = 1.1 if b == CALIBRATION_BINS - 1 else (b + 1) / CALIBRATION_BINS
        inside = [i for i in range(len(p)) if b / CALIBRATION_BINS <= p[i] < end]
        if inside:
            confidence = sum(p[i] for i in inside) / len(inside)
            frequency = sum(y[i] for i in inside) / len(inside)
            total += len(inside) / len(p) * abs(confidence - frequency)
    return total


def people(seed=0, n=3000, clients="abc"):
    """Scores as of a trained model: near the truth, not on it."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-0.7, 1.8, n)
    y = (rng.random(n) < expit(0.8 * z + 0.3)).astype(int)
    return z, y, rng.integers(0, 2, n), rng.choice(list(clients), n)


def sums_by_client(z, y, cell, client, size=2):
    scores = RowScores.from_logits(z)
    return {
        name: ScoreSums.from_rows(scores[client == name], cell[client == name], y[client == name],
                                  size=size)
        for name in sorted(set(client))
    }  # fmt: skip


def decided(z, y, cell, client):
    groups = np.array(SEX.groups)[cell]
    return Tally.from_predictions(y, z > 0, sensitive_features={"sex": groups}, clients=client)


def scored_table(z, y, cell, client):
    scores = sums_by_client(z, y, cell, client)
    return quick_table(decided(z, y, cell, client), scores=scores)


# ------------------------------------------------------------------ numbers


def test_overall_groups_and_clients_equal_scikit_learn():
    z, y, cell, client = people()
    table = scored_table(z, y, cell, client)
    parts = [(np.full(len(y), True), values(table))]
    parts += [(cell == i, values(table.by_group["sex"][g])) for i, g in enumerate(SEX.groups)]
    parts += [(client == name, values(table.by_client[name])) for name in "abc"]
    for rows, numbers in parts:
        p = expit(z[rows])
        # A pair of rows in one bin counts half: few rows, few pairs, each of more weight.
        near = 1e-4 if rows.all() else 3e-4
        assert numbers["roc_auc"] == pytest.approx(roc_auc_score(y[rows], p), abs=near)
        assert numbers["loss"] == pytest.approx(log_loss(y[rows], p), abs=1e-12)
        expected = naive_calibration_error(y[rows], p)
        assert numbers["expected_calibration_error"] == pytest.approx(expected, abs=1e-12)
        assert None not in numbers.values()


def test_the_area_is_never_farther_from_the_exact_one_than_half_the_pairs_in_one_bin():
    rng = np.random.default_rng(1)
    for scale in (0.02, 0.3, 1.0, 4.0, 12.0):
        z, y = rng.normal(0, scale, 500), rng.integers(0, 2, 500)
        z += y * scale
        sums = ScoreSums.from_rows(RowScores.from_logits(z), np.zeros(500, int), y, size=1)
        negative, positive = sums.histogram.counts[0]
        bound = (negative * positive).sum() / (negative.sum() * positive.sum()) / 2
        error = abs(score_numbers(sums)["roc_auc"][0] - roc_auc_score(y, z))
        assert error <= bound
        assert error <= 0.001 or scale in (0.02, 12.0)


def test_ties_count_half():
    y, p = np.array([0, 1, 0, 1, 1]), np.array([0.3, 0.3, 0.3, 0.3, 0.9])
    sums = ScoreSums.from_rows(RowScores.from_probabilities(p), np.zeros(5, int), y, size=1)
    assert score_numbers(sums)["roc_auc"][0] == pytest.approx(roc_auc_score(y, p), abs=1e-15)
    same = ScoreSums.from_rows(RowScores.from_logits(np.zeros(5)), np.zeros(5, int), y, size=1)
    assert score_numbers(same)["roc_auc"][0] == 0.5


def test_probabilities_of_others_may_be_exactly_0_and_1():
    y, p = np.array([0, 0, 1, 1, 1]), np.array([0.0, 1.0, 1.0, 0.2, 0.6])
    sums = ScoreSums.from_rows(RowScores.from_probabilities(p), np.zeros(5, int), y, size=1)
    assert score_numbers(sums)["roc_auc"][0] == pytest.approx(roc_auc_score(y, p), abs=1e-15)
    assert score_numbers(sums)["loss"][0] == pytest.approx(log_loss(y, p), rel=1e-12)
    error, _ = score_numbers(sums)["expected_calibration_error"]
    assert error == pytest.approx(naive_calibration_error(y, p))


def test_far_logits_have_their_own_loss():
    """A probability would have been rounded to 1, and the loss to 36."""
    scores = RowScores.from_logits([100.0, -700.0])
    sums = ScoreSums.from_rows(scores, [0, 0], [0, 1], size=1)
    assert sums.losses.tolist() == [[100.0, 700.0]]


def test_a_mixture_scores_by_the_chance_of_a_favourable_decision():
    z = np.array([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    scores = RowScores.of_mixture(z, [0.75, 0.25])
    assert scores.probabilities.tolist() == [1.0, 0.75, 0.25, 0.0]
    y = np.array([1, 1, 0, 1])
    sums = ScoreSums.from_rows(scores, np.zeros(4, int), y, size=1)
    # 1 and .75 are above .25, 0 is below.
    assert score_numbers(sums)["roc_auc"][0] == pytest.approx(2 / 3)
    expected = 0.75 * log_loss(y, expit(z[0])) + 0.25 * log_loss(y, expit(z[1]))
    assert score_numbers(sums)["loss"][0] == pytest.approx(expected, rel=1e-12)


# ------------------------------------------------------------------ sums


def test_clients_sums_add_up_to_those_of_all_rows():
    z, y, cell, client = people(seed=3)
    one, two, three = sums_by_client(z, y, cell, client).values()
    whole = ScoreSums.from_rows(RowScores.from_logits(z), cell, y, size=2)
    added = one + two + three
    assert np.array_equal(added.histogram.counts, whole.histogram.counts)
    assert np.array_equal(added.rows, whole.rows)
    np.testing.assert_allclose(added.sums, whole.sums, rtol=1e-12)
    np.testing.assert_allclose(added.losses, whole.losses, rtol=1e-12)
    rows = [[(y[cell == c] == label).sum() for label in (0, 1)] for c in (0, 1)]
    assert whole.counts.tolist() == rows


def test_sums_of_many_owners_are_those_of_each_bit_for_bit():
    """Also of one without rows, and where the model diverged on some."""
    z, y, cell, client = people(n=900, clients="abcdefg")
    z[::50], owner = np.nan, np.array([("abc-defg").index(name) for name in client])
    many = ScoreSums.each_from_rows(RowScores.from_logits(z), owner, cell, y, size=2, owners=9)
    assert len(many) == 9
    for i, found in enumerate(many):
        here = owner == i
        counted = np.zeros((2, 2, 2048), int)
        rows = np.zeros((2, 2, CALIBRATION_BINS), int)
        sums, losses = np.zeros(rows.shape), np.zeros((2, 2))
        for logit, label, group in zip(z[here], y[here], cell[here], strict=True):
            if np.isnan(logit):
                continue
            counted[group, label, int(np.clip(np.floor(logit * 128) + 1024, 0, 2047))] += 1
            p = expit(logit)
            place = group, label, min(int(p * CALIBRATION_BINS), CALIBRATION_BINS - 1)
            rows[place] += 1
            sums[place] += p
            losses[group, label] += np.logaddexp(0, -logit if label else logit)
        assert np.array_equal(found.histogram.counts, counted)
        assert np.array_equal(found.rows, rows)
        assert np.array_equal(found.sums, sums)
        assert np.array_equal(found.losses, losses)


def test_what_no_rows_can_have_said_is_refused():
    z, y, cell, _ = people(n=50)
    good = ScoreSums.from_rows(RowScores.from_logits(z), cell, y, size=2)
    parts = {"histogram": good.histogram, "rows": good.rows, "sums": good.sums}
    parts["losses"] = good.losses
    other = ScoreHistogram.from_logits(z[1:], cell[1:], y[1:], size=2, bins=2048)
    for name, wrong, message in [
        ("sums", good.sums + 1.0, "no rows of their bins can have"),
        ("sums", np.full_like(good.sums, np.nan), "no rows of their bins can have"),
        ("losses", -good.losses, "losses hold a negative number"),
        ("losses", np.full_like(good.losses, np.inf), "one that is not finite"),
        ("histogram", other, "hold different rows"),
    ]:
        with pytest.raises(DataError, match=message):
            ScoreSums(**parts | {name: wrong})


@pytest.mark.parametrize("wrong", [[0.5, 1.1], [0.5, np.nan], [-0.1, 0.5], [[0.5], [0.5]]])
def test_probabilities_that_are_none_are_refused(wrong):
    with pytest.raises(DataError, match="give one number from 0 to 1 for each row"):
        RowScores.from_probabilities(wrong)


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="2 scores, 2 cells and 1 labels"):
        ScoreSums.from_rows(RowScores.from_logits([0.0, 1.0]), [0, 0], [1], size=1)


# ------------------------------------------------------------------ undefined


def test_one_label_has_no_area_but_a_loss():
    z, y, cell, client = people()
    y = np.where(client == "a", 1, np.where(cell == 0, 0, y))
    table = scored_table(z, y, cell, client)
    area, loss = table.by_client["a"]["roc_auc"], table.by_client["a"]["loss"]
    assert (area.value, area.interval, area.undefined) == (None, None, "no row has y = 0")
    assert loss.value == pytest.approx(-np.log(expit(z[client == "a"])).mean())
    assert table.by_group["sex"]["M"]["roc_auc"].interval is not None


def test_rows_without_a_score_leave_every_number_of_theirs_undefined():
    """Training diverged at one client, another one's scores never came."""
    z, y, cell, client = people()
    tally, broken = decided(z, y, cell, client), z.copy()
    broken[np.flatnonzero(client == "a")[:2]] = [np.nan, np.inf]
    scores = sums_by_client(broken, y, cell, client)
    del scores["b"]
    table = quick_table(tally, scores=scores)
    a, b, c = table.clients
    for name in SCORE_NUMBERS:
        assert table[name].value is a[name].value is b[name].value is None
        assert table[name].undefined == "the scores of client 'b' are missing"
        assert a[name].undefined == "not every row has a finite score"
        assert b[name].undefined == "the scores of client 'b' are missing"
        assert c[name].value is not None
    assert table["roc_auc"].interval is None
    assert c["roc_auc"].interval is not None
    del scores["c"]
    again = quick_table(tally, scores=scores)
    assert again.by_client["c"]["loss"].undefined == "the scores of client 'c' are missing"


def test_the_score_of_a_drawn_model_is_not_calibrated_to_labels():
    z, y, cell, client = people()
    tally, sums = decided(z, y, cell, client), sums_by_client(z, y, cell, client)
    table = quick_table(tally, scores=sums, randomised=True)
    assert table["expected_calibration_error"].value is None
    why = table.by_client["a"]["expected_calibration_error"].undefined
    assert "drawn at random" in why
    assert table["roc_auc"].value is not None


def test_no_rows_and_no_groups():
    empty = Tally(np.zeros((1, 1, 2, 2), int), ("a",), ())
    table = quick_table(empty, scores={})
    assert table["loss"].undefined == "there are no rows"
    assert table["roc_auc"].undefined == "no row has y = 1"
    assert (table.sections, table["roc_auc"].interval) == ([], None)


def test_gaps_of_losses_are_those_of_the_rows():
    z, y, cell, client = people()
    table = scored_table(z, y, cell, client)
    loss, name = np.logaddexp(0, z) - y * z, "accuracy_parity_loss_violation"
    for here, numbers in [(client == client, table), (client == "b", table.by_client["b"])]:
        gaps = [abs(loss[here & (cell == g)].mean() - loss[here].mean()) for g in (0, 1)]
        assert numbers[name].value == pytest.approx(max(gaps), abs=1e-12)
    only = np.flatnonzero((client != "c") | (cell == 0))
    z, y, cell, client = (part[only] for part in (z, y, cell, client))
    gap = scored_table(z, y, cell, client).by_client["c"][name]
    assert (gap.value, gap.undefined) == (None, "group 'M' of 'sex' has no rows")


# ------------------------------------------------------------------ the interval


@pytest.mark.slow
def test_the_interval_covers_the_true_area():
    """Binormal scores, of which the area is known."""
    rng, hits, shift = np.random.default_rng(5), 0, 1.2
    truth = norm.cdf(shift / np.sqrt(2))
    for _ in range(600):
        negative, positive = rng.normal(size=80), rng.normal(shift, size=40)
        y, z = np.repeat([0, 1], [80, 40]), np.concatenate([negative, positive])
        low, high = roc_auc_interval(roc_auc_score(y, z), 40, 80)
        hits += low <= truth <= high
    assert 0.93 <= hits / 600 <= 0.985


def test_the_limits_are_where_the_estimate_is_just_in_reach():
    """Newcombe (2006), method 5: |estimate − limit| = z·√V(limit)."""
    value, m, n = 0.83, 30, 70
    star = (m + n) / 2 - 1
    for area in roc_auc_interval(value, m, n):
        more = star * (1 - area) / (2 - area) + star * area / (1 + area)
        variance = area * (1 - area) * (1 + more) / (m * n)
        assert abs(value - area) == pytest.approx(norm.ppf(0.975) * np.sqrt(variance), rel=1e-9)


def test_a_perfect_ranking_of_few_rows_is_not_certain():
    low, high = roc_auc_interval(1.0, 5, 5)
    assert (low < 0.75, high) == (True, 1.0)
    assert roc_auc_interval(0.0, 5, 5) == pytest.approx((0.0, 1.0 - low))
    assert roc_auc_interval(0.7, 5, 5, level=0.5)[0] > roc_auc_interval(0.7, 5, 5)[0]


# ------------------------------------------------------------------ all clients at once


def test_all_clients_at_once_have_the_numbers_of_each():
    z, y, cell, client = people(n=900, clients="abcdefghij")
    y[client == "b"] = 1  # one label only
    cell[client == "c"] = 0  # a group without rows
    sums = sums_by_client(z, y, cell, client)
    table = quick_table(decided(z, y, cell, client), scores=sums)
    for name, own in sums.items():
        numbers = table.by_client[name]
        for key in SCORE_NUMBERS:
            value, _ = score_numbers(own)[key]
            assert numbers[key].value == (None if np.isnan(value) else value)
        mine = client == name
        loss = np.where(y[mine] == 1, np.logaddexp(0, -z[mine]), np.logaddexp(0, z[mine]))
        gaps = [abs(loss[cell[mine] == g].mean() - loss.mean()) for g in set(cell[mine])]
        expected = pytest.approx(max(gaps)) if len(gaps) == 2 else None
        assert numbers["accuracy_parity_loss_violation"].value == expected
        area, _ = score_numbers(own)["roc_auc"]
        limits = (
            None if np.isnan(area) else roc_auc_interval(area, y[mine].sum(), (1 - y[mine]).sum())
        )
        assert numbers["roc_auc"].interval == limits
    assert table.by_client["b"]["roc_auc"].undefined == "no row has y = 0"
    gap = table.by_client["c"]["accuracy_parity_loss_violation"]
    assert gap.undefined == "group 'M' of 'sex' has no rows"


def test_areas_of_many_histograms_are_those_of_pairs_of_rows():
    rng = np.random.default_rng(1)
    histograms, expected = [], []
    for rows in (1, 2, 5, 40):
        z, y = rng.normal(size=rows).round(1), rng.integers(0, 2, rows)
        cells = rng.integers(0, 3, rows)
        histograms.append(ScoreHistogram.from_logits(z, cells, y, size=3, bins=2048))
        pairs = [(p > n) + 0.5 * (p == n) for p in z[y == 1] for n in z[y == 0]]
        expected.append(np.mean(pairs) if pairs else np.nan)
    assert roc_aucs(histograms) == pytest.approx(np.array(expected), nan_ok=True)
    assert roc_aucs([]).shape == (0,)


def test_limits_of_many_areas_are_those_of_each():
    areas, ups, downs = np.array([0.0, 0.4, 0.93, 1.0]), [3, 50, 7, 1], [4, 20, 900, 1]
    many = roc_auc_interval(areas, ups, downs)
    each = [roc_auc_interval(*one) for one in zip(areas, ups, downs, strict=True)]
    assert np.array_equal(np.array(many).T, each)


def test_a_histogram_keeps_only_bins_with_rows():
    counts = np.zeros((2, 2, 8), dtype=np.int64)
    counts[0, 1, 3], counts[1, 0, 7] = 5, 2
    histogram = ScoreHistogram(counts)
    assert histogram.places.tolist() == [11, 23]
    assert histogram.numbers.tolist() == [5, 2]
    assert np.array_equal(histogram.counts, counts)
    assert histogram.rows.tolist() == [[0, 5], [2, 0]]
    other = np.arange(32).reshape(2, 2, 8)
    pooled = pooled_histogram([histogram, ScoreHistogram(other), histogram])
    assert np.array_equal(pooled.counts, 2 * counts + other)
    with pytest.raises(DataError, match="cannot be added"):
        histogram + ScoreHistogram(np.zeros((1, 2, 8), dtype=np.int64))


def test_pooled_scores_are_added_in_their_order():
    parts = list(sums_by_client(*people(n=300, clients="abcd")).values())
    pooled, total = pooled_scores(parts), parts[0]
    for part in parts[1:]:
        total = total + part
    assert np.array_equal(pooled.sums, total.sums)
    assert np.array_equal(pooled.losses, total.losses)
    assert np.array_equal(pooled.rows, total.rows)
    assert np.array_equal(pooled.histogram.counts, total.histogram.counts)
