"""The catalogue and the methods, against the facts of the published files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from census_records import edition
from mfairfl.data import DATASETS
from mfairfl.runs.manifest import manifest
from mfairfl.strategies import available, describe


def test_list_names_the_data_sets(cli):
    answer = cli("data", "list")
    assert answer.code == 0
    for text in (
        "adult",
        "48,842",
        "bank",
        "45,211",
        "compas",
        "7,214",
        "german",
        "1,000",
        "acs-income",
    ):
        assert text in answer.out


def test_list_as_json(cli):
    found = {one["name"]: one for one in json.loads(cli("data", "list", "--json").out)}
    assert found["adult"]["rows"] == 48_842
    assert found["bank"]["bundled"] is True
    assert found["compas"]["bundled"] is False


def test_describe_counts_the_bank_file(cli):
    answer = cli("data", "describe", "bank")
    assert answer.code == 0
    assert "45,211 rows" in answer.out
    assert "5,289 rows (11.7%)" in answer.out  # 5289 / 45211
    facts = json.loads(cli("data", "describe", "bank", "--json").out)
    assert facts["attributes"]["age"]["other"]["rows"] == 1997


@pytest.fixture
def incomes(tmp_path):
    """A reduced table of two states."""
    path = tmp_path / "incomes.parquet"
    edition().to_parquet(path)
    return path


def test_describe_takes_a_path_and_options(cli, incomes):
    frame = edition()
    answer = cli("data", "describe", "acs-income", "--path", incomes, "--set", "states=WY")
    assert answer.code == 0, answer.err
    assert f"{(frame['STATE'] == 'WY').sum()} rows" in answer.out
    assert "options: year = 2018, states = WY\n" in answer.out
    assert "source: read from incomes.parquet, a local file, sha256 " in answer.out
    assert "licence: public domain" in answer.out
    facts = json.loads(cli("data", "describe", "acs-income", "--path", incomes, "--json").out)
    assert facts["rows"] == len(frame)
    assert facts["attributes"]["sex"]["Female"]["rows"] == (frame["SEX"] == 2).sum()


def test_train_takes_a_path_and_options_of_the_data(cli, incomes):
    answer = cli(
        *("train", "--data", "acs-income", "--strategy", "fedavg"),
        *("--set", f"data.path={incomes}", "--set", "data.options.states=WY,VT"),
        *("--rounds", "1", "--local-epochs", "1", "--hidden", "4", "--json"),
    )
    assert answer.code == 0, answer.err
    record = json.loads(answer.out)
    assert [client["name"] for client in record["federation"]["clients"]] == ["VT", "WY"]
    assert record["config"]["data"]["options"] == {"states": ["WY", "VT"]}
    assert Path("runs/acs-income-fedavg-column-s0/run.json").exists()


def test_fetch_says_which_file_it_asks_for(cli, tmp_path, monkeypatch):
    nowhere = "http://127.0.0.1:9/{year}/csv_p{state}.zip"
    entry = DATASETS.get("acs-income").model_copy(update={"address": nowhere})
    monkeypatch.setattr(DATASETS, "get", lambda name: entry)
    monkeypatch.setenv("MFAIRFL_DATA_HOME", str(tmp_path / "cache"))
    answer = cli("data", "fetch", "acs-income", "--set", "states=WY")
    assert (answer.code, answer.out) == (2, "")
    asked, refused = answer.err.splitlines()
    assert asked == "acs-income: fetching http://127.0.0.1:9/2018/csv_pwy.zip"
    assert refused.startswith("error: acs-income: cannot get http://127.0.0.1:9/2018/csv_pwy.zip")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("states=WX", "option states: unknown state 'WX': did you mean 'WY'?"),
        ("year=2013", "option year=2013: give a year from 2014"),
        ("year=soon", "option year='soon' of data set acs-income: give a whole number"),
        ("county=3", "unknown option of data set acs-income 'county'"),
        ("states", "--set states: write key=value"),
    ],
)
def test_wrong_options_are_one_line(cli, setting, message):
    answer = cli("data", "fetch", "acs-income", "--set", setting)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {message}")
    assert answer.err.count("\n") == 1


def test_verify_reports_that_no_state_was_fetched(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("MFAIRFL_DATA_HOME", str(tmp_path / "cache"))
    answer = cli("data", "verify", "acs-income")
    assert answer.code == 2
    assert "not on this machine: run `mfairfl data fetch acs-income`" in answer.err


def test_fetch_of_a_bundled_set_says_so(cli):
    answer = cli("data", "fetch", "bank")
    assert answer.code == 0
    assert answer.out.startswith("bank: 45,211 rows, read from the bundled files")
    assert json.loads(cli("data", "fetch", "bank", "--json").out)["rows"] == 45_211


def test_verify_finds_the_official_sums(cli):
    answer = cli("data", "verify", "bank")
    assert answer.code == 0
    assert answer.out == (
        "ok    bank-full.csv  sha256 "
        "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d\n"
    )


def test_verify_names_files_that_were_never_fetched(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("MFAIRFL_DATA_HOME", str(tmp_path / "cache"))
    answer = cli("data", "verify", "german", "--json")
    assert answer.code == 2
    assert json.loads(answer.out)[0]["found"] is None
    assert answer.err == (
        "error: german.data: not on this machine: run `mfairfl data fetch german`\n"
    )


def test_strategies_list_what_they_need(cli):
    answer = cli("strategies")
    assert answer.code == 0
    assert all(name in answer.out for name in available())
    found = json.loads(cli("strategies", "--json").out)
    assert [one["name"] for one in found] == available()
    fedavg = next(one for one in found if one["name"] == "fedavg")
    assert fedavg["paper"] == "McMahan et al. 2017"
    assert (fedavg["reveals"], fedavg["trains_on"]) == ("sums", "clients")


def test_the_list_of_strategies_has_a_line_for_each(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines = [line.split() for line in cli("strategies").out.splitlines()]
    names = [words[0] for words in lines if words and words[0] in available()]
    assert names == available()
    seen = {words[0]: words[-1] for words in lines if words and words[0] in available()}
    assert (seen["cenfair"], seen["fedavg"], seen["mfairfl"]) == ("rows", "sums", "updates")


def test_a_strategy_is_explained_with_its_rule_and_hyper_parameters(cli):
    told = cli("strategies", "drfl").out
    for words in ("Zhao, G. Joshi", "Update:", "Deviations:", "strategy.q", "0.01, 0.02, 1.0"):
        assert words in told
    found = json.loads(cli("strategies", "mfairfl-rev", "--json").out)
    assert found["hyper_parameters"]["order"] == {"default": "reversed", "grid": []}
    assert found["hyper_parameters"]["beta"]["grid"] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert found["hyper_parameters"]["goals.cap"] == {"default": 0.9, "grid": []}
    assert "strategy.goals.cap" in cli("strategies", "mfairfl").out
    answer = cli("strategies", "fedavgg")
    assert answer.code == 2
    assert "did you mean 'fedavg'" in answer.err


def test_explained_strategy_lists_what_the_server_sees(cli):
    told = " ".join(cli("strategies", "scaffold").out.split())
    for line in manifest(describe("scaffold")):
        assert f"- {line.sentence}" in told
    found = json.loads(cli("strategies", "ditto", "--json").out)["server_sees"]
    assert found[-1]["what"] == "personal models"
    assert (found[-1]["seen"], found[-1]["when"]) == ("never", "never")


def test_strategies_of_others_are_listed_and_explained(cli, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        '"""A rule of mine."""\n'
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from mfairfl.strategies import Card, Strategy\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Strategy):\n"
        '    """Half of everything."""\n'
        '    card: ClassVar[Card] = Card(title="Mine", paper="Me 2026")\n'
        "    half: float = 0.5\n",
        encoding="utf-8",
    )
    told = cli("strategies", "mine:Mine")
    assert told.code == 0, told.err
    for words in ("A rule of mine.", "Half of everything.", "strategy.half", "Me 2026"):
        assert words in told.out
    monkeypatch.setattr("mfairfl.strategies.available", lambda: ["fedavg", "mine:Mine", "x:Y"])
    listed = cli("strategies")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()[3:5]] == ["fedavg", "mine:Mine"]
    assert listed.err.startswith("warning: x:Y is left out: 'x:Y' cannot be imported")


@pytest.mark.parametrize("verb", ["describe", "fetch", "verify"])
def test_misspelt_name(cli, verb):
    answer = cli("data", verb, "bnk")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: unknown data set 'bnk': did you mean 'bank'?")
