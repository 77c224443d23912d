"""One local epoch of an Adult-sized federation of 5 clients on one thread, and how it grows.

Compares, side by side in one run, `mfairfl.training.trainer.run_works` with

(a) the sequential PyTorch loop a user would write: same model, same AdamW, same batches, client
    after client (the largest difference of the resulting weights is printed), with PyTorch's
    own settings but one thread, and
(b) the bare batched matrix products of the hidden layers, forward and backward, in the same
    shapes and number: what no trainer of this design can undercut. The head (one column) is left
    out of the limit.

Then the time per row of training and of measuring, with the same rows at more and more clients.
Times are processor time, the best of several alternating repetitions; only ratios are meant to be
compared, and each line that has an aim says so.
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
from mfairfl.training.batches import Deck, RowStore
from mfairfl.training.execution import steady_arithmetic
from mfairfl.training.measure import Probe, measure
from mfairfl.training.plan import Plan, Recipe
from mfairfl.training.trainer import Work, run_works

FEATURES, ROWS = 91, 40_000  # of the made-up rows that are dealt to more and more clients
SHAPES = [((64, 64), 512), ((32, 32, 32, 32), 512), ((64, 64, 64, 64), 128)]
AIMS = {
    ((64, 64), 512): "aim: ours/(b) ≤ 1.5",
    ((32, 32, 32, 32), 512): "aim: (a)/ours ≥ 2.5",
    ((64, 64, 64, 64), 128): "aim: (a)/ours ≥ 4",
}


def works_for(model: MLP, plan: Plan, ranges: Sequence[range]) -> list[Work]:
    start = model.init(stream(0, "init"))
    return [
        Work(plan=plan, start=start, rows=rows, rng=stream(0, "batches", k))
        for k, rows in enumerate(ranges)
    ]


def stacked(model: MLP, plan: Plan, ranges: Sequence[range], store: RowStore) -> None:
    run_works(works_for(model, plan, ranges), model, store)


def sequential(
    model: MLP, plan: Plan, ranges: Sequence[range], store: RowStore
) -> list[np.ndarray]:
    """Train client after client, as one would without a framework."""
    ends, o = [], plan.optimizer
    loss_of = nn.BCEWithLogitsLoss()
    for work in works_for(model, plan, ranges):
        net = model.to_module(work.start)
        optimizer = torch.optim.AdamW(net.parameters(), lr=o.lr, weight_decay=o.weight_decay)
        order = torch.from_numpy(work.rng.permutation(len(work.rows)) + work.rows.start)
        for index in order.split(plan.batch_size):
            optimizer.zero_grad()
            loss_of(net(store.X[index]).squeeze(1), store.y[index]).backward()
            optimizer.step()
        ends.append(flatten(net))
    return ends


def flatten(net: nn.Module) -> np.ndarray:
    parts = []
    for layer in net.children():
        if isinstance(layer, nn.Linear):
            parts += [layer.weight.detach().T.reshape(-1), layer.bias.detach()]
    return torch.cat(parts).numpy()


def products(model: MLP, plan: Plan, ranges: Sequence[range]) -> Callable[[], None]:
    """Return the bare products of one epoch: forward, weight and input gradients."""
    decks = [Deck(rows, plan.batch_size, None) for rows in ranges]
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


def steadily(function: Callable[[], object]) -> None:
    """Call a function in the arithmetic that runs use."""
    with steady_arithmetic():
        function()


def best(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Return each function's best processor time over alternating repetitions."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            times[i] = min(times[i], time.process_time() - start)
    return times


def adult_pool() -> tuple[RowStore, list[range], int]:
    federation = mfairfl.partition(mfairfl.load_dataset("adult"), "high", seed=0)
    shards = [(c.train.X, c.train.y, c.train.cells) for c in federation.clients]
    store, ranges = RowStore.from_arrays(shards, 2)
    return store, ranges, federation.pool.inputs.width


def compare(repeats: int) -> None:
    store, ranges, width = adult_pool()
    rows = sum(map(len, ranges))
    print(f"Adult, split high: {rows:,} train rows, {width} features, 5 clients; milliseconds")
    print(f"{'layers':>14} {'batch':>5} {'ours':>8} {'(a) loop':>9} {'(b) limit':>9}", end=" ")
    print(f"{'(a)/ours':>9} {'ours/(b)':>9} {'max diff':>9}")
    for hidden, batch in SHAPES:
        model = MLP(width, hidden)
        plan = Recipe(local_epochs=1, batch_size=batch).plan(0, 1)
        limit = products(model, plan, ranges)
        apart = difference(model, plan, ranges, store)
        arguments = (model, plan, ranges, store)
        ours, bare, loop = best(
            repeats,
            partial(steadily, partial(stacked, *arguments)),
            partial(steadily, limit),
            partial(sequential, *arguments),
        )
        print(
            f"{'×'.join(map(str, hidden)):>14} {batch:>5} {1e3 * ours:8.1f} {1e3 * loop:9.1f} "
            f"{1e3 * bare:9.1f} "
            f"{loop / ours:9.2f} {ours / bare:9.2f} {apart:9.1e}   {AIMS[hidden, batch]}"
        )


def difference(model: MLP, plan: Plan, ranges: Sequence[range], store: RowStore) -> float:
    """Return the largest difference of weights to (a) after three batches of every client.

    Later the two drift apart, as any two orders of summation do: Adam divides tiny gradients of
    resting units by their own size.
    """
    short = [rows[: 3 * plan.batch_size] for rows in ranges]
    works = works_for(model, plan, short)
    ours = [w.start - u for w, u in zip(works, run_works(works, model, store), strict=True)]
    loop = sequential(model, plan, short, store)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, loop, strict=True))


def random_pool(clients: int, rows: int) -> tuple[RowStore, list[range]]:
    """Return so many rows, the same for any number of clients, in equal shards."""
    rng, size = np.random.default_rng(0), rows // clients
    X = rng.random((rows, FEATURES), dtype=np.float32)
    y, cells = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    parts = [slice(k * size, (k + 1) * size) for k in range(clients)]
    return RowStore.from_arrays([(X[part], y[part], cells[part]) for part in parts], 2)


def training_growth(repeats: int) -> None:
    """Print the time per row of one epoch at more and more clients."""
    model = MLP(FEATURES)
    for batch in (512, 32):
        plan = Recipe(local_epochs=1, batch_size=batch).plan(0, 1)
        print(f"\nTraining, 64×64, batch {batch}, {ROWS:,} rows")
        pools = [(clients, *random_pool(clients, ROWS)) for clients in (5, 50, 500)]
        runs = [
            partial(steadily, partial(stacked, model, plan, ranges, store))
            for _, store, ranges in pools
        ]
        times = best(repeats, *runs)
        for (clients, _, _), seconds in zip(pools, times, strict=True):
            aim = "aim ≤ 2" if clients == 500 else ""
            print(per_row(clients, ROWS, seconds, times[0] / ROWS, aim))


def measuring_growth(repeats: int) -> None:
    """Print the time per row of measuring one model at more and more clients."""
    model = MLP(FEATURES)
    weights = model.init(np.random.default_rng(0))
    print("\nMeasuring, 64×64")
    shapes = [(5, ROWS), (500, ROWS), (5000, 100_000)]
    pools = [random_pool(*shape) for shape in shapes]
    runs = [
        partial(
            steadily, partial(measure, [Probe(weights, rows) for rows in ranges], model, store)
        )
        for store, ranges in pools
    ]
    times = best(repeats, *runs)
    for (clients, rows), seconds in zip(shapes, times, strict=True):
        aim = {500: "aim ≤ 2", 5000: "aim ≤ 3"}.get(clients, "")
        print(per_row(clients, rows, seconds, times[0] / ROWS, aim))


def per_row(clients: int, rows: int, seconds: float, first: float, aim: str) -> str:
    """Return a line of a table of growth."""
    return (
        f"{clients:>5} clients × {rows // clients:>5,} rows: {1e3 * seconds:7.1f} ms, "
        f"{1e6 * seconds / rows:5.2f} µs a row, {seconds / rows / first:5.2f} ×   {aim}"
    ).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=6)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"torch {torch.__version__.split('+')[0]}, one thread, best of {repeats}")
    compare(repeats)
    training_growth(repeats)
    measuring_growth(repeats)


if __name__ == "__main__":
    main()
