"""The methods, by name. One file each; adding one is a file and a line here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from mfairfl.errors import ConfigError, first_problem, unknown
from mfairfl.strategies.afl import AFL
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Strategy, Summary
from mfairfl.strategies.constant import Constant
from mfairfl.strategies.ditto import Ditto
from mfairfl.strategies.drfl import DRFL
from mfairfl.strategies.fairfed import FairFed
from mfairfl.strategies.fedavg import FedAvg
from mfairfl.strategies.fedavg_threshold import FedAvgThreshold
from mfairfl.strategies.fedfb import FedFB
from mfairfl.strategies.fedfv import FedFV
from mfairfl.strategies.fedmgda import FedMGDA
from mfairfl.strategies.fedprox import FedProx
from mfairfl.strategies.fpfl import FPFL
from mfairfl.strategies.local_fairness import CenFair, FedAvgFair, IndFair
from mfairfl.strategies.mfairfl import MFairFL
from mfairfl.strategies.qffl import QFFL
from mfairfl.strategies.scaffold import Scaffold
from mfairfl.strategies.term import TERM

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
    "grids",
]


class Method(NamedTuple):
    """A registered name: a strategy class, and what the name presets of its hyper-parameters."""

    kind: type[Any]
    preset: Mapping[str, Any] = MappingProxyType({})
    title: str | None = None


_REGISTRY: dict[str, Method] = {
    "afl": Method(AFL),
    "cenfair": Method(CenFair),
    "constant": Method(Constant),
    "ditto": Method(Ditto),
    "drfl": Method(DRFL),
    "fairfed": Method(FairFed),
    "fedavg": Method(FedAvg),
    "fedavg-f": Method(FedAvgFair),
    "fedavg-threshold": Method(FedAvgThreshold),
    "fedfb": Method(FedFB),
    "fedfv": Method(FedFV),
    "fedmgda+": Method(FedMGDA),
    "fedprox": Method(FedProx),
    "fpfl": Method(FPFL),
    "fpfl-paper": Method(
        FPFL,
        {
            "multiplier": "paper",
            "driven_by": "smooth",
            "one_sided": False,
            "price_cap": 1e9,
            "counter_cap": 1e9,
            "gamma": 0.05,
            "update": "gradient",
        },
        "FPFL as printed, by gradients",
    ),
    "indfair": Method(IndFair),
    "mfairfl": Method(MFairFL),
    "mfairfl-paper": Method(
        MFairFL,
        {
            "multiplier": "paper",
            "driven_by": "smooth",
            "one_sided": False,
            "price_cap": 1e9,
            "counter_cap": 1e9,
            "gamma": 0.05,
            "weights": "uniform",
            "goal_cap": 0.999,
            "update": "gradient",
        },
        "mFairFL as printed, by gradients",
    ),
    "mfairfl-rnd": Method(MFairFL, {"order": "random"}, "mFairFL, random order"),
    "mfairfl-rev": Method(MFairFL, {"order": "reversed"}, "mFairFL, reversed order"),
    "qffl": Method(QFFL),
    "scaffold": Method(Scaffold),
    "term": Method(TERM),
}


def available() -> list[str]:
    """Return the names of all strategies.

    Examples
    --------
    >>> "fedavg" in available()
    True
    """
    return sorted(_REGISTRY)


def _method(name: str) -> Method:
    if name not in _REGISTRY:
        raise ConfigError(unknown("strategy", name, _REGISTRY))
    return _REGISTRY[name]


def describe(name: str) -> Card:
    """Return what a reader should know about a strategy."""
    method = _method(name)
    card: Card = method.kind.card
    return card if method.title is None else replace(card, title=method.title)


def grids(name: str) -> dict[str, tuple[Any, ...]]:
    """Return the values a tuner should try, by hyper-parameter.

    Examples
    --------
    >>> grids("fairfed")
    {'beta': (0.01, 0.05, 0.1, 1.0, 2.0, 5.0)}
    """
    found = {f.name: f.metadata.get("grid") for f in fields(_method(name).kind)}
    return {key: tuple(grid) for key, grid in found.items() if grid is not None}


def _checked(kind: type[Any], values: dict[str, Any]) -> Any:
    return TypeAdapter(kind).validate_python(values)


def create(name: str, **hyper_parameters: Any) -> Strategy:
    """Return a strategy with its hyper-parameters checked.

    Examples
    --------
    >>> create("fedavg", weights="uniform")
    FedAvg(weights='uniform')
    """
    kind, preset, _ = _method(name)
    if not is_dataclass(kind):
        raise TypeError(f"strategy '{name}' is not a dataclass")
    known = [f.name for f in fields(kind)]
    for key, value in hyper_parameters.items():
        if key not in known:
            raise ConfigError(unknown(f"hyper-parameter of strategy '{name}'", key, known))
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"strategy.{key}: give a finite number (got {value})")
    try:
        strategy: Strategy = _checked(kind, {**preset, **hyper_parameters})
    except ValidationError as error:
        raise ConfigError(first_problem(error, prefix="strategy")) from None
    return strategy
