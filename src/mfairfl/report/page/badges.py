"""The verdict at a glance: in words, by a mark and in a colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mfairfl.report.document import Judgement, Outcome

_WORST_FIRST: tuple[Outcome, ...] = ("not met", "too few rows to tell", "no verdict", "met")


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict in words, a mark and a kind that has a colour."""

    words: str
    mark: str
    kind: Literal["good", "bad", "open", "none"]


_BADGES: dict[Outcome, Badge] = {
    "met": Badge("Fairness goal met", "✓", "good"),
    "not met": Badge("Fairness goal not met", "✕", "bad"),
    "too few rows to tell": Badge("Too few rows to tell", "?", "open"),
    "no verdict": Badge("No verdict", "–", "none"),
}
_CAUTION = Badge("Fairness goal met, but that is no good news", "!", "open")


def badge(judgements: Sequence[Judgement]) -> Badge:
    """Return the verdict of several goals together: that of the worst.

    A goal that is met for a bad reason is not shown as good.

    Examples
    --------
    >>> badge([]).words
    'No verdict'
    """
    outcomes: list[Outcome] = [judgement.outcome for judgement in judgements] or ["no verdict"]
    worst = min(outcomes, key=_WORST_FIRST.index)
    if worst == "met" and any(judgement.caution for judgement in judgements):
        return _CAUTION
    return _BADGES[worst]
