"""The first screen: what was trained for whom, the verdict, the cost, and what is doubtful."""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.report.cost import cost_sentence
from mfairfl.report.document import Change, Headline
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.verdict import judgements, verdict_sentence
from mfairfl.report.wording import and_list, compared_in
from mfairfl.text import some_of


def make_headline(
    run: ReportedRun,
    baseline: ReportedRun | None,
    changes: Sequence[Change],
    altered: Sequence[str],
) -> Headline:
    """Put the first screen together.

    Parameters
    ----------
    run, baseline : ReportedRun
        The judged run, and the one it is compared with.
    changes : sequence of Change
        From the baseline to the run.
    altered : sequence of str
        What is wrong with the run's files.
    """
    judged, task = judgements(run), run.record.task
    return Headline(
        title=(
            f"{task.label} “{task.favourable}”: {run.record.strategy} on {run.record.data.name}"
        ),
        what=_what(run),
        verdict=verdict_sentence(run, judged),
        cost=cost_sentence(run, baseline, changes),
        judgements=judged,
        warnings=_warnings(run, altered),
    )


def _what(run: ReportedRun) -> str:
    """Say what was trained, for whom, on what."""
    task = run.record.task
    return (
        f"{run.record.strategy} trained a model on {_whose(run)}, to decide whether {task.label} "
        f"is {task.favourable}, the favourable outcome; {_goal(run)}."
    )


def _whose(run: ReportedRun) -> str:
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


def _warnings(run: ReportedRun, altered: Sequence[str]) -> list[str]:
    """List what makes the numbers doubtful, the worst first."""
    record, found = run.record, list(altered)
    found += record.warnings
    if run.split != "test":
        found.append(
            f"there are no test rows: every number is of {run.split} rows, which the model was "
            "made for, and is better than it will be on others"
        )
    found += filter(None, [record.served.note])
    found += record.federation.warnings
    return list(dict.fromkeys(found))
