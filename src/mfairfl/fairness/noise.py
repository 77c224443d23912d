"""Noise floors: what a violation is on average when the decisions are exactly fair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import (
    CLIENT_SPREADS,
    PROPORTIONS,
    Spread,
    compared_counts,
    group_violations,
    pooled_table,
    single_groupings,
)
from mfairfl.fairness.tally import Tally

__all__ = ["NoiseFloor", "noise_floor"]

Floats = NDArray[np.float64]
_Decisions = dict[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """The mean a violation would have under exact fairness; None where undefined."""

    values: dict[str, float | None]
    by_attribute: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return asdict(self)


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
        Whose floors; by default every registered notion.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0] * 50, [1, 0] * 50, sensitive_features=["a"] * 100)
    >>> noise_floor(tally).values["demographic_parity_violation"]
    0.0
    """
    if draws < 1:
        raise ConfigError(f"draws = {draws}; use 1000 or more")
    rng = np.random.default_rng(seed)
    rows = np.rint(tally.counts.sum(axis=-1)).astype(np.int64)
    groupings = tally.cells.groupings()
    everyone = compared_counts(tally.counts, groupings) if groupings else tally.counts
    simulated = _simulated(everyone, draws, rng)
    fair = _fair_rates(tally.counts, "error")
    by_client = decided(rows.sum(axis=1, keepdims=True), fair, draws, rng)

    def floor(spread: Spread, counts: NDArray[np.int64]) -> float | None:
        mean = float(spread.norm(spread.vectors(counts)).mean())
        return None if math.isnan(mean) else mean

    def floors(compared: Sequence[Grouping], drawn: _Decisions) -> dict[str, float | None]:
        return {
            name: floor(violation, drawn[_fairness_of(violation.notion)])
            for name, violation in group_violations(compared, notions).items()
        }

    values = floors(groupings, simulated) if groupings else {}
    if tally.clients:
        values |= {name: floor(spread, by_client) for name, spread in CLIENT_SPREADS.items()}
    by_attribute = {}
    for grouping in single_groupings(tally.cells):
        own = compared_counts(tally.counts, [grouping])
        same = np.array_equal(own, everyone)
        drawn = simulated if same else _simulated(own, draws, rng)
        by_attribute[grouping.name] = floors([grouping], drawn)
    return NoiseFloor(values=values, by_attribute=by_attribute)


def _simulated(counts: NDArray[Any], draws: int, rng: np.random.Generator) -> _Decisions:
    """Return, for each kind of fairness, decisions that have it on the rows of the tally."""
    rows = np.rint(counts.sum(axis=-1)).astype(np.int64).sum(axis=0, keepdims=True)
    kinds = ("selection", "label", "error")
    return {kind: decided(rows, _fair_rates(counts, kind), draws, rng) for kind in kinds}


def _fairness_of(notion: Notion) -> str:
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
    chosen: Floats = np.nan_to_num(np.array(rates[kind]))
    return chosen


def decided(
    rows: NDArray[np.int64], rates: Floats, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return (draws, K, C, 2, 2) counts with decisions drawn at P(ŷ=1 | y) = rates[y]."""
    positives = rng.binomial(rows, rates, size=(draws, *rows.shape))
    return np.stack([rows - positives, positives], axis=-1)
