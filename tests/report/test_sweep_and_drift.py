"""Other thresholds, and what changed since an earlier audit, against counting by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

import mfairfl
from mfairfl.errors import ConfigError
from mfairfl.fairness import demographic_parity_ratio, equalized_odds_violation
from mfairfl.fairness.uncertainty import holm, share_change


def scored(rng, n=300):
    sex = rng.choice(["F", "M"], n)
    score = np.clip(rng.random(n) * 0.9 + 0.1 * (sex == "M"), 0, 1)
    return pd.DataFrame({"sex": sex, "s": score, "y": (rng.random(n) < score).astype(int)})


@pytest.mark.parametrize("edge", [0, 37, 50, 100])
def test_a_row_of_the_sweep_is_the_audit_at_that_threshold(edge):
    rows = scored(np.random.default_rng(0))
    document = mfairfl.audit(
        rows, label="y", score="s", threshold=0.5, sensitive="sex", notions=["dp", "eo"]
    )
    row = document.sweep.rows[edge]
    above = (rows.s > edge / 100).astype(int)
    assert row.threshold == edge / 100
    assert row.selection_rate == above.mean()
    assert row.accuracy == (above == rows.y).mean()
    features = {"sensitive_features": rows.sex}
    assert row.measures["equalized_odds_violation"] == pytest.approx(
        equalized_odds_violation(rows.y, above, **features), abs=1e-12
    )
    if above.any():
        assert row.measures["demographic_parity_ratio"] == pytest.approx(
            demographic_parity_ratio(rows.y, above, **features), abs=1e-12
        )
    else:
        assert row.measures["demographic_parity_ratio"] is None
    women = rows.sex == "F"
    assert row.groups["sex"]["F"] == {
        "selection_rate": above[women].mean(),
        "true_positive_rate": above[women & (rows.y == 1)].mean(),
        "false_positive_rate": above[women & (rows.y == 0)].mean(),
    }


def test_the_sweep_has_every_step_and_knows_the_threshold():
    rows = scored(np.random.default_rng(1))
    found = mfairfl.audit(rows, score="s", threshold=0.3, sensitive="sex").sweep
    assert len(found.rows) == 101
    assert found.used == 0.3
    assert set(found.rows[0].groups["sex"]["F"]) == {"selection_rate"}  # no labels
    assert found.rows[0].accuracy is None
    decided = rows.assign(d=1)
    assert mfairfl.audit(decided, prediction="d", score="s", sensitive="sex").sweep.used is None
    assert mfairfl.audit(decided, prediction="d", sensitive="sex").sweep is None


# ------------------------------------------------------------------ drift


def decided(women, men, n=400, **options):
    """Audit n women and n men of whom so many are selected."""
    d = [1] * women + [0] * (n - women) + [1] * men + [0] * (n - men)
    features = options.pop("sensitive_features", {"sex": ["F"] * n + ["M"] * n})
    return mfairfl.audit(y_pred=d, sensitive_features=features, **options)


def changes(document):
    return {(row.attribute, row.whom, row.number): row for row in document.drift.changes}


def test_changes_of_rates_by_hand():
    before = decided(200, 200)
    found = changes(decided(120, 204, baseline=before))
    women = found["sex", "F", "selection_rate"]
    assert (women.before, women.after) == (0.5, 0.3)
    assert women.change == pytest.approx(-0.2)
    assert women.interval == share_change((200, 400), (120, 400))
    tables = [
        ([200, 200], [120, 280]),  # women
        ([200, 200], [204, 196]),  # men
        ([400, 400], [324, 476]),  # everyone
    ]
    p = holm([float(fisher_exact(table).pvalue) for table in tables])
    keys = [("sex", "F"), ("sex", "M"), ("", "")]
    assert [found[(*key, "selection_rate")].p_holm for key in keys] == pytest.approx(p)
    assert [found[(*key, "selection_rate")].beyond_chance for key in keys] == [True, False, True]


def test_changes_of_violations():
    """Equal, then 30 % against 70 %: the violation goes from 0 to .2."""
    before = decided(200, 200)
    after = decided(120, 280, baseline=before)
    row = changes(after)["", "", "demographic_parity_violation"]
    assert (row.before, row.after) == (0.0, pytest.approx(0.2))
    low, high = row.interval
    assert 0.0 < low < 0.2 < high
    assert row.beyond_chance
    ratio = changes(after)["", "", "demographic_parity_ratio"]
    assert (ratio.before, ratio.after) == (1.0, pytest.approx(120 / 280))
    assert (ratio.interval, ratio.beyond_chance) == (None, None)
    assert "changed by more than chance explains" in after.drift.sentence
    assert "demographic_parity_violation" in after.drift.sentence


def test_nothing_changed():
    before = decided(200, 210)
    after = decided(200, 210, baseline=before)
    assert {row.change for row in after.drift.changes} == {0.0}
    assert not any(row.beyond_chance for row in after.drift.changes)
    assert "none changed" in after.drift.sentence


@pytest.mark.slow
def test_chance_alone_is_rarely_called_a_change():
    """Two samples of the same rates, 60 times: 5 % of false alarms for all numbers together."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(60):
        one, other = (rng.binomial(400, [0.3, 0.5]) for _ in range(2))
        after = decided(*other.tolist(), baseline=decided(*one.tolist()))
        alarms += any(row.beyond_chance for row in after.drift.changes)
    assert alarms <= 8  # P(more) < 1 % if each has a chance of 5 %


