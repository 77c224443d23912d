"""The document of an audit: fairlearn's numbers, a run's numbers, verdicts, what is not known."""

from __future__ import annotations

import json
from datetime import date

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

import mfairfl
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import Interval, MetricTable, verdict
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.report.audit_document import build_audit
from mfairfl.report.audit_settings import AuditSettings
from mfairfl.report.document import NOTICE, Document

SEX = Attribute("sex", ("F", "M"))


def values(document):
    return {one.name: one for one in document.overall}


def section(document, attribute):
    return next(one for one in document.sections if one.attribute == attribute)


def people(rng, n=400):
    sex, race = rng.choice(["F", "M"], n), rng.choice(["A", "B", "C"], n, p=[0.5, 0.3, 0.2])
    score = np.clip(0.4 + 0.1 * (sex == "M") + rng.normal(0, 0.2, n), 0.01, 0.99)
    label = (score + rng.normal(0, 0.2, n) > 0.5).astype(int)
    return pd.DataFrame(
        {"sex": sex, "race": race, "score": score, "y": label, "d": (score > 0.5).astype(int)}
    )


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(30, 120))
@settings(max_examples=10)
def test_differences_and_ratios_are_fairlearns(seed, n):
    """One attribute and two crossed, to 1e-12; labels of all rows."""
    rows = people(np.random.default_rng(seed), n)
    for features in (["sex"], ["sex", "race"]):
        found = values(mfairfl.audit(rows, label="y", prediction="d", sensitive=features))
        given_ = {"sensitive_features": rows[features]}
        pairs = {
            "demographic_parity_difference": fl.demographic_parity_difference,
            "demographic_parity_ratio": fl.demographic_parity_ratio,
            "equalized_odds_difference": fl.equalized_odds_difference,
            "equalized_odds_ratio": fl.equalized_odds_ratio,
            "equal_opportunity_difference": fl.equal_opportunity_difference,
            "equal_opportunity_ratio": fl.equal_opportunity_ratio,
        }
        for name, theirs in pairs.items():
            ours = found[name].value
            if ours is not None:  # a group without such rows: fairlearn would say 0
                assert ours == pytest.approx(theirs(rows.y, rows.d, **given_), abs=1e-12), name
        groups = [rows[feature].unique() for feature in features]
        all_present = len(rows[features].drop_duplicates()) == np.prod([len(g) for g in groups])
        assert (found["demographic_parity_difference"].value is not None) == all_present


def test_label_free_numbers_are_of_all_rows_and_fairlearns():
    rows = people(np.random.default_rng(1))
    known = rows.assign(y=rows.y.where(np.arange(len(rows)) % 3 > 0).astype(object))
    found = values(mfairfl.audit(known, label="y", prediction="d", sensitive="sex"))
    expected = fl.demographic_parity_difference(rows.y, rows.d, sensitive_features=rows.sex)
    assert found["demographic_parity_difference"].value == pytest.approx(expected, abs=1e-12)
    kept = rows[np.arange(len(rows)) % 3 > 0]
    of_known = fl.equalized_odds_difference(kept.y, kept.d, sensitive_features=kept.sex)
    assert found["equalized_odds_difference"].value == pytest.approx(of_known, abs=1e-12)
    group = section(mfairfl.audit(known, label="y", prediction="d", sensitive="sex"), "sex")
    women = group.groups[0]
    assert women.rows == (rows.sex == "F").sum()
    assert women.numbers["labelled_rows"].value == (kept.sex == "F").sum()


def test_the_numbers_are_those_of_a_run():
    """Every number, interval, floor and reason that a run would record of the same rows."""
    rows = people(np.random.default_rng(2))
    site = np.random.default_rng(3).choice(["a", "b"], len(rows))
    document = mfairfl.audit(
        rows.assign(site=site), label="y", prediction="d", score="score", sensitive="sex",
        client="site",
    )  # fmt: skip
    run = MetricTable.from_predictions(
        rows.y,
        rows.d,
        sensitive_features={"sex": rows.sex},
        clients=site,
        probabilities=rows.score,
    )
    found = values(document)
    assert found == run.overall
    assert document.constant_classifier == run.constant_classifier
    for group in section(document, "sex").groups:
        assert group == run.by_group["sex"][group.name]
    assert document.clients == run.clients


