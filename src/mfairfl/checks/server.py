"""What the server of a run will see of each client, as findings."""

from __future__ import annotations

from collections.abc import Iterator

from mfairfl.checks.finding import Finding
from mfairfl.runs.config import Config
from mfairfl.runs.server_view import server_view

SEES = "server sees"
"""Name of the check."""

TRUST = Finding(
    "warn",
    "trust",
    "the coordinator must be trusted as with pseudonymised rows; it can read them "
    "(docs/what-leaves.md)",
)
"""What a silo's operator must know first."""


def configured_view(config: Config) -> Iterator[Finding]:
    """Say what the server sees, a line for everything that crosses or is kept."""
    for line in server_view(config):
        yield Finding("ok", SEES, line.sentence)
