"""What the words of results, reports and settings mean, for people who did not write them.

Some words are fixed (`glossary.toml`). Those of a notion's measures are generated from the notion,
and those of a method from its card, so that whatever is registered can be explained.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from inspect import getdoc
from typing import TYPE_CHECKING, TypeVar

from mfairfl.errors import ConfigError, unknown

if TYPE_CHECKING:  # fixed words need no numpy
    from mfairfl.fairness.notions import Notion
    from mfairfl.fairness.rates import Kind
    from mfairfl.strategies import Card

T = TypeVar("T")

_PAGE = "docs/decisions/0012-one-name-one-number.md"
_SHORT: dict[Kind, str] = {
    "violation": "Largest gap between a group and everyone in {}; 0 is equal.",
    "difference": "Highest minus lowest group in {}; 0 is equal.",
    "ratio": "Lowest divided by highest group in {}; 1 is equal.",
}
_RIGHT = "the share of people who are decided correctly"
_SERVED = {
    "global": "All clients use one model.",
    "personal": "Every client has a model of its own.",
    "ensemble": "The clients' own models answer together, as an ensemble.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A word and its meaning.

    Parameters
    ----------
    name : str
        The word as results write it.
    short : str
        One sentence for a person who decides about the model.
    text : str
        A few sentences more, with the formula if there is one.
    see : tuple of str
        Other words, pages under docs/, or commands that begin with ``mfairfl``.

    Examples
    --------
    >>> Entry(name="round", short="One exchange.", text="There are 40.").see
    ()
    """

    name: str
    short: str
    text: str
    see: tuple[str, ...] = ()


def explain(word: str) -> Entry:
    """Return what a word means.

    Parameters
    ----------
    word : str
        A term, the name of a number, a notion or its alias, or a method. Capitals, spaces,
        hyphens and underscores do not matter.

    Raises
    ------
    ConfigError
        If the word is unknown; the message names the nearest one.

    Examples
    --------
    >>> explain("Noise-Floor").short
    'The violation that exactly fair decisions would show by chance on this many rows.'
    >>> explain("dp violation").name
    'demographic_parity_violation'
    """
    key = key_of(word)
    fixed = (entry for name, entry in fixed_entries().items() if key_of(name) == key)
    entry = next(fixed, None) or _of_notion(key) or _of_method(key)
    if entry is None:
        words = {*fixed_entries(), *(entry.name for entry in entries())}
        raise ConfigError(unknown("word", word.casefold(), words, listed="mfairfl explain"))
    return entry


def entries() -> list[Entry]:
    """Return every entry, in the order of their names.

    What another package announces and cannot be loaded is left out with a warning.

    Examples
    --------
    >>> [entry.name for entry in entries()][:3]
    ['accuracy', 'accuracy_parity', 'accuracy_parity_difference']
    """
    from mfairfl.fairness.notions import REGISTRY  # noqa: PLC0415 - fixed words need no numpy
    from mfairfl.strategies.registry import METHODS  # noqa: PLC0415

    every = set(fixed_entries().values())
    for notion in _loadable("notion", REGISTRY.names(), REGISTRY.get):
        every |= {notion_entry(notion)}
        every |= {measure_entry(notion, kind) for kind in _kinds_of(notion)}
    every.update(_loadable("strategy", METHODS.names(), method_entry))
    return sorted(every, key=lambda entry: (entry.name.casefold(), entry.text))


def _loadable(kind: str, names: Iterable[str], load: Callable[[str], T]) -> list[T]:
    loaded = []
    for name in names:
        try:
            loaded.append(load(name))
        except ConfigError as error:
            warnings.warn(f"{kind} {name} is left out: {error}", UserWarning, stacklevel=3)
    return loaded


def key_of(word: str) -> str:
    """Return what the spellings of a word have in common.

    Examples
    --------
    >>> key_of("Noise-Floor"), key_of("noise_floor"), key_of("Fisher's exact test")
    ('noisefloor', 'noisefloor', 'fishersexacttest')
    """
    return re.sub(r"[\s_'’.-]", "", word).casefold()


@cache
def fixed_entries() -> dict[str, Entry]:
    """Return the entries that depend on nothing registered, by name and by alias.

    Examples
    --------
    >>> fixed_entries()["auc"].name
    'roc auc'
    """
    text = files("mfairfl").joinpath("glossary.toml").read_text(encoding="utf-8")
    by_name: dict[str, Entry] = {}
    for word in tomllib.loads(text)["word"]:
        aliases = word.pop("aliases", ())
        word |= {"text": " ".join(word["text"].split()), "see": tuple(word["see"])}
        by_name |= dict.fromkeys([word["name"], *aliases], Entry(**word))
    return by_name


# ------------------------------------------------------------------ notions and their measures


