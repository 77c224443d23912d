"""The methods in plain words, from their cards and docstrings."""

from __future__ import annotations

from inspect import getdoc

from mfairfl.glossary.words import Entry
from mfairfl.strategies import Card, create, describe

_SERVED = {
    "global": "One model serves everybody.",
    "personal": "Every client is served by a model of its own.",
    "ensemble": "The clients' own models answer together, as an ensemble.",
}


def method_entry(name: str) -> Entry:
    """Explain a method by its registered name.

    Examples
    --------
    >>> method_entry("fedavg").short
    'A method, McMahan et al. 2017: federated averaging.'
    """
    card, kind = describe(name), type(create(name))
    paper = "" if card.paper == "none" else f", {card.paper}"
    described = (getdoc(kind) or "").partition("\n")[0]
    # A dataclass without a docstring gets its signature for one.
    own = [] if described.startswith(f"{kind.__name__}(") else [described]
    return Entry(
        name=name,
        short=f"A method{paper}: {_lower(card.title)}.",
        text=" ".join([*own, _protects(card), _seen(card), _SERVED[card.serves]]),
        see=("output rule", f"mfairfl strategies {name}", "docs/baselines.md"),
    )


def _lower(title: str) -> str:
    """Begin a title in lower case, unless its first word is a name such as FedAvg."""
    first = title.partition(" ")[0]
    return title if first[1:].lower() != first[1:] else title[:1].lower() + title[1:]


def _protects(card: Card) -> str:
    if card.protects == "nothing":
        return "It protects neither groups nor clients."
    return f"It is meant to be fair to {card.protects}."


def _seen(card: Card) -> str:
    if card.trains_on == "pooled":
        return "It is a reference that sees the rows of all clients in one place."
    if card.reveals == "sums":
        return "The server needs only the sum of the clients' updates."
    return "The server must see every client's own update."
