"""Silos wait at the gate for a message, and get it once; the SuperLink is left in peace."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from gates import PUSH, enrol, eventually, head, signed, standing

from mfairfl.deployment.gate import Signals
from mfairfl.deployment.keys import add_revocation, make_key, read_public_key

PULL = "/v1/fleet/pull-messages"
LONG = 25.0  # seconds: the tests end it before


class SuperLink:
    """Has messages for silos, each of which is given away once."""

    def __init__(self):
        self.messages = []

    def answer(self, request):
        return 200, {}, self.messages.pop() if self.messages else b""


@contextmanager
def waiting(folder, *, hold=LONG, **options):
    """A gate, and a SuperLink without messages."""
    superlink = SuperLink()
    with (
        standing(folder, answer=superlink.answer, hold=hold, **options) as gate,
        ThreadPoolExecutor() as threads,
    ):
        yield gate, superlink, lambda **words: threads.submit(gate.ask, path=PULL, **words)


def public(key):
    return read_public_key(key.with_name(f"{key.name}.pub"))


def test_waiting_silo_gets_its_message_with_two_requests_to_the_superlink(tmp_path):
    with waiting(tmp_path) as (gate, superlink, ask):
        asked = ask(content=b"who")
        eventually(lambda: gate.arrived and gate.room.waiting)
        time.sleep(0.3)  # several looks of the room
        assert len(gate.arrived) == 1
        superlink.messages.append(b"a message")
        gate.room.signals.announce_messages()
        assert asked.result().content == b"a message"
    assert [request.content for request in gate.arrived] == [b"who", b"who"]
    assert len({request.headers["flwr-signature"] for request in gate.arrived}) == 1


def test_a_message_that_is_there_is_given_at_once(tmp_path):
    with waiting(tmp_path) as (gate, superlink, ask):
        superlink.messages.append(b"a message")
        assert ask().result().content == b"a message"
    assert len(gate.arrived) == 1


def test_news_for_others_leave_a_silo_waiting(tmp_path):
    with waiting(tmp_path) as (gate, superlink, ask):
        asked = ask()
        eventually(lambda: gate.arrived)
        gate.room.signals.announce_messages()
        eventually(lambda: len(gate.arrived) == 2)
        assert not asked.done()
        superlink.messages.append(b"a message")
        gate.room.signals.announce_messages()
        assert asked.result().content == b"a message"
    assert len(gate.arrived) == 3


@pytest.mark.parametrize(("hold", "asked"), [(0.0, 1), (0.3, 2)])
def test_when_patience_ends_the_answer_is_that_there_is_none(tmp_path, hold, asked):
    with waiting(tmp_path, hold=hold) as (gate, _, ask):
        reply = ask().result()
        assert (reply.status_code, reply.content) == (200, b"")
        eventually(lambda: not gate.room.waiting)
    assert len(gate.arrived) == asked


def test_abandoned_request_gets_no_message_and_frees_its_place(tmp_path):
    with waiting(tmp_path) as (gate, superlink, ask):
        with gate.tls() as peer:
            peer.sendall(head("POST", PULL, signed(gate.key), size=0))
            eventually(lambda: gate.room.waiting and gate.arrived)
        eventually(lambda: not gate.room.waiting)
        superlink.messages.append(b"a message")
        gate.room.signals.announce_messages()
        assert ask().result().content == b"a message"
    assert len(gate.arrived) == 2


def test_a_key_that_is_revoked_meanwhile_is_refused(tmp_path):
    with waiting(tmp_path) as (gate, _, ask):
        asked = ask()
        eventually(lambda: gate.arrived)
        add_revocation(tmp_path / "revoked.json", "west", public(gate.key))
        reply = asked.result()
        assert (reply.status_code, "was revoked" in reply.text) == (412, True)
    assert len(gate.arrived) == 1


def test_each_key_has_one_place(tmp_path):
    make_key(tmp_path / "other")
    with waiting(tmp_path, places=2) as (gate, superlink, ask):
        enrol(tmp_path, gate.key, tmp_path / "other")
        first = ask()
        eventually(lambda: len(gate.room.waiting) == 1)
        assert ask().result().content == b""  # a second question of the same key
        eventually(lambda: gate.ask(key=tmp_path / "other").status_code == 200)  # it is enrolled
        second = ask(key=tmp_path / "other")
        eventually(lambda: len(gate.room.waiting) == 2)
        superlink.messages += [b"a message", b"a message"]
        gate.room.signals.announce_messages()
        assert {first.result().content, second.result().content} == {b"a message"}


def test_without_places_requests_are_answered_at_once(tmp_path):
    with waiting(tmp_path, places=0) as (gate, _, ask):
        assert ask().result().content == b""
    assert len(gate.arrived) == 1


def test_an_error_of_the_superlink_is_passed_on_at_once(tmp_path):
    def refuse(_):
        return 403, {}, b""

    with standing(tmp_path, answer=refuse, hold=LONG) as gate:
        assert gate.ask(path=PULL).status_code == 403


def test_only_a_silo_that_asks_for_its_next_message_has_sent_all(tmp_path):
    with waiting(tmp_path, hold=0.0) as (gate, _, ask):
        signals, key = gate.room.signals, public(gate.key)
        before = signals.visit(key)
        gate.ask(path=PUSH, content=b"a part of its answer")
        assert signals.visit(key) == before
        ask().result()
        first = signals.visit(key)
        assert first != before
        ask().result()
        assert signals.visit(key) not in (before, first)
        assert signals.visit(b"another key") == b""


def test_signals_reach_other_processes_that_use_the_folder(tmp_path):
    here, there = Signals(tmp_path / "signals"), Signals(tmp_path / "signals")
    marks = [there.messages()]
    for _ in range(3):
        here.announce_messages()
        marks.append(there.messages())
    assert len(set(marks)) == 4
    assert there.messages() == marks[-1]
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "signals").iterdir()] == [0]
