"""What follows the last round: every number of the served model, and its record as JSON.

For 5 to 5,000 clients with a train and a test split: processor seconds, what a client costs, the
memory that is allocated on top of the counts, and beside it the intervals computed client by
client, as version 0.5 did (a client's shares, draws and rates of groups one at a time). Up to 100
clients the two must be equal, number by number; the last column says so.

With --coverage: how often the interval of a violation holds the true one if clients have few rows,
when rows are resampled within each client and over all clients together. Above 100 clients the
latter is in use.
"""

from __future__ import annotations

import argparse
import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from mfairfl.data import Attribute
from mfairfl.fairness import Interval, MetricTable, RowScores, ScoreSums, Tally, notion
from mfairfl.fairness.rates import (
    CLIENT_SPREADS,
    PROPORTIONS,
    TABLE_NUMBERS,
    compared_counts,
    decision_notions,
    overall_numbers,
    violation_of,
)
from mfairfl.fairness.resampling import OWN_STRATA
from mfairfl.fairness.results import Measured
from mfairfl.fairness.uncertainty import Resampling, wilson
from mfairfl.runs.record import StoredTable

SHAPES = [(5, 7814), (47, 831), (500, 80), (5000, 20)]  # clients, rows of each
LEVEL, DRAWS = 0.95, 2000
GROUPS = Attribute("sex", ("F", "M")), Attribute("age", ("under 40", "over 40"))
# Rows of each of 400 clients, how much their rates differ, whether groups are unevenly spread.
SMALL = [(1, 0.0, False), (2, 0.0, False), (4, 0.0, False), (20, 0.0, False), (20, 0.25, True)]


def measured(
    clients: int, rows: int, attributes: tuple[Attribute, ...], seed: int
) -> tuple[Tally, dict[str, ScoreSums]]:
    """Return counts and scores of a model that ranks well and selects one group more often."""
    rng, size = np.random.default_rng(seed), 2 ** len(attributes)
    cell = rng.integers(0, size, (clients, rows))
    y = (rng.random((clients, rows)) < 0.25).astype(int)
    logits = rng.normal(size=(clients, rows)) + 2 * y - 1.4 + 0.3 * (cell % 2)
    names = tuple(f"client-{k:04}" for k in range(clients))
    counts = np.zeros((clients, size, 2, 2), dtype=np.int64)
    owner = np.arange(clients)[:, None]
    np.add.at(counts, (owner, cell, y, (logits > 0).astype(int)), 1)
    scores = {
        name: ScoreSums.from_rows(RowScores.from_logits(logits[k]), cell[k], y[k], size=size)
        for k, name in enumerate(names)
    }
    return Tally(counts, names, attributes), scores


def closing(splits: list[tuple[Tally, dict[str, ScoreSums]]]) -> int:
    """Evaluate each split, and return how long the record of it is."""
    majority, _ = splits[0]
    tables = (
        MetricTable.from_tally(tally, scores=scores, majority=majority) for tally, scores in splits
    )
    return sum(len(StoredTable.of(table).model_dump_json(indent=2)) for table in tables)


# ------------------------------------------------------------------ client by client


class Draw(NamedTuple):
    """How tables are drawn."""

    rng: np.random.Generator
    times: int


