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
    decides = ("--strategy", "fedavg", "--rounds", "20", "--seed", "4")
    assert cli("train", "--csv", csv, *flags, *decides, "--out", "run").code == 0
    return json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))


def test_test_rows_have_the_recorded_accuracy(cli, run, csv, people, tmp_path):
    answer = cli("predict", "run", "--csv", csv, "--out", "p.csv")
    assert answer.code == 0, answer.err
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["row", "score", "decision", "favourable", "split"]
    assert found["row"].tolist() == list(range(240))
    assert found["score"].between(0, 1).all()
    assert (found["decision"] == np.where(found["favourable"] == 1, "yes", "no")).all()
    task = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")
    rows = partition(read_table(csv, task), "column", seed=4).pooled("test").rows
    right = (found["decision"] == people["Hired"]).to_numpy()[rows]
    assert right.mean() == run["metrics"]["test"]["accuracy"]
    assert 0 < right.mean() < 1
    assert np.flatnonzero(found["split"] == "test").tolist() == sorted(rows)
    assert set(found["split"].drop(rows)) == {"train"}


def test_of_the_training_file_the_test_rows_are_measured(cli, run, csv, tmp_path):
    """First of all the reader is warned; the numbers are those that the run recorded."""
    answer = cli("predict", "run", "--csv", csv, "--out", "p.csv")
    split = pd.read_csv(tmp_path / "p.csv")["split"]
    trained, tested = (split == "train").sum(), (split == "test").sum()
    lines = " ".join(answer.out.split())
    assert lines.startswith(
        f"warning: {csv} is the file that the run was trained on, and {trained} of 240 rows are "
        "train rows, on which a model looks better than on new ones. The numbers below are of the "
        "test rows alone"
    )
    assert f"measured on {tested} test rows (" in lines
    told = json.loads(cli("predict", "run", "--csv", csv, "--out", "q.csv", "--json").out)
    assert (told["rows"], told["measured_rows"], told["measured_split"]) == (240, tested, "test")
    assert f"{trained} of 240 rows are train rows" in told["warnings"][0]
    recorded = {name: number for name, number in run["metrics"]["test"].items() if number}
    assert recorded["accuracy"] != run["metrics"]["train"]["accuracy"]
    assert recorded.keys() > {"accuracy", "demographic_parity_violation", "loss"}
    for name in recorded.keys() - {"by_attribute", "by_client", "by_group", "undefined"}:
        assert told["metrics"][name] == pytest.approx(recorded[name], abs=1e-12), name


def test_the_test_rows_alone(cli, run, csv, tmp_path):
    given = ("--csv", csv, "--keep", "Hired")
    assert cli("predict", "run", *given, "--out", "all.csv").code == 0
    answer = cli("predict", "run", *given, "--out", "test.csv", "--split", "test")
    every, some = pd.read_csv(tmp_path / "all.csv"), pd.read_csv(tmp_path / "test.csv")
    expected = every[every["split"] == "test"].reset_index(drop=True)
    pd.testing.assert_frame_equal(some, expected, rtol=0, atol=1e-6)
    assert "trained on" not in answer.out
    assert f"measured on {len(some)} test rows" in answer.out
    answer = cli("predict", "run", *given, "--out", "train.csv", "--split", "train", "--json")
    told = json.loads(answer.out)
    assert told["measured_split"] == "train"
    assert told["metrics"]["accuracy"] == run["metrics"]["train"]["accuracy"]
    assert "The numbers below are of the train rows alone" in told["warnings"][0]


def test_splits_that_cannot_be_had_are_refused(cli, run, csv, people, tmp_path):
    people.assign(split="A").to_csv(tmp_path / "new.csv", index=False)
    for words, message in {
        ("--csv", csv, "--split", "validation"): "the run has no validation rows",
        ("--csv", "new.csv", "--split", "test"): "new.csv: not the file that the run was trained",
    }.items():
        answer = cli("predict", "run", *words, "--out", "p.csv")
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert message in answer.err
    assert cli("predict", "run", "--csv", "new.csv", "--out", "p.csv", "--keep", "split").code == 0
    assert set(pd.read_csv(tmp_path / "p.csv")["split"]) == {"A"}


def test_a_column_split_of_the_training_file_is_not_mixed_up(cli, people, flags, tmp_path):
    people.assign(split="A").to_csv(tmp_path / "own.csv", index=False)
    assert cli("train", "--csv", "own.csv", *flags, "--out", "run").code == 0
    answer = cli("predict", "run", "--csv", "own.csv", "--out", "p.csv", "--keep", "split")
    assert answer.code == 2
    assert "the column 'split' cannot be kept" in answer.err


def test_file_whose_splits_are_unknown_is_measured_with_a_warning(cli, people, flags, tmp_path):
    """Another sheet of the workbook: the same bytes, other rows."""
    with pd.ExcelWriter(tmp_path / "two.xlsx") as book:
        people.to_excel(book, sheet_name="a", index=False)
        people[::2].to_excel(book, sheet_name="b", index=False)
    assert cli("train", "--csv", "two.xlsx", "--sheet", "a", *flags, "--out", "run").code == 0
    answer = cli("predict", "run", "--csv", "two.xlsx", "--sheet", "b", "--out", "p.csv")
    assert answer.code == 0, answer.err
    warning = "warning: two.xlsx: the run was trained on this file, but on which of its rows"
    assert " ".join(answer.out.split()).startswith(warning)
    assert "split" not in pd.read_csv(tmp_path / "p.csv")


def test_a_labelled_file_is_measured(cli, run, people, tmp_path):
    people.to_csv(tmp_path / "new.csv", index=False)
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "p.csv", "--json")
    found = json.loads(answer.out)
    assert (found["measured_split"], found["warnings"]) == (None, [])
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


def test_unknown_label_gives_a_warning_and_scores_are_written(cli, run, people, tmp_path):
    people.loc[5, "Hired"] = "perhaps"
    people.to_csv(tmp_path / "odd.csv", index=False)
    answer = cli("predict", "run", "--csv", "odd.csv", "--out", "p.csv")
    assert answer.code == 0
    assert answer.err == (
        "warning: scores are written but not measured: odd.csv, line 7, column 'Hired': label "
        "'perhaps' is neither favourable ('yes') nor unfavourable ('no'): correct it\n"
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
