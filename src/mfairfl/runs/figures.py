"""Figures of one finished run, from its files alone; legible in grey as well.

The same files give the same bytes: no date, no random identifiers.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mfairfl.colours import GRID, INK, PALETTE, tint
from mfairfl.errors import DataError
from mfairfl.files import write_atomically
from mfairfl.runs.history import number_in, read_rows
from mfairfl.runs.record import RunRecord, ServedFacts

# A client may be called "$A$": names are text, never formulas.
STYLE: Any = {
    "svg.hashsalt": "mfairfl",
    "text.parse_math": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK
    ),
}
_SPLITS: dict[str, dict[str, Any]] = {
    "train": {"color": PALETTE[1], "marker": "s", "markersize": 3.5, "linewidth": 1.2},
    "validation": {"color": PALETTE[2], "marker": "^", "markersize": 4, "linestyle": ":"},
    "test": {"color": PALETTE[0], "marker": "o", "markersize": 3.5, "linewidth": 1.8},
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_COLUMNS = 5


@rc_context(STYLE)
def plot_rounds(run_directory: str | Path) -> Figure:
    """Draw accuracy and the violation of each notion of the goal over rounds, a panel each.

    Round 0, the model before training, would hide the rest by its scale; it is drawn only if
    there is no other. Rounds after which not all were measured are passed over; undefined values
    leave gaps.

    Examples
    --------
    >>> save_figure(plot_rounds("runs/adult"), "rounds.svg")  # doctest: +SKIP
    """
    folder, record = Path(run_directory), RunRecord.read(run_directory)
    rows = read_rows(folder / "rounds.csv")
    rows = rows[1:] or rows
    metrics = ["accuracy", *record.goal]
    figure = Figure(figsize=(7, 1 + 2.2 * len(metrics)), layout="constrained")
    panels = figure.subplots(len(metrics), 1, sharex=True)
    for panel, metric in zip(panels, metrics, strict=True):
        _plot_metric(panel, rows, metric)
        _mark_served(panel, record.served)
    panels[0].set_title(f"{record.strategy} on {record.data.name}")
    panels[0].legend(fontsize="small")
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _plot_metric(panel: Axes, rows: Sequence[dict[str, str]], metric: str) -> None:
    panel.set_ylabel(metric.replace("_", " ").replace(" violation", "\nviolation"))
    for split, style in _SPLITS.items():
        if (column := f"{split}_{metric}") in rows[0]:
            measured = [row for row in rows if row[f"{split}_accuracy"]]
            rounds = [int(row["round"]) for row in measured]
            values = [number_in(row[column]) for row in measured]
            panel.plot(rounds, values, label=split, **style)
    panel.grid(axis="y")
    if not panel.lines:
        said = "not kept round by round; see run.json"
        panel.text(0.5, 0.5, said, transform=panel.transAxes, ha="center", va="center")


def _mark_served(panel: Axes, served: ServedFacts) -> None:
    """Mark "round 22", "average 30" or "average of round 21 to round 40"."""
    names = list(dict.fromkeys(served.names))  # clients' models come from the same round
    # The curves are those of the plain model: thresholds are fitted when the rounds are over.
    more = " with group thresholds" if served.thresholds else ""
    for i, name in enumerate(names):
        rounds = [int(number) for number in re.findall(r"\d+", name)]
        label = f"served: {', '.join(names)}{more}" if i == 0 else None
        if len(rounds) == 2:
            panel.axvspan(rounds[0], rounds[1], color=tint(PALETTE[3], 0.3), label=label, zorder=0)
        elif rounds:
            panel.axvline(rounds[0], color=INK, linestyle="--", linewidth=0.9, label=label)


@rc_context(STYLE)
def plot_clients(run_directory: str | Path) -> Figure:
    """Draw how much each client counted in every round, its share of the train rows dashed.

    A round in which a client did not count leaves a gap. Where the rows of all clients are
    trained on together there is one panel, of that training.

    Examples
    --------
    >>> save_figure(plot_clients("runs/adult"), "clients.svg")  # doctest: +SKIP
    """
    record = RunRecord.read(run_directory)
    clients: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(Path(run_directory) / "clients.csv"):
        clients.setdefault(row["client"], []).append(row)
    known = {client.name for client in record.federation.clients}
    clients = {name: rows for name, rows in clients.items() if name not in known} or clients
    sizes = {name: int(rows[-1]["train_rows"]) for name, rows in clients.items()}
    # Near a square for many clients, one line for few.
    across = min(len(clients), max(_COLUMNS, math.isqrt(len(clients))))
    down = math.ceil(len(clients) / across)
    # Wide enough for the title, be there one client only.
    size = max(6.5, 1 + 1.8 * across), 1.2 + 1.6 * down
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for panel, (name, rows) in zip(panels.flat, clients.items(), strict=False):
        rounds = [int(row["round"]) for row in rows]
        values = [number_in(row["coefficient"]) for row in rows]
        panel.plot(rounds, values, color=PALETTE[0], marker="o", markersize=3, label="coefficient")
        share = sizes[name] / sum(sizes.values())
        label = "share of the train rows, n_k/n"
        panel.axhline(share, color=PALETTE[1], linestyle="--", linewidth=1.5, label=label)
        panel.set_title(name, fontsize="medium")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    for empty in panels.flat[len(clients) :]:
        empty.set_axis_off()
    for panel in panels[-1]:
        panel.set_xlabel("round")
    figure.suptitle(
        f"{record.strategy} on {record.data.name}: how much each client's update counted"
    )
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def save_figure(figure: Figure, path: str | Path, *, kinds: Sequence[str] = ()) -> None:
    """Write a figure to a file whose suffix names its type; the same figure is the same bytes.

    Parameters
    ----------
    kinds : sequence of str
        Several file types, for example ``("svg", "png")``; their suffixes are appended to `path`.
    """
    paths = [Path(f"{path}.{kind}") for kind in kinds] or [Path(path)]
    for target in paths:
        kind, data = target.suffix.removeprefix("."), io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else None
        try:
            with rc_context(STYLE):
                figure.savefig(data, format=kind, metadata=metadata)
        except ValueError as error:
            raise DataError(f"cannot draw into {target}: {str(error).splitlines()[0]}") from error
        write_atomically(target, data.getvalue())
