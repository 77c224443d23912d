"""A run beside others: other models, what changed for whom, and what fairness cost."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mfairfl.data import Task
from mfairfl.display.numbers import SHARE, Unit
from mfairfl.fairness import rates
from mfairfl.fairness.results import Bounds, Measured, MetricTable, Number, Slice
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import share_change
from mfairfl.fairness.worsened import Worsened, same_rows, worsened
from mfairfl.report.document import Change, ComparedModel
from mfairfl.report.reported_run import Aim, ReportedRun, read_runs
from mfairfl.report.significance import Place, difference, tables_by_place
from mfairfl.report.wording import and_list, known_notion, points, range_of_points
from mfairfl.runs.directory import RunDirectory
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
_OF_ALL = ("accuracy", "balanced_accuracy", "selection_rate", "roc_auc", "worst_client_accuracy")
_OF_SLICES = ("accuracy", "selection_rate", "true_positive_rate", "false_positive_rate")


# ------------------------------------------------------------------ models


def read_with_baseline(runs: Sequence[str | Path]) -> list[ReportedRun]:
    """Read finished runs; unless a baseline is among them, with that in the first run's folder."""
    subjects = read_runs(runs)
    beside = RunDirectory(subjects[0].path).baseline
    if beside is None or baseline_of(subjects) is not None:
        return subjects
    return read_runs([*runs, beside])


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
    return min(plain, key=lambda run: run.record.strategy != "fedavg", default=None)


def compared_models(
    runs: Sequence[ReportedRun], references: Sequence[ReferenceRecord]
) -> list[ComparedModel]:
    """Return the judged run, the others, the constant classifier and pooled references."""
    judged = runs[0]
    return [
        *(_run(run, judged) for run in runs),
        _constant(judged),
        *(_reference(reference, judged) for reference in references),
    ]


def _run(run: ReportedRun, judged: ReportedRun) -> ComparedModel:
    key = "" if run is judged else different_rows(judged.record, run.record)
    notes = [f"measured on other rows ({key} differs)"] if key else []
    if run.split != judged.split:
        notes.append(f"its numbers are of {run.split} rows")
    return ComparedModel(
        name=run.name,
        kind="this" if run is judged else "run",
        same_rows=not notes,
        numbers=_numbers(judged.aim, run.record.task, run.table, run.tally),
        note="; ".join(notes),
    )


def _constant(judged: ReportedRun) -> ComparedModel:
    """Return the classifier that gives everyone the commoner train label."""
    recorded, tally, aim = judged.table.constant_classifier, judged.tally, judged.aim
    numbers = {
        name: Measured(name=name, value=recorded.get(name))
        for name in (*_BEFORE, *aim.measures, *_AFTER)
        if recorded.get(name) is not None
    }
    if aim.recorded_under(judged.record.task) != "" and tally is not None:
        majority = judged.record.tallies.get("train", tally)
        everyone = rates.constant_classifier(tally, majority=majority)
        groupings = tally.cells.groupings(aim.attributes, aim.intersections)
        for notion, measure in zip(aim.notions, aim.measures, strict=True):
            item = known_notion(notion)
            if item is not None and item.statistic != "loss":
                value, _ = rates.group_measure("violation", item, everyone.counts, groupings)
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
    table, tally = record.table(judged.split), record.tallies.get(judged.split)
    return ComparedModel(
        name=f"{record.reference} (pooled)",
        kind="reference",
        same_rows=True,
        numbers=_numbers(judged.aim, record.task, table, tally),
        note="fitted to the rows of all clients in one place: not federated",
    )


def _numbers(aim: Aim, task: Task, table: MetricTable, tally: Tally | None) -> dict[str, Measured]:
    """Return the numbers that models are compared by.

    The recorded differences and ratios of the notions are among them where they are of the judged
    groups.
    """
    same_groups = aim.recorded_under(task) == "" and len(aim.attributes) == 1
    between = [
        f"{notion}_{kind}"
        for notion in aim.notions
        for kind in ("difference", "ratio")
        if same_groups
    ]
    before, after = (
        {name: table[name] for name in names if name in table.overall}
        for names in (_BEFORE, (*between, *_AFTER))
    )
    return {**before, **aim.measured(task, table, tally), **after}


