"""One line of the doctor."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, NamedTuple

from mfairfl.errors import ConfigError

__all__ = ["Finding", "require_extra"]


class Finding(NamedTuple):
    """What a check found; printed as one line.

    Examples
    --------
    >>> print(Finding("warn", "groups", "sex f has 3 test rows"))
    warn  groups: sex f has 3 test rows
    """

    level: Literal["ok", "note", "warn", "fail"]
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.level:<4}  {self.check}: {self.message}"


def require_extra(module: str, extra: str) -> None:
    """Raise an error that says how to install a missing optional dependency.

    Examples
    --------
    >>> require_extra("numpy", "numbers")
    """
    if find_spec(module) is None:
        raise ConfigError(f"{module} is not installed: pip install 'mfairfl[{extra}]'")
