"""The third sentence of a report: what fairness cost in accuracy, whom, and what it bought."""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.report.document import Change
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.wording import and_list, percent, points, range_of_points


def cost_sentence(
    run: ReportedRun, baseline: ReportedRun | None, changes: Sequence[Change]
) -> str:
    """Say what fairness cost, and whom; or why that is not known.

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
    accuracy = _of(changes, "all", "accuracy")
    where = f"Against {baseline.name} on the same {run.rows:,} {run.split} rows"
    if not accuracy or accuracy[0].change is None:
        return f"{where}, what fairness cost is not known: accuracy is undefined on them."
    level = run.table.level
    parts = [_accuracy(accuracy[0], level), _losers(run, changes)]
    said = ", ".join(filter(None, parts))
    return "; ".join(filter(None, [f"{where}, {said}", _bought(run, changes)])) + "."


def _of(changes: Sequence[Change], part: str, number: str) -> list[Change]:
    return [one for one in changes if one.part == part and one.number == number]


def _accuracy(found: Change, level: float) -> str:
    """State the change, and whether it can be told apart from chance."""
    before, after, change = (float(x or 0) for x in (found.before, found.after, found.change))
    limits = range_of_points(found.interval, level)
    # Newcombe's interval takes the two models' rows for different ones: they are the same.
    limits = f"{limits}, cautious"
    if found.interval is None:
        return f"accuracy went from {percent(before)} to {percent(after)}"
    if found.interval[0] <= 0 <= found.interval[1]:
        return (
            f"accuracy went from {percent(before)} to {percent(after)}, which cannot be told "
            f"apart from chance ({limits})"
        )
    verb = "fell" if change < 0 else "rose"
    return (
        f"accuracy {verb} by {points(abs(change))}, from {percent(before)} to {percent(after)} "
        f"({limits})"
    )


def _losers(run: ReportedRun, changes: Sequence[Change]) -> str:
    """Name the group and the client whose accuracy fell most."""
    groups = [one for one in _of(changes, "group", "accuracy") if _is_judged(run, one)]
    clients = _of(changes, "client", "accuracy") if len(run.record.federation.clients) > 1 else []
    worst = [_lowest(groups), _lowest(clients)]
    named = [f"{one.whom} ({_short(one)})" for one in worst if one is not None]
    if not named:
        return "while no group and no client lost accuracy"
    return f"hardest on {and_list(named)}"


def _short(change: Change) -> str:
    return points(float(change.change or 0)).replace("percentage ", "")


def _is_judged(run: ReportedRun, change: Change) -> bool:
    """Say whether a group is one of an attribute that is judged, not of several crossed."""
    known = {
        f"{attribute} {group}"
        for attribute in run.aim.attributes
        for group in run.table.by_group.get(attribute, {})
    }
    return change.whom in known


def _lowest(changes: Sequence[Change]) -> Change | None:
    fell = [one for one in changes if one.change is not None and one.change < 0]
    return min(fell, key=lambda one: float(one.change or 0), default=None)


def _bought(run: ReportedRun, changes: Sequence[Change]) -> str:
    """Say whose favourable decisions became more, and whose fewer."""
    selected = [one for one in _of(changes, "group", "selection_rate") if _is_judged(run, one)]
    moved = sorted((one for one in selected if one.change), key=lambda one: float(one.change or 0))
    ends = [moved[-1], *moved[:1]] if len(moved) > 1 else moved
    return f"favourable decisions {and_list(map(_shift, ends))}" if ends else ""


def _shift(change: Change) -> str:
    verb = "rose" if float(change.change or 0) > 0 else "fell"
    before, after = (percent(float(share or 0)) for share in (change.before, change.after))
    return f"{verb} for {change.whom} from {before} to {after}"
