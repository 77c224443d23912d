"""`mfairfl.compare` with a study: what it returns, what it writes, what it refuses."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

import federations as fed
import mfairfl
from mfairfl.errors import ConfigError
from mfairfl.experiments.study import load_study, trials
from mfairfl.experiments.study_results import read_csv
from mfairfl.runs.record import RunRecord


@pytest.fixture
def study(tmp_path):
    return {
        "title": "Hiring",
        "data": [str(fed.write_people(tmp_path))],
        "strategies": ["fedavg-threshold", "constant"],
        "protocols": ["1x1"],
        "seeds": [3, 4, 5],
    }


def test_a_study_given_as_a_mapping_returns_its_rows_and_table(study, one_process, tmp_path):
    """The reference, fedavg-threshold, has no multipliers to draw."""
    out = tmp_path / "out"
    result = mfairfl.compare(study, out=out, seeds=2)
    assert str(result).startswith("Hiring\n")
    assert result.folder == out
    assert result.runs["seed"].tolist() == [0, 0, 1, 1]
    written = pd.read_csv(out / "study-runs.csv", keep_default_na=False)
    assert written["accuracy"].tolist() == result.runs["accuracy"].tolist()
    paths = sorted((out / "runs").rglob("run.json"))
    records = {record.identity: record for record in map(RunRecord.read, paths)}
    for row in result.runs.to_dict("records"):
        test = records[row["identity"]].metrics["test"]
        for name in ("roc_auc", "loss", "expected_calibration_error"):
            assert row[name] == test[name]
        own = [c["demographic_parity_violation"] for c in test.by_client.values()]
        largest = max(value for value in own if value is not None)
        assert row["largest_client_demographic_parity_violation"] == largest
        assert row["near_constant"] == (not 0.01 <= test["selection_rate"] <= 0.99)
    assert "calibration error" in (out / "study.md").read_text(encoding="utf-8")
    shown = result.table[result.table["metric"] == "accuracy"].set_index("strategy")["mean"]
    means = result.runs.groupby("strategy")["accuracy"].mean()
    assert shown.to_dict() == pytest.approx(means.to_dict())
    assert len(read_csv(out / "study.csv")) == len(result.table)
    names = {path.name for path in out.iterdir()}
    assert "study-1x1-clients.svg" in names
    assert "study-1x1-multipliers.svg" not in names


def test_a_strategy_of_one_s_own_is_named_by_its_import_path(study, tmp_path, monkeypatch):
    (tmp_path / "outside.py").write_text(
        "from dataclasses import dataclass\nfrom mfairfl.strategies.fedavg import FedAvg\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(FedAvg):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "outside", raising=False)
    given = study | {"strategies": ["outside:Mine", {"name": "outside:Mine", "label": "again"}]}
    loaded = load_study(given)
    assert loaded.labels == ("outside:Mine", "again")
    kinds = {type(one.config.strategy.create()).__name__ for one in trials(loaded)}
    assert kinds == {"Mine"}


def test_mistakes_in_a_mapping_name_the_key(study):
    with pytest.raises(ConfigError, match=r"^study: .*did you mean 'notions'"):
        mfairfl.compare(study | {"notion": ["dp"]})
    with pytest.raises(ConfigError, match=r"^study: strategies\.0: .*\(got 3\)"):
        mfairfl.compare(study | {"strategies": [3]})
