"""The first screen of a report and of an audit: what it is about, the verdict, the doubts.

A verdict needs a tolerance, an interval, groups to compare and rows that only measure. It is
tempered where low violations mean nothing: a model that gives everyone the same decision treats no
group unfairly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mfairfl.display.numbers import DECIMAL, SHARE, capital
from mfairfl.fairness.results import Measured, MetricTable, Section
from mfairfl.fairness.uncertainty import Interval, verdict
from mfairfl.fairness.worsened import Worsened
from mfairfl.report import wording
from mfairfl.report.audit_settings import NOT_STATED, AuditSettings
from mfairfl.report.comparison import cost_sentence, worse_sentence
from mfairfl.report.document import Change, Headline, Judgement, Outcome, RowFacts
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.wording import and_list
from mfairfl.runs.outcome import AdviceSettings, model_warnings, nearly_constant
from mfairfl.text import some_of

FEW_ROWS = 30
"""Groups with fewer rows are warned of: a rate of theirs has an interval of a third or more."""
MANY_LEFT_OUT = 0.05
"""A larger share of rows that could not be counted is warned of."""


# ------------------------------------------------------------------ verdicts


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

    Examples
    --------
    >>> violation = Measured(
    ...     name="demographic_parity_violation", value=0.1, interval=(0.08, 0.12)
    ... )
    >>> judged = VerdictTerms(tolerance=0.05, level=0.95).judge("demographic_parity", violation)
    >>> print(judged.outcome, "|", judged.sentence.partition(":")[0])
    not met | The tolerance of 5.0 percentage points is not met for demographic parity
    """

    tolerance: float | None
    level: float
    set_when: str = ""
    remedy: str = ""
    obstacle: str = ""
    groups: str = "a group"
    rows: str = ""
    caution: str = ""

    def judge(self, notion: str, measure: Measured) -> Judgement:
        """Hold the violation of a notion against the tolerance."""
        outcome = self._outcome(measure)
        return Judgement(
            measure=measure,
            tolerance=self.tolerance,
            outcome=outcome,
            sentence=self._sentence(notion, measure, outcome),
            caution="" if outcome == "not met" else self.caution,
        )

    def _outcome(self, measure: Measured) -> Outcome:
        if self.tolerance is None or self.obstacle:
            return "no verdict"
        if measure.value is None:
            return verdict(None, self.tolerance)
        if measure.interval is None:
            return "no verdict"
        return verdict(Interval(*measure.interval), self.tolerance)

    def _sentence(self, notion: str, measure: Measured, outcome: Outcome) -> str:
        fact, of_notion = self._fact(notion, measure), wording.plain_name(notion)
        if self.tolerance is None:
            why = " ".join(filter(None, ["no tolerance was set", self.set_when, self.remedy]))
            return f"There is no verdict on {of_notion}, because {why}: {fact}."
        if outcome == "no verdict":
            why = self.obstacle or "this measure has no interval"
            return f"There is no verdict on {of_notion}, because {why}: {fact}."
        when = f" set {self.set_when}" if self.set_when else ""
        bar = f"the tolerance of {_amount(notion, self.tolerance)}{when} is"
        statement = {
            "met": f"{bar} met for {of_notion}",
            "not met": f"{bar} not met for {of_notion}",
            "too few rows to tell": f"whether {bar} met for {of_notion} cannot be told from so "
            "few rows",
        }[outcome]
        sentence = f"{capital(statement)}: {fact}."
        if measure.bounds is None or measure.value is None:
            return sentence
        low, high = measure.bounds
        if not low <= self.tolerance < high:
            return sentence
        return (
            f"{sentence} Depending on rows of which something is not known, it lies anywhere from "
            f"{wording.points(low).partition(' ')[0]} to {wording.points(high)}."
        )

    def _fact(self, notion: str, measure: Measured) -> str:
        """State the number, its interval and its rows."""
        compared = wording.compared_in(notion)
        what = f"the largest distance between {self.groups} and everyone in {compared}"
        if measure.value is None:
            return f"{what} is undefined, since {measure.undefined or 'it was not recorded'}"
        shown = [measure.value, *(measure.interval or ())]
        digits = 1 if self.tolerance is None else wording.digits_apart(shown, self.tolerance)
        interval = wording.range_of_points(measure.interval, self.level, digits)
        details = ", ".join(filter(None, [interval, self.rows]))
        fact = f"{what} is {_amount(notion, measure.value, digits)}"
        return f"{fact} ({details})" if details else fact


