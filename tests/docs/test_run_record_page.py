"""docs/run-record.md names every key of run.json, and its lines of Python run."""

from __future__ import annotations

import re
from pathlib import Path

import mfairfl
from federations import people_table
from mfairfl.runs.record import RunRecord

PAGE = Path(__file__).parents[2] / "docs" / "run-record.md"


def test_the_table_has_the_keys_of_the_record_in_their_order():
    keys = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert keys == list(RunRecord.model_fields)


def test_the_lines_that_read_a_record_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = mfairfl.train(people_table(), strategy="constant", rounds=0, out="runs/adult")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(code, {})  # noqa: S102
    shown = run.metrics["test"]["demographic_parity_violation"]
    assert capsys.readouterr().out == f"{shown}\n"
