"""Errors a user can act on: one line that names the file, the key and the fix.

Every error that bad input can cause derives from `MfairflError`; the command line prints its
message on one line and exits with code 2. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "FederationError",
    "MessageError",
    "MfairflError",
    "RunDirectoryError",
    "unknown",
]


class MfairflError(Exception):
    """Bad input or a bad file; the message is one line and says what to do."""


class ConfigError(MfairflError):
    """A configuration, flag or hyper-parameter is wrong."""


class DataError(MfairflError):
    """A table, a column or a downloaded file is not what the task needs."""


class CheckpointError(MfairflError):
    """A checkpoint is damaged or belongs to another run."""


class FederationError(MfairflError):
    """A federation cannot go on: too few clients, or a method that does not fit."""


class MessageError(MfairflError):
    """A message between server and client is not what was agreed."""


class RunDirectoryError(MfairflError):
    """A run directory is in use, holds another run, or lacks a file."""


def unknown(kind: str, name: str, options: Iterable[str]) -> str:
    """Say that `name` is no known `kind`, with the nearest known name.

    Examples
    --------
    >>> unknown("strategy", "fedavgg", ["fedavg", "qffl"])
    "unknown strategy 'fedavgg': did you mean 'fedavg'? (known: fedavg, qffl)"
    """
    known = sorted(options)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {kind} '{name}': {hint}(known: {', '.join(known)})"
