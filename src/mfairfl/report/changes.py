"""What changed from the baseline to this model, for whom, and what fairness cost in accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mfairfl.display.numbers import SHARE
from mfairfl.fairness.rates import PROPORTIONS, pooled_table, reported_groupings, slice_tables
from mfairfl.fairness.results import Bounds, Number
from mfairfl.fairness.uncertainty import share_change
from mfairfl.report.document import Change
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.wording import and_list, points, range_of_points

_OF_ALL = ("accuracy", "balanced_accuracy", "selection_rate", "roc_auc", "worst_client_accuracy")
_OF_SLICES = ("accuracy", "selection_rate", "true_positive_rate", "false_positive_rate")
_Key = tuple[str, ...]
"""Of everyone: empty; of a group: attribute and group; of a client: its name."""


# ------------------------------------------------------------------ changes


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The numbers of all rows, of a group or of a client; label × decision behind them."""

    part: Literal["all", "group", "client"]
    whom: str
    numbers: dict[str, Number]
    table: Any


def changes_between(baseline: ReportedRun, run: ReportedRun) -> list[Change]:
    """Return the changes of all rows, of every group and of every client, on the same rows."""
    earlier, later = _parts(baseline, run), _parts(run, run)
    changes = []
    for key, now in later.items():
        was = earlier.get(key, _Part(now.part, now.whom, {}, None))
        for name, after in now.numbers.items():
            before = was.numbers.get(name)
            if before is None and after is None:
                continue
            changes.append(
                Change(
                    part=now.part,
                    whom=now.whom,
                    number=name,
                    before=before,
                    after=after,
                    change=None if before is None or after is None else after - before,
                    interval=_interval(name, [was.table, now.table], run.table.level),
                )
            )
    return changes


def _parts(run: ReportedRun, judged: ReportedRun) -> dict[_Key, _Part]:
    """Return the numbers that may have changed; the goal is that of the judged run."""
    table, task, counted = run.table, run.record.task, _tables(run)
    goal = judged.aim.measured(task, table, run.tally)
    everyone = {name: table.get(name).value for name in _OF_ALL}
    everyone |= {name: measure.value for name, measure in goal.items()}
    parts: dict[_Key, _Part] = {(): _Part("all", "everyone", everyone, counted.get(()))}
    for attribute, groups in table.by_group.items():
        for group, slice_ in groups.items():
            numbers = {name: slice_.get(name).value for name in _OF_SLICES}
            key = (attribute, group)
            parts[key] = _Part("group", f"{attribute} {group}", numbers, counted.get(key))
    # A client's violations are recorded for all attributes together, and for nothing else.
    together = judged.aim.recorded_under(task) == ""
    names = (*_OF_SLICES, *judged.aim.measures) if together else _OF_SLICES
    for client, slice_ in table.by_client.items():
        numbers = {name: slice_.get(name).value for name in names}
        parts[client,] = _Part("client", client, numbers, counted.get((client,)))
    return parts


def _tables(run: ReportedRun) -> dict[_Key, Any]:
    """Return label × decision of everyone, of each client and of each group."""
    if run.tally is None:
        return {}
    clients, groups = slice_tables(run.tally)
    tables: dict[_Key, Any] = {(): pooled_table(run.tally.counts)}
    for client, table in zip(run.tally.clients, clients, strict=True):
        tables[client,] = table
    for grouping in reported_groupings(run.tally.cells):
        for group, table in zip(grouping.groups, groups[grouping.name], strict=True):
            tables[grouping.name, group] = table
    return tables


def _interval(name: str, tables: Sequence[Any], level: float) -> Bounds:
    share = PROPORTIONS.get(name)
    if share is None or any(table is None for table in tables):
        return None
    before, after = ((float(hits), float(rows)) for hits, rows in map(share.counts, tables))
    return share_change(before, after, level=level)


# ------------------------------------------------------------------ cost


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
    if baseline is None and run.constrained:
        return (
            "What fairness cost is not known: train FedAvg on the same rows (--strategy fedavg, "
            "everything else as here) and add its folder to this report."
        )
    if baseline is None:
        return (
            "Fairness between groups cost nothing, because this method does not train for it; "
            "what it would cost shows where a method that does is trained on the same rows."
        )
    where = f"Against {baseline.name} on the same {run.rows:,} {run.split} rows"
    accuracy = _select(changes, "all", "accuracy")
    if not accuracy:
        return f"{where}, what fairness cost is not known: accuracy is undefined on them."
    judged = {  # groups of attributes that are judged, not of several crossed
        f"{attribute} {group}"
        for attribute in run.aim.attributes
        for group in run.table.by_group.get(attribute, {})
    }
    groups = [change for change in changes if change.part == "group" and change.whom in judged]
    several = len(run.record.federation.clients) > 1
    losers = [
        min(parts, key=_amount)
        for parts in (
            _select(groups, "group", "accuracy"),
            _select(changes, "client", "accuracy") if several else [],
        )
        if parts and min(map(_amount, parts)) < 0
    ]
    cost = f"{where}, {_accuracy(accuracy[0], run.table.level)}, {_losses(losers)}"
    return f"{cost}{_shifts(_select(groups, 'group', 'selection_rate'))}."


def _select(changes: Sequence[Change], part: str, number: str) -> list[Change]:
    """Return the changes of one number that are defined."""
    return [x for x in changes if (x.part, x.number) == (part, number) and x.change is not None]


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
    named = [f"{x.whom} ({points(_amount(x)).replace('percentage ', '')})" for x in losers]
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
