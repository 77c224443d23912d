"""Bad input: one line on stderr, exit code 2, nothing lost, nothing half written."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

FLAGS = (
    *("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender", "--client", "Site"),
    *("--rounds", "2", "--local-epochs", "1", "--hidden", "4", "--out", "r"),
)


def refused(answer, *parts):
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1, answer.err
    for part in parts:
        assert part in answer.err


def one_member(frame):
    frame.loc[4, "Gender"] = "x"


def column(name, value):
    def change(frame):
        frame[name] = value

    return change


def cell(row, name, value):
    def change(frame):
        frame[name] = frame[name].astype(object)
        frame.loc[row, name] = value

    return change


def same(frame):
    """Leave the file as it is; the flags are wrong."""


@pytest.mark.parametrize(
    ("change", "flags", "parts"),
    [
        (same, ("--label", "Hird"), ["people.csv", "'Hird'", "did you mean 'Hired'?"]),
        (same, ("--label", "Job"), ["label column 'Job' never holds", "'clerk', 'cook', 'smith'"]),
        (
            same,
            ("--label", "Job", "--favourable", "cook"),
            ["label column 'Job' has 3 distinct values", "--others-unfavourable"],
        ),
        (column("Hired", "yes"), (), ["label column 'Hired' holds only 'yes'", "both values"]),
        (same, ("--favourable", "ja"), ["never holds the favourable value 'ja'", "'no', 'yes'"]),
        (column("Gender", "f"), (), ["sensitive column 'Gender' is constant"]),
        (one_member, (), ["group 'x' has one member"]),
        (
            cell(6, "Hired", None),
            ("--set", "task.missing=error"),
            ["line 8, column 'Hired': value missing"],
        ),
        (
            cell(6, "Gender", None),
            ("--set", "task.missing=error"),
            ["line 8, column 'Gender': value missing"],
        ),
        (
            same,
            ("--set", 'task.numeric=["Job"]'),
            ["line 2, column 'Job': '", "is not a number", "correct it"],
        ),
        (same, ("--heterogeneity", "iid", "--clients", "500"), ["with no rows", "lower clients"]),
        (same, ("--clients", "7"), ["clients=7", "names 3"]),
        (same, ("--strategy", "fedvag"), ["unknown strategy 'fedvag'", "did you mean 'fedavg'?"]),
        (same, ("--notion", "equalised_odds"), ["did you mean 'equalized_odds'?"]),
        (same, ("--set", "training.rouns=3"), ["did you mean 'training.rounds'?"]),
        (same, ("--verdict-tolerance", "0.1"), ["--verdict-tolerance: it is tolerance"]),
        (same, ("--set", "fairness.alpha=0.1"), ["fairness.alpha: ", "fairness.dead_zone"]),
        (same, ("--set", "masked=true"), ["masked: version 0.8 has no masks", "remove it"]),
        (same, ("--set", "strategy.weihgts=size"), ["'weihgts'", "did you mean 'weights'?"]),
        (same, ("--heterogeneity", "iidd"), ["unknown scheme 'iidd'", "did you mean 'iid'?"]),
        (
            same,
            ("--heterogeneity", "dirichlet", "--alpha", "0.1"),
            ["--alpha: ", "fairness.dead_zone", "dirichlet is concentration"],
        ),
        (same, ("--concentration", "0.1"), ["scheme 'column'", "'concentration'", "remove it"]),
        (
            same,
            ("--heterogeneity", "iid", "--concentration", "0.1"),
            ["option of scheme 'iid'", "'concentration'"],
        ),
        (
            same,
            ("--heterogeneity", "dirichlet", "--concentration", "-1"),
            ["concentration=-1: give a number above 0"],
        ),
        (same, ("--rounds", "-1"), ["training.rounds", "(got -1)"]),
        (same, ("--lr", "x"), ["training.lr", "valid number", "(got 'x')"]),
        (same, ("--seed", "1.5"), ["seed", "valid integer", "(got 1.5)"]),
        (same, ("--lr", "0"), ["training.lr", "greater than 0"]),
        (same, ("--hidden", "4,x"), ["model.hidden", "valid integer", "(got 'x')"]),
        (same, ("--output-rule", "best"), ["output.rule", "'best'"]),
        (same, ("--rouns", "3"), ["--rouns", "--rounds"]),
        (same, ("--set", "data.delimiter=,"), ["one column", "semicolon seems right"]),
        (same, ("--data", "adult"), ["either data.name or data.csv, not both"]),
    ],
)
def test_wrong_data_or_flags(cli, people, tmp_path, change, flags, parts):
    change(people)
    people.to_csv(tmp_path / "people.csv", sep=";", index=False)
    refused(cli("train", "--csv", "people.csv", *FLAGS, *flags), *parts)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["people.csv is empty"]),
        (b"Score;Gender;Site;Hired\n", ["people.csv has a header but no rows"]),
        (b"Score;Gender;Gender;Hired\n1;f;f;yes\n", ["column name 'Gender' occurs twice"]),
        (b"Score;Gender;Site;Hired\n1;f;yes\n", ["line 2: 3 fields where the header has 4"]),
        (b"PK\x03\x04rest", ["people.csv is damaged (File is not a zip file)"]),
    ],
)
def test_broken_files(cli, tmp_path, content, parts):
    (tmp_path / "people.csv").write_bytes(content)
    refused(cli("train", "--csv", "people.csv", *FLAGS), *parts)


def test_missing_file_names_its_neighbour(cli, csv):
    refused(
        cli("train", "--csv", "poeple.csv", *FLAGS), "poeple.csv", "did you mean 'people.csv'?"
    )


def test_no_data_at_all(cli):
    refused(cli("train"), "no data", "mfairfl data list")


def test_other_encodings(cli, people, tmp_path):
    people["Job"] = people["Job"].replace({"cook": "Köchin"})
    people.to_csv(tmp_path / "people.csv", sep=";", index=False, encoding="cp1252")
    told = ("--set", "data.encoding=utf-8")
    refused(cli("train", "--csv", "people.csv", *FLAGS, *told), "is not utf-8", "cp1252")
    answer = cli("train", "--csv", "people.csv", *FLAGS)
    assert answer.code == 0
    assert "read as cp1252, a guess" in answer.err.splitlines()[0]
    record = json.loads((tmp_path / "r" / "run.json").read_text(encoding="utf-8"))
    assert any("read as cp1252, a guess" in note for note in record["federation"]["notes"])


def test_a_client_of_one_class_and_one_without_a_group_train_with_a_warning(cli, people, tmp_path):
    people.loc[people["Site"] == "west", "Hired"] = "yes"
    people.loc[people["Site"] == "south", "Gender"] = "f"
    people.to_csv(tmp_path / "people.csv", index=False)
    answer = cli("train", "--csv", "people.csv", *FLAGS)
    assert answer.code == 0
    record = json.loads((tmp_path / "r" / "run.json").read_text(encoding="utf-8"))
    for note in ("west: every train label is favourable", "south: no train row of Gender d, m"):
        assert note in record["federation"]["warnings"]
        assert f"warning: {note}" in answer.out.splitlines()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("seed = 1\n[data]\nname = adult\n", ["my.toml", "line 3"]),
        ("[trainng]\nrounds = 1\n", ["my.toml", "did you mean 'training'?"]),
        (
            '[data]\nname = "adult"\n[training]\nlr = "fast"\n',
            ["my.toml", "training.lr", "'fast'"],
        ),
        ('[data]\ncsv = "a.csv"\n', ["my.toml", "data.csv needs a [task]"]),
    ],
)
@pytest.mark.parametrize("verb", ["train", "doctor"])
def test_wrong_settings(cli, tmp_path, verb, text, parts):
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    answer = cli(verb, "my.toml")
    assert answer.code == 2
    refused(answer._replace(out=""), *parts)


def test_no_settings_file(cli):
    refused(cli("train", "my.toml"), "my.toml: no such file", "mfairfl init")


def test_a_folder_with_another_run_is_left_alone(cli, csv, tmp_path):
    assert cli("train", "--csv", csv, *FLAGS).code == 0
    before = (tmp_path / "r" / "run.json").read_bytes()
    refused(
        cli("train", "--csv", csv, *FLAGS, "--rounds", "3"),
        "r: holds another run",
        "training.rounds is 2 there and 3 here",
    )
    assert (tmp_path / "r" / "run.json").read_bytes() == before


def test_a_strangers_folder_is_left_alone(cli, csv, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.txt").write_text("all of it", encoding="utf-8")
    refused(cli("train", "--csv", csv, *FLAGS), "r: is not empty", "thesis.txt", "--out")
    assert (tmp_path / "r" / "thesis.txt").read_text(encoding="utf-8") == "all of it"


def test_a_file_for_a_folder(cli, csv, tmp_path):
    (tmp_path / "r").write_text("mine", encoding="utf-8")
    refused(cli("train", "--csv", csv, *FLAGS), "r: ", "choose", "--out")
    assert (tmp_path / "r").read_text(encoding="utf-8") == "mine"


def test_changed_bytes_of_a_published_file(cli, tmp_path):
    (tmp_path / "bank-full.csv").write_bytes(b'"age";"y"\n30;"no"\n')
    refused(
        cli("train", "--data", "bank", "--set", "data.path=bank-full.csv", "--out", "r"),
        "bank-full.csv",
        "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
    )


def test_full_or_read_only_disk_gives_one_line(cli, csv, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "r/run.json")

    monkeypatch.setattr("mfairfl.runs.directory.write_atomically", full)
    answer = cli("train", "--csv", csv, *FLAGS)
    refused(answer, "r/run.json: No space left on device")


def test_a_bug_keeps_its_traceback(cli, csv, monkeypatch):
    monkeypatch.setattr(
        "mfairfl.runs.execute.run_requests", lambda *_, **__: np.array([1, 2]) @ "x"
    )
    with pytest.raises(TypeError):
        cli("train", "--csv", csv, *FLAGS)


@pytest.mark.slow
def test_through_the_shell_there_is_no_traceback(tmp_path):
    (tmp_path / "people.csv").write_text("a;b\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mfairfl", "train", "--csv", "people.csv", *FLAGS],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: people.csv has a header but no rows\n"
