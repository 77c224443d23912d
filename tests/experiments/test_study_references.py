"""Pooled references in a study: asked for, fitted on the same rows, shown, and never tested."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

import federations as fed
import mfairfl
import pooled_by_hand
from mfairfl.errors import ConfigError
from mfairfl.experiments.study import load_study, reference_trials, trials
from mfairfl.experiments.study_results import read_csv
from one_process import in_one_process

REFERENCES = ["boosting", "boosting-threshold", "logistic"]


def given(**changes):
    plain = {
        "data": ["adult"],
        "splits": ["high"],
        "strategies": ["fedavg", "mfairfl"],
        "references": REFERENCES,
        "notions": ["dp", "eo"],
        "protocols": ["10x20", "40x5"],
        "seeds": 2,
    }
    return load_study(plain | changes)


# ------------------------------------------------------------------ the work list


def test_thresholds_are_fitted_for_each_notion_the_others_once(tmp_path):
    work = reference_trials(given())
    first = [(t.strategy, t.notion) for t in work if (t.protocol, t.seed) == ("10x20", 0)]
    assert first == [
        ("boosting", ""),
        ("boosting-threshold", "demographic_parity"),
        ("boosting-threshold", "equalized_odds"),
        ("logistic", ""),
    ]
    # per protocol and seed four, and one folder for both protocols
    assert len(work) == 2 * 2 * 4
    assert len({trial.directory(tmp_path) for trial in work}) == 2 * 4


def test_they_have_the_rows_of_the_methods_and_nothing_of_how_those_train():
    base = {"training": {"lr": 0.1}, "clients": {"test": 0.3}, "output": {"tolerance": 0.02}}
    study = given(base=base)
    rows = {str((t.config.data, t.config.task, t.config.clients)) for t in trials(study)}
    pooled = reference_trials(study)
    assert {str((t.config.data, t.config.task, t.config.clients)) for t in pooled} == rows
    assert {t.config.training.lr for t in pooled} == {0.004}
    assert {t.seed for t in pooled} == {t.config.seed for t in pooled} == {0, 1}
    fair = [t.config for t in pooled if t.notion]
    assert {(config.output_rule(), config.output.tolerance) for config in fair} == {
        ("thresholds", 0.02)
    }


def test_without_references_there_is_nothing_to_fit():
    assert reference_trials(given(references=[])) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"references": ["boostin"]}, "references.0: .*'boosting', 'boosting-threshold' or"),
        ({"references": ["logistic", "logistic"]}, "references: 'logistic' appears twice"),
        ({"strategies": [{"name": "fedavg", "label": "boosting"}]}, "'boosting' appears twice"),
        ({"kind": "curves"}, "references: have no rounds to draw"),
        ({"notions": []}, "boosting-threshold is fitted for a notion"),
        ({"reference": "boosting"}, "reference: unknown strategy 'boosting'"),
    ],
)
def test_mistakes_are_one_line_that_names_the_key(changes, message):
    with pytest.raises(ConfigError, match=rf"^study: .*{message}") as caught:
        given(**changes)
    assert "\n" not in str(caught.value)


def test_no_thresholds_for_losses():
    with pytest.raises(ConfigError, match=r"references on adult: .*not losses; leave it out"):
        reference_trials(given(notions=["accuracy_parity_loss"]))


# ------------------------------------------------------------------ a study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return {
        "title": "Hiring",
        "data": [str(fed.write_people(folder))],
        "strategies": ["fedavg", "constant"],
        "references": REFERENCES,
        "notions": ["dp", "eo"],
        "protocols": ["1x1"],
        "seeds": 2,
    }, folder


@pytest.fixture(scope="module")
def result(study):
    contents, folder = study
    with in_one_process():
        return mfairfl.compare(contents, out=folder / "out")


@pytest.mark.slow
def test_the_row_of_a_reference_is_scikit_learn_s_on_the_same_rows(result):
    runs = result.runs
    task = mfairfl.data.Task(label="hired", favourable="yes", sensitive=("sex",), client="site")
    table = mfairfl.data.table_from_frame(fed.people(), task)
    for seed in (0, 1):
        federation = mfairfl.partition(table, "column", seed=seed)
        train, test = federation.pooled("train"), federation.pooled("test")
        X, texts = table.X.iloc[train.rows], table.task.categorical
        boosted = pooled_by_hand.boosted(X, train.y, texts, seed=seed)
        linear = pooled_by_hand.logistic(X, train.y, table.task.numeric, texts)
        for name, by_hand in (("boosting", boosted), ("logistic", linear)):
            right = (by_hand(table.X.iloc[test.rows]) > 0) == test.y
            own = runs[(runs["strategy"] == name) & (runs["seed"] == seed)]
            assert own["accuracy"].tolist() == pytest.approx([right.mean()] * len(own))
            assert len(own)
            assert own["pooled_reference"].all()
    assert not result.runs.loc[result.runs["strategy"] == "fedavg", "pooled_reference"].any()


@pytest.mark.slow
def test_references_are_not_tested_and_tests_of_methods_are_as_without_them(
    result, study, one_process
):
    contents, folder = study
    other = folder / "other"
    shutil.copytree(folder / "out" / "runs", other / "runs")
    alone = mfairfl.compare(contents | {"references": []}, out=other).table
    table = result.table
    pooled = table[table["strategy"].isin(REFERENCES)]
    assert (pooled["mark"] == "†").all()
    assert (pooled["pairs"] == 0).all()
    assert pooled[["t_p", "wilcoxon_p", "holm_p", "effect", "difference"]].isna().all(axis=None)
    assert (pooled["n"] > 0).all()
    methods = table[~table["strategy"].isin(REFERENCES)].reset_index(drop=True)
    assert methods["t_p"].notna().any()
    pd.testing.assert_frame_equal(methods, alone)


@pytest.mark.slow
def test_every_table_marks_them_and_says_what_they_are(result, study):
    _, folder = study
    note = "† pooled: sees all rows; a reference, not federated"
    written = (folder / "out" / "study.md").read_text(encoding="utf-8")
    shown = {"terminal": str(result), "markdown": written}
    for text in shown.values():
        assert note in text
        for name in REFERENCES:
            assert f"{name} †" in text
    latex = (folder / "out" / "study.tex").read_text(encoding="utf-8")
    captions = [line for line in latex.splitlines() if r"\caption" in line]
    assert len(captions) == 1
    assert all(note.replace("†", r"$\dagger$") in line for line in captions)
    listed = read_csv(folder / "out" / "study.csv")
    assert set(listed.loc[listed["mark"] == "†", "strategy"]) == set(REFERENCES)
    drawn = (folder / "out" / "study-1x1-dp.svg").read_text(encoding="utf-8")
    assert "boosting-threshold †" in drawn
    assert note in drawn


@pytest.mark.slow
def test_a_study_resumes_with_the_same_bytes_and_fits_nothing_twice(result, study, one_process):
    contents, folder = study
    kept = sorted((folder / "out" / "runs").glob("*/reference.json"))
    assert len(kept) == 2 * 4  # two seeds, thresholds for two notions
    before = {path: path.read_bytes() for path in kept}
    tables = {
        path: path.read_bytes() for path in (folder / "out").glob("study*.*") if path.is_file()
    }
    kept[0].unlink()
    mfairfl.compare(contents, out=folder / "out")
    after = json.loads(kept[0].read_bytes())
    assert after | {"seconds": 0} == json.loads(before[kept[0]]) | {"seconds": 0}
    assert {path: path.read_bytes() for path in kept[1:]} == {
        path: before[path] for path in kept[1:]
    }
    assert {path: path.read_bytes() for path in tables} == tables
    made = json.loads((folder / "out" / "made.json").read_text())["study"]
    assert made["references"] == 8
