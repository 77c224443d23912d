"""docs/report.md names every key of report.json, its schema is the code's, and its lines run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mfairfl
from federations import people_table
from mfairfl.report.document import Document, json_schema
from schemas import check_schema

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "report.md").read_text(encoding="utf-8")


def test_the_tables_have_the_keys_of_the_document_in_their_order():
    audit = (DOCS / "audit.md").read_text(encoding="utf-8").partition("## audit.json")[2]
    keys = re.findall(r"^\| `(\w+)` \|", PAGE + audit, flags=re.MULTILINE)
    assert keys == list(Document.model_fields)


def test_the_schema_in_the_documentation_is_that_of_the_code():
    assert json.loads(json_schema("report.json"))["title"] == "report.json"
    assert "Examples" not in json_schema("report.json")
    check_schema("report", json_schema("report.json"), "mfairfl.report.document")


def test_the_lines_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("fair", "other"):
        mfairfl.train(people_table(), strategy="constant", rounds=0, out=f"runs/{name}")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(code, {})  # noqa: S102
    verdict, outcome = capsys.readouterr().out.splitlines()
    assert verdict.startswith("There is no verdict on demographic parity, because no")
    assert outcome == "no verdict"
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.html", "report.json", "report.md", "runs"
    }  # fmt: skip
