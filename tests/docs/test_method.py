"""docs/method.md: its snippets print what they show, its commands run, its tables are complete."""

from __future__ import annotations

import csv
import doctest
import json
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from answers import csv_rows
from federations import TASK, people
from mfairfl.cli import main
from mfairfl.strategies import create

PAGE = Path(__file__).parents[2] / "docs" / "method.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = re.findall(r"^mfairfl train .*$", TEXT, flags=re.M)
ADULT = ["--data", "adult", "--heterogeneity", "high"]
QUICK = ["--hidden", "4", "--batch-size", "40"]


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(text):
    """Return the cells of a Markdown table's rows, without head and rule."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a snippet trains into runs/
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.M | re.S)
    assert len(blocks) == TEXT.count("```python") == 3
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, PAGE.name, str(PAGE), 0)
    printed = []
    failed, tried = doctest.DocTestRunner().run(test, out=printed.append)
    assert tried > 25
    assert failed == 0, "".join(printed)


def test_the_worked_price_by_hand():
    """u_s = Σμ − μ_s n/n_s with n = 100, n_F = 40, n_M = 60 and gaps F − F_s at γ = 1."""
    overall = (40 * 0.25 + 60 * 0.50) / 100
    women, men = overall - 0.25, overall - 0.50
    assert (overall, women, men) == (pytest.approx(0.40), pytest.approx(0.15), pytest.approx(-0.1))
    assert f"{women + men - women * 100 / 40:.3f}" == "-0.325"
    assert f"{women + men - men * 100 / 60:.3f}" == "0.217"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small federation in place of Adult."""
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    sensitive = ", ".join(f'"{s.name}"' for s in TASK.sensitive)
    lines = [
        '[data]\ncsv = "people.csv"\n[task]',
        f'label = "{TASK.label}"\nfavourable = "{TASK.favourable}"',
        f'client = "{TASK.client}"\nsensitive = [{sensitive}]',
    ]
    Path("people.toml").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def shortened(command):
    """Return the arguments: people in place of Adult, 2 rounds, at most 6 epochs."""
    words = shlex.split(command)[1:]
    assert words[1:5] == ADULT
    epochs = "6" if "--local-epochs" in words else "1"  # long enough for steps inside a round
    budget = ["--rounds", "2", "--local-epochs", epochs, *QUICK]
    return [words[0], "people.toml", *words[5:], *budget]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command, small, capsys):
    assert main(shortened(command)) == 0, capsys.readouterr().err
    (record,) = small.glob("runs/*/run.json")
    found = json.loads(record.read_text(encoding="utf-8"))
    assert found["status"] == "complete"
    assert found["config"]["strategy"]["name"] in command.split()
    drawn = (record.parent / "rounds.svg").exists() and (record.parent / "clients.svg").exists()
    assert drawn == ("--plots" in command)


def test_commands_of_the_page_do_not_share_a_folder():
    """Different settings into one folder would be refused."""
    names = [re.findall(r"--(?:out|strategy) (\S+)", command)[-1] for command in COMMANDS]
    assert len(COMMANDS) == 13
    assert len(set(names)) == len(names)


def test_every_hyper_parameter_is_listed_with_its_default():
    listed = {code(row[0])[0]: code(row[1])[0] for row in table(section("Every hyper-parameter"))}
    defaults = {}
    for name, value in asdict(create("mfairfl")).items():
        group = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {}
        defaults |= group or {name: value}
    assert listed == {name: json.dumps(value) for name, value in defaults.items()}


def test_presets_are_what_the_page_says():
    names = {name for row in table(section("Presets")) for name in code(row[0])}
    assert {"mfairfl", "mfairfl-paper", "mfairfl-rnd", "mfairfl-rev"} <= names
    literal = create("mfairfl-paper")
    assert (literal.update, literal.multiplier, literal.weights) == (
        "gradient",
        "paper",
        "uniform",
    )
    assert create("mfairfl-rnd").order == "random"
    assert create("mfairfl-rev").order == "reversed"


def test_the_logs_hold_what_the_page_names(small, capsys):
    words = ["train", "people.toml", "--strategy", "mfairfl", "--out", "run"]
    assert main([*words, "--rounds", "1", "--local-epochs", "1", *QUICK]) == 0
    capsys.readouterr()
    text = section("Reading the logs")
    rounds = csv_rows("run/rounds.csv")
    assert rounds[0]["log"] == ""  # nothing was done before the first round
    named = {key for row in table(text) for key in code(row[0])}
    assert named == set(json.loads(rounds[1]["log"]))
    said = {column for line in text.splitlines() if line[:1] != "|" for column in code(line)}
    found = {column.removeprefix("test_") for column in rounds[0] if column.startswith("test_")}
    assert {name for name in found if not name.endswith("_violation")} <= said
    assert sum(name.endswith("_violation") for name in found) == 5
    with Path("run/clients.csv").open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    assert {re.sub("^(train|test)_", "", c) for c in columns} <= said | {"round", "client"}


def test_the_output_rule_as_told(small, capsys):
    words = ["train", "people.toml", "--strategy", "mfairfl", "--rounds", "0", "--json"]
    for extra, rule, tolerance in (([], "select", 0.005), (["--notion", "eo"], "select", 0.01)):
        assert main([*words, *extra, "--out", "-".join(["run", *extra])]) == 0
        served = json.loads(capsys.readouterr().out)["served"]
        assert (served["rule"], served["tolerance"]) == (rule, tolerance)


def test_the_page_is_linked_and_its_links_exist():
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "(docs/method.md)" in readme
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert len(links) > 3
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
