"""From counts of decisions and sums of scores to a `MetricTable`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mfairfl.fairness import rates
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import Notion, available_notions
from mfairfl.fairness.results import (
    Measured,
    MetricTable,
    Number,
    NumbersByName,
    Place,
    compares_groups,
)
from mfairfl.fairness.scores import RowScores, ScoreSums, score_numbers
from mfairfl.fairness.tally import CodedRows, Tally, binary_column
from mfairfl.fairness.uncertainty import (
    FairDecisions,
    Limits,
    Resampling,
    interval_column,
    overall_limits,
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
    chosen = available_notions() if notions is None else notions
    decided, groupings = rates.decision_notions(chosen), tally.cells.groupings()
    reported = rates.reported_groupings(tally.cells)
    around = Resampling(np.random.default_rng(seed), level, draws)
    fair = FairDecisions(tally, groupings, draws, np.random.default_rng(seed))
    overall = _overall(tally, decided, groupings, around, fair)
    numbers: dict[Place, NumbersByName] = {("overall",): overall}
    for grouping in reported if len(reported) > 1 else ():
        numbers["attribute", grouping.name] = _measured(
            rates.group_numbers(tally, decided, grouping),
            around.violations(decided, [grouping], tally.counts),
            fair.violations(decided, [grouping]),
        )
    tables = rates.tables_by_place(tally)
    shares = _shares(np.array([*tables.values()]).reshape(-1, 2, 2), level)
    numbers |= zip(tables, shares, strict=True)
    if groupings and tally.clients:
        fewer = Resampling(around.rng, level, -(-draws // _PER_CLIENT))
        limits = fewer.client_violations(decided, groupings, tally.counts)
        values = rates.client_violations(tally, decided)
        for client, violations in zip(tally.clients, map(_measured, values, limits), strict=True):
            numbers["client", client] |= violations
    if scores is not None:
        compared = [item for item in chosen if item.statistic == "loss" and groupings]
        losses = [Constraints(tally.cells, item, groupings) for item in compared]
        scored = score_numbers(tally, scores, losses, randomised=randomised, level=level)
        for place, values_and_limits in scored.items():
            numbers[place] |= _measured(*values_and_limits)
    if len(reported) == 1:
        between = {name: number for name, number in overall.items() if compares_groups(name)}
        numbers["attribute", reported[0].name] = between
    constant = rates.overall_numbers(rates.constant_classifier(tally, majority=majority))
    return MetricTable.of_places(
        numbers,
        {place: round(table.sum()) for place, table in tables.items()},
        level=level,
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
    rng, name = np.random.default_rng(seed), f"{notion.name}_violation"
    values = {name: rates.group_measure("violation", notion, tally.counts, groupings)}
    limits = Resampling(rng, level, draws).violations([notion], groupings, tally.counts)
    floors = FairDecisions(tally, groupings, draws, rng).violations([notion], groupings)
    return _measured(values, limits, floors)[name]


def measured_overall(
    tally: Tally,
    notions: Sequence[Notion],
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> NumbersByName:
    """Return the numbers of all rows together, those of a `MetricTable` bit for bit.

    Parameters
    ----------
    tally
        The counts.
    notions
        Whose measures are wanted.
    level, draws, seed
        As in `MetricTable.from_tally`.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 1], sensitive_features=list("FMF"))
    >>> measured_overall(tally, [])["accuracy"].value == MetricTable.from_tally(tally)[
    ...     "accuracy"
    ... ].value
    True
    """
    groupings = tally.cells.groupings()
    around = Resampling(np.random.default_rng(seed), level, draws)
    fair = FairDecisions(tally, groupings, draws, np.random.default_rng(seed))
    return _overall(tally, notions, groupings, around, fair)


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