# ------------------------------------------------------------------ changes


def changes_between(baseline: ReportedRun, run: ReportedRun) -> list[Change]:
    """Return the changes of all rows, of every group and of every client, on the same rows."""
    earlier = _by_place(baseline, run)
    tables = [{} if x.tally is None else tables_by_place(x.tally) for x in (baseline, run)]
    changes = []
    for place, numbers in _by_place(run, run).items():
        part, *whom = place
        for name, after in numbers.items():
            before = earlier.get(place, {}).get(name)
            if before is None and after is None:
                continue
            changes.append(
                Change(
                    part=part,
                    whom=" ".join(filter(None, whom)) or "everyone",
                    number=name,
                    before=before,
                    after=after,
                    change=difference(before, after),
                    interval=_interval(name, [t.get(place) for t in tables], run.table.level),
                )
            )
    return changes


def _by_place(run: ReportedRun, judged: ReportedRun) -> dict[Place, dict[str, Number]]:
    """Return the numbers that may have changed; the goal is that of the judged run."""
    table, task, aim = run.table, run.record.task, judged.aim
    goal = aim.measured(task, table, run.tally)
    everyone = _values(table, _OF_ALL) | {name: number.value for name, number in goal.items()}
    numbers: dict[Place, dict[str, Number]] = {("all", "", ""): everyone}
    for section in table.sections:
        for group in section.groups:
            numbers["group", section.attribute, group.name] = _values(group, _OF_SLICES)
    # A client's violations are recorded for all attributes together, and for nothing else.
    names = (*_OF_SLICES, *aim.measures) if aim.recorded_under(task) == "" else _OF_SLICES
    return numbers | {("client", "", x.name): _values(x, names) for x in table.clients}


def _values(part: MetricTable | Slice, names: Sequence[str]) -> dict[str, Number]:
    return {name: part.get(name).value for name in names}


def _interval(name: str, tables: Sequence[Any], level: float) -> Bounds:
    share = rates.PROPORTIONS.get(name)
    if share is None or any(table is None for table in tables):
        return None
    before, after = ((float(hits), float(rows)) for hits, rows in map(share.counts, tables))
    return share_change(before, after, level=level)


# ------------------------------------------------------------------ what got worse


def worsened_from(baseline: ReportedRun, run: ReportedRun) -> list[Worsened] | None:
    """Return what got worse beyond chance; None if not the same rows were measured in the end."""
    before, after = baseline.tally, run.tally
    if before is None or after is None or not same_rows(before, after):
        return None
    return worsened(before, after, level=run.table.level)


def worse_sentence(baseline: ReportedRun | None, worse: Sequence[Worsened] | None) -> str:
    """Name what got worse most; nothing without a baseline.

    Parameters
    ----------
    baseline : ReportedRun
        A run on the same rows without a constraint.
    worse : sequence of Worsened
        What `worsened_from` found.
    """
    if baseline is None:
        return ""
    if worse is None:
        return (
            f"Whether anything got worse than under {baseline.name} cannot be told: in the end "
            "other rows were measured."
        )
    if not worse:
        return (
            f"Nothing got worse than under {baseline.name} by more than chance explains: no "
            "violation of a notion, no group's and no client's accuracy or true positive rate. Of "
            "groups with few rows little can be shown."
        )
    numbers = f"{len(worse)} numbers are" if len(worse) > 1 else "One number is"
    most = ", most of all" if len(worse) > 1 else ","
    return (
        f"{numbers} worse than under {baseline.name} by more than chance explains{most} the "
        f"{worse[0]}."
    )


# ------------------------------------------------------------------ cost

