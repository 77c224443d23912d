"""The server app over an in-process Grid: journal, folder, failure, and going on."""

from __future__ import annotations

import io
import json

import pytest
from consortium import SITES, config, digests, embedded, write_files
from rich.console import Console

from grids import LocalGrid
from mfairfl.cli.progress import JournalProgress
from mfairfl.deployment.coordinator_app import carry_out
from mfairfl.deployment.journal import Journal, read_journal
from mfairfl.deployment.keys import read_public_key
from mfairfl.deployment.local import write_deployment
from mfairfl.deployment.settings import load_federation
from mfairfl.deployment.silo_app import app
from mfairfl.errors import FederationError
from mfairfl.flower.records import from_records


@pytest.fixture
def laid(tmp_path):
    file = write_deployment(config(), tmp_path / "run", silos=write_files(tmp_path), deadline=5)
    return load_federation(file).model_copy(update={"minimum": 2, "wait": 0.0})


def grid(settings, lose=lambda node, message: False):
    """Nodes with the silos' keys and files, under numbers that mean nothing."""
    numbers = {site: 101 * (i + 3) for i, site in enumerate(SITES[::-1])}
    silos = settings.run.parent / "silos"
    nodes = {n: {"silo": str(silos / site / "silo.toml")} for site, n in numbers.items()}
    keys = {n: read_public_key(settings.silos[site]) for site, n in numbers.items()}
    return LocalGrid(app, nodes, lose=lose, keys=keys), numbers


def events(settings, run):
    return list(read_journal(settings.out / "journal.jsonl", run))


def test_a_run_ends_in_the_embedded_engine_s_bytes(laid, tmp_path):
    carry_out(grid(laid)[0], laid, run="7")
    embedded(tmp_path / "here")
    assert digests(laid.out) == digests(tmp_path / "here")
    lines = events(laid, "7")
    assert [line["event"] for line in lines] == [
        *("waiting", "enrolling", "started"),
        *["round"] * 4,
        "finished",
    ]
    assert [line["counted"] for line in lines if line["event"] == "round"][1:] == [[*SITES]] * 3


def test_who_is_left_out_is_in_the_journal_and_the_next_attempt_goes_on(laid, tmp_path):
    carried = []

    def dying(node, message):
        """North is gone after the first round of training; then everybody."""
        kind = json.loads(from_records(message.content)[1].text)["kind"]
        carried.append(kind)
        trained = carried.count("train")
        return trained > 3 and (node == numbers["north"] or trained > 6)

    flaky, numbers = grid(laid, lose=dying)
    with pytest.raises(FederationError, match="at least 2 must"):
        carry_out(flaky, laid.model_copy(update={"deadline": 0.3}), run="1")
    lines = events(laid, "1")
    assert lines[-1]["event"] == "failed"
    said = [line["message"] for line in lines if line["event"] == "warning"]
    assert "north is left out: no answer before the deadline" in said
    carry_out(grid(laid)[0], laid, run="2")
    started = next(line for line in events(laid, "2") if line["event"] == "started")
    assert started["round"] >= 1
    assert events(laid, "2")[-1] == events(laid, "2")[-1] | {"event": "finished", "rounds": 3}


def test_a_node_without_an_enrolled_key_does_not_exist(laid):
    strange, numbers = grid(laid)
    strange.keys[numbers["west"]] = b"another key"
    with pytest.raises(FederationError, match="missing: west"):
        carry_out(strange, laid.model_copy(update={"minimum": 3}), run="1")
    assert events(laid, "1")[-1]["event"] == "failed"


def test_a_torn_line_waits_until_it_is_whole(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert list(read_journal(path, "1")) == []
    path.write_text('{"run": "1", "event": "a"}\n{"run": "2", "event": "x"}\n{"run": "1", "ev')
    assert [line["event"] for line in read_journal(path, "1")] == ["a"]
    with path.open("a") as file:
        file.write('ent": "b"}\n')
    assert [line["event"] for line in read_journal(path, "1", 1)] == ["b"]


def test_a_line_that_a_full_disk_tore_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, "1").add("warning", message="ends in \u2028 and \x85 lines")
    with path.open("ab") as file:
        file.write('{"run": "1", "event": "Zoë'.encode()[:-1])
    assert [line["event"] for line in read_journal(path, "1")] == ["warning"]
    Journal(path, "2").add("waiting")
    assert [line["event"] for line in read_journal(path, "1")] == ["warning"]
    assert [line["event"] for line in read_journal(path, "2")] == ["waiting"]


def test_progress_says_who_and_how_far(laid, capsys):
    carry_out(grid(laid)[0], laid, run="7")
    with JournalProgress(Console(file=io.StringIO()), quiet=False) as progress:
        for line in events(laid, "7"):
            progress(line)
        progress({"event": "warning", "message": "west is left out: it went offline"})
    said = capsys.readouterr().err
    assert "waiting for east, north, west" in said
    assert "training with east, north, west" in said
    assert "round 3/3  loss 0." in said
    assert "warning: west is left out" in said
