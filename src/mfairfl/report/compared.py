"""Other models beside the one that is judged, and which of them is the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mfairfl.fairness.rates import constant_classifier, group_measure
from mfairfl.fairness.results import Measured, MetricTable
from mfairfl.report.document import ComparedModel
from mfairfl.report.reported_run import Aim, ReportedRun
from mfairfl.report.wording import known_notion
from mfairfl.runs.reference_records import ReferenceRecord, different_rows

_BEFORE = (
    "accuracy",
    "balanced_accuracy",
    "selection_rate",
    "roc_auc",
    "loss",
    "expected_calibration_error",
)
_AFTER = ("worst_client_accuracy", "client_accuracy_gap")


def baseline_of(runs: Sequence[ReportedRun]) -> ReportedRun | None:
    """Return the run that shows what is possible without a constraint on groups.

    The first other run on the same rows that has none, FedAvg if there is one.
    """
    judged, *others = runs
    plain = [
        run
        for run in others
        if not run.constrained
        and run.card is not None
        and run.card.starts != "constant"
        and not different_rows(judged.record, run.record)
    ]
    return next((run for run in plain if run.record.strategy == "fedavg"), next(iter(plain), None))


def compared_models(
    runs: Sequence[ReportedRun], references: Sequence[ReferenceRecord]
) -> list[ComparedModel]:
    """Return the judged run, the others, the constant classifier and pooled references."""
    judged, *others = runs
    aim = judged.aim
    return [
        _run(judged, judged, aim),
        *(_run(run, judged, aim) for run in others),
        _constant(judged, aim),
        *(_reference(reference, judged) for reference in references),
    ]


def _run(run: ReportedRun, judged: ReportedRun, aim: Aim) -> ComparedModel:
    key = "" if run is judged else different_rows(judged.record, run.record)
    notes = [f"measured on other rows ({key} differs)"] if key else []
    if run.split != judged.split:
        notes.append(f"its numbers are of {run.split} rows")
    goal = aim.measured(run.record.task, run.table, run.tally)
    return ComparedModel(
        name=run.name,
        kind="this" if run is judged else "run",
        same_rows=not notes,
        numbers=_numbers(run.table, goal, _recorded_notions(aim, run)),
        note="; ".join(notes),
    )


def _recorded_notions(aim: Aim, run: ReportedRun) -> tuple[str, ...]:
    """Return the notions whose recorded differences and ratios are of the judged groups."""
    same_groups = aim.recorded_under(run.record.task) == "" and len(aim.attributes) == 1
    return aim.notions if same_groups else ()


def _constant(judged: ReportedRun, aim: Aim) -> ComparedModel:
    """Return the classifier that gives everyone the commoner train label."""
    recorded = judged.table.constant_classifier
    numbers = {
        name: Measured(name=name, value=recorded.get(name))
        for name in (*_BEFORE, *aim.measures, *_AFTER)
        if recorded.get(name) is not None
    }
    tally = judged.tally
    if aim.recorded_under(judged.record.task) != "" and tally is not None:
        everyone = constant_classifier(tally, majority=judged.record.tallies.get("train", tally))
        groupings = tally.cells.groupings(aim.attributes, aim.intersections)
        for name in aim.notions:
            item = known_notion(name)
            if item is not None and item.statistic != "loss":
                value, _ = group_measure("violation", item, everyone.counts, groupings)
                measure = f"{name}_violation"
                shown = None if math.isnan(value) else value
                numbers[measure] = Measured(name=measure, value=shown)
    return ComparedModel(
        name="constant classifier",
        kind="constant",
        same_rows=True,
        numbers=numbers,
        note="gives everyone the commoner label: no model at all",
    )


def _reference(record: ReferenceRecord, judged: ReportedRun) -> ComparedModel:
    table, aim = record.table(judged.split), judged.aim
    goal = aim.measured(record.task, table, record.tallies.get(judged.split))
    return ComparedModel(
        name=f"{record.reference} (pooled)",
        kind="reference",
        same_rows=True,
        numbers=_numbers(table, goal, _recorded_notions(aim, judged)),
        note="fitted to the rows of all clients in one place: not federated",
    )


def _numbers(
    table: MetricTable, goal: Mapping[str, Measured], notions: Sequence[str]
) -> dict[str, Measured]:
    """Return the numbers that models are compared by, with the notions' difference and ratio."""
    between = [f"{name}_{kind}" for name in notions for kind in ("difference", "ratio")]
    before, after = (
        {name: table[name] for name in names if name in table.overall}
        for names in (_BEFORE, (*between, *_AFTER))
    )
    return {**before, **goal, **after}
