"""`mfairfl tune`: what is written and shown, that best.toml trains, and what is refused."""

from __future__ import annotations

import json
import sys
import tomllib

import pytest

from answers import csv_rows
from mfairfl.cli.studies import parse_search
from mfairfl.errors import ConfigError
from mfairfl.experiments.search.space import Choices, Range
from mfairfl.runs.config import make_config

DP = "demographic_parity_violation"
CONFIG = """
seed = 5

[data]
csv = "people.csv"

[task]
label = "Hired"
favourable = "yes"
sensitive = [
  "Gender",
  { column = "Age", bins = [{ name = "25-60", min = 25, max = 60 }], rest = "other" },
]
client = "Site"

[model]
hidden = [4]

[training]
rounds = 1
local_epochs = 2
batch_size = 20
lr = 0.004
"""
TWO = ("--folds", "2", "--json")
SEARCH = ("--search", "strategy.beta=0.4,0.8", "--search", "batch_size=16:24")


@pytest.fixture
def settings(csv):
    """A TOML file in a folder of its own, beside the rows."""
    path = csv.parent / "my.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_search_from_a_file_to_a_trained_model(cli, settings, one_process, tmp_path):
    answer = cli("tune", "my.toml", "--trials", "3", *SEARCH, "--out", "t")
    assert answer.code == 0, answer.err
    assert one_process == [3, 3, 3]  # the folds of a trial at once

    rows = csv_rows(tmp_path / "t" / "trials.csv")
    (chosen,) = [row for row in rows if row["chosen"] == "1"]
    assert (rows[0]["training.lr"], rows[0]["training.batch_size"]) == ("0.004", "20")
    assert all(0.0005 <= float(row["training.lr"]) <= 0.02 for row in rows)
    assert {row["strategy.beta"] for row in rows} <= {"0.4", "0.8"}
    assert {float(row["strategy.gamma"]) for row in rows} <= {0.25, 0.5, 1.0, 2.0}
    assert {row["training.batch_size"] for row in rows} <= {str(n) for n in range(16, 25)}

    said = [line.split()[:2] for line in answer.err.splitlines()]
    assert said == [["trial", "1/3"], ["trial", "2/3"], ["trial", "3/3"]]
    assert f"accuracy {float(rows[2]['accuracy']):.4f}" in answer.err.splitlines()[2]
    assert f"* chosen: trial {chosen['trial']} (of 3 complete ones): " in answer.out
    shown = [line.split() for line in answer.out.splitlines()]
    marked = next(words for words in shown if words[1:2] == ["*"])
    assert marked[0] == chosen["trial"]
    assert f"{float(chosen['accuracy']):.4f}" in marked
    pareto = {row["trial"] for row in rows if row["pareto"] == "1"} | {chosen["trial"]}
    assert {words[0] for words in shown if words and words[0].isdecimal()} == pareto
    for name in ("trials.svg", "trials.png"):
        assert (tmp_path / "t" / name).stat().st_size > 1000

    best = tomllib.loads((tmp_path / "t" / "best.toml").read_text(encoding="utf-8"))
    given = tomllib.loads(CONFIG)
    assert best["data"] == {"csv": "../people.csv"}
    assert best["seed"] == 5
    assert best["training"] == given["training"] | {
        "lr": float(chosen["training.lr"]),
        "batch_size": int(chosen["training.batch_size"]),
    }
    assert best["strategy"] == {
        "name": "mfairfl",
        **{key: float(chosen[f"strategy.{key}"]) for key in ("beta", "gamma", "delta")},
    }
    assert make_config(best).task == make_config(given).task
    assert "clients" not in best  # the folds are gone

    assert answer.out.splitlines()[-1] == "next: mfairfl train t/best.toml"
    assert cli("train", "t/best.toml", "--out", "r").code == 0
    record = json.loads((tmp_path / "r" / "run.json").read_text(encoding="utf-8"))
    assert record["config"]["training"]["lr"] == float(chosen["training.lr"])


@pytest.mark.slow
def test_the_same_command_again_goes_on_or_shows_the_result(cli, settings, one_process):
    metric = ("--metric", "client_accuracy_gap")
    command = ("tune", "my.toml", "--out", "t", "--folds", "2", *metric, "--trials")
    assert cli(*command, "1").code == 0
    more = cli(*command, "2")
    first, second = more.err.splitlines()
    assert first == "resuming after 1 complete trials of 2"
    assert second.startswith("trial 2/2  accuracy 0.")
    again = cli(*command, "2")
    assert (again.code, again.out) == (0, more.out)
    assert one_process == [2, 2]
    assert "client accuracy gap" in more.out


