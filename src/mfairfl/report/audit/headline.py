"""The first screen of an audit in sentences: whose decisions, the verdict, what is not known."""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.fairness.results import Measured, Section
from mfairfl.fairness.uncertainty import Interval
from mfairfl.fairness.uncertainty import verdict as judge
from mfairfl.report.audit_settings import NOT_STATED, AuditSettings
from mfairfl.report.document import Headline, Judgement, Outcome, RowFacts
from mfairfl.report.wording import (
    and_list,
    compared_in,
    digits_apart,
    percent,
    plain_name,
    points,
    range_of_points,
)
from mfairfl.runs.outcome import nearly_constant
from mfairfl.runs.record import Evaluation
from mfairfl.text import some_of

FEW_ROWS = 30
"""Groups with fewer rows are warned of: a rate of theirs has an interval of a third or more."""
MANY_LEFT_OUT = 0.05
"""A larger share of rows that could not be counted is warned of."""


def headline(
    settings: AuditSettings,
    rows: RowFacts,
    found: Evaluation,
    overall: Sequence[Measured],
    sections: Sequence[Section],
) -> Headline:
    """Put the audit into sentences."""
    alone = _nobody_to_compare(sections)
    nobody = len(alone) == len(sections)
    caution = _caution(found)
    judgements = [
        _judgement(name, overall, settings, alone=nobody, caution=caution)
        for name in settings.notions
    ]
    tool = settings.facts.tool
    return Headline(
        title=f"Audit of {tool}" if tool != NOT_STATED else "Audit of decisions",
        what=_what(rows, found, sections),
        verdict=" ".join(one.sentence for one in judgements),
        unknown=_unknown(rows, judgements),
        judgements=judgements,
        warnings=_warnings(rows, sections, alone, caution),
    )


def _nobody_to_compare(sections: Sequence[Section]) -> list[str]:
    """Return the attributes with one group only."""
    return [one.attribute for one in sections if len(one.groups) < 2]


def _caution(found: Evaluation) -> str:
    """Say why low violations are no good news; empty if nothing speaks against them."""
    if nearly_constant(found.metrics):
        rate = found.metrics["selection_rate"]
        return f"nearly everyone is decided alike ({percent(rate)} are selected)"
    balanced = found.intervals.get("balanced_accuracy")
    if balanced is not None and balanced[0] <= 0.5:
        return (
            "decisions are not shown to be better than chance (balanced accuracy "
            f"{percent(found.metrics['balanced_accuracy'])})"
        )
    return ""


def _what(rows: RowFacts, found: Evaluation, sections: Sequence[Section]) -> str:
    groups = and_list(
        f"{len(section.groups)} groups by {section.attribute}" for section in sections
    )
    rate = found.metrics.get("selection_rate")
    selected = "" if rate is None else f", {percent(rate)} of them favourable"
    labels = (
        "no label is known"
        if not rows.labelled
        else f"{rows.labelled:,} have a known label"
        if rows.labelled < rows.counted
        else "all labels are known"
    )
    return f"{rows.counted:,} decisions{selected}; {groups}; {labels}."


def _judgement(
    name: str,
    overall: Sequence[Measured],
    settings: AuditSettings,
    *,
    alone: bool,
    caution: str,
) -> Judgement:
    measure = next((one for one in overall if one.name == f"{name}_violation"), None)
    if measure is None:
        measure = Measured(
            name=f"{name}_violation", value=None, undefined="no row has a known label"
        )
    tolerance = settings.tolerance
    ends = None if measure.interval is None else Interval(*measure.interval)
    outcome: Outcome = "no verdict"
    if tolerance is not None and not alone:
        outcome = judge(None if measure.value is None else ends, tolerance)
    return Judgement(
        measure=measure,
        tolerance=tolerance,
        outcome=outcome,
        sentence=_sentence(name, measure, settings, outcome, alone=alone),
        caution="" if outcome == "not met" else caution,
    )


def _sentence(
    name: str,
    measure: Measured,
    settings: AuditSettings,
    outcome: Outcome,
    *,
    alone: bool,
) -> str:
    fact = _fact(name, measure, settings)
    if settings.tolerance is None:
        return f"No verdict on {plain_name(name)}, since no tolerance was set: {fact}."
    if alone:
        return f"No verdict on {plain_name(name)}: there is one group only."
    bar = f"the tolerance of {points(settings.tolerance)} for {plain_name(name)} is"
    said = {
        "met": f"{bar} met: {fact}.",
        "not met": f"{bar} not met: {fact}.",
        "too few rows to tell": f"whether {bar} met cannot be told from so few rows: {fact}.",
        "no verdict": "",
    }[outcome]
    return said[:1].upper() + said[1:] + _flips(measure, settings.tolerance)


def _fact(name: str, measure: Measured, settings: AuditSettings) -> str:
    what = f"the largest distance between a group and everyone in {compared_in(name)}"
    if measure.value is None:
        return f"{what} is undefined, since {measure.undefined}"
    shown = [measure.value, *(measure.interval or ())]
    limit = settings.tolerance
    digits = 1 if limit is None else digits_apart(shown, limit)
    around = range_of_points(measure.interval, settings.level, digits)
    return f"{what} is {points(measure.value, digits)}" + f" ({around})" * bool(around)


def _flips(measure: Measured, tolerance: float) -> str:
    """Say whether rows of which something is unknown can move the number over the tolerance."""
    if measure.bounds is None or measure.value is None:
        return ""
    low, high = measure.bounds
    if low <= tolerance < high:
        reach = f"{points(low).partition(' ')[0]} to {points(high)}"
        return f" Rows of which something is not known could make it anything from {reach}."
    return ""


def _unknown(rows: RowFacts, judgements: Sequence[Judgement]) -> str:
    """Say of how many rows something is not known."""
    parts = [f"the {a} of {n:,}" for a, n in rows.unknown_group.items() if n]
    if 0 < rows.labelled < rows.counted:
        parts.append(f"the label of {rows.counted - rows.labelled:,}")
    said = f"Not known: {and_list(parts)} rows." if parts else ""
    if withheld := sum(rows.withheld.values()):
        said += f" Silos withheld up to {withheld:,} rows in small groups."
    if said and any(one.measure.bounds is not None for one in judgements):
        said += " Bounds say between which a number is, whatever is true of them."
    return said.strip()


def _warnings(
    rows: RowFacts,
    sections: Sequence[Section],
    alone: Sequence[str],
    caution: str,
) -> list[str]:
    found = [f"'{name}' has one group only: there is nobody to compare with" for name in alone]
    if caution:
        found.append(f"{caution}: low violations say little")
    left_out = sum(rows.left_out.values())
    if left_out > MANY_LEFT_OUT * (rows.counted + left_out):
        share = percent(left_out / (rows.counted + left_out))
        found.append(f"{left_out:,} rows ({share}) could not be counted: {_reasons(rows)}")
    for section in sections:
        few = [f"'{g.name}' ({g.rows})" for g in section.groups if 0 < g.rows < FEW_ROWS]
        if few:
            found.append(
                f"{section.attribute}: fewer than {FEW_ROWS} rows in {some_of(few)}; "
                "their rates are mostly chance"
            )
    return found


def _reasons(rows: RowFacts) -> str:
    return ", ".join(f"{reason} ({n:,})" for reason, n in rows.left_out.items())
