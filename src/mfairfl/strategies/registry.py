"""The methods, by name. One file each; adding one is a file and a line here."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from mfairfl.errors import ConfigError, first_problem, unknown
from mfairfl.plugins import Registry, import_string
from mfairfl.strategies.afl import AFL
from mfairfl.strategies.base import Card, Strategy
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


class Method(NamedTuple):
    """A registered name: a strategy class, and what the name presets of its hyper-parameters."""

    kind: type[Strategy]
    preset: Mapping[str, Any] = MappingProxyType({})
    title: str | None = None


def _as_method(thing: Any) -> Method:
    """Accept a strategy class."""
    derived: bool = isinstance(thing, type) and issubclass(thing, Strategy)
    if not derived or not is_dataclass(thing):
        raise ConfigError(
            f"{thing!r} is not a strategy: pass a frozen dataclass derived from "
            "mfairfl.strategies.Strategy"
        )
    kind: type[Any] = thing  # type: ignore[assignment]  # checked above
    return Method(kind)


# The literal reading of a paper: λ ≥ 0 on smooth rates, every price as the multipliers say.
_LITERAL = {
    "multiplier": "paper",
    "prices": {
        "driven_by": "smooth",
        "one_sided": False,
        "cap": 1e9,
        "counter_cap": 1e9,
        "shared_cap": 1e9,
    },
    "gamma": 0.05,
    "update": "gradient",
}

METHODS: Registry[Method] = Registry(
    "strategy",
    "mfairfl.strategies",
    {
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
        "fpfl-paper": Method(FPFL, _LITERAL, "FPFL as printed, by gradients"),
        "indfair": Method(IndFair),
        "mfairfl": Method(MFairFL),
        "mfairfl-paper": Method(
            MFairFL,
            {**_LITERAL, "weights": "uniform", "goals": {"cap": 0.999}},
            "mFairFL as printed, by gradients",
        ),
        "mfairfl-rnd": Method(MFairFL, {"order": "random"}, "mFairFL, random order"),
        "mfairfl-rev": Method(MFairFL, {"order": "reversed"}, "mFairFL, reversed order"),
        "qffl": Method(QFFL),
        "scaffold": Method(Scaffold),
        "term": Method(TERM),
    },
    _as_method,
)
"""Every strategy that has a name."""


def available() -> list[str]:
    """Return the names of all strategies, those of other distributions included.

    Examples
    --------
    >>> "fedavg" in available()
    True
    """
    return METHODS.names()


def describe(name: str) -> Card:
    """Return what a reader should know about a strategy.

    Examples
    --------
    >>> describe("ditto").serves
    'personal'
    """
    card, title = create(name).card, METHODS.get(name).title
    return card if title is None else replace(card, title=title)


def grids(name: str) -> dict[str, tuple[Any, ...]]:
    """Return the values a tuner should try, by hyper-parameter.

    Examples
    --------
    >>> grids("fairfed")
    {'beta': (0.01, 0.05, 0.1, 1.0, 2.0, 5.0)}
    """
    hyper_parameters = fields(METHODS.follow(name).kind)  # type: ignore[arg-type]  # a dataclass
    return {f.name: tuple(f.metadata["grid"]) for f in hyper_parameters if "grid" in f.metadata}


def create(name: str, **hyper_parameters: Any) -> Strategy:
    """Return a strategy with its hyper-parameters checked.

    Parameters
    ----------
    name : str
        A name of `available()`, or ``package.module:Name``.
    **hyper_parameters
        The strategy's own; groups of them (`prices`, `goals`) as mappings.

    Examples
    --------
    >>> create("fedavg", weights="uniform")
    FedAvg(weights='uniform')
    >>> create("mfairfl", goals={"cap": 0.5}).goals.cap
    0.5
    """
    kind, preset, _ = METHODS.follow(name)
    values = dict(preset)
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for key, value in hyper_parameters.items():
        if key not in names:
            raise ConfigError(unknown(f"hyper-parameter of strategy '{name}'", key, names))
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"strategy.{key}: give a finite number (got {value})")
        group = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = {**values[key], **value} if group else value
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise ConfigError(first_problem(error, prefix="strategy")) from None


def spelled(strategy: Strategy) -> dict[str, Any]:
    """Return a strategy object as a configuration says it: its name and hyper-parameters.

    A class that is not registered gets the name of its import string, in this process.

    Examples
    --------
    >>> spelled(create("fedavg", weights="uniform"))
    {'name': 'fedavg', 'weights': 'uniform'}
    """
    kind = type(strategy)
    methods = {name: METHODS.get(name) for name in METHODS.names() if METHODS.is_builtin(name)}
    methods |= METHODS.added()
    names = [name for name, method in methods.items() if method == Method(kind)]
    # A class inside a function has no import string: this process knows it by its bare name.
    name = names[0] if names else METHODS.add(import_string(kind) or kind.__name__, kind)
    return {"name": name, **hyper_parameters_of(strategy)}


def hyper_parameters_of(strategy: Strategy) -> dict[str, Any]:
    """Return a strategy's hyper-parameters as plain data; groups of them as dictionaries."""
    plain: dict[str, Any] = asdict(strategy)  # type: ignore[call-overload]  # a dataclass
    return plain
