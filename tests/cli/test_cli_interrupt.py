"""Stopped runs go on to the same bits; damaged checkpoints are spoken of."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from mfairfl.runs.record import RunRecord
from records import as_running

ROUNDS = 100


@pytest.fixture
def whole(cli, csv, task_flags, tmp_path):
    """An undisturbed run of four rounds, and the command that made it."""
    command = ("train", "--csv", csv, *task_flags, "--rounds", "4", "--hidden", "4", "--out", "r")
    assert cli(*command).code == 0
    return command, (tmp_path / "r" / "model.safetensors").read_bytes()


def interrupt(folder):
    """Bring a finished run back to where its last checkpoint left it."""
    as_running(RunRecord.read(folder)).write(folder)
    (folder / "model.safetensors").unlink()


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_checkpoint_before_a_damaged_one_is_used_with_a_warning(cli, whole, tmp_path):
    command, model = whole
    interrupt(tmp_path / "r")
    damage(tmp_path / "r" / "checkpoint" / "round-000004.ckpt")
    answer = cli(*command)
    assert answer.code == 0
    first, second, *_ = answer.err.splitlines()
    assert first == (
        "warning: r/checkpoint/round-000004.ckpt: its SHA-256 does not match: the file is "
        "damaged; going on from round 3 instead"
    )
    assert second == "run folder: r, resuming after round 3"
    assert (tmp_path / "r" / "model.safetensors").read_bytes() == model


def test_run_without_a_valid_checkpoint_is_refused(cli, whole, tmp_path):
    command, _ = whole
    interrupt(tmp_path / "r")
    for path in (tmp_path / "r" / "checkpoint").glob("*.ckpt"):
        damage(path)
    answer = cli(*command)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: r/checkpoint/round-000004.ckpt: its SHA-256")
    assert "no older checkpoint is left: delete r/checkpoint to start again" in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_goes_on_to_the_same_bits(cli, csv, task_flags, tmp_path):
    command = ["train", "--csv", "people.csv", *task_flags, "--rounds", str(ROUNDS)]
    command += ["--local-epochs", "2", "--hidden", "4", "--out"]
    # A child of a shell's background job would ignore the signal; a handler here undoes that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "mfairfl", *command, "stopped"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    for line in child.stderr:
        if line.startswith("round 10/"):
            child.send_signal(signal.SIGINT)
            break
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    said = re.fullmatch(
        r"stopped after round (\d+); repeat the command to resume", err.splitlines()[-1]
    )
    stopped = int(said[1])
    assert 9 <= stopped < ROUNDS
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    resumed = cli(*command, "stopped")
    assert resumed.code == 0
    assert resumed.err.splitlines()[0] == f"run folder: stopped, resuming after round {stopped}"
    assert cli(*command, "straight").code == 0
    for name in ("model.safetensors", "scores.safetensors", "rounds.csv", "clients.csv"):
        ours, theirs = tmp_path / "stopped" / name, tmp_path / "straight" / name
        assert ours.read_bytes() == theirs.read_bytes()


def test_ctrl_c_before_the_first_round(cli, csv, task_flags, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mfairfl.runs.execute.run_requests", stop)
    answer = cli("train", "--csv", csv, *task_flags, "--out", "r")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == "stopped before the first round; repeat the command to start\n"


def test_ctrl_c_elsewhere_is_quiet(cli, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr("mfairfl.strategies.available", stop)
    answer = cli("strategies")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err.strip() == ""