def _amount(notion: str, value: float, digits: int = 1) -> str:
    """Write a violation: points for shares, a plain number for losses."""
    return DECIMAL.one(value) if wording.is_loss(notion) else wording.points(value, digits)


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


# ------------------------------------------------------------------ the report of a run


def run_headline(
    run: ReportedRun,
    baseline: ReportedRun | None,
    changes: Sequence[Change],
    worsened: Sequence[Worsened] | None,
    altered: Sequence[str],
) -> Headline:
    """Return the first screen of the report of a run.

    Parameters
    ----------
    run, baseline : ReportedRun
        The judged run, and the one it is compared with.
    changes : sequence of Change
        From the baseline to the run.
    worsened : sequence of Worsened
        What got worse from the baseline to the run, beyond chance; None if that is not known.
    altered : sequence of str
        What is wrong with the run's files.
    """
    record, judgements = run.record, run_judgements(run)
    task, warnings = record.task, [*altered, *record.warnings]
    if run.split != "test":
        warnings.append(
            f"there are no test rows: every number is of {run.split} rows, which the model was "
            "made for, and is better than it will be on others"
        )
    warnings += [record.served.note, *record.federation.warnings]
    return Headline(
        title=f"{task.label} “{task.favourable}”: {record.strategy} on {record.data.name}",
        what=(
            f"{record.strategy} trained a model on {_training_rows(run)}, to decide whether "
            f"{task.label} is {task.favourable}, the favourable outcome; {_goal(run)}."
        ),
        verdict=verdict_sentence(judgements),
        cost=cost_sentence(run, baseline, changes),
        worse=worse_sentence(baseline, worsened),
        worsened=list(worsened or ()),
        judgements=judgements,
        warnings=list(dict.fromkeys(filter(None, warnings))),
    )


def run_judgements(run: ReportedRun) -> list[Judgement]:
    """Judge every notion of a run's goal by the tolerance that was set before training."""
    if not run.aim.notions:
        return []
    measures = run.aim.measured(run.record.task, run.table, run.tally)
    terms = VerdictTerms(
        tolerance=run.aim.tolerance,
        level=run.table.level,
        set_when="before training",
        remedy="(--tolerance 0.05 would set one; then train again)",
        obstacle=""
        if run.split == "test"
        else f"no rows were kept that only measure ({run.split} rows choose or train the model)",
        groups=f"a group (by {run.aim.whom})",
        rows=f"{run.table.rows:,} {run.split} rows",
        caution=_run_caution(run),
    )
    return [terms.judge(name, measures[f"{name}_violation"]) for name in run.aim.notions]


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
    what = and_list(wording.compared_in(name) for name in run.aim.notions)
    if run.constrained:
        return f"the goal: groups by {whom} should not differ in {what}"
    return (
        f"it was not trained for fairness, and is judged by how much groups by {whom} differ in "
        f"{what}"
    )


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
    judgements = []
    for notion in settings.notions:
        name = f"{notion}_violation"
        unlabelled = Measured(name=name, value=None, undefined="no row has a known label")
        judgements.append(terms.judge(notion, table.overall.get(name, unlabelled)))
    tool = settings.facts.tool
    return Headline(
        title=f"Audit of {tool}" if tool != NOT_STATED else "Audit of decisions",
        what=_audited_rows(rows, table),
        verdict=verdict_sentence(judgements),
        unknown=_unknown(rows, judgements),
        judgements=judgements,
        warnings=_audit_warnings(rows, table.sections, alone, caution),
    )


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
