"""The whole path of an experiment on a small synthetic federation, from file to table."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.experiments.search.halving import make_lock
from mfairfl.experiments.study import load_study, trials
from mfairfl.paper import PAPER
from mfairfl.paper import reproduce as paper
from one_process import in_one_process

TABLE = """
title = "Table 1, small"
data = [{ label = "adult", config = "people.toml" }]
splits = ["own"]
notions = ["dp", "ap"]
protocols = ["2x2", "4x1"]
seeds = 2
lock = "lock.toml"
strategies = [
  "indfair",
  "fedavg",
  { name = "fedavg-threshold", tuned_as = "fedavg" },
  "mfairfl",
  "mfairfl-paper",
  "constant",
]
"""
# A part of the first table.
KILLED = """
title = "Table 2, small"
data = [{ label = "adult", config = "people.toml" }]
splits = ["own"]
notions = ["dp"]
protocols = ["4x1"]
seeds = 2
lock = "lock.toml"
strategies = ["fedavg", "mfairfl", "constant"]
"""
CURVES = """
title = "Figure S1, small"
kind = "curves"
notions = []
data = [{ label = "adult", config = "people.toml" }]
protocols = ["2x2"]
seeds = 2
strategies = ["fedavg", "ditto"]
"""
TUNE = """
title = "Chosen"
data = [{ label = "adult", config = "people.toml" }]
notions = ["dp"]
protocols = ["2x1"]
seeds = [0]
strategies = ["fedavg", { name = "mfairfl", search = { "strategy.beta" = [0.2, 1.0] } }]
"""


def write_files(folder):
    fed.write_people(folder)
    for name, text in (
        ("table-1", TABLE),
        ("table-2", KILLED),
        ("figure-s1", CURVES),
        ("tune", TUNE),
    ):
        (folder / f"{name}.toml").write_text(text)
    (folder / "lock.toml").write_text('[adult.fedavg]\n"training.lr" = 0.05\n')


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The small experiments, carried out once."""
    folder, out = tmp_path_factory.mktemp("paper"), tmp_path_factory.mktemp("out")
    write_files(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paper, "studies_folder", lambda: folder)
        with in_one_process():
            shown = paper.reproduce(["table-1", "table-2", "figure-s1"], out)
    return folder, out, shown


@pytest.mark.slow
def test_a_table_comes_as_markdown_csv_latex_rows_and_pictures(made):
    _, out, shown = made
    names = {path.name for path in out.iterdir()}
    assert {f"table-1.{kind}" for kind in ("md", "csv", "tex")} <= names
    assert {"table-1-runs.csv", "table-1-runs.parquet", "made.json"} <= names
    for protocol in ("2x2", "4x1"):
        for part in ("dp", "ap", "clients", "multipliers"):
            assert {f"table-1-{protocol}-{part}.{kind}" for kind in ("svg", "png")} <= names
    assert "(.792)" in (out / "table-1.md").read_text()  # mFairFL's published accuracy
    assert "mfairfl-paper" in str(shown["table-1"])


@pytest.mark.slow
def test_rows_say_what_run_json_says(made):
    folder, out, _ = made
    # Read by Python: not every pandas reads a number to its last bit.
    exact = dict.fromkeys(["accuracy", "client_accuracy_std", "train_accuracy"], float)
    rows = pd.read_csv(
        out / "table-1-runs.csv", keep_default_na=False, na_values=["nan"], converters=exact
    )
    work = trials(load_study(folder / "table-1.toml"))
    assert len(rows) == len(work) == 2 * 2 * (2 + 1 + 2 + 2 + 2 + 1)
    for row, trial in zip(rows.to_dict("records"), work, strict=True):
        record = json.loads((trial.directory(out / "runs") / "run.json").read_text())
        test = record["metrics"]["test"]
        assert row["strategy"] == record["config"]["strategy"]["name"]
        assert row["accuracy"] == test["accuracy"]
        assert row["client_accuracy_std"] == test["client_accuracy_std"]
        assert row["train_accuracy"] == record["metrics"]["train"]["accuracy"]
        assert row["identity"] == record["identity"]
        assert row["frontier_accuracy_parity_violation"] >= row["accuracy"] - 1e-9
    locked = rows[rows["strategy"].isin(["fedavg", "fedavg-threshold"])]["hyper_parameters"]
    assert {json.loads(text)["training"]["lr"] for text in locked} == {0.05}
    parquet = pd.read_parquet(out / "table-1-runs.parquet")
    assert parquet["accuracy"].tolist() == rows["accuracy"].tolist()


