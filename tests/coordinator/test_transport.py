"""Clients behind a transport: the embedded engine's bits, losses, and slots that survive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.coordinator.transport import drive, read_replies
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.clients import DiskSlots, SoleClient
from mfairfl.engine.defence import Standing
from mfairfl.engine.output import Output
from mfairfl.engine.state import Absent, Measure, Refusal, Score, Train
from mfairfl.errors import FederationError, MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.strategies import available, create
from mfairfl.wire.packing import Packet, pack
from mfairfl.wire.run_messages import Shape, answer_message, unpack_ask

PEOPLE = fed.people_federation(validation=0.2)
FEDERATED = [name for name in available() if create(name).card.trains_on == "clients"]


def setup_of(name, rounds=3):
    setup = fed.setup_for(PEOPLE, name, rounds=rounds)
    return replace(setup, output=Output(rule=create(name).card.output or "last"))


def silos_of(setup, folder, kind=SoleClient, federation=PEOPLE):
    """Every client by itself, with its slots on its own disk."""
    return {
        client.name: kind(
            client,
            fed.model_of(setup),
            federation.attributes,
            setup.seed,
            DiskSlots(folder / client.name),
        )
        for client in federation.clients
    }


class InProcess:
    """A transport within this process; `lost` says which messages get lost."""

    def __init__(self, silos, shape, lost=lambda client, ask: False):
        self._silos, self._shape, self._lost = silos, shape, lost

    def exchange(self, asks):
        found = {}
        for name, packet in asks.items():
            ask = unpack_ask(packet, name, self._shape)
            if not self._lost(name, ask):
                found[name] = pack(answer_message(self._silos[name].answer(ask)))
        return found


def shape_of(setup):
    return Shape(setup.size, Cells(PEOPLE.attributes).size)


def rounds_of(setup, silos, state, callbacks=(), **options):
    """Run the loop until it ends."""
    transport = InProcess(silos, shape_of(setup), **options)
    return drive(setup, state, transport, minimum=2, callbacks=callbacks)


@pytest.mark.parametrize("name", FEDERATED)
def test_silos_end_where_the_embedded_engine_ends(name, tmp_path):
    setup = setup_of(name)
    state = fed.first(setup)
    found = rounds_of(setup, silos_of(setup, tmp_path), state)
    fed.assert_equals_embedded(setup, state, found, fed.run(setup, PEOPLE))


@pytest.mark.parametrize("name", ["ditto", "scaffold", "fedavg-f"])
def test_clients_that_restart_and_a_server_that_repeats_a_round_change_nothing(name, tmp_path):
    setup = setup_of(name)
    whole = fed.first(setup)
    rounds_of(setup, silos_of(setup, tmp_path / "whole"), whole)
    # The server dies after clients have trained round 2 and takes up its state after round 1;
    # the clients are new processes with the same disk.
    watch = fed.Watch()

    def dies(client, ask):
        return not isinstance(ask, Train) and len(watch.dumps) == 2 and trained == {*silos}

    trained = set()

    class Watched:
        def __init__(self, client, *rest):
            self._name, self._client = client.name, SoleClient(client, *rest)

        def answer(self, ask):
            if isinstance(ask, Train) and ask.round == 1:
                trained.add(self._name)
            return self._client.answer(ask)

    silos = silos_of(setup, tmp_path / "stopped", kind=Watched)
    with pytest.raises(FederationError, match="0 of 4 clients answered and at least 2 must"):
        rounds_of(setup, silos, fed.first(setup), [watch], lost=dies)
    resumed = parse(watch.dumps[1], "watch")
    assert resumed.round == 1
    rounds_of(setup, silos_of(setup, tmp_path / "stopped"), resumed)
    assert np.array_equal(resumed.weights, whole.weights)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_client_that_is_away_for_a_round_comes_back(name, tmp_path):
    setup, watch = setup_of(name, rounds=4), fed.Watch()

    def away(client, ask):
        return client == "north" and isinstance(ask, Train) and ask.round == 1

    state = fed.first(setup)
    found = rounds_of(setup, silos_of(setup, tmp_path), state, [watch], lost=away)
    assert np.isfinite(state.weights).all()
    trained = [set(record.coefficients) for record in watch.records[1:]]
    if trained[0]:  # a constant trains nobody
        assert "north" in trained[0] & trained[2] & trained[3]
        assert "north" not in trained[1]
        assert watch.records[2].set_aside["north"] == "no answer before the deadline"
        assert state.standing.rounds == {"north": 1}  # it kept the others waiting
        assert state.standing.strikes == {}  # and was forgiven
    assert set(found.measured[0]["test"]) == set(fed.SITES)


def test_being_offline_does_not_count_against_a_client(tmp_path):
    setup, watch = setup_of("fedavg", rounds=5), fed.Watch()
    state = fed.first(setup)

    class Offline(InProcess):
        """West is away from the second round's training to the fifth round's."""

        def exchange(self, asks):
            away = 1 <= state.round <= 4 and len(watch.records) > 1
            reasons = {"west": Absent("it is not online")} if away else {}
            return super().exchange({n: a for n, a in asks.items() if n not in reasons}) | reasons

    transport = Offline(silos_of(setup, tmp_path), shape_of(setup))
    drive(setup, state, transport, minimum=2, callbacks=[watch])
    for record in watch.records[2:5]:
        assert record.set_aside == {"west": "it is not online"}
        assert "west" not in record.coefficients
    assert state.standing == Standing()


def test_who_keeps_missing_deadlines_is_suspended_and_asked_nothing(tmp_path):
    setup, watch, asked = setup_of("fedavg", rounds=10), fed.Watch(), []

    def late(client, ask):
        asked.append((client, len(watch.records), type(ask)))
        return client == "west" and isinstance(ask, Train)

    state = fed.first(setup)
    found = rounds_of(setup, silos_of(setup, tmp_path), state, [watch], lost=late)
    reasons = [record.set_aside.get("west") for record in watch.records[1:]]
    suspended = "suspended until round 9: its answers were refused"
    assert reasons == ["no answer before the deadline"] * 3 + [suspended] * 5 + [
        "no answer before the deadline",
        "suspended until round 20: its answers were refused",
    ]
    # Records 0 to 3 are there when the fourth round begins, 0 to 8 when the ninth does.
    rounds = {number for client, number, kind in asked if client == "west" and kind is Train}
    assert rounds == {1, 2, 3, 9}
    silent = {number for client, number, _ in asked if client == "west"}
    assert silent.isdisjoint(range(4, 8))
    # Once more at the end: the served model is measured by everyone.
    assert set(found.measured[0]["test"]) == set(fed.SITES)
    assert state.standing.suspended == {"west": 19}


def test_a_client_that_does_not_answer_a_measurement_is_not_asked_to_train(tmp_path):
    setup, watch, measured = setup_of("mfairfl", rounds=3), fed.Watch(), [0]

    def silent(client, ask):
        measured[0] += client == "east" and isinstance(ask, Measure)
        return client == "west" and isinstance(ask, Measure) and measured[0] == 2

    rounds_of(setup, silos_of(setup, tmp_path), fed.first(setup), [watch], lost=silent)
    assert "west" in watch.records[1].coefficients
    assert set(watch.records[1].measured["train"]) == {"east", "north", "south"}
    assert "west" not in watch.records[2].coefficients
    assert "west" in watch.records[3].coefficients


def test_a_client_with_a_wrong_answer_is_left_out(tmp_path, caplog):
    setup, watch = setup_of("fedavg", rounds=2), fed.Watch()
    silos = silos_of(setup, tmp_path)

    class Spoils(InProcess):
        def exchange(self, asks):
            found = super().exchange(asks)
            west = Refusal("ClientApp raised: disk full")
            return found | {"east": Packet("{}", {}), "west": west}

    transport = Spoils(silos, shape_of(setup))
    drive(setup, fed.first(setup), transport, minimum=2, callbacks=[watch])
    assert set(watch.records[-1].coefficients) == {"north", "south"}
    assert "east is left out: 'east': a message of format None" in caplog.text
    assert "west is left out: ClientApp raised: disk full" in caplog.text


def reversed_update(ask, one):
    return replace(one, update=-one.update) if isinstance(ask, Train) else one


def more_rows(ask, one):
    return replace(one, counts=1e6 * one.counts) if isinstance(ask, Measure) else one


def no_loss(ask, one):
    return replace(one, losses=0 * one.losses) if isinstance(ask, Measure) else one


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("mfairfl", reversed_update),
        ("mfairfl", more_rows),
        ("mfairfl", no_loss),
        ("fedavg", reversed_update),
        ("scaffold", no_loss),
        ("ditto", more_rows),
    ],
)
def test_a_liar_is_treated_alike_wherever_it_is(name, lie, tmp_path):
    """Set aside, suspended, back and suspended again: the embedded engine's bits and words."""
    alike, here = fed.alike(), fed.Watch()
    setup = fed.setup_for(alike, name, rounds=10, robust="auto", **fed.CALM)

    class Liar:
        def __init__(self, client, *rest):
            self._client, self._lies = SoleClient(client, *rest), client.name == "e"

        def answer(self, ask):
            said = self._client.answer(ask)
            if not self._lies or isinstance(ask, Score):
                return said
            return fed.with_lie(ask, said, lie)

    state = fed.first(setup)
    found = rounds_of(setup, silos_of(setup, tmp_path, Liar, alike), state, [here])
    expected, there = fed.run(setup, alike, tamper=fed.lying("e", lie))
    fed.assert_equals_embedded(setup, state, found, (expected, there))
    assert state.standing.terms == {"e": 10}
    assert found.warnings == expected.warnings != ()
    assert found.left_out == expected.left_out
    for one, other in zip(here.records, there.records, strict=True):
        assert one.set_aside == other.set_aside
        assert one.coefficients == other.coefficients
        assert one.log == other.log


