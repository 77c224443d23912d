"""The methods, by name. One file each; adding one is a file and a line here."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mfairfl.errors import ConfigError, unknown
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Strategy, Summary
from mfairfl.strategies.constant import Constant
from mfairfl.strategies.fedavg import FedAvg

__all__ = [
    "Card",
    "Context",
    "Measurement",
    "State",
    "Step",
    "Strategy",
    "Summary",
    "available",
    "create",
    "describe",
]

_REGISTRY: dict[str, type[Any]] = {
    "constant": Constant,
    "fedavg": FedAvg,
}


def available() -> list[str]:
    """Return the names of all strategies.

    Examples
    --------
    >>> "fedavg" in available()
    True
    """
    return sorted(_REGISTRY)


def _class(name: str) -> type[Any]:
    if name not in _REGISTRY:
        raise ConfigError(unknown("strategy", name, _REGISTRY))
    return _REGISTRY[name]


def describe(name: str) -> Card:
    """Return what a reader should know about a strategy."""
    card: Card = _class(name).card
    return card


def _checked(kind: type[Any], values: dict[str, Any]) -> Any:
    return TypeAdapter(kind).validate_python(values)


def create(name: str, **hyper_parameters: Any) -> Strategy:
    """Return a strategy with its hyper-parameters checked.

    Examples
    --------
    >>> create("fedavg", weights="uniform")
    FedAvg(weights='uniform')
    """
    kind = _class(name)
    if not is_dataclass(kind):
        raise TypeError(f"strategy '{name}' is not a dataclass")
    known = [f.name for f in fields(kind)]
    for key, value in hyper_parameters.items():
        if key not in known:
            raise ConfigError(unknown(f"hyper-parameter of strategy '{name}'", key, known))
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"strategy.{key}: give a finite number (got {value})")
    try:
        strategy: Strategy = _checked(kind, hyper_parameters)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["strategy", *(str(part) for part in first["loc"])])
        raise ConfigError(f"{where}: {first['msg']} (got {first['input']!r})") from None
    return strategy
