"""Every number of an audit: what needs a label from rows that have one, the rest from all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import KINDS, decision_notions
from mfairfl.runs.evaluation import evaluate, merged
from mfairfl.runs.record import Evaluation


def needs_label(notion: Notion) -> bool:
    """Say whether labels enter what a notion compares.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> needs_label(notion("dp")), needs_label(notion("eo"))
    (False, True)
    """
    whole = all(len(event.labels) == 2 for event in notion.events)
    return not (whole and notion.statistic == "selection")


def measured_notions(counts: AuditCounts) -> list[Notion]:
    """Return the notions of decisions that can be measured: without labels, not all."""
    labelled = counts.tally().n > 0
    return [one for one in decision_notions() if labelled or not needs_label(one)]


def evaluate_counts(counts: AuditCounts, *, level: float = 0.95) -> Evaluation:
    """Return what is reported of a run, from the counts of an audit.

    Selection rates and notions that no label enters are of all rows. What needs a label is of the
    rows that have one, and absent if none has; then `labelled_rows` stands beside `n` in tables.

    Examples
    --------
    >>> rows = AuditCounts.from_rows([1, None], [1, 0], sensitive_features=["F", "M"])
    >>> found = evaluate_counts(rows).metrics
    >>> found["selection_rate"], found["accuracy"], found["demographic_parity_difference"]
    (0.5, 1.0, 1.0)
    """
    labelled, everyone = counts.tally(), counts.selections()
    sums = counts.sums
    scores = None if sums is None else dict(zip(counts.clients, sums, strict=True))
    if labelled.n == everyone.n:
        return evaluate(labelled, scores=scores, level=level)
    free = {"n", "level", "selection_rate"} | {
        f"{one.name}_{kind}"
        for one in decision_notions()
        if not needs_label(one)
        for kind in KINDS
    }
    found = _kept(evaluate(everyone, level=level).model_dump(), lambda name: name in free)
    found["constant_classifier"] = {}
    if labelled.n:
        needed = evaluate(labelled, scores=scores, level=level).model_dump()
        constant = needed["constant_classifier"]
        for table in _tables(needed["metrics"]):
            table["labelled_rows"] = table["n"]
        found = merged(found, _kept(needed, lambda name: name not in free))
        found["constant_classifier"] = constant
    return Evaluation.model_validate(found)


def _kept(found: dict[str, Any], wanted: Callable[[str], bool]) -> dict[str, Any]:
    """Return the entries of some numbers, also in tables; reasons are kept by `table.number`."""
    return {
        key: _kept(value, wanted) if isinstance(value, dict) else value
        for key, value in found.items()
        if isinstance(value, dict) or wanted(key.rpartition(".")[2])
    }


def _tables(metrics: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from metrics["by_client"].values()
    for groups in metrics["by_group"].values():
        yield from groups.values()
