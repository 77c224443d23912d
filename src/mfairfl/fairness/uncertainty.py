"""Confidence intervals, noise floors and verdicts for the reported numbers.

Four rules cover them all; a notion's difference and ratio stand beside its violation without.

* **Shares** (accuracy, rates): Wilson's interval. F1 is a monotone function of one share, so its
  interval is that share's, transformed; balanced accuracy is a mean of two independent shares,
  whose Wilson intervals are combined by square-and-add (MOVER, Newcombe 1998).
* **Worst and best client**: Wilson intervals that hold for all K clients together (Šidák: clients
  are independent). The smallest lower and the smallest upper limit bound the worst client, the
  largest ones the best; a percentile bootstrap would inherit the bias of an extreme.
* **Client spreads**: both are N(v), N a seminorm of a vector of rates, so
  |N(v̂) − N(v)| ≤ N(v̂ − v). The interval is N(v̂) ± q with q the level-quantile of N(v* − ṽ) over
  resampled tallies: conservative, and honest near N = 0, where a percentile bootstrap fails.
* **Violations**: N(v) = max |v_j| over the deviations v_j of groups. Each has limits of its own,
  |v̂_j| ± q s_j, with s_j its standard error and q the level-quantile of max_j |v*_j − ṽ_j| / s_j:
  they hold for all groups together, so the largest lower and the largest upper limit bound N. A
  group of a few rows then widens the upper limit, but does not hide what a large one shows.

Rows are resampled over (cell, y, ŷ), within each client if there are up to 100, each rate smoothed
by z² pseudo-rows (Wilson's), so that "0 of 8" is not taken for certainty. A draw that leaves a
needed rate without rows counts as infinitely far, and a group that many draws leave without says
nothing (its limits are 0 and 1): too little data gives a wide interval, not a narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import (
    CLIENT_SPREADS,
    PROPORTIONS,
    client_accuracies,
    compared_counts,
    decision_notions,
    divide,
    pooled_table,
    single_groupings,
    violation_of,
)
from mfairfl.fairness.resampling import (
    OWN_STRATA,
    accuracy_spreads,
    decided,
    each_resampled,
    resampled,
    resampled_together,
    smoothed,
    strata,
)
from mfairfl.fairness.summary import (
    TABLE_NUMBERS,
    defined_values,
    each_table,
    overall_numbers,
    table_rows,
)
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.violation_limits import DrawnGroups, violation_limits

Floats = NDArray[np.float64]
Numbers = Mapping[str, float | None]
Drawn = dict[str, NDArray[np.int64]]
Verdict = Literal["met", "not met", "too few rows to tell"]
_PER_CLIENT = 4  # there may be hundreds of clients: each is drawn so many times less


class Interval(NamedTuple):
    """A confidence interval."""

    lower: float
    upper: float


Limits = dict[str, Interval | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The intervals of a summary's numbers but differences and ratios; None where undefined."""

    level: float
    values: dict[str, Interval | None]
    by_attribute: dict[str, dict[str, Interval | None]] = field(default_factory=dict)
    by_client: dict[str, dict[str, Interval | None]] = field(default_factory=dict)
    by_group: dict[str, dict[str, dict[str, Interval | None]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; an interval is a pair (lower, upper)."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """The mean a violation would have under exact fairness; None where undefined."""

    values: dict[str, float | None]
    by_attribute: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return asdict(self)


def intervals(
    tally: Tally,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
    notions: Sequence[Notion] | None = None,
) -> Intervals:
    """Return a confidence interval for every number of `summarise` but differences and ratios.

    Parameters
    ----------
    tally
        The counts. Expected counts of a randomised predictor are treated as if its decisions had
        been drawn once, which only widens the intervals.
    level
        The confidence level.
    draws
        Resampled tallies for the seminorms; a quarter as many for each client's violations.
    seed
        Seed of the resampling; the same seed gives the same intervals.
    notions
        The notions that are measured; by default every registered one.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0] * 50, [1, 0] * 50, sensitive_features=["a"] * 100)
    >>> found = intervals(tally).values["accuracy"]
    >>> round(found.lower, 3), found.upper
    (0.963, 1.0)
    """
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level}; use a number between 0 and 1, such as 0.95")
    if draws < 1:
        raise ConfigError(f"draws = {draws}; use 1000 or more")
    rng, chosen = np.random.default_rng(seed), decision_notions(notions)
    around, groupings = Resampling(rng, level, draws), tally.cells.groupings()
    numbers = defined_values(overall_numbers(tally, notions=notions))
    # Group numbers do not depend on who holds a row, client numbers not on its cell: each is
    # smoothed where its own rates are.
    values = around.client_spreads(numbers, tally.counts)
    values |= _overall_intervals(tally, level) | _extreme_client_intervals(tally, level)
    if groupings:
        values |= around.violations(chosen, groupings, tally.counts)
    by_attribute = {
        one.name: around.violations(chosen, [one], tally.counts)
        for one in single_groupings(tally.cells)
    }
    by_client, by_group = each_table(tally, lambda tables: _table_intervals(tables, level))
    if groupings and tally.clients:
        each = Resampling(rng, level, -(-draws // _PER_CLIENT))
        found = each.client_violations(chosen, groupings, tally.counts)
        for client, own_violations in zip(tally.clients, found, strict=True):
            by_client[client] |= own_violations
    return Intervals(
        level=level,
        values={name: values[name] for name in numbers if name in values},
        by_attribute=by_attribute,
        by_client=by_client,
        by_group=by_group,
    )


@dataclass(frozen=True, slots=True)
class Resampling:
    """Intervals of seminorms from resampled tallies."""

    rng: np.random.Generator
    level: float
    draws: int

    def client_spreads(self, numbers: Numbers, counts: NDArray[Any]) -> Limits:
        """Return an interval around each number that compares clients."""
        tables = counts.sum(axis=1, keepdims=True)
        rows = tables.sum(axis=(2, 3))
        smooth = smoothed(tables, rows[..., None], self._pseudo)
        away: dict[str, Floats] = {}  # nothing if a client has no rows
        if 0 < len(counts) <= OWN_STRATA:
            drawn = resampled(smooth, self.draws, self.rng)
            apart = client_accuracies(drawn) - client_accuracies(smooth)
            away = {name: spread.norm(apart) for name, spread in CLIENT_SPREADS.items()}
        elif rows.size and rows.all():
            sizes = np.rint(rows[:, 0]).astype(np.int64)
            away = accuracy_spreads(sizes, client_accuracies(smooth), self.draws, self.rng)
        found: Limits = dict.fromkeys(CLIENT_SPREADS)
        for name, spread in CLIENT_SPREADS.items():
            if (value := numbers[name]) is not None:
                q = float(np.quantile(away[name], self.level, method="higher"))
                found[name] = Interval(max(0.0, value - q), min(spread.largest, value + q))
        return found

    def violations(
        self, notions: Sequence[Notion], groupings: Sequence[Grouping], counts: NDArray[Any]
    ) -> Limits:
        """Return an interval around each notion's violation on these (K, C, 2, 2) counts."""
        tables = strata(compared_counts(counts, groupings))
        sizes = _group_sizes(tables.sum(axis=(0, 3)), groupings)
        smooth = smoothed(tables, sizes, self._pseudo)
        drawn = resampled_together(smooth, self.draws, self.rng)[None]
        groups = [DrawnGroups.of(grouping, drawn) for grouping in groupings]
        found = {}
        for item in notions:
            vector = violation_of(item, groupings).vector
            around = vector(tables[None]), vector(smooth[None])
            ends = violation_limits(item, *around, groups, self.level)
            found[f"{item.name}_violation"] = _interval(*(float(end[0]) for end in ends))
        return found

    def client_violations(
        self, notions: Sequence[Notion], groupings: Sequence[Grouping], counts: NDArray[Any]
    ) -> list[Limits]:
        """Return the same for each client's own rows."""
        tables, many = compared_counts(counts, groupings), len(counts) > OWN_STRATA
        places = np.arange(len(tables))
        if many:  # small clients' tables are often the same
            tables, places = np.unique(tables, axis=0, return_inverse=True)
            places = places.reshape(-1)  # NumPy 2.0 gives it another shape
        smooth = smoothed(tables, _group_sizes(tables.sum(axis=3), groupings), self._pseudo)
        vectors = [violation_of(item, groupings).vector for item in notions]
        around = [(vector(tables[:, None]), vector(smooth[:, None])) for vector in vectors]
        limits = np.empty((len(notions), 2, len(tables)))
        for some, drawn in each_resampled(smooth, self.draws, self.rng, alike=many):
            groups = [DrawnGroups.of(grouping, drawn) for grouping in groupings]
            for i, (item, (entries, centre)) in enumerate(zip(notions, around, strict=True)):
                limits[i][:, some] = violation_limits(
                    item, entries[some], centre[some], groups, self.level
                )
        columns = {
            f"{item.name}_violation": _interval_column(*ends[:, places])
            for item, ends in zip(notions, limits, strict=True)
        }
        return table_rows(columns, len(counts))

    @property
    def _pseudo(self) -> float:
        return float(ndtri(0.5 + self.level / 2.0)) ** 2


