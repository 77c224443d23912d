"""How often the interval of a violation holds the true one, and where its limits are.

Tables are drawn from known populations. Beside the rule in use (each group has limits of its own,
which hold for all together) stands the one before it: the violation ± one quantile for all groups.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Attribute
from mfairfl.fairness import MetricTable, Tally, notion
from mfairfl.fairness.rates import violation_of
from mfairfl.fairness.resampling import resampled, smoothed

REPETITIONS, DRAWS, LEVEL = 500, 400, 0.95
NAME = "demographic_parity_violation"
# Rows of each group, and its selection rate.
CASES = {
    "two groups, fair": ((600, 400), (0.3, 0.3)),
    "two groups, unfair": ((600, 400), (0.4, 0.2)),
    "four groups, fair, one small": ((600, 200, 160, 40), (0.5, 0.5, 0.5, 0.5)),
    "four groups, one of the large unfair": ((600, 200, 160, 40), (0.76, 0.59, 0.67, 0.65)),
    "four groups, the small one unfair": ((600, 200, 160, 40), (0.5, 0.5, 0.5, 0.2)),
    "a group of five": ((600, 395, 5), (0.4, 0.2, 0.3)),
    "rare decisions": ((3000, 900, 100), (0.02, 0.01, 0.03)),
}


def before(tally: Tally, seed: int) -> tuple[float, float]:
    """Return the interval of earlier versions."""
    spread = violation_of(notion("dp"), tally.cells.groupings())
    smooth = smoothed(tally.counts, tally.counts.sum(axis=(0, 3)), 1.96**2)
    drawn = resampled(smooth, DRAWS, np.random.default_rng(seed))
    away = spread.norm(spread.vector(drawn) - spread.vector(smooth))
    q = float(np.quantile(np.where(np.isnan(away), np.inf, away), LEVEL, method="higher"))
    value = float(spread.value(tally.counts))
    return max(0.0, value - q), min(1.0, value + q)


def drawn_tables(
    rows: tuple[int, ...], rates: tuple[float, ...]
) -> tuple[float, list[NDArray[np.int64]]]:
    """Return the true violation, and tables of as many rows."""
    shares, chance = np.array(rows) / sum(rows), np.array(rates)
    rng = np.random.default_rng(0)
    sizes = rng.multinomial(sum(rows), shares, size=REPETITIONS)
    hits = rng.binomial(sizes, chance)
    counts = np.zeros((REPETITIONS, 1, len(rows), 2, 2), dtype=np.int64)
    counts[:, 0, :, 0] = np.stack([sizes - hits, hits], axis=-1)
    return float(np.abs(chance - shares @ chance).max()), list(counts)


def main() -> None:
    print(f"{REPETITIONS} tables each, {LEVEL:.0%} intervals of {NAME}: share that hold the true")
    print("value, mean lower and upper limit; and the same of one quantile for all groups")
    print(f"{'':38}{'true':>7}{'holds':>8}{'lower':>7}{'upper':>7}{'before':>10}{'':7}{'':7}")
    for case, (rows, rates) in CASES.items():
        truth, tables = drawn_tables(rows, rates)
        group = Attribute("group", tuple(str(g) for g in range(len(rows))))
        now, old = [], []
        for seed, counts in enumerate(tables):
            tally = Tally(counts, ("all",), (group,))
            found = MetricTable.from_tally(tally, draws=DRAWS, seed=seed, notions=[notion("dp")])[
                NAME
            ].interval
            if found is not None:
                now.append(tuple(found))
                old.append(before(tally, seed))
        cells = []
        for limits in (np.array(now), np.array(old)):
            holds = np.mean((limits[:, 0] <= truth + 1e-12) & (truth - 1e-12 <= limits[:, 1]))
            cells.append(f"{holds:8.3f}{limits[:, 0].mean():7.3f}{limits[:, 1].mean():7.3f}")
        print(f"{case:38}{truth:7.3f}{cells[0]}  {cells[1]}")


if __name__ == "__main__":
    main()
