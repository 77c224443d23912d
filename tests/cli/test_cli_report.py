"""`mfairfl report` as a user meets it."""

from __future__ import annotations

import json
import re

import pytest

from mfairfl.runs.record import RunRecord
from records import as_running


@pytest.fixture
def runs(cli, csv, flags):
    for name, strategy in (("fair", "mfairfl"), ("plain", "fedavg")):
        answer = cli(
            "train", "--csv", csv, *flags, "--strategy", strategy, "--out", name,
            "--tolerance", "0.3",
        )  # fmt: skip
        assert answer.code == 0, answer.err
    return ["fair", "plain"]


def test_it_prints_three_sentences_and_writes_three_files(cli, runs, tmp_path):
    answer = cli("report", *runs, "--out", "new/folder/report.html")
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    folder = tmp_path / "new/folder"
    found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    for sentence in ("what", "verdict", "cost"):
        assert found["headline"][sentence] in said
    assert re.search(r"[Tt]he tolerance of \S+ percentage points set before training is", said)
    assert "30.0 percentage points" in said
    assert "Against fedavg on the same" in said
    last = answer.out.splitlines()[-1]
    assert last == "report: new/folder/report.html (also report.json and the model card report.md)"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert (folder / "report.md").read_text(encoding="utf-8").startswith("# Model card: Hired")
    record = json.loads((tmp_path / "fair" / "run.json").read_text())
    accuracy = next(one for one in found["overall"] if one["name"] == "accuracy")
    assert accuracy["value"] == record["metrics"]["test"]["accuracy"]


def test_json_is_the_document_and_nothing_else(cli, runs, tmp_path):
    answer = cli("report", *runs, "--json")
    assert answer.code == 0, answer.err
    assert answer.out == (tmp_path / "fair" / "report.json").read_text(encoding="utf-8")
    # The run's folder is still a run's folder, and the report can be made again.
    assert RunRecord.read(tmp_path / "fair").strategy == "mfairfl"
    assert cli("report", "fair").code == 0
    assert cli("compare", *runs).code == 0


def test_pooled_references_are_fitted_when_asked_for(cli, runs, tmp_path):
    answer = cli("report", "fair", "--references", "logistic", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["compared"][-1]["name"] == "logistic (pooled)"
    answer = cli("report", "fair", "--references", "forest")
    assert answer.code == 2
    assert answer.err.startswith("error: unknown reference 'forest'")


@pytest.mark.parametrize("name", ["fair/run.html", "notes.html", "page.html"])
def test_nothing_but_a_report_is_written_over(cli, runs, tmp_path, name):
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "page.html").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    answer = cli("report", "fair", "--out", name)
    assert answer.code == 2
    assert "exists and is not a report of mfairfl; choose another --out" in answer.err
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_what_cannot_be_reported_is_refused_in_one_line(cli, runs, tmp_path):
    as_running(RunRecord.read(tmp_path / "plain")).write(tmp_path / "plain")
    refused = {
        ("plain",): "plain/run.json: the run is not finished",
        ("nowhere",): "nowhere/run.json: not found; give the --out folder of `mfairfl train`",
        ("fair", "fair"): "fair: given twice",
        ("fair", "--out", "report.pdf"): "report.pdf: a report is a page; let --out end in .html",
        ("fair", "--out", "fair/run.json/x.html"): "fair/run.json: File exists",
    }
    for arguments, message in refused.items():
        answer = cli("report", *arguments)
        assert answer.code == 2
        assert answer.err.startswith(f"error: {message}")
        assert answer.err.count("\n") == 1
    assert cli("report").code == 2


def test_help_has_examples(cli):
    answer = cli("report", "--help")
    assert "mfairfl report runs/mfairfl runs/fedavg --out report.html" in answer.out