def test_scores_by_group_are_scikit_learns():
    rows = people(np.random.default_rng(4), 2000).round({"score": 2})
    document = mfairfl.audit(rows, label="y", prediction="d", score="score", sensitive="sex")
    found, women = values(document), rows[rows.sex == "F"]
    assert found["roc_auc"].value == pytest.approx(roc_auc_score(rows.y, rows.score), abs=2e-3)
    assert found["loss"].value == pytest.approx(log_loss(rows.y, rows.score), abs=1e-12)
    own = section(document, "sex").groups[0].numbers
    assert own["loss"].value == pytest.approx(log_loss(women.y, women.score), abs=1e-12)
    edges = np.minimum((women.score * 15).astype(int), 14)
    gaps = (women.score - women.y).groupby(edges).sum().abs().sum() / len(women)
    assert own["expected_calibration_error"].value == pytest.approx(gaps, abs=1e-12)


# ------------------------------------------------------------------ verdicts


def decided(selected_f, selected_m, n=1000, **options):
    """Audit n women and n men of whom so many are selected."""
    sex = ["F"] * n + ["M"] * n
    d = [1] * selected_f + [0] * (n - selected_f) + [1] * selected_m + [0] * (n - selected_m)
    return mfairfl.audit(y_pred=d, sensitive_features={"sex": sex}, **options)


@pytest.mark.parametrize(
    ("women", "men", "n", "outcome"),
    [
        (500, 500, 1000, "met"),  # violation 0, interval up to about .03
        (300, 700, 1000, "not met"),  # violation .2
        (5, 7, 10, "too few rows to tell"),
    ],
)
def test_verdicts(women, men, n, outcome):
    document = decided(women, men, n, tolerance=0.05)
    (judgement,) = document.headline.judgements
    assert judgement.outcome == outcome
    assert judgement.outcome == verdict(Interval(*judgement.measure.interval), 0.05)
    assert judgement.measure.value == pytest.approx(abs(women - men) / (2 * n))
    said = {
        "met": "is met for",
        "not met": "is not met for",
        "too few rows to tell": "cannot be told",
    }
    assert said[outcome] in document.headline.verdict


def test_no_tolerance_no_verdict():
    (judgement,) = decided(500, 500).headline.judgements
    assert judgement.outcome == "no verdict"
    assert "no tolerance was set" in judgement.sentence


def test_several_notions_are_judged_each():
    rows = people(np.random.default_rng(5))
    document = mfairfl.audit(
        rows, label="y", prediction="d", sensitive="sex", notions=["dp", "eo"], tolerance=0.9
    )
    assert [one.measure.name for one in document.headline.judgements] == [
        "demographic_parity_violation", "equalized_odds_violation",
    ]  # fmt: skip
    assert {one.outcome for one in document.headline.judgements} == {"met"}


def test_a_pass_that_unknown_rows_could_flip_says_so():
    """500 of 1,000 each; 300 people of unknown sex, all selected, could all be men."""
    sex = ["F"] * 1000 + ["M"] * 1000 + [None] * 300
    d = ([1, 0] * 1000) + [1] * 300
    document = mfairfl.audit(y_pred=d, sensitive_features={"sex": sex}, tolerance=0.05)
    (judgement,) = document.headline.judgements
    assert judgement.outcome == "met"
    low, high = judgement.measure.bounds
    assert low == 0.0
    assert high > 0.05
    assert (
        "Depending on rows of which something is not known, it lies anywhere from"
        in judgement.sentence
    )
    assert "the sex of 300" in document.headline.unknown
    assert document.rows.unknown_group == {"sex": 300}


