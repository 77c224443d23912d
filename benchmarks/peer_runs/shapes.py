"""The shapes that are compared, and their rows: Adult, or rows drawn from it with replacement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import mfairfl
from mfairfl.data import Federation

__all__ = ["SHAPES", "Shape", "federation_of", "write_rows"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A federation and a model; `rows` are the train rows of each of `clients`, if not Adult's."""

    title: str
    hidden: tuple[int, ...]
    batch: int
    clients: int = 5
    rows: int | None = None
    drawn: int = 5


SHAPES = {
    "silos": Shape("Adult, 5 clients (split high), 4 × 32, batch 512", (32,) * 4, 512),
    "small-batch": Shape("Adult, 5 clients (split high), 4 × 64, batch 128", (64,) * 4, 128),
    "500": Shape("500 clients × 80 rows, 4 × 32, batch 32", (32,) * 4, 32, 500, 80, 500),
    "5000": Shape(
        "5,000 clients × 20 rows, 50 drawn each round, 4 × 32, batch 32",
        (32,) * 4,
        32,
        5000,
        20,
        50,
    ),
}


def federation_of(shape: Shape) -> Federation:
    """Return the clients, a fifth of whose rows is held out for measuring; always the same."""
    table = mfairfl.load_dataset("adult")
    if shape.rows is None:
        return mfairfl.partition(table, "high", seed=0)
    count = shape.clients * round(shape.rows / 0.8)
    drawn = np.random.default_rng(0).integers(len(table), size=count)
    many = replace(
        table,
        X=table.X.iloc[drawn].reset_index(drop=True),
        y=table.y[drawn],
        groups=table.groups[drawn],
    )
    return mfairfl.partition(many, "iid", clients=shape.clients, seed=0)


def write_rows(shape: Shape, path: Path) -> int:
    """Write every client's train rows as the others read them; return their number."""
    shards = [client.train for client in federation_of(shape).clients]
    ends = np.cumsum([len(shard) for shard in shards])
    X = np.concatenate([shard.X for shard in shards]).astype(np.float32)
    y = np.concatenate([shard.y for shard in shards]).astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, X=X, y=y, ends=ends)
    return len(y)
