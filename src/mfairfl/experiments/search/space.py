"""What a search may change: keys of a configuration, with values to choose from or ranges."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import nested
from mfairfl.strategies import grids

__all__ = ["Choices", "Range", "Space", "applied", "check_space", "default_space", "own_values"]


@dataclass(frozen=True, slots=True)
class Choices:
    """A few values, in no order."""

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
            raise ConfigError(f"range {self.low}:{self.high}: the first must be the smaller one")
        if self.log and self.low <= 0:
            raise ConfigError(f"range {self.low}:{self.high}:log: a logarithm needs more than 0")

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

LEARNING_RATES = Range(0.0005, 0.02, log=True)


def default_space(strategy: str) -> dict[str, Choices | Range]:
    """Return the learning rate's range, and the grids of a strategy.

    Examples
    --------
    >>> list(default_space("mfairfl"))
    ['training.lr', 'strategy.gamma', 'strategy.beta', 'strategy.delta']
    """
    own = {f"strategy.{name}": Choices(grid) for name, grid in grids(strategy).items()}
    return {"training.lr": LEARNING_RATES, **own}


def applied(config: Config, values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Return the configuration with the values of dotted keys changed, and validated.

    Examples
    --------
    >>> applied(make_config({}), {"training.lr": 0.01, "strategy.beta": 0.4}).training.lr
    0.01
    """
    given = config.model_dump(mode="json", exclude_unset=True)
    return make_config(nested(values, given), source)


def check_space(config: Config, space: Space) -> None:
    """Refuse a space with values the configuration cannot have, before anything is run."""
    for key, part in space.items():
        if key in ("clients.folds", "clients.fold"):
            raise ConfigError(f"--search {key}: folds are no setting to be tuned; see --folds")
        for value in part.examples:
            applied(config, {key: value}, f"--search {key}")


def own_values(config: Config, space: Space) -> dict[str, Any]:
    """Return what the configuration itself has for the keys, where the space holds it.

    Examples
    --------
    >>> own_values(make_config({}), {"training.lr": LEARNING_RATES, "seed": Choices((7, 8))})
    {'training.lr': 0.002}
    """
    values = config.model_dump(mode="json")
    values["strategy"] |= asdict(config.strategy.create())  # type: ignore[call-overload]
    found = {}
    for key, part in space.items():
        value: Any = values
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value in part:
            found[key] = value
    return found


def to_json(space: Space) -> dict[str, str]:
    """Return the space as one text a key, to be compared and kept."""
    return {
        key: json.dumps(part.values if isinstance(part, Choices) else asdict(part))
        for key, part in space.items()
    }