_POINTS = Unit(100.0, 1, " points")
_UNKNOWN_COST = (
    "What fairness cost is not known: repeat the training command with --baseline, or train "
    "FedAvg on the same rows (--strategy fedavg, everything else as here) and add its folder to "
    "this report."
)
_NO_COST = (
    "Fairness between groups cost nothing, because this method does not train for it; what it "
    "would cost shows where a method that does is trained on the same rows."
)


def cost_sentence(
    run: ReportedRun, baseline: ReportedRun | None, changes: Sequence[Change]
) -> str:
    """Return what fairness cost, and whom; or why that is not known.

    Parameters
    ----------
    run, baseline : ReportedRun
        The judged run, and one on the same rows without a constraint.
    changes : sequence of Change
        From the baseline to the run.
    """
    if baseline is None:
        return _UNKNOWN_COST if run.constrained else _NO_COST
    where = f"Against {baseline.name} on the same {run.table.rows:,} {run.split} rows"
    accuracy = _select(changes, "all", "accuracy")
    if not accuracy:
        return f"{where}, what fairness cost is not known: accuracy is undefined on them."
    judged = {  # groups of attributes that are judged, not of several crossed
        f"{attribute} {group}"
        for attribute in run.aim.attributes
        for group in run.table.by_group.get(attribute, {})
    }
    groups = [change for change in changes if change.part == "group" and change.whom in judged]
    losers = _worst(_select(groups, "group", "accuracy"))
    if len(run.record.federation.clients) > 1:
        losers += _worst(_select(changes, "client", "accuracy"))
    cost = f"{where}, {_accuracy(accuracy[0], run.table.level)}, {_losses(losers)}"
    return f"{cost}{_shifts(_select(groups, 'group', 'selection_rate'))}."


def _select(changes: Sequence[Change], part: str, number: str) -> list[Change]:
    """Return the changes of one number that are defined."""
    return [x for x in changes if (x.part, x.number) == (part, number) and x.change is not None]


def _worst(changes: Sequence[Change]) -> list[Change]:
    """Return the change that lost most; empty if none lost anything."""
    lost = [change for change in changes if _amount(change) < 0]
    return [min(lost, key=_amount)] if lost else []


def _amount(change: Change) -> float:
    return float(change.change or 0)


def _accuracy(change: Change, level: float) -> str:
    """State how accuracy changed, and whether it can be told apart from chance."""
    before, after = SHARE.one(change.before), SHARE.one(change.after)
    if change.interval is None:
        return f"accuracy went from {before} to {after}"
    # Newcombe's interval takes the two models' rows for different ones: they are the same.
    interval = f"{range_of_points(change.interval, level)}, cautious"
    if change.interval[0] <= 0 <= change.interval[1]:
        return (
            f"accuracy went from {before} to {after}, which cannot be told apart from chance "
            f"({interval})"
        )
    verb = "fell" if _amount(change) < 0 else "rose"
    by = points(abs(_amount(change)))
    return f"accuracy {verb} by {by}, from {before} to {after} ({interval})"


def _losses(losers: Sequence[Change]) -> str:
    """Name the group and the client whose accuracy fell most."""
    if not losers:
        return "while no group and no client lost accuracy"
    named = [f"{x.whom} ({_POINTS.one(x.change)})" for x in losers]
    return f"hardest on {and_list(named)}"


def _shifts(selection_rates: Sequence[Change]) -> str:
    """Name the groups whose favourable decisions rose and fell most."""
    moved = sorted((change for change in selection_rates if change.change), key=_amount)
    ends = [moved[-1], *moved[:1]] if len(moved) > 1 else moved
    if not ends:
        return ""
    shifts = [
        f"{'rose' if _amount(change) > 0 else 'fell'} for {change.whom} "
        f"from {SHARE.one(change.before)} to {SHARE.one(change.after)}"
        for change in ends
    ]
    return f"; favourable decisions {and_list(shifts)}"
