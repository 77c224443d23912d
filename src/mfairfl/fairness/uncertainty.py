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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mfairfl.errors import ConfigError
from mfairfl.fairness import rates, resampling
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.tally import Tally

Floats = NDArray[np.float64]
Verdict = Literal["met", "not met", "too few rows to tell"]


class Interval(NamedTuple):
    """A confidence interval.

    Examples
    --------
    >>> interval = Interval(0.7, 0.9)
    >>> interval.upper
    0.9
    """

    lower: float
    upper: float


Limits = dict[str, Interval | None]


@dataclass(frozen=True, slots=True)
class Resampling:
    """Intervals of seminorms from resampled tallies."""

    rng: np.random.Generator
    level: float
    draws: int

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ConfigError(f"level = {self.level}; use a number between 0 and 1, such as 0.95")
        if self.draws < 1:
            raise ConfigError(f"draws = {self.draws}; use 1000 or more")

    def client_spreads(self, numbers: rates.NamedValues, counts: NDArray[Any]) -> Limits:
        """Return an interval around each number that compares clients."""
        tables = counts.sum(axis=1, keepdims=True)
        rows = tables.sum(axis=(2, 3))
        smooth = self._smoothed(tables, rows[..., None])
        away: dict[str, Floats] = {}  # nothing if a client has no rows
        if 0 < len(counts) <= resampling.OWN_STRATA:
            drawn = resampling.resampled(smooth, self.draws, self.rng)
            apart = rates.client_accuracies(drawn) - rates.client_accuracies(smooth)
            away = {name: spread.norm(apart) for name, spread in rates.CLIENT_SPREADS.items()}
        elif rows.size and rows.all():
            sizes, chances = np.rint(rows[:, 0]).astype(np.int64), rates.client_accuracies(smooth)
            away = resampling.accuracy_spreads(sizes, chances, self.draws, self.rng)
        limits: Limits = {}
        for name, spread in rates.CLIENT_SPREADS.items():
            value, _ = numbers[name]
            if not math.isnan(value):
                q = float(np.quantile(away[name], self.level, method="higher"))
                limits[name] = Interval(max(0.0, value - q), min(spread.largest, value + q))
        return limits

    def violations(
        self, notions: Sequence[Notion], groupings: Sequence[Grouping], counts: NDArray[Any]
    ) -> Limits:
        """Return an interval around each notion's violation on these (K, C, 2, 2) counts."""
        tables = resampling.strata(rates.compared_counts(counts, groupings))
        smooth = self._smoothed(tables, _group_sizes(tables.sum(axis=(0, 3)), groupings))
        drawn = resampling.resampled_together(smooth, self.draws, self.rng)[None]
        groups = [resampling.DrawnGroups.of(grouping, drawn) for grouping in groupings]
        limits = {}
        for item in notions:
            vector = rates.violation_of(item, groupings).vector
            around = vector(tables[None]), vector(smooth[None])
            ends = resampling.violation_limits(item, *around, groups, self.level)
            (limits[f"{item.name}_violation"],) = interval_column(*ends)
        return limits

    def client_violations(
        self, notions: Sequence[Notion], groupings: Sequence[Grouping], counts: NDArray[Any]
    ) -> list[Limits]:
        """Return the same for each client's own rows."""
        tables, places = rates.compared_counts(counts, groupings), np.arange(len(counts))
        many = len(counts) > resampling.OWN_STRATA
        if many:  # small clients' tables are often the same
            tables, places = np.unique(tables, axis=0, return_inverse=True)
            places = places.reshape(-1)  # NumPy 2.0 gives it another shape
        smooth = self._smoothed(tables, _group_sizes(tables.sum(axis=3), groupings))
        vectors = [rates.violation_of(item, groupings).vector for item in notions]
        around = [(vector(tables[:, None]), vector(smooth[:, None])) for vector in vectors]
        limits: list[Limits] = [{} for _ in tables]
        for some, drawn in resampling.each_resampled(smooth, self.draws, self.rng, alike=many):
            groups = [resampling.DrawnGroups.of(grouping, drawn) for grouping in groupings]
            for item, (entries, centre) in zip(notions, around, strict=True):
                ends = resampling.violation_limits(
                    item, entries[some], centre[some], groups, self.level
                )
                for place, limit in zip(some.tolist(), interval_column(*ends), strict=True):
                    limits[place][f"{item.name}_violation"] = limit
        return [limits[place] for place in places.tolist()]

    def _smoothed(self, tables: NDArray[Any], sizes: NDArray[Any]) -> Floats:
        return resampling.smoothed(tables, sizes, float(ndtri(0.5 + self.level / 2.0)) ** 2)


