"""A silo's process: keeps its SuperNode running, and answers messages in forks of itself."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from mfairfl.deployment.commands import supernode_command
from mfairfl.deployment.installed_app import SOCKET, ClientProcess, load_client_app
from mfairfl.deployment.processes import (
    PRIVATE,
    Process,
    WatchedGroup,
    sole_use,
    stop,
    watched_group,
)
from mfairfl.errors import MfairflError
from mfairfl.remote.policy import load_policy
from mfairfl.remote.silo_file import load_silo

__all__ = ["listen", "receive_command", "run_silo"]

_PAUSE = 10.0  # seconds before a SuperNode that ended is started again
_POLL = 0.2
_LONGEST = 1 << 16  # bytes of a command line
_log = logging.getLogger("mfairfl")


def run_silo(file: Path) -> None:
    """Run until stopped. A SuperNode that ends is started again, after a pause.

    The server reserves the place of a silo that was killed for a minute, and refuses it until
    then. All that is started here ends with this process, however it ends.
    """
    settings = load_silo(file)
    load_policy(file)  # every message reads it anew; a mistake in it is said now
    os.umask(PRIVATE)  # what is written here, by Flower as well, is the silo's alone
    command = supernode_command(settings, file)
    signal.signal(signal.SIGTERM, _exit)
    answer, children, node = load_client_app(), set[int](), None
    restart_at = 0.0
    with (
        sole_use(settings.state),
        listen(settings.state / "bin") as listener,
        watched_group() as group,
    ):
        try:
            while True:
                if node is not None and node.poll() is not None:
                    _log.warning("the SuperNode ended with code %s", node.returncode)
                    node, restart_at = None, time.monotonic() + _PAUSE
                if node is None and time.monotonic() >= restart_at:
                    node = subprocess.Popen(
                        command.words,
                        env=dict(command.env),
                        stdin=subprocess.DEVNULL,
                        process_group=group.id,
                    )
                children = {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0}
                if (words := receive_command(listener)) is not None:
                    children.add(_fork(answer, words, listener, group))
        finally:
            _end(node, children)


def _exit(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _end(node: Process | None, children: set[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    if node is not None:
        stop([node], seconds=10)


def listen(folder: Path) -> socket.socket:
    """Return the socket that launchers in `folder` connect to."""
    before, listener = Path.cwd(), socket.socket(socket.AF_UNIX)
    os.chdir(folder)  # the path of a socket must be short
    try:
        Path(SOCKET).unlink(missing_ok=True)
        listener.bind(SOCKET)
    finally:
        os.chdir(before)
    listener.listen(64)
    listener.settimeout(_POLL)
    return listener


def receive_command(listener: socket.socket) -> list[str] | None:
    """Return the command line of a launcher, if one connects and it is for the client app."""
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        return None
    with connection, connection.makefile("rb") as lines:
        connection.settimeout(5)
        try:
            words = json.loads(lines.readline(_LONGEST))
            connection.sendall(b".")
        except (OSError, ValueError) as error:
            _log.warning("a connection without a command line (%s)", error)
            return None
    if not isinstance(words, list) or words[:1] != ["flwr-clientapp"]:
        _log.warning("the server asked for %s; this silo only runs its client app", words[:1])
        return None
    return [str(word) for word in words]


def _fork(
    answer: ClientProcess, words: list[str], listener: socket.socket, group: WatchedGroup
) -> int:
    """Answer a message in a copy of this process, which has one thread and all loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        group.join()
        listener.close()
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