def noise_floor(
    tally: Tally, *, draws: int = 2000, seed: int = 0, notions: Sequence[Notion] | None = None
) -> NoiseFloor:
    """Return what each violation would be on average if the decisions were exactly fair.

    Decisions are drawn anew for the same rows at rates that are equal by construction: the overall
    selection rate (demographic parity), the overall rate of each label (equalized odds, equal
    opportunity), the overall error rate (accuracy parity, client spreads). A measured violation
    near its floor is indistinguishable from fairness on this many rows. Groups are simulated on
    the rows that are compared: those of which an attribute is recorded.

    Parameters
    ----------
    tally
        The counts: sizes and overall rates are taken from it.
    draws, seed
        Number of simulated tallies, and their seed.
    notions
        The notions that are measured; by default every registered one.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0] * 50, [1, 0] * 50, sensitive_features=["a"] * 100)
    >>> noise_floor(tally).values["demographic_parity_violation"]
    0.0
    """
    if draws < 1:
        raise ConfigError(f"draws = {draws}; use 1000 or more")
    rng = np.random.default_rng(seed)
    groupings = tally.cells.groupings()
    everyone = compared_counts(tally.counts, groupings) if groupings else tally.counts
    simulated = simulated_fair(everyone, draws, rng)
    by_client = _fair_client_spreads(tally, draws, rng)

    def floor(found: Floats) -> float | None:
        mean = float(found.mean())
        return None if math.isnan(mean) else mean

    def floors(compared: Sequence[Grouping], drawn: Drawn) -> dict[str, float | None]:
        return {
            f"{item.name}_violation": floor(
                violation_of(item, compared).value(drawn[fair_kind(item)])
            )
            for item in decision_notions(notions)
        }

    values = floors(groupings, simulated) if groupings else {}
    values |= {name: floor(found) for name, found in by_client.items()}
    by_attribute = {}
    for grouping in single_groupings(tally.cells):
        own = compared_counts(tally.counts, [grouping])
        same = np.array_equal(own, everyone)
        drawn = simulated if same else simulated_fair(own, draws, rng)
        by_attribute[grouping.name] = floors([grouping], drawn)
    return NoiseFloor(values=values, by_attribute=by_attribute)


