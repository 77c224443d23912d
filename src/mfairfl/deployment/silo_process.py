"""A silo's process: keeps its SuperNode running, and answers messages in forks of itself."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from filelock import FileLock, Timeout

from mfairfl.deployment.commands import supernode
from mfairfl.deployment.installed_app import DOOR, Answer, load_answer
from mfairfl.deployment.processes import Process, stop
from mfairfl.errors import FederationError, MfairflError
from mfairfl.remote.silo_file import SiloSettings, load_silo

__all__ = ["run_silo"]

_PAUSE = 10.0  # seconds before a SuperNode that ended is started again
_LOOK = 0.2
_LONGEST = 1 << 16  # bytes of a command line
_log = logging.getLogger("mfairfl")


def run_silo(file: Path) -> None:
    """Run until told to stop. A SuperNode that ends is started again, after a pause.

    The server holds the place of a silo that was killed for a minute, and refuses it until then.
    """
    settings = load_silo(file)
    programme = supernode(settings, file)
    signal.signal(signal.SIGTERM, _leave)
    answer, children, node = load_answer(), set[int](), None
    again = 0.0
    with _alone(settings), _door(settings.state / "bin") as door:
        try:
            while True:
                if node is not None and node.poll() is not None:
                    _log.warning("the SuperNode ended with code %s", node.returncode)
                    node, again = None, time.monotonic() + _PAUSE
                if node is None and time.monotonic() >= again:
                    node = subprocess.Popen(
                        programme.command,
                        env=dict(programme.env),
                        stdin=subprocess.DEVNULL,
                        preexec_fn=_end_with_parent(),  # noqa: PLW1509 - there is one thread
                    )
                children = {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0}
                if (words := _knock(door)) is not None:
                    children.add(_fork(answer, words, door))
        finally:
            _end(node, children)


@contextlib.contextmanager
def _alone(settings: SiloSettings) -> Iterator[None]:
    """Refuse a second process with the same state: it would take the first one's messages."""
    try:
        with FileLock(settings.state / ".lock", timeout=0):
            yield
    except Timeout:
        raise FederationError(
            f"{settings.state}: another process of silo '{settings.name}' uses it; stop it first"
        ) from None


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _end(node: Process | None, children: set[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    if node is not None:
        stop([node], seconds=10)


def _door(folder: Path) -> socket.socket:
    """Open the door in its folder; the path of a socket must be short, so go there."""
    here, door = Path.cwd(), socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    try:
        Path(DOOR).unlink(missing_ok=True)
        door.bind(DOOR)
    finally:
        os.chdir(here)
    door.listen(64)
    door.settimeout(_LOOK)
    return door


def _knock(door: socket.socket) -> list[str] | None:
    """Return the command line that somebody hands in, if anybody does."""
    try:
        visitor, _ = door.accept()
    except TimeoutError:
        return None
    with visitor, visitor.makefile("rb") as lines:
        visitor.settimeout(5)
        try:
            words = json.loads(lines.readline(_LONGEST))
            visitor.sendall(b".")
        except (OSError, ValueError) as error:
            _log.warning("a knock without words (%s)", error)
            return None
    if not isinstance(words, list) or words[:1] != ["flwr-clientapp"]:
        _log.warning("the server asked for %s; this silo only runs its client app", words[:1])
        return None
    return [str(word) for word in words]


def _fork(answer: Answer, words: list[str], door: socket.socket) -> int:
    """Answer a message in a copy of this process, which has one thread and all loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        door.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer(words)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        _log.exception("a message could not be answered")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with_parent() -> Callable[[], None] | None:
    """Return what makes a child end when this process is killed, where the system can."""
    if not sys.platform.startswith("linux"):
        return None
    libc, set_death_signal = ctypes.CDLL(None), 1
    return lambda: libc.prctl(set_death_signal, signal.SIGTERM)


if __name__ == "__main__":
    _handler = logging.StreamHandler()  # not of the root: Flower writes its own lines
    _handler.setFormatter(logging.Formatter("%(asctime)s mfairfl: %(message)s"))
    _log.addHandler(_handler)
    try:
        run_silo(Path(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
    except MfairflError as error:
        sys.exit(f"error: {error}")
