"""`mfairfl init` and the way from a stranger's file to scores."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pandas as pd
import pytest

from mfairfl.runs.config import Config

GIVEN = ("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender,Age")


def test_from_a_file_to_scores(cli, csv, tmp_path):
    made = cli("init", "--csv", csv, *GIVEN, "--client", "Site", "--out", "my.toml")
    assert (made.code, made.err) == (0, "")
    checked = cli("doctor", "my.toml")
    assert checked.code == 0, checked.err
    trained = cli("train", "my.toml", "--rounds", "2", "--hidden", "4", "--out", "run")
    assert trained.code == 0, trained.err
    scored = cli("predict", "run", "--csv", csv, "--out", "scores.csv", "--json")
    assert scored.code == 0, scored.err
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 240
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    by_group = record["metrics"]["train"]["by_group"]
    assert list(by_group["Gender"]) == ["d", "f", "m"]
    assert len(by_group["Age"]) == 3
    assert list(record["metrics"]["test"]["by_client"]) == ["north", "south", "west"]


def test_roles_delimiter_and_thirds(cli, csv, people, tmp_path):
    cli("init", "--csv", csv, *GIVEN, "--client", "Site", "--out", "my.toml")
    found = tomllib.loads((tmp_path / "my.toml").read_text(encoding="utf-8"))
    assert found["data"] == {"csv": "people.csv", "delimiter": ";"}
    task = found["task"]
    assert (task["numeric"], task["categorical"]) == (["Score", "Age"], ["Job", "Gender"])
    assert (task["label"], task["favourable"], task["unfavourable"]) == ("Hired", "yes", "no")
    gender, age = task["sensitive"]
    assert gender == {"column": "Gender"}
    ages = np.sort(people["Age"])
    first, second = ages[79], ages[159]  # the 80th and the 160th of 240
    assert age["bins"][0]["max"] == first
    assert age["bins"][1]["min"] == ages[ages > first][0]
    assert age["bins"][1]["max"] == second
    assert age["bins"][2]["min"] == ages[ages > second][0]


def test_every_key_is_explained(cli, csv, tmp_path):
    cli("init", "--csv", csv, *GIVEN, "--out", "my.toml")
    text = (tmp_path / "my.toml").read_text(encoding="utf-8")
    lines = text.splitlines()
    for name, field in Config.model_fields.items():
        keys = getattr(field.annotation, "model_fields", {})
        for key in keys if name not in ("data", "clients") else ():
            line = next(x for x in lines if x.removeprefix("# ").startswith(f"{key} = "))
            assert "  # " in line
    found = tomllib.loads(text)
    assert found["clients"] == {"scheme": "iid", "count": 5, "test": 0.2, "validation": 0.0}
    assert set(found) == {*Config.model_fields}


def test_the_file_is_relative_to_the_settings(cli, csv, tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    assert cli("init", "--csv", csv, *GIVEN, "--out", "deep/er/my.toml").code == 0
    found = tomllib.loads((tmp_path / "deep/er/my.toml").read_text(encoding="utf-8"))
    assert found["data"]["csv"] == "../../people.csv"
    assert cli("doctor", "deep/er/my.toml").code == 0


def test_a_guessed_encoding_is_written_down(cli, people, tmp_path):
    people["Job"] = people["Job"].replace({"cook": "Küchenhilfe"})
    people.to_csv(tmp_path / "old.csv", index=False, encoding="cp1252")
    assert cli("init", "--csv", "old.csv", *GIVEN).code == 0
    found = tomllib.loads((tmp_path / "old.toml").read_text(encoding="utf-8"))
    assert found["data"] == {"csv": "old.csv", "delimiter": ",", "encoding": "cp1252"}
    checked = cli("doctor", "old.toml")
    assert (checked.code, checked.err) == (0, "")


def test_gaps_in_key_columns_and_names_of_rows(cli, people, tmp_path):
    people.loc[[3, 5], "Gender"] = None
    people["Name"] = [f"person {i}" for i in range(240)]
    people.to_csv(tmp_path / "gaps.csv", index=False)
    made = cli("init", "--csv", "gaps.csv", *GIVEN)
    assert made.code == 0
    said = "note: gaps.csv: sensitive column 'Gender': not recorded in 2 of 240 rows"
    assert said in made.out.splitlines()
    task = tomllib.loads((tmp_path / "gaps.toml").read_text(encoding="utf-8"))["task"]
    assert (task["missing"], task["ignore"]) == ("level", ["Name"])
    assert cli("doctor", "gaps.toml").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--label is missing (column to predict), for example one of: Hired"),
        (("--label", "Hired"), "--favourable is missing (desirable value of Hired), for example "
         "one of: yes, no"),
        (GIVEN[:4], "--sensitive is missing (sensitive columns, separated by commas), for "
         "example one of: Age, Gender"),
        (("--label", "Hird"), "unknown column 'Hird': did you mean 'Hired'?"),
        ((*GIVEN[:2], "--favourable", "oui", *GIVEN[4:]), "never holds the favourable value"),
        ((*GIVEN[:4], "--sensitive", "Gendre"), "unknown column 'Gendre': did you mean 'Gender'?"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(cli, csv, tmp_path, arguments, message):
    answer = cli("init", "--csv", csv, *arguments, "--out", "my.toml")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert not (tmp_path / "my.toml").exists()


def test_nothing_is_overwritten(cli, csv, tmp_path):
    (tmp_path / "my.toml").write_text("# mine", encoding="utf-8")
    answer = cli("init", "--csv", csv, *GIVEN, "--out", "my.toml")
    assert answer.code == 2
    assert answer.err == "error: my.toml: exists; choose another --out, or delete it first\n"
    assert (tmp_path / "my.toml").read_text(encoding="utf-8") == "# mine"


def test_on_a_terminal_it_asks(cli, csv, tmp_path, monkeypatch):
    asked = []

    def answer(question, default):
        asked.append((question, default))
        return default

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", answer)
    assert cli("init", "--csv", csv, "--out", "my.toml").code == 0
    assert [default for _, default in asked] == ["Hired", "yes", "Age", "Site"]
    asked.clear()
    assert cli("init", "--csv", csv, *GIVEN, "--out", "told.toml").code == 0
    assert asked == []  # everything needed was said
    task = tomllib.loads((tmp_path / "my.toml").read_text(encoding="utf-8"))["task"]
    assert (task["label"], task["favourable"], task["client"]) == ("Hired", "yes", "Site")


def test_a_folder_without_a_name_is_refused_like_any_other(cli):
    answer = cli("init", "--csv", ".", *GIVEN)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: . is a folder: it is empty; give a file with a table\n"
