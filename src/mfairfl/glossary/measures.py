"""Notions and their measures in plain words, generated from their events and statistic."""

from __future__ import annotations

from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import KINDS, Kind
from mfairfl.glossary.words import Entry

_PAGE = "docs/decisions/0012-one-name-one-number.md"
_SHORT: dict[Kind, str] = {
    "violation": "Largest gap between a group and everyone in {}; 0 is equal.",
    "difference": "Highest minus lowest group in {}; 0 is equal.",
    "ratio": "Lowest divided by highest group in {}; 1 is equal.",
}
_RIGHT = "the share of people who are decided rightly"


def kinds_of(notion: Notion) -> tuple[Kind, ...]:
    """Return which of violation, difference and ratio a notion has.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> kinds_of(notion("ap-loss"))
    ('violation',)
    """
    return ("violation",) if notion.statistic == "loss" else KINDS


def notion_entry(notion: Notion) -> Entry:
    """Explain a notion.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> notion_entry(notion("dp")).short
    'Fair if groups do not differ in the share of people who get the favourable decision.'
    """
    names = [f"{notion.name}_{kind}" for kind in kinds_of(notion)]
    return Entry(
        name=notion.name,
        short=f"Fair if groups do not differ in {_compared(notion)}.",
        text=" ".join(
            [
                "A notion of group fairness.",
                f"What is compared is {_compared(notion)}.",
                *_worse(notion),
                f"It is measured by {', '.join(names)}; the violation is {notion.formula}.",
            ]
        ),
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
        text=" ".join(_meaning(notion, kind)),
        see=(kind, notion.name, "noise floor" if kind == "violation" else "violation", _PAGE),
    )


def _compared(notion: Notion, kind: Kind = "violation") -> str:
    """Return what is compared, and among whom; ratios are those of accuracies, not of errors."""
    accuracies = kind == "ratio" and notion.statistic == "error"
    return ", ".join(filter(None, [_RIGHT if accuracies else notion.compares, notion.among]))


def _meaning(notion: Notion, kind: Kind) -> list[str]:
    if kind == "violation":
        loss = notion.statistic == "loss"
        symbols = "ℓ the log-loss" if loss else "ŷ the decision (1 is favourable)"
        floor = "Chance alone makes it larger than 0; the noise floor says by how much."
        return [
            f"The formula: {notion.formula}, with s a group, y the true label and {symbols}.",
            *_worse(notion),
            "Of several sensitive attributes the worst counts.",
            "It has neither an interval nor a noise floor here." if loss else floor,
        ]
    how = "minus" if kind == "difference" else "divided by"
    ends = ("highest", "lowest") if kind == "difference" else ("lowest", "highest")
    return [
        f"The {ends[0]} value of a group {how} the {ends[1]}, the value being "
        f"{_compared(notion, kind)}.",
        *_worse(notion),
        "It is computed as fairlearn does; several sensitive attributes are crossed.",
        "It has no interval here: the violation has one.",
    ]


def _worse(notion: Notion) -> list[str]:
    several = len({event.labels for event in notion.events}) > 1
    return ["Of these sets of people the worse counts."] if several else []
