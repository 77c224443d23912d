"""Runs over silos without a policy.toml, one of them with a group of few rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import federations as fed
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.coordinator.transport import drive
from mfairfl.data import SPLITS, Task
from mfairfl.errors import MessageError
from mfairfl.fairness.constraints import Goal
from mfairfl.silo.policy import Policy, policy_sha256
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies.base import Summary
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import make_packet

FLOOR = 10
TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
TERMS = EnrolmentTerms(task=TASK, seed=3, model=ModelTerms(hidden=(4,)), validation=0.1)
SITES = {"east": 300, "north": 260, "west": 280}


class Silos:
    """Every message reaches a new process; any refusal is an error, every message is kept."""

    def __init__(self, settings, run="run-1"):
        self._settings, self._run = settings, run
        self.asked, self.said = [], []

    def exchange(self, asks):
        self.asked += [(name, *packet.request) for name, packet in asks.items()]
        found = {
            name: Responder(self._settings[name]).handle(self._run, packet)
            for name, packet in asks.items()
        }
        self.said += found.values()
        return found


@pytest.fixture
def frame():
    """In west 12 people are of a third sex, 4 of them hired, and two of one that nobody names."""
    rows = fed.people(sites=SITES)
    west = np.flatnonzero(rows["site"] == "west")
    rows.loc[west[:12], "sex"] = "X"
    rows.loc[west[:12], "hired"] = ["yes"] * 4 + ["no"] * 8
    rows.loc[west[12:14], "sex"] = "rarest"
    return rows


@pytest.fixture
def silos(frame, tmp_path):
    found = {}
    for site, rows in frame.groupby("site"):
        path = tmp_path / f"{site}.csv"
        rows.drop(columns="site").to_csv(path, index=False)
        found[site] = SiloSettings(name=site, csv=path, state=tmp_path / "state" / site)
    return found


def enrolled(silos, run="run-1"):
    transport = Silos(silos, run)
    return enrol(transport, list(silos), TERMS, minimum=3), transport


def summary_of(found):
    return Summary(
        counts=found.counts["train"],
        attributes=found.attributes,
        goal=Goal(attributes=("sex",)),
        withheld={name: own.rows["train"] for name, own in found.disclosure.items()},
    )


def test_what_is_withheld_is_said_and_nothing_more_is_told(frame, silos):
    found, transport = enrolled(silos)
    assert found.refused == {}
    assert found.attributes[0].groups == ("F", "M", "X", "?")
    for name, own in found.disclosure.items():
        assert (own.floor, own.policy) == (FLOOR, policy_sha256(Policy()))
        rows = frame[frame["site"] == name]
        assert sum(found.rows(name, split) for split in SPLITS) == len(rows)
        for split in SPLITS:
            counts = found.counts[split][name]
            assert (counts[counts > 0] >= FLOOR).all()
            assert own.rows[split] == 0 or own.rows[split] >= FLOOR
            assert all(counts[pair] == 0 for pair in own.hidden[split])
            assert own.hidden[split] or not own.rows[split]
    west = found.disclosure["west"]
    small = {(2, 0), (2, 1)}  # X, by label; 12 rows in all
    assert small <= set(west.hidden["train"])
    assert any(cell == 3 for cell, _ in west.hidden["train"])  # the two whose sex is not named
    assert not any("rarest" in packet.text for packet in transport.said)


@pytest.mark.parametrize("name", ["mfairfl", "fedfb", "fairfed", "scaffold", "qffl"])
def test_a_run_goes_through_and_measures_nothing_that_is_withheld(silos, name):
    found, _ = enrolled(silos)
    summary, inputs = summary_of(found), len(found.encoder.feature_names)
    setup = fed.enrolled_setup(name, summary, inputs, SPLITS, TERMS)
    state, transport, watch = fed.first(setup), Silos(silos), fed.Watch()
    result = drive(setup, state, transport, minimum=3, callbacks=[watch])
    assert result.left_out == {}
    assert np.isfinite(state.weights).all()
    assert np.abs(state.weights - fed.first(setup).weights).max() > 1e-4

    for reply in transport.said:  # every number of an answer about cells is 0 there
        for key, array in reply.arrays.items():
            if json.loads(reply.text)["kind"] == "measured":
                rows = array[0]
                assert (rows[rows > 0] >= FLOOR).all(), key
    for measured in result.measured:
        for split, clients in measured.items():
            for client, sums in clients.items():
                assert np.array_equal(sums.counts, found.counts[split][client])
    shares = [found.rows(client, "train") for client in sorted(SITES)]
    assert summary.rows("west") > summary.counts["west"].sum()
    assert dict(zip(sorted(SITES), shares, strict=True)) == {
        c: summary.rows(c) for c in sorted(SITES)
    }


def test_a_second_run_is_told_the_same_whatever_its_seed(silos):
    first, _ = enrolled(silos)
    again, _ = enrolled(silos, "run-2")
    other = enrol(
        Silos(silos, "run-3"),
        list(silos),
        EnrolmentTerms(task=TASK, seed=99, model=ModelTerms(hidden=(4,)), validation=0.1),
        minimum=3,
    )
    for run in (again, other):
        assert run.disclosure == first.disclosure
        assert run.sha256 == first.sha256
        assert run.encoder == first.encoder
        for split in SPLITS:
            for name in SITES:
                assert np.array_equal(run.counts[split][name], first.counts[split][name])


def test_a_file_with_a_row_more_is_not_answered(silos):
    enrolled(silos)
    path = silos["east"].csv
    rows = pd.read_csv(path)
    rows.iloc[1:].to_csv(path, index=False)
    header = {"task": TASK.model_dump(mode="json"), "seed": 1, "test": 0.2, "validation": 0.1}
    with pytest.raises(MessageError) as caught:
        Responder(silos["east"]).handle("run-2", make_packet("sums", header))
    assert "(disclosure.versions of its policy.toml)" in str(caught.value)


def test_only_the_kinds_that_a_silo_lists_are_answered(silos):
    profile = make_packet("profile", {"task": TASK.model_dump(mode="json")})
    east = Responder(silos["east"], fed.policy(kinds=("audit",)))
    with pytest.raises(MessageError) as caught:
        east.handle("run-1", profile)
    assert str(caught.value) == (
        "'profile' messages are not answered (disclosure.kinds of its policy.toml)"
    )
    assert not (silos["east"].state / "run-1").exists()
    assert Responder(silos["east"], fed.policy(kinds=("profile",))).handle("run-1", profile)


def test_rounds_of_a_run_have_an_end(silos):
    found, _ = enrolled(silos)
    size = fed.enrolled_setup(
        "fedavg", summary_of(found), len(found.encoder.feature_names), SPLITS, TERMS
    ).size
    job = {"client": "east", "plan": {"epochs": 1, "batch_size": 16}}
    east = Responder(silos["east"], fed.policy(min_rows=FLOOR, rounds=2))
    arrays = {"server": np.zeros(size, np.float32)}
    assert east.handle("run-1", make_packet("train", {"round": 1, "jobs": [job]}, arrays))
    with pytest.raises(MessageError, match=r"3 rounds of training: .* \(disclosure\.rounds"):
        east.handle("run-1", make_packet("train", {"round": 2, "jobs": [job]}, arrays))
