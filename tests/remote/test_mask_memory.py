"""Masked exchanges: what a silo remembers survives it, and is on disk before an answer leaves."""

from __future__ import annotations

import pytest

from answers import one_line
from members import exchange, signer
from mfairfl.errors import ConfigError, MessageError
from mfairfl.remote.mask_memory import MOST_KEYS, MaskMemory
from mfairfl.remote.masking import make_key


def memory(tmp_path, run="run-1", source="rows.csv"):
    """A new process every time."""
    return MaskMemory(tmp_path, run, source)


def add(tmp_path, *numbers, run="run-1"):
    keys = [make_key(signer("a"), run, number, "a") for number in numbers]
    memory(tmp_path, run).add(keys)
    return keys


def refusal(call, *args):
    with pytest.raises(MessageError) as caught:
        call(*args)
    return one_line(caught)


def test_a_key_is_found_again_and_used_once(tmp_path):
    keys = add(tmp_path, 0, 1, 2)
    assert memory(tmp_path).next == 3
    assert memory(tmp_path).key(1, "a") == keys[1]
    memory(tmp_path).commit(1, b"q", ("a", "b", "c"))
    for reused in (1, 7):
        assert refusal(memory(tmp_path).key, reused, "a") == (
            f"this silo has no unused key for exchange {reused}: it is answered once"
        )
    assert memory(tmp_path).key(2, "a") == keys[2]
    assert memory(tmp_path).next == 3  # a number is never given twice


def test_a_used_key_is_nowhere_on_disk(tmp_path):
    keys = add(tmp_path, 0, 1)
    memory(tmp_path).commit(0, b"q", ("a", "b", "c"))
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert keys[0].private.hex().encode() not in stored
    assert keys[1].private.hex().encode() in stored
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.json")}
    assert modes == {0o600}


def test_one_question_is_answered_with_one_set_of_silos(tmp_path):
    memory(tmp_path).commit(0, b"q", ("a", "b", "c", "d", "e", "f"))
    again = memory(tmp_path)
    again.check(b"q", ("a", "b", "c", "d", "e", "f"))  # the same sum, under other masks
    assert refusal(again.check, b"q", ("a", "b", "c")) == (
        "this question was answered with other silos: it is not again"
    )
    again.check(b"another", ("a", "b", "c"))


def test_a_pretended_drop_is_refused(tmp_path):
    """One silo is said to be away, and the rest are asked again, also with other weights."""
    memory(tmp_path).commit(0, b"q", ("a", "b", "c", "d"))
    for question in (b"q", b"other weights"):
        for run in ("run-1", "run-2"):
            said = refusal(memory(tmp_path, run).check, question, ("a", "b", "c"))
            same = question == b"q" and run == "run-1"
            assert said == (
                "this question was answered with other silos: it is not again"
                if same
                else "together with earlier sums, one over these silos would tell 'd' apart"
            )


def test_rosters_of_another_file_do_not_count(tmp_path):
    memory(tmp_path).commit(0, b"q", ("a", "b", "c", "d"))
    memory(tmp_path, source="other.csv").check(b"x", ("a", "b", "c"))


def test_two_silos_are_not_told_apart_by_a_chain_of_rosters(tmp_path):
    own = memory(tmp_path)
    for number, names in enumerate(["abcd", "cdef"]):
        own.commit(number, names.encode(), tuple(names))
    assert refusal(memory(tmp_path).check, b"x", tuple("abef")) == (
        "together with earlier sums, one over these silos would tell 'a' and 'b' apart"
    )


def test_a_refused_roster_is_not_committed(tmp_path):
    add(tmp_path, 0, 1)
    memory(tmp_path).commit(0, b"q", ("a", "b", "c", "d"))
    refusal(memory(tmp_path).commit, 1, b"x", ("a", "b", "c"))
    assert memory(tmp_path).key(1, "a").exchange == 1
    memory(tmp_path).check(b"x", ("a", "b", "c", "d"))


def test_keys_that_nobody_used_do_not_pile_up(tmp_path):
    key = exchange("a")[0]
    many = [make_key(signer("a"), "run-1", n, "a") for n in range(3)]
    own = memory(tmp_path)
    own.add([key.__class__(n, key.private, key.offer) for n in range(MOST_KEYS)])
    own.add([many[0].__class__(MOST_KEYS, key.private, key.offer)])
    assert refusal(own.key, 0, "a").startswith("this silo has no unused key for exchange 0")
    assert own.key(1, "a").exchange == 1
    assert own.key(MOST_KEYS, "a").exchange == MOST_KEYS


@pytest.mark.parametrize("name", [".rosters.json", "run-1/masks.json"])
def test_a_damaged_memory_is_refused(tmp_path, name):
    add(tmp_path, 0)
    memory(tmp_path).commit(0, b"q", ("a", "b", "c"))
    (tmp_path / name).write_text("{")
    with pytest.raises(ConfigError) as caught:
        memory(tmp_path)
    assert one_line(caught) == (
        f"{tmp_path / name} is damaged: restore it; without it this silo would forget what it told"
    )
