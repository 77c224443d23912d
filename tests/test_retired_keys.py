"""Keys that earlier versions had are refused in one line that says what is no longer done."""

from __future__ import annotations

import json

import pytest

import federations as fed
import mfairfl
from mfairfl.deployment.settings import load_federation
from mfairfl.errors import ConfigError
from mfairfl.report import build_report
from mfairfl.runs.record import read_record
from mfairfl.silo.policy import load_policy
from mfairfl.silo.silo_file import load_silo

NO_MASKS = (
    "version 0.8 has no masks; the coordinator sees each silo's answers by itself and must be "
    "trusted with them (docs/what-leaves.md); remove it"
)
SMALL = {"rounds": 1, "hidden": (4,), "strategy": "fedavg"}
FEDERATION = 'run = "run.toml"\nout = "run"\nminimum = 1\n[silos]\na = "a.pub"\n'


def refusal(load, *arguments, **options):
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **options)
    return str(caught.value)


def test_members_of_a_silo(tmp_path):
    path = tmp_path / "silo.toml"
    path.write_text('name = "a"\ncsv = "a.csv"\nstate = "s"\nmembers = "members"\n')
    assert refusal(load_silo, path) == f"{path}: members: {NO_MASKS}"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("masked = true\n", "masked"),
        ('members = "members"\n', "members"),
        ("[disclosure]\nmasked = false\n", "disclosure.masked"),
        ('[disclosure]\nmembers = "members"\n', "disclosure.members"),
    ],
)
def test_masks_in_a_policy(tmp_path, text, key):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    assert refusal(load_policy, tmp_path / "silo.toml") == f"{path}: {key}: {NO_MASKS}"


@pytest.mark.parametrize("value", ["true", "false"])
def test_masked_in_the_settings_of_a_run(tmp_path, value):
    path = tmp_path / "run.toml"
    path.write_text(f"masked = {value}\n")
    said = refusal(mfairfl.train, fed.people_table(), config=path, **SMALL)
    assert said == f"{path}: masked: {NO_MASKS}"
    (tmp_path / "federation.toml").write_text(FEDERATION)
    said = refusal(load_federation(tmp_path / "federation.toml").config)
    assert said == f"{path}: masked: {NO_MASKS}"


def test_masked_in_a_mapping(tmp_path):
    for config in ({"masked": True}, {"masked": False}):
        said = refusal(mfairfl.train, fed.people_table(), config=config, **SMALL)
        assert said.endswith(f": masked: {NO_MASKS}")


@pytest.mark.parametrize("value", [True, False])
def test_masked_as_a_keyword(value):
    said = refusal(mfairfl.train, fed.people_table(), masked=value, **SMALL)
    assert said == f"masked: {NO_MASKS}"


def test_masked_audits(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text(FEDERATION + "[audit]\nmasked = true\n")
    assert refusal(load_federation, path) == f"{path}: audit.masked: {NO_MASKS}"


# ------------------------------------------------------------------ records are no settings


@pytest.fixture
def run(tmp_path):
    mfairfl.train(fed.people_table(), out=tmp_path / "run", **SMALL)
    return tmp_path / "run"


def as_written_by_0_7(folder, *, masked):
    """Give run.json the keys that 0.7 wrote into every record."""
    path = folder / "run.json"
    plain = json.loads(path.read_text())
    plain["config"]["masked"] = masked
    plain["client_tallies"] = plain["tallies"] if masked else {}
    path.write_text(json.dumps(plain))


@pytest.mark.parametrize("masked", [False, True])
def test_a_run_of_0_7_is_read_loaded_and_reported(run, masked):
    before, frame = read_record(run), fed.people()
    decided = mfairfl.load(run).predict(frame)
    lines = build_report([run]).server.lines
    as_written_by_0_7(run, masked=masked)
    assert read_record(run).metrics == before.metrics
    assert (mfairfl.load(run).predict(frame) == decided).all()
    seen = build_report([run]).server
    assert seen.lines == ([] if masked else lines)
    assert seen.sentence.startswith("Silos sent counts by group as sums" if masked else "All rows")
