"""Damaged checkpoints, full and read-only disks, several processes on one folder: what is lost.

A run is interrupted in each of these ways, and repeated by the same command once the trouble is
over. It must end in the bytes of an undisturbed run, and whatever is refused on the way must be
refused in one line. Disks are small file systems in memory, which Linux lets any user mount in a
namespace of their own; where that is not allowed, the lines about disks say so.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from failpoints import VARIABLE, result
from mfairfl.cli import main as mfairfl
from mfairfl.engine.checkpoint import Checkpoints, dump
from mfairfl.errors import CheckpointError
from mfairfl.runs.record import read_record
from mfairfl.testing import people

MUTATIONS = 1_000
AT_ONCE, RACES = 4, 20
DISK_KB = 1_000
STEP_KB = 4  # a page: what a file system in memory hands out
NAMESPACE = "--in-a-namespace"
UNSHARE = ("unshare", "--map-root-user", "--mount")
TOML = """\
strategy = { name = "scaffold" }
data = { csv = "people.csv" }
task = { label = "hired", favourable = "yes", sensitive = ["sex"], client = "site" }
model = { hidden = [8] }
training = { rounds = 10, local_epochs = 1, batch_size = 16 }
output = { rule = "mixture" }
"""


class Command:
    """`mfairfl train` on a small federation, in forks of this process."""

    def __init__(self, folder: Path) -> None:
        self._toml, self._folder = folder / "people.toml", folder
        people().to_csv(folder / "people.csv", index=False)
        self._toml.write_text(TOML, encoding="utf-8")

    def start(self, out: Path, *, seed: int = 0, failpoint: str = "") -> tuple[int, Path]:
        """Start it; return its process and the file with what it says."""
        said = Path(tempfile.mkstemp(dir=self._folder, suffix=".said")[1])
        if pid := os.fork():
            return pid, said
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(said, os.O_WRONLY), 2)
        os.environ[VARIABLE] = failpoint
        words = ["train", str(self._toml), "--out", str(out), "--seed", str(seed), "--json"]
        os._exit(mfairfl(words))

    def run(self, out: Path, *, seed: int = 0, failpoint: str = "") -> tuple[int, str]:
        """Return its exit code and what it said."""
        return ended(*self.start(out, seed=seed, failpoint=failpoint))

    def finish(self, out: Path, expected: dict[str, object]) -> bool:
        """Repeat it, and say whether it ended as it should."""
        return self.run(out)[0] == 0 and result(out) == expected


def ended(pid: int, said: Path) -> tuple[int, str]:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, said.read_text(encoding="utf-8")


def refused(answer: tuple[int, str], words: str) -> bool:
    """Say whether a command ended in one line with these words."""
    code, said = answer
    lines = [line for line in said.splitlines() if not line.startswith("warning: ")]
    return code == 2 and len(lines) == 1 and lines[0].startswith("error: ") and words in said


# ------------------------------------------------------------------ damaged checkpoints

Damage = Callable[[bytes, random.Random], bytes]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _change_byte(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ draw.randrange(1, 256)]) + data[at + 1 :]


def _lose_block(data: bytes, draw: random.Random) -> bytes:
    """Zeros where a block was not written; the first byte always differs."""
    at = draw.randrange(len(data))
    size = min(512, len(data) - at)
    return data[:at] + bytes([data[at] ^ 1]) + bytes(size - 1) + data[at + size :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(draw.randrange(1, 64)) + data[at:]


def _move(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(1, len(data))
    return data[at:] + data[:at]


BYTES: dict[str, Damage] = {
    "cut short": _cut,
    "one byte changed": _change_byte,
    "block lost": _lose_block,
    "bytes inserted": _insert,
    "halves swapped": _move,
}


def damaged(kind: str, older: Path, newer: Path, stranger: bytes, draw: random.Random) -> None:
    """Damage the newer of two checkpoints, or both, or a file of models that they refer to."""
    first, second = older.read_bytes(), newer.read_bytes()
    if kind == MODELS:
        bank = draw.choice(sorted(newer.parent.glob("bank-*.ckpt")))
        bank.write_bytes(draw.choice(list(BYTES.values()))(bank.read_bytes(), draw))
    elif kind == "swapped with the older":
        older.write_bytes(second)
        newer.write_bytes(first)
    elif kind == "replaced by the older":
        newer.write_bytes(first)
    elif kind == "of another run":
        newer.write_bytes(stranger)
    else:
        newer.write_bytes(BYTES[kind](second, draw))
        if draw.random() < 0.2:
            older.write_bytes(BYTES[kind](first, draw))


MODELS = "file of models damaged"
KINDS = (*BYTES, MODELS, "swapped with the older", "replaced by the older", "of another run")


def outcome(folder: Path, identity: str, sound: bytes) -> str:
    """Read the newest checkpoint; say what came of it, given what the older one held."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            state = Checkpoints(folder, identity).latest()
        except CheckpointError as error:
            return "refused" if "\n" not in str(error) else "loaded silently"
    if not said or state is None or dump(state, identity) != sound:
        return "loaded silently"
    return "older one used with a warning"


