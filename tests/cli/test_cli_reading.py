"""Files whose cells need judgement, through `init`, `doctor`, `train` and `predict`."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pandas as pd
import pytest

QUICK = ("--rounds", "1", "--local-epochs", "1", "--hidden", "4")
ROLES = ("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender", "--client", "Site")


@pytest.fixture
def prepare(cli, tmp_path):
    """Write a file, let `init` look at it, return what it said and the task it wrote."""

    def call(frame, *flags):
        frame.to_csv(tmp_path / "people.csv", index=False)
        made = cli("init", "--csv", "people.csv", *(flags or ROLES))
        assert made.code == 0, made.err
        written = (tmp_path / "people.toml").read_text(encoding="utf-8")
        return made.out, tomllib.loads(written)["task"]

    return call


@pytest.fixture
def trained(cli, tmp_path):
    """Train with the file that `init` wrote and return run.json."""

    def call():
        answer = cli("train", "people.toml", *QUICK, "--out", "run")
        assert answer.code == 0, answer.err
        return answer.out, json.loads((tmp_path / "run" / "run.json").read_text())

    return call


def test_two_missing_clients_cost_two_rows(cli, people, prepare, trained):
    people.loc[[3, 5], "Site"] = None
    people.loc[people.index[:150], "Job"] = None  # a column with many gaps costs none
    said, task = prepare(people)
    assert task["missing"] == "level"
    assert "note: people.csv: 2 of 240 rows left out, missing values (Site 2)" in said
    _, record = trained()
    assert record["data"]["rows"] == 238


def test_many_lost_rows_are_the_first_thing_that_is_said(cli, people, prepare, trained):
    lost = people.index[(people["Hired"] == "no")][:60]
    people["Site"] = people["Site"].astype(object)
    people.loc[lost, "Site"] = None
    before = (people["Hired"] == "yes").mean()
    after = (people["Hired"].drop(lost) == "yes").mean()
    said, _ = prepare(people)
    assert said.startswith(
        "warning: people.csv: 60 of 240 rows left out, missing values (Site 60)"
    )
    assert f"Hired = yes in {before:.1%} of the rows before, {after:.1%} now" in said
    f = (people["Gender"] == "f").sum()
    assert f"f {(people.loc[lost, 'Gender'] == 'f').sum()} of {f}" in said
    doctor = cli("doctor", "people.toml").out
    assert "people.csv: 60 of 240 rows left out" in doctor
    result, record = trained()
    assert "warning: people.csv: 60 of 240 rows left out" in result
    assert record["federation"]["warnings"][0].startswith("people.csv: 60 of 240 rows left out")


def test_the_only_strong_feature_survives_its_notation(cli, people, prepare, trained, tmp_path):
    plain = people.copy()
    plain["Score"] = (plain["Score"] * 10_000 + 50_000).round(2)
    people["Score"] = [f"${x:,.2f}" for x in plain["Score"]]
    people.loc[3, "Score"], people.loc[7, "Score"] = "inf", "n/k"
    plain.loc[[3, 7], "Score"] = np.nan
    said, task = prepare(people)
    assert "Score" in task["numeric"]
    assert task["columns"]["Score"] == {"thousands": ",", "missing_codes": ["inf", "n/k"]}
    assert "238 of 240 values are numbers; line 5 holds 'inf', line 9 holds 'n/k'" in said
    trained()
    # The same rows, written plainly: the same scores.
    plain.to_csv(tmp_path / "plain.csv", index=False)
    for name in ("people", "plain"):
        assert cli("predict", "run", "--csv", f"{name}.csv", "--out", f"{name}.out.csv").code == 0
    scores = [pd.read_csv(tmp_path / f"{name}.out.csv") for name in ("people", "plain")]
    pd.testing.assert_frame_equal(*scores)


def test_dates_are_numbers_by_the_stated_rule(people, prepare):
    people["Since"] = pd.date_range("2020-01-01", periods=len(people)).strftime("%d.%m.%Y")
    said, task = prepare(people)
    assert "Since" in task["numeric"]
    assert task["columns"]["Since"] == {"date": "%d.%m.%Y"}
    assert "column 'Since': '01.01.2020' is read as 18262" in said


def test_a_missing_group_is_not_recorded(cli, people, prepare, trained):
    people.loc[people.index[:20], "Gender"] = None
    said, _ = prepare(people)
    assert "sensitive column 'Gender': not recorded in 20 of 240 rows" in said
    _, record = trained()
    assert record["task"]["sensitive"][0]["groups"] == ["d", "f", "m", "?"]
    compared = record["metrics"]["test"]["by_group"]["Gender"]
    assert set(compared) == {"d", "f", "m"}
    tested = sum(client["test"] for client in record["federation"]["clients"])
    assert sum(group["n"] for group in compared.values()) < tested


def test_others_unfavourable(cli, people, prepare, trained):
    people["Grade"] = [str(i % 5) for i in range(len(people))]
    flags = ("--label", "Grade", "--favourable", "0", "--sensitive", "Gender")
    people.drop(columns="Hired").to_csv("people.csv", index=False)
    refused = cli("init", "--csv", "people.csv", *flags)
    assert refused.code == 2
    assert "--others-unfavourable" in refused.err
    _, task = prepare(people.drop(columns="Hired"), *flags, "--others-unfavourable")
    assert task["others_unfavourable"] is True
    _, record = trained()
    rows = record["federation"]["clients"]
    assert sum(client["favourable"] for client in rows) == len(people) // 5


def test_labels_are_told_apart_only_where_they_differ(cli, people, prepare, trained):
    people["Hired"] = [["True", "true", "1"][i % 3] if y == "yes" else ["False", "0"][i % 2]
                       for i, y in enumerate(people["Hired"])]  # fmt: skip
    said, _ = prepare(people)
    assert "means 'yes' (case and spelling aside)" in said
    trained()


def test_one_label_value_is_refused_by_every_command(cli, people, prepare, tmp_path):
    prepare(people)
    people["Hired"] = "no"
    people.to_csv(tmp_path / "people.csv", index=False)
    for command in (("doctor", "people.toml"), ("train", "people.toml", *QUICK, "--out", "run")):
        answer = cli(*command)
        assert answer.code == 2
        assert "every train row holds 'no': a model needs rows with both values" in answer.err
