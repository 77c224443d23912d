"""`mfairfl deploy audit`: what is refused before anything starts, and what flags become."""

from __future__ import annotations

import pandas as pd
import pytest
import tomli_w

from audit_silos import predictions
from mfairfl.cli.audit import requested_audit
from mfairfl.deployment.settings import AuditRequest

GOOD = ("--prediction", "decision", "--selected", "yes", "--sensitive", "sex")


@pytest.fixture
def files(tmp_path):
    """Two silos' files, as flags."""
    words = []
    for name, part in predictions(rows=60).groupby("silo"):
        part.drop(columns="silo").to_csv(tmp_path / f"{name}.csv", index=False)
        words += ["--silo", f"{name}={name}.csv"]
    return words[:4]


@pytest.fixture
def federation(tmp_path):
    (tmp_path / "key.pub").touch()
    audit = {"label": "hired", "favourable": "yes", "prediction": "decision", "sensitive": ["sex"]}
    values = {"out": "out", "minimum": 1, "silos": {"a": "key.pub"}, "audit": audit}
    (tmp_path / "federation.toml").write_text(tomli_w.dumps(values))
    return "federation.toml"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (GOOD, "give FEDERATION.toml, or files of silos on this machine (--silo)"),
        (("f.toml", "--min-rows", "3", *GOOD), "--min-rows: silos set it in their own policy"),
        (("none.toml", *GOOD), "none.toml: no such file"),
        (("--silo", "a", *GOOD), "--silo a: write NAME=FILE"),
        (("--silo", "a=none.csv", *GOOD), "--silo a=none.csv: no such file"),
    ],
)
def test_missing_inputs_give_one_line(cli, words, message):
    answer = cli("deploy", "audit", *words, "--out", "audit")
    assert answer.code == 2
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prediction", "decision"), "fair for whom?"),
        (("--sensitive", "sex"), "no decisions: name their column"),
        ((*GOOD, "--notion", "eo"), "notion 'equalized_odds' needs labels"),
        ((*GOOD, "--tolerance", "7"), "audit.tolerance"),
        ((*GOOD, "--score-range", "1"), "--score-range 1: write LOW,HIGH"),
        (("--run", "runs/a", "--label", "hired"), "audit.label: a run's model is audited on its"),
        (("--run", "runs/a"), "runs/a/run.json: not found"),
        ((*GOOD, "--baseline", "none"), "none: not found; give the --out folder of an audit"),
        (("--prediction", "decison", "--sensitive", "sex"), "did you mean 'decision'"),
        (("--prediction", "decision", "--sensitive", "sex"), "Set selected (values: no, yes)"),
    ],
)
def test_unusable_files_are_refused_before_a_process_starts(cli, files, words, message):
    answer = cli("deploy", "audit", *files, *words, "--out", "audit")
    assert answer.code == 2
    assert message in answer.err
    assert "starting" not in answer.err


def test_train_rows_at_a_silo_are_refused(cli, files, tmp_path):
    frame = pd.read_csv(tmp_path / "east.csv").assign(split="train")
    frame.to_csv(tmp_path / "east.csv", index=False)
    answer = cli("deploy", "audit", *files, *GOOD, "--out", "audit")
    assert answer.code == 2
    assert "east.csv: 60 of 60 rows are train rows (column 'split')" in answer.err
    assert "starting" not in answer.err


def test_an_audit_is_not_replaced_unasked(cli, files, tmp_path):
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit.json").write_text("{}")
    answer = cli("deploy", "audit", *files, *GOOD, "--out", "audit")
    assert answer.code == 2
    assert "audit: holds an audit; choose another --out, or add --force" in answer.err


def test_flags_override_the_coordinator_s_file(federation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = {
        "sensitive": ["sex,race", "age"],
        "notion": ["dp,eo"],
        "score": "points",
        "score_range": "300,850",
        "tolerance": 0.1,
        "tool": "ranker",
    }
    found = requested_audit(tmp_path / federation, flags, {})
    assert found == AuditRequest(
        label="hired",
        favourable="yes",
        prediction="decision",
        sensitive=("sex", "race", "age"),
        notions=("dp", "eo"),
        score="points",
        score_range=(300.0, 850.0),
        tolerance=0.1,
        facts={"tool": "ranker"},
    )
    assert requested_audit(tmp_path / federation, {}, {}).sensitive == ("sex",)
