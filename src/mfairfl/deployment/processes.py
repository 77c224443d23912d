"""Flower's programs as processes: environment, readiness, and an end that leaves none behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from filelock import FileLock, Timeout

from mfairfl.errors import FederationError
from mfairfl.files import make_private_folder

Process = subprocess.Popen[bytes]
PRIVATE = 0o077
"""The umask of processes whose files nobody else may read."""
_UMASK = "MFAIRFL_UMASK"
_HOME = "FLWR_HOME"
_GET_SUBREAPER, _SET_SUBREAPER = 37, 36  # of Linux's <sys/prctl.h>
_LEAVING = 5.0  # seconds that processes which were killed may take to be gone
# Whatever the user's own Flower programs may tell: those of mfairfl tell nobody anything.
_SILENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_QUIET = _SILENT | {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
# Several processes share a machine, and equal numbers need equal arithmetic.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and the environment it needs."""

    words: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Program:
    """A process that a deployment cannot do without.

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


def environment(state: Path) -> dict[str, str]:
    """Return the environment of a Flower program.

    Parameters
    ----------
    state : Path
        The folder of what it keeps, which nobody else may enter. Flower's own files have a folder
        in it: nothing is shared with other Flower programs of this user.
    """
    home = make_private_folder(make_private_folder(state) / "flwr")
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    own = {_HOME: str(home), "PATH": os.pathsep.join(filter(None, folders))}
    return os.environ | _QUIET | _ONE_THREAD | own | {_UMASK: _umask()}


def silence_flower() -> None:
    """Let Flower report nothing from this process, whether it is imported yet or not.

    Examples
    --------
    >>> silence_flower()
    >>> from flwr.supercore.telemetry import EventType, event
    >>> event(EventType.PING).result()  # doctest: +SKIP
    'disabled'
    """
    os.environ.update(_SILENT)
    if loaded := sys.modules.get("flwr.supercore.telemetry"):  # it has read the environment
        vars(loaded)["FLWR_TELEMETRY_ENABLED"] = _SILENT["FLWR_TELEMETRY_ENABLED"]


def _umask() -> str:
    """Return the umask that the user chose."""
    if _UMASK in os.environ:  # this process was started with a stricter one
        return os.environ[_UMASK]
    now = os.umask(PRIVATE)
    os.umask(now)
    return f"{now:o}"


def use_given_umask() -> None:
    """Go back to the user's umask, in a process whose results are for the user to share."""
    os.umask(int(_umask(), 8))


@dataclass(frozen=True, slots=True)
class WatchedGroup:
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

    @property
    def id(self) -> int:
        """The group's number, for `start` and for `subprocess`."""
        return self.watchdog.pid

    def join(self) -> None:
        """Make this process a member: a fork of the one that made the group."""
        os.setpgid(0, self.id)
        os.close(self.pipe)


@contextlib.contextmanager
def watched_group() -> Iterator[WatchedGroup]:
    """Make a process group that ends with the block, or with this process if that is killed.

    Examples
    --------
    >>> with watched_group() as group:
    ...     sleeper = subprocess.Popen(["sleep", "600"], process_group=group.id)
    >>> sleeper.wait()
    -9
    """
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "mfairfl.deployment.watchdog"]
    try:
        watchdog = subprocess.Popen(words, stdin=reading, stdout=subprocess.PIPE, process_group=0)
    finally:
        os.close(reading)
    with watchdog:
        try:
            if watchdog.stdout is None or not watchdog.stdout.read(1):
                raise FederationError(
                    f"{' '.join(words)}: does not start, so nothing would end what is started here"
                )
            yield WatchedGroup(watchdog, writing)
        finally:
            os.close(writing)


@contextlib.contextmanager
def adopted_orphans(state: Path) -> Iterator[None]:
    """Become the parent of processes that lose theirs, and end those of `state` with the block.

    Flower's server has helpers in sessions of their own. Once it was killed, neither its process
    number nor its group leads to them. Elsewhere than on Linux they cannot be adopted: they end
    when they notice, and until then `sole_use` names them.

    Parameters
    ----------
    state : Path
        The folder with the Flower files of the processes to end.
    """
    prctl, before = getattr(ctypes.CDLL(None), "prctl", None), ctypes.c_int()
    if prctl is None:
        yield
        return
    prctl(_GET_SUBREAPER, ctypes.byref(before))
    prctl(_SET_SUBREAPER, ctypes.c_ulong(1))
    try:
        yield
    finally:
        orphans = [child for child in descendants(os.getpid()) if _keeps_files_in(state, child)]
        for orphan in orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
        _await_end(orphans, seconds=_LEAVING)
        prctl(_SET_SUBREAPER, ctypes.c_ulong(before.value))


