"""`mfairfl deploy ledger`: what a silo answered and refused, and whether the file is whole."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime

import pytest

from mfairfl.silo.ledger import Ledger, RowSetFacts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KNOWN = {"request_sha256": "a" * 64, "policy_sha256": "b" * 64}


@pytest.fixture
def silo(tmp_path):
    (tmp_path / "silo.toml").write_text('name = "east"\ncsv = "east.csv"\nstate = "state"\n')
    return "silo.toml"


@pytest.fixture
def ledger(silo, tmp_path):
    """Two runs: measured 1 + 3 models, trained rounds 1 and 2, the latter twice; two refusals."""
    ledger = Ledger(tmp_path / "state", now=lambda: NOON)

    def answer(run, kind, size, **more):
        given = {"run": run, "kind": kind, "answer_sha256": "c" * 64, "answer_bytes": size}
        ledger.add(**given, **KNOWN, **more)

    levels = RowSetFacts("levels of 'race' in train and other rows", sets=3, smallest=12, rows=80)
    labels = RowSetFacts("labels in train rows", sets=2, smallest=31, rows=80)
    answer("run-1", "sums", 1234, row_sets=(levels, labels))
    answer("run-1", "measure", 64, models=1)
    answer("run-1", "train", 4000, round=0, jobs=1)
    answer("run-1", "measure", 192, models=3)
    answer("run-1", "train", 4000, round=1, jobs=1)
    answer("run-1", "train", 4000, round=1, jobs=1)
    answer("run-2", "score", 9_000_000, models=1)
    for kind, why in (("train", "300 epochs in a job: this silo allows 200"), ("", "no JSON")):
        ledger.add(run="run-2", kind=kind, refusal=why, models=5, **KNOWN)
    return ledger


def test_every_exchange_has_a_row_and_the_totals_are_those_of_all(cli, silo, ledger, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    answer = cli("deploy", "ledger", silo)
    assert (answer.code, answer.err) == (0, "")
    words = " ".join(answer.out.split())
    sets = "levels of 'race' in train and other rows; labels in train rows"
    assert f"2026-03-01 12:00:00 run-1 sums {sets} 12 1,234" in words
    assert "run-1 measure 3 192" in words
    assert "run-1 train round 2 4,000" in words
    assert "run-2 score 1 9,000,000" in words
    assert "run-2 train refused: 300 epochs in a job: this silo allows 200 5 2026" in words
    assert "run-2 ? refused: no JSON 5 answers" in words
    assert (
        "answers: 7, refusals: 2, runs: 2, models measured: 4, rounds trained: 2\n" in answer.out
    )
    head = hashlib.sha256(ledger.path.read_bytes().splitlines()[-1]).hexdigest()
    assert f"the chain holds, 9 lines; SHA-256 of the last: {head}\n" in answer.out


def test_one_run_alone(cli, silo, ledger):
    answer = cli("deploy", "ledger", silo, "--run", "run-2")
    assert answer.code == 0
    assert "run-1" not in answer.out
    assert "answers: 1, refusals: 2, runs: 1, models measured: 0, rounds trained: 0" in answer.out
    assert "the chain holds, 9 lines" in answer.out
    wrong = cli("deploy", "ledger", silo, "--run", "run-3")
    assert wrong.code == 2
    assert wrong.err == (
        "error: --run: unknown run 'run-3': did you mean 'run-2'? (known: run-1, run-2)\n"
    )


def test_json_has_the_lines_as_they_are(cli, silo, ledger):
    found = json.loads(cli("deploy", "ledger", silo, "--json", "--run", "run-1").out)
    raw = ledger.path.read_bytes().splitlines()
    assert found["lines"] == [json.loads(line) for line in raw[:6]]
    assert found["head"] == hashlib.sha256(raw[-1]).hexdigest()
    assert (found["file"], found["torn"]) == (str(ledger.path), 0)
    assert found["totals"] == {
        "answers": 6,
        "refusals": 0,
        "runs": 1,
        "models measured": 4,
        "rounds trained": 2,
    }


@pytest.mark.parametrize("flags", [(), ("--json",), ("--run", "run-2")])
def test_broken_chain_gives_one_line_with_file_and_line(cli, silo, ledger, flags):
    text = ledger.path.read_text()
    ledger.path.write_text(text.replace('"answer_bytes":64', '"answer_bytes":65'))
    answer = cli("deploy", "ledger", silo, *flags)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {ledger.path}, line 3: the chain is broken: ")
    assert len(answer.err.splitlines()) == 1


def test_torn_line_is_reported_before_and_after_it_is_dropped(cli, silo, ledger, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with ledger.path.open("ab") as file:
        file.write(b'{"run":"run-2"')
    said = " ".join(cli("deploy", "ledger", silo).out.split())
    assert "note: the file ends with 14 bytes of an incomplete line" in said
    ledger.add(run="run-2", kind="score", answer_sha256="c" * 64, **KNOWN)
    said = " ".join(cli("deploy", "ledger", silo).out.split())
    assert "note:" not in said
    assert "run-2 score (14 bytes of an incomplete line before it were dropped) 0" in said


def test_a_silo_that_answered_nothing_says_so(cli, silo):
    answer = cli("deploy", "ledger", silo)
    assert answer.code == 0
    assert answer.out.endswith("state/ledger.jsonl: nothing was answered or refused yet\n")
    found = json.loads(cli("deploy", "ledger", silo, "--json").out)
    assert (found["lines"], found["head"]) == ([], "0" * 64)


def test_help_has_an_example_and_a_missing_file_is_named(cli):
    help_ = cli("deploy", "ledger", "--help")
    assert help_.code == 0
    assert "mfairfl deploy ledger silo.toml" in re.sub(r"\s+", " ", help_.out)
    missing = cli("deploy", "ledger", "silo.toml")
    assert missing.code == 2
    assert "silo.toml: no such file" in missing.err
