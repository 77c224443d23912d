"""A revoked key: written down for good, and set aside by every run."""

from __future__ import annotations

import json
import threading

import pytest
from consortium import SITES, config, write_files

from grids import LocalGrid
from mfairfl.cli import main
from mfairfl.deployment.coordinator_app import carry_out
from mfairfl.deployment.journal import read_journal
from mfairfl.deployment.keys import add_revocation, make_key, read_public_key, read_revocations
from mfairfl.deployment.local import write_deployment
from mfairfl.deployment.settings import load_federation
from mfairfl.deployment.silo_app import app
from mfairfl.errors import ConfigError, FederationError
from mfairfl.flower.records import from_records
from mfairfl.runs.record import RunRecord


@pytest.fixture
def file(tmp_path):
    return write_deployment(config(), tmp_path / "run", silos=write_files(tmp_path), deadline=5)


def revoked(file):
    return {one.silo: one for one in read_revocations(load_federation(file).revoked).values()}


def grid(settings, lose=lambda node, message: False):
    silos = settings.run.parent / "silos"
    nodes = {n: {"silo": str(silos / site / "silo.toml")} for n, site in enumerate(SITES, 7)}
    keys = {n: read_public_key(settings.silos[site]) for n, site in enumerate(SITES, 7)}
    return LocalGrid(app, nodes, lose=lose, keys=keys)


# The command


def test_the_key_is_written_beside_the_federation_once(file, capsys):
    assert main(["deploy", "revoke", "west", str(file)]) == 0
    assert "west: its key is revoked since 20" in capsys.readouterr().out
    first = revoked(file)
    assert first["west"].key.encode() == read_public_key(load_federation(file).silos["west"])
    assert (file.parent / "revoked.json").exists()
    assert main(["deploy", "revoke", "west", str(file)]) == 0  # again: nothing changes
    assert revoked(file) == first


def test_default_file_is_federation_toml(file, monkeypatch, capsys):
    monkeypatch.chdir(file.parent)
    assert main(["deploy", "revoke", "east"]) == 0
    assert "no server is running here, the next one refuses it" in capsys.readouterr().out
    assert list(revoked(file)) == ["east"]


def test_an_unknown_name_is_refused_in_one_line(file, capsys):
    assert main(["deploy", "revoke", "wset", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "federation.toml: unknown silo 'wset': did you mean 'west'?" in said
    assert revoked(file) == {}


def test_a_silo_that_left_the_file_stays_revoked(file):
    main(["deploy", "revoke", "west", str(file)])
    text = file.read_text().replace("minimum = 3", "minimum = 2")
    file.write_text("".join(line for line in text.splitlines(True) if "west" not in line))
    assert main(["deploy", "revoke", "west", str(file)]) == 0
    assert list(revoked(file)) == ["west"]


def test_the_doctor_names_it(file, capsys):
    main(["deploy", "revoke", "west", str(file)])
    main(["doctor", str(file)])
    assert "revoked keys, which stay out: west" in capsys.readouterr().out


# The record


def test_a_revoked_key_cannot_come_back_under_another_name(file):
    main(["deploy", "revoke", "west", str(file)])
    file.write_text(file.read_text().replace("west =", "brandnew ="))
    with pytest.raises(ConfigError, match="this key was revoked, as that of 'west'") as caught:
        load_federation(file).members()
    assert "\n" not in str(caught.value)


def test_with_a_new_key_a_silo_comes_back(file):
    main(["deploy", "revoke", "west", str(file)])
    key = load_federation(file).silos["west"].with_suffix("")
    for path in (key, key.with_suffix(".pub")):
        path.unlink()
    make_key(key)
    settings = load_federation(file)
    assert settings.members()[read_public_key(settings.silos["west"])] == "west"
    assert not settings.revoked_keys() & set(settings.members())


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"silo": "west"}]', "\xff"])
def test_damaged_record_is_an_error_of_one_line(file, text):
    path = load_federation(file).revoked
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"revoked\.json: damaged .* revoke the keys again") as e:
        load_federation(file).members()
    assert "\n" not in str(e.value)


def test_concurrent_revocations_are_both_recorded(tmp_path):
    names = [f"silo{i}" for i in range(8)]
    path = tmp_path / "revoked.json"
    threads = [
        threading.Thread(target=add_revocation, args=(path, name, name.encode())) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.silo for one in read_revocations(path).values()) == names


# The run


def test_the_next_run_goes_on_without_it_and_says_why(file):
    main(["deploy", "revoke", "west", str(file)])
    settings = load_federation(file).model_copy(update={"minimum": 2, "wait": 1000.0})
    carry_out(grid(settings), settings, run="1")  # nobody waits for it
    record = RunRecord.read(settings.out)
    assert "west stays out: its key was revoked" in record.federation.warnings
    assert [client.name for client in record.federation.clients] == ["east", "north"]


def test_a_running_run_sets_it_aside_at_once(file):
    settings = load_federation(file).model_copy(update={"minimum": 2, "wait": 0.0})
    trained = []

    def revoke_in_the_second_round(node, message):
        """West's key is revoked after its second training was asked for."""
        kind = json.loads(from_records(message.content)[1].text)["kind"]
        trained.extend([node] if kind == "train" else [])
        if trained.count(9) == 2:
            add_revocation(settings.revoked, "west", read_public_key(settings.silos["west"]))
        return False

    carry_out(grid(settings, lose=revoke_in_the_second_round), settings, run="1")
    lines = list(read_journal(settings.out / "journal.jsonl", "1"))
    said = [line["message"] for line in lines if line["event"] == "warning"]
    assert "west is left out: its key was revoked" in said
    counted = [line["counted"] for line in lines if line["event"] == "round"]
    assert counted[1:] == [[*SITES], ["east", "north"], ["east", "north"]]
    assert trained.count(9) == 2  # it is not asked again


def test_too_few_are_left(file):
    main(["deploy", "revoke", "west", str(file)])
    settings = load_federation(file).model_copy(update={"wait": 1000.0})
    with pytest.raises(FederationError, match=r"missing: west \(its key was revoked\)"):
        carry_out(grid(settings), settings, run="1")
