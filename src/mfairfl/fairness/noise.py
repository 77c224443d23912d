"""Noise floors: what a violation is on average when the decisions are exactly fair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.fairness.rates import (
    CLIENT_SPREADS,
    PROPORTIONS,
    Disparity,
    Spread,
    group_spreads,
    pooled_table,
    single_groupings,
)
from mfairfl.fairness.resampling import decided
from mfairfl.fairness.tally import Tally

__all__ = ["NoiseFloor", "noise_floor"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """The mean a violation would have under exact fairness; None where undefined."""

    values: dict[str, float | None]
    by_attribute: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return asdict(self)


def noise_floor(tally: Tally, *, draws: int = 2000, seed: int = 0) -> NoiseFloor:
    """Return what each difference would be on average if the decisions were exactly fair.

    Decisions are drawn anew for the same rows at rates that are equal by construction: the overall
    selection rate (demographic parity), the overall rate of each label (equalized odds, equal
    opportunity), the overall error rate (accuracy parity, client spreads). A measured difference
    near its floor is indistinguishable from fairness on this many rows.

    Parameters
    ----------
    tally
        The counts: sizes and overall rates are taken from it.
    draws, seed
        Number of simulated tallies, and their seed.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0] * 50, [1, 0] * 50, sensitive_features=["a"] * 100)
    >>> noise_floor(tally).values["demographic_parity_difference"]
    0.0
    """
    if draws < 1:
        raise ConfigError(f"draws = {draws}; use 1000 or more")
    rng = np.random.default_rng(seed)
    rows = np.rint(tally.counts.sum(axis=-1)).astype(np.int64)
    groupings = tally.cells.groupings()
    fair = {name: _fair_rates(tally, name) for name in ("selection", "label", "error")}
    simulated = {
        key: decided(rows.sum(axis=0, keepdims=True), rates, draws, rng)
        for key, rates in fair.items()
    }
    by_client = decided(rows.sum(axis=1, keepdims=True), fair["error"], draws, rng)

    def floor(spread: Spread, counts: NDArray[np.int64]) -> float | None:
        mean = float(spread.norm(spread.vectors(counts)).mean())
        return None if math.isnan(mean) else mean

    def floors(spreads: Mapping[str, Disparity]) -> dict[str, float | None]:
        return {
            name: floor(spread, simulated[_fairness_of(spread)])
            for name, spread in spreads.items()
            if not spread.ratio
        }

    values = floors(group_spreads(groupings)) if groupings else {}
    if tally.clients:
        values |= {name: floor(spread, by_client) for name, spread in CLIENT_SPREADS.items()}
    return NoiseFloor(
        values=values,
        by_attribute={
            grouping.name: floors(group_spreads([grouping]))
            for grouping in single_groupings(tally.cells)
        },
    )


def _fairness_of(spread: Disparity) -> str:
    if spread.notion.statistic == "error":
        return "error"
    return "selection" if len(spread.notion.events[0].labels) == 2 else "label"


def _fair_rates(tally: Tally, kind: str) -> Floats:
    """Return P(ŷ=1 | y) for y = 0, 1 that is exactly fair and keeps the overall rates."""
    table = pooled_table(tally.counts)
    share = {name: float(p.value(table)) for name, p in PROPORTIONS.items()}
    rates = {
        "selection": [share["selection_rate"], share["selection_rate"]],
        "label": [share["false_positive_rate"], share["true_positive_rate"]],
        "error": [1.0 - share["accuracy"], share["accuracy"]],
    }
    # nan only where there are no rows to draw for.
    chosen: Floats = np.nan_to_num(np.array(rates[kind]))
    return chosen
