"""One local epoch of an Adult-sized federation, 5 clients × 5 seeds, on one thread.

Compares, side by side in one run, `mfairfl.training.train` with

(a) the sequential PyTorch loop a user would write: same model, same AdamW, same batches, client
    after client (the largest difference of the resulting weights is printed), with PyTorch's
    own settings but one thread, and
(b) the bare batched matrix products of the hidden layers, forward and backward, in the same
    shapes and number: what no trainer of this design can undercut. The head (one column) is left
    out of the limit.

Times are the best of several alternating repetitions; only ratios are meant to be compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

import mfairfl
from mfairfl.models import MLP
from mfairfl.randomness import stream
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Deck, Pool
from mfairfl.training.plan import Plan, Recipe
from mfairfl.training.trainer import Work, run_works

SEEDS = 5
SHAPES = [((64, 64), 512), ((32, 32, 32, 32), 512), ((64, 64, 64, 64), 128)]
AIMS = {
    ((64, 64, 64, 64), 128): "aim: (a) ≥ 4, (b) ≤ 1.6",
    ((64, 64), 512): "aim: (b) ≤ 1.5",
    ((32, 32, 32, 32), 512): "aim: (a) ≥ 2.5",
}


def works_for(model: MLP, plan: Plan, ranges: Sequence[range]) -> list[Work]:
    return [
        Work(plan=plan, start=model.init(stream(seed, "init")), rows=rows, rng=_rng(seed, k))
        for seed in range(SEEDS)
        for k, rows in enumerate(ranges)
    ]


def _rng(seed: int, client: int) -> np.random.Generator:
    return stream(seed, "batches", client)


def stacked(model: MLP, plan: Plan, ranges: Sequence[range], pool: Pool) -> None:
    run_works(works_for(model, plan, ranges), model, pool)


def sequential(model: MLP, plan: Plan, ranges: Sequence[range], pool: Pool) -> list[np.ndarray]:
    """Train client after client, as one would without a framework."""
    ends = []
    loss_of = nn.BCEWithLogitsLoss()
    for seed in range(SEEDS):
        for k, rows in enumerate(ranges):
            net = as_module(model, model.init(stream(seed, "init")))
            o = plan.optimizer
            optimizer = torch.optim.AdamW(net.parameters(), lr=o.lr, weight_decay=o.weight_decay)
            order = torch.from_numpy(_rng(seed, k).permutation(len(rows)) + rows.start)
            for index in order.split(plan.batch_size):
                optimizer.zero_grad()
                loss_of(net(pool.X[index]).squeeze(1), pool.y[index]).backward()
                optimizer.step()
            ends.append(flatten(net))
    return ends


def as_module(model: MLP, weights: np.ndarray) -> nn.Sequential:
    """Return the same network as an ordinary module."""
    layers: list[nn.Module] = []
    widths = (model.inputs, *model.hidden, 1)
    at = 0
    for i, (a, b) in enumerate(pairwise(widths)):
        linear = nn.Linear(a, b)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights[at : at + a * b].reshape(a, b).T.copy()))
            linear.bias.copy_(torch.from_numpy(weights[at + a * b : at + a * b + b]))
        at += a * b + b
        layers += [linear, nn.ReLU()] if i < len(widths) - 2 else [linear]
    return nn.Sequential(*layers)


def flatten(net: nn.Sequential) -> np.ndarray:
    parts = []
    for layer in net:
        if isinstance(layer, nn.Linear):
            parts += [layer.weight.detach().T.reshape(-1), layer.bias.detach()]
    return torch.cat(parts).numpy()


def products(model: MLP, plan: Plan, ranges: Sequence[range]) -> Callable[[], None]:
    """Return the bare products of one epoch: forward, weight and input gradients."""
    decks = [Deck(rows, plan.batch_size, None) for rows in ranges] * SEEDS
    steps = sorted((deck.batches for deck in decks), reverse=True)
    stack, batch = len(decks), decks[0].width
    widths = (model.inputs, *model.hidden)
    H = [torch.randn(stack, batch, width) for width in widths]
    W = [torch.randn(stack, a, b) for a, b in pairwise(widths)]
    D = [torch.empty_like(w) for w in W]
    out = [torch.empty_like(h) for h in H]

    def run() -> None:
        for step in range(steps[0]):
            n = sum(1 for count in steps if count > step)
            for i, w in enumerate(W):
                torch.bmm(H[i][:n], w[:n], out=out[i + 1][:n])
            for i in range(len(W) - 1, -1, -1):
                torch.bmm(H[i][:n].transpose(1, 2), H[i + 1][:n], out=D[i][:n])
                if i:
                    torch.bmm(H[i + 1][:n], W[i][:n].transpose(1, 2), out=out[i][:n])

    return run


def steadily(function: Callable[[], None]) -> None:
    """Call a function in the arithmetic that runs use."""
    with steady_arithmetic():
        function()


def best(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Return each function's best time over alternating repetitions."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def adult_pool() -> tuple[Pool, list[range], int]:
    federation = mfairfl.partition(mfairfl.load_dataset("adult"), "high", seed=0)
    shards = [(c.train.X, c.train.y, c.train.cells) for c in federation.clients]
    pool, ranges = Pool.from_arrays(shards, 2)
    return pool, ranges, federation.pool.inputs.width


def compare(repeats: int) -> None:
    pool, ranges, width = adult_pool()
    rows = sum(map(len, ranges))
    print(f"Adult, split high: {rows:,} train rows × {SEEDS} seeds, {width} features, 5 clients")
    print(f"{'layers':>14} {'batch':>5} {'ours s':>8} {'(a) loop':>9} {'(b) limit':>9}", end=" ")
    print(f"{'(a)/ours':>9} {'ours/(b)':>9} {'max diff':>9}")
    for hidden, batch in SHAPES:
        model = MLP(width, hidden)
        plan = Recipe(local_epochs=1, batch_size=batch).plan(0, 1)
        limit = products(model, plan, ranges)
        apart = difference(model, plan, ranges, pool)
        arguments = (model, plan, ranges, pool)
        ours, bare, loop = best(
            repeats,
            partial(steadily, partial(stacked, *arguments)),
            partial(steadily, limit),
            partial(sequential, *arguments),
        )
        print(
            f"{'×'.join(map(str, hidden)):>14} {batch:>5} {ours:8.3f} {loop:9.3f} {bare:9.3f} "
            f"{loop / ours:9.2f} {ours / bare:9.2f} {apart:9.1e}   {AIMS[hidden, batch]}"
        )


def difference(model: MLP, plan: Plan, ranges: Sequence[range], pool: Pool) -> float:
    """Return the largest difference of weights to (a) after three batches of every client.

    Later the two drift apart, as any two orders of summation do: Adam divides tiny gradients of
    resting units by their own size.
    """
    short = [rows[: 3 * plan.batch_size] for rows in ranges]
    works = works_for(model, plan, short)
    ours = [w.start - o.update for w, o in zip(works, run_works(works, model, pool), strict=True)]
    loop = sequential(model, plan, short, pool)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, loop, strict=True))


def growth(repeats: int) -> None:
    """Cost per row against the number of clients, and against the number of rows."""
    rng = np.random.default_rng(0)
    model = MLP(91)
    plan = Recipe(local_epochs=1).plan(0, 1)
    print("\nGrowth, default shape (32×32×32×32, batch 512), one epoch, ratio to the first line")
    first = 0.0
    for clients, rows in [(5, 40_000), (50, 40_000), (500, 40_000), (5, 10_000), (5, 160_000)]:
        size = rows // clients
        X = rng.random((rows, 91), dtype=np.float32)
        y = rng.integers(0, 2, rows)
        shards = [
            (X[k * size : (k + 1) * size], y[k * size : (k + 1) * size], np.zeros(size, int))
            for k in range(clients)
        ]
        pool, ranges = Pool.from_arrays(shards, 1)
        (seconds,) = best(repeats, partial(steadily, partial(stacked, model, plan, ranges, pool)))
        seconds /= SEEDS
        per_row = seconds / rows
        first = first or per_row
        print(
            f"{clients:>4} clients {rows:>7,} rows: {1e6 * per_row:6.2f} µs a row, "
            f"{per_row / first:5.2f} ×"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=6)
    repeats = parser.parse_args().repeats
    print(f"torch {torch.__version__.split('+')[0]}, one thread, best of {repeats}")
    compare(repeats)
    growth(max(2, repeats // 2))


if __name__ == "__main__":
    main()