def _of_notion(key: str) -> Entry | None:
    from mfairfl.fairness.notions import REGISTRY  # noqa: PLC0415 - fixed words need no numpy
    from mfairfl.fairness.rates import KINDS  # noqa: PLC0415

    for name in REGISTRY.names():
        if key == key_of(name):
            return notion_entry(REGISTRY.get(name))
        for kind in KINDS:
            if key == key_of(f"{name}_{kind}") and kind in _kinds_of(REGISTRY.get(name)):
                return measure_entry(REGISTRY.get(name), kind)
    return None


def _kinds_of(notion: Notion) -> tuple[Kind, ...]:
    """Return which of violation, difference and ratio a notion has."""
    return ("violation",) if notion.statistic == "loss" else ("violation", "difference", "ratio")


def notion_entry(notion: Notion) -> Entry:
    """Explain a notion.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> notion_entry(notion("dp")).short
    'Fair if groups do not differ in the share of people who get the favourable decision.'
    """
    names = [f"{notion.name}_{kind}" for kind in _kinds_of(notion)]
    return Entry(
        name=notion.name,
        short=f"Fair if groups do not differ in {_compared(notion)}.",
        text=f"A notion of group fairness. What is compared is {_compared(notion)}."
        f"{_worse(notion)} It is measured by {', '.join(names)}; the violation is "
        f"{notion.formula}.",
        see=("group fairness", *names, "docs/method.md"),
    )


def measure_entry(notion: Notion, kind: Kind) -> Entry:
    """Explain a measure of a notion.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> print(measure_entry(notion("eopp"), "ratio").short)
    Lowest divided by highest group in the share of people who get the favourable decision, \
among people whose true label is favourable; 1 is equal.
    """
    return Entry(
        name=f"{notion.name}_{kind}",
        short=_SHORT[kind].format(_compared(notion, kind)),
        text=_meaning(notion, kind),
        see=(kind, notion.name, "noise floor" if kind == "violation" else "violation", _PAGE),
    )


def _compared(notion: Notion, kind: Kind = "violation") -> str:
    """Return what is compared, and among whom; ratios are those of accuracies, not of errors."""
    accuracies = kind == "ratio" and notion.statistic == "error"
    return ", ".join(filter(None, [_RIGHT if accuracies else notion.compares, notion.among]))


def _meaning(notion: Notion, kind: Kind) -> str:
    if kind == "violation":
        loss = notion.statistic == "loss"
        symbols = "ℓ the log-loss" if loss else "ŷ the decision (1 is favourable)"
        floor = (
            "It has neither an interval nor a noise floor here."
            if loss
            else "Chance alone makes it larger than 0; the noise floor says by how much."
        )
        return (
            f"The formula: {notion.formula}, with s a group, y the true label and {symbols}."
            f"{_worse(notion)} Of several sensitive attributes the worst counts. {floor}"
        )
    how = "minus" if kind == "difference" else "divided by"
    ends = ("highest", "lowest") if kind == "difference" else ("lowest", "highest")
    return (
        f"The {ends[0]} value of a group {how} the {ends[1]}, the value being "
        f"{_compared(notion, kind)}.{_worse(notion)} It is computed as fairlearn does; several "
        "sensitive attributes are crossed. It has no interval here: the violation has one."
    )


def _worse(notion: Notion) -> str:
    several = len({event.labels for event in notion.events}) > 1
    return " Of these sets of people the worse counts." if several else ""


# ------------------------------------------------------------------ methods


def _of_method(key: str) -> Entry | None:
    from mfairfl.strategies.registry import METHODS  # noqa: PLC0415 - loads slowly

    return next((method_entry(name) for name in METHODS.names() if key == key_of(name)), None)


def method_entry(name: str) -> Entry:
    """Explain a method by its registered name.

    Examples
    --------
    >>> method_entry("fedavg").short
    'A method, McMahan et al. 2017: federated averaging.'
    """
    from mfairfl.strategies import create, describe  # noqa: PLC0415 - loads slowly

    card, kind = describe(name), type(create(name))
    paper = "" if card.paper == "none" else f", {card.paper}"
    summary = (getdoc(kind) or "").partition("\n")[0]
    # A dataclass without a docstring gets its signature for one.
    described = [] if summary.startswith(f"{kind.__name__}(") else [summary]
    protects = (
        "It protects neither groups nor clients."
        if card.protects == "nothing"
        else f"It is meant to be fair to {card.protects}."
    )
    return Entry(
        name=name,
        short=f"A method{paper}: {_lower(card.title)}.",
        text=" ".join([*described, protects, _seen(card), _SERVED[card.serves]]),
        see=("output rule", f"mfairfl strategies {name}", "docs/baselines.md"),
    )


def _lower(title: str) -> str:
    """Begin a title in lower case, unless its first word is a name such as FedAvg."""
    first = title.partition(" ")[0]
    return title if first[1:].lower() != first[1:] else title[:1].lower() + title[1:]


def _seen(card: Card) -> str:
    if card.trains_on == "pooled":
        return "It is a reference that sees the rows of all clients in one place."
    if card.reveals == "sums":
        return "The server needs only the sum of the clients' updates."
    return "The server must see every client's own update."
