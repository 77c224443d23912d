"""The fairness goal held against the tolerance that was set before training, in words.

A verdict needs a tolerance that was written down before training, rows that only measure, and an
interval. It is tempered where the model is useless: nobody is treated unfairly by a model that
decides alike for everyone.
"""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.fairness.results import Measured
from mfairfl.fairness.uncertainty import Interval
from mfairfl.fairness.uncertainty import verdict as judge
from mfairfl.report.document import Judgement, Outcome
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.wording import (
    and_list,
    compared_in,
    digits_apart,
    is_loss,
    plain_name,
    points,
    range_of_points,
)
from mfairfl.runs.outcome import AdviceSettings, model_warnings


def judgements(run: ReportedRun) -> list[Judgement]:
    """Judge every notion of a run's goal."""
    measured = run.aim.measured(run.record.task, run.found, run.tally)
    tolerance, caution = run.asked.verdict_tolerance, _caution(run)
    found = []
    for name in run.aim.notions:
        measure = measured[f"{name}_violation"]
        outcome = _outcome(run, measure, tolerance)
        said = _sentence(run, name, measure, tolerance, outcome)
        found.append(
            Judgement(
                measure=measure,
                tolerance=tolerance,
                outcome=outcome,
                sentence=said,
                caution="" if outcome == "not met" else caution,
            )
        )
    return found


def verdict_sentence(run: ReportedRun, found: Sequence[Judgement]) -> str:
    """Return the second sentence of a report: the tolerance, and whether it is met."""
    if not found:
        return (
            "There is no verdict, because no sensitive attribute was named: nothing is known "
            "about fairness between groups."
        )
    said = found[0].sentence if len(found) == 1 else _together(run, found)
    caution = next((one.caution for one in found if one.caution), "")
    return f"{said} A low number is no good news here: {caution}." if caution else said


def _outcome(run: ReportedRun, measure: Measured, tolerance: float | None) -> Outcome:
    if tolerance is None or run.split != "test":
        return "no verdict"
    if measure.value is None:
        return judge(None, tolerance)
    return "no verdict" if measure.interval is None else judge(_ends(measure), tolerance)


def _ends(measure: Measured) -> Interval | None:
    return None if measure.interval is None else Interval(*measure.interval)


def _caution(run: ReportedRun) -> str:
    """Return the first reason why good fairness numbers would be worthless; empty if none is."""
    if run.tally is None:
        return ""
    lines = model_warnings(
        run.found, run.tally, AdviceSettings.of(run.record), rows=f"{run.split} rows"
    )
    return lines[0].partition(". ")[0] if lines else ""


def _sentence(
    run: ReportedRun, name: str, measure: Measured, tolerance: float | None, outcome: Outcome
) -> str:
    fact = _fact(run, name, measure, tolerance)
    if tolerance is None:
        return (
            "There is no verdict, because no tolerance was set before training (--verdict-"
            f"tolerance 0.05 would set one; then train again): {fact}."
        )
    bar = f"the tolerance set before training, {_amount(name, tolerance)}, is"
    if outcome == "met":
        return f"{_capital(bar)} met: {fact}."
    if outcome == "not met":
        return f"{_capital(bar)} not met: {fact}."
    if outcome == "no verdict":
        return f"There is no verdict, because {_why_none(run)}: {fact}."
    return f"Whether {bar} met cannot be told, there are too few rows: {fact}."


def _why_none(run: ReportedRun) -> str:
    if run.split != "test":
        return f"no rows were kept that only measure ({run.split} rows choose or train the model)"
    return "this measure has no interval"


def _fact(run: ReportedRun, name: str, measure: Measured, tolerance: float | None) -> str:
    """State the number, its interval and its rows."""
    groups = f"a group (by {run.aim.whom})"
    what = f"the largest distance between {groups} and everyone in {compared_in(name)}"
    if measure.value is None:
        return f"{what} is undefined, since {measure.undefined or 'it was not recorded'}"
    shown = [measure.value, *(measure.interval or ())]
    digits = 1 if tolerance is None else digits_apart(shown, tolerance)
    level = run.found.intervals.level
    limits = "" if is_loss(name) else range_of_points(measure.interval, level, digits)
    more = ", ".join(filter(None, [limits, f"{run.rows:,} {run.split} rows"]))
    return f"{what} is {_amount(name, measure.value, digits)} ({more})"


def _amount(name: str, value: float, digits: int = 1) -> str:
    """Write a violation: points for shares, a plain number for losses."""
    return f"{value:.4f}" if is_loss(name) else points(value, digits)


def _together(run: ReportedRun, found: Sequence[Judgement]) -> str:
    """Put several judgements into one sentence."""
    names = [plain_name(name) for name in run.aim.notions]
    facts = "; ".join(
        _fact(run, name, one.measure, one.tolerance)
        for name, one in zip(run.aim.notions, found, strict=True)
    )
    tolerance = found[0].tolerance
    if tolerance is None:
        return (
            "There is no verdict, because no tolerance was set before training (--verdict-"
            f"tolerance 0.05 would set one; then train again): {facts}."
        )
    by_outcome: dict[str, list[str]] = {}
    for name, one in zip(names, found, strict=True):
        by_outcome.setdefault(one.outcome, []).append(name)
    said = and_list(f"{what} for {and_list(whom)}" for what, whom in by_outcome.items())
    bar = f"The tolerance set before training, {points(tolerance)}"
    return f"{bar}: {said}; {facts}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
