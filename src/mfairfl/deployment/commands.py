"""The command lines of a federation: SuperLink and gate at the coordinator, a SuperNode a silo."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mfairfl.deployment.installed_app import guards
from mfairfl.deployment.processes import environment
from mfairfl.deployment.settings import ServerSettings
from mfairfl.errors import ConfigError
from mfairfl.remote.silo_file import SiloSettings

__all__ = ["Programme", "gate", "silo", "superlink", "supernode"]


@dataclass(frozen=True, slots=True)
class Programme:
    """A command and the environment it needs."""

    command: tuple[str, ...]
    env: Mapping[str, str]


def superlink(server: ServerSettings) -> Programme:
    """Return Flower's server: on loopback, with TLS, a database and registered keys only."""
    certificates = server.certificates
    command = (
        "flower-superlink",
        *("--host", "127.0.0.1", "--port", str(server.superlink_port)),
        *("--ssl-ca-certfile", str(server.ca)),
        *("--ssl-certfile", str(certificates / "server.crt")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        "--enable-supernode-auth",
        *("--database", str(server.state / "superlink.db")),
        "--disable-runtime-dependency-installation",
    )
    return Programme(command, environment(server.state / "flwr"))


def gate(server: ServerSettings, federation: Path) -> Programme:
    """Return the coordinator's public port."""
    command = (sys.executable, "-m", "mfairfl.deployment.gate", str(federation))
    return Programme(command, environment(server.state / "flwr"))


def silo(settings: SiloSettings, file: Path) -> Programme:
    """Return a silo's own process, which keeps a SuperNode running."""
    command = (sys.executable, "-m", "mfairfl.deployment.silo_process", str(file.resolve()))
    return Programme(command, environment(settings.state / "flwr"))


def supernode(settings: SiloSettings, file: Path) -> Programme:
    """Return a silo's node. It runs the client app that is installed here, and no other code."""
    for key in ("server", "ca", "key"):
        if getattr(settings, key) is None:
            raise ConfigError(f"{file}: no '{key}'; a silo needs it to reach the coordinator")
    config = f"silo={json.dumps(str(file.resolve()), ensure_ascii=False)}"
    command = (
        "flower-supernode",
        *("--superlink", str(settings.server)),
        *("--root-certificates", str(settings.ca)),
        *("--auth-supernode-private-key", str(settings.key)),
        *("--host", "127.0.0.1", "--port", str(settings.port)),
        *("--node-config", config),
    )
    return Programme(command, environment(settings.state / "flwr", guards(settings.state / "bin")))
