"""Errors a user can act on: one line that names the file, the key and the fix.

Every error that bad input can cause derives from `MfairflError`; the command line prints its
message on one line and exits with code 2. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:  # callers that catch its errors have imported it
    from pydantic import BaseModel, ValidationError

_SHOWN = 60  # characters of a value in a message
_NO_MASKS = (
    "version 0.8 has no masks; the coordinator sees each silo's answers by itself and must be "
    "trusted with them (docs/what-leaves.md); remove it"
)
_RETIRED = {
    "masked": _NO_MASKS,
    "members": _NO_MASKS,
    "min_count": "it is min_rows under [disclosure] of policy.toml",
    "limits.models": "it is models under [disclosure]",
    "verdict_tolerance": "it is tolerance, which training and the output rule follow too; "
    "fairness.verdict_tolerance changes the verdict alone",
    "alpha": "what training leaves uncorrected follows from tolerance, or is fairness.dead_zone; "
    "the parameter of dirichlet is concentration",
}
"""Keys of earlier versions, with the reason why they are refused; none is ever ignored."""


class MfairflError(Exception):
    """Bad input or a bad file; the message is one line and says what to do."""


class ConfigError(MfairflError):
    """A configuration, flag or hyper-parameter is wrong."""


class DataError(MfairflError):
    """A table, a column or a downloaded file is not what the task needs."""


class EstimatorError(MfairflError, ValueError, TypeError):
    """A parameter or an input of the estimator is wrong.

    Code that is written for scikit-learn catches `ValueError`, and `TypeError` for a cell that is
    neither text nor number.
    """


class CheckpointError(MfairflError):
    """A checkpoint is damaged or belongs to another run."""


class FederationError(MfairflError):
    """A federation cannot go on: too few clients, or a method that does not fit."""


class LedgerError(MfairflError):
    """A silo's ledger is full, or was changed; `line` says where its chain is broken."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class MessageError(MfairflError):
    """A message between server and client is not what was agreed."""


class RunDirectoryError(MfairflError):
    """A run directory is in use, holds another run, or lacks a file."""


class TimeLimitError(MfairflError):
    """A computation took longer than its caller allows."""


def why_retired(name: str) -> str:
    """Return why a key or an option of an earlier version is refused; empty if it was none.

    Examples
    --------
    >>> why_retired("limits.models")
    'it is models under [disclosure]'
    """
    return _RETIRED.get(name) or _RETIRED.get(name.rpartition(".")[2], "")


def unknown(kind: str, name: str, options: Iterable[str], *, listed: str | None = None) -> str:
    """Return the message that `name` is not a known `kind`, with the nearest known name.

    For a key or an option of an earlier version, the message says why it was removed.

    Parameters
    ----------
    listed : str, optional
        What lists the options, where they are too many for one line.

    Examples
    --------
    >>> unknown("strategy", "fedavgg", ["fedavg", "qffl"])
    "unknown strategy 'fedavgg': did you mean 'fedavg'? (known: fedavg, qffl)"
    """
    names = sorted(options)
    if kind in ("key", "option") and (reason := why_retired(name)):
        return f"{name}: {reason}"
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f": did you mean '{near[0]}'?" if near else ""
    where = f"known: {', '.join(names)}" if listed is None else f"`{listed}` lists all"
    return f"unknown {kind} '{name}'{hint} ({where})"


def require_known(
    kind: str,
    names: Iterable[str],
    options: Collection[str],
    error: type[MfairflError] = ConfigError,
    *,
    where: str = "",
) -> None:
    """Refuse the first name that is not among the options; `where` begins the message.

    Examples
    --------
    >>> require_known("strategy", ["fedavg"], ["fedavg", "qffl"])
    """
    for name in names:
        if name not in options:
            raise error(": ".join(filter(None, [where, unknown(kind, name, options)])))


def first_problem(
    error: ValidationError, model: type[BaseModel] | None = None, *, prefix: str = ""
) -> str:
    """Return the first problem that validation found: "dotted.key: message (got value)".

    Parameters
    ----------
    error : pydantic.ValidationError
    model : type of pydantic.BaseModel, optional
        What was validated; an unknown key is then answered with the nearest known one.
    prefix : str
        The key of the validated values, if they are part of something larger.

    Examples
    --------
    >>> from pydantic import TypeAdapter, ValidationError
    >>> try:
    ...     TypeAdapter(dict[str, int]).validate_python({"rounds": "many"})
    ... except ValidationError as error:
    ...     print(first_problem(error, prefix="training"))
    training.rounds: Input should be a valid integer, unable to parse string as an integer \
(got 'many')
    """
    problems = error.errors()
    # A misspelt key also leaves the right one missing: name the misspelling.
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    path = [_shown(str(part)) for part in first["loc"]]
    where = ".".join([prefix, *path] if prefix else path)
    if first["type"] == "extra_forbidden" and model is not None:
        section = where.rpartition(".")[0]
        keys = [f"{section}.{key}".lstrip(".") for key in _keys(model, path[:-1])]
        return unknown("key", where, keys)
    message, value = first["msg"].removeprefix("Value error, "), first["input"]
    # Not the whole section in which a key is missing, nor the whole text that is not JSON.
    shown = repr(value)
    plain = path and not isinstance(value, dict) and len(shown) <= _SHOWN and shown not in message
    got = f" (got {shown})" if plain else ""
    return f"{where}: {message}{got}" if where else message


def _shown(key: str) -> str:
    """Return a key as a message shows it: on one line, and not without end."""
    plain = key if key.isprintable() else repr(key)
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


def _keys(model: Any, path: Iterable[str]) -> list[str]:
    """Return the keys that the section at `path` of a pydantic model has."""
    for part in path:
        if part in model.model_fields:
            kind = model.model_fields[part].annotation
            models = [k for k in (kind, *get_args(kind)) if hasattr(k, "model_fields")]
            if not models:
                return []
            model = models[0]
    return list(model.model_fields)


def require_extra(module: str, extra: str) -> None:
    """Raise an error that says how to install a missing optional dependency.

    Examples
    --------
    >>> require_extra("numpy", "numbers")
    """
    if find_spec(module) is None:
        raise ConfigError(f"{module} is not installed: pip install 'mfairfl[{extra}]'")
