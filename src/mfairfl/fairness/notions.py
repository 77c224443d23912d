"""Notions of group fairness: which rows are compared (events), and by which statistic.

Every notion has the same violation: the largest absolute difference, over events e and groups s,
between the overall value F_e and the group's value F_{e,s}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mfairfl.errors import ConfigError, unknown

__all__ = ["NOTIONS", "Event", "Notion", "Statistic", "is_built_in", "notion"]

Statistic = Literal["selection", "error", "loss"]

_VALUE: dict[Statistic, str] = {"selection": "P(ŷ=1{})", "error": "P(ŷ≠y{})", "loss": "E[ℓ{}]"}
_SURROGATE: dict[Statistic, str] = {"selection": "σ(z)", "error": "|σ(z) − y|", "loss": "ℓ"}


@dataclass(frozen=True, slots=True)
class Event:
    """The rows that are compared with one another: those whose label is among `labels`."""

    name: str
    labels: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.labels not in ((0,), (1,), (0, 1)):
            raise ConfigError(
                f"event '{self.name}': labels {self.labels} must be (0,), (1,) or (0, 1)"
            )


@dataclass(frozen=True, slots=True)
class Notion:
    """A notion of fairness: events × statistic.

    Attributes
    ----------
    name
        The long name, as in fairlearn where fairlearn has it.
    events
        The sets of rows within which groups are compared.
    statistic
        What is averaged: ``selection`` (ŷ), ``error`` (ŷ ≠ y) or ``loss`` (cross-entropy).

    Examples
    --------
    >>> notion("eopp").formula
    'max over s of |P(ŷ=1 | s, y=1) − P(ŷ=1 | y=1)|'
    """

    name: str
    events: tuple[Event, ...]
    statistic: Statistic

    @property
    def formula(self) -> str:
        """The violation written out, from the events and the statistic."""
        value = _VALUE[self.statistic]
        terms = []
        for event in self.events:
            label = [] if len(event.labels) == 2 else [f"y={event.labels[0]}"]
            overall = value.format(f" | {label[0]}" if label else "")
            group = value.format(" | " + ", ".join(["s", *label]))
            terms.append(f"|{group} − {overall}|")
        body = terms[0] if len(terms) == 1 else "{" + ", ".join(terms) + "}"
        return f"max over s of {body}"

    @property
    def surrogate(self) -> str:
        """The smooth per-row value that stands for the statistic in training."""
        return _SURROGATE[self.statistic]


_ALL = (Event("all", (0, 1)),)
_NEGATIVE = Event("y=0", (0,))
_POSITIVE = Event("y=1", (1,))
_REGISTRY = {
    item.name: item
    for item in (
        Notion("demographic_parity", _ALL, "selection"),
        Notion("equalized_odds", (_NEGATIVE, _POSITIVE), "selection"),
        Notion("equal_opportunity", (_POSITIVE,), "selection"),
        Notion("accuracy_parity", _ALL, "error"),
        Notion("accuracy_parity_loss", _ALL, "loss"),
    )
}
_ALIASES = {
    "dp": "demographic_parity",
    "eo": "equalized_odds",
    "eopp": "equal_opportunity",
    "ap": "accuracy_parity",
    "ap-loss": "accuracy_parity_loss",
}
NOTIONS: tuple[str, ...] = tuple(_REGISTRY)


def notion(name: str) -> Notion:
    """Return the notion of this name or alias (dp, eo, eopp, ap, ap-loss).

    Examples
    --------
    >>> notion("dp").name
    'demographic_parity'
    >>> notion("equalised_odds")
    Traceback (most recent call last):
    ...
    mfairfl.errors.ConfigError: unknown notion 'equalised_odds': did you mean 'equalized_odds'? \
(known: accuracy_parity, accuracy_parity_loss, ap, ap-loss, demographic_parity, dp, eo, eopp, \
equal_opportunity, equalized_odds)
    """
    full = _ALIASES.get(name, name)
    if full not in _REGISTRY:
        raise ConfigError(unknown("notion", name, [*_REGISTRY, *_ALIASES]))
    return _REGISTRY[full]


def is_built_in(name: str) -> bool:
    """Say whether a name or alias is that of a notion that comes with mfairfl.

    Examples
    --------
    >>> is_built_in("dp"), is_built_in("package.module:Name")
    (True, False)
    """
    return _ALIASES.get(name, name) in NOTIONS
