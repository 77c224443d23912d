"""How numbers are written: shares as percentages, gaps in percentage points, others plainly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from mfairfl.fairness.notions import available_notions
from mfairfl.fairness.results import Bounds

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
    typed
        Whether only signs that every keyboard has are used.
    signed
        Whether the sign is written before positive numbers, too.
    """

    factor: float
    digits: int
    mark: str = ""
    typed: bool = False
    signed: bool = False

    def bare(self, value: float) -> str:
        """Return the number alone; a number that is written as zero has no sign.

        Examples
        --------
        >>> SHARE.bare(0.8581), POINTS.bare(-0.0114), PLAIN.bare(-0.0001)
        ('85.8', '−1.14', '0.000')
        """
        written = f"{value * self.factor:,.{self.digits}f}"
        digits = written.removeprefix("-")
        if not any(digit in digits for digit in "123456789"):
            return digits
        if written != digits:
            return ("-" if self.typed else _MINUS) + digits
        return "+" * self.signed + digits

    def brief(self, value: float) -> str:
        """Return the number for a chart, where only a share needs its unit.

        Examples
        --------
        >>> SHARE.brief(0.8581), POINTS.brief(0.0114)
        ('85.8 %', '1.14')
        """
        return self.bare(value) + self.mark * (self == SHARE)

    def one(self, value: float | None) -> str:
        """Return the number with its unit; a dash for None and nan.

        Examples
        --------
        >>> SHARE.one(0.8581), POINTS.one(0.0114), PLAIN.one(0.9), SHARE.one(None)
        ('85.8 %', '1.14 points', '0.900', '–')
        """
        if value is None or math.isnan(value):
            return "-" if self.typed else NO_VALUE
        return self.bare(value) + self.mark

    def if_any(self, value: float | None) -> str:
        """Return the number with its unit; nothing for None."""
        return "" if value is None else self.one(value)

    @property
    def change(self) -> Unit:
        """How a change of such a number is written: with its sign, that of a share in points.

        Examples
        --------
        >>> SHARE.change.one(-0.012), SHARE.change.one(0.012), PLAIN.change.one(0.0)
        ('−1.20 points', '+1.20 points', '0.000')
        """
        return replace(POINTS if self == SHARE else self, signed=True)

    def span(self, ends: Bounds) -> str:
        """Return an interval without its unit; nothing for None.

        Examples
        --------
        >>> SHARE.span((0.8511, 0.8649)), POINTS.span((-0.01, 0.02)), PLAIN.span(None)
        ('85.1–86.5', '−1.00 to 2.00', '')
        >>> POINTS.change.span((0.01, 0.02))
        '+1.00 to +2.00'
        """
        if ends is None:
            return ""
        joint = " to " if ends[0] < 0 or self.typed or self.signed else "–"
        return joint.join(map(self.bare, ends))

    def tick(self, value: float) -> str:
        """Return a number for an axis: no digit that it does not need.

        Examples
        --------
        >>> SHARE.tick(0.85), POINTS.tick(0.005), PLAIN.tick(0.2)
        ('85 %', '0.5', '0.2')
        """
        digits = f"{value * self.factor:,.10f}".rstrip("0").rstrip(".")
        return digits.replace("-", _MINUS) + self.mark * (self == SHARE)


SHARE = Unit(100.0, 1, " %")
POINTS = Unit(100.0, 2, " points")
PLAIN = Unit(1.0, 3)
COUNT = Unit(1.0, 0)
DECIMAL = Unit(1.0, 4, typed=True)
"""As in run.json and in the terminal: every number alike, with four digits."""


def unit_of(name: str) -> Unit:
    """Return how a number is written, by its name.

    Gaps between rates are in percentage points; what is not known to be a rate is written as is.

    Examples
    --------
    >>> [unit_of(name).one(0.05) for name in ("accuracy", "demographic_parity_violation", "loss")]
    ['5.0 %', '5.00 points', '0.050']
    """
    if name in _SHARES:
        return SHARE
    notion, _, kind = name.rpartition("_")
    of_rates = {notion.name for notion in available_notions() if notion.statistic != "loss"}
    gap = kind in ("violation", "difference") and notion in of_rates
    return POINTS if gap or name in _GAPS else PLAIN


def probability(value: float | None) -> str:
    """Return a p-value as text; nothing for None.

    Examples
    --------
    >>> probability(0.01234), probability(1e-9), probability(1.0), probability(None)
    ('0.012', '< 0.001', '1.000', '')
    """
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def plain_text(value: Any) -> str:
    """Return a setting as text: lists with commas, a dash for nothing.

    Examples
    --------
    >>> plain_text([64, 64]), plain_text(None), plain_text(True), plain_text(0.004)
    ('64, 64', '–', 'yes', '0.004')
    """
    if value is None or value in ("", [], {}):
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(plain_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {plain_text(item)}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def capital(words: str) -> str:
    """Return words that begin with a capital.

    Examples
    --------
    >>> capital("selection rate"), capital("ROC-AUC")
    ('Selection rate', 'ROC-AUC')
    """
    return words[:1].upper() + words[1:]
