"""Ends a group of processes when the one that started them ends, however it ends.

`mfairfl.deployment.processes.watched_group` starts it as the leader of the group. Its standard
input is a pipe that only its parent holds open, so the pipe ends with the parent, even with one
that was killed. Then it kills the group and all that the group started: Flower's server puts its
helpers into sessions of their own, where no signal to the group reaches them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

import psutil


def end_group(group: int) -> None:
    """Kill the processes of a group and their descendants, except the caller.

    They are stopped first, so that none starts another while the rest is looked for.
    """
    found: set[psutil.Process] = set()
    while new := set(_family(group)) - found:
        for process in new:
            _signal(process, signal.SIGSTOP)
        found |= new
    for process in found:
        _signal(process, signal.SIGKILL)


def _family(group: int) -> Iterator[psutil.Process]:
    """Yield the members of a group, and what they started, wherever it went."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if process.pid != os.getpid() and os.getpgid(process.pid) == group:
                yield process
                yield from process.children(recursive=True)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
        process.send_signal(number)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("error: this would end the group of whoever starts it; use watched_group")
    for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, signal.SIG_IGN)  # it leaves last
    os.write(1, b".")  # it watches from now on
    os.close(1)
    while os.read(0, 1):  # nothing is ever written: this waits for the end of the pipe
        pass
    end_group(os.getpgrp())
