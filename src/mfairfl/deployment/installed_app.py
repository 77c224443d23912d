"""A silo answers with the client app that is installed, whatever code the server sends.

A SuperNode starts a programme for every message, which unpacks the app that came from the server
and runs it. A silo's SuperNode finds other programmes first (`guards`). They knock at the silo's
door and are gone; the silo's own process, in which everything is loaded already, forks, takes the
message as Flower does, and answers with the client app of the installed mfairfl. The server's code
is neither unpacked nor imported. Other work a server may ask for (agents, models, simulations) is
refused.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mfairfl.errors import ConfigError

__all__ = ["DOOR", "guards", "load_answer", "replace_loading"]

DOOR = "door"
Answer = Callable[[Sequence[str]], None]

_KINDS = ("agentapp", "clientapp", "connector", "model", "serverapp", "simulation")
_KNOCK = f"""\
import json, os, socket, sys

os.chdir(os.path.dirname(os.path.abspath(__file__)))  # the path of a socket must be short
with socket.socket(socket.AF_UNIX) as door:
    door.connect("{DOOR}")
    door.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    door.recv(1)
"""


def guards(folder: Path) -> Path:
    """Write, for each programme a SuperNode may start, one that only knocks at the door."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / "knock.py").write_text(_KNOCK, encoding="utf-8")
    python, knock = (shlex.quote(str(p)) for p in (sys.executable, folder / "knock.py"))
    for kind in _KINDS:
        path = folder / f"flwr-{kind}"
        # -I -S: nothing is loaded, so that it takes milliseconds.
        line = f'exec {python} -I -S {knock} {path.name} "$@"'
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o700)
    return folder


def replace_loading(runtime: ModuleType, app: Any) -> None:
    """Let Flower's runtime use `app`; fail if it loads apps in a way we do not know."""

    def unpack_nothing(*_: object, **__: object) -> None:
        return None

    def always_ours(**_: object) -> Callable[..., Any]:
        return lambda *_: app

    for name, ours in (
        ("install_from_fab", unpack_nothing),
        ("get_load_client_app_fn", always_ours),
    ):
        if not callable(getattr(runtime, name, None)):
            raise ConfigError(f"this version of flwr has no '{name}': use one that mfairfl names")
        setattr(runtime, name, ours)


def load_answer() -> Answer:
    """Load Flower and the client app; return what answers one message, given as a command line."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp  # noqa: PLC0415 - seconds
    from flwr.supernode.runtime import run_clientapp as runtime  # noqa: PLC0415

    from mfairfl.flower.app import app  # noqa: PLC0415

    replace_loading(runtime, app)

    def answer(words: Sequence[str]) -> None:
        sys.argv = list(words)
        flwr_clientapp()

    return answer
