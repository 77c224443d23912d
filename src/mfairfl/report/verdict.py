"""A violation held against the tolerance: the outcome, and the sentence that states it.

A verdict needs a tolerance, an interval, groups to compare and rows that only measure. It is
tempered where low violations mean nothing: a model that gives everyone the same decision treats no
group unfairly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mfairfl.display.numbers import capital
from mfairfl.fairness.results import Measured
from mfairfl.fairness.uncertainty import Interval, verdict
from mfairfl.report import wording
from mfairfl.report.document import Judgement, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictTerms:
    """By what the violations of a document are judged, and in which words.

    Attributes
    ----------
    tolerance
        The largest acceptable violation; without it there is no verdict.
    level
        Confidence level of the intervals.
    set_when
        When the tolerance was set, for example ``before training``.
    remedy
        How to get a tolerance.
    obstacle
        Why there can be no verdict whatever the numbers are.
    groups
        Which groups are compared, for example ``a group (by sex)``.
    rows
        The rows that were measured.
    caution
        Why low violations mean little.
    """

    tolerance: float | None
    level: float
    set_when: str = ""
    remedy: str = ""
    obstacle: str = ""
    groups: str = "a group"
    rows: str = ""
    caution: str = ""


def judge(notion: str, measure: Measured, terms: VerdictTerms) -> Judgement:
    """Hold the violation of a notion against the tolerance.

    Examples
    --------
    >>> violation = Measured(
    ...     name="demographic_parity_violation", value=0.1, interval=(0.08, 0.12)
    ... )
    >>> judged = judge("demographic_parity", violation, VerdictTerms(tolerance=0.05, level=0.95))
    >>> print(judged.outcome, "|", judged.sentence.partition(":")[0])
    not met | The tolerance of 5.0 percentage points is not met for demographic parity
    """
    outcome = _outcome(measure, terms)
    return Judgement(
        measure=measure,
        tolerance=terms.tolerance,
        outcome=outcome,
        sentence=_sentence(notion, measure, terms, outcome),
        caution="" if outcome == "not met" else terms.caution,
    )


def verdict_sentence(judgements: Sequence[Judgement]) -> str:
    """Return the sentences of all judgements, and what tempers them."""
    if not judgements:
        return (
            "There is no verdict, because no sensitive attribute was named: nothing is known "
            "about fairness between groups."
        )
    sentences = [judgement.sentence for judgement in judgements]
    caution = next((judgement.caution for judgement in judgements if judgement.caution), "")
    if caution:
        sentences.append(f"A low violation means little here: {caution}.")
    return " ".join(sentences)


def _outcome(measure: Measured, terms: VerdictTerms) -> Outcome:
    if terms.tolerance is None or terms.obstacle:
        return "no verdict"
    if measure.value is None:
        return verdict(None, terms.tolerance)
    if measure.interval is None:
        return "no verdict"
    return verdict(Interval(*measure.interval), terms.tolerance)


def _sentence(notion: str, measure: Measured, terms: VerdictTerms, outcome: Outcome) -> str:
    fact, of_notion = _fact(notion, measure, terms), wording.plain_name(notion)
    if terms.tolerance is None:
        why = " ".join(filter(None, ["no tolerance was set", terms.set_when, terms.remedy]))
        return f"There is no verdict on {of_notion}, because {why}: {fact}."
    if outcome == "no verdict":
        why = terms.obstacle or "this measure has no interval"
        return f"There is no verdict on {of_notion}, because {why}: {fact}."
    when = f" set {terms.set_when}" if terms.set_when else ""
    bar = f"the tolerance of {_amount(notion, terms.tolerance)}{when} is"
    statement = {
        "met": f"{bar} met for {of_notion}",
        "not met": f"{bar} not met for {of_notion}",
        "too few rows to tell": f"whether {bar} met for {of_notion} cannot be told from so few "
        "rows",
    }[outcome]
    return f"{capital(statement)}: {fact}.{_reach(measure, terms.tolerance)}"


def _fact(notion: str, measure: Measured, terms: VerdictTerms) -> str:
    """State the number, its interval and its rows."""
    compared = wording.compared_in(notion)
    what = f"the largest distance between {terms.groups} and everyone in {compared}"
    if measure.value is None:
        return f"{what} is undefined, since {measure.undefined or 'it was not recorded'}"
    shown = [measure.value, *(measure.interval or ())]
    digits = 1 if terms.tolerance is None else wording.digits_apart(shown, terms.tolerance)
    interval = wording.range_of_points(measure.interval, terms.level, digits)
    details = ", ".join(filter(None, [interval, terms.rows]))
    fact = f"{what} is {_amount(notion, measure.value, digits)}"
    return f"{fact} ({details})" if details else fact


def _amount(notion: str, value: float, digits: int = 1) -> str:
    """Write a violation: points for shares, a plain number for losses."""
    return f"{value:.4f}" if wording.is_loss(notion) else wording.points(value, digits)


def _reach(measure: Measured, tolerance: float) -> str:
    """Add the bounds if what is unknown can move the violation over the tolerance."""
    if measure.bounds is None or measure.value is None:
        return ""
    low, high = measure.bounds
    if not low <= tolerance < high:
        return ""
    return (
        " Depending on rows of which something is not known, it lies anywhere from "
        f"{wording.points(low).partition(' ')[0]} to {wording.points(high)}."
    )
