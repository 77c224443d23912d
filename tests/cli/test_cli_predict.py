"""`mfairfl predict`: the file, and the run's own numbers found again in it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from mfairfl.data import Task, partition, read_table
from mfairfl.runs.record import RunRecord
from records import as_running


@pytest.fixture
def run(cli, csv, flags, tmp_path):
    assert cli("train", "--csv", csv, *flags, "--seed", "4", "--out", "run").code == 0
    return json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))


def test_test_rows_have_the_recorded_accuracy(cli, run, csv, people, tmp_path):
    answer = cli("predict", "run", "--csv", csv, "--out", "p.csv")
    assert answer.code == 0, answer.err
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["row", "score", "decision", "favourable"]
    assert found["row"].tolist() == list(range(240))
    assert found["score"].between(0, 1).all()
    assert (found["decision"] == np.where(found["favourable"] == 1, "yes", "no")).all()
    task = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")
    rows = partition(read_table(csv, task), "column", seed=4).pooled("test").rows
    right = (found["decision"] == people["Hired"]).to_numpy()[rows]
    assert right.mean() == run["metrics"]["test"]["accuracy"]
    assert 0 < right.mean() < 1


def test_a_labelled_file_is_measured(cli, run, csv, people, tmp_path):
    answer = cli("predict", "run", "--csv", csv, "--out", "p.csv", "--json")
    found = json.loads(answer.out)
    decided = pd.read_csv(tmp_path / "p.csv")["decision"]
    assert found["rows"] == found["measured_rows"] == 240
    assert found["favourable"] == (decided == "yes").sum()
    assert found["metrics"]["accuracy"] == (decided == people["Hired"]).mean()
    overall = (decided == "yes").mean()
    rates = (decided == "yes").groupby(people["Gender"]).mean()
    assert found["metrics"]["demographic_parity_violation"] == pytest.approx(
        (rates - overall).abs().max(), abs=1e-12
    )
    spread = (decided == people["Hired"]).groupby(people["Site"]).mean()
    assert found["metrics"]["client_accuracy_gap"] == pytest.approx(
        spread.max() - spread.min(), abs=1e-12
    )


def test_rows_without_label_or_group_are_scored(cli, run, people, tmp_path):
    people.drop(columns=["Hired", "Site"]).to_csv(tmp_path / "new.csv", index=False)
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "p.csv")
    assert answer.code == 0
    assert answer.out.startswith("p.csv: 240 rows, ")
    assert len(answer.out.splitlines()) == 1


def test_unlabelled_rows_are_left_out_of_the_measurement(cli, run, people, tmp_path):
    people.loc[:99, "Hired"] = None
    people.drop(columns="Site").to_csv(tmp_path / "half.csv", index=False)
    found = json.loads(cli("predict", "run", "--csv", "half.csv", "--out", "p.csv", "--json").out)
    decided = pd.read_csv(tmp_path / "p.csv")["decision"]
    assert (found["rows"], found["measured_rows"]) == (240, 140)
    assert found["metrics"]["accuracy"] == (decided == people["Hired"])[100:].mean()


def test_a_strange_label_is_said_and_scores_are_kept(cli, run, people, tmp_path):
    people.loc[5, "Hired"] = "perhaps"
    people.to_csv(tmp_path / "odd.csv", index=False)
    answer = cli("predict", "run", "--csv", "odd.csv", "--out", "p.csv")
    assert answer.code == 0
    assert answer.err == (
        "warning: scores are written but not measured: odd.csv: column 'Hired' holds 'perhaps', "
        "neither 'yes' nor 'no'\n"
    )
    assert len(pd.read_csv(tmp_path / "p.csv")) == 240


def test_nothing_is_overwritten_unless_forced(cli, run, csv, tmp_path):
    (tmp_path / "p.csv").write_text("mine", encoding="utf-8")
    answer = cli("predict", "run", "--csv", csv, "--out", "p.csv")
    assert answer.code == 2
    assert answer.err == (
        "error: p.csv: exists; choose another --out, or add --force to replace it\n"
    )
    assert (tmp_path / "p.csv").read_text(encoding="utf-8") == "mine"
    assert cli("predict", "run", "--csv", csv, "--out", "p.csv", "--force").code == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == 240


def test_a_mixture_scores_the_chance_of_its_decision(cli, csv, flags, tmp_path):
    trained = cli(
        *("train", "--csv", csv, *flags, "--rounds", "8", "--output-rule", "mixture"),
        *("--tolerance", "0.02", "--seed", "4", "--strategy", "fedavg", "--out", "mix"),
    )
    assert trained.code == 0
    run = json.loads((tmp_path / "mix" / "run.json").read_text(encoding="utf-8"))
    assert run["served"]["kind"] == "mixture"
    answer = cli("predict", "mix", "--csv", csv, "--out", "p.csv")
    assert "decisions were drawn at random with seed 0" in answer.out
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["favourable"][found["score"] > 1 - 1e-9].eq(1).all()
    assert found["favourable"][found["score"] < 1e-9].eq(0).all()
    people = pd.read_csv(csv, sep=";")
    task = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")
    rows = partition(read_table(csv, task), "column", seed=4).pooled("test").rows
    y = (people["Hired"] == "yes").to_numpy()
    expected = np.where(y, found["score"], 1 - found["score"])[rows].mean()
    assert run["metrics"]["test"]["accuracy"] == pytest.approx(expected, abs=1e-12)


def test_no_kept_cell_is_a_formula(cli, run, people, tmp_path):
    names = ["=cmd|'/c calc'!A1", "+x", "-5", "plain"]
    rows = people.assign(note=[names[i % 4] for i in range(len(people))])
    rows.to_csv(tmp_path / "new.csv", index=False)
    kept = ("--keep", "note")
    assert cli("predict", "run", "--csv", "new.csv", "--out", "p.csv", *kept).code == 0
    found = pd.read_csv(tmp_path / "p.csv", dtype=str)["note"]
    assert found[:4].tolist() == ["'=cmd|'/c calc'!A1", "'+x", "-5", "plain"]
    assert cli("predict", "run", "--csv", "new.csv", "--out", "p.parquet", *kept).code == 0
    assert pd.read_parquet(tmp_path / "p.parquet")["note"][:4].tolist() == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "--csv", "people.csv", "--out", "p.csv"), "nowhere/run.json: not found"),
        (("run", "--csv", "peple.csv", "--out", "p.csv"), "did you mean 'people.csv'?"),
        (("run", "--csv", "people.csv", "--out", "run"), "run: is a folder"),
        (("run", "--csv", "people.csv", "--out", "no/p.csv"), "no/p.csv: there is no folder no"),
        (("run", "--csv", "few.csv", "--out", "p.csv"), "few.csv lacks the column 'Score'"),
        (
            ("run", "--csv", "text.csv", "--out", "p.csv"),
            "text.csv, line 4, column 'Score': 'low'",
        ),
    ],
)
def test_bad_input_is_one_line(cli, run, people, tmp_path, arguments, message):
    people.drop(columns="Score").to_csv(tmp_path / "few.csv", index=False)
    people.astype({"Score": object}).assign(Score=["1", "2", "low"] + ["3"] * 237).to_csv(
        tmp_path / "text.csv", index=False
    )
    answer = cli("predict", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.usefixtures("run")
def test_an_unfinished_run_is_refused(cli, csv, tmp_path):
    as_running(RunRecord.read(tmp_path / "run")).write(tmp_path / "run")
    answer = cli("predict", "run", "--csv", csv, "--out", "p.csv")
    assert answer.code == 2
    assert "the run is not finished" in answer.err
