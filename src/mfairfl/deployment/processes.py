"""Flower's programs as processes: command lines, environment, folders, readiness."""

import contextlib
import ctypes
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
from filelock import FileLock, Timeout

from mfairfl.deployment import process_groups as groups
from mfairfl.deployment.process_groups import Command, Program
from mfairfl.deployment.settings import ServerSettings
from mfairfl.errors import ConfigError, FederationError
from mfairfl.files import make_private_folder
from mfairfl.silo.silo_file import SiloSettings

_UMASK = "MFAIRFL_UMASK"
_HOME = "FLWR_HOME"
_GET_SUBREAPER, _SET_SUBREAPER = 37, 36  # of Linux's <sys/prctl.h>
# The Flower programs of mfairfl report nothing, even if the user's own ones do.
_SILENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_QUIET = _SILENT | {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
# Several processes share a machine, and equal numbers need equal arithmetic.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


# ------------------------------------------------------------------ command lines


def superlink_command(server: ServerSettings) -> Command:
    """Return Flower's server: on loopback, with TLS, a database and registered keys only."""
    certificates = server.certificates
    words = (
        "flower-superlink",
        *("--host", "127.0.0.1", "--port", str(server.superlink_port)),
        *("--ssl-ca-certfile", str(server.ca)),
        *("--ssl-certfile", str(certificates / "server.crt")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        "--enable-supernode-auth",
        *("--database", str(server.state / "superlink.db")),
        "--disable-runtime-dependency-installation",
    )
    return Command(words, environment(server.state))


def gate_command(server: ServerSettings, federation: Path) -> Command:
    """Return the process behind the coordinator's public port."""
    words = (sys.executable, "-m", "mfairfl.deployment.gate", str(federation))
    # So that glibc gives the buffers of a connection back to the system when it ends.
    give_back = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10)}
    return Command(words, environment(server.state) | give_back)


def silo_command(settings: SiloSettings, file: Path) -> Command:
    """Return a silo's own process, which keeps a SuperNode running."""
    words = (sys.executable, "-m", "mfairfl.deployment.silo_process", str(file.resolve()))
    return Command(words, environment(settings.state))


def supernode_command(settings: SiloSettings, file: Path) -> Command:
    """Return a silo's SuperNode. It runs no code: the silo's process asks it for messages."""
    for key in ("server", "ca", "key"):
        if getattr(settings, key) is None:
            raise ConfigError(f"{file}: no '{key}'; a silo needs it to reach the coordinator")
    config = f"silo={json.dumps(str(file.resolve()), ensure_ascii=False)}"
    words = (
        "flower-supernode",
        *("--superlink", str(settings.server)),
        *("--root-certificates", str(settings.ca)),
        *("--auth-supernode-private-key", str(settings.key)),
        *("--host", "127.0.0.1", "--port", str(settings.port)),
        *("--node-config", config),
        *("--isolation", "process"),
    )
    return Command(words, environment(settings.state))


# ------------------------------------------------------------------ environment


def environment(state: Path) -> dict[str, str]:
    """Return the environment of a Flower program.

    Parameters
    ----------
    state : Path
        The folder of what it keeps, closed to other users. Flower's own files have a folder in
        it: nothing is shared with other Flower programs of this user.
    """
    home = make_private_folder(make_private_folder(state) / "flwr")
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    path = os.pathsep.join(filter(None, folders))
    return os.environ | _QUIET | _ONE_THREAD | {_HOME: str(home), "PATH": path, _UMASK: _umask()}


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
    now = os.umask(groups.PRIVATE)
    os.umask(now)
    return f"{now:o}"


def use_given_umask() -> None:
    """Go back to the user's umask, in a process whose results are for the user to share."""
    os.umask(int(_umask(), 8))


# ------------------------------------------------------------------ folders in use


@contextlib.contextmanager
def adopted_orphans(state: Path) -> Iterator[None]:
    """Become the parent of processes that lose theirs, and end those of `state` with the block.

    Flower's server has helpers in sessions of their own. Once it is killed, neither its process
    number nor its group leads to them. They can be adopted on Linux only; on other systems they
    end when they notice, and until then `sole_use` names them.

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
        children = groups.descendants(os.getpid())
        groups.kill([child for child in children if _keeps_files_in(state, child)])
        prctl(_SET_SUBREAPER, ctypes.c_ulong(before.value))


@contextlib.contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; refuse it while processes of another deployment use it.

    Those may be at work, or left behind: two servers on one database would destroy it.
    """
    lock = FileLock(make_private_folder(folder) / ".lock", mode=0o600)
    end = time.monotonic() + groups.LEAVING
    with contextlib.suppress(Timeout):
        lock.acquire(timeout=groups.LEAVING)
    try:
        while (users := _users(folder)) and time.monotonic() < end:
            time.sleep(0.1)
        if users or not lock.is_locked:
            named = ", ".join(f"{user.pid} {_program(user)}" for user in users)
            numbers = " ".join(str(user.pid) for user in users)
            fix = "wait for them, or end them" + (f": kill {numbers}" if users else "")
            raise FederationError(
                f"{folder}: processes of another deployment use it "
                f"({named or 'of another user'}); {fix}"
            )
        yield
    finally:
        lock.release()


def _users(folder: Path) -> list[psutil.Process]:
    """Return the other processes that hold a folder, or whose Flower files are in it."""
    lock = str(folder.resolve() / ".lock")
    users = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended, or is another user's
            holds = _keeps_files_in(folder, process) or any(
                file.path == lock for file in process.open_files()
            )
            if process.pid != os.getpid() and holds and groups.is_alive(process):
                users.append(process)
    return users


def _keeps_files_in(folder: Path, process: psutil.Process) -> bool:
    try:
        home = process.environ().get(_HOME, "")
    except psutil.Error:  # it has just ended, or is another user's
        return False
    return bool(home) and Path(home).is_relative_to(folder.resolve())


def _program(process: psutil.Process) -> str:
    """Name a process: the Flower program, the module of mfairfl, or the command."""
    try:
        words: list[str] = process.cmdline()
    except psutil.NoSuchProcess:
        return "just ended"
    for at, word in enumerate(words):
        name = Path(word).name
        if name.startswith(("flower-", "flwr", "mfairfl.deployment.")):
            return name
        if word == "deploy":
            return " ".join(["mfairfl", *words[at : at + 2]])
    return words[0] if words else "unknown"


# ------------------------------------------------------------------ servers on loopback


def wait_until_healthy(address: str, ca: Path, server: Program, *, seconds: float = 90) -> None:
    """Wait until a server answers over TLS; raise if it ends or the time is up."""
    tls, end = ssl.create_default_context(cafile=str(ca)), time.monotonic() + seconds
    tls.check_hostname = False  # it is our own server, whatever name silos use for it
    while time.monotonic() < end:
        groups.require_running([server])
        with contextlib.suppress(httpx.HTTPError):
            page = f"https://{address}/health"
            if httpx.get(page, verify=tls, timeout=2, trust_env=False).is_success:
                return
        time.sleep(0.1)
    raise FederationError(
        f"{server.name} does not answer at {address} after {seconds:g} s; see {server.log}"
    )


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]