class FairDecisions:
    """Noise floors: the mean of each violation if the decisions were exactly fair.

    Decisions are drawn anew for the same rows at rates that are equal by construction: the overall
    selection rate (demographic parity), the overall rate of each label (equalized odds, equal
    opportunity), the overall error rate (accuracy parity, client spreads). A measured violation
    near its floor is indistinguishable from fairness on this many rows. Groups are simulated on
    the rows that are compared: those of which an attribute is recorded.
    """

    def __init__(
        self,
        tally: Tally,
        groupings: Sequence[Grouping],
        draws: int,
        rng: np.random.Generator,
    ) -> None:
        self._tally, self._draws, self._rng = tally, draws, rng
        counts = tally.counts
        self._compared = rates.compared_counts(counts, groupings) if groupings else counts
        self._drawn = _simulated_fair(self._compared, draws, rng)

    def client_spreads(self) -> dict[str, float | None]:
        """Return the floor of each number that compares clients, if all err at the same rate."""
        counts = self._tally.counts
        if not self._tally.clients:
            return {}
        rows = np.rint(counts.sum(axis=-1)).astype(np.int64)
        fair, sizes = _fair_rates(counts, "error"), rows.sum(axis=(1, 2))
        if len(sizes) <= resampling.OWN_STRATA:
            tables = rows.sum(axis=1, keepdims=True)
            drawn = resampling.decided(tables, fair, self._draws, self._rng)
            spreads = {name: spread.value(drawn) for name, spread in rates.CLIENT_SPREADS.items()}
        elif sizes.all():
            chances = np.full(len(sizes), fair[1])
            spreads = resampling.accuracy_spreads(sizes, chances, self._draws, self._rng)
        else:
            spreads = {name: np.full(self._draws, np.nan) for name in rates.CLIENT_SPREADS}
        return {name: _mean(values) for name, values in spreads.items()}

    def violations(
        self, notions: Sequence[Notion], groupings: Sequence[Grouping]
    ) -> dict[str, float | None]:
        """Return the floor of each notion's violation between these groups."""
        compared, drawn = rates.compared_counts(self._tally.counts, groupings), self._drawn
        if not np.array_equal(compared, self._compared):
            drawn = _simulated_fair(compared, self._draws, self._rng)
        floors = {}
        for item in notions:
            values = rates.violation_of(item, groupings).value(drawn[_fair_kind(item)])
            floors[f"{item.name}_violation"] = _mean(values)
        return floors


def _mean(values: Floats) -> float | None:
    mean = float(values.mean())
    return None if math.isnan(mean) else mean


def _simulated_fair(
    counts: NDArray[Any], draws: int, rng: np.random.Generator
) -> dict[str, NDArray[np.int64]]:
    """Return, for each kind of fairness, decisions that have it on the rows of the tally."""
    rows = np.rint(counts.sum(axis=-1)).astype(np.int64).sum(axis=0, keepdims=True)
    kinds = ("selection", "label", "error")
    return {
        kind: resampling.decided(rows, _fair_rates(counts, kind), draws, rng) for kind in kinds
    }


def verdict(violation: Interval | float | None, tolerance: float) -> Verdict:
    """Return whether a violation is within the tolerance.

    Parameters
    ----------
    violation
        An interval (met only if all of it is within, not met only if none is), or a bare value.
        Of an undefined number, None or nan, there are too few rows to tell.
    tolerance
        The largest acceptable violation.

    Examples
    --------
    >>> verdict(Interval(0.0, 0.04), 0.05), verdict(Interval(0.02, 0.08), 0.05)
    ('met', 'too few rows to tell')
    """
    if violation is None:
        return "too few rows to tell"
    lower, upper = violation if isinstance(violation, tuple) else (violation, violation)
    if upper <= tolerance:
        return "met"
    return "not met" if lower > tolerance else "too few rows to tell"


def _group_sizes(rows: NDArray[Any], groupings: Sequence[Grouping]) -> Floats:
    """Return (…, C, 2): of rows (…, C, 2), those of the smallest of these groups with the cell."""
    rows = rows.astype(np.float64)
    smallest = np.broadcast_to(rows.sum(axis=(-2, -1), keepdims=True), rows.shape)
    for grouping in groupings:
        member = grouping.membership.astype(np.float64)
        in_group = member.T @ (member @ rows)
        smallest = np.where(grouping.compared[:, None], np.minimum(smallest, in_group), smallest)
    return smallest


