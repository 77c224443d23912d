"""kill -9: a run that is killed and started again ends in the bytes of an undisturbed one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import federations as fed
import mfairfl
from mfairfl.runs.record import RunRecord

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1] / "helpers"
SHORT = {"rounds": 3, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "strategy": "scaffold"}
# Imports take longer than the run: one process imports, and forks a new one for every start.
STARTER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import federations as fed
import mfairfl
mfairfl.train(fed.people_table(), rounds=1, hidden=(4,), batch_size=20)
for line in sys.stdin:
    out, failpoint, settings = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.environ["MFAIRFL_FAILPOINT"] = failpoint
        mfairfl.train(fed.people_table(), out=out, **settings)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Starter:
    """Starts runs in processes of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, out: Path, settings: dict[str, object], failpoint: str = "") -> int:
        """Start a run and return its process's number."""
        print(json.dumps([str(out), failpoint, settings]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def code(self) -> int:
        """Wait for the run that was started; return its exit code."""
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def starter():
    command = [sys.executable, "-c", STARTER, str(TESTS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Starter(process)


def result(out: Path) -> dict[str, object]:
    """Every file of a run and its baseline; of their records all but the time."""
    files = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    records = {
        str(path.relative_to(out)): RunRecord.read(path).model_dump(
            mode="json", exclude={"timing"}
        )
        for path in out.rglob("run.json")
    }
    return files | records


def reached(out: Path, round_: int) -> bool:
    """Say whether a round is committed; before the first, whether the folder is locked."""
    if round_ < 0:
        return (out / ".lock").exists()
    found = (out / "checkpoint").glob("round-*.ckpt")
    return any(int(path.stem.removeprefix("round-")) >= round_ for path in found)


def kill_after(starter: Starter, out: Path, round_: int, delay: float) -> int:
    """Start the run and kill it soon after a round is committed; return its exit code."""
    pid = starter.start(out, fed.LONG)
    given_up = time.monotonic() + 60
    while not reached(out, round_) and time.monotonic() < given_up:
        time.sleep(0.0005)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    return starter.code()


def test_killed_again_and_again(starter, tmp_path):
    out, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    moments = [(-1, 0.0), (0, 0.0), (2, 0.01), (4, 0.02), (6, 0.03)]
    codes = [kill_after(starter, out, round_, delay) for round_, delay in moments]
    assert codes == [-signal.SIGKILL] * len(moments)  # each was at work when it was killed
    for folder in (out, undisturbed):
        mfairfl.train(fed.people_table(), out=folder, **fed.LONG)
    assert result(out) == result(undisturbed)  # and nothing half-written is left behind


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    mfairfl.train(fed.people_table(), out=out, **SHORT)
    return result(out)


@pytest.mark.parametrize(
    "failpoints",
    [
        ["round.combined@2"],
        ["history.rounds@2"],
        ["file.synced@round-000002.ckpt"],
        ["checkpoint.committed@3"],
        ["file.written@run.json", "history.clients@2", "file.renamed@rounds.csv"],
        ["run.served", "file.synced@run.json", "file.renamed@run.json"],
    ],
    ids="+".join,
)
def test_killed_at_failpoints(failpoints, starter, undisturbed, tmp_path):
    out = tmp_path / "run"
    for failpoint in failpoints:
        starter.start(out, SHORT, failpoint)
        assert starter.code() == -signal.SIGKILL, failpoint
    mfairfl.train(fed.people_table(), out=out, **SHORT)
    assert result(out) == undisturbed