def _fair_client_spreads(tally: Tally, draws: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Return draws of each number that compares clients, if all err at the overall rate."""
    rows, fair = (
        np.rint(tally.counts.sum(axis=-1)).astype(np.int64),
        _fair_rates(tally.counts, "error"),
    )
    if not tally.clients:
        return {}
    if len(tally.clients) <= OWN_STRATA:
        drawn = decided(rows.sum(axis=1, keepdims=True), fair, draws, rng)
        return {name: spread.value(drawn) for name, spread in CLIENT_SPREADS.items()}
    sizes = rows.sum(axis=(1, 2))
    if not sizes.all():
        return {name: np.full(draws, np.nan) for name in CLIENT_SPREADS}
    return accuracy_spreads(sizes, np.full(len(sizes), fair[1]), draws, rng)


def verdict(found: Interval | float | None, tolerance: float) -> Verdict:
    """Say whether a violation is within the tolerance.

    Parameters
    ----------
    found
        An interval (met only if all of it is within, not met only if none is), or a bare value.
        An undefined number, None or nan, cannot be told.
    tolerance
        The largest acceptable violation.

    Examples
    --------
    >>> verdict(Interval(0.0, 0.04), 0.05), verdict(Interval(0.02, 0.08), 0.05)
    ('met', 'too few rows to tell')
    """
    if found is None:
        return "too few rows to tell"
    ends = found if isinstance(found, Interval) else Interval(found, found)
    if ends.upper <= tolerance:
        return "met"
    return "not met" if ends.lower > tolerance else "too few rows to tell"


def _group_sizes(rows: NDArray[Any], groupings: Sequence[Grouping]) -> Floats:
    """Return (…, C, 2): of rows (…, C, 2), those of the smallest of these groups with the cell."""
    rows = rows.astype(np.float64)
    smallest = np.broadcast_to(rows.sum(axis=(-2, -1), keepdims=True), rows.shape)
    for grouping in groupings:
        member = grouping.membership.astype(np.float64)
        held = member.T @ (member @ rows)
        smallest = np.where(grouping.compared[:, None], np.minimum(smallest, held), smallest)
    return smallest


def _overall_intervals(tally: Tally, level: float) -> dict[str, Interval | None]:
    table = pooled_table(tally.counts)
    limits = {name: wilson(*p.counts(table), level) for name, p in PROPORTIONS.items()}
    found = {name: _interval(*limits[name]) for name in PROPORTIONS}
    lower, upper = limits["jaccard"]
    found["f1"] = _interval(2.0 * lower / (1.0 + lower), 2.0 * upper / (1.0 + upper))
    hit = PROPORTIONS["true_positive_rate"].value(table)
    miss = PROPORTIONS["false_positive_rate"].value(table)
    hit_low, hit_high = limits["true_positive_rate"]
    miss_low, miss_high = limits["false_positive_rate"]
    balanced = (hit + 1.0 - miss) / 2.0
    down = np.hypot(hit - hit_low, miss_high - miss) / 2.0
    up = np.hypot(hit_high - hit, miss - miss_low) / 2.0
    found["balanced_accuracy"] = _interval(balanced - down, balanced + up)
    return found


def _extreme_client_intervals(tally: Tally, level: float) -> dict[str, Interval | None]:
    names = ("worst_client_accuracy", "best_client_accuracy")
    if not tally.clients:
        return dict.fromkeys(names)
    tables = tally.counts.sum(axis=1).astype(np.float64)
    together = level ** (1.0 / len(tally.clients))
    lower, upper = wilson(*PROPORTIONS["accuracy"].counts(tables), together)
    worst, best = _interval(lower.min(), upper.min()), _interval(lower.max(), upper.max())
    return dict(zip(names, (worst, best), strict=True))


def _table_intervals(tables: Floats, level: float) -> list[Limits]:
    """Return the intervals of each of the (T, 2, 2) tables."""
    limits = {name: wilson(*PROPORTIONS[name].counts(tables), level) for name in TABLE_NUMBERS}
    columns = {name: _interval_column(*ends) for name, ends in limits.items()}
    return table_rows(columns, len(tables))


def _interval_column(lower: Floats, upper: Floats) -> list[Interval | None]:
    return [_interval(*ends) for ends in zip(lower.tolist(), upper.tolist(), strict=True)]


def _interval(lower: Any, upper: Any) -> Interval | None:
    return None if math.isnan(lower) else Interval(float(lower), float(upper))


def wilson(successes: Any, trials: Any, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's lower and upper limits of a share; nan without trials.

    Examples
    --------
    >>> lower, upper = wilson(8, 10)
    >>> round(float(lower), 4), round(float(upper), 4)
    (0.4902, 0.9433)
    """
    z = float(ndtri(0.5 + level / 2.0))
    share, weight = divide(successes, trials), divide(z * z, trials)
    centre = (share + weight / 2.0) / (1.0 + weight)
    half = np.sqrt(share * (1.0 - share) * weight + (weight / 2.0) ** 2) / (1.0 + weight)
    # At 0 or all successes the limit is exactly 0 or 1; the subtraction rounds to 1e-17.
    lower = np.where(share == 0.0, 0.0, np.clip(centre - half, 0.0, 1.0))
    upper = np.where(share == 1.0, 1.0, np.clip(centre + half, 0.0, 1.0))
    return lower, upper


def simulated_fair(counts: NDArray[Any], draws: int, rng: np.random.Generator) -> Drawn:
    """Return, for each kind of fairness, decisions that have it on the rows of the tally."""
    rows = np.rint(counts.sum(axis=-1)).astype(np.int64).sum(axis=0, keepdims=True)
    kinds = ("selection", "label", "error")
    return {kind: decided(rows, _fair_rates(counts, kind), draws, rng) for kind in kinds}


def fair_kind(notion: Notion) -> str:
    """Return the kind of decisions that have no violation: equal in each label suffices or not."""
    whole = any(len(event.labels) == 2 for event in notion.events)
    return notion.statistic if whole else "label"


def _fair_rates(counts: NDArray[Any], kind: str) -> Floats:
    """Return P(ŷ=1 | y) for y = 0, 1 that is exactly fair and keeps the overall rates."""
    table = pooled_table(counts)
    share = {name: float(p.value(table)) for name, p in PROPORTIONS.items()}
    rates = {
        "selection": [share["selection_rate"], share["selection_rate"]],
        "label": [share["false_positive_rate"], share["true_positive_rate"]],
        "error": [1.0 - share["accuracy"], share["accuracy"]],
    }
    # nan only where there are no rows to draw for.
    return np.asarray(np.nan_to_num(rates[kind]))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values by Holm's step-down method; None and nan stay and do not count as tests.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    adjusted = list(p_values)
    tested = [(p, i) for i, p in enumerate(p_values) if p is not None and not math.isnan(p)]
    largest = 0.0
    for rank, (p, i) in enumerate(sorted(tested)):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[i] = largest
    return adjusted
