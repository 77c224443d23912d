"""Checkpoints: exact round trips, and no damage that goes unnoticed."""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

import federations as fed
from answers import one_line
from mfairfl.engine.checkpoint import Checkpoints, CheckpointWarning, dump, parse, seal, unseal
from mfairfl.engine.defence import Standing
from mfairfl.engine.output import Candidate
from mfairfl.engine.state import LastGoodState, RunState
from mfairfl.errors import CheckpointError
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.files import write_atomically

IDENTITY = "5f" * 32


def full_state(round_: int = 7) -> RunState:
    """A state that uses every field, with awkward arrays; its bank is that of round 6."""
    rng, old = np.random.default_rng(round_), np.random.default_rng(6)
    table = old.random((4, 2))
    statistics = Statistics(
        counts=table, positives=table / 2, scores=table / 3, losses=table * np.pi
    )
    return RunState(
        round=round_,
        weights=rng.normal(size=11).astype(np.float32),
        strategy={
            "multipliers": np.array([0.1, -2.5e-300, np.pi]),
            "order": np.array([3, 1, 2], dtype=np.int64),
            "seen": np.array([True, False]),
            "scalar": np.array(2.5),
            "empty": np.zeros((0, 3), np.float32),
            "nested": {"goals": {"a/b": np.eye(2)}, "a": {"b": np.ones(1)}},
            "a/b": [np.arange(2.0), {"deep": np.array([7], dtype=np.uint8)}, "text", None, 1.5],
            "turned": np.arange(6.0).reshape(2, 3).T,
            "name": "Zoë",
            "flag": True,
            "count": 12,
            "tiny": 5e-324,
        },
        vectors={"c": rng.normal(size=11).astype(np.float32), "weights": np.ones(2, np.float32)},
        longest={"update": 0.1 + 0.2, "control change": 5e-324},
        slots={
            "east": {"own": rng.normal(size=11).astype(np.float32), "mu": np.array([0.5])},
            "a/b\nc": {"own": np.zeros(1, np.float32)},
        },
        average=rng.normal(size=11).astype(np.float32),
        bank=[
            Candidate("round 6", old.normal(size=11).astype(np.float32), statistics),
            Candidate("average 6", old.normal(size=11).astype(np.float32), statistics),
        ],
        best_loss=0.1 + 0.2,
        best_round=6,
        standing=Standing(
            strikes={"a/b\nc": 2},
            suspended={"Zoë": 12},
            terms={"Zoë": 5},
            rounds={"Zoë": 3, "a/b\nc": 2},
            latest={"Zoë": "it lies", "a/b\nc": "no answer before the deadline"},
        ),
        undone=2,
        last_good=LastGoodState(
            round=5,
            weights=rng.normal(size=11).astype(np.float32),
            strategy={"multipliers": np.array([np.pi]), "name": "Zoë"},
            vectors={"c": rng.normal(size=11).astype(np.float32)},
            average=None,
            longest={"update": 0.1 + 0.2},
        ),
    )


