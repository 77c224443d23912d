"""Clients that answer for themselves: the embedded engine's bits, and slots that survive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.loop import federate, first_state
from mfairfl.engine.messages import Shape, pack_answer, pack_ask, unpack_answer, unpack_ask
from mfairfl.engine.output import Output
from mfairfl.engine.silo import Silo, SlotStore
from mfairfl.engine.state import Score, Train
from mfairfl.errors import CheckpointError
from mfairfl.fairness.cells import Cells
from mfairfl.strategies import available, create

PEOPLE = fed.people_federation(validation=0.2)
FEDERATED = [name for name in available() if create(name).card.trains_on == "clients"]


def setup_of(name, rounds=3):
    setup = fed.setup_for(PEOPLE, name, rounds=rounds)
    return replace(setup, output=Output(rule=create(name).card.output or "last"))


def silos_of(setup, folder):
    """Every client by itself, with its slots on its own disk."""
    return {
        client.name: Silo(
            client, setup.model, PEOPLE.attributes, setup.seed, SlotStore(folder / client.name)
        )
        for client in PEOPLE.clients
    }


def ask_all(silos, ask, shape):
    """Send a request to every client and put the answers together as the loop wants them."""
    found = {}
    for name, silo in silos.items():
        if isinstance(ask, Train) and not any(job.client == name for job in ask.jobs):
            continue
        said = silo.answer(unpack_ask(pack_ask(ask, name), name, shape))
        found[name] = unpack_answer(pack_answer(said), ask, name, shape)
    if isinstance(ask, Train):
        return [report for said in found.values() for report in said]
    if isinstance(ask, Score):
        return found
    return tuple(
        {split: {name: said[i][split] for name, said in found.items()} for split in ask.splits}
        for i in range(len(ask.weights))
    )


def rounds_of(setup, silos, state):
    """Run the loop until it ends."""
    shape = Shape(setup.model.size, Cells(PEOPLE.attributes).size)
    loop = federate(setup, state)
    ask = next(loop)
    while True:
        try:
            ask = loop.send(ask_all(silos, ask, shape))
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("name", FEDERATED)
def test_silos_end_where_the_embedded_engine_ends(name, tmp_path):
    setup = setup_of(name)
    embedded, watch = fed.run(setup, PEOPLE)
    state = first_state(setup)
    found = rounds_of(setup, silos_of(setup, tmp_path), state)
    assert np.array_equal(state.weights, watch.weights[-1])
    if setup.strategy.card.serves != "personal":  # those models never reach the server
        assert fed.bits(found) == fed.bits(embedded)


@pytest.mark.parametrize("name", ["ditto", "scaffold", "fedavg-f"])
def test_clients_that_restart_and_a_server_that_repeats_a_round_change_nothing(name, tmp_path):
    setup = setup_of(name)
    whole = first_state(setup)
    rounds_of(setup, silos_of(setup, tmp_path / "whole"), whole)
    # The server dies after clients have trained round 2 and takes up its state after round 1;
    # the clients are new processes with the same disk.
    stopped, copies = first_state(setup), []

    class Keep:
        def on_start(self, *_):
            pass

        def on_round(self, setup, state, record):
            copies.append(fed.dump(state, "x"))

    shape = Shape(setup.model.size, Cells(PEOPLE.attributes).size)
    silos, trained = silos_of(setup, tmp_path / "stopped"), 0
    loop = federate(setup, stopped, [Keep()])
    ask = next(loop)
    while trained < 2:
        trained += isinstance(ask, Train)
        answer = ask_all(silos, ask, shape)
        if trained < 2:
            ask = loop.send(answer)
    resumed = parse(copies[1], "x")
    assert resumed.round == 1
    resumed.slots = {}  # clients hold their own
    rounds_of(setup, silos_of(setup, tmp_path / "stopped"), resumed)
    assert np.array_equal(resumed.weights, whole.weights)


def test_a_damaged_slot_file_is_named(tmp_path):
    store = SlotStore(tmp_path)
    store.keep(0, {"personal": np.ones(3, np.float32)})
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(CheckpointError, match=r"round-000000\.safetensors: damaged"):
        SlotStore(tmp_path)


def test_slots_of_the_last_two_rounds_are_kept(tmp_path):
    store = SlotStore(tmp_path)
    for round_ in range(5):
        store.keep(round_, {"personal": np.full(2, round_, np.float32)})
    again = SlotStore(tmp_path)
    assert again.latest()["personal"].tolist() == [4, 4]
    assert again.before(4)["personal"].tolist() == [3, 3]
    assert again.before(3) == {}
    assert len(list(tmp_path.iterdir())) == 2
    again.keep(3, {"personal": np.full(2, 9, np.float32)})  # a server that is behind
    assert again.latest()["personal"].tolist() == [9, 9]