def overall_limits(tally: Tally, level: float) -> Limits:
    """Return the intervals of all shares of rows, of F1 and balanced accuracy, and of clients."""
    table = rates.pooled_table(tally.counts)
    ends = {name: wilson(*p.counts(table), level) for name, p in rates.PROPORTIONS.items()}
    limits = {name: interval(*ends[name]) for name in rates.PROPORTIONS}
    limits["f1"] = interval(*(2.0 * end / (1.0 + end) for end in ends["jaccard"]))
    hit = rates.PROPORTIONS["true_positive_rate"].value(table)
    miss = rates.PROPORTIONS["false_positive_rate"].value(table)
    hit_low, hit_high = ends["true_positive_rate"]
    miss_low, miss_high = ends["false_positive_rate"]
    balanced = (hit + 1.0 - miss) / 2.0
    down = np.hypot(hit - hit_low, miss_high - miss) / 2.0
    up = np.hypot(hit_high - hit, miss - miss_low) / 2.0
    limits["balanced_accuracy"] = interval(balanced - down, balanced + up)
    if tally.clients:
        tables = tally.counts.sum(axis=1).astype(np.float64)
        together = level ** (1.0 / len(tally.clients))
        lower, upper = wilson(*rates.PROPORTIONS["accuracy"].counts(tables), together)
        limits["worst_client_accuracy"] = interval(lower.min(), upper.min())
        limits["best_client_accuracy"] = interval(lower.max(), upper.max())
    return limits


def interval_column(lower: Floats, upper: Floats) -> list[Interval | None]:
    """Return an interval for each pair of limits, None where they are nan."""
    return [interval(*ends) for ends in zip(lower.tolist(), upper.tolist(), strict=True)]


def interval(lower: Any, upper: Any) -> Interval | None:
    """Return the interval with these limits, None if they are nan."""
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
    share, weight = rates.divide(successes, trials), rates.divide(z * z, trials)
    centre = (share + weight / 2.0) / (1.0 + weight)
    half = np.sqrt(share * (1.0 - share) * weight + (weight / 2.0) ** 2) / (1.0 + weight)
    # At 0 or all successes the limit is exactly 0 or 1; the subtraction rounds to 1e-17.
    lower = np.where(share == 0.0, 0.0, np.clip(centre - half, 0.0, 1.0))
    upper = np.where(share == 1.0, 1.0, np.clip(centre + half, 0.0, 1.0))
    return lower, upper


def _fair_kind(notion: Notion) -> str:
    """Return the kind of decisions that have no violation: equal in each label suffices or not."""
    whole = any(len(event.labels) == 2 for event in notion.events)
    return notion.statistic if whole else "label"


def _fair_rates(counts: NDArray[Any], kind: str) -> Floats:
    """Return P(ŷ=1 | y) for y = 0, 1 that is exactly fair and keeps the overall rates."""
    table = rates.pooled_table(counts)
    share = {name: float(p.value(table)) for name, p in rates.PROPORTIONS.items()}
    by_kind = {
        "selection": [share["selection_rate"], share["selection_rate"]],
        "label": [share["false_positive_rate"], share["true_positive_rate"]],
        "error": [1.0 - share["accuracy"], share["accuracy"]],
    }
    # nan only where there are no rows to draw for.
    return np.asarray(np.nan_to_num(by_kind[kind]))


Counted = tuple[float, float]
"""Rows that count as hits, and all rows."""


def share_change(before: Counted, after: Counted, *, level: float = 0.95) -> Interval | None:
    """Return an interval of the change of a share, None if either has no rows.

    Newcombe's hybrid score interval for independent samples (1998, method 10). If both shares are
    of the same rows and hits tend to coincide, as those of two models do, it is too wide.

    Parameters
    ----------
    before, after
        Hits and rows.
    level
        The confidence level.

    Examples
    --------
    >>> change = share_change((48, 80), (56, 70))
    >>> round(change.lower, 4), round(change.upper, 4)
    (0.0524, 0.3339)
    """
    if before[1] <= 0 or after[1] <= 0:
        return None
    old, new = before[0] / before[1], after[0] / after[1]
    old_low, old_high = map(float, wilson(*before, level))
    new_low, new_high = map(float, wilson(*after, level))
    down = math.hypot(new - new_low, old_high - old)
    up = math.hypot(new_high - new, old - old_low)
    return Interval(new - old - down, new - old + up)


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
