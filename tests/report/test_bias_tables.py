"""Tables of 6 RCNY §5-301 against arithmetic that is written out here."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.fairness.audit_counts import AuditCounts, ScoreGrid
from mfairfl.report.audit_settings import AuditSettings
from mfairfl.report.bias_tables import Selections, bias_tables

BOTH = AuditSettings(sex="sex", race="race")

# sex, race, applicants, selected
PEOPLE = [
    ("Female", "Black", 60, 12),
    ("Female", "White", 140, 42),
    ("Male", "Black", 80, 24),
    ("Male", "White", 220, 88),
    ("?", "White", 10, 4),
    ("Female", "?", 6, 0),
    ("Male", "Asian", 4, 4),
]


def counts_of(people, **more):
    sex, race, decided = [], [], []
    for s, r, applicants, selected in people:
        sex += [s] * applicants
        race += [r] * applicants
        decided += [1] * selected + [0] * (applicants - selected)
    return AuditCounts.from_rows(
        None, decided, sensitive_features={"sex": sex, "race": race}, **more
    )


def cells(table):
    return {row.category: row for row in table.rows}


def test_the_three_tables_by_hand():
    """520 people in all.

    Sex. Female: 12 + 42 + 0 = 54 of 60 + 140 + 6 = 206. Male: 24 + 88 + 4 = 116 of 304. Ten are
    of unknown sex. Highest: Male. Impact ratio of women (54/206) / (116/304).
    Race. Asian 4 of 4, Black 36 of 140, White 42 + 88 + 4 = 134 of 370; six unknown.
    """
    sex, race, crossed = bias_tables(counts_of(PEOPLE), BOTH)
    assert [table.name for table in (sex, race, crossed)] == ["sex", "race", "sex_race"]
    women, men = cells(sex)["Female"], cells(sex)["Male"]
    assert (women.applicants, women.selected) == (206, 54)
    assert (men.applicants, men.selected) == (304, 116)
    assert women.rate.value == pytest.approx(54 / 206, abs=1e-15)
    assert women.impact_ratio.value == pytest.approx((54 / 206) / (116 / 304), abs=1e-15)
    assert (men.impact_ratio.value, men.reference, men.highest) == (1.0, True, True)
    assert (sex.unknown, race.unknown, crossed.unknown) == (10, 6, 16)
    assert {r.category: (r.applicants, r.selected) for r in race.rows} == {
        "Asian": (4, 4), "Black": (140, 36), "White": (370, 134),
    }  # fmt: skip
    assert cells(race)["Black"].impact_ratio.value == pytest.approx(36 / 140, abs=1e-15)
    assert cells(crossed)["Female × Black"].rate.value == 12 / 60
    assert cells(crossed)["Female × Black"].groups == ("Female", "Black")
    assert cells(crossed)["Female × Asian"].rate.value is None  # nobody, and not dropped
    assert women.share == pytest.approx(206 / 520)
    assert all(not table.median_kind and table.measure == "selection" for table in (sex, race))


def test_bounds_over_unknown_categories_by_hand():
    """Of ten people of unknown sex four were selected.

    Women: at least 54 of 206 + 6, at most (54 + 4) of (206 + 4); men accordingly.
    """
    sex = bias_tables(counts_of(PEOPLE), BOTH)[0]
    women, men = cells(sex)["Female"], cells(sex)["Male"]
    low, high = 54 / 212, 58 / 210
    least, most = 116 / 310, 120 / 308
    assert women.rate.bounds == pytest.approx((low, high), abs=1e-15)
    assert men.rate.bounds == pytest.approx((least, most), abs=1e-15)
    assert women.impact_ratio.bounds == pytest.approx((low / most, high / least), abs=1e-15)
    assert men.impact_ratio.bounds == (1.0, 1.0)


def test_small_categories_are_marked_and_stay():
    race = bias_tables(counts_of(PEOPLE), BOTH)[1]
    assert [row.category for row in race.rows if row.small] == ["Asian"]  # 4 of 520 is 0.8 %
    assert not any(row.left_out for row in race.rows)
    assert cells(race)["Asian"].reference
    assert "Under 2 % of the rows: Asian (4)" in " ".join(race.notes)


def test_small_categories_are_left_out_for_a_reason():
    """Without the four Asians the highest rate is that of Whites, 134 of 370."""
    settings = AuditSettings(sex="sex", race="race", small_categories="four people")
    race = bias_tables(counts_of(PEOPLE), settings)[1]
    asian, black = cells(race)["Asian"], cells(race)["Black"]
    assert asian.left_out
    assert (asian.applicants, asian.selected, asian.rate.value) == (4, 4, 1.0)
    assert (asian.impact_ratio.value, asian.p_value) == (None, None)
    assert black.impact_ratio.value == pytest.approx((36 / 140) / (134 / 370), abs=1e-15)
    assert race.justification == "four people"
    sex = bias_tables(counts_of(PEOPLE), settings)[0]
    assert sex.justification == ""  # nobody is left out there


@pytest.mark.parametrize(("rows", "small"), [(2, False), (1, True)])
def test_two_per_cent_is_not_under_two_per_cent(rows, small):
    people = [("a", "x", rows, 1), ("b", "x", 100 - rows, 50)]
    table = bias_tables(counts_of(people), AuditSettings(sex="sex"))[0]
    assert cells(table)["a"].small is small


def test_p_values_are_of_the_highest_and_corrected_within_the_table():
    """Selected are 9, 5 and 4 of 10 each.

    If 9 + 5 = 14 of 20 are selected, the chance that k of b's ten are is
    (10 choose k)(10 choose 14 − k) / (20 choose 14); p adds up what is as unlikely as k = 5. The
    smaller of the two p-values counts twice, the other is not below it.
    """

    def of_splits(hits):
        both = hits + 9
        ways = {k: comb(10, k) * comb(10, both - k) for k in range(both - 10, 11)}
        return sum(n for n in ways.values() if n <= ways[hits]) / comb(20, both)

    people = [("a", "x", 10, 9), ("b", "x", 10, 5), ("c", "x", 10, 4)]
    rows = cells(bias_tables(counts_of(people), AuditSettings(sex="sex"))[0])
    assert rows["a"].p_value is None
    assert rows["b"].p_value == pytest.approx(of_splits(5), abs=1e-12)
    assert rows["c"].p_value == pytest.approx(of_splits(4), abs=1e-12)
    assert rows["c"].p_holm == pytest.approx(2 * of_splits(4), abs=1e-12)
    assert rows["b"].p_holm == pytest.approx(max(of_splits(5), 2 * of_splits(4)), abs=1e-12)


def test_ties_of_the_highest_rate():
    """Two categories select half; the larger one is compared with, both have a ratio of 1."""
    people = [("a", "x", 10, 5), ("b", "x", 100, 50), ("c", "x", 50, 10)]
    table = bias_tables(counts_of(people), AuditSettings(sex="sex"))[0]
    rows = cells(table)
    assert [row.category for row in table.rows if row.highest] == ["a", "b"]
    assert [row.category for row in table.rows if row.reference] == ["b"]
    assert (rows["a"].impact_ratio.value, rows["a"].p_value) == (1.0, 1.0)
    assert "a and b have the same rate" in table.notes[0]


def test_nobody_is_selected():
    people = [("a", "x", 10, 0), ("b", "x", 10, 0)]
    table = bias_tables(counts_of(people), AuditSettings(sex="sex"))[0]
    assert {row.impact_ratio.value for row in table.rows} == {None}
    assert table.rows[0].impact_ratio.undefined == "the highest rate is 0"


def test_no_column_named_no_table():
    assert bias_tables(counts_of(PEOPLE), AuditSettings()) == []
    assert [t.name for t in bias_tables(counts_of(PEOPLE), AuditSettings(race="race"))] == ["race"]


def test_the_rule_of_thumb_is_another_texts():
    note = bias_tables(counts_of(PEOPLE), BOTH)[0].notes[-1]
    assert "29 CFR 1607.4(D)" in note
    assert "names no limit" in note


# ------------------------------------------------------------------ scores


def scored(scores, sex, **more):
    return AuditCounts.from_rows(
        None, [0] * len(scores), sensitive_features={"sex": sex}, scores=scores, **more
    )


def test_scoring_rates_by_hand():
    """Median of 1 … 9 tenths is .5: above it are .6 (F), .7 (M), .8 (M), .9 (M)."""
    scores = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    counts = scored(scores, list("FFFMFFMMM"))
    selection, scoring = bias_tables(counts, AuditSettings(sex="sex"))
    assert (selection.measure, scoring.measure) == ("selection", "scoring")
    assert {r.category: (r.applicants, r.selected) for r in scoring.rows} == {
        "F": (5, 1), "M": (4, 3),
    }  # fmt: skip
    assert scoring.rows[0].impact_ratio.value == pytest.approx((1 / 5) / (3 / 4))
    assert scoring.rows[0].rate.name == "scoring_rate"
    assert (scoring.median, scoring.median_kind) == (0.5, "edge of the score grid")


def exact(scores, sex):
    return Selections.above_exact(
        scores,
        lambda above: AuditCounts.from_rows(None, above, sensitive_features={"sex": sex}),
    )


@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from("FM")), min_size=1, max_size=30))
def test_on_the_grid_both_medians_give_the_same_counts(people):
    scores, sex = [step / 100 for step, _ in people], [group for _, group in people]
    counts = scored(scores, sex)
    of_grid, of_rows = Selections.above_edge(counts), exact(scores, sex)
    np.testing.assert_array_equal(of_grid.counts.decided, of_rows.counts.decided)
    above = np.asarray(scores) > np.median(scores)
    assert of_rows.counts.decided[..., 1].sum() == above.sum()
    assert of_rows.median == np.median(scores)
    assert (of_rows.kind, of_grid.kind) == ("sample median", "edge of the score grid")


@given(
    st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=25),
)
def test_rows_above_the_exact_median_are_counted_by_comparison(scores):
    sex = ["F"] * len(scores)
    found = exact(scores, sex).counts.decided[..., 1].sum()
    ordered = sorted(scores)
    assert found == sum(s > ordered[(len(scores) - 1) // 2] for s in scores)


def test_the_same_on_scores_from_300_to_850():
    grid, rng = ScoreGrid(300, 850), np.random.default_rng(0)
    scores = rng.choice(grid.edges, 501).tolist()
    sex = rng.choice(["F", "M"], 501).tolist()
    counts = scored(scores, sex, grid=grid)
    of_grid, of_rows = Selections.above_edge(counts), exact(scores, sex)
    np.testing.assert_array_equal(of_grid.counts.decided, of_rows.counts.decided)


@pytest.mark.parametrize("seed", range(8))
def test_scoring_rates_of_all_rows_are_within_the_bounds(seed):
    """Silos withhold small entries, which also moves the median."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 200))
    sex = rng.choice(["F", "M", "?"], n, p=[0.3, 0.6, 0.1])
    whole = AuditCounts.from_rows(
        rng.integers(0, 2, n),
        rng.integers(0, 2, n),
        sensitive_features={"sex": sex, "race": rng.choice(["B", "W"], n, p=[0.1, 0.9])},
        clients=rng.choice(["a", "b", "c"], n),
        scores=(rng.random(n) ** 2).round(2),
    )
    told = whole.suppress(10)
    assert told.withheld.sum() > 0
    for table, truth in zip(bias_tables(told, BOTH), bias_tables(whole, BOTH), strict=True):
        assert table.withheld == told.withheld.sum()
        for row, true in zip(table.rows, truth.rows, strict=True):
            for found, value in ((row.rate, true.rate), (row.impact_ratio, true.impact_ratio)):
                if value.value is not None:
                    low, high = found.bounds
                    assert low - 1e-12 <= value.value <= high + 1e-12, (table.title, row.category)


def test_without_rows_or_scores_there_is_no_median():
    assert Selections.above_edge(counts_of(PEOPLE)) is None
    everything_hidden = scored([0.2], ["F"]).suppress(10)
    assert Selections.above_edge(everything_hidden) is None
