"""Notions of group fairness: which rows are compared (events), and by which statistic.

Every notion has the same violation: the largest absolute difference, over events e and groups s,
between the overall value F_e and the group's value F_{e,s}. A notion that is registered is
measured, recorded and tabulated like the built-in ones, as `<name>_violation` and so on.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from mfairfl.errors import ConfigError, require_known
from mfairfl.plugins import Registry

Statistic = Literal["selection", "error", "loss"]

_VALUE: dict[Statistic, str] = {"selection": "P(ŷ=1{})", "error": "P(ŷ≠y{})", "loss": "E[ℓ{}]"}
_IN_WORDS: dict[Statistic, str] = {
    "selection": "the share of people who get the favourable decision",
    "error": "the share of people who are decided wrongly",
    "loss": "the mean log-loss of the model's scores",
}
_WHOM = {
    (0, 1): "everyone",
    (0,): "people whose true label is unfavourable",
    (1,): "people whose true label is favourable",
}


@dataclass(frozen=True, slots=True)
class Event:
    """The rows that are compared with one another: those whose label is among `labels`.

    Examples
    --------
    >>> notion("equalized_odds").events[0].labels
    (0,)
    """

    name: str
    labels: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.labels not in ((0,), (1,), (0, 1)):
            raise ConfigError(
                f"event '{self.name}': labels {self.labels} must be (0,), (1,) or (0, 1)"
            )

    @property
    def whom(self) -> str:
        """The rows in plain words.

        Examples
        --------
        >>> Event("y=1", (1,)).whom
        'people whose true label is favourable'
        """
        return _WHOM[self.labels]


@dataclass(frozen=True, slots=True)
class Notion:
    """A notion of fairness: events × statistic.

    Attributes
    ----------
    name
        The long name, as in fairlearn where fairlearn has it: lower case, digits, underscores.
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

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ConfigError(
                f"notion {self.name!r} is not a valid name; use lower-case letters, digits and "
                "underscores, such as 'predictive_equality'"
            )
        require_known("statistic", [self.statistic], _VALUE, where=f"notion '{self.name}'")
        if not self.events:
            raise ConfigError(f"notion '{self.name}' has no events; name the rows it compares")

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
    def compares(self) -> str:
        """What is compared between groups, in plain words.

        Examples
        --------
        >>> notion("ap").compares
        'the share of people who are decided wrongly'
        """
        return _IN_WORDS[self.statistic]

    @property
    def among(self) -> str:
        """Among whom groups are compared, in plain words; empty if among everyone.

        Examples
        --------
        >>> notion("eopp").among
        'among people whose true label is favourable'
        >>> notion("eo").among
        'among people of the same true label'
        """
        labels = {event.labels for event in self.events}
        if labels == {(0, 1)}:
            return ""
        if labels == {(0,), (1,)}:
            return "among people of the same true label"
        return " or ".join(f"among {event.whom}" for event in self.events)


_ALL = (Event("all", (0, 1)),)
_NEGATIVE = Event("y=0", (0,))
_POSITIVE = Event("y=1", (1,))
_BUILT_IN = {
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
NOTIONS: tuple[str, ...] = tuple(_BUILT_IN)
"""The names of the built-in notions."""


def _as_notion(thing: Any) -> Notion:
    if not isinstance(thing, Notion):
        raise ConfigError(f"{thing!r} is not a notion: pass a mfairfl.fairness.Notion")
    return thing


REGISTRY: Registry[Notion] = Registry(
    "notion",
    "mfairfl.notions",
    _BUILT_IN | {alias: _BUILT_IN[name] for alias, name in _ALIASES.items()},
    _as_notion,
)
"""Every notion that has a name or an alias."""


def register_notion(item: Notion) -> str:
    """Make a notion known by its name, for this process; return the name.

    Registering an equal notion again changes nothing; another one of the same name is refused.

    Examples
    --------
    >>> own = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")
    >>> own.formula
    'max over s of |P(ŷ=1 | s, y=0) − P(ŷ=1 | y=0)|'
    >>> register_notion(own)  # doctest: +SKIP
    """
    item = _as_notion(item)
    name = _ALIASES.get(item.name, item.name)
    if {**_BUILT_IN, **REGISTRY.added()}.get(name, item) != item:
        raise ConfigError(f"notion '{item.name}' is already registered with another definition")
    return item.name if item.name in _BUILT_IN else REGISTRY.add(item.name, item)


def available_notions() -> tuple[Notion, ...]:
    """Return the built-in notions, then those that are registered or in use in this process.

    Examples
    --------
    >>> available_notions()[0].name
    'demographic_parity'
    """
    return tuple(dict.fromkeys([*_BUILT_IN.values(), *REGISTRY.added().values()]))


def notion(name: str) -> Notion:
    """Return the notion of this name or alias (dp, eo, eopp, ap, ap-loss).

    An import string is known here only once `follow_notion` has followed it.

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
    return REGISTRY.get(name)


def follow_notion(name: str) -> Notion:
    """Return a notion by the user's own words, which may be an import string.

    From then on it is known by its own name as well.
    """
    item = REGISTRY.follow(name)
    register_notion(item)
    return item


def is_built_in(name: str) -> bool:
    """Return whether a name or alias is that of a built-in notion.

    Examples
    --------
    >>> is_built_in("dp"), is_built_in("package.module:Name")
    (True, False)
    """
    return REGISTRY.is_builtin(name)
