"""Runs with a policy: clients are silos in this process, and tell what it allows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import federations as fed
import mfairfl
from mfairfl.data import table_from_frame
from mfairfl.errors import ConfigError
from mfairfl.models import MLP
from mfairfl.silo.ledger import Ledger
from mfairfl.silo.policy import OPEN, Disclosure, Policy, policy_sha256, policy_text

SITES = {"east": 160, "north": 260, "west": 150}
HOW = {"rounds": 2, "local_epochs": 1, "hidden": (4,), "batch_size": 64, "seed": 3}
FLOOR = 10


def table():
    """In north a hundred people are of a third sex, in west twelve: too few by age and label."""
    rows = fed.people(sites=SITES)
    for site, count in (("north", 100), ("west", 12)):
        rows.loc[np.flatnonzero(rows["site"] == site)[:count], "sex"] = "X"
    return table_from_frame(rows, fed.TASK, name="people")


def weights(run):
    return run.predictor.served.members.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mfairfl", "fedavg"])
def test_with_nothing_withheld_a_run_has_the_bytes_of_one_without_silos(tmp_path, strategy):
    plain = mfairfl.train(table(), strategy=strategy, **HOW)
    found = mfairfl.train(table(), strategy=strategy, policy=OPEN, out=tmp_path / "run", **HOW)
    assert weights(found) == weights(plain)
    assert found.metrics == plain.metrics
    assert found.predictor.encoder == plain.predictor.encoder
    frame = fed.people()
    assert np.array_equal(found.predictor.predict(frame), plain.predictor.predict(frame))
    for own in found.record.federation.disclosure.values():
        assert (own.min_rows, own.policy_sha256) == (1, policy_sha256(OPEN))
        assert not own.withheld


@pytest.mark.parametrize("settings", [{"every": 2}, {"every": 2, "scope": "local"}])
def test_silos_agree_to_the_dead_zone_that_follows_from_everybodys_rows(settings):
    how = HOW | {"local_epochs": 6, "tolerance": 0.9}
    how |= {f"strategy.{key}": value for key, value in settings.items()}
    plain = mfairfl.train(table(), strategy="mfairfl", **how)
    found = mfairfl.train(table(), strategy="mfairfl", policy=OPEN, **how)
    assert 0.45 < plain.record.served.dead_zone < 0.9
    assert found.record.served == plain.record.served
    assert weights(found) == weights(plain)


def test_by_default_few_rows_are_withheld_and_the_record_says_so(tmp_path):
    out = tmp_path / "run"
    run = mfairfl.train(table(), policy=Policy(), out=out, **HOW)
    assert run.path == out
    assert np.isfinite(np.frombuffer(weights(run), np.float32)).all()
    said = json.loads((out / "run.json").read_text())["federation"]["disclosure"]
    assert sorted(said) == sorted(SITES)
    for own in said.values():
        assert own["min_rows"] == FLOOR
        assert own["policy_sha256"] == policy_sha256(Policy())
    train = [one for one in said["west"]["withheld"] if one["split"] == "train"]
    few = {(one["cell"]["sex"], one["cell"]["age"], one["label"]) for one in train}
    assert few >= {("X", age, label) for age in ("old", "young") for label in (0, 1)}
    north = [one for one in said["north"]["withheld"] if one["split"] == "train"]
    assert "X" not in {one["cell"]["sex"] for one in north}
    assert said["west"]["rows_withheld"]["train"] >= FLOOR
    # Each client has a ledger of its own, with no refusal in it.
    for site in SITES:
        lines = Ledger(out / "silos" / site / "state").read().lines
        assert {"profile", "sums", "encode", "train", "measure"} <= {line.kind for line in lines}
        assert not [line.refusal for line in lines if line.refusal]
        told = [one for line in lines for one in line.row_sets if one.rows]
        assert min(one.smallest for one in told) >= FLOOR
        trained = {one.what for line in lines if line.kind == "train" for one in line.row_sets}
        assert trained == {"groups and labels of train rows"}


def test_a_finished_run_is_returned_as_it_is(tmp_path):
    out = tmp_path / "run"
    first = mfairfl.train(table(), policy=Policy(), out=out, **HOW)
    ledgers = [path.read_bytes() for path in sorted(out.rglob("ledger.jsonl"))]
    watch = fed.Watch()
    again = mfairfl.train(table(), policy=Policy(), out=out, callbacks=[watch], **HOW)
    assert weights(again) == weights(first)
    assert again.record == first.record
    assert [path.read_bytes() for path in sorted(out.rglob("ledger.jsonl"))] == ledgers
    assert not watch.records


@pytest.mark.slow
def test_a_run_that_was_stopped_is_resumed(tmp_path):
    class Stop(Exception):  # noqa: N818 - no error
        pass

    class Stopping:
        def on_start(self, setup, state):
            pass

        def on_round(self, setup, state, record):
            raise Stop

    whole = mfairfl.train(table(), policy=Policy(), out=tmp_path / "whole", **HOW)
    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        mfairfl.train(table(), policy=Policy(), out=out, callbacks=[Stopping()], **HOW)
    resumed = mfairfl.train(table(), policy=Policy(), out=out, **HOW)
    assert weights(resumed) == weights(whole)


def test_without_a_folder_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = mfairfl.train(table(), policy=OPEN, **HOW)
    assert run.path is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        (
            fed.people_federation,
            {"hidden": None},
            "policy: clients with a policy are files of rows; pass a Table or a frame",
        ),
        (
            table,
            {"model": MLP, "hidden": None},
            "policy: clients build the model by name; pass model='package.module:Name'",
        ),
    ],
)
def test_what_silos_cannot_have_is_refused_in_one_line(tmp_path, rows, more, message):
    with pytest.raises(ConfigError) as caught:
        mfairfl.train(rows(), policy=Policy(), out=tmp_path / "run", **HOW | more)
    assert str(caught.value) == message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [3, {"min_rows": 1}, True])
def test_another_thing_than_a_policy_is_refused(wrong):
    with pytest.raises(ConfigError, match=re.escape("policy")):
        mfairfl.train(table(), policy=wrong, **HOW)


def test_a_policy_is_read_from_a_file(tmp_path):
    path = tmp_path / "policy.toml"
    policy = Policy(disclosure=Disclosure(min_rows=12))
    path.write_text(policy_text(policy))
    run = mfairfl.train(table(), policy=path, **HOW)
    for own in run.record.federation.disclosure.values():
        assert (own.min_rows, own.policy_sha256) == (12, policy_sha256(policy))
