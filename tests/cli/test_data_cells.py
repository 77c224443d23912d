"""What docs/data.md says about cells, line by line, through the commands in order."""

from __future__ import annotations

import json
import tomllib
from shutil import rmtree

import numpy as np
import pandas as pd
import pytest

from hired_people import GIVEN

QUICK = ("--rounds", "1", "--local-epochs", "1", "--hidden", "4")


class User:
    """Someone with a table who goes through the commands in order."""

    def __init__(self, cli, people, folder):
        self.cli, self.people, self.folder = cli, people, folder

    def write(self, **changes):
        self.people.assign(**changes).to_csv(self.folder / "people.csv", index=False)

    def init(self, *flags, **changes):
        """Let `init` look at the changed table; return what it says and the task it writes."""
        self.write(**changes)
        (self.folder / "people.toml").unlink(missing_ok=True)
        made = self.cli("init", "--csv", "people.csv", *(flags or GIVEN))
        assert made.code == 0, made.err
        text = (self.folder / "people.toml").read_text(encoding="utf-8")
        self.task = tomllib.loads(text)["task"]
        return made.out

    def train(self, *settings):
        """Train by the file that `init` wrote; return what is said and run.json."""
        flags = [flag for setting in settings for flag in ("--set", setting)]
        rmtree(self.folder / "run", ignore_errors=True)
        answer = self.cli("train", "people.toml", *QUICK, *flags, "--out", "run")
        assert answer.code == 0, answer.err
        record = json.loads((self.folder / "run" / "run.json").read_text())
        return answer.out, record

    def train_with_code(self, code):
        return self.train(f'task.missing_codes=["{code}"]')

    def scores(self):
        """Return the scores of the table as it is now."""
        flags = ("--csv", "people.csv", "--out", "scores.csv", "--force")
        assert self.cli("predict", "run", *flags).code == 0
        written = pd.read_csv(self.folder / "scores.csv")
        return written.drop(columns="split", errors="ignore")  # of the training file alone

    def inputs(self):
        """Return the names of the model's inputs."""
        encoder = json.loads((self.folder / "run" / "encoder.json").read_text())
        numeric = {c["name"]: c for c in encoder["numeric"]}
        return numeric, {c["name"]: c["levels"] for c in encoder["categorical"]}

    def refused(self, message, *arguments):
        answer = self.cli(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        assert message in answer.err

    def some(self, name, *values):
        """Return a column with its first cells replaced."""
        column = self.people[name].astype(object).copy()
        column.iloc[: len(values)] = values
        return column


@pytest.fixture
def user(cli, people, tmp_path):
    return User(cli, people, tmp_path)


def gaps(u):
    said = u.init(Score=u.some("Score", "", "?"), Job=u.some("Job", None, "?", " "))
    assert "column 'Score': 2 of 240 values missing" in said
    assert "column 'Job': 3 of 240 values missing" in said


def words_for_no_value(u):
    said = u.init(Score=u.some("Score", "NA", "N/A", "NaN", "null", "None"))
    assert "column 'Score': 5 of 240 values missing" in said
    assert "Score" in u.task["numeric"]


def a_word(u):
    u.init(Job=u.some("Job", *["NA"] * 20))
    u.train()
    assert "NA" in u.inputs()[1]["Job"]
    said, _ = u.train_with_code("NA")
    assert "column 'Job': 20 of 240 values missing" in said
    assert u.inputs()[1]["Job"] == ["?", "clerk", "cook", "smith"]


def a_code(u):
    u.init(Age=u.some("Age", *[-9] * 20))
    said, _ = u.train_with_code("-9")
    assert "column 'Age': 20 of 240 values missing" in said
    assert u.inputs()[0]["Age"]["mean"] > u.people["Age"].mean() - 3


def missing_number(u):
    u.init(Score=u.some("Score", *[None] * 40))
    u.train()
    assert u.inputs()[0]["Score"]["indicator"] is True


def missing_category(u):
    u.init(Job=u.some("Job", *[None] * 40))
    u.train()
    assert u.inputs()[1]["Job"] == ["?", "clerk", "cook", "smith"]


def missing_group(u):
    said = u.init(Gender=u.some("Gender", *[None] * 20))
    assert "sensitive column 'Gender': not recorded in 20 of 240 rows" in said
    _, record = u.train()
    assert record["task"]["sensitive"][0]["groups"] == ["d", "f", "m", "?"]
    compared = record["metrics"]["test"]["by_group"]["Gender"]
    assert set(compared) == {"d", "f", "m"}
    tested = sum(client["test"] for client in record["federation"]["clients"])
    assert sum(group["n"] for group in compared.values()) < tested


def missing_keys(u):
    jobs = u.some("Job", *[None] * 150)  # a column with many gaps costs no row
    said = u.init(Site=u.some("Site", None, None), Hired=u.some("Hired", "", " "), Job=jobs)
    assert "2 of 240 rows left out, missing values (Hired 2, Site 2)" in said
    assert u.task["missing"] == "level"
    assert u.train()[1]["data"]["rows"] == 238


def many_lost(u):
    lost = u.people.index[u.people["Hired"] == "no"][:60]
    site = u.people["Site"].astype(object)
    site.loc[lost] = None
    before = (u.people["Hired"] == "yes").mean()
    after = (u.people["Hired"].drop(lost) == "yes").mean()
    said = u.init(Site=site)
    warning = "people.csv: 60 of 240 rows left out, missing values (Site 60)"
    assert said.startswith(f"warning: {warning}")
    assert f"Hired = yes in {before:.1%} of the rows before, {after:.1%} now" in said
    women = u.people["Gender"] == "f"
    assert f"f {women[lost].sum()} of {women.sum()}" in said
    assert warning in u.cli("doctor", "people.toml").out
    result, record = u.train()
    assert result.index("60 of 240 rows left out") < result.index("measured on")
    assert record["federation"]["warnings"][0].startswith(warning)


def dropped(u):
    u.init(Score=u.some("Score", None))
    said, record = u.train("task.columns.Score.missing=drop")
    assert record["data"]["rows"] == 239
    assert "1 of 240 rows left out, missing values (Score 1)" in said


def refused_gaps(u):
    u.init(Score=u.some("Score", "1", None))
    u.refused("line 3, column 'Score': value missing", "train", "people.toml", *QUICK, "--set",
              "task.missing=error", "--out", "run")  # fmt: skip


def empty_column(u):
    u.write(Score=None)
    flags = ("--set", 'task.numeric=["Score","Age"]', *QUICK, "--out", "run")
    u.refused("column 'Score' has no value", "train", "--csv", "people.csv", *GIVEN, *flags)


def notations(u):
    rng = np.random.default_rng(0)
    cents = rng.integers(100_000, 9_000_000, 240)
    written = {
        "50,000.00": [f"{c // 100:,}.{c % 100:02}" for c in cents],
        "1.200,50": [f"{c // 100:,}".replace(",", ".") + f",{c % 100:02}" for c in cents],
        "1 200": [f"{c // 100:,}".replace(",", " ") + f",{c % 100:02}" for c in cents],
        "$1,200": [f"${c // 100:,}.{c % 100:02}" for c in cents],
        "12 %": [f"{c / 100} %" for c in cents],
    }
    u.init(Score=cents / 100)
    u.train()
    plain = u.scores()
    for texts in written.values():
        assert "warning" not in u.init(Score=texts)
        assert "Score" in u.task["numeric"]
        pd.testing.assert_frame_equal(u.scores(), plain)  # the plain run reads the new notation


def thousands_or_decimals(u):
    texts = [f"{i % 7 + 1},{7 * (i % 60):03}" for i in range(240)]
    said = u.init(Score=texts)
    assert "warning: people.csv: column 'Score': '1,000' is read with a comma between" in said
    assert u.task["columns"]["Score"] == {"thousands": ","}
    u.train('task.columns.Score={decimal=","}')
    assert u.inputs()[0]["Score"]["mean"] < 10


def almost_numbers(u):
    said = u.init(Score=u.some("Score", "1", "1", "1", "inf", "n/k"))
    assert said.startswith(
        "warning: people.csv: column 'Score': 238 of 240 values are numbers; line 5 holds 'inf', "
        "line 6 holds 'n/k': read as missing"
    )
    assert u.task["columns"]["Score"] == {"missing_codes": ["inf", "n/k"]}
    u.train()
    assert u.inputs()[0]["Score"]["indicator"] is True


def numbers_and_words(u):
    words = [f"about {i % 5}0" for i in range(60)]
    said = u.init(Age=u.some("Age", *words))
    assert "warning: people.csv, line 2, column 'Age': 'about 00' is not a number" in said
    assert "(60 of 240 values are text)" in said
    assert "Age" in u.task["categorical"]


def leading_zeros(u):
    u.init(Area=[f"{i % 30:03}" for i in range(240)])
    assert "Area" in u.task["categorical"]


def dates(u):
    days = pd.date_range("2020-01-01 12:00", periods=240, freq="D")
    for written, text in (("iso", "%Y-%m-%d %H:%M"), ("%d.%m.%Y", "%d.%m.%Y")):
        said = u.init(Since=days.strftime(text))
        assert u.task["columns"]["Since"] == {"date": written}
        worth = "18262.5" if written == "iso" else "18262"
        assert f"column 'Since': '{days[0]:{text}}' is read as {worth}" in said


def times(u):
    said = u.init(Clock=[f"{i % 24:02}:30" for i in range(240)])
    assert "column 'Clock': '00:30' is read as 0.5" in said


def day_or_month(u):
    said = u.init(Since=[f"{i % 12 + 1:02}/{i % 11 + 1:02}/2024" for i in range(240)])
    assert "set date = '%m/%d/%Y'" in said
    assert u.task["columns"]["Since"] == {"date": "%d/%m/%Y"}


def spellings(u):
    yes, no = ["true", "True", "1", "1.0", "yes"], ["no", "False", "0"]
    hired = [
        yes[i % 5] if said == "yes" else no[i % 3] for i, said in enumerate(u.people["Hired"])
    ]
    assert "means 'yes' (case and spelling aside)" in u.init(Hired=hired)
    rows = u.train()[1]["federation"]["clients"]
    assert sum(client["favourable"] for client in rows) == (u.people["Hired"] == "yes").sum()
    u.init(Hired=np.where(u.people["Hired"] == "yes", "yes", "1"))
    assert (u.task["favourable"], u.task["unfavourable"]) == ("yes", "1")


def another_case(u):
    said = u.init(Hired=u.people["Hired"].str.upper())
    assert "label column 'Hired': 'YES' means 'yes' (case and spelling aside)" in said


def many_labels(u):
    grades = [str(i % 5) for i in range(240)]
    flags = ("--label", "Grade", "--favourable", "0", "--sensitive", "Gender")
    u.write(Grade=grades)
    u.refused("--others-unfavourable", "init", "--csv", "people.csv", *flags, "--out", "x.toml")
    u.init(*flags, "--others-unfavourable", Grade=grades)
    assert u.task["others_unfavourable"] is True
    rows = u.train()[1]["federation"]["clients"]
    assert sum(client["favourable"] for client in rows) == 48


def one_label(u):
    u.init()
    u.write(Hired="no")
    why = "every train row holds 'no': a model needs rows with both values"
    u.refused(why, "train", "people.toml", *QUICK, "--out", "run")
    assert why in u.cli("doctor", "people.toml").err
    u.refused("holds only 'no'", "init", "--csv", "people.csv", *GIVEN, "--out", "x.toml")


CELLS = {
    "an empty cell, or `?`": gaps,
    "`NA`, `N/A`, `NaN`, `null` or `None` among numbers": words_for_no_value,
    "`NA` among words": a_word,
    "`-9`, `999` or another code for a missing value": a_code,
    "a missing number": missing_number,
    "a missing category": missing_category,
    "a missing sensitive value": missing_group,
    "a missing label or client": missing_keys,
    "more than 5 % of the rows left out, or another base rate": many_lost,
    '`missing = "drop"` for a column': dropped,
    '`missing = "error"`': refused_gaps,
    "a column without any value": empty_column,
    "numbers such as `50,000.00`, `1.200,50`, `1 200`, `$1,200` or `12 %`": notations,
    "`1,234`, and nothing tells whether 1.234 is meant": thousands_or_decimals,
    "numbers, but for a few cells": almost_numbers,
    "numbers and many words": numbers_and_words,
    "numbers with leading zeros, such as `007`": leading_zeros,
    "dates": dates,
    "times of day": times,
    "`05/06/2024`, and nothing tells day from month": day_or_month,
    "labels `true`, `True`, `1`, `1.0` and `yes`": spellings,
    "a favourable value in another case": another_case,
    "labels of more than two values": many_labels,
    "labels of one value": one_label,
}


@pytest.mark.parametrize("line", CELLS)
def test_cells(user, line):
    CELLS[line](user)