def test_one_group_is_no_good_news():
    document = mfairfl.audit(y_pred=[1, 0, 1], sensitive_features=["F"] * 3, tolerance=0.05)
    assert document.headline.judgements[0].outcome == "no verdict"
    assert any("only one group" in line for line in document.headline.warnings)


def test_one_of_two_attributes_with_one_group_is_only_warned_of():
    features = {"sex": ["F"] * 400, "race": ["A", "B"] * 200}
    document = mfairfl.audit(y_pred=[1, 1, 0, 0] * 100, sensitive_features=features, tolerance=0.2)
    assert document.headline.judgements[0].outcome == "met"
    assert "'sex' has only one group" in document.headline.warnings[0]


def test_deciding_alike_for_everyone_is_no_good_news():
    document = decided(1000, 1000, tolerance=0.05)
    assert document.headline.judgements[0].outcome == "met"
    assert "almost everyone gets the same decision" in document.headline.judgements[0].caution
    assert any("gets the same decision" in line for line in document.headline.warnings)


def test_decisions_by_chance_are_warned_of():
    rng = np.random.default_rng(0)
    rows = {"y_true": rng.integers(0, 2, 500), "y_pred": rng.integers(0, 2, 500)}
    document = mfairfl.audit(**rows, sensitive_features=rng.choice(["F", "M"], 500))
    assert any("better than random guessing" in line for line in document.headline.warnings)


def test_small_groups_are_warned_of():
    document = mfairfl.audit(y_pred=[1, 0] * 30, sensitive_features=["F"] * 50 + ["M"] * 10)
    assert any("'M' (10)" in line for line in document.headline.warnings)


# ------------------------------------------------------------------ labels


def test_without_labels_only_what_needs_none():
    document = decided(10, 20, 30)
    assert {one.name for one in document.overall} == {
        "selection_rate", "demographic_parity_violation", "demographic_parity_difference",
        "demographic_parity_ratio",
    }  # fmt: skip
    assert document.constant_classifier == {}
    assert document.rows.labelled == 0
    names = {name for one in document.sections for group in one.groups for name in group.numbers}
    assert names == {"selection_rate"}


def test_a_notion_that_needs_labels_needs_labels():
    with pytest.raises(ConfigError, match="'equalized_odds' needs labels"):
        decided(1, 2, 3, notions="eo")
    counts = AuditCounts.from_rows(None, [1, 0], sensitive_features=["F", "M"])
    document = build_audit(counts, AuditSettings(notions=("eo",), tolerance=0.1))
    assert document.headline.judgements[0].outcome == "too few rows to tell"
    assert document.headline.judgements[0].measure.undefined == "no row has a known label"


@pytest.mark.parametrize(
    "notions", [("ap-loss",), ("no-such",), ()], ids=["losses", "unknown", "none"]
)
def test_notions_that_cannot_be_audited_are_refused(notions):
    with pytest.raises(ConfigError, match="notion"):
        decided(1, 2, 3, notions=notions)


# ------------------------------------------------------------------ what is withheld


def test_everything_withheld_is_still_a_document():
    counts = AuditCounts.from_rows([1, 0], [1, 0], sensitive_features=["F", "M"]).suppress(10)
    document = build_audit(counts, AuditSettings(tolerance=0.1))
    assert document.rows.counted == 0
    assert document.rows.withheld == {"all": 9}
    assert document.headline.judgements[0].outcome == "too few rows to tell"
    assert "up to 9 rows" in document.headline.unknown


def test_pooled_counts_of_silos_are_the_audit_of_all_rows():
    rows = people(np.random.default_rng(6), 3000)
    site = np.random.default_rng(7).choice(["a", "b", "c"], len(rows))
    attributes = (SEX, Attribute("race", ("A", "B", "C")))

    def count(part):
        kept = rows[part]
        return AuditCounts.from_rows(
            kept.y, kept.d, sensitive_features=kept[["sex", "race"]], clients=site[part],
            scores=kept.score.round(2), attributes=attributes,
        )  # fmt: skip

    silos = [count(site == name).suppress(10) for name in "abc"]
    told, settings_ = silos[0] + silos[1] + silos[2], AuditSettings(sex="sex", race="race")
    assert not told.hidden.any()
    over, whole = build_audit(told, settings_), build_audit(count(site != ""), settings_)
    dropped = {"overall", "sections", "clients"}  # sums of floats are compared apart
    assert over.model_dump(exclude=dropped) == whole.model_dump(exclude=dropped)
    for one, other in zip(over.overall, whole.overall, strict=True):
        assert (one.name, one.interval, one.bounds) == (other.name, other.interval, other.bounds)
        assert one.value == pytest.approx(other.value, abs=1e-12)


