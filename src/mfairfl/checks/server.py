"""What the server of a run will see of each client, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mfairfl.checks.finding import Finding
from mfairfl.errors import ConfigError
from mfairfl.files import load_toml
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.server_view import server_view
from mfairfl.strategies.registry import METHODS

__all__ = ["SEES", "agreed_view", "configured_view"]

SEES = "server sees"
"""Name of the check."""

# The sections that decide what crosses; the others may name code, which is not for a silo to load.
_DECIDING = ("robust", "clients", "encoder", "training", "strategy", "output")


def configured_view(config: Config) -> Iterator[Finding]:
    """Say what the server sees, a line for everything that crosses or is kept."""
    for line in server_view(config):
        yield Finding("ok", SEES, line.sentence)


def agreed_view(file: Path) -> Iterator[Finding]:
    """Say what a silo's copy of the run's settings lets the server see, if it names a method."""
    values = load_toml(file)
    strategy = values.get("strategy")
    if strategy is None:
        said = f"{file.name} names no strategy: what crosses depends on the coordinator's"
        yield Finding("note", SEES, said)
        return
    name = strategy.get("name") if isinstance(strategy, dict) else None
    if name is not None and not (isinstance(name, str) and METHODS.is_builtin(name)):
        said = f"strategy '{name}' is not built in: what crosses is not known"
        yield Finding("note", SEES, said)
        return
    try:
        known = {key: values[key] for key in _DECIDING if key in values}
        yield from configured_view(make_config(known, str(file)))
    except ConfigError as error:  # the coordinator's to correct: the silo needs the task alone
        yield Finding("warn", SEES, f"not known: {error}")
