"""The first screen of a report and of an audit: what it is about, the verdict, the doubts."""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.display.numbers import SHARE
from mfairfl.fairness.results import Measured, MetricTable, Section
from mfairfl.report.audit_settings import NOT_STATED, AuditSettings
from mfairfl.report.changes import cost_sentence
from mfairfl.report.document import Change, Headline, Judgement, RowFacts
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.verdict import VerdictTerms, judge, verdict_sentence
from mfairfl.report.wording import and_list, compared_in
from mfairfl.runs.outcome import AdviceSettings, model_warnings, nearly_constant
from mfairfl.text import some_of

FEW_ROWS = 30
"""Groups with fewer rows are warned of: a rate of theirs has an interval of a third or more."""
MANY_LEFT_OUT = 0.05
"""A larger share of rows that could not be counted is warned of."""


# ------------------------------------------------------------------ the report of a run


def run_headline(
    run: ReportedRun,
    baseline: ReportedRun | None,
    changes: Sequence[Change],
    altered: Sequence[str],
) -> Headline:
    """Return the first screen of the report of a run.

    Parameters
    ----------
    run, baseline : ReportedRun
        The judged run, and the one it is compared with.
    changes : sequence of Change
        From the baseline to the run.
    altered : sequence of str
        What is wrong with the run's files.
    """
    record, judgements = run.record, run_judgements(run)
    task = record.task
    return Headline(
        title=f"{task.label} “{task.favourable}”: {record.strategy} on {record.data.name}",
        what=(
            f"{record.strategy} trained a model on {_training_rows(run)}, to decide whether "
            f"{task.label} is {task.favourable}, the favourable outcome; {_goal(run)}."
        ),
        verdict=verdict_sentence(judgements),
        cost=cost_sentence(run, baseline, changes),
        judgements=judgements,
        warnings=_run_warnings(run, altered),
    )


def run_judgements(run: ReportedRun) -> list[Judgement]:
    """Judge every notion of a run's goal by the tolerance that was set before training."""
    measures = run.aim.measured(run.record.task, run.table, run.tally)
    terms = VerdictTerms(
        tolerance=run.asked.verdict_tolerance,
        level=run.table.level,
        set_when="before training",
        remedy="(--verdict-tolerance 0.05 would set one; then train again)",
        obstacle=""
        if run.split == "test"
        else f"no rows were kept that only measure ({run.split} rows choose or train the model)",
        groups=f"a group (by {run.aim.whom})" if run.aim.notions else "",
        rows=f"{run.rows:,} {run.split} rows",
        caution=_run_caution(run),
    )
    return [judge(name, measures[f"{name}_violation"], terms) for name in run.aim.notions]


def _run_caution(run: ReportedRun) -> str:
    """Return the first reason why low violations would mean nothing; empty if there is none."""
    if run.tally is None:
        return ""
    settings = AdviceSettings.of(run.record)
    lines = model_warnings(run.table, run.tally, settings, rows=f"{run.split} rows")
    return lines[0].partition(". ")[0] if lines else ""


def _training_rows(run: ReportedRun) -> str:
    record, facts = run.record, run.record.federation
    rows = f"{record.data.rows:,} rows"
    names = some_of([client.name for client in facts.clients])
    pooled = run.card is not None and run.card.trains_on == "pooled"
    together = ", brought together in one place" if pooled else ""
    if len(facts.clients) == 1:
        return f"{rows} of one client ({names}){together}"
    if facts.scheme == "silos":
        return f"{rows} of {len(facts.clients)} silos ({names}), each with a file of its own"
    if facts.scheme in ("column", "tables"):
        return f"{rows} of {len(facts.clients)} clients ({names}){together}"
    return f"{rows} divided among {len(facts.clients)} simulated clients ({names}){together}"


def _goal(run: ReportedRun) -> str:
    if not run.aim.notions:
        return "no sensitive attribute was named, so it has no fairness goal"
    whom = run.aim.whom
    what = and_list(compared_in(name) for name in run.aim.notions)
    if run.constrained:
        return f"the goal: groups by {whom} should not differ in {what}"
    return (
        f"it was not trained for fairness, and is judged by how much groups by {whom} differ in "
        f"{what}"
    )


def _run_warnings(run: ReportedRun, altered: Sequence[str]) -> list[str]:
    """List what makes the numbers doubtful, the worst first."""
    record = run.record
    warnings = [*altered, *record.warnings]
    if run.split != "test":
        warnings.append(
            f"there are no test rows: every number is of {run.split} rows, which the model was "
            "made for, and is better than it will be on others"
        )
    warnings += [record.served.note] if record.served.note else []
    return list(dict.fromkeys([*warnings, *record.federation.warnings]))


