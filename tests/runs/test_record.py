"""The record: numbers that no tally holds, its typed form, its schema, and old files."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mfairfl
from federations import people, people_federation, people_table
from mfairfl import compare
from mfairfl.cli.run_result import print_run
from mfairfl.errors import RunDirectoryError
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import Run
from mfairfl.runs.record import RunRecord, json_schema, read_record
from records import as_running
from schemas import check_schema

SMALL = {"model.hidden": [4], "training.local_epochs": 2, "training.batch_size": 20}


def test_losses_and_their_parity_equal_those_of_the_raw_test_rows():
    frame, federation = people(), people_federation()
    run = mfairfl.train(federation, rounds=2, **SMALL, **{"training.lr": 0.02})
    rows = np.concatenate([client.test.rows for client in federation.clients])
    part = frame.iloc[rows]
    chance = run.predictor.predict_proba(part)[:, 1]
    loss = -np.log(np.where(part["hired"] == "yes", chance, 1 - chance))
    gaps = [
        abs(loss[(part[column] == value).to_numpy()].mean() - loss.mean())
        for column in ("sex", "age")
        for value in part[column].unique()
    ]
    test = run.metrics["test"]
    assert test["loss"] == pytest.approx(loss.mean(), rel=1e-6)
    assert test["accuracy_parity_loss_violation"] == pytest.approx(max(gaps), rel=1e-6)


def test_a_model_that_answers_alike_is_called_so_and_an_ordinary_one_is_not():
    constant = mfairfl.train(people_federation(), strategy="constant", rounds=0, **SMALL)
    (warning,) = constant.record.warnings
    assert "gives almost everyone the same decision: it selects 0 of 52 test rows" in warning
    trained = {"rounds": 8, "lr": 0.05, "weight_decay": 0.1}
    ordinary = mfairfl.train(people_federation(), strategy="fedavg", **SMALL, **trained)
    assert 0.01 < ordinary.metrics["train"]["selection_rate"] < 0.99
    assert ordinary.record.warnings == []


# ------------------------------------------------------------------ the typed form


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("record") / "run"
    return mfairfl.train(people_table(), out=out, rounds=2, **SMALL)


def test_what_is_written_is_read_again(run, tmp_path):
    assert RunRecord.read(run.path) == RunRecord.read(run.path / "run.json") == run.record
    run.record.write(tmp_path)
    assert (tmp_path / "run.json").read_bytes() == (run.path / "run.json").read_bytes()


def test_the_text_is_what_the_standard_library_reads_as_the_record(run):
    text = run.record.to_json()
    assert json.loads(text) == run.record.model_dump(mode="json")
    assert text.startswith('{\n  "schema_version": 2,\n')
    assert text.endswith("}\n")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_know_is_refused(number, run):
    record = run.record.model_copy(deep=True)
    record.warnings.append("NaN and Infinity are words like others")
    assert "NaN and Infinity" in record.to_json()
    record.noise_floor["train"].model_extra["demographic_parity_violation"] = number
    with pytest.raises(ValueError, match="JSON compliant"):
        record.to_json()


def test_attributes_are_the_keys_of_the_file(run):
    plain = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    record = run.record
    assert set(plain) == set(RunRecord.model_fields)
    assert record.metrics["test"]["accuracy"] == plain["metrics"]["test"]["accuracy"]
    assert list(record.intervals["test"]["accuracy"]) == plain["intervals"]["test"]["accuracy"]
    assert record.tallies["train"].to_json() == plain["tallies"]["train"]
    table = record.table("test")
    assert table["accuracy"].value == plain["metrics"]["test"]["accuracy"]
    name = "demographic_parity_violation"
    assert table[name].noise_floor == plain["noise_floor"]["test"][name]
    assert run.metrics == plain["metrics"]
    assert (record.reported, record.strategy) == ("test", "mfairfl")
    with pytest.raises(KeyError, match="no validation rows were kept"):
        record.metrics["validation"]


def test_a_run_that_is_going_on_has_no_result_yet(run, tmp_path):
    started = as_running(run.record)
    started.write(tmp_path)
    assert read_record(tmp_path) == started
    with pytest.raises(RunDirectoryError, match="the run is not finished"):
        RunRecord.read(tmp_path)
    with pytest.raises(RunDirectoryError, match="the run is not finished"):
        mfairfl.load(tmp_path)


def test_a_run_is_shown_in_a_few_lines(run):
    first, *lines = repr(run).splitlines()
    assert first == "Run of mfairfl on people: 4 clients, 2 rounds, seed 0"
    # Two rounds are too few for anything: that comes before the numbers.
    assert lines[0] == f"  warning: {run.record.warnings[0]}"
    low, high = run.record.intervals["test"]["accuracy"]
    value = run.metrics["test"]["accuracy"]
    assert lines[1] == (f"  test accuracy: {value:.4f} (95% interval {low:.4f} to {high:.4f})")
    assert lines[2].startswith("  test demographic_parity_violation: 0.")
    accuracy = run.baseline.metrics["test"]["accuracy"]
    assert lines[3] == f"  baseline fedavg: test accuracy {accuracy:.4f}"
    worse = [f"  worse than fedavg: {item}" for item in run.worsened]
    assert lines[4:] == [*worse, f"  files: {run.path}"]
    memory = mfairfl.train(people_table(), strategy="constant", rounds=0)
    assert repr(memory).endswith("in memory only")


def test_the_schema_in_the_documentation_is_that_of_the_code():
    check_schema("run", json_schema(), "mfairfl.runs.record")


def test_every_key_of_the_record_is_described():
    schema = json.loads(json_schema())
    for name in ("RunRecord", "StartedRecord", "Timing", "ServedFacts", "FederationFacts"):
        for key, part in schema["$defs"][name]["properties"].items():
            assert "description" in part or "$ref" in part or "const" in part, (name, key)


# ------------------------------------------------------------------ files of earlier versions


def test_a_record_of_version_0_1_is_refused_in_one_line(run, tmp_path):
    plain = json.loads(run.record.to_json()) | {"schema_version": 1}
    (tmp_path / "run.json").write_text(json.dumps(plain), encoding="utf-8")
    refused = f"{tmp_path / 'run.json'}: schema_version is 1; this version reads 2"
    for read in (RunRecord.read, mfairfl.load, RunDirectory(tmp_path).claim):
        with pytest.raises(RunDirectoryError) as caught:
            read(as_running(run.record) if read.__name__ == "claim" else tmp_path)
        assert str(caught.value) == refused


def record_run(record):
    """A finished run of which only the record is left."""
    return Run(record=record, predictor=None)


def test_a_record_from_before_scores_were_measured_is_read_and_shown(run, tmp_path, capsys):
    plain = json.loads(run.record.to_json())
    names = {"roc_auc", "expected_calibration_error"}

    def without(part):
        if not isinstance(part, dict):
            return part
        return {k: without(v) for k, v in part.items() if k not in names}

    for part in ("metrics", "intervals"):
        plain[part] = without(plain[part])
    for split in ("train", "test"):
        for cell in plain["metrics"][split]["by_client"].values():
            for name in [name for name in cell if name.endswith("_violation")]:
                del cell[name]
    (tmp_path / "run.json").write_text(json.dumps(plain), encoding="utf-8")
    old = RunRecord.read(tmp_path)
    print_run(old, tmp_path, as_json=False)
    shown = capsys.readouterr().out
    assert "log-loss" in shown
    assert "roc_auc" not in shown
    lines = compare([record_run(old), run]).lines
    (line,) = [line for line in lines if line.metric == "roc_auc"]
    assert [number.value for number in line.numbers] == [None, run.metrics["test"]["roc_auc"]]


@pytest.mark.parametrize("wrong", [3, "x", [], [[0]], {}, {"train": 3}, {"test": {}}, None])
def test_a_record_with_a_wrong_part_is_refused_in_one_line(wrong, run, tmp_path):
    whole = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    refused = []
    for key in whole:
        if whole[key] == wrong:
            continue
        (tmp_path / "run.json").write_text(json.dumps(whole | {key: wrong}), encoding="utf-8")
        try:
            RunRecord.read(tmp_path)
        except RunDirectoryError as error:
            refused.append(str(error))
    assert all(said.startswith(f"{tmp_path / 'run.json'}: ") for said in refused)
    assert not any("\n" in said for said in refused)
    assert len(refused) >= len(whole) - 8  # no warnings and no files are right, for example
