"""Flower's programmes as processes: their environment, readiness, and an end without leftovers."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from mfairfl.errors import FederationError

__all__ = [
    "Process",
    "descendants",
    "environment",
    "free_ports",
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


def environment(home: Path, *first: Path) -> dict[str, str]:
    """Return the environment of a Flower programme.

    Parameters
    ----------
    home : Path
        Its own folder; nothing is shared with other Flower programmes of this user.
    *first : Path
        Folders whose programmes come before all others.
    """
    home.mkdir(parents=True, exist_ok=True)
    folders = [*map(str, first), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    own = {"FLWR_HOME": str(home), "PATH": os.pathsep.join(filter(None, folders))}
    return os.environ | _QUIET | _ONE_THREAD | own


def start(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
    """Start a programme in a group of its own, so that Ctrl-C reaches it only through us."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
        )


def stop(processes: Sequence[Process], *, seconds: float = 15) -> None:
    """End programmes in this order, with all they started; what does not end is killed."""
    children = [pid for process in processes for pid in descendants(process.pid)]
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
    while alive(children) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in alive(children):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, directly or not."""
    children: dict[int, list[int]] = {}
    for child, parent in _running().items():
        children.setdefault(parent, []).append(child)
    found, rest = [], [pid]
    while rest:
        rest = [child for parent in rest for child in children.get(parent, [])]
        found += rest
    return found


def alive(pids: Sequence[int]) -> list[int]:
    """Return those of these processes that still run."""
    running = _running() if pids else {}
    return [pid for pid in pids if pid in running]


def _running() -> dict[int, int]:
    """Return every running process with its parent; who has ended but was not waited for is out.

    Small containers have no `ps`, other systems than Linux no /proc.
    """
    if not Path("/proc/self/stat").exists():
        command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in text.splitlines()]
        return {int(pid): int(parent) for pid, parent, state in rows if state[0] != "Z"}
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, which may hold anything: state, parent, ...
            state, parent, *_ = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if state != "Z":
            found[int(path.parent.name)] = int(parent)
    return found


def wait_until_healthy(address: str, ca: Path, process: Process, *, seconds: float = 90) -> None:
    """Wait until a server answers over TLS; raise if its process ends or the time is up."""
    known, end = ssl.create_default_context(cafile=str(ca)), time.monotonic() + seconds
    known.check_hostname = False  # it is our own, by whatever name silos call it
    page = f"https://{address}/health"
    while time.monotonic() < end:
        if process.poll() is not None:
            raise FederationError(f"the server at {address} ended with code {process.returncode}")
        try:
            reply = httpx.get(page, verify=known, timeout=2, trust_env=False)
        except httpx.HTTPError:
            time.sleep(0.1)
            continue
        if reply.is_success:
            return
        time.sleep(0.1)
    raise FederationError(f"the server at {address} does not answer after {seconds:g} s")


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
