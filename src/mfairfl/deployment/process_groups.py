"""Processes that end with the one that started them, however it ends.

A process group is led by a watchdog: this module, run as a program. Its standard input is a pipe
that only its parent holds open, so the pipe ends with the parent, even with one that was killed.
Then it kills the group and all that the group started: Flower's server puts its helpers into
sessions of their own, where no signal to the group reaches them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from mfairfl.errors import FederationError

Process = subprocess.Popen[bytes]
PRIVATE = 0o077
"""The umask of processes whose files only their user may read."""
LEAVING = 5.0
"""Seconds that processes which were killed may take to be gone."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and the environment it needs."""

    words: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Program:
    """A process that a deployment needs.

    Parameters
    ----------
    name : str
        What messages call it.
    """

    name: str
    process: Process
    log: Path


def require_running(programs: Iterable[Program]) -> None:
    """Raise if one of the programs has ended."""
    for program in programs:
        if (code := program.process.poll()) is not None:
            raise FederationError(
                f"{program.name} ended with code {code}: see {program.log}, then repeat the "
                "command; a run resumes from its last completed round"
            )


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group whose members end when this process does, however it ends.

    Parameters
    ----------
    watchdog : Popen
        The group's leader.
    pipe : int
        While this end of a pipe is open, the members live.
    """

    watchdog: Process
    pipe: int
    _programs: list[Program] = field(default_factory=list)

    @property
    def id(self) -> int:
        """The group's number, for `subprocess`."""
        return self.watchdog.pid

    def join(self) -> None:
        """Make this process a member: a fork of the one that made the group."""
        os.setpgid(0, self.id)
        os.close(self.pipe)

    def start(self, name: str, command: Command, log: Path) -> Program:
        """Start a program that is stopped with the group, in reverse order of the starts.

        Ctrl-C does not reach it directly. Only this user can read its log and what it writes.
        """
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(opened, "ab") as file:
            process = subprocess.Popen(
                command.words,
                env=command.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=self.id,
                umask=PRIVATE,
            )
        self._programs.append(Program(name, process, log))
        return self._programs[-1]

    def stop(self) -> None:
        """Stop the programs and all that they started."""
        stop([program.process for program in reversed(self._programs)])


@contextlib.contextmanager
def watched_group() -> Iterator[ProcessGroup]:
    """Make a process group that ends with the block, or with this process if that is killed.

    Examples
    --------
    >>> with watched_group() as group:
    ...     sleeper = subprocess.Popen(["sleep", "600"], process_group=group.id)
    >>> sleeper.wait()
    -9
    """
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "mfairfl.deployment.process_groups"]
    try:
        watchdog = subprocess.Popen(words, stdin=reading, stdout=subprocess.PIPE, process_group=0)
    finally:
        os.close(reading)
    with contextlib.ExitStack() as stack:
        stack.enter_context(watchdog)
        stack.callback(os.close, writing)
        if watchdog.stdout is None or not watchdog.stdout.read(1):
            raise FederationError(
                f"{' '.join(words)}: the watchdog does not start, so nothing would end what is "
                "started here"
            )
        group = ProcessGroup(watchdog, writing)
        stack.callback(group.stop)
        yield group


def stop(processes: Sequence[Process], *, seconds: float = 15) -> None:
    """End processes and all that they started; what does not end in time is killed."""
    running = [process for process in processes if process.poll() is None]
    children = [child for process in running for child in descendants(process.pid)]
    for process in running:
        process.terminate()
    end = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    # Flower's helpers watch their parent and end by themselves, a few seconds later.
    kill(psutil.wait_procs(children, max(0.0, end - time.monotonic()))[1])


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill processes that others started, and wait until they are gone."""
    for process in processes:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(processes, LEAVING)


def descendants(pid: int) -> list[psutil.Process]:
    """Return the processes that a process started, directly or not."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process still runs; one that ended and was not waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
        process.send_signal(number)


# ------------------------------------------------------------------ the watchdog


def end_group(group: int) -> None:
    """Kill the processes of a group and their descendants, except the caller.

    They are stopped first, so that none starts another while the rest is looked for.
    """
    family: set[psutil.Process] = set()
    while new := set(_family(group)) - family:
        for process in new:
            _signal(process, signal.SIGSTOP)
        family |= new
    for process in family:
        _signal(process, signal.SIGKILL)


def _family(group: int) -> Iterator[psutil.Process]:
    """Yield the members of a group, and what they started, wherever it went."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if process.pid != os.getpid() and os.getpgid(process.pid) == group:
                yield process
                yield from process.children(recursive=True)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("error: this would end the group of its own parent; use watched_group")
    for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, signal.SIG_IGN)  # it leaves last
    os.write(1, b".")  # it watches from now on
    os.close(1)
    while os.read(0, 1):  # nothing is ever written: this waits for the end of the pipe
        pass
    end_group(os.getpgrp())
