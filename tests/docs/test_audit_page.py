"""docs/audit.md names every key of audit.json, its schema is the code's, and its lines run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mfairfl.cli import main
from mfairfl.report.document import Document, json_schema
from schemas import check_schema

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "audit.md").read_text(encoding="utf-8")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """The files that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 300
    points = rng.integers(300, 851, n)
    return pd.DataFrame(
        {
            "sex": rng.choice(["F", "M", ""], n),
            "ethnicity": rng.choice(["A", "B"], n),
            "age": rng.integers(18, 80, n),
            "hired": rng.choice(["yes", "no"], n),
            "points": points,
            "decision": np.where(points > 620, "yes", "no"),
        }
    )


def test_the_schema_in_the_documentation_is_that_of_the_code():
    assert json.loads(json_schema("audit.json"))["title"] == "audit.json"
    check_schema("audit", json_schema("audit.json"), "mfairfl.report.document")


def test_the_commands_of_the_page_run(rows, capsys):
    (block,) = re.findall(r"```\n(mfairfl audit.*?)```", PAGE, flags=re.DOTALL)
    lines = block.splitlines()
    assert len(lines) == 4
    rows.to_csv("P.csv", index=False)
    rows.to_csv("june.csv", index=False)
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
    assert Document.read("audits/june").drift is not None
    groups = Document.read("audits/age").sections[0].groups
    assert [group.name for group in groups] == ["under 40", "40 to under 60", "60 and over"]
    for group in groups:
        assert f"*{group.name}*" in PAGE


def test_the_python_of_the_page_runs(rows, capsys):
    rows.to_csv("P.csv", index=False)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    given = {
        "y_true": (rows.hired == "yes").astype(int),
        "y_pred": (rows.decision == "yes").astype(int),
        "sex": rows.sex.where(rows.sex != ""),
    }
    exec(code, given)  # noqa: S102
    outcome, title, *_ = capsys.readouterr().out.splitlines()
    assert outcome in ("met", "not met", "too few rows to tell")
    assert title == "Audit of decisions"
    assert Path("audits/may/audit.html").exists()
