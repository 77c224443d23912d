"""What `init`, `doctor` and `train` say of files like well-known ones, and only that."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import user_files
from mfairfl.data import files
from user_files import (
    ATTRITION,
    CENSUS,
    COURSES,
    CREDIT,
    GERMAN,
    HEART,
    STUDENTS,
    TITANIC,
    flags,
    plain_toml,
)

QUICK = ("--rounds", "1", "--local-epochs", "1", "--hidden", "4")


@pytest.fixture
def made(cli, tmp_path):
    """Write a file, let `init` look at it; return what it says and writes."""

    def call(frame, roles):
        frame.to_csv(tmp_path / "rows.csv", index=False)
        answer = cli("init", "--csv", "rows.csv", *flags(roles), "--json")
        assert (answer.code, answer.err) == (0, "")
        said = json.loads(answer.out)
        written = tomllib.loads((tmp_path / "rows.toml").read_text(encoding="utf-8"))
        assert said["task"]["ignore"] == written["task"]["ignore"]
        return said, written["task"]

    return call


@pytest.fixture
def findings(cli):
    """Return what `doctor` finds: level, check and the first words of what is not in order."""

    def call(file="rows.toml"):
        answer = cli("doctor", file, "--json")
        assert (answer.code, answer.err) == (0, "")
        return short(json.loads(answer.out)["findings"])

    return call


def short(found):
    """Leave out what every small file has: notes of reading, small and unequal groups, ..."""
    others = ("data", "groups", "base rates", "clients", "noise floor")
    kept = [f for f in found if f["level"] != "ok" and f["check"] not in others]
    return [(f["level"], f["check"], f["message"].split(" (")[0].split(": ")[0]) for f in kept]


HOSPITALS = [
    ("warn", "silos", "1 client has fewer than 30 rows"),
    ("warn", "silos", "column 'chol' is always 0 at zurich"),
    ("warn", "silos", "column 'chol' is about 241.5 at most clients, but not at basel"),
    ("warn", "silos", "column 'thal' has no value at budapest"),
    ("warn", "missing codes", "column 'slope'"),
]
CODES = [("note", "codes", "whole numbers that may be codes of categories")]
UNKNOWN = [("note", "missing codes", "categories that may mean missing")]


@pytest.mark.parametrize(
    ("make", "roles", "ignored", "of_init", "of_doctor"),
    [
        (user_files.heart, HEART, [], HOSPITALS, HOSPITALS),
        (
            user_files.attrition,
            ATTRITION,
            ["EmployeeCount", "EmployeeNumber", "StandardHours", "Over18"],
            [],
            [],
        ),
        (user_files.titanic, TITANIC, ["PassengerId", "Name", "Ticket", "Cabin"], [], []),
        (
            user_files.students,
            STUDENTS,
            [],
            [("warn", "leakage", "2 columns predict the label alone")],
            [("warn", "leakage", "2 columns predict the label alone")],
        ),
        (user_files.credit, CREDIT, ["ID"], CODES, CODES),
        (
            user_files.courses,
            COURSES,
            ["id_student"],
            UNKNOWN,
            [("warn", "copied rows", "39 of 120 test rows"), *UNKNOWN],
        ),
        (user_files.census, CENSUS, [], CODES, CODES),
        (user_files.german, GERMAN, ["phone"], UNKNOWN, UNKNOWN),
    ],
)
def test_what_is_found_and_ignored(made, findings, make, roles, ignored, of_init, of_doctor):
    said, task = made(make(), roles)
    assert task["ignore"] == ignored
    assert [f"column '{name}' is ignored" for name in ignored] == [
        note.split(":")[0] for note in said["notes"] if "is ignored" in note
    ]
    assert short(said["findings"]) == of_init
    assert findings() == of_doctor
    roles_of = {column["name"]: column["role"] for column in said["columns"]}
    assert {name for name, role in roles_of.items() if role == "ignored"} == set(ignored)


def test_without_init_the_same_columns_are_warned_of(cli, tmp_path, findings):
    user_files.attrition().to_csv(tmp_path / "rows.csv", index=False)
    settings = plain_toml("rows.csv", ATTRITION)
    (tmp_path / "plain.toml").write_text(settings, encoding="utf-8")
    assert findings("plain.toml") == [
        ("warn", "identifiers", "column 'EmployeeNumber' names rows"),
        ("note", "constants", "3 columns never change"),
    ]
    answer = cli("train", "plain.toml", *QUICK, "--out", "run")
    assert answer.code == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    line = "column 'EmployeeNumber' names rows (400 different whole numbers in 400 rows)"
    assert record["federation"]["warnings"][0] == f"{line}: list it in ignore"
    assert f"warning: {line}: list it in ignore" in " ".join(answer.out.split())
    assert any(n.startswith("3 columns never change") for n in record["federation"]["notes"])


def test_identifiers_get_no_other_finding(cli, tmp_path):
    user_files.titanic().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "plain.toml").write_text(plain_toml("rows.csv", TITANIC), encoding="utf-8")
    warned = [line for line in cli("doctor", "plain.toml").out.splitlines() if line[:4] == "warn"]
    first, *others = warned
    assert first.startswith("warn  identifiers: 4 columns name rows: PassengerId (300 different")
    assert all(line.startswith("warn  groups") for line in others)


def test_train_warns_of_leaks_and_copied_rows(cli, tmp_path):
    for name, roles in (("students", STUDENTS), ("courses", COURSES)):
        getattr(user_files, name)().to_csv(tmp_path / f"{name}.csv", index=False)
        given = ("--csv", f"{name}.csv", *flags(roles))
        answer = cli("train", *given, *QUICK, "--out", name)
        assert answer.code == 0, answer.err
        said = {"students": "predict the label alone: G2 (", "courses": "test rows (32.5%) equal"}
        assert said[name] in " ".join(answer.out.split("measured on")[0].split())


def test_an_offered_line_settles_the_question(cli, made, findings, tmp_path):
    said, _ = made(user_files.heart(), HEART)
    written = (tmp_path / "rows.toml").read_text(encoding="utf-8")
    lines = [f["message"] for f in said["findings"] if "add columns." in f["message"]]
    offered = [line.split("add ")[1].removesuffix(" to [task]") for line in lines]
    assert offered == [
        'columns.chol.missing_codes = ["0"]',
        'columns.slope.missing_codes = ["-9"]',
    ]
    task = "\n".join(["[task]", *offered])
    (tmp_path / "rows.toml").write_text(written.replace("[task]", task, 1), encoding="utf-8")
    assert findings() == [
        HOSPITALS[0],
        ("warn", "silos", "column 'chol' has no value at zurich"),
        *HOSPITALS[2:4],
    ]


def test_columns_moved_back_from_ignore_are_used(cli, made, tmp_path):
    made(user_files.attrition(), ATTRITION)
    written = (tmp_path / "rows.toml").read_text(encoding="utf-8")
    back = written.replace('"EmployeeNumber", ', "", 1).replace(
        "numeric = [", 'numeric = ["EmployeeNumber", ', 1
    )
    assert "EmployeeNumber" in tomllib.loads(back)["task"]["numeric"]
    (tmp_path / "rows.toml").write_text(back, encoding="utf-8")
    answer = cli("doctor", "rows.toml")
    assert answer.out.startswith("warn  identifiers: column 'EmployeeNumber' names rows")


def test_both_show_the_columns_in_80_characters(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    user_files.titanic().to_csv(tmp_path / "rows.csv", index=False)
    init = cli("init", "--csv", "rows.csv", *flags(TITANIC)).out
    doctor = cli("doctor", "rows.toml").out
    for said in (init, doctor):
        lines = said.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("column  "))
        table = [line.rstrip() for line in lines[start : start + 12]]
        assert max(map(len, table)) <= 80
        assert table[0].split() == ["column", "role", "type", "missing", "values", "example"]
        assert table[2].split() == ["PassengerId", "ignored", "number", "0", "1", "to", "300", "1"]
        assert table[5].split()[:4] == ["Name", "ignored", "text", "0"]
        assert table[5].endswith("…")
        assert table[7].split()[:4] == ["Age", "feature", "number", "54"]


def test_long_names_are_never_broken(cli, people, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "a_column_with_a_name_that_is_as_long_as_a_sentence_about_it_would_be"
    people.rename(columns={"Score": name}).to_csv(tmp_path / "rows.csv", index=False)
    roles = {"label": "Hired", "favourable": "yes", "sensitive": "Gender", "client": "Site"}
    answer = cli("init", "--csv", "rows.csv", *flags(roles))
    assert any(line.startswith(f"{name}  feature") for line in answer.out.splitlines())


def test_columns_of_an_unusable_file_are_listed(cli, tmp_path):
    user_files.census().to_csv(tmp_path / "rows.csv", index=False)
    settings = plain_toml("rows.csv", CENSUS | {"label": "edu_level"})
    (tmp_path / "plain.toml").write_text(settings, encoding="utf-8")
    answer = cli("doctor", "plain.toml")
    assert answer.code == 2
    first, *rest = answer.out.splitlines()
    assert first.startswith("fail  input: rows.csv: label column 'edu_level' has 6")
    assert any(line.startswith("household_position  feature") for line in rest)
    assert answer.err == f"error: {first.removeprefix('fail  input: ')}\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("adult", [("warn", "missing codes", "column 'capital-gain'")]),
        ("bank", [("warn", "missing codes", "column 'pdays'"), *UNKNOWN]),
    ],
)
@pytest.mark.parametrize("scheme", ["iid", "high"])
def test_published_data_are_not_warned_of(findings, tmp_path, name, said, scheme):
    """Both warnings are right: 99999 is where gains were cut, -1 is "never called before"."""
    text = f'[data]\nname = "{name}"\n[clients]\nscheme = "{scheme}"\n'
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    assert findings("my.toml") == said


def test_init_and_doctor_read_the_file_once(cli, csv, monkeypatch):
    read, load = [], files.load_contents

    def watched(path):
        read.append(path.name)
        return load(path)

    monkeypatch.setattr(files, "load_contents", watched)
    given = ("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender,Age")
    assert cli("init", "--csv", csv, *given, "--client", "Site", "--out", "my.toml").code == 0
    assert read == ["people.csv"]
    assert cli("doctor", "my.toml").code == 0
    assert read == ["people.csv"] * 2
    broken = Path("my.toml").read_text(encoding="utf-8").replace('"yes"', '"maybe"')
    Path("broken.toml").write_text(broken, encoding="utf-8")
    failed = cli("doctor", "broken.toml")
    assert failed.code == 2
    assert "Score" in failed.out  # what is there helps to correct it
    assert read == ["people.csv"] * 3