def test_who_came_and_who_went_is_named():
    n = 400
    before = decided(200, 200, sensitive_features={"sex": ["F"] * n + ["X"] * n})
    after = decided(200, 200, baseline=before)
    assert (after.drift.appeared, after.drift.vanished) == (["sex: M"], ["sex: X"])
    assert ("sex", "M", "selection_rate") not in changes(after)
    assert ("sex", "F", "selection_rate") in changes(after)


def test_the_baseline_may_be_a_folder(tmp_path):
    decided(200, 200).write(tmp_path)
    after = decided(120, 200, baseline=tmp_path)
    assert after.drift.rows_before == 800
    assert after.drift.audit_date == decided(1, 1).settings.facts.audit_date


def test_labels_that_only_one_audit_has_are_not_compared():
    y = [1, 0] * 400
    before = decided(200, 200)
    after = decided(200, 200, y_true=y, baseline=before)
    assert {row.number for row in after.drift.changes} == {
        "selection_rate", "demographic_parity_violation", "demographic_parity_difference",
        "demographic_parity_ratio",
    }  # fmt: skip


def test_clients_are_compared_too():
    clients = ["a", "b"] * 400
    before = decided(200, 200, clients=clients)
    after = decided(120, 200, clients=clients, baseline=before)
    row = changes(after)["", "a", "selection_rate"]
    assert (row.part, row.before, row.after) == ("client", 0.5, 0.4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "z", "favourable": "yes"}, "its label is 'y', here it is 'z'"),
        ({"favourable": "no"}, "its favourable label is 'yes', here it is 'no'"),
        ({"sensitive": "race"}, "about other attributes"),
        ({"selected": "0"}, "its favourable decision is '1', here it is '0'"),
    ],
)
def test_another_meaning_is_refused(options, message):
    rows = pd.DataFrame(
        {
            "y": ["yes", "no"] * 20,
            "d": [1, 0] * 20,
            "sex": ["F", "M"] * 20,
            "race": ["A", "B"] * 20,
        }
    ).assign(z=lambda frame: frame.y)
    said = {"label": "y", "favourable": "yes", "selected": "1", "sensitive": "sex"}
    before = mfairfl.audit(rows, prediction="d", **said)
    with pytest.raises(ConfigError, match=message):
        mfairfl.audit(rows, prediction="d", baseline=before, **(said | options))