# ------------------------------------------------------------------ an audit


def audit_headline(settings: AuditSettings, rows: RowFacts, table: MetricTable) -> Headline:
    """Return the first screen of an audit.

    Parameters
    ----------
    settings
        With the notions, their tolerance and the name of the tool.
    rows
        How many rows there are, and what is known of them.
    table
        The numbers.
    """
    alone = [section.attribute for section in table.sections if len(section.groups) < 2]
    caution = _audit_caution(table)
    terms = VerdictTerms(
        tolerance=settings.tolerance,
        level=settings.level,
        obstacle="there is only one group" if len(alone) == len(table.sections) else "",
        caution=caution,
    )
    judgements = [_audit_judgement(notion, table, terms) for notion in settings.notions]
    tool = settings.facts.tool
    return Headline(
        title=f"Audit of {tool}" if tool != NOT_STATED else "Audit of decisions",
        what=_audited_rows(rows, table),
        verdict=verdict_sentence(judgements),
        unknown=_unknown(rows, judgements),
        judgements=judgements,
        warnings=_audit_warnings(rows, table.sections, alone, caution),
    )


def _audit_judgement(notion: str, table: MetricTable, terms: VerdictTerms) -> Judgement:
    name = f"{notion}_violation"
    unlabelled = Measured(name=name, value=None, undefined="no row has a known label")
    return judge(notion, table.overall.get(name, unlabelled), terms)


def _audit_caution(table: MetricTable) -> str:
    """Return why low violations would mean little; empty if nothing speaks against them."""
    rate = table.get("selection_rate").value
    if rate is not None and nearly_constant(table):
        return f"almost everyone gets the same decision ({SHARE.one(rate)} are selected)"
    balanced = table.get("balanced_accuracy")
    if balanced.value is not None and balanced.interval and balanced.interval[0] <= 0.5:
        return (
            "decisions are not shown to be better than random guessing (balanced accuracy "
            f"{SHARE.one(balanced.value)})"
        )
    return ""


def _audited_rows(rows: RowFacts, table: MetricTable) -> str:
    groups = and_list(
        f"{len(section.groups)} groups by {section.attribute}" for section in table.sections
    )
    rate = table.get("selection_rate").value
    selected = "" if rate is None else f", {SHARE.one(rate)} of them favourable"
    if not rows.labelled:
        labels = "no label is known"
    elif rows.labelled < rows.counted:
        labels = f"{rows.labelled:,} have a known label"
    else:
        labels = "all labels are known"
    return f"{rows.counted:,} decisions{selected}; {groups}; {labels}."


def _unknown(rows: RowFacts, judgements: Sequence[Judgement]) -> str:
    """State of how many rows something is not known."""
    parts = [f"the {name} of {n:,}" for name, n in rows.unknown_group.items() if n]
    if 0 < rows.labelled < rows.counted:
        parts.append(f"the label of {rows.counted - rows.labelled:,}")
    sentences = [f"Not known: {and_list(parts)} rows."] if parts else []
    if withheld := sum(rows.withheld.values()):
        sentences.append(f"Silos withheld up to {withheld:,} rows in small groups.")
    if sentences and any(judgement.measure.bounds is not None for judgement in judgements):
        sentences.append("A number lies within its bounds, whatever is true of these rows.")
    return " ".join(sentences)


def _audit_warnings(
    rows: RowFacts, sections: Sequence[Section], alone: Sequence[str], caution: str
) -> list[str]:
    warnings = [f"'{name}' has only one group: there is nothing to compare" for name in alone]
    if caution:
        warnings.append(f"{caution}: low violations mean little")
    left_out = sum(rows.left_out.values())
    if left_out > MANY_LEFT_OUT * (rows.counted + left_out):
        share = SHARE.one(left_out / (rows.counted + left_out))
        reasons = ", ".join(f"{reason} ({n:,})" for reason, n in rows.left_out.items())
        warnings.append(f"{left_out:,} rows ({share}) could not be counted: {reasons}")
    for section in sections:
        few = [f"'{g.name}' ({g.rows})" for g in section.groups if 0 < g.rows < FEW_ROWS]
        if few:
            warnings.append(
                f"{section.attribute}: fewer than {FEW_ROWS} rows in {some_of(few)}; "
                "their rates are mostly chance"
            )
    return warnings
