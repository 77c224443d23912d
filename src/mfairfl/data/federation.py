"""Clients with their encoded rows: what every engine trains and measures on.

A `Federation` also describes who holds what, as plain types, as text and as a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from mfairfl.colours import MUTED, PALETTE, tint
from mfairfl.data.coding import Treated
from mfairfl.data.encoder import Encoder, Inputs
from mfairfl.data.task import Attribute, Task
from mfairfl.errors import DataError
from mfairfl.text import aligned

if TYPE_CHECKING:  # drawing is rare, and matplotlib loads slowly
    from matplotlib.figure import Figure

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Encoded rows: features, label (1 = favourable), cell, and row number in the table."""

    inputs: Inputs
    y: npt.NDArray[np.int8]
    cells: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]

    @property
    def X(self) -> npt.NDArray[np.float32]:  # noqa: N802 - as features are called everywhere
        """The encoded features, (rows, inputs), read-only where they are the federation's own.

        Of an encoder with very many categories (`Encoder.compact`) they are held as indices, and
        this makes a new, large array each time: take a slice first, or use `inputs`.
        """
        return self.inputs.dense()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.y)

    def __getitem__(self, rows: slice) -> Shard:
        """Return consecutive rows as views, without a copy."""
        return Shard(self.inputs[rows], self.y[rows], self.cells[rows], self.rows[rows])

    def take(self, rows: npt.NDArray[np.intp]) -> Shard:
        """Return a copy of the rows at these positions."""
        return Shard(self.inputs.take(rows), self.y[rows], self.cells[rows], self.rows[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """One client and its three shards; validation and test may be empty."""

    name: str
    train: Shard
    validation: Shard
    test: Shard

    def __len__(self) -> int:
        """Return the number of rows in all shards."""
        return sum(len(self.shard(split)) for split in SPLITS)

    def shard(self, split: Split) -> Shard:
        """Return the rows of a split."""
        shard: Shard = getattr(self, split)
        return shard


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Federation:
    """All clients, sorted by name, encoded alike.

    `pool` holds every row once: the train rows of all clients in their order, then the validation
    rows, then the test rows. The clients' shards are slices of it. `notes` say how the data was
    prepared; `warnings` name clients that lack a group, a class or test rows; `treatment` has the
    lines about what was dropped, filled in or made one, by kind.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data import partition, table_from_frame, task_from_roles
    >>> people = pd.DataFrame({"x": range(20), "sex": list("fm") * 10, "hired": [0, 1, 1, 0] * 5})
    >>> task = task_from_roles(people, label="hired", sensitive="sex")
    >>> federation = partition(table_from_frame(people, task), "iid", clients=2)
    >>> print(federation.describe().splitlines()[0])
    frame: 20 rows, 3 features, 2 clients, scheme iid, seed 0
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
    treatment: tuple[Treated, ...] = ()

    def pooled(self, split: Split) -> Shard:
        """Return the rows of all clients in one split, as a slice of `pool`."""
        ends = np.cumsum([0, *(sum(len(c.shard(s)) for c in self.clients) for s in SPLITS)])
        index = SPLITS.index(split)
        return self.pool[int(ends[index]) : int(ends[index + 1])]

    def summary(self) -> dict[str, Any]:
        """Return who holds what, in plain types for JSON; an undefined share or rate is None."""
        return {
            "table": self.table_name,
            "sha256": self.sha256,
            "scheme": self.scheme,
            "seed": self.seed,
            "options": dict(self.options),
            "features": self.pool.inputs.width,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "treatment": [treated._asdict() for treated in self.treatment],
            "clients": [self._count(client) for client in self.clients],
        }

    def describe(self) -> str:
        """Return who holds what as a text table."""
        return _text(self.summary())

    def plot(self, path: str | Path) -> None:
        """Plot who holds what into an image file (PNG, SVG or PDF by its suffix)."""
        try:
            self.figure().savefig(path, dpi=150)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"cannot write the plot {path}: {reason}") from error

    def figure(self) -> Figure:
        """Draw each client's rows by group, one panel per attribute; hatched = favourable label.

        Beyond the palette's length its colours come again, paler.
        """
        return _figure(self.summary())

    def _count(self, client: Client) -> dict[str, Any]:
        shards = {split: client.shard(split) for split in SPLITS}
        y = np.concatenate([shard.y for shard in shards.values()])
        cells = np.concatenate([shard.cells for shard in shards.values()])
        shape = [attribute.size for attribute in self.attributes]
        codes = np.unravel_index(cells, shape) if shape else ()
        groups = {
            attribute.name: {
                group: _counts(y[code == value], len(y))
                for value, group in enumerate(attribute.groups)
            }
            for attribute, code in zip(self.attributes, codes, strict=True)
        }
        sizes: dict[str, int] = {split: len(shard) for split, shard in shards.items()}
        return {"name": client.name, **sizes, **_counts(y, len(y)), "attributes": groups}


def _counts(y: npt.NDArray[np.int8], of: int) -> dict[str, int | float | None]:
    rows, good = len(y), int(y.sum())
    return {
        "rows": rows,
        "share": rows / of if of else None,
        "favourable": good,
        "base_rate": good / rows if rows else None,
    }


def _text(summary: dict[str, Any]) -> str:
    """Write one line per client: sizes, favourable share, share and base rate of each group."""
    clients = summary["clients"]
    groups = [(a, g) for a, of in clients[0]["attributes"].items() for g in of]
    head = ["client", *SPLITS, "favourable"]
    lines = [head + [f"{attribute} {group}" for attribute, group in groups]]
    for client in clients:
        line = [client["name"], *(f"{client[split]:,}" for split in SPLITS)]
        line.append(_percent(client["base_rate"]))
        for attribute, group in groups:
            cell = client["attributes"][attribute][group]
            line.append(f"{_percent(cell['share'])} ({_percent(cell['base_rate'])})")
        lines.append(line)
    rows = sum(client["rows"] for client in clients)
    text = [
        f"{summary['table']}: {rows:,} rows, {summary['features']} features, "
        f"{len(clients)} clients, scheme {summary['scheme']}, seed {summary['seed']}",
        "share of the client's rows (base rate in brackets), '-' where undefined",
    ]
    text += aligned(lines, right=range(1, len(head)))
    text += [f"note: {note}" for note in summary["notes"]]
    return "\n".join([*text, *(f"warning: {warning}" for warning in summary["warnings"])])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _figure(summary: dict[str, Any]) -> Figure:
    # Imported here: plots are rare, and the library takes longer to import than the package.
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    clients = summary["clients"]
    names = [client["name"] for client in clients]
    attributes = list(clients[0]["attributes"])
    size = (3 + 4.0 * len(attributes), 1.8 + 0.35 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(attributes), squeeze=False)[0]
    for panel, attribute in zip(panels, attributes, strict=True):
        groups = list(clients[0]["attributes"][attribute])
        colours = [
            tint(PALETTE[i % len(PALETTE)], 0.5 ** (i // len(PALETTE))) for i in range(len(groups))
        ]
        left = [0] * len(names)
        for group, colour in zip(groups, colours, strict=True):
            cells = [client["attributes"][attribute][group] for client in clients]
            good = [cell["favourable"] for cell in cells]
            other = [cell["rows"] - cell["favourable"] for cell in cells]
            for count, hatch in ((good, "////"), (other, "")):
                panel.barh(names, count, left=left, color=colour, edgecolor="white", hatch=hatch)
                left = [a + b for a, b in zip(left, count, strict=True)]
        keys = [Patch(facecolor=colour, edgecolor="white") for colour in colours]
        keys.append(Patch(facecolor=MUTED, edgecolor="white", hatch="////"))
        panel.legend(keys, [*groups, "favourable label"], fontsize="small")
        panel.set_title(f"{summary['table']}, {summary['scheme']}: {attribute}")
        panel.set_xlabel("rows")
        panel.invert_yaxis()
    return figure
