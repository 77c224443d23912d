"""The command lines of a federation: SuperLink, gate, and each silo's process and SuperNode."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mfairfl.deployment.processes import Command, environment
from mfairfl.deployment.settings import ServerSettings
from mfairfl.errors import ConfigError
from mfairfl.silo.silo_file import SiloSettings


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
