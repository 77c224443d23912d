"""The ledger of a silo: every exchange has its line, and no line can change unnoticed."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import numpy as np
import pytest

import federations as fed
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import Task
from mfairfl.errors import DataError, LedgerError, MessageError
from mfairfl.silo.ledger import Ledger, RowSetFacts, packet_bytes, packet_sha256
from mfairfl.silo.policy import Disclosure, Limits, Policy, policy_sha256
from mfairfl.silo.responder import Responder
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import Packet, make_packet

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
PROFILE = make_packet("profile", {"task": TASK.model_dump(mode="json")})


def entry(kind="measure", **more):
    known = {"run": "run-1", "request_sha256": "a" * 64, "policy_sha256": "b" * 64}
    outcome = {"answer_sha256": "c" * 64, "answer_bytes": 7}
    return {"kind": kind, **known, **(more or outcome)}


def filled(folder, lines=4):
    """A ledger with measure-0, measure-1, …"""
    ledger = Ledger(folder, now=lambda: NOON)
    for i in range(lines):
        ledger.add(**entry(f"measure-{i}"))
    return ledger


def kinds(ledger):
    return [line.kind for line in ledger.read().lines]


# ------------------------------------------------------------------ the chain


def test_each_line_carries_the_hash_of_the_one_before(tmp_path):
    path = filled(tmp_path, 3).path
    first, second, third = path.read_bytes().splitlines()
    assert json.loads(first)["before"] == "0" * 64
    assert json.loads(second)["before"] == hashlib.sha256(first).hexdigest()
    assert json.loads(third)["before"] == hashlib.sha256(second).hexdigest()
    assert Ledger(tmp_path).read().head == hashlib.sha256(third).hexdigest()
    assert json.loads(first)["time"] == "2026-03-01T12:00:00.000+00:00"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_added_is_read_back_by_another_process(tmp_path):
    facts = (RowSetFacts("levels of 'race' in train and other rows", 3, 11, 90),)
    given = entry(models=2, round=4, jobs=1, row_sets=facts, refusal="no")
    Ledger(tmp_path).add(**given)
    (line,) = Ledger(tmp_path).read().lines
    assert {key: getattr(line, key) for key in given} == given


def test_a_silo_that_never_answered_has_an_empty_ledger(tmp_path):
    assert Ledger(tmp_path / "none").read().lines == ()


def changed_number(lines):
    lines[1] = lines[1].replace(b'"answer_bytes":7', b'"answer_bytes":6')


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (changed_number, 3),  # line 2 is whole, but not what line 3 was written after
        (lambda lines: lines.pop(1), 2),
        (lambda lines: lines.pop(0), 1),
        (lambda lines: lines.insert(1, lines[1]), 3),
        (lambda lines: lines.reverse(), 1),
        (lambda lines: lines.__setitem__(2, b"{}"), 3),
        (lambda lines: lines.__setitem__(2, lines[2][:-9]), 3),
        (lambda lines: lines.__setitem__(2, b"\xff" * 9), 3),
        (lambda lines: lines.__setitem__(2, b""), 3),
        (lambda lines: lines.insert(2, b" " * 300_000), 3),
    ],
)
def test_a_line_that_was_changed_is_named(tmp_path, damage, line):
    ledger = filled(tmp_path)
    lines = ledger.path.read_bytes().splitlines()
    damage(lines)
    ledger.path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(LedgerError) as caught:
        ledger.read()
    assert caught.value.line == line
    said = str(caught.value)
    assert said.startswith(f"{ledger.path}, line {line}: the chain is broken: ")
    assert "\n" not in said


def test_no_single_byte_but_of_the_last_line_can_change_unnoticed(tmp_path):
    ledger = filled(tmp_path, 3)
    whole = ledger.path.read_bytes()
    last = whole.rfind(b"\n", 0, -1)
    for at in range(last + 1):
        ledger.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LedgerError) as caught:
            ledger.read()
        assert caught.value.line in (1, 2, 3), at


# ------------------------------------------------------------------ torn lines


def test_a_torn_line_is_dropped_wherever_it_was_torn_and_the_next_one_says_so(tmp_path):
    whole = filled(tmp_path, 3).path.read_bytes()
    second = whole.rfind(b"\n", 0, -1) + 1
    ledger = Ledger(tmp_path)
    for cut in range(second + 1, len(whole)):  # from one byte of line 3 to all but its end
        ledger.path.write_bytes(whole[:cut])
        assert kinds(ledger) == ["measure-0", "measure-1"]
        assert ledger.read().torn == cut - second
        ledger.add(**entry("train"))
        assert ledger.path.read_bytes().startswith(whole[:second])
        assert kinds(ledger) == ["measure-0", "measure-1", "train"]
        assert [line.torn for line in ledger.read().lines] == [0, 0, cut - second]
        assert ledger.read().torn == 0


def test_a_first_line_that_is_torn_leaves_an_empty_ledger(tmp_path):
    ledger = filled(tmp_path, 1)
    ledger.path.write_bytes(ledger.path.read_bytes()[:10])
    ledger.add(**entry("train"))
    assert [(line.kind, line.torn) for line in ledger.read().lines] == [("train", 10)]


def test_a_torn_line_longer_than_the_next_one_leaves_nothing(tmp_path):
    ledger = filled(tmp_path, 1)
    with ledger.path.open("ab") as file:
        file.write(bytes(5000))  # what a power failure may leave
    ledger.add(**entry("train"))
    assert [(x.kind, x.torn) for x in ledger.read().lines] == [("measure-0", 0), ("train", 5000)]


CHILD = """
import os, resource, signal, sys
from pathlib import Path
from mfairfl.silo.ledger import Ledger
ledger, room = Ledger(Path(sys.argv[1])), int(sys.argv[2])
entry = dict(run="r", kind="train", request_sha256="a" * 64, policy_sha256="b" * 64)
if room:
    full = ledger.path.stat().st_size + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, full))
    try:
        ledger.add(**entry)
    except OSError as error:
        print(error.filename, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
while True:
    ledger.add(**entry)
    print("added", flush=True)
"""


def child(folder, room=0):
    words = [sys.executable, "-c", CHILD, str(folder), str(room)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on files")
def test_a_disk_that_is_full_amid_a_line_and_a_kill_lose_nothing_complete(tmp_path):
    ledger = filled(tmp_path, 2)
    whole = ledger.path.read_bytes()
    process = child(tmp_path, room=100)
    assert process.communicate()[0].strip() == str(ledger.path)
    assert process.returncode == -signal.SIGKILL
    assert ledger.path.read_bytes()[: len(whole)] == whole
    assert ledger.path.stat().st_size == len(whole) + 100
    ledger.add(**entry("score"))
    assert [(x.kind, x.torn) for x in ledger.read().lines][1:] == [
        ("measure-1", 0),
        ("score", 100),
    ]


@pytest.mark.slow
def test_whatever_was_added_before_a_kill_is_there(tmp_path):
    for attempt in range(3):
        before = len(Ledger(tmp_path).read().lines)
        process = child(tmp_path)
        process.stdout.readline()
        time.sleep(0.05 * attempt)
        process.kill()
        added = 1 + process.communicate()[0].count("added\n")
        lines = Ledger(tmp_path).read().lines
        assert before + added <= len(lines) <= before + added + 1


# ------------------------------------------------------------------ bounds


def test_long_reasons_and_names_are_cut_to_a_line(tmp_path):
    ledger = Ledger(tmp_path)
    reason = "no\nrow\x1b " + "é" * 10**6
    ledger.add(**entry("k" * 500, run="r" * 500, refusal=reason))
    ledger.add(**entry("train"))
    first, _ = ledger.read().lines
    assert len(first.refusal) == 500
    assert first.refusal.startswith("no row? éé")
    assert (len(first.run), len(first.kind)) == (100, 100)
    assert len(ledger.path.read_bytes().splitlines()[0]) < 1 << 17


def test_a_full_ledger_takes_no_line_and_says_what_to_do(tmp_path, monkeypatch):
    ledger = filled(tmp_path, 2)
    held = ledger.path.read_bytes()
    monkeypatch.setattr("mfairfl.silo.ledger._LARGEST", len(held) + 10)
    with pytest.raises(LedgerError, match=r"full, with .* bytes; move it to an archive"):
        ledger.add(**entry())
    assert ledger.path.read_bytes() == held


@pytest.mark.parametrize("text", [b"x" * 600_000, b"\n" + b"x" * 300_000 + b"\n"])
def test_what_is_no_ledger_is_not_written_to(tmp_path, text):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(text)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(tmp_path).add(**entry())
    assert path.read_bytes() == text


# ------------------------------------------------------------------ hashes


def test_the_hash_of_a_message_is_that_of_its_parts_with_their_lengths():
    packet = Packet("{}", {"b": np.array([[1, 2]], "<i8"), "a": np.array(0.5)})
    parts = [
        b"{}",
        b"a <f8 ()",
        b"\0\0\0\0\0\0\xe0\x3f",
        b"b <i8 (1, 2)",
        b"\x01" + bytes(7) + b"\x02" + bytes(7),
    ]
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert packet_sha256(packet) == hashlib.sha256(whole).hexdigest()
    assert packet_bytes(packet) == 2 + 8 + 16


def test_messages_that_differ_in_anything_have_different_hashes():
    zeros = np.zeros(4, np.float32)
    packets = [
        Packet("{}", {}),
        Packet("{ }", {}),
        Packet("{}", {"a": zeros}),
        Packet("{}", {"b": zeros}),
        Packet("{}", {"a": zeros.reshape(2, 2)}),
        Packet("{}", {"a": zeros.view(np.int32)}),
        Packet("{}", {"a": zeros + 1}),
        Packet("{}", {"a": zeros[:2], "b": zeros[2:]}),
    ]
    assert len({packet_sha256(one) for one in packets}) == len(packets)
    turned = np.arange(6.0).reshape(2, 3).T
    same = [packet_sha256(Packet("", {"a": one})) for one in (turned, turned.copy())]
    assert same[0] == same[1]


# ------------------------------------------------------------------ the silo


def ledger_of(settings):
    return Ledger(settings.state).read().lines


class Recorded:
    """One silo, and the messages that it answered."""

    def __init__(self, settings, policy=None):
        self.responder, self.exchanged = Responder(settings, policy or fed.policy()), []

    def exchange(self, asks):
        found = {name: self.responder.handle("run-1", ask) for name, ask in asks.items()}
        self.exchanged += [(ask, found[name]) for name, ask in asks.items()]
        return found


def enrolled(settings, policy=None):
    silo = Recorded(settings, policy)
    terms = EnrolmentTerms(task=TASK, seed=3, model=ModelTerms())
    return silo, enrol(silo, [settings.name], terms)


def train(size, *, jobs=1, round_=0, **plan):
    one = {"client": "east", "plan": {"epochs": 1, "batch_size": 16} | plan}
    arrays = {"server": np.zeros(size, np.float32)}
    return make_packet("train", {"round": round_, "jobs": [one] * jobs}, arrays)


def test_every_answer_of_an_enrolment_has_its_line(settings):
    silo, found = enrolled(settings["east"])
    lines = ledger_of(settings["east"])
    assert [line.kind for line in lines] == ["profile", "sums", "cuts", "encode"]
    for line, (ask, answer) in zip(lines, silo.exchanged, strict=True):
        assert line.request_sha256 == packet_sha256(ask)
        assert line.answer_sha256 == packet_sha256(answer)
        assert line.answer_bytes == packet_bytes(answer)
        assert line.policy_sha256 == policy_sha256(fed.policy())
        assert (line.run, line.refusal) == ("run-1", None)
        train, *_ = line.row_sets or [None]
        assert (train is None) == (line.kind == "profile")  # a profile counts no rows by group
        assert train is None or train.rows == int(found.counts["train"]["east"].sum())


def test_models_jobs_and_rounds_of_a_request_are_counted(settings):
    silo, found = enrolled(settings["east"])
    size = len(found.encoder.feature_names) + 1
    models = {"model/0": np.zeros(size, np.float32), "model/1": np.zeros((3, size), np.float32)}
    header = {"splits": ["train"], "slot": None, "thresholds": None}
    silo.responder.handle("run-1", make_packet("measure", header, models))
    silo.responder.handle("run-1", train(size, jobs=2, round_=5))
    lines = ledger_of(settings["east"])[-2:]
    assert [(x.kind, x.models, x.jobs, x.round) for x in lines] == [
        ("measure", 4, 0, None),
        ("train", 0, 2, 5),
    ]


def test_a_refusal_has_its_reason_and_no_answer(settings):
    silo, found = enrolled(settings["east"])
    size = len(found.encoder.feature_names) + 1
    with pytest.raises(MessageError) as caught:
        silo.responder.handle("run-1", train(size, epochs=300))
    line = ledger_of(settings["east"])[-1]
    assert (line.kind, line.jobs, line.refusal) == ("train", 1, str(caught.value))
    assert (line.answer_sha256, line.answer_bytes) == (None, 0)


@pytest.mark.parametrize(
    ("run", "packet", "kind", "reason"),
    [
        ("../up", PROFILE, "profile", "'../up' is not a valid name of a run"),
        ("run-1", Packet("{", {}), "", "a text that is not JSON"),
        ("run-1", Packet('{"version": 99}', {}), "", "a message of format 99"),
        ("run-1", make_packet("score", {}), "score", "'east' knows no run 'run-1'"),
        ("run-1", make_packet("profile", {}), "profile", "task: Field required"),
    ],
)
def test_what_is_refused_before_any_work_has_a_line_too(settings, run, packet, kind, reason):
    with pytest.raises(MessageError):
        Responder(settings["east"]).handle(run, packet)
    (line,) = ledger_of(settings["east"])
    assert (line.run, line.kind) == (run, kind)
    assert reason in line.refusal


def test_an_error_that_may_quote_the_file_is_named_without_its_text(settings):
    settings["east"].csv.write_text("hired,sex\nsecret,F\n")
    split = {"seed": 0, "test": 0.2, "validation": 0.0}
    packet = make_packet("sums", {"task": TASK.model_dump(mode="json"), **split})
    with pytest.raises(DataError, match="secret"):
        Responder(settings["east"]).handle("run-1", packet)
    (line,) = ledger_of(settings["east"])
    assert line.refusal == "its file cannot be used with the agreed task; its own log says why"


def test_an_answer_that_the_ledger_cannot_take_does_not_leave(settings, monkeypatch):
    monkeypatch.setattr("mfairfl.silo.ledger._LARGEST", 10)
    with pytest.raises(LedgerError, match="full"):
        Responder(settings["east"], fed.policy()).handle("run-1", PROFILE)


def test_the_whole_line_is_on_the_disk_when_the_answer_leaves(settings, monkeypatch):
    synced, real = {}, os.fsync

    def fsync(opened):
        real(opened)
        found = os.fstat(opened)
        synced[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    Responder(settings["east"], fed.policy()).handle("run-1", PROFILE)
    file, folder = settings["east"].state / "ledger.jsonl", settings["east"].state
    assert synced[file.stat().st_ino] == file.stat().st_size > 0
    assert folder.stat().st_ino in synced  # the file has just been made


def test_row_sets_that_a_handler_names_are_in_its_line_alone(settings, monkeypatch):
    facts = RowSetFacts("columns in all rows", sets=6, smallest=90, rows=90)
    real = Responder._profile

    def profile(self, header):
        self._row_sets.append(facts)
        return real(self, header)

    responder = Responder(settings["east"], fed.policy())
    with monkeypatch.context() as patched:
        patched.setattr(Responder, "_profile", profile)
        responder.handle("run-1", PROFILE)
    responder.handle("run-1", PROFILE)
    assert [line.row_sets for line in ledger_of(settings["east"])] == [(facts,), ()]


# ------------------------------------------------------------------ the policy's hash


def compact(value):
    return json.dumps(value).replace(", ", ",")


def test_the_hash_of_a_policy_is_that_of_its_disclosure_as_sorted_json():
    policy = Policy(disclosure=Disclosure(min_rows=12))
    values = policy.disclosure.model_dump(mode="json")
    text = ",".join(f'"{key}":{compact(values[key])}' for key in sorted(values))
    assert policy_sha256(policy) == hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


def test_limits_and_defaults_that_are_spelled_out_do_not_change_the_hash():
    spelled = Policy(disclosure=Disclosure(**Disclosure().model_dump()))
    busy = Policy(limits=Limits(epochs=3))
    assert policy_sha256(spelled) == policy_sha256(busy) == policy_sha256(Policy())
    other = Policy(disclosure=Disclosure(min_rows=11))
    assert policy_sha256(other) != policy_sha256(Policy())
