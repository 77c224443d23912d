"""What a search may change, and by which metrics its trials are measured."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mfairfl.errors import ConfigError, require_known
from mfairfl.fairness.rates import decision_notions
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import dotted, nested
from mfairfl.strategies import grids


@dataclass(frozen=True, slots=True)
class Choices:
    """A few values, without an order."""

    values: tuple[Any, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.values

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values that must all be valid."""
        return self.values


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from `low` to `high`; whole numbers if both are whole (5, not 5.0)."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(
                f"range {self.low}:{self.high}: the lower bound must be below the upper one"
            )
        if self.log and self.low <= 0:
            raise ConfigError(f"range {self.low}:{self.high}:log: the lower bound must be above 0")

    def __contains__(self, value: object) -> bool:
        kinds = int if self.whole else int | float
        return isinstance(value, kinds) and self.low <= value <= self.high

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values that must all be valid."""
        return self.low, self.high


Space = Mapping[str, Choices | Range]
"""By dotted key of the configuration."""

DEFAULT_RATES = Range(0.0005, 0.02, log=True)


def default_space(
    strategy: str, rates: Choices | Range = DEFAULT_RATES
) -> dict[str, Choices | Range]:
    """Return the learning rates, and the grids of a strategy.

    Examples
    --------
    >>> list(default_space("mfairfl"))
    ['training.lr', 'strategy.gamma', 'strategy.beta', 'strategy.delta']
    """
    grids_of = {f"strategy.{name}": Choices(grid) for name, grid in grids(strategy).items()}
    return {"training.lr": rates, **grids_of}


def applied(config: Config, values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Return the configuration with the values of dotted keys changed, and validated.

    Examples
    --------
    >>> applied(make_config({}), {"training.lr": 0.01, "strategy.beta": 0.4}).training.lr
    0.01
    """
    settings = config.model_dump(mode="json", exclude_unset=True)
    return make_config(nested(values, settings), source)


def check_space(config: Config, space: Space) -> None:
    """Refuse a space with values the configuration cannot have, before anything is run."""
    for key, part in space.items():
        if key in ("clients.folds", "clients.fold"):
            raise ConfigError(f"--search {key}: folds cannot be searched; use --folds")
        for value in part.examples:
            applied(config, {key: value}, f"--search {key}")


def own_values(config: Config, space: Space) -> dict[str, Any]:
    """Return the configuration's own values for the keys, where the space contains them.

    Examples
    --------
    >>> own_values(make_config({}), {"training.lr": DEFAULT_RATES, "seed": Choices((7, 8))})
    {'training.lr': 0.004}
    """
    values = config.model_dump(mode="json")
    values["strategy"] |= asdict(config.strategy.create())  # type: ignore[call-overload]
    shared = {}
    for key, part in space.items():
        value: Any = values
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value in part:
            shared[key] = value
    return shared


_CLIENT_METRICS = ("client_accuracy_std", "client_accuracy_gap")


def default_metrics(config: Config) -> tuple[str, ...]:
    """Return what must be small: the violations of the notions, or the spread of the clients.

    Examples
    --------
    >>> default_metrics(make_config({"fairness": {"notion": "eo"}}))
    ('equalized_odds_violation',)
    >>> default_metrics(make_config({"strategy": {"name": "qffl"}}))
    ('client_accuracy_std',)
    """
    card = config.strategy.create().card
    if "clients" in card.protects and not card.constrained:
        return ("client_accuracy_std",)
    return tuple(f"{name}_violation" for name in config.fairness.notion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched and how a trial is scored; the same for all who share a study.

    Parameters
    ----------
    config : Config
        What the trials have in common.
    space : mapping of str to Choices or Range
        What they differ in, by dotted key.
    metrics : tuple of str
        Violations or client spreads by name; the largest mean over folds is a trial's violation.
    folds : int
        Parts of each client's train rows; each is measured once, on training with the others.
    """

    config: Config
    space: Space
    metrics: tuple[str, ...]
    folds: int = 3

    def __post_init__(self) -> None:
        violations = [f"{item.name}_violation" for item in decision_notions()]
        require_known("metric", self.metrics, [*violations, *_CLIENT_METRICS])
        if self.config.clients.folds is not None:
            raise ConfigError("clients.folds: a search makes its own folds; remove the key")
        check_space(self.config, self.space)

    def settings(self) -> dict[str, Any]:
        """Return all that must be equal in one study; the location of files does not matter."""
        values = self.config.model_dump(mode="json", exclude={"data": {"csv", "path"}})
        texts = {
            key: json.dumps(part.values if isinstance(part, Choices) else asdict(part))
            for key, part in self.space.items()
        }
        return {
            "folds": self.folds,
            "metric": list(self.metrics),
            "searched keys": sorted(texts),
            **{f"search of {key}": text for key, text in texts.items()},
            **dotted(values),
        }

    def runs(self, values: Mapping[str, Any], folder: Path) -> list[tuple[Config, Path]]:
        """Return a trial's run for each fold, and its directory."""
        parts = [{"clients.folds": self.folds, "clients.fold": k} for k in range(self.folds)]
        return [
            (applied(self.config, {**values, **part}, "trial"), folder / f"fold-{k}")
            for k, part in enumerate(parts)
        ]