@pytest.mark.parametrize(
    "error",
    [
        MessageError("not\nthis"),
        RecursionError("maximum recursion depth exceeded"),
        MemoryError("Unable to allocate 373. GiB"),
        OverflowError(34, "x" * 500),
        KeyError("\x1b[2J"),
        ZeroDivisionError(),
    ],
)
def test_whatever_is_raised_while_a_reply_is_read_is_the_reason(error):
    def read(name, reply):
        if name == "b":
            raise error
        return reply

    replies = read_replies("ab", {"a": 1, "b": 2}, read)
    assert replies["a"] == 1
    assert isinstance(replies["b"], Refusal)
    assert replies["b"].reason.isprintable()
    assert len(replies["b"].reason) <= 240


def test_what_a_client_says_of_its_failure_is_one_short_line():
    replies = read_replies(
        "a", {"a": Refusal("disk\nfull \x00" + "x" * 10**6)}, lambda name, reply: reply
    )
    assert replies["a"].reason.startswith("disk full ?xxx")
    assert len(replies["a"].reason) == 240


def test_a_method_that_pools_rows_is_refused(tmp_path):
    setup = fed.setup_for(PEOPLE, "cenfair")
    with pytest.raises(FederationError, match="trains on the rows of all clients in one place"):
        drive(setup, fed.first(setup), InProcess({}, None))