@pytest.mark.slow
def test_json(cli, settings, one_process, tmp_path):
    answer = cli("tune", "my.toml", "--trials", "2", "--out", "t", *TWO)
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert [trial["trial"] for trial in found["trials"]] == [0, 1]
    assert found["best"] == found["trials"][found["best"]["trial"]]
    assert found["metrics"] == [DP]
    assert found["study"] == "people-mfairfl-column-s5"
    for trial in found["trials"]:
        assert len(trial["folds"]) == 2
        for name, mean in (("accuracy", trial["accuracy"]), (DP, trial["violation"])):
            assert mean == pytest.approx(sum(fold[name] for fold in trial["folds"]) / 2)


@pytest.mark.slow
def test_flags_win_over_the_file_and_name_the_folder(cli, settings, one_process, tmp_path):
    flags = ("--strategy", "qffl", "--seed", "9", "--set", "training.batch_size=30")
    answer = cli("tune", "my.toml", *flags, "--trials", "1", "--heterogeneity", "iid", *TWO)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["metrics"] == ["client_accuracy_std"]
    assert set(found["best"]["values"]) == {"training.lr", "strategy.q"}
    best = (tmp_path / "runs" / "tune-people-qffl-iid-s9" / "best.toml").read_text("utf-8")
    values = tomllib.loads(best)
    assert (values["seed"], values["training"]["batch_size"]) == (9, 30)
    assert values["clients"] == {"scheme": "iid"}


def test_ctrl_c_is_one_line(cli, settings, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mfairfl.experiments.search.optuna_study.run_many", stop)
    answer = cli("tune", "my.toml", "--out", "t")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == "stopped; repeat the command to resume\n"


def test_without_optuna_the_fix_is_named(cli, settings, monkeypatch):
    monkeypatch.setattr("mfairfl.errors.find_spec", lambda name: None)
    answer = cli("tune", "my.toml")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: optuna is not installed: pip install 'mfairfl[tune]'\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--search", "beta"], "--search beta: write key=a,b,c or key=low:high"),
        (["--search", "beta="], "--search beta=: write key=a,b,c"),
        (
            ["--search", "lr=0.2:0.1"],
            "--search lr=0.2:0.1: range 0.2:0.1: the lower bound must",
        ),
        (["--search", "lr=0:0.1:log"], "the lower bound must be above 0"),
        (["--search", "strategy.beta=1,1.0"], "a value appears twice"),
        (["--search", "strategy.betta=0.4"], "did you mean 'beta'"),
        (["--search", "lr=fast,slow"], "--search training.lr: training.lr: "),
        (["--metric", "dpd"], "unknown metric 'dpd'"),
        (["--folds", "1"], "'--folds': 1 is not in the range"),
        (["--tolerance", "2"], "'--tolerance': 2.0 is not in the range"),
        (["--storage", "here.db"], "--storage: not a database URL"),
    ],
)
def test_bad_flags_get_one_line(cli, settings, flags, said):
    answer = cli("tune", "my.toml", *flags, "--out", "t")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("k.a=0.1,0.2", Choices((0.1, 0.2))),
        ("k.a=size, uniform", Choices(("size", "uniform"))),
        ("k.a=true,false", Choices((True, False))),
        ("k.a=[4],[8, 8]", Choices(([4], [8, 8]))),
        ("k.a=3", Choices((3,))),
        ("k.a=1:5", Range(1, 5)),
        ("k.a=1.0:5:log", Range(1.0, 5, log=True)),
        ("k.a=a:b", Choices(("a:b",))),
    ],
)
def test_search_texts(text, part):
    (found,) = parse_search([text]).values()
    assert found == part
    assert str(found) == str(part)  # 1 is not 1.0


def test_short_names_stand_for_their_keys():
    assert list(parse_search(["lr=1,2", "weights=size", "strategy.q=1"])) == [
        "training.lr",
        "strategy.weights",
        "strategy.q",
    ]
    with pytest.raises(ConfigError, match="--search =1"):
        parse_search(["=1"])


@pytest.mark.slow
def test_processes_carry_out_a_trial(cli, settings, tmp_path):
    """Once with real worker processes, as users have it."""
    answer = cli("tune", "my.toml", "--trials", "1", "--folds", "2", "--out", "t")
    assert answer.code == 0, answer.err
    records = list((tmp_path / "t" / "trials").glob("*/fold-*/run.json"))
    assert sorted(path.parent.name for path in records) == ["fold-0", "fold-1"]
    assert "optuna" in sys.modules
    assert "[I " not in answer.err  # Optuna's own log lines
