"""From counts of decisions and sums of scores to a `MetricTable`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion, available_notions
from mfairfl.fairness.rates import (
    CLIENT_NUMBERS,
    CLIENT_SPREADS,
    OVERALL_NUMBERS,
    PROPORTIONS,
    TABLE_NUMBERS,
    Floats,
    NamedValues,
    client_violations,
    compared_counts,
    constant_classifier,
    decision_notions,
    group_measure,
    group_numbers,
    overall_numbers,
    reported_groupings,
    single_groupings,
    slice_tables,
    violation_of,
)
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
_ALWAYS_WITH_INTERVAL = {*OVERALL_NUMBERS, *TABLE_NUMBERS, *CLIENT_NUMBERS, "roc_auc"}


def measure_tally(
    tally: Tally,
    *,
    scores: Mapping[str, ScoreSums] | None = None,
    randomised: bool = False,
    majority: Tally | None = None,
    notions: Sequence[Notion] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> MetricTable:
    """Measure everything that follows from a tally; arguments as in `MetricTable.from_tally`."""
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level}; use a number between 0 and 1, such as 0.95")
    if draws < 1:
        raise ConfigError(f"draws = {draws}; use 1000 or more")
    chosen = available_notions() if notions is None else notions
    around = Resampling(np.random.default_rng(seed), level, draws)
    fair = FairDecisions(tally, draws, np.random.default_rng(seed))
    overall = _overall(tally, chosen, around, fair)
    between = {
        grouping.name: _between(tally, chosen, grouping, around, fair)
        for grouping in single_groupings(tally.cells)
    }
    tables, group_tables = slice_tables(tally)
    clients = [
        shares | violations
        for shares, violations in zip(
            _shares(tables, level), _client_violations(tally, chosen, around), strict=True
        )
    ]
    groups = {name: _shares(parts, level) for name, parts in group_tables.items()}
    if scores is not None:
        _add_scores(
            overall,
            clients,
            groups,
            tally=tally,
            scores=scores,
            randomised=randomised,
            notions=chosen,
            level=level,
        )
    alone = [number for number in overall.values() if compares_groups(number.name)]
    constant = overall_numbers(constant_classifier(tally, majority=majority))
    return MetricTable(
        level=level,
        overall=overall,
        sections=[
            Section(
                attribute=name,
                groups=_slices(grouping.groups, group_tables[name], groups[name]),
                measures=[*between[name].values()] if between else alone,
            )
            for grouping in reported_groupings(tally.cells)
            for name in [grouping.name]
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
    labels, rows = binary_column(y_true, "y_true"), RowScores.from_probabilities(probabilities)
    lengths = {"y_true": len(labels), "probabilities": len(rows.logits)}
    coded = CodedRows.of(sensitive_features, clients, None, lengths=lengths)
    size, scores = tally.cells.size, {}
    for k, name in enumerate(coded.clients):
        own = coded.client == k
        scores[name] = ScoreSums.from_rows(rows[own], coded.cell[own], labels[own], size=size)
    return tally, scores


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
    value, why = group_measure("violation", notion, tally.counts, groupings)
    name, rng = f"{notion.name}_violation", np.random.default_rng(seed)
    if math.isnan(value):
        return Measured(name=name, value=None, undefined=why)
    limits = Resampling(rng, level, draws).violations([notion], groupings, tally.counts)
    fair = simulated_fair(compared_counts(tally.counts, groupings), draws, rng)[fair_kind(notion)]
    floor = float(violation_of(notion, groupings).value(fair).mean())
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
    violations = (f"{item.name}_violation" for item in decision_notions())
    return name in CLIENT_SPREADS or name in violations


def _overall(
    tally: Tally, notions: Sequence[Notion], around: Resampling, fair: FairDecisions
) -> NumbersByName:
    """Measure all rows together."""
    decided, groupings = decision_notions(notions), tally.cells.groupings()
    values = overall_numbers(tally, notions=notions)
    # Group numbers do not depend on who holds a row, client numbers not on its cell: each is
    # smoothed where its own rates are.
    limits = around.client_spreads(values, tally.counts) | overall_limits(tally, around.level)
    floors = fair.client_spreads()
    if groupings:
        limits |= around.violations(decided, groupings, tally.counts)
        floors |= fair.violations(decided, groupings)
    return _measured(values, limits, floors)


def _between(
    tally: Tally,
    notions: Sequence[Notion],
    grouping: Grouping,
    around: Resampling,
    fair: FairDecisions,
) -> NumbersByName:
    """Measure what compares the groups of one grouping."""
    decided = decision_notions(notions)
    limits = around.violations(decided, [grouping], tally.counts)
    floors = fair.violations(decided, [grouping])
    return _measured(group_numbers(tally, notions, grouping), limits, floors)


def _client_violations(
    tally: Tally, notions: Sequence[Notion], around: Resampling
) -> list[NumbersByName]:
    """Measure every notion's violation on each client's own rows."""
    decided, groupings = decision_notions(notions), tally.cells.groupings()
    values = client_violations(tally, decided)
    if not groupings or not tally.clients:
        return [{} for _ in values]
    fewer = Resampling(around.rng, around.level, -(-around.draws // _PER_CLIENT))
    limits = fewer.client_violations(decided, groupings, tally.counts)
    return [_measured(own, ends) for own, ends in zip(values, limits, strict=True)]


def _add_scores(
    overall: NumbersByName,
    clients: Sequence[NumbersByName],
    groups: Mapping[str, Sequence[NumbersByName]],
    *,
    tally: Tally,
    scores: Mapping[str, ScoreSums],
    randomised: bool,
    notions: Sequence[Notion],
    level: float,
) -> None:
    """Add the numbers of scores to those of decisions, in place."""
    groupings = tally.cells.groupings()
    losses = [item for item in notions if item.statistic == "loss"]
    together, of_clients, of_groups = scored_rows(tally, scores)
    overall.update(_scored(together, level, randomised, losses, groupings)[0])
    scored = _scored(of_clients, level, randomised, losses, groupings)
    for numbers, more in zip(clients, scored, strict=True):
        numbers.update(more)
    for name, parts in of_groups.items():
        for numbers, part in zip(groups[name], parts, strict=True):
            numbers.update(_scored(part, level, randomised)[0])


def _measured(
    values: NamedValues, limits: Limits, floors: Mapping[str, Number] | None = None
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


def _shares(tables: Floats, level: float) -> list[NumbersByName]:
    """Return accuracy and rates of each of the (T, 2, 2) tables, with Wilson's intervals."""
    parts: list[NumbersByName] = [{} for _ in tables]
    for name in TABLE_NUMBERS:
        share = PROPORTIONS[name]
        values = share.value(tables).tolist()
        limits = interval_column(*wilson(*share.counts(tables), level))
        for numbers, value, limit in zip(parts, values, limits, strict=True):
            numbers.update(_measured({name: (value, share.needs)}, {name: limit}))
    return parts


def _scored(
    rows: ScoredRows,
    level: float,
    randomised: bool,
    notions: Sequence[Notion] = (),
    groupings: Sequence[Grouping] = (),
) -> list[NumbersByName]:
    """Return the numbers of scores of each set of rows, with intervals of ROC-AUC."""
    values = rows.numbers(randomised=randomised, notions=notions, groupings=groupings)
    limits = rows.roc_auc_limits(level)
    return [_measured(own, {"roc_auc": limit}) for own, limit in zip(values, limits, strict=True)]


def _slices(names: Sequence[str], tables: Floats, numbers: Sequence[NumbersByName]) -> list[Slice]:
    rows = [round(count) for count in tables.sum(axis=(1, 2)).tolist()]
    return [
        Slice(name=name, rows=n, numbers=own)
        for name, n, own in zip(names, rows, numbers, strict=True)
    ]
