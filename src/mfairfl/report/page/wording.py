"""Numbers as people read them: shares as percentages, gaps in percentage points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mfairfl.fairness.notions import available_notions
from mfairfl.report.document import Definition

NO_VALUE = "–"
_MINUS = "−"

_SHARES = (
    "accuracy",
    "balanced_accuracy",
    "selection_rate",
    "scoring_rate",
    "true_positive_rate",
    "false_positive_rate",
    "true_negative_rate",
    "false_negative_rate",
    "base_rate",
    "precision",
    "worst_client_accuracy",
    "best_client_accuracy",
    "mean_score",
)
_GAPS = ("client_accuracy_gap", "client_accuracy_std", "expected_calibration_error")


@dataclass(frozen=True, slots=True)
class Unit:
    """How numbers of one kind are written.

    Parameters
    ----------
    factor
        What the number is multiplied by.
    digits
        After the point.
    mark
        Behind the number, such as ``%``.
    """

    factor: float
    digits: int
    mark: str

    def bare(self, value: float) -> str:
        """Write the number alone.

        Examples
        --------
        >>> SHARE.bare(0.8581), POINTS.bare(-0.0114), PLAIN.bare(-0.0001)
        ('85.8', '−1.14', '0.000')
        """
        written = f"{value * self.factor:,.{self.digits}f}"
        negative = written.startswith("-") and any(c in "123456789" for c in written)
        return _MINUS * negative + written.lstrip("-")

    def one(self, value: float | None) -> str:
        """Write the number with its unit; None is a dash.

        Examples
        --------
        >>> SHARE.one(0.8581), POINTS.one(0.0114), PLAIN.one(0.9), SHARE.one(None)
        ('85.8 %', '1.14 points', '0.900', '–')
        """
        return NO_VALUE if value is None else self.bare(value) + self.mark

    def change(self, value: float | None) -> str:
        """Write how much a number changed, with its sign.

        Examples
        --------
        >>> SHARE.change(-0.012), SHARE.change(0.012), PLAIN.change(0.0)
        ('−1.20 points', '+1.20 points', '0.000')
        """
        if value is None:
            return NO_VALUE
        unit = POINTS if self == SHARE else self
        written = unit.one(value)
        up = value > 0 and any(c in "123456789" for c in written)
        return "+" * up + written

    def change_span(self, ends: tuple[float, float] | None) -> str:
        """Write the interval of a change without its unit.

        Examples
        --------
        >>> SHARE.change_span((-0.012, 0.001))
        '−1.20 to +0.10'
        """
        if ends is None:
            return ""
        return " to ".join(self.change(end).removesuffix(POINTS.mark) for end in ends)

    def span(self, ends: tuple[float, float] | None) -> str:
        """Write an interval without its unit.

        Examples
        --------
        >>> SHARE.span((0.8511, 0.8649)), POINTS.span((-0.01, 0.02)), PLAIN.span(None)
        ('85.1–86.5', '−1.00 to 2.00', '')
        """
        if ends is None:
            return ""
        joint = " to " if ends[0] < 0 else "–"
        return joint.join(self.bare(end) for end in ends)

    def tick(self, value: float) -> str:
        """Write a number at an axis: no digit that it does not need.

        Examples
        --------
        >>> SHARE.tick(0.85), POINTS.tick(0.005), PLAIN.tick(0.2)
        ('85 %', '0.5', '0.2')
        """
        written = f"{value * self.factor:,.10f}".rstrip("0").rstrip(".")
        return written.replace("-", _MINUS) + (self.mark if self == SHARE else "")


SHARE = Unit(100.0, 1, " %")
POINTS = Unit(100.0, 2, " points")
PLAIN = Unit(1.0, 3, "")
COUNT = Unit(1.0, 0, "")


def unit_of(name: str) -> Unit:
    """Return how a number is written, by its name.

    Gaps between rates are in percentage points; what is not known to be a rate is written as is.

    Examples
    --------
    >>> [unit_of(name).one(0.05) for name in ("accuracy", "demographic_parity_violation", "loss")]
    ['5.0 %', '5.00 points', '0.050']
    """
    notion, _, kind = name.rpartition("_")
    if name in _SHARES:
        return SHARE
    of_rates = {found.name for found in available_notions() if found.statistic != "loss"}
    gap = kind in ("violation", "difference") and notion in of_rates
    return POINTS if gap or name in _GAPS else PLAIN


def count(value: int) -> str:
    """Write a number of rows.

    Examples
    --------
    >>> count(48842)
    '48,842'
    """
    return f"{value:,}"


def capital(words: str) -> str:
    """Begin with a capital.

    Examples
    --------
    >>> capital("selection rate"), capital("ROC-AUC")
    ('Selection rate', 'ROC-AUC')
    """
    return words[:1].upper() + words[1:]


class Words:
    """What the numbers of one document are called, and what they mean.

    Examples
    --------
    >>> words = Words([Definition(name="accuracy", label="accuracy", meaning="Share correct.")])
    >>> words.label("accuracy"), words.meaning("accuracy"), words.label("roc_auc")
    ('Accuracy', 'Share correct.', 'Roc auc')
    """

    def __init__(self, definitions: list[Definition]) -> None:
        self._known: Mapping[str, Definition] = {d.name: d for d in definitions}

    def label(self, name: str) -> str:
        """Return what a person calls the number."""
        known = self._known.get(name)
        return capital(known.label if known else name.replace("_", " "))

    def meaning(self, name: str) -> str:
        """Return what it means, or nothing if nobody said so."""
        known = self._known.get(name)
        return known.meaning if known else ""
