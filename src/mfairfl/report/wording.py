"""Numbers, names and notions in the words of a report, and what each number means."""

from collections.abc import Iterable, Iterator, Sequence

from mfairfl.display.numbers import Unit, capital
from mfairfl.errors import ConfigError
from mfairfl.fairness.notions import Notion, notion
from mfairfl.fairness.rates import KINDS
from mfairfl.fairness.results import Bounds
from mfairfl.glossary import explain
from mfairfl.report.document import Definition, Document

_LABELS = {
    "loss": "log-loss",
    "roc_auc": "ROC-AUC",
    "f1": "F1",
    "expected_calibration_error": "calibration error",
    "client_accuracy_std": "standard deviation of the clients' accuracies",
    "client_accuracy_gap": "gap between the clients' accuracies",
}
_DIGITS = (1, 2, 3, 4)


def label_of(name: str) -> str:
    """Return what a person calls a number of run.json.

    Examples
    --------
    >>> label_of("loss"), label_of("demographic_parity_violation")
    ('log-loss', 'demographic parity violation')
    """
    return _LABELS.get(name, plain_name(name))


def plain_name(name: str) -> str:
    """Return a name of the code as words.

    Examples
    --------
    >>> plain_name("equalized_odds")
    'equalized odds'
    """
    return name.replace("_", " ")


def and_list(words: Iterable[str]) -> str:
    """Join words as in a sentence.

    Examples
    --------
    >>> and_list(["sex"]), and_list(["sex", "age", "race"])
    ('sex', 'sex, age and race')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def points(share: float, digits: int = 1) -> str:
    """Write a difference of shares.

    Examples
    --------
    >>> points(0.0114), points(-0.0114)
    ('1.1 percentage points', '−1.1 percentage points')
    """
    return Unit(100.0, digits, " percentage points").one(share)


def range_of_points(ends: Bounds, level: float, digits: int = 1) -> str:
    """Write an interval of a difference of shares; empty if there is none.

    Examples
    --------
    >>> range_of_points((0.0012, 0.0217), 0.95)
    '95 % interval 0.1 to 2.2'
    """
    if ends is None:
        return ""
    return f"{100 * level:g} % interval {' to '.join(map(Unit(100.0, digits).bare, ends))}"


def digits_apart(values: Sequence[float], limit: float) -> int:
    """Return how many digits show that values differ from a limit.

    Examples
    --------
    >>> digits_apart([0.01, 0.04], 0.05), digits_apart([0.01, 0.0496], 0.05)
    (1, 2)
    """
    different = [value for value in values if value != limit]
    for digits in _DIGITS:
        unit = Unit(100.0, digits)
        if all(unit.bare(value) != unit.bare(limit) for value in different):
            return digits
    return _DIGITS[-1]


def known_notion(name: str) -> Notion | None:
    """Return a notion by the name in a record; None if it is not registered in this process.

    Nothing that a record names is imported.
    """
    try:
        return notion(name)
    except ConfigError:
        return None


def is_loss(name: str) -> bool:
    """Return whether a notion compares losses, which are not shares.

    Examples
    --------
    >>> is_loss("accuracy_parity_loss"), is_loss("demographic_parity")
    (True, False)
    """
    item = known_notion(name)
    return item is not None and item.statistic == "loss"


def compared_in(name: str) -> str:
    """Return what a notion compares between groups, and among whom.

    Examples
    --------
    >>> compared_in("equal_opportunity")
    'the share of people who get the favourable decision, among people whose true label is \
favourable'
    """
    item = known_notion(name)
    if item is None:
        return f"what '{plain_name(name)}' compares"
    return ", ".join(filter(None, [item.compares, item.among]))


# ------------------------------------------------------------------ definitions


def define(names: Iterable[str]) -> list[Definition]:
    """Define numbers, each once, in the order of their names.

    Examples
    --------
    >>> define(["demographic_parity_violation"])[0].formula
    'max over s of |P(ŷ=1 | s) − P(ŷ=1)|'
    """
    definitions = []
    for name in dict.fromkeys(names):
        stem, _, kind = name.rpartition("_")
        try:
            meaning = explain(name).short
        except ConfigError:  # a notion that is not registered in this process
            meaning = "Not described in this version."
            if kind in KINDS:
                meaning = (
                    f"The {kind} of '{plain_name(stem)}', a notion that is not registered here."
                )
        item = known_notion(stem) if kind == "violation" else None
        formula = "" if item is None else item.formula
        definitions.append(
            Definition(name=name, label=label_of(name), meaning=meaning, formula=formula)
        )
    return definitions


def defined(document: Document) -> Document:
    """Return the document with a definition of every number that occurs in it."""
    return document.model_copy(update={"definitions": define(_numbers_in(document))})


def _numbers_in(document: Document) -> Iterator[str]:
    """Yield the names of all numbers, in the order of appearance; some more than once."""
    yield from ("interval", "noise_floor")
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
    of_training = ("multipliers", "conflicts", "coefficients")
    yield from (name for name in of_training if getattr(document.training, name, None))
    for table in document.bias_tables:
        yield from (f"{table.measure}_rate", "impact_ratio", "p-value", "holm correction")


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
        return self._definitions[name].meaning if name in self._definitions else ""

    def meanings(self, names: Iterable[str]) -> dict[str, str]:
        """Return the meanings of numbers by their labels."""
        return {self.label(name): self.meaning(name) for name in names if self.meaning(name)}
