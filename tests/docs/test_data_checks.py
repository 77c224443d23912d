"""The table "What mfairfl looks for": each text is printed for a file that is made for it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import user_files
from mfairfl.cli import main
from user_files import (
    ATTRITION,
    CENSUS,
    COURSES,
    GERMAN,
    HEART,
    STUDENTS,
    TITANIC,
    flags,
    plain_toml,
)

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def rows_of_the_table():
    text = PAGE.read_text(encoding="utf-8").split("## What mfairfl looks for\n")[1]
    section = text.split("\n## ")[0]
    lines = [line for line in section.splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = rows_of_the_table()


def spelled():
    frame = user_files.heart()
    here = frame["site"] == "basel"
    return frame.assign(thal=frame["thal"].where(~here, frame["thal"].str.upper() + " defect"))


def titled():
    frame = user_files.german()
    return frame.assign(title=np.where(frame["sex"] == "female", "Ms", "Mr"))


def many_sites():
    rng = np.random.default_rng(3)
    sites = np.append(
        np.repeat("whole", 120), np.repeat([f"site-{i:03d}" for i in range(300)], 20)
    )
    n = len(sites)
    sex = np.where(np.arange(n) < 120, np.arange(n) % 3, np.arange(n) % 2)
    return pd.DataFrame(
        {
            "score": rng.normal(size=n),
            "sex": np.array(["f", "m", "d"])[sex],
            "site": sites,
            "hired": rng.integers(0, 2, n),
        }
    )


def coarse():
    return user_files.census().sample(2000, replace=True, random_state=1)[
        ["sex", "edu_level", "occupation"]
    ]


def referenced():
    return user_files.attrition().assign(reference=lambda f: 10**8 + 499 * f.index**2)


def remarked():
    return user_files.attrition().assign(remarks=None)


def abroad():
    return user_files.heart().assign(country=lambda f: "in " + f["site"])


SITES = {"label": "hired", "favourable": "1", "sensitive": "sex", "client": "site"}
CASES = [
    ("A number for each row", user_files.attrition, ATTRITION),
    ("A name or a ticket", user_files.titanic, TITANIC),
    ("Whole numbers of six digits", referenced, ATTRITION),
    ("A column that never changes", user_files.attrition, ATTRITION),
    ("A column without any value", remarked, ATTRITION),
    ("A duplicated column", user_files.german, GERMAN),
    ("A sensitive column is kept out", titled, GERMAN),
    ("A column that by itself", user_files.students, STUDENTS),
    ("Duplicated rows", user_files.courses, COURSES),
    ("Rows that coincide", coarse, CENSUS),
    ("Numbers that are codes", user_files.census, CENSUS),
    ("A number that may mean", user_files.heart, HEART),
    ("A text that may mean", user_files.courses, COURSES),
    ("A constant value at one client", user_files.heart, HEART),
    ("Another unit", user_files.heart, HEART),
    ("No value at one client", user_files.heart, HEART),
    ("A client with three rows", user_files.heart, HEART),
    ("Another spelling", spelled, HEART),
    ("A column that names", abroad, HEART),
    ("Groups with different shares", user_files.german, GERMAN),
    ("Many clients without", many_sites, SITES),
]


def test_every_row_has_a_case():
    assert len(ROWS) == len(CASES)
    for row, (start, _, _) in zip(ROWS, CASES, strict=True):
        assert row[0].startswith(start)


def said(printed, cell):
    """Look for each text of a cell; … stands for anything within a line."""
    for text in re.findall(r"`([^`]+)`", cell):
        pattern = re.escape(text).replace("…", ".*")
        assert re.search(pattern, printed), text


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_the_table_quotes_what_is_printed(number, tmp_path, monkeypatch, capsys):
    (_, make, roles), (_, of_init, of_doctor) = CASES[number], ROWS[number]
    monkeypatch.chdir(tmp_path)
    make().to_csv("rows.csv", index=False)
    assert main(["init", "--csv", "rows.csv", *flags(roles)]) == 0
    said(capsys.readouterr().out, of_init)
    # Without what `init` settles: every column that is left is a feature.
    out = "sensitive_as_features = false" if make is titled else ""
    Path("plain.toml").write_text(plain_toml("rows.csv", roles, out), encoding="utf-8")
    assert main(["doctor", "plain.toml"]) == (2 if of_doctor.startswith("`fail") else 0)
    said(capsys.readouterr().out, of_doctor)
