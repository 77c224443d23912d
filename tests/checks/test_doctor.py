"""`mfairfl.doctor` from Python: files, configurations, failures."""

from __future__ import annotations

import pytest

import mfairfl
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
    small = [f.message for f in findings if f.level == "warn" and f.check == "groups"]
    assert [message.split(" has ")[0] for message in small] == ["sex f", "sex m"]


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


def test_what_cannot_be_used_is_the_last_finding(tmp_path):
    *_, last = mfairfl.doctor(tmp_path / "absent.toml")
    assert (last.level, last.check) == ("fail", "input")
    assert "absent.toml: no such file" in last.message
