"""From counts of decisions and sums of scores to a `MetricTable`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mfairfl.errors import ConfigError
from mfairfl.fairness import rates
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import Notion, available_notions
from mfairfl.fairness.results import (
    Measured,
    MetricTable,
    Number,
    NumbersByName,
    Section,
    Slice,
    compares_groups,
)
from mfairfl.fairness.scores import RowScores, ScoredRows, ScoreSums, scored_rows
from mfairfl.fairness.tally import CodedRows, Tally, binary_column
from mfairfl.fairness.uncertainty import (
    FairDecisions,
    Limits,
    Resampling,
    fair_kind,
    interval_column,
    overall_limits,
    simulated_fair,
    wilson,
)

_PER_CLIENT = 4  # there may be hundreds of clients: each is drawn so many times less
_ALWAYS_WITH_INTERVAL = {
    *rates.OVERALL_NUMBERS,
    *rates.TABLE_NUMBERS,
    *rates.CLIENT_NUMBERS,
    "roc_auc",
}


def measure_tally(
    tally: Tally,
    *,
    scores: Mapping[str, ScoreSums] | None,
    randomised: bool,
    majority: Tally | None,
    notions: Sequence[Notion] | None,
    level: float,
    draws: int,
    seed: int,
) -> MetricTable:
    """Measure everything that follows from a tally; arguments as in `MetricTable.from_tally`."""
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level}; use a number between 0 and 1, such as 0.95")
    if draws < 1:
        raise ConfigError(f"draws = {draws}; use 1000 or more")
    chosen = available_notions() if notions is None else notions
    decided, groupings = rates.decision_notions(chosen), tally.cells.groupings()
    around = Resampling(np.random.default_rng(seed), level, draws)
    fair = FairDecisions(tally, draws, np.random.default_rng(seed))
    overall = _overall(tally, decided, groupings, around, fair)
    between = {
        grouping.name: _measured(
            rates.group_numbers(tally, decided, grouping),
            around.violations(decided, [grouping], tally.counts),
            fair.violations(decided, [grouping]),
        )
        for grouping in rates.single_groupings(tally.cells)
    }
    tables, group_tables = rates.slice_tables(tally)
    clients = _shares(tables, level)
    groups = {name: _shares(parts, level) for name, parts in group_tables.items()}
    if groupings and tally.clients:
        fewer = Resampling(around.rng, level, -(-draws // _PER_CLIENT))
        limits = fewer.client_violations(decided, groupings, tally.counts)
        values = rates.client_violations(tally, decided)
        _extend(clients, map(_measured, values, limits))
    if scores is not None:
        scored = partial(_scored, level=level, randomised=randomised)
        compared = [item for item in chosen if item.statistic == "loss" and groupings]
        losses = [Constraints(tally.cells, item, groupings) for item in compared]
        together, by_client, by_group = scored_rows(tally, scores)
        _extend([overall], scored(together, losses))
        _extend(clients, scored(by_client, losses))
        for name, parts in by_group.items():
            _extend(groups[name], [scored(part)[0] for part in parts])
    alone = {name: number for name, number in overall.items() if compares_groups(name)}
    constant = rates.overall_numbers(rates.constant_classifier(tally, majority=majority))
    return MetricTable(
        level=level,
        overall=overall,
        sections=[
            Section(
                attribute=item.name,
                groups=_slices(item.groups, group_tables[item.name], groups[item.name]),
                measures=[*between.get(item.name, alone).values()],
            )
            for item in rates.reported_groupings(tally.cells)
        ],
        clients=_slices(tally.clients, tables, clients),
        constant_classifier={
            name: None if math.isnan(value) else value for name, (value, _) in constant.items()
        },
    )


def count_predictions(
    y_true: Any, y_pred: Any, sensitive_features: Any, clients: Any, probabilities: Any
) -> tuple[Tally, dict[str, ScoreSums] | None]:
    """Count decisions, and sum each client's scores if there are probabilities."""
    tally = Tally.from_predictions(
        y_true, y_pred, sensitive_features=sensitive_features, clients=clients
    )
    if probabilities is None:
        return tally, None
    labels, scores = binary_column(y_true, "y_true"), RowScores.from_probabilities(probabilities)
    lengths = {"y_true": len(labels), "probabilities": len(scores.logits)}
    rows = CodedRows.of(sensitive_features, clients, None, lengths=lengths)
    return tally, ScoreSums.by_client(scores, rows, labels)