def damaged_checkpoints(command: Command, folder: Path, expected: dict[str, object]) -> bool:
    stopped, other = folder / "stopped", folder / "other"
    command.run(stopped, failpoint="round.planned@7")
    command.run(other, seed=1, failpoint="round.planned@7")
    identity = read_record(stopped / "run.json").identity
    names = [path.name for path in sorted((stopped / "checkpoint").glob("round-*.ckpt"))]
    shutil.copytree(stopped / "checkpoint", folder / "older alone")
    (folder / "older alone" / names[1]).unlink()
    state = Checkpoints(folder / "older alone", identity).latest()
    assert state is not None
    sound = dump(state, identity)
    stranger = (other / "checkpoint" / names[1]).read_bytes()
    draw, found, same = random.Random(0), Counter[str](), 0  # noqa: S311 - nothing secret
    for i in range(MUTATIONS):
        out = folder / "damaged"
        shutil.copytree(stopped, out)
        older, newer = (out / "checkpoint" / name for name in names)
        damaged(KINDS[i % len(KINDS)], older, newer, stranger, draw)
        seen = outcome(out / "checkpoint", identity, sound)
        found[seen] += 1
        if i < 2 * len(KINDS):  # each kind twice to its end; who is told to delete, deletes
            if seen == "refused":
                shutil.rmtree(out / "checkpoint")
            same += command.finish(out, expected)
        shutil.rmtree(out)
    parts = ", ".join(f"{n} {what}" for what, n in sorted(found.items()))
    silent = found["loaded silently"]
    print(f"{MUTATIONS} damaged checkpoints: {silent} loaded silently ({parts})")
    print(f"    taken up from them: {same} of {2 * len(KINDS)} bit-identical")
    return silent == 0 and same == 2 * len(KINDS)


# ------------------------------------------------------------------ disks


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def unmount(folder: Path) -> None:
    subprocess.run(["umount", folder], check=True)


def full_disk(command: Command, folder: Path, expected: dict[str, object]) -> bool:
    """Leave less room than the run needs, 4 kB at a time; then free it."""
    need = sum(path.stat().st_size for path in (folder / "undisturbed").rglob("*")) // 1000
    disk = folder / "disk"
    disk.mkdir()
    full = stated = same = 0
    for room in range(0, 4 * need, STEP_KB):
        mount(disk, f"size={DISK_KB}k")
        ballast = disk / "ballast"
        ballast.write_bytes(bytes((DISK_KB - room) * 1024))
        answer = command.run(disk / "run")
        ballast.unlink()
        if answer[0] != 0:
            full += 1
            stated += refused(answer, "No space left on device")
            same += command.finish(disk / "run", expected)
        unmount(disk)
        if answer[0] == 0:
            break
    print(
        f"{full} full disks (0 to {(full - 1) * STEP_KB} kB left): {stated} of {full} said in one "
        f"line, {same} of {full} bit-identical after space was freed"
    )
    return full == stated == same > 0


def read_only_disk(command: Command, folder: Path, expected: dict[str, object]) -> bool:
    """Make the disk of a new, of an interrupted and of a finished run read-only."""
    disk = folder / "read-only"
    disk.mkdir()
    stated = same = 0
    stages = {"new": "", "interrupted": "round.planned@5", "before its record": "run.served"}
    for place in stages.values():
        mount(disk, f"size={DISK_KB}k")
        if place:
            command.run(disk / "run", failpoint=place)
        mount(disk, "remount,ro")
        stated += refused(command.run(disk / "run"), "Read-only file system")
        mount(disk, "remount,rw")
        same += command.finish(disk / "run", expected)
        unmount(disk)
    print(
        f"{len(stages)} read-only disks ({', '.join(stages)}): {stated} of {len(stages)} said in "
        f"one line, {same} of {len(stages)} bit-identical when writable again"
    )
    return stated == same == len(stages)


# ------------------------------------------------------------------ two processes


def at_once(command: Command, folder: Path, expected: dict[str, object]) -> bool:
    """Start several processes on one folder at the same moment."""
    turned_away = wrong = same = 0
    for race in range(RACES):
        out = folder / f"race-{race}"
        answers = [ended(*one) for one in [command.start(out) for _ in range(AT_ONCE)]]
        for answer in answers:
            away = refused(answer, "another process is using this run")
            turned_away += away
            wrong += not away and answer[0] != 0
        same += result(out) == expected
    print(
        f"{RACES} times {AT_ONCE} processes on one folder: {turned_away} turned away in one line, "
        f"{wrong} otherwise failed, {same} of {RACES} bit-identical"
    )
    return wrong == 0 and turned_away > 0 and same == RACES


def _may_mount() -> bool:
    if shutil.which(UNSHARE[0]) is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


def main() -> int:
    inside = NAMESPACE in sys.argv
    if not inside and _may_mount():
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, __file__, NAMESPACE])  # noqa: S606
    parts = [damaged_checkpoints, at_once]
    parts += [full_disk, read_only_disk] if inside else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = Command(folder)
        # Here, so that all is loaded before the forks.
        words = ["train", str(folder / "people.toml"), "--out", str(folder / "undisturbed")]
        with contextlib.redirect_stdout(io.StringIO()):
            mfairfl([*words, "--json"])
        expected, sound = result(folder / "undisturbed"), True
        for part in parts:
            before = time.monotonic()
            sound &= part(command, folder, expected)
            print(f"    ({time.monotonic() - before:.0f} s)", flush=True)
    if not inside:
        print("full and read-only disks: not tried, this user may not mount file systems")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