def assert_same(a: object, b: object, where: str = "state") -> None:
    """Types, shapes, element types and bits."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert a.tobytes() == b.tobytes(), where
    elif isinstance(a, dict) and isinstance(b, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list) and isinstance(b, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    elif isinstance(a, RunState | Candidate | Statistics | Standing | LastGoodState):
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    else:
        assert a == b, where


def test_every_field_comes_back_bit_by_bit():
    assert_same(full_state(), parse(dump(full_state(), IDENTITY), IDENTITY))


def test_a_fresh_state_comes_back():
    fresh = RunState(round=0, weights=np.ones(3, np.float32), strategy={})
    back = parse(dump(fresh, IDENTITY), IDENTITY)
    assert_same(fresh, back)
    assert back.best_loss == float("inf")
    assert back.average is None


scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
scalars |= st.floats(allow_nan=False, allow_infinity=False)
arrays = hnp.arrays(
    st.sampled_from(["f4", "f8", "i8", "i4", "u1", "?"]).map(np.dtype),
    hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
)
values = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
@settings(max_examples=60)
def test_any_strategy_state_comes_back(strategy):
    state = RunState(round=1, weights=np.zeros(1, np.float32), strategy=strategy)
    assert_same(strategy, parse(dump(state, "x"), "x").strategy)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_cannot_be_kept_exactly_is_refused_when_written(bad):
    state = RunState(round=1, weights=np.zeros(1, np.float32), strategy={"x": bad})
    with pytest.raises((ValueError, TypeError)):
        dump(state, IDENTITY)


# ------------------------------------------------------------------ damage

WHOLE = dump(full_state(), IDENTITY)
HEADER = unseal(dump(RunState(round=0, weights=np.ones(3), strategy={}), IDENTITY))[1]


@given(position=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
@settings(max_examples=250)
def test_any_flipped_bit_is_noticed(position, bit):
    damaged = bytearray(WHOLE)
    damaged[position] ^= 1 << bit
    with pytest.raises(CheckpointError, match="damaged"):
        parse(bytes(damaged), IDENTITY)


@given(length=st.integers(0, len(WHOLE) - 1))
@settings(max_examples=100)
def test_any_truncation_is_noticed(length):
    with pytest.raises(CheckpointError, match="damaged"):
        parse(WHOLE[:length], IDENTITY)


@given(at=st.integers(0, len(WHOLE)), extra=st.binary(min_size=1, max_size=40))
@settings(max_examples=60)
def test_any_insertion_is_noticed(at, extra):
    with pytest.raises(CheckpointError, match="damaged"):
        parse(WHOLE[:at] + extra + WHOLE[at:], IDENTITY)


def _signed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        save({"weights": np.ones(2)}),
        b"\x02" + b"\x00" * 7 + b"{}",
        seal({}, ["version", "identity"])[:-32],
        seal({}, {"version": 4, "identity": IDENTITY})[:-32],
        seal({"0": np.ones(2)}, {**HEADER, "state": {**HEADER["state"], "slots": 3}})[:-32],
        seal({"0": np.ones(2)}, {**HEADER, "state": {**HEADER["state"], "more": 1}})[:-32],
        seal({"0": np.ones(2)}, {**HEADER, "state": {**HEADER["state"], "bank": ["r"]}})[:-32],
        seal({"1": np.ones(2)}, HEADER)[:-32],
    ],
)
def test_a_sound_hash_over_something_else_is_refused(body):
    with pytest.raises(CheckpointError, match=r"not a (file|checkpoint) of mfairfl"):
        parse(_signed(body), IDENTITY)


def test_another_configuration_and_another_format_are_refused():
    with pytest.raises(CheckpointError, match="another configuration"):
        parse(WHOLE, "another")
    newer = WHOLE[:-32].replace(rb"{\"version\": 4,", rb"{\"version\": 5,")
    assert newer != WHOLE[:-32]
    with pytest.raises(CheckpointError, match="format 5, this version reads 4"):
        parse(_signed(newer), IDENTITY)


# ------------------------------------------------------------------ the folder


def filled(folder, *rounds: int) -> Checkpoints:
    checkpoints = Checkpoints(folder, IDENTITY)
    checkpoints.on_start(None, full_state())
    for round_ in rounds:
        checkpoints.on_round(None, full_state(round_), None)
    return checkpoints


def test_the_newest_is_taken_and_two_are_kept(tmp_path):
    checkpoints = filled(tmp_path / "checkpoint", 1, 2, 3, 10)
    assert_same(full_state(10), checkpoints.latest())
    names = sorted(path.name for path in checkpoints.folder.iterdir())
    assert names == ["bank-000001.ckpt", "round-000003.ckpt", "round-000010.ckpt"]


def growing(round_: int) -> RunState:
    """A state whose bank has the models of all its rounds."""
    sums, weights = full_state().bank[0].statistics, np.arange(11, dtype=np.float32)
    bank = [Candidate(f"round {i}", i * weights, sums) for i in range(1, round_ + 1)]
    return replace(full_state(round_), bank=bank)


def test_a_model_that_may_be_served_is_written_once(tmp_path):
    checkpoints, sizes = filled(tmp_path), []
    for round_ in range(1, 31):
        checkpoints.on_round(None, growing(round_), None)
        new = [f"bank-{round_:06d}.ckpt", f"round-{round_:06d}.ckpt"]
        sizes.append(sum((tmp_path / name).stat().st_size for name in new))
    # What names an old file is longer than nothing, and much shorter than the model.
    assert sizes[-1] - sizes[0] < 30 * 100
    assert len(list(tmp_path.glob("bank-*"))) == 30
    again = Checkpoints(tmp_path, IDENTITY)
    assert_same(growing(30), again.latest())
    again.on_round(None, growing(31), None)  # goes on where the other process stopped
    assert_same(growing(31), Checkpoints(tmp_path, IDENTITY).latest())
    assert len(list(tmp_path.glob("bank-*"))) == 31


def test_a_run_that_goes_back_a_round_writes_its_models_again(tmp_path):
    checkpoints = filled(tmp_path)
    for round_ in (1, 2):
        checkpoints.on_round(None, growing(round_), None)
    (tmp_path / "round-000002.ckpt").unlink()
    again = Checkpoints(tmp_path, IDENTITY)
    assert_same(growing(1), again.latest())
    again.on_round(None, growing(2), None)
    assert_same(growing(2), Checkpoints(tmp_path, IDENTITY).latest())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "does not match: it is damaged"),
        (lambda path: path.unlink(), r"cannot be read \(No such file or directory\)"),
        (lambda path: path.write_bytes(seal({}, {"bank": []})), "does not match: it is damaged"),
    ],
)
def test_a_damaged_file_of_models_is_refused_in_one_line(tmp_path, damage, reason):
    filled(tmp_path, 4, 5)
    damage(tmp_path / "bank-000004.ckpt")
    with pytest.raises(CheckpointError, match=rf"bank-000004.ckpt.*{reason}") as caught:
        Checkpoints(tmp_path, IDENTITY).latest()
    one_line(caught)


@pytest.mark.parametrize("name", ["../bank-000004.ckpt", "/etc/passwd", "bank-4.ckpt", ""])
def test_only_files_of_models_beside_a_checkpoint_are_read(tmp_path, name):
    filled(tmp_path, 4)
    forged = dump(full_state(5), IDENTITY, {name: "0" * 64})
    (tmp_path / "round-000005.ckpt").write_bytes(forged)
    with pytest.warns(CheckpointWarning, match="is not the name of a file of models"):
        assert_same(full_state(4), Checkpoints(tmp_path, IDENTITY).latest())


def test_no_folder_and_no_file_mean_a_fresh_start(tmp_path):
    assert Checkpoints(tmp_path / "none", IDENTITY).latest() is None
    assert filled(tmp_path / "empty").latest() is None


@given(data=st.data())
@settings(max_examples=60)
def test_a_damaged_newest_gives_the_one_before_and_says_so(tmp_path_factory, data):
    checkpoints = filled(tmp_path_factory.mktemp("damaged"), 4, 5)
    path = checkpoints.folder / "round-000005.ckpt"
    whole = path.read_bytes()
    if data.draw(st.booleans(), label="truncate"):
        broken = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        broken = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    path.write_bytes(broken)
    with pytest.warns(CheckpointWarning, match=r"round-000005.*going on from round 4"):
        state = checkpoints.latest()
    assert_same(full_state(4), state)


def test_when_all_are_damaged_the_run_is_refused_in_one_line(tmp_path):
    checkpoints = filled(tmp_path, 4, 5)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError) as caught:
        checkpoints.latest()
    message = str(caught.value)
    assert "round-000005.ckpt" in message
    assert f"delete {tmp_path}" in message
    assert "\n" not in message


def wrong_cells(state):
    return replace(state, bank=[Candidate("round 1", state.weights, ONE_CELL)])


ONE_CELL = Statistics(**dict.fromkeys(SUMS, np.ones((1, 2))))
FORGED_STATES = {
    "three weights": (
        lambda s: replace(s, weights=np.ones(3, np.float32)),
        "'weights' is float32",
    ),
    "a matrix": (lambda s: replace(s, weights=np.stack([s.weights] * 2)), "'weights' is float32"),
    "other numbers": (lambda s: replace(s, weights=s.weights.astype(float)), "is float64"),
    "no number": (lambda s: replace(s, weights=s.weights * np.nan), "'weights' holds values"),
    "average": (lambda s: replace(s, average=np.full_like(s.weights, np.inf)), "'average' holds"),
    "vector": (lambda s: replace(s, vectors={"c": np.ones(2, np.float32)}), "'c' is float32"),
    "slot": (lambda s: replace(s, slots={"a": {"b": np.array([np.nan])}}), "'a/b' holds"),
    "rounds": (lambda s: replace(s, undone=4), "round 0 is none of this run's 3"),
    "cells": (wrong_cells, "not over this run's"),
}
FORGED_HEADERS = {
    "no round": ({"round": "one"}, "round: Input should be a valid integer"),
    "strategy": ({"strategy": []}, "strategy: Input should be a"),
    "loss": ({"best_loss": "low"}, "best_loss: Input should be a valid number"),
    "weights": ({"weights": 1.0}, "weights: Input should be an instance of ndarray"),
    "vectors": ({"vectors": {"c": "text"}}, "vectors.c: Input should be an instance of ndarray"),
    "strikes": ({"standing": {"strikes": {"a": "x"}}}, "standing.strikes.a: Input should be"),
}


@pytest.mark.parametrize("kind", [*FORGED_STATES, *FORGED_HEADERS])
def test_a_forged_state_is_refused_in_one_line(tmp_path, federation, kind):
    """Its hash is right: a hash is no signature."""
    setup = fed.setup_for(federation, rounds=3)
    state, checkpoints = fed.first(setup), Checkpoints(tmp_path, IDENTITY)
    path = tmp_path / "round-000000.ckpt"
    path.write_bytes(dump(state, IDENTITY))
    assert_same(state, checkpoints.latest(setup))
    if kind in FORGED_STATES:
        change, reason = FORGED_STATES[kind]
        path.write_bytes(dump(change(state), IDENTITY))
    else:
        changes, reason = FORGED_HEADERS[kind]
        arrays, header = unseal(path.read_bytes())
        header["state"] |= changes
        path.write_bytes(seal(arrays, header))
    with pytest.raises(CheckpointError) as caught:
        checkpoints.latest(setup)
    message = one_line(caught)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert f"delete {tmp_path} to start again" in message


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda p: p.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused(tmp_path, make):
    make(tmp_path / "round-000001.ckpt")
    with pytest.raises(CheckpointError, match=r"round-000001\.ckpt.*delete"):
        Checkpoints(tmp_path, IDENTITY).latest()


def test_only_the_owner_reads_checkpoints(tmp_path):
    before = os.umask(0)
    try:
        filled(tmp_path / "checkpoint", 1)
    finally:
        os.umask(before)
    bank, path = sorted((tmp_path / "checkpoint").iterdir())
    modes = [p.stat().st_mode & 0o777 for p in (path.parent, path, bank)]
    assert modes == [0o700, 0o600, 0o600]


def test_another_runs_files_are_refused(tmp_path):
    filled(tmp_path, 4, 5)
    with pytest.raises(CheckpointError, match="another configuration"):
        Checkpoints(tmp_path, "other").latest()


def test_a_file_under_another_rounds_name_is_not_taken_for_it(tmp_path):
    checkpoints = filled(tmp_path, 4, 5)
    older, newer = sorted(tmp_path.glob("round-*"))
    whole = newer.read_bytes()
    newer.write_bytes(older.read_bytes())
    with pytest.warns(CheckpointWarning, match=r"round-000005.*of round 4: renamed or replaced"):
        assert_same(full_state(4), checkpoints.latest())
    older.write_bytes(whole)
    with pytest.raises(CheckpointError, match="renamed or replaced; no older checkpoint is left"):
        checkpoints.latest()


def test_what_was_not_removed_in_time_is_removed_at_the_next_start(tmp_path):
    checkpoints = filled(tmp_path, 4, 5)
    (tmp_path / "round-000003.ckpt").write_bytes(dump(full_state(3), IDENTITY))
    checkpoints.on_start(None, full_state(5))
    names = sorted(path.name for path in tmp_path.glob("round-*"))
    assert names == ["round-000004.ckpt", "round-000005.ckpt"]


def test_what_a_crash_left_half_written_is_ignored_and_cleared(tmp_path):
    checkpoints = filled(tmp_path, 4)
    leftover = tmp_path / ".round-000005.ckpt.4242.tmp"
    leftover.write_bytes(WHOLE[:100])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(full_state(4), checkpoints.latest())
    checkpoints.on_start(None, full_state())
    assert not leftover.exists()
    assert_same(full_state(4), checkpoints.latest())


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mfairfl.files.os.fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, b"new and longer")
    assert target.read_bytes() == b"old"
