"""What became of everyone, of each group and of each client, from the baseline to this model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mfairfl.fairness.rates import PROPORTIONS, pooled_table, reported_groupings, slice_tables
from mfairfl.fairness.results import Bounds, Number
from mfairfl.fairness.uncertainty import share_change
from mfairfl.report.document import Change
from mfairfl.report.reported_run import ReportedRun

_ALL = ("accuracy", "balanced_accuracy", "selection_rate", "roc_auc", "worst_client_accuracy")
_SLICE = ("accuracy", "selection_rate", "true_positive_rate", "false_positive_rate")


@dataclass(frozen=True, slots=True)
class _Whom:
    """Somebody: what to call them, and their key among the counts of a run."""

    part: Literal["all", "group", "client"]
    name: str
    key: tuple[str, ...]


Tables = Mapping[tuple[str, ...], Any]


def changes_between(baseline: ReportedRun, run: ReportedRun) -> list[Change]:
    """Return the changes of all rows, of every group and of every client, on the same rows."""
    level = run.table.level
    tables = _tables(baseline), _tables(run)
    slices = [_slices(baseline, run), _slices(run, run)]
    return [
        change
        for whom, after in slices[1].items()
        for change in _changes(whom, slices[0].get(whom, {}), after, tables, level)
    ]


def _slices(run: ReportedRun, judged: ReportedRun) -> dict[_Whom, dict[str, Number]]:
    """Return the numbers that may have changed; the goal is that of the judged run."""
    table, goal = run.table, judged.aim.measures
    measured = judged.aim.measured(run.record.task, table, run.tally)
    everyone = {name: table.get(name).value for name in _ALL}
    everyone |= {name: one.value for name, one in measured.items()}
    found = {_Whom("all", "everyone", ()): everyone}
    for attribute, groups in table.by_group.items():
        for group, own in groups.items():
            whom = _Whom("group", f"{attribute} {group}", (attribute, group))
            found[whom] = {name: own.get(name).value for name in _SLICE}
    # A client's violations are recorded for all attributes together, and for nothing else.
    each = (*_SLICE, *(goal if judged.aim.recorded_under(run.record.task) == "" else ()))
    for client, own in table.by_client.items():
        found[_Whom("client", client, (client,))] = {name: own.get(name).value for name in each}
    return found


def _tables(run: ReportedRun) -> Tables:
    """Return label × decision of everyone, of each client and of each group."""
    if run.tally is None:
        return {}
    clients, groups = slice_tables(run.tally)
    return {
        (): pooled_table(run.tally.counts),
        **{(name,): table for name, table in zip(run.tally.clients, clients, strict=True)},
        **{
            (grouping.name, group): table
            for grouping in reported_groupings(run.tally.cells)
            for group, table in zip(grouping.groups, groups[grouping.name], strict=True)
        },
    }


def _changes(
    whom: _Whom,
    before: Mapping[str, Number],
    after: Mapping[str, Number],
    tables: tuple[Tables, Tables],
    level: float,
) -> Iterator[Change]:
    counted = [one.get(whom.key) for one in tables]
    for name, new in after.items():
        old = before.get(name)
        if old is None and new is None:
            continue
        yield Change(
            part=whom.part,
            whom=whom.name,
            number=name,
            before=old,
            after=new,
            change=None if old is None or new is None else new - old,
            interval=_interval(name, counted, level),
        )


def _interval(name: str, tables: list[Any], level: float) -> Bounds:
    share = PROPORTIONS.get(name)
    if share is None or any(table is None for table in tables):
        return None
    before, after = ((float(hits), float(rows)) for hits, rows in map(share.counts, tables))
    return share_change(before, after, level=level)
