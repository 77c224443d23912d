"""All reported numbers of a tally at once, and the constant classifier to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    why_each_undefined,
)
from mfairfl.fairness.tally import Tally

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
    tally: Tally, measure: Callable[[Floats], Iterable[T]]
) -> tuple[dict[str, T], dict[str, dict[str, T]]]:
    """Measure the (2, 2) tables of label × decision: each client's, each group's.

    Groups are those of each attribute, and of their intersection; `measure` is given all clients'
    tables at once, (T, 2, 2), and all groups' of a grouping, and answers one by one.
    """
    clients = tally.counts.sum(axis=1).astype(np.float64)
    cells = tally.counts.sum(axis=0).astype(np.float64)
    by_group = {}
    for grouping in reported_groupings(tally.cells):
        tables = np.stack([cells[members].sum(axis=0) for members in grouping.membership])
        by_group[grouping.name] = dict(zip(grouping.groups, measure(tables), strict=True))
    return dict(zip(tally.clients, measure(clients), strict=True)), by_group


def table_rows(columns: Mapping[str, Sequence[T]], length: int) -> list[dict[str, T]]:
    """Return `length` dicts, one for each place in the columns.

    Examples
    --------
    >>> table_rows({"n": [3, 4], "accuracy": [0.5, None]}, 2)
    [{'n': 3, 'accuracy': 0.5}, {'n': 4, 'accuracy': None}]
    """
    if not columns:
        return [{} for _ in range(length)]
    names = tuple(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def reported_groupings(cells: Cells) -> list[Grouping]:
    """Return the groupings whose groups have a table: each attribute, and all crossed."""
    return single_groupings(cells) or cells.groupings()


def _rates(tables: Floats) -> list[dict[str, float | None]]:
    columns: dict[str, list[float | None]] = {
        "n": [round(rows) for rows in tables.sum(axis=(-2, -1)).tolist()]
    }
    for name in TABLE_NUMBERS:
        columns[name] = [_or_none(value) for value in PROPORTIONS[name].value(tables).tolist()]
    return table_rows(columns, len(tables))


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
    columns = {}
    for item in decision_notions(notions):
        values = violation_of(item, groupings).value(each).tolist()
        reasons = why_each_undefined(item, each, groupings)
        columns[f"{item.name}_violation"] = list(zip(values, reasons, strict=True))
    rows = table_rows(columns, len(tally.clients))
    return dict(zip(tally.clients, rows, strict=True))


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