def measured_violation(
    tally: Tally,
    notion: Notion,
    groupings: Sequence[Grouping],
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Measured:
    """Return the largest deviation of a group of these groupings from everyone compared.

    A `MetricTable` has the violations between the groups of each attribute. A goal may name fewer
    attributes, or their intersections as well.

    Parameters
    ----------
    tally
        The counts.
    notion
        A notion that compares decisions, not losses.
    groupings
        The groups, for example ``tally.cells.groupings(["sex", "age"], intersections=True)``.
    level, draws, seed
        As in `MetricTable.from_tally`.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> tally = Tally.from_predictions(
    ...     [1, 0] * 50, [1] * 25 + [0] * 75, sensitive_features=["a"] * 50 + ["b"] * 50
    ... )
    >>> measured_violation(tally, notion("dp"), tally.cells.groupings()).value
    0.25
    """
    value, why = rates.group_measure("violation", notion, tally.counts, groupings)
    name, rng = f"{notion.name}_violation", np.random.default_rng(seed)
    if math.isnan(value):
        return Measured(name=name, value=None, undefined=why)
    limits = Resampling(rng, level, draws).violations([notion], groupings, tally.counts)
    compared = rates.compared_counts(tally.counts, groupings)
    fair = simulated_fair(compared, draws, rng)[fair_kind(notion)]
    floor = float(rates.violation_of(notion, groupings).value(fair).mean())
    return Measured(name=name, value=value, interval=limits[name], noise_floor=floor)


def has_interval(name: str) -> bool:
    """Return whether a number has an interval wherever it is defined.

    Examples
    --------
    >>> [has_interval(f"demographic_parity_{kind}") for kind in ("violation", "ratio")]
    [True, False]
    """
    return name in _ALWAYS_WITH_INTERVAL or has_noise_floor(name)


def has_noise_floor(name: str) -> bool:
    """Return whether a number has a noise floor wherever it is defined.

    Examples
    --------
    >>> has_noise_floor("equalized_odds_violation"), has_noise_floor("accuracy")
    (True, False)
    """
    violations = (f"{item.name}_violation" for item in rates.decision_notions())
    return name in rates.CLIENT_SPREADS or name in violations


def _overall(
    tally: Tally,
    notions: Sequence[Notion],
    groupings: Sequence[Grouping],
    around: Resampling,
    fair: FairDecisions,
) -> NumbersByName:
    """Measure all rows together."""
    values = rates.overall_numbers(tally, notions=notions)
    # Group numbers do not depend on who holds a row, client numbers not on its cell: each is
    # smoothed where its own rates are.
    limits = around.client_spreads(values, tally.counts) | overall_limits(tally, around.level)
    floors = fair.client_spreads()
    if groupings:
        limits |= around.violations(notions, groupings, tally.counts)
        floors |= fair.violations(notions, groupings)
    return _measured(values, limits, floors)


def _extend(parts: Iterable[NumbersByName], others: Iterable[NumbersByName]) -> None:
    """Add further numbers to each part, in place."""
    for numbers, more in zip(parts, others, strict=True):
        numbers.update(more)


def _measured(
    values: rates.NamedValues, limits: Limits, floors: Mapping[str, Number] | None = None
) -> NumbersByName:
    return {
        name: Measured(
            name=name,
            value=None if math.isnan(value) else value,
            interval=limits.get(name),
            noise_floor=(floors or {}).get(name),
            undefined=why if math.isnan(value) else "",
        )
        for name, (value, why) in values.items()
    }


def _shares(tables: rates.Floats, level: float) -> list[NumbersByName]:
    """Return accuracy and rates of each of the (T, 2, 2) tables, with Wilson's intervals."""
    parts: list[NumbersByName] = [{} for _ in tables]
    for name in rates.TABLE_NUMBERS:
        share = rates.PROPORTIONS[name]
        values = share.value(tables).tolist()
        limits = interval_column(*wilson(*share.counts(tables), level))
        for numbers, value, limit in zip(parts, values, limits, strict=True):
            numbers.update(_measured({name: (value, share.needs)}, {name: limit}))
    return parts


def _scored(
    rows: ScoredRows, losses: Sequence[Constraints] = (), *, level: float, randomised: bool
) -> list[NumbersByName]:
    """Return the numbers of scores of each set of rows, with intervals of ROC-AUC."""
    values = rows.numbers(randomised=randomised, losses=losses)
    limits = [{"roc_auc": limit} for limit in rows.roc_auc_limits(level)]
    return list(map(_measured, values, limits))


def _slices(
    names: Sequence[str], tables: rates.Floats, numbers: Sequence[NumbersByName]
) -> list[Slice]:
    rows = tables.sum(axis=(1, 2)).tolist()
    return [
        Slice(name=name, rows=round(count), numbers=part)
        for name, count, part in zip(names, rows, numbers, strict=True)
    ]
