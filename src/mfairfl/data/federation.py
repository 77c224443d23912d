"""Clients with their shards: what every engine trains and measures on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mfairfl.data.attribute import Attribute
from mfairfl.data.encoder import Encoder
from mfairfl.data.portrait import draw, write_text
from mfairfl.data.task import Task

__all__ = ["PARTS", "Client", "Federation", "Part", "Shard"]

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Encoded rows: features, label (1 = favourable), cell, and row number in the table."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int8]
    cells: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.y)

    def __getitem__(self, part: slice) -> Shard:
        """Return consecutive rows as views, without a copy."""
        return Shard(self.X[part], self.y[part], self.cells[part], self.rows[part])


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """One client and its three shards; validation and test may be empty."""

    name: str
    train: Shard
    validation: Shard
    test: Shard

    def __len__(self) -> int:
        """Return the number of rows in all shards."""
        return len(self.train) + len(self.validation) + len(self.test)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Federation:
    """All clients, sorted by name, encoded alike.

    `pool` holds every row once: the train rows of all clients in their order, then the validation
    rows, then the test rows. The clients' shards are slices of it. `notes` tell how the data was
    made; `warnings` name clients that lack a group, a class or test rows.
    """

    clients: tuple[Client, ...]
    pool: Shard
    attributes: tuple[Attribute, ...]
    encoder: Encoder
    task: Task
    table_name: str
    sha256: str
    scheme: str
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def pooled(self, part: Part) -> Shard:
        """Return the rows of all clients in one part, as a slice of `pool`."""
        ends = np.cumsum([0, *(sum(len(getattr(c, p)) for c in self.clients) for p in PARTS)])
        index = PARTS.index(part)
        return self.pool[int(ends[index]) : int(ends[index + 1])]

    def summary(self) -> dict[str, Any]:
        """Return who holds what, in plain types for JSON; an undefined share or rate is None."""
        return {
            "table": self.table_name,
            "sha256": self.sha256,
            "scheme": self.scheme,
            "seed": self.seed,
            "options": dict(self.options),
            "features": self.pool.X.shape[1],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "clients": [self._count(client) for client in self.clients],
        }

    def _count(self, client: Client) -> dict[str, Any]:
        shards = [client.train, client.validation, client.test]
        y = np.concatenate([shard.y for shard in shards])
        cells = np.concatenate([shard.cells for shard in shards])
        codes = np.unravel_index(cells, [attribute.size for attribute in self.attributes])
        groups = {
            attribute.name: {
                group: _counts(y[code == value], len(y))
                for value, group in enumerate(attribute.groups)
            }
            for attribute, code in zip(self.attributes, codes, strict=True)
        }
        sizes: dict[str, int] = {
            part: len(shard) for part, shard in zip(PARTS, shards, strict=True)
        }
        return {"name": client.name, **sizes, **_counts(y, len(y)), "attributes": groups}

    def describe(self) -> str:
        """Return who holds what as a text table."""
        return write_text(self.summary())

    def plot(self, path: str | Path) -> None:
        """Draw who holds what into an image file (PNG, SVG or PDF by its suffix)."""
        draw(self.summary(), Path(path))


def _counts(y: npt.NDArray[np.int8], of: int) -> dict[str, int | float | None]:
    rows, good = len(y), int(y.sum())
    return {
        "rows": rows,
        "share": rows / of if of else None,
        "favourable": good,
        "base_rate": good / rows if rows else None,
    }
