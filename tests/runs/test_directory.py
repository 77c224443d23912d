"""A run on disk: who may write it, what it holds, and what happens to damaged files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import federations as fed
import mfairfl
from answers import csv_rows, one_line
from mfairfl.data import partition, table_from_frame
from mfairfl.errors import MfairflError, RunDirectoryError
from mfairfl.runs import execute
from mfairfl.runs.record import RunRecord

SETTINGS = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "baseline": False}

METRICS = {
    "accuracy",
    "balanced_accuracy",
    "demographic_parity_violation",
    "equalized_odds_violation",
    "accuracy_parity_violation",
    "client_accuracy_std",
    "client_accuracy_gap",
    "worst_client_accuracy",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run; copy it before you change it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    mfairfl.train(fed.people_table(), out=out, **SETTINGS)
    return out


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


# ------------------------------------------------------------------ what it holds


def test_the_folder_holds_what_the_design_says(finished):
    names = {path.name for path in finished.iterdir()} - {".lock"}
    files = {"run.json", "rounds.csv", "clients.csv", "model.safetensors", "encoder.json"}
    assert names == files | {"scores.safetensors", "checkpoint"}


def test_the_record_has_the_keys_of_the_design(finished):
    record = json.loads((finished / "run.json").read_text())
    wanted = {"schema_version", "config", "seed", "versions", "data", "metrics", "intervals"}
    wanted |= {"noise_floor", "constant_classifier", "timing"}
    assert wanted <= set(record)
    assert record["schema_version"] == 2
    assert set(record["data"]) == {"name", "sha256", "rows"}
    assert (record["data"]["name"], record["data"]["rows"]) == ("people", 260)
    assert set(record["metrics"]) == {"train", "validation", "test"}
    assert record["metrics"]["validation"] is None
    for split in ("train", "test"):
        assert set(record["metrics"][split]) >= METRICS
        assert set(record["metrics"][split]["by_attribute"]) == {"sex", "age", "sex × age"}
        assert set(record["intervals"][split]) >= {"accuracy", "demographic_parity_violation"}
        assert set(record["constant_classifier"][split]) >= METRICS
    assert record["status"] == "complete"


def test_the_record_is_strict_json(finished):
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads((finished / "run.json").read_text(), parse_constant=refuse)


def test_a_run_that_diverged_serves_the_first_model_and_says_so(tmp_path):
    settings = {"training.optimizer": "sgd", "weight_decay": 0.0, "lr": 1e25}
    settings |= {"training.schedule": "constant"}
    run = mfairfl.train(fed.people_table(), out=tmp_path / "run", **SETTINGS, **settings)
    first = mfairfl.train(fed.people_table(), **SETTINGS | {"rounds": 0})
    assert np.array_equal(run.predictor.served.members, first.predictor.served.members)
    assert (
        "training diverged in 2 of 2 rounds, and these steps were taken back; lower training.lr"
    ) in run.record.warnings
    assert RunRecord.read(tmp_path / "run") == run.record
    logs = [json.loads(row["log"]) for row in csv_rows(tmp_path / "run" / "rounds.csv")[1:]]
    for log in logs:
        assert "its measurement of train rows: a number is not finite" in log["undone"]


def test_what_is_returned_is_what_is_written(tmp_path):
    run = mfairfl.train(fed.people_table(), out=tmp_path / "run", strategy="constant", rounds=0)
    assert RunRecord.read(tmp_path / "run") == run.record
    assert (tmp_path / "run" / "run.json").read_text() == run.record.to_json()
    assert run.path == tmp_path / "run"


# ------------------------------------------------------------------ who may write it


@pytest.mark.slow
def test_a_second_process_is_refused_in_one_line(tmp_path):
    out = tmp_path / "run"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from mfairfl.runs.directory import RunDirectory\n"
            "with RunDirectory(sys.argv[1]).locked():\n"
            "    print('held', flush=True)\n"
            "    sys.stdin.read()\n",
            str(out),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunDirectoryError) as caught:
            mfairfl.train(fed.people_table(), out=out, **SETTINGS)
        assert "another process is using this run" in one_line(caught)
        assert str(out) in str(caught.value)
        holder.kill()  # however the holder ends, its lock ends with it
    run = mfairfl.train(fed.people_table(), out=out, strategy="constant", rounds=0)
    assert run.record.status == "complete"


def test_a_finished_run_is_returned_without_training(finished, monkeypatch):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}

    def refuse(members, workers):
        del workers
        assert members == [], "a finished run was trained again"
        return []

    monkeypatch.setattr(execute, "run_all", refuse)
    run = mfairfl.train(fed.people_table(), out=finished, **SETTINGS)
    assert run.record == RunRecord.read(finished)
    assert run.predictor.predict(fed.people()).shape == (260,)
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounds": 3}, "training.rounds is 2 there and 3 here"),
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"strategy.weights": "uniform"}, "strategy.weights is None there and uniform here"),
        ({"hidden": (8,)}, r"model.hidden is \[4\] there and \[8\] here"),
    ],
)
def test_another_configuration_is_refused_naming_the_key(finished, change, words):
    with pytest.raises(RunDirectoryError, match=words) as caught:
        mfairfl.train(fed.people_table(), out=finished, **(SETTINGS | change))
    assert str(finished) in one_line(caught)


def test_other_rows_another_task_and_another_split_are_refused(tmp_path):
    table = fed.people_table()
    out = tmp_path / "run"
    quick = {"strategy": "constant", "rounds": 0}
    mfairfl.train(partition(table, "iid", clients=3, seed=0), out=out, **quick)
    with pytest.raises(RunDirectoryError, match=r"federation\.seed is 0 there and 1 here"):
        mfairfl.train(partition(table, "iid", clients=3, seed=1), out=out, **quick)
    with pytest.raises(RunDirectoryError, match=r"federation\.scheme is iid there"):
        mfairfl.train(partition(table), out=out, **quick)
    with pytest.raises(RunDirectoryError, match=r"federation\.options\.clients is 3 there and 4"):
        mfairfl.train(partition(table, "iid", clients=4, seed=0), out=out, **quick)
    other = fed.people_table(fed.people(seed=8))
    with pytest.raises(RunDirectoryError, match="trained on other data"):
        mfairfl.train(partition(other, "iid", clients=3, seed=0), out=out, **quick)
    task = fed.TASK.model_copy(update={"sensitive_as_features": False})
    blind = table_from_frame(fed.people(), task, name="people")
    with pytest.raises(RunDirectoryError, match=r"task.categorical is .* and \[.job.\] here"):
        mfairfl.train(partition(blind, "iid", clients=3, seed=0), out=out, **quick)


def test_a_strangers_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunDirectoryError) as caught:
        mfairfl.train(fed.people_table(), out=tmp_path, **SETTINGS)
    assert "does not hold a run (it has thesis.tex)" in one_line(caught)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"thesis.tex"}


def test_what_a_crash_before_the_first_record_leaves_is_no_stranger(tmp_path):
    (tmp_path / ".run.json.4242.tmp").write_text("{")
    (tmp_path / ".lock").touch()
    run = mfairfl.train(fed.people_table(), out=tmp_path, strategy="constant", rounds=0)
    assert run.record.status == "complete"


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunDirectoryError) as caught:
            mfairfl.train(fed.people_table(), out=out, **SETTINGS)
        assert str(out) in one_line(caught)
    assert (tmp_path / "file").read_text() == "x"


# ------------------------------------------------------------------ damage


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@pytest.mark.parametrize("name", ["model.safetensors", "encoder.json"])
def test_any_change_to_the_models_files_is_noticed(copy, name):
    path = copy / name
    whole = path.read_bytes()
    for at in np.linspace(0, len(whole) - 1, 25).astype(int):
        for damaged in (_flip(whole, at), whole[:at]):
            path.write_bytes(damaged)
            with pytest.raises(RunDirectoryError) as caught:
                mfairfl.load(copy)
            assert f"{path}: its SHA-256 is not the one in run.json" in one_line(caught)
    path.unlink()
    with pytest.raises(RunDirectoryError, match="not found") as caught:
        mfairfl.load(copy)
    assert str(path) in one_line(caught)


def test_a_truncated_record_is_refused_in_one_line(copy):
    path = copy / "run.json"
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:length])
        for use in (mfairfl.load, lambda out: mfairfl.train(fed.people_table(), out=out)):
            with pytest.raises(RunDirectoryError, match="not readable JSON") as caught:
                use(copy)
            assert str(path) in one_line(caught)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("schema_version", 3, "schema_version is 3; this version reads 2"),
        ("status", "running", "unknown key 'rounds'"),
        ("status", "half", "status: Input should be 'complete' (got 'half')"),
        ("identity", None, "identity: Field required"),
        ("status", None, "status: Field required"),
        ("tallies", {"train": {"clients": []}}, "tally: key 'attributes' is missing"),
        ("metrics", {"test": {"accuracy": "high"}}, "metrics.test.accuracy"),
        ("task", None, "task: Field required"),
        ("task", {"label": "y"}, "task.favourable: Field required"),
        ("task", {"label": "y", "favourable": [1], "sensitive": ["s"]}, "not a single value"),
        ("model", {"kind": "mlp", "inputs": "many", "hidden": [4]}, "model.inputs"),
        ("model", {"kind": "mlp", "inputs": 12, "hidden": [5]}, "weights, but the model"),
        ("model", {"kind": "mlp", "inputs": 9, "hidden": [4]}, "has 12 inputs, but the model"),
        ("model", {"kind": "forest", "inputs": 9}, "model.kind"),
        ("served", {"kind": "double"}, "served.kind"),
        ("files", {}, "its SHA-256 is not the one in run.json"),
    ],
)
def test_an_altered_record_is_refused_in_one_line(copy, key, value, words):
    path = copy / "run.json"
    record = json.loads(path.read_text())
    record.pop(key) if value is None else record.update({key: value})
    path.write_text(json.dumps(record))
    with pytest.raises(MfairflError) as caught:
        mfairfl.load(copy)
    assert words in one_line(caught)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "3", '"run"', "null"])
def test_json_that_is_no_record(copy, text):
    (copy / "run.json").write_text(text)
    with pytest.raises(RunDirectoryError, match="schema_version is None"):
        mfairfl.load(copy)


def test_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(RunDirectoryError, match=r"run\.json: not found"):
            mfairfl.load(path)