@pytest.mark.slow
def test_means_in_the_table_are_the_means_of_the_rows(made):
    _, out, _ = made
    rows = pd.read_csv(out / "table-1-runs.csv", keep_default_na=False, na_values=["nan"])
    table = pd.read_csv(out / "table-1.csv", keep_default_na=False, na_values=["nan", ""])
    own = rows[
        (rows["strategy"] == "mfairfl")
        & (rows["notion"] == "accuracy_parity")
        & (rows["protocol"] == "4x1")
    ]
    cell = table[
        (table["strategy"] == "mfairfl")
        & (table["notion"] == "accuracy_parity")
        & (table["protocol"] == "4x1")
        & (table["metric"] == "accuracy_parity_violation")
    ]
    assert cell["mean"].item() == pytest.approx(own["accuracy_parity_violation"].mean(), abs=1e-5)
    assert cell["n"].item() == 2


@pytest.mark.slow
def test_a_method_by_gradients_is_run_once_for_all_budgets(made):
    folder, out, _ = made
    literal = [
        t for t in trials(load_study(folder / "table-1.toml")) if t.strategy == "mfairfl-paper"
    ]
    assert len(literal) == 8
    assert len({trial.directory(out / "runs") for trial in literal}) == 4


@pytest.mark.slow
def test_curves_have_every_round_of_every_run(made):
    _, out, shown = made
    rows = pd.read_csv(out / "figure-s1-rounds.csv", keep_default_na=False, na_values=["nan"])
    assert len(rows) == 2 * 2 * 3  # methods, seeds, rounds 0 to 2
    assert (out / "figure-s1-2x2.png").exists()
    assert "ditto" in str(shown["figure-s1"])


@pytest.mark.slow
def test_nothing_is_run_twice_and_the_same_bytes_come_out(made, one_process, monkeypatch):
    folder, out, _ = made
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    models = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/model.safetensors")}
    monkeypatch.setattr(paper, "studies_folder", lambda: folder)
    told = {}

    class Watch:
        def stage(self, what):
            assert what == "writing tables and figures"

        def begin(self, name, runs):
            assert (name, len(runs)) == ("table-1", len(models) - 4)  # the others: the figure's
            # A method of gradients has a round for every epoch; the work is the same.
            assert {tuple(run) for run in runs.values()} == {(2, 4), (4, 4)}

        def on_round(self, out, round_, rounds):
            told[out] = round_ / rounds

    paper.reproduce(["table-1"], out, watcher=Watch())
    assert len(told) == len(models) - 4
    assert set(told.values()) == {1.0}  # finished before, and counted as finished
    assert {path: path.stat().st_mtime_ns for path in models} == models
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert {name for name in before if before[name] != after[name]} <= {"made.json"}


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again_the_tables_are_the_same(
    made, tmp_path, one_process, monkeypatch
):
    folder, whole, _ = made
    out = tmp_path / "out"
    code = (
        "import sys; from pathlib import Path; from mfairfl.paper import reproduce as r;"
        "r.studies_folder = lambda: Path(sys.argv[1]); r.reproduce(['table-2'], Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(folder), str(out)]
    first = subprocess.Popen(command)
    limit = time.monotonic() + 120
    while not list(out.glob("runs/*/rounds.csv")) and time.monotonic() < limit:
        time.sleep(0.02)
    workers = psutil.Process(first.pid).children()
    first.kill()
    first.wait()
    assert psutil.wait_procs(workers, timeout=120)[1] == []
    assert not (out / "table-2.md").exists()
    monkeypatch.setattr(paper, "studies_folder", lambda: folder)
    paper.reproduce(["table-2"], out)
    tables = list(whole.glob("table-2*"))
    assert tables
    for path in tables:
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
def test_tuning_writes_a_lock_file_that_studies_can_use(made, one_process, tmp_path):
    folder, _, _ = made
    make_lock(folder / "tune.toml", tmp_path)
    study = load_study(folder / "table-1.toml").model_copy(
        update={"lock": str(tmp_path / "lock.toml")}
    )
    assert trials(study)
    tried = pd.read_csv(tmp_path / "tuning.csv")
    assert set(tried["strategy"]) == {"fedavg", "mfairfl"}
    assert set(tried["rung"]) == {0, 1, 2}


def test_an_unknown_experiment_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'table-1'"):
        paper.reproduce(["table1"], tmp_path)


@pytest.mark.parametrize("name", [*PAPER, "tune"])
def test_the_paper_s_files_are_valid(name):
    study = load_study(paper.studies_folder() / f"{name}.toml")
    assert {d.label for d in study.data} == {"adult", "compas", "bank"}
    # Their numbers were made with it, whatever the default is now.
    assert study.base["encoder"] == {"numeric": "standard", "min_level_rows": 1}
