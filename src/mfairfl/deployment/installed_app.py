"""A silo answers with the client app that is installed, whatever code the server sends.

For every message a SuperNode starts a program that unpacks the app sent by the server and runs it.
A silo's SuperNode finds other programs first (`write_launchers`): they only hand their command
line to the silo's own process, over a socket, and end. That process, which has everything loaded,
forks, takes the message as Flower does, and answers with the client app of the installed mfairfl.
The server's code is neither unpacked nor imported. Other kinds of work that a server may ask for
(agents, models, simulations) are refused.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mfairfl.deployment.processes import silence_flower
from mfairfl.errors import ConfigError

__all__ = ["SOCKET", "load_client_app", "use_installed_app", "write_launchers"]

SOCKET = "socket"
"""Name of the socket, in the launchers' folder, at which a silo's process takes command lines."""

ClientProcess = Callable[[Sequence[str]], None]
"""Answers one message, given the command line that Flower would start."""

_KINDS = ("agentapp", "clientapp", "connector", "model", "serverapp", "simulation")
_FORWARD = f"""\
import json, os, socket, sys

os.chdir(os.path.dirname(os.path.abspath(__file__)))  # the path of a socket must be short
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("{SOCKET}")
    connection.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    connection.recv(1)
"""


def write_launchers(folder: Path) -> Path:
    """Write, for each program that a SuperNode may start, one that forwards its command line."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / "forward.py").write_text(_FORWARD, encoding="utf-8")
    python, forward = (shlex.quote(str(p)) for p in (sys.executable, folder / "forward.py"))
    for kind in _KINDS:
        path = folder / f"flwr-{kind}"
        # -I -S: nothing is loaded, so that it takes milliseconds.
        line = f'exec {python} -I -S {forward} {path.name} "$@"'
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o700)
    return folder


def use_installed_app(runtime: ModuleType, app: Any) -> None:
    """Make Flower's runtime use `app`; refuse a Flower that loads apps in an unknown way."""

    def unpack_nothing(*_: object, **__: object) -> None:
        return None

    def load_installed(**_: object) -> Callable[..., Any]:
        return lambda *_: app

    for name, replacement in (
        ("install_from_fab", unpack_nothing),
        ("get_load_client_app_fn", load_installed),
    ):
        if not callable(getattr(runtime, name, None)):
            raise ConfigError(
                f"this version of flwr has no '{name}': install one that mfairfl supports"
            )
        setattr(runtime, name, replacement)


def load_client_app() -> ClientProcess:
    """Load Flower and the client app; return the function that answers one message."""
    silence_flower()
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp  # noqa: PLC0415 - seconds
    from flwr.supernode.runtime import run_clientapp as runtime  # noqa: PLC0415

    from mfairfl.flower.app import app  # noqa: PLC0415

    use_installed_app(runtime, app)

    def answer(words: Sequence[str]) -> None:
        sys.argv = list(words)
        flwr_clientapp()

    return answer
