"""One server step of mFairFL, from K updates of m weights to the new direction, on one thread.

Compares, side by side in one run, the Gram matrix, the coefficients and the weighted sum with

(a) Algorithm 2 as printed: client after client, target after target, on the updates themselves
    (cosine, then one update of the vector where it conflicts). Where it would take long it is
    extrapolated from a few clients and marked †. The largest relative difference of a client's
    adjusted update is printed, for the clients that were timed.
(b) the bare float32 product G Gᵀ, which NumPy hands to BLAS as a symmetric product: what no
    computation of the cosines can undercut; (a)/(b) is the most that can be gained over (a).

Updates are float32 and come as a list of vectors, as the round loop hands them over. Memory is
the peak of what is allocated on top of the updates, as a multiple of the updates. Times are the
best of several alternating repetitions; only ratios are meant to be compared.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mfairfl.geometry import Conflicts, diminish_conflicts, gram_matrix, rescaling, weighted_sum

SIZES = [(5, 10_000), (50, 10_000), (500, 10_000), (5, 10**6), (50, 10**6), (500, 10**6)]
AIMS = {
    (5, 10**6): "aim: memory ≤ 1.3",
    (50, 10**6): "aim: (a) ≥ 100, (b) ≤ 1.5, memory ≤ 1.3",
    (500, 10**6): "aim: (b) ≤ 1.5, memory ≤ 1.3",
}
BETA, DELTA, GOAL = 0.8, 0.1, 0.05
PATIENCE = 20.0  # seconds (a) may take before it is extrapolated


def conflicts_of(updates: Sequence[np.ndarray]) -> tuple[Conflicts, np.ndarray]:
    count = len(updates)
    goals = np.full((count, count), GOAL)
    gram = gram_matrix(updates)
    return diminish_conflicts(gram, np.arange(count), goals, beta=BETA, delta=DELTA), gram


def step(updates: Sequence[np.ndarray]) -> np.ndarray:
    found, gram = conflicts_of(updates)
    return weighted_sum(updates, rescaling(gram, found.coefficients) * found.coefficients)


def adjusted(client: int, updates: Sequence[np.ndarray]) -> np.ndarray:
    """Return one client's update after the loop over all targets; losses ascend with clients."""
    a = updates[client].copy()
    sine_goal = np.sqrt(1 - GOAL**2)
    for i, g in enumerate(updates):
        if i == client:
            continue
        norm, target_norm = np.linalg.norm(a), np.linalg.norm(g)
        cosine = (a @ g) / (norm * target_norm)
        if cosine < GOAL:
            sine = np.sqrt(1 - cosine**2)
            a -= (norm * (cosine * sine_goal - GOAL * sine) / (target_norm * sine_goal)) * g
    return a


def loop(updates: Sequence[np.ndarray]) -> tuple[float, bool, float]:
    """Return the seconds of (a), whether they are extrapolated, and the largest difference."""
    rows = conflicts_of(updates)[0].rows
    clients = int(BETA * len(updates) + 0.5)
    spent, done, apart = 0.0, 0, 0.0
    for client in range(clients):
        start = time.perf_counter()
        a = adjusted(client, updates)
        spent += time.perf_counter() - start
        done += 1
        ours = weighted_sum(updates, rows[client])
        apart = max(apart, float(np.linalg.norm(a - ours) / np.linalg.norm(ours)))
        if spent > 1 and spent / done * clients > PATIENCE:
            break
    return spent / done * clients, done < clients, apart


def peak(function: Callable[[], object]) -> int:
    """Return the bytes a call allocates at most."""
    tracemalloc.start()
    function()
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size


def best(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Return each function's best time over alternating repetitions."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def compare(clients: int, width: int, repeats: int) -> None:
    G = np.empty((clients, width), dtype=np.float32)
    rng = np.random.default_rng(0)
    for row in G:
        rng.standard_normal(out=row, dtype=np.float32)
    updates = list(G)
    repeats = max(2, repeats // 8) if G.nbytes > 10**9 else repeats
    ours, bare = best(repeats, partial(step, updates), lambda: G @ G.T)
    seconds, guessed, apart = loop(updates)
    memory = 1 + peak(partial(step, updates)) / G.nbytes
    print(
        f"{clients:>5} {width:>9,} {ours:9.4f} {seconds:10.3f}{'†' if guessed else ' '} "
        f"{bare:9.4f} {seconds / ours:9.1f} {seconds / bare:9.1f} {ours / bare:9.2f} "
        f"{memory:7.2f} {apart:9.1e}   "
        f"{AIMS.get((clients, width), '')}".rstrip()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=16)
    repeats = parser.parse_args().repeats
    print(f"numpy {np.__version__}, one thread, best of {repeats} (an eighth for 2 GB of updates)")
    print(f"{'K':>5} {'m':>9} {'ours s':>9} {'(a) loop':>10}  {'(b) bare':>9}", end=" ")
    print(f"{'(a)/ours':>9} {'(a)/(b)':>9} {'ours/(b)':>9} {'memory':>7} {'max diff':>9}")
    for clients, width in SIZES:
        compare(clients, width, repeats)


if __name__ == "__main__":
    main()
