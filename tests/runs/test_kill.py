"""kill -9: a run that is killed and started again ends in the bytes of an undisturbed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import federations as fed
import mfairfl

TESTS = Path(__file__).parent.parent
# Imports take longer than the run: one process imports, and forks a new one for every start.
STARTER = """
import os, sys
sys.path.insert(0, sys.argv[2])
import federations as fed
import mfairfl
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        mfairfl.train(fed.people_table(), out=sys.argv[1], **fed.LONG)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def result(out: Path) -> dict[str, bytes]:
    names = ("model.safetensors", "encoder.json", "rounds.csv", "clients.csv")
    return {name: (out / name).read_bytes() for name in names}


def reached(out: Path, round_: int) -> bool:
    """Say whether a round is committed; before the first, whether the folder is locked."""
    if round_ < 0:
        return (out / ".lock").exists()
    found = (out / "checkpoint").glob("round-*.ckpt")
    return any(int(path.stem.removeprefix("round-")) >= round_ for path in found)


def kill_after(starter: subprocess.Popen[str], out: Path, round_: int, delay: float) -> int:
    """Start the run and kill it soon after a round is committed; return its exit code."""
    starter.stdin.write("start\n")
    starter.stdin.flush()
    pid = int(starter.stdout.readline())
    given_up = time.monotonic() + 60
    while not reached(out, round_) and time.monotonic() < given_up:
        time.sleep(0.0005)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    return int(starter.stdout.readline())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    mfairfl.train(fed.people_table(), out=out, **fed.LONG)
    return result(out)


def test_killed_again_and_again(undisturbed, tmp_path):
    out = tmp_path / "run"
    moments = [(-1, 0.0), (0, 0.0), (2, 0.01), (4, 0.02), (6, 0.03)]
    command = [sys.executable, "-c", STARTER, str(out), str(TESTS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        codes = [kill_after(starter, out, round_, delay) for round_, delay in moments]
    assert codes == [-signal.SIGKILL] * len(moments)  # each was at work when it was killed
    run = mfairfl.train(fed.people_table(), out=out, **fed.LONG)
    assert result(out) == undisturbed
    assert run.record.status == "complete"
    assert not list(out.rglob("*.tmp"))  # nothing half-written is left behind