def start(command: Command, *, log: Path, group: int = 0) -> Process:
    """Start a program outside our process group, so that Ctrl-C does not reach it directly.

    Nobody else can read its log, nor what it writes.

    Parameters
    ----------
    group : int
        The process group; by default a new one.
    """
    make_private_folder(log.parent)
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(opened, "ab") as file:
        return subprocess.Popen(
            list(command.words),
            env=dict(command.env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=group,
            umask=PRIVATE,
        )


@contextlib.contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; refuse it while processes of another deployment use it.

    Those may be at work, or left behind: two servers on one database would destroy it.
    """
    lock = FileLock(make_private_folder(folder) / ".lock", mode=0o600)
    end = time.monotonic() + _LEAVING
    try:
        lock.acquire(timeout=_LEAVING)
    except Timeout:
        raise _in_use(folder, _users(folder)) from None
    try:
        while (found := _users(folder)) and time.monotonic() < end:
            time.sleep(0.1)
        if found:
            raise _in_use(folder, found)
        yield
    finally:
        lock.release()


def _in_use(folder: Path, processes: Sequence[psutil.Process]) -> FederationError:
    named = ", ".join(f"{process.pid} {_program(process)}" for process in processes)
    numbers = " ".join(str(process.pid) for process in processes)
    return FederationError(
        f"{folder}: processes of another deployment use it ({named or 'of another user'}); wait "
        f"for them, or end them{': kill ' * bool(numbers)}{numbers}"
    )


def _users(folder: Path) -> list[psutil.Process]:
    """Return the other processes that hold a folder, or whose Flower files are in it."""
    lock = str(folder.resolve() / ".lock")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended, or is another user's
            holds = _keeps_files_in(folder, process) or any(
                file.path == lock for file in process.open_files()
            )
            if process.pid != os.getpid() and holds and is_alive(process):
                found.append(process)
    return found


def _keeps_files_in(folder: Path, process: psutil.Process) -> bool:
    try:
        home = process.environ().get(_HOME, "")
    except psutil.Error:  # it has just ended, or is another user's
        return False
    return bool(home) and Path(home).is_relative_to(folder.resolve())


def _program(process: psutil.Process) -> str:
    """Say what a process is: the Flower program, our module, or our command."""
    try:
        words: list[str] = process.cmdline()
    except psutil.NoSuchProcess:
        return "just ended"
    for at, word in enumerate(words):
        if (name := Path(word).name).startswith(("flower-", "flwr")):
            return name
        if word.startswith("mfairfl.deployment."):
            return word
        if word == "deploy":
            return " ".join(["mfairfl", *words[at : at + 2]])
    return words[0] if words else "unknown"


def stop(processes: Sequence[Process], *, seconds: float = 15) -> None:
    """End processes and all that they started; what does not end in time is killed."""
    children = [child for process in processes for child in descendants(process.pid)]
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    # Flower's helpers watch their parent and end by themselves, a few seconds later.
    left = _await_end(children, seconds=end - time.monotonic())
    for child in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    _await_end(left, seconds=_LEAVING)


def _await_end(processes: Sequence[psutil.Process], *, seconds: float) -> list[psutil.Process]:
    """Wait for processes that others started; return those that are still alive."""
    end = time.monotonic() + seconds
    while True:
        for process in processes:
            with contextlib.suppress(ChildProcessError):  # adopted ones are ours to wait for
                os.waitpid(process.pid, os.WNOHANG)
        left = [process for process in processes if is_alive(process)]
        if not left or time.monotonic() >= end:
            return left
        time.sleep(0.1)


def descendants(pid: int) -> list[psutil.Process]:
    """Return the processes that a process started, directly or not."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def is_alive(process: psutil.Process) -> bool:
    """Say whether a process still runs; one that ended but was not waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until_healthy(address: str, ca: Path, server: Program, *, seconds: float = 90) -> None:
    """Wait until a server answers over TLS; raise if it ends or the time is up."""
    known, end = ssl.create_default_context(cafile=str(ca)), time.monotonic() + seconds
    known.check_hostname = False  # it is our own server, whatever name silos use for it
    page = f"https://{address}/health"
    while time.monotonic() < end:
        require_running([server])
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(page, verify=known, timeout=2, trust_env=False).is_success:
                return
        time.sleep(0.1)
    raise FederationError(
        f"{server.name} does not answer at {address} after {seconds:g} s; see {server.log}"
    )


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
