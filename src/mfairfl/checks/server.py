"""What the server of a run will see of each client, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mfairfl.checks.finding import Finding
from mfairfl.files import load_toml
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.server_view import server_view
from mfairfl.strategies.registry import METHODS

__all__ = ["SEES", "TRUST", "agreed_view", "configured_view"]

SEES = "server sees"
"""Name of the check."""

TRUST = Finding(
    "warn",
    "trust",
    "the coordinator must be trusted as with pseudonymised rows; it can read them "
    "(docs/what-leaves.md)",
)
"""What a silo's operator must know first."""

# The sections that decide what crosses; the others may name code, which is not for a silo to load.
_DECIDING = ("robust", "clients", "encoder", "training", "strategy", "output")


def configured_view(config: Config) -> Iterator[Finding]:
    """Say what the server sees, a line for everything that crosses or is kept."""
    for line in server_view(config):
        yield Finding("ok", SEES, line.sentence)


def agreed_view(file: Path) -> Iterator[Finding]:
    """Say what the server sees if it keeps to a silo's copy of the run's settings."""
    values = load_toml(file)
    name = values.get("strategy", {}).get("name", "mfairfl")
    if METHODS.is_builtin(name):
        known = {key: values[key] for key in _DECIDING if key in values}
        yield from configured_view(make_config(known, str(file)))
    else:
        said = f"strategy '{name}' is not built in: what crosses is not known"
        yield Finding("note", SEES, said)
