"""What every number of a report means, from the glossary and the notions themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mfairfl.display.numbers import capital
from mfairfl.errors import ConfigError
from mfairfl.fairness.rates import KINDS
from mfairfl.glossary import explain
from mfairfl.report.document import Definition, Document
from mfairfl.report.wording import known_notion, label_of, plain_name

_TERMS = ("interval", "noise_floor")
_OF_TRAINING = ("multipliers", "conflicts", "coefficients")
_OF_BIAS_TABLES = ("impact_ratio", "p-value", "holm correction")


def define(names: Iterable[str]) -> list[Definition]:
    """Define numbers, each once, in the order of their names.

    Examples
    --------
    >>> define(["demographic_parity_violation"])[0].formula
    'max over s of |P(ŷ=1 | s) − P(ŷ=1)|'
    """
    return [
        Definition(name=name, label=label_of(name), meaning=_meaning(name), formula=_formula(name))
        for name in dict.fromkeys(names)
    ]


def _meaning(name: str) -> str:
    try:
        return explain(name).short
    except ConfigError:  # a notion that is not registered in this process
        stem, _, kind = name.rpartition("_")
        if kind in KINDS:
            return f"The {kind} of '{plain_name(stem)}', a notion that is not registered here."
        return "Not described in this version."


def _formula(name: str) -> str:
    item = known_notion(name.removesuffix("_violation"))
    return item.formula if item is not None and name.endswith("_violation") else ""


def defined(document: Document) -> Document:
    """Return the document with a definition of every number that occurs in it."""
    return document.model_copy(update={"definitions": define(_numbers_in(document))})


def _numbers_in(document: Document) -> Iterator[str]:
    """Yield the names of all numbers, in the order of appearance; some more than once."""
    yield from _TERMS
    if document.kind == "audit":
        yield "bounds"
    yield from (measured.name for measured in document.overall)
    for section in document.sections:
        yield from (measured.name for measured in section.measures)
        for group in section.groups:
            yield from group.numbers
    for client in document.clients:
        yield from client.numbers
    for model in document.compared:
        yield from model.numbers
    yield from (change.number for change in document.changes)
    yield from (name for name in _OF_TRAINING if getattr(document.training, name, None))
    for table in document.bias_tables:
        yield from (f"{table.measure}_rate", *_OF_BIAS_TABLES)


class Words:
    """What the numbers of one document are called, and what they mean.

    Examples
    --------
    >>> words = Words([Definition(name="accuracy", label="accuracy", meaning="Share correct.")])
    >>> words.label("accuracy"), words.meaning("accuracy"), words.label("roc_auc")
    ('Accuracy', 'Share correct.', 'Roc auc')
    """

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._definitions = {definition.name: definition for definition in definitions}

    def label(self, name: str) -> str:
        """Return what a person calls the number."""
        definition = self._definitions.get(name)
        return capital(definition.label if definition else plain_name(name))

    def meaning(self, name: str) -> str:
        """Return what it means; nothing for a number without a definition."""
        definition = self._definitions.get(name)
        return definition.meaning if definition else ""

    def meanings(self, names: Iterable[str]) -> dict[str, str]:
        """Return the meanings of numbers by their labels."""
        return {self.label(name): self.meaning(name) for name in names if self.meaning(name)}