def one_by_one(tally: Tally) -> dict[str, dict[str, Interval | None]]:
    """Return the intervals of all rows (under ``""``) and of each client."""
    often, found = Draw(np.random.default_rng(0), DRAWS), MetricTable.from_tally(tally, draws=1)
    seldom = Draw(often.rng, DRAWS // 4)
    merged = tally.counts.sum(axis=1, keepdims=True)
    sizes = merged.sum(axis=(2, 3))[..., None]
    result = {"": _spreads(CLIENT_SPREADS, _values(found.overall), merged, sizes, often)}
    groupings = tally.cells.groupings()
    spreads = {f"{n.name}_violation": violation_of(n, groupings) for n in decision_notions()}
    result[""] |= _violations(spreads, _values(found.overall), tally.counts, groupings, often)
    if len(groupings) > 1:
        for one in [*groupings, tally.cells.grouping(*(a.name for a in tally.attributes))]:
            own = {f"{n.name}_violation": violation_of(n, [one]) for n in decision_notions()}
            measures = _values(found.measures(one.name))
            _violations(own, measures, tally.counts, [one], often)
    for client, counts in zip(tally.clients, tally.counts, strict=True):
        table = counts.sum(axis=0).astype(np.float64)
        shares = {name: wilson(*PROPORTIONS[name].counts(table), LEVEL) for name in TABLE_NUMBERS}
        result[client] = {
            name: None if np.isnan(low) else Interval(float(low), float(high))
            for name, (low, high) in shares.items()
        }
        own_numbers = _values(found.by_client[client].numbers)
        result[client] |= _violations(spreads, own_numbers, counts[None], groupings, seldom)
    return result


def _values(numbers: dict[str, Measured]) -> dict[str, float | None]:
    return {name: number.value for name, number in numbers.items()}


def _violations(
    spreads: Any, numbers: Any, counts: Any, groupings: Any, draw: Draw
) -> dict[str, Interval | None]:
    compared = compared_counts(counts, groupings)
    rows = compared.sum(axis=(0, 3)).astype(np.float64)
    sizes = np.full(rows.shape, rows.sum())
    for grouping in groupings:
        for members in grouping.membership:
            held = rows[members].sum(axis=0)
            sizes[members] = np.minimum(sizes[members], held)
    return _spreads(spreads, numbers, compared, sizes, draw)


def _spreads(
    spreads: Any, numbers: Any, counts: Any, sizes: Any, draw: Draw
) -> dict[str, Interval | None]:
    pseudo = float(ndtri(0.5 + LEVEL / 2.0)) ** 2
    table, size = counts.astype(np.float64), sizes[..., None].astype(np.float64)
    smooth = (table * size + 0.5 * pseudo * table.sum(axis=-1, keepdims=True)) / (size + pseudo)
    flat = smooth.reshape(len(smooth), -1)
    total = flat.sum(axis=1, keepdims=True)
    drawn = draw.rng.multinomial(
        np.rint(total[:, 0]).astype(np.int64), flat / total, size=(draw.times, len(flat))
    ).reshape(draw.times, *counts.shape)
    found: dict[str, Interval | None] = dict.fromkeys(spreads)
    for name, spread in spreads.items():
        if (value := numbers[name]) is None:
            continue
        away = spread.vector(drawn) - spread.vector(smooth)
        if name in CLIENT_SPREADS:
            q = np.quantile(spread.norm(away), LEVEL, method="higher")
            low, high = value - q, value + q
        else:
            low, high = _largest(np.abs(spread.vector(counts)), np.abs(away))
        found[name] = Interval(float(max(0.0, low)), float(min(spread.largest, high)))
    return found


def _largest(known: Any, away: Any) -> tuple[float, float]:
    told = np.isnan(away).mean(axis=0) <= (1.0 - LEVEL) / (2 * len(known))
    if not told.any():
        return 0.0, math.inf
    away = away[:, told]
    error = np.sqrt(np.nanmean(np.square(away), axis=0))
    far = np.divide(away, error, out=np.zeros_like(away), where=error > 0).max(axis=-1)
    q = np.quantile(np.where(np.isnan(far), np.inf, far), LEVEL, method="higher")
    high = (known[told] + q * error).max() if told.all() else math.inf
    return (known[told] - q * error).max(), high


def same(tally: Tally, naive: dict[str, dict[str, Interval | None]]) -> str:
    """Say whether the intervals are equal to the last bit; above 100 clients they need not be."""
    if len(tally.clients) > OWN_STRATA:
        return "other draws"
    table = MetricTable.from_tally(tally)
    overall = all(table[name].interval == limits for name, limits in naive.pop("").items())
    by_client = {
        client.name: {name: client[name].interval for name in naive[client.name]}
        for client in table.clients
    }
    return "equal" if overall and by_client == naive else "DIFFERENT"


# ------------------------------------------------------------------ what is printed


def best(repeats: int, function: Callable[[], Any]) -> float:
    """Return the best processor time."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def peak(function: Callable[[], Any]) -> float:
    """Return the megabytes that a call allocates at most."""
    tracemalloc.start()
    function()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 2**20


def compare(attributes: tuple[Attribute, ...], repeats: int) -> None:
    names = " and ".join(one.name for one in attributes)
    print(f"\nbinary {names}, {2 ** len(attributes)} cells")
    head = f"{'clients':>7} {'rows each':>9} {'seconds':>8} {'ms/client':>9} {'growth':>7}"
    print(f"{head} {'memory':>8} {'one by one':>10} {'ratio':>7}")
    first = None
    for clients, rows in SHAPES:
        parts = (rows - rows // 5, rows // 5)
        splits = [measured(clients, n, attributes, seed) for seed, n in enumerate(parts)]
        ours = best(repeats, lambda s=splits: closing(s))
        memory = peak(lambda s=splits: closing(s))
        naive: list[Any] = []
        slow = best(1, lambda s=splits, n=naive: n.extend(one_by_one(t) for t, _ in s))
        each = ours / clients
        first = first or each
        verdicts = {same(tally, own) for (tally, _), own in zip(splits, naive, strict=True)}
        print(
            f"{clients:>7,} {rows:>9,} {ours:8.3f} {1000 * each:9.3f} {each / first:7.3f} "
            f"{memory:5.0f} MB {slow:10.3f} {slow / ours:7.1f}   {', '.join(sorted(verdicts))}"
        )


def coverage(repetitions: int) -> None:
    print(f"\n400 clients, {repetitions} draws of their rows: share of 95% intervals of the")
    print("demographic parity violation that hold the true one, and their mean width")
    print(f"{'rows each':>9}  {'clients':28}{'within clients':>16}{'all together':>18}")
    for rows, differ, uneven in SMALL:
        rng = np.random.default_rng(0)
        share = np.clip(rng.normal(0.35, 0.35 if uneven else 0.0, 400), 0.02, 0.98)
        group = np.stack([share, 1 - share])
        rates = np.clip(np.array([[0.3], [0.5]]) + rng.normal(0, differ, 400), 0.01, 0.99)
        overall = (rates * group).sum() / 400
        truth = np.abs((rates * group).sum(axis=1) / group.sum(axis=1) - overall).max()
        found = np.array([_limits(rows, share, rates, rng) for _ in range(repetitions)])
        holds = ((found[..., 0] <= truth) & (truth <= found[..., 1])).mean(axis=0)
        width = (found[..., 1] - found[..., 0]).mean(axis=0)
        kind = "all alike" if not differ else "rates and groups differ"
        cells = [f"{h:.3f} ({w:.4f})" for h, w in zip(holds, width, strict=True)]
        print(f"{rows:>9}  {kind:28}{cells[0]:>16}{cells[1]:>18}")


def _limits(
    rows: int, share: np.ndarray, rates: np.ndarray, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """Draw every client's rows, and return the limits of both ways."""
    first = rng.binomial(rows, share)
    sizes = np.stack([first, rows - first])
    hits = rng.binomial(sizes, rates)
    counts = np.zeros((len(share), 2, 2, 2), dtype=np.int64)
    counts[:, :, 0] = np.stack([sizes - hits, hits], axis=-1).transpose(1, 0, 2)
    tally = Tally(counts, tuple(map(str, range(len(share)))), GROUPS[:1])
    name, groupings = "demographic_parity_violation", tally.cells.groupings()
    spreads = {name: violation_of(notion("dp"), groupings)}
    numbers, seed = {name: overall_numbers(tally)[name][0]}, int(rng.integers(2**31))
    draw = Draw(np.random.default_rng(seed), 400)
    around = Resampling(np.random.default_rng(seed), LEVEL, 400)
    within = _violations(spreads, numbers, counts, groupings, draw)[name]
    together = around.violations([notion("dp")], groupings, counts)[name]
    return [tuple(one or (0.0, 1.0)) for one in (within, together)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--coverage", type=int, default=0, metavar="REPETITIONS")
    given = parser.parse_args()
    print(
        f"numpy {np.__version__}, one thread, best processor time of {given.repeats}; one by one:"
    )
    print("intervals only, once")
    for attributes in (GROUPS[:1], GROUPS):
        compare(attributes, given.repeats)
    if given.coverage:
        coverage(given.coverage)


if __name__ == "__main__":
    main()
