"""Flower's programs as processes: environment, readiness, and an end that leaves none behind."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from mfairfl.errors import FederationError

__all__ = [
    "Command",
    "Process",
    "descendants",
    "environment",
    "free_ports",
    "is_alive",
    "start",
    "stop",
    "wait_until_healthy",
]

Process = subprocess.Popen[bytes]
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
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


def environment(home: Path, *first: Path) -> dict[str, str]:
    """Return the environment of a Flower program.

    Parameters
    ----------
    home : Path
        Its own folder; nothing is shared with other Flower programs of this user.
    *first : Path
        Folders that come first in the search path of programs.
    """
    home.mkdir(parents=True, exist_ok=True)
    folders = [*map(str, first), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    own = {"FLWR_HOME": str(home), "PATH": os.pathsep.join(filter(None, folders))}
    return os.environ | _QUIET | _ONE_THREAD | own


def start(command: Command, *, log: Path) -> Process:
    """Start a program in its own process group, so that Ctrl-C does not reach it directly."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command.words),
            env=dict(command.env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
        )


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
    while any(map(is_alive, children)) and time.monotonic() < end:
        time.sleep(0.1)
    for child in filter(is_alive, children):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


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


def wait_until_healthy(address: str, ca: Path, process: Process, *, seconds: float = 90) -> None:
    """Wait until a server answers over TLS; raise if its process ends or the time is up."""
    known, end = ssl.create_default_context(cafile=str(ca)), time.monotonic() + seconds
    known.check_hostname = False  # it is our own server, whatever name silos use for it
    page = f"https://{address}/health"
    while time.monotonic() < end:
        if process.poll() is not None:
            raise FederationError(f"the server at {address} ended with code {process.returncode}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(page, verify=known, timeout=2, trust_env=False).is_success:
                return
        time.sleep(0.1)
    raise FederationError(f"the server at {address} does not answer after {seconds:g} s")


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
