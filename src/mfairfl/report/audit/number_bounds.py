"""The bounds of every number of an audit, by the names of the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import KINDS, PROPORTIONS, Kind, measured_groupings, single_groupings
from mfairfl.fairness.summary import TABLE_NUMBERS, reported_groupings
from mfairfl.fairness.uncertainty import Interval
from mfairfl.report.audit.bounds import Outcomes, RateBounds, fitting, measure_bounds

Found = dict[str, Interval | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBounds:
    """Bounds under the names of `mfairfl.fairness.summarise`; None where nothing is unknown."""

    values: Found
    by_attribute: dict[str, Found] = field(default_factory=dict)
    by_client: dict[str, Found] = field(default_factory=dict)
    by_group: dict[str, dict[str, Found]] = field(default_factory=dict)


def number_bounds(counts: AuditCounts, notions: Sequence[Notion]) -> NumberBounds:
    """Bound every number over rows of which the group or the label is unknown or withheld.

    Examples
    --------
    >>> rows = AuditCounts.from_rows([1, None], [1, 0], sensitive_features=["F", "M"])
    >>> found = number_bounds(rows, [])
    >>> found.values["accuracy"], found.values["selection_rate"]
    (Interval(lower=0.5, upper=1.0), None)
    """
    cells = counts.cells
    each = {name: of_client(counts, k) for k, name in enumerate(counts.clients)}
    rates = {name: _rates(own) for name, own in each.items()}
    by_client = {
        name: {k: v for k, v in rates[name].items() if k in TABLE_NUMBERS}
        | _measures(own, notions, {"violation": cells.groupings()})
        for name, own in each.items()
    }
    overall = {kind: measured_groupings(cells, kind) for kind in KINDS}
    return NumberBounds(
        values=_overall(counts) | _measures(counts, notions, overall) | _clients(each),
        by_attribute={
            one.name: _measures(counts, notions, {kind: [one] for kind in KINDS})
            for one in single_groupings(cells)
        },
        by_client=by_client,
        by_group={one.name: _groups(counts, one) for one in reported_groupings(cells)},
    )


def of_client(counts: AuditCounts, client: int) -> AuditCounts:
    """Return the counts of one client.

    Examples
    --------
    >>> rows = AuditCounts.from_rows(
    ...     None, [1, 0], sensitive_features=["F", "M"], clients=["a", "b"]
    ... )
    >>> of_client(rows, 1).decided.sum(), of_client(rows, 1).clients
    (np.int64(1), ('b',))
    """
    one = slice(client, client + 1)
    return replace(
        counts,
        decided=counts.decided[one],
        clients=counts.clients[one],
        scored=None if counts.scored is None else counts.scored[one],
        sums=None if counts.sums is None else counts.sums[one],
        hidden=counts.hidden[one],
        withheld=counts.withheld[one],
    )


def _everyone(counts: AuditCounts, name: str) -> RateBounds:
    """Bound a rate of all rows, whatever their group."""
    cells = np.ones((1, counts.cells.size), dtype=bool)
    return RateBounds.of(counts, Outcomes.of(PROPORTIONS[name]), cells, ~cells)


def _rates(counts: AuditCounts) -> Found:
    return {name: _everyone(counts, name).interval() for name in PROPORTIONS}


def _overall(counts: AuditCounts) -> Found:
    """Bound the numbers of all rows together."""
    found = _rates(counts)
    jaccard = found.pop("jaccard")
    found["f1"] = jaccard and Interval(*(2.0 * end / (1.0 + end) for end in jaccard))
    hit, miss = (_everyone(counts, f"{of}_positive_rate") for of in ("true", "false"))
    low, high = (hit.lower + 1.0 - miss.upper) / 2.0, (hit.upper + 1.0 - miss.lower) / 2.0
    known = (hit.certain and miss.certain) or bool(np.isnan(low).any())
    found["balanced_accuracy"] = None if known else Interval(low.item(), high.item())
    return found


def _groups(counts: AuditCounts, grouping: Grouping) -> dict[str, Found]:
    maybe = fitting(counts.cells, grouping)
    rates = {
        name: RateBounds.of(counts, Outcomes.of(PROPORTIONS[name]), grouping.membership, maybe)
        for name in TABLE_NUMBERS
    }
    return {
        group: {name: rate.interval(g) for name, rate in rates.items()}
        for g, group in enumerate(grouping.groups)
    }


def _measures(
    counts: AuditCounts,
    notions: Sequence[Notion],
    groupings: Mapping[Kind, Sequence[Grouping]],
) -> Found:
    return {
        f"{item.name}_{kind}": measure_bounds(kind, item, counts, groupings[kind])
        for item in notions
        for kind in KINDS
        if kind in groupings
    }


def _clients(each: Mapping[str, AuditCounts]) -> Found:
    """Bound what compares clients' accuracies; a client without any row has none."""
    rates = [_everyone(own, "accuracy") for own in each.values()]
    if all(rate.certain for rate in rates) or any(rate.most[0] == 0 for rate in rates):
        return {}
    low = np.array([rate.lower[0] for rate in rates])
    high = np.array([rate.upper[0] for rate in rates])
    least, most = max(0.0, low.max() - high.min()), max(0.0, high.max() - low.min())
    if len(rates) == 1:
        least = most = 0.0
    # K numbers with this range have a standard deviation of √(1/2K) to 1/2 of it.
    ends = {
        "client_accuracy_gap": (least, most),
        "client_accuracy_std": (least / math.sqrt(2 * len(rates)), most / 2.0),
        "worst_client_accuracy": (low.min(), high.min()),
        "best_client_accuracy": (low.max(), high.max()),
    }
    return {name: Interval(float(a), float(b)) for name, (a, b) in ends.items()}