# ------------------------------------------------------------------ the file


def test_the_document_survives_its_file(tmp_path):
    rows = people(np.random.default_rng(8))
    document = mfairfl.audit(
        rows, label="y", prediction="d", score="score", sensitive="race", sex="sex", race="race"
    )
    document.write(tmp_path / "audit")
    assert Document.read(tmp_path / "audit") == document
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["kind"] == "audit"


def test_an_audit_of_the_first_schema_version_is_read(tmp_path):
    document = decided(10, 20, 30, tolerance=0.05, notions=["dp"])
    plain = json.loads(document.to_json())
    new = {"level", "goal", "split", "compared", "baseline", "changes", "training", "data"}
    new |= {"group_use", "server", "withheld", "provenance"}
    first = {key: value for key, value in plain.items() if key not in new}
    del first["headline"]["cost"]
    (tmp_path / "audit.json").write_text(json.dumps(first | {"schema_version": 1}))
    assert Document.read(tmp_path) == document


def test_facts_that_were_not_given_are_not_stated():
    facts = decided(1, 2, 3).settings.facts
    assert facts.audit_date == date.today().isoformat()
    assert {facts.tool, facts.data_source, facts.data_kind, facts.distribution_date} == {
        "not stated"
    }
    stated = decided(1, 2, 3, facts={"tool": "ranker", "audit_date": "2026-05-01"})
    assert stated.headline.title == "Audit of ranker"
    assert stated.settings.facts.audit_date == "2026-05-01"
    with pytest.raises(ConfigError, match=r"data_kind.*historical"):
        decided(1, 2, 3, facts={"data_kind": "old"})


def test_the_notice_is_there():
    document = decided(1, 2, 3)
    assert document.notice == NOTICE
    assert "not an independent bias audit" in document.notice
    assert "not legal advice" in str(document)


def test_every_number_is_defined():
    rows = people(np.random.default_rng(9))
    document = mfairfl.audit(
        rows, label="y", prediction="d", score="score", sensitive=["sex", "race"], sex="sex"
    )
    defined = {one.name: one.meaning for one in document.definitions}
    used = {one.name for one in document.overall} | {"impact_ratio", "scoring_rate"}
    assert used <= set(defined)
    assert not [name for name, meaning in defined.items() if "Not described" in meaning]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "record"}, "not an audit"),
        ({"schema_version": 3}, "schema_version is 3; this version reads 1 and 2"),
        ({"rows": {}}, "rows.counted: Field required; the file was altered"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path, change, message):
    document = json.loads(decided(1, 2, 3).to_json()) | change
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match=message) as error:
        Document.read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"client": "nobody"}, "client 'nobody'"),
        ({"refused": -1}, "greater than or equal to 0"),
        ({"label": 2}, "label"),
        ({"hidden": True}, "withheld"),
        ({"groups": ["X"]}, "unknown"),
    ],
)
def test_counts_in_a_file_are_validated(tmp_path, row, message):
    document = json.loads(decided(1, 2, 3).to_json())
    document["counts"]["rows"][0] |= row
    (tmp_path / "audit.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=message):
        Document.read(tmp_path)


def test_no_file_and_no_json_are_refused(tmp_path):
    with pytest.raises(DataError, match="not found"):
        Document.read(tmp_path)
    (tmp_path / "audit.json").write_text("{")
    with pytest.raises(DataError, match="not readable JSON"):
        Document.read(tmp_path)
