"""Train, then predict the test rows: the record's own numbers, for models of every kind."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from mfairfl.data import Task, partition, read_table
from mfairfl.strategies import available

SEEDED = ("--seed", "4", "--rounds", "4", "--weight-decay", "0.1")
TASK = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")
KINDS = {
    "ensemble": ("--strategy", "indfair"),
    "personal": ("--strategy", "ditto"),
    "fixed": ("--strategy", "fedavg-threshold", "--tolerance", "1"),
    "random": ("--strategy", "fedavg-threshold", "--notion", "eo"),
}


@pytest.fixture
def trained(cli, csv, flags, tmp_path):
    """Train a kind of model into the folder `run`; return what was printed and the record."""

    def go(kind):
        answer = cli("train", "--csv", csv, *flags, *SEEDED, *KINDS[kind], "--out", "run")
        assert answer.code == 0, answer.err
        return answer, json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))

    return go


@pytest.fixture
def test_file(csv, people, tmp_path):
    """The test rows of the run, as a file of their own."""
    rows = partition(read_table(csv, TASK), "column", seed=4).pooled("test").rows
    path = tmp_path / "test.csv"
    people.iloc[rows].to_csv(path, index=False)
    return path


def flat(metrics):
    """Every number of a record's metrics under its path, but losses: `predict` has none."""
    found = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": number for inner, number in flat(value).items()}
        elif "loss" not in key:
            found[key] = value
    return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_predicting_the_test_rows_finds_the_recorded_metrics(cli, trained, test_file, kind):
    _, run = trained(kind)
    answer = cli("predict", "run", "--csv", test_file, "--out", "p.csv", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert (
        found["rows"]
        == found["measured_rows"]
        == sum(c["n"] for c in run["metrics"]["test"]["by_client"].values())
    )
    ours, theirs = flat(found["metrics"]), flat(run["metrics"]["test"])
    assert len(ours) > 40
    if kind == "random":
        assert ours.keys() == theirs.keys()
        numbers = [key for key, value in theirs.items() if isinstance(value, float)]
        assert {k: ours[k] for k in numbers} == pytest.approx(
            {k: theirs[k] for k in numbers}, abs=1e-12
        )
        assert all(ours[key] == theirs[key] for key in theirs.keys() - {*numbers})
    else:
        assert ours == theirs


def test_own_models_answer_by_column_or_by_name(cli, trained, csv, people, tmp_path):
    trained("personal")
    assert cli("predict", "run", "--csv", csv, "--out", "by-column.csv").code == 0
    people.drop(columns=["Site", "Hired"]).to_csv(tmp_path / "bare.csv", index=False)
    by_column = pd.read_csv(tmp_path / "by-column.csv")
    for site in ("north", "south", "west"):
        answer = cli("predict", "run", "--csv", "bare.csv", "--client", site, "--out", site)
        assert answer.code == 0, answer.err
        here = people["Site"] == site
        by_name = pd.read_csv(tmp_path / site)
        pd.testing.assert_frame_equal(by_name[here], by_column[here])
        assert not by_name[~here].equals(by_column[~here])


@pytest.mark.parametrize(
    ("kind", "dropped", "extra", "message"),
    [
        (
            "personal",
            "Site",
            (),
            "new.csv: each client has a model of its own: add the column 'Site', or give client= "
            "(--client), one of: north, south, west",
        ),
        ("personal", "Hired", ("--client", "wets"), "unknown client 'wets': did you mean 'west'?"),
        (
            "ensemble",
            "Hired",
            ("--client", "west"),
            "client 'west': this run serves all clients alike; leave client= (--client) out",
        ),
        ("fixed", "Gender", (), "new.csv lacks the column 'Gender': add it"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    cli, trained, people, tmp_path, kind, dropped, extra, message
):
    trained(kind)
    people.drop(columns=dropped).to_csv(tmp_path / "new.csv", index=False)
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "p.csv", *extra)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {message}")
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ensemble", "3 clients' own models, averaged, at NAME (rule select)"),
        ("personal", "a model of its own for each of 3 clients, at round 4 (rule last)"),
        ("fixed", "round 4, with a threshold for each group (rule threshold)"),
    ],
)
def test_the_result_says_who_answers(trained, kind, said):
    answer, run = trained(kind)
    said = said.replace("NAME", run["served"]["names"][0])
    assert f"served model: {said}" in answer.out.splitlines()


def test_random_decisions_are_said(cli, trained, test_file):
    trained("random")
    answer = cli("predict", "run", "--csv", test_file, "--out", "p.csv")
    assert "decisions were drawn at random with seed 0" in answer.out


def test_a_rule_that_does_not_fit_leaves_no_folder(cli, csv, flags, tmp_path):
    answer = cli(
        *("train", "--csv", csv, *flags, "--strategy", "ditto", "--output-rule", "select"),
        *("--out", "run"),
    )
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "output.rule = 'select' does not fit" in answer.err
    assert not (tmp_path / "run").exists()


def test_every_strategy_is_listed(cli):
    listed = json.loads(cli("strategies", "--json").out)
    assert [one["name"] for one in listed] == available()
    design = (
        "fedavg fedavg-f fedavg-threshold indfair cenfair fedfb fpfl fairfed qffl drfl ditto "
        "fedmgda+ mfairfl mfairfl-paper mfairfl-rnd mfairfl-rev afl term fedprox scaffold fedfv "
        "constant"
    )
    assert {one["name"] for one in listed} >= {*design.split()}
    shown = {line.split()[0]: line for line in cli("strategies").out.splitlines() if line.strip()}
    assert {*design.split()} <= shown.keys()
    # Pooling shows the server more than any update could.
    assert shown["cenfair"].split()[-1] == "rows"


def test_the_doctor_says_that_scores_are_counted(cli, csv, task_flags, tmp_path):
    init = ("init", "--csv", csv, *task_flags, "--out", "t.toml")
    assert cli(*init).code == 0
    plain = cli("doctor", "t.toml").out
    text = (tmp_path / "t.toml").read_text(encoding="utf-8")
    assert 'name = "mfairfl"' in text
    (tmp_path / "t.toml").write_text(
        text.replace('name = "mfairfl"', 'name = "fedavg-threshold"'), encoding="utf-8"
    )
    assert "histogram of the scores" not in plain
    assert "histogram of the scores" in cli("doctor", "t.toml").out
