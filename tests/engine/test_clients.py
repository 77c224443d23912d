"""What clients keep between rounds, in memory and on disk; and a client that answers alone."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from answers import one_line
from mfairfl.engine.clients import DiskSlots, MemorySlots, SoleClient
from mfairfl.engine.state import Measure, Score, Train
from mfairfl.errors import CheckpointError
from mfairfl.training.plan import Job


def held(*values):
    return {"personal": np.array(values, np.float32)}


def values(slots):
    return {name: array.tolist() for name, array in slots.items()}


# ------------------------------------------------------------------ slots


def test_slots_of_the_last_two_rounds_are_kept(tmp_path):
    store = DiskSlots(tmp_path)
    for round_ in range(5):
        store.keep(round_, "east", held(round_, round_))
    again = DiskSlots(tmp_path)
    assert values(again.read("east")) == {"personal": [4, 4]}
    assert values(again.read("east", before=4)) == {"personal": [3, 3]}
    assert again.read("east", before=3) == {}
    assert len(list(tmp_path.iterdir())) == 2
    again.keep(3, "east", held(9, 9))  # a server that is behind
    assert values(again.read("east")) == {"personal": [9, 9]}
    assert values(DiskSlots(tmp_path).read("east")) == {"personal": [9, 9]}
    assert again.read("east", before=3) == {}


def test_nothing_is_held_before_the_first_round_and_nothing_is_written_for_it(tmp_path):
    store = DiskSlots(tmp_path / "new" / "folder")
    assert store.read("east") == {}
    assert store.read("east", before=0) == {}
    store.keep(0, "east", {})
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_a_client_that_stayed_away_finds_what_it_last_held(tmp_path):
    store = DiskSlots(tmp_path)
    store.keep(1, "east", held(1))
    assert values(store.read("east", before=7)) == {"personal": [1]}
    assert store.read("east", before=1) == {}


def test_what_is_changed_afterwards_is_not_what_was_kept(tmp_path):
    store = DiskSlots(tmp_path)
    slots = held(1.0)
    store.keep(0, "east", slots)
    slots["more"] = np.zeros(1, np.float32)
    store.read("east", before=1)["other"] = np.zeros(1, np.float32)
    assert set(store.read("east")) == set(DiskSlots(tmp_path).read("east")) == {"personal"}


def test_types_and_shapes_survive_the_disk(tmp_path):
    slots = {
        "personal": np.arange(6, dtype=np.float32)[::2],  # not contiguous
        "multipliers": np.array([[0.1, -2.0], [3.0, 1e-300]]),
    }
    DiskSlots(tmp_path).keep(0, "east", slots)
    found = DiskSlots(tmp_path).read("east")
    for name, array in slots.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def test_a_damaged_slot_file_is_named(tmp_path):
    store = DiskSlots(tmp_path)
    store.keep(0, "east", held(1, 1, 1))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(CheckpointError) as caught:
        DiskSlots(tmp_path)
    assert one_line(caught) == (
        f"{path}: its SHA-256 does not match: the file is damaged; restore it, or delete "
        f"{tmp_path}: the client then starts afresh"
    )


def test_no_single_byte_of_a_slot_can_change_unnoticed(tmp_path):
    """Not even of the newest: the one before would be other numbers."""
    store = DiskSlots(tmp_path)
    store.keep(0, "east", held(1, 1, 1))
    store.keep(1, "east", {"personal": np.arange(4.0), "seen": np.array([True])})
    path = tmp_path / "round-000001.safetensors"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 + at % 255)]) + whole[at + 1 :])
        with pytest.raises(CheckpointError, match="round-000001"):
            DiskSlots(tmp_path)
        path.write_bytes(whole[:at])
        with pytest.raises(CheckpointError, match="round-000001"):
            DiskSlots(tmp_path)
    path.write_bytes(whole)
    assert values(DiskSlots(tmp_path).read("east"))["personal"] == [0, 1, 2, 3]


def test_only_the_owner_reads_slots(tmp_path):
    before = os.umask(0)
    try:
        DiskSlots(tmp_path / "slots").keep(0, "east", held(1))
    finally:
        os.umask(before)
    (path,) = (tmp_path / "slots").iterdir()
    assert [p.stat().st_mode & 0o777 for p in (path.parent, path)] == [0o700, 0o600]


def test_slots_in_memory_are_those_of_the_run_state():
    state = {"east": held(1)}
    store = MemorySlots(state)
    assert values(store.read("east")) == {"personal": [1]}
    assert store.read("west") == store.read("west", before=0) == {}
    store.read("east", before=0)["other"] = np.zeros(1)
    assert set(state["east"]) == {"personal"}
    store.keep(3, "west", held(2))
    assert values(state["west"]) == {"personal": [2]}


# ------------------------------------------------------------------ one client alone


@pytest.fixture
def setup(federation):
    return fed.setup_for(federation)


@pytest.fixture(params=["memory", "disk"])
def alone(request, federation, setup, tmp_path):
    """West, answering for itself."""
    client = next(c for c in federation.clients if c.name == "west")
    slots = MemorySlots({}) if request.param == "memory" else DiskSlots(tmp_path)
    return SoleClient(client, fed.model_of(setup), federation.attributes, setup.seed, slots)


def asked(setup, round_):
    """An update from the server's weights, and a model of west's own that stays there."""
    plan = setup.recipe.plan(round_, setup.rounds)
    pulled = replace(plan, proximal=0.5)
    jobs = (
        Job(client="west", plan=plan),
        Job(client="west", plan=pulled, start="personal", keep="personal", send=False),
    )
    return Train(round_, {"west": fed.first(setup).weights + np.float32(0.1 * round_)}, jobs)


def test_it_answers_as_it_does_among_others(federation, setup, alone):
    together, state = fed.clients_and_state(setup, federation)
    for round_ in range(3):
        ask = asked(setup, round_)
        (ours,), (theirs,) = alone.answer(ask), together.answer({0: ask})[0]["west"]
        assert ours.client == theirs.client == "west"
        assert np.array_equal(ours.update, theirs.update)
        for slot in (None, "personal"):
            measure = Measure((ask.weights["west"], state.weights), ("train", "test"), slot=slot)
            among_others = together.answer({0: measure})[0]["west"]
            for found, expected in zip(alone.answer(measure), among_others, strict=True):
                for split in ("train", "test"):
                    for name in ("counts", "positives", "scores", "losses"):
                        sums = getattr(found[split], name)
                        assert np.array_equal(sums, getattr(expected[split], name))
    members, shares = np.stack([state.weights, state.weights + 1]), np.array([0.3, 0.7])
    both = ("train", "test")
    for score in [
        Score(state.weights, ("train",)),
        Score(state.weights, both, slot="personal"),
        Score(members, both, shares),
        Score(members, both, shares, drawn=True),
    ]:
        among_others = together.answer({0: score})[0]["west"]
        for split, found in alone.answer(score).items():
            expected = among_others[split]
            assert np.array_equal(found.histogram.counts, expected.histogram.counts)
            for name in ("rows", "sums", "losses"):
                assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_a_round_that_is_asked_again_starts_where_it_started(federation, setup, tmp_path):
    """On disk; a personal model would otherwise be trained twice."""
    client = next(c for c in federation.clients if c.name == "west")
    slots = DiskSlots(tmp_path)
    make = (client, fed.model_of(setup), federation.attributes, setup.seed)
    alone = SoleClient(*make, slots)
    alone.answer(asked(setup, 0))
    alone.answer(asked(setup, 1))
    once = slots.read("west")["personal"].tobytes()
    SoleClient(*make, DiskSlots(tmp_path)).answer(asked(setup, 1))
    assert DiskSlots(tmp_path).read("west")["personal"].tobytes() == once


def test_a_job_that_sends_nothing_is_answered_with_nothing(setup, alone):
    job = Job(client="west", plan=setup.recipe.plan(0, 1), keep="personal", send=False)
    start = fed.first(setup).weights
    assert alone.answer(Train(0, {"west": start}, (job,))) == []
    (kept,) = alone.answer(Measure((start,), ("train",), slot="personal"))
    (plain,) = alone.answer(Measure((start,), ("train",)))
    assert kept["train"].losses.sum() < plain["train"].losses.sum()
