"""All reported numbers of a tally at once, and the constant classifier to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Cells, Grouping
from mfairfl.fairness.metrics import CLIENT_NUMBERS, client_number, performance
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import (
    KINDS,
    PROPORTIONS,
    decision_notions,
    group_measure,
    measured_groupings,
    pooled_table,
    single_groupings,
    violation_of,
    why_undefined,
)
from mfairfl.fairness.tally import Tally

__all__ = [
    "OVERALL_NUMBERS",
    "TABLE_NUMBERS",
    "Found",
    "TallySummary",
    "constant_classifier",
    "defined_values",
    "each_table",
    "overall_numbers",
    "reported_groupings",
    "summarise",
    "undefined_numbers",
]

OVERALL_NUMBERS = (
    "accuracy",
    "balanced_accuracy",
    "f1",
    "true_positive_rate",
    "false_positive_rate",
    "selection_rate",
)
TABLE_NUMBERS = tuple(name for name in PROPORTIONS if name != "jaccard")

Floats = NDArray[np.float64]
T = TypeVar("T")
Found = dict[str, tuple[float, str]]
"""Numbers by name, nan where undefined, each with the reason why it would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySummary:
    """Every reported number; None where it is undefined.

    Attributes
    ----------
    values
        Number by name. Of several attributes a violation is the worst, a difference or ratio that
        of all of them crossed.
    undefined
        Why a number is None, by its name (``attribute.name`` for one attribute's,
        ``by_client.client.name`` and ``by_group.attribute.group.name`` in the tables).
    by_attribute
        With several attributes: the group metrics of each, and of their intersection.
    by_client, by_group
        Rows and rates of each client and of each attribute's groups; each client's violations.
    """

    values: dict[str, float | None]
    undefined: dict[str, str] = field(default_factory=dict)
    by_attribute: dict[str, dict[str, float | None]] = field(default_factory=dict)
    by_client: dict[str, dict[str, float | None]] = field(default_factory=dict)
    by_group: dict[str, dict[str, dict[str, float | None]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return asdict(self)


def summarise(tally: Tally, *, notions: Sequence[Notion] | None = None) -> TallySummary:
    """Return every number that follows from a tally.

    Parameters
    ----------
    tally
        The counts.
    notions
        The notions that are measured; by default every registered one.

    Examples
    --------
    >>> summary = summarise(
    ...     Tally.from_predictions([1, 0, 1], [1, 1, 1], sensitive_features=list("abb"))
    ... )
    >>> summary.values["selection_rate"], summary.values["equalized_odds_violation"]
    (1.0, None)
    >>> summary.undefined["equalized_odds_violation"]
    "group 'a' of 'sensitive_feature' has no rows with y=0"
    """
    found = overall_numbers(tally, notions=notions)
    undefined = undefined_numbers("", found)
    by_attribute: dict[str, dict[str, float | None]] = {}
    for grouping in single_groupings(tally.cells):
        own = _group_numbers(tally, notions, grouping)
        by_attribute[grouping.name] = defined_values(own)
        undefined |= undefined_numbers(f"{grouping.name}.", own)
    by_client, by_group = each_table(tally, _rates)
    for client, own in _client_violations(tally, notions).items():
        by_client[client] |= defined_values(own)
        undefined |= undefined_numbers(f"by_client.{client}.", own)
    return TallySummary(
        values=defined_values(found),
        undefined=undefined,
        by_attribute=by_attribute,
        by_client=by_client,
        by_group=by_group,
    )


def overall_numbers(tally: Tally, *, notions: Sequence[Notion] | None = None) -> Found:
    """Return the numbers of all rows and of all clients together, without the tables.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 1], sensitive_features=list("abb"))
    >>> overall_numbers(tally)["selection_rate"][0]
    1.0
    """
    table = pooled_table(tally.counts)
    found = {name: performance(name, table) for name in OVERALL_NUMBERS}
    if tally.attributes:
        found |= _group_numbers(tally, notions)
    return found | {name: client_number(name, tally) for name in CLIENT_NUMBERS}


def defined_values(found: Found) -> dict[str, float | None]:
    """Return the values alone, None where undefined.

    Examples
    --------
    >>> defined_values({"accuracy": (0.5, ""), "f1": (float("nan"), "no label is 1")})
    {'accuracy': 0.5, 'f1': None}
    """
    return {name: _or_none(value) for name, (value, _) in found.items()}


def undefined_numbers(prefix: str, found: Found) -> dict[str, str]:
    """Return the reasons of the undefined numbers, by prefix and name.

    Examples
    --------
    >>> undefined_numbers("sex.", {"f1": (float("nan"), "no label is 1")})
    {'sex.f1': 'no label is 1'}
    """
    return {f"{prefix}{name}": why for name, (value, why) in found.items() if math.isnan(value)}


def constant_classifier(tally: Tally, *, majority: int | Tally | None = None) -> Tally:
    """Return the tally of the classifier that decides one label for every row.

    Parameters
    ----------
    tally
        The rows it is evaluated on.
    majority
        The label, or a (training) tally whose more frequent label is taken, 0 on a tie; None takes
        that of `tally` itself.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 0], [1, 1, 0], sensitive_features=list("abb"))
    >>> constant_classifier(tally).counts.sum(axis=(0, 1)).tolist()
    [[2, 0], [1, 0]]
    """
    if majority is None or isinstance(majority, Tally):
        labels = pooled_table((majority or tally).counts).sum(axis=1)
        majority = int(labels[1] > labels[0])
    if majority not in (0, 1):
        raise ConfigError(f"majority = {majority!r}; use 0, 1 or a tally")
    counts = np.zeros_like(tally.counts)
    counts[..., majority] = tally.counts.sum(axis=-1)
    return Tally(counts, tally.clients, tally.attributes)


def each_table(
    tally: Tally, measure: Callable[[Floats], T]
) -> tuple[dict[str, T], dict[str, dict[str, T]]]:
    """Measure the (2, 2) tables of label × decision: each client's, each group's.

    Groups are those of each attribute, and of their intersection.
    """
    clients = tally.counts.sum(axis=1).astype(np.float64)
    cells = tally.counts.sum(axis=0).astype(np.float64)
    by_group = {
        grouping.name: {
            group: measure(cells[members].sum(axis=0))
            for group, members in zip(grouping.groups, grouping.membership, strict=True)
        }
        for grouping in reported_groupings(tally.cells)
    }
    return dict(zip(tally.clients, map(measure, clients), strict=True)), by_group


def reported_groupings(cells: Cells) -> list[Grouping]:
    """Return the groupings whose groups have a table: each attribute, and all crossed."""
    return single_groupings(cells) or cells.groupings()


def _rates(table: Floats) -> dict[str, float | None]:
    row: dict[str, float | None] = {"n": round(float(table.sum()))}
    return row | {name: _or_none(float(PROPORTIONS[name].value(table))) for name in TABLE_NUMBERS}


def _group_numbers(
    tally: Tally, notions: Sequence[Notion] | None, grouping: Grouping | None = None
) -> dict[str, tuple[float, str]]:
    """Return the numbers of each notion and why one is undefined, of all attributes or of one."""
    by_kind = {
        kind: measured_groupings(tally.cells, kind) if grouping is None else [grouping]
        for kind in KINDS
    }
    return {
        f"{item.name}_{kind}": group_measure(kind, item, tally.counts, groupings)
        for item in decision_notions(notions)
        for kind, groupings in by_kind.items()
    }


def _client_violations(tally: Tally, notions: Sequence[Notion] | None) -> dict[str, Found]:
    """Return every notion's violation on each client's own rows."""
    if not tally.attributes or not tally.clients:
        return {}
    groupings, each = tally.cells.groupings(), tally.counts[:, None]
    found: dict[str, Found] = {client: {} for client in tally.clients}
    for item in decision_notions(notions):
        values = violation_of(item, groupings).value(each).tolist()
        for client, own, value in zip(tally.clients, each, values, strict=True):
            why = why_undefined(item, own, groupings) if math.isnan(value) else ""
            found[client][f"{item.name}_violation"] = value, why
    return found


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
