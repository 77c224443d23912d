"""`mfairfl.doctor` from Python: files, configurations, failures."""

from __future__ import annotations

import re

import pytest

import mfairfl
from mfairfl.checks.finding import Finding, by_weight
from mfairfl.runs.config import make_config

ROWS = "x,sex,hired\n" + "\n".join(
    f"{i % 7},{'f' if i % 2 else 'm'},{'yes' if i % 3 else 'no'}" for i in range(60)
)
TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex"]}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    return make_config({"data": {"csv": str(tmp_path / "rows.csv")}, "task": TASK})


def test_findings_of_a_configuration_print_as_lines(config):
    findings = mfairfl.doctor(config)
    assert {finding.level for finding in findings} <= {"ok", "note", "warn"}
    label = next(finding for finding in findings if finding.check == "label")
    assert str(label) == "ok    label: hired = yes (favourable) in 66.7% of the rows"
    # About a fifth of 30 rows of each sex are test rows: fewer than 30.
    (small,) = [f.message for f in findings if f.level == "warn" and f.check == "groups"]
    assert re.match(r"sex: fewer than 30 test rows of f \(\d\), m \(\d\): too few to tell", small)


def test_a_file_gives_the_findings_of_its_contents(config, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        '[data]\ncsv = "rows.csv"\n[task]\nlabel = "hired"\nfavourable = "yes"\n'
        'sensitive = ["sex"]\n',
        encoding="utf-8",
    )
    theirs = mfairfl.doctor(config)
    ours = mfairfl.doctor(str(path))
    assert [f for f in ours if f.check != "settings"] == [
        f for f in theirs if f.check != "settings"
    ]


def test_what_cannot_be_used_is_the_first_finding(config, tmp_path):
    first, *_ = mfairfl.doctor(tmp_path / "absent.toml")
    assert (first.level, first.check) == ("fail", "input")
    assert "absent.toml: no such file" in first.message
    task = config.task.model_copy(update={"favourable": "maybe"})
    first, *others = mfairfl.doctor(config.model_copy(update={"task": task}))
    assert first.level == "fail"
    assert {finding.level for finding in others} == {"ok"}


def test_findings_come_in_the_order_of_their_weight(config):
    levels = [finding.level for finding in mfairfl.doctor(config)]
    assert levels == sorted(levels, key=["fail", "warn", "note", "ok"].index)
    given = [
        Finding("ok", "leakage", ""),
        Finding("note", "data", ""),
        Finding("note", "codes", ""),
        Finding("warn", "groups", ""),
        Finding("warn", "missing codes", ""),
        Finding("warn", "leakage", ""),
        Finding("warn", "data", ""),
        Finding("fail", "input", ""),
    ]
    assert [(f.level, f.check) for f in by_weight(given)] == [
        ("fail", "input"),
        ("warn", "data"),
        ("warn", "leakage"),
        ("warn", "missing codes"),
        ("warn", "groups"),
        ("note", "codes"),
        ("note", "data"),
        ("ok", "leakage"),
    ]
