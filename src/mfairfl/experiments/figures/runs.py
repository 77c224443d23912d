"""Pictures of finished runs, from their files alone; legible in black and white.

The same files give the same bytes: no date, no random identifiers.
"""

from __future__ import annotations

import csv
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

from mfairfl.errors import DataError, RunDirectoryError
from mfairfl.experiments.comparison import Comparison, Line, compare, finished_record, goal_metrics
from mfairfl.files import write_atomically

__all__ = [
    "MARKERS",
    "STYLE",
    "draw_clients",
    "draw_comparison",
    "draw_rounds",
    "number_in",
    "plot_clients",
    "plot_comparison",
    "plot_rounds",
    "read_rows",
    "save",
]

# A client may be called "$A$": names are text, never formulas.
STYLE: Any = {"svg.hashsalt": "mfairfl", "text.parse_math": False}
_SPLITS: dict[str, dict[str, Any]] = {
    "train": {"color": "0.55", "linewidth": 2.5},
    "validation": {"color": "black", "linestyle": ":"},
    "test": {"color": "black", "linewidth": 1.2},
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_COLUMNS = 5


def draw_rounds(run_directory: str | Path, path: str | Path) -> None:
    """Draw accuracy and the goal's violation over rounds into `path` (SVG by its ending).

    Examples
    --------
    >>> draw_rounds("runs/adult", "rounds.svg")  # doctest: +SKIP
    """
    save(plot_rounds(run_directory), Path(path))


def draw_clients(run_directory: str | Path, path: str | Path) -> None:
    """Draw how much each client counted in every round into `path`.

    Examples
    --------
    >>> draw_clients("runs/adult", "clients.svg")  # doctest: +SKIP
    """
    save(plot_clients(run_directory), Path(path))


def draw_comparison(runs: Sequence[str | Path], path: str | Path) -> None:
    """Draw finished runs side by side into `path`: the goal, who is selected, who is served.

    Examples
    --------
    >>> draw_comparison(["runs/fedavg", "runs/mfairfl"], "comparison.svg")  # doctest: +SKIP
    """
    save(plot_comparison(compare(runs)), Path(path))


@rc_context(STYLE)
def plot_rounds(run_directory: str | Path) -> Figure:
    """Return the figure of `draw_rounds`: a panel for accuracy, one for each notion of the goal.

    Round 0, the model before training, would hide the rest by its scale; it is drawn only if
    there is no other. Undefined values leave gaps.
    """
    folder, record = Path(run_directory), finished_record(run_directory)
    rows = read_rows(folder / "rounds.csv")
    rows = rows[1:] or rows
    metrics = ["accuracy", *goal_metrics(record)]
    figure = Figure(figsize=(7, 1 + 2.2 * len(metrics)), layout="constrained")
    panels = figure.subplots(len(metrics), 1, sharex=True)
    for panel, metric in zip(panels, metrics, strict=True):
        _plot_metric(panel, rows, metric)
        _mark_served(panel, record["served"])
    config = record["config"]
    panels[0].set_title(f"{config['strategy']['name']} on {record['data']['name']}")
    panels[0].legend(fontsize="small")
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _plot_metric(panel: Axes, rows: Sequence[dict[str, str]], metric: str) -> None:
    rounds = [int(row["round"]) for row in rows]
    panel.set_ylabel(metric.replace("_", " ").replace(" difference", "\ndifference"))
    for split, style in _SPLITS.items():
        if (column := f"{split}_{metric}") in rows[0]:
            values = [number_in(row[column]) for row in rows]
            panel.plot(rounds, values, marker=".", label=split, **style)
    if not panel.lines:
        said = "not kept round by round; see run.json"
        panel.text(0.5, 0.5, said, transform=panel.transAxes, ha="center", va="center")


def _mark_served(panel: Axes, served: dict[str, Any]) -> None:
    """Mark "round 22", "average 30" or "average of round 21 to round 40"."""
    names = list(dict.fromkeys(served["names"]))  # clients' models come from the same round
    # The curves are those of the plain model: thresholds are fitted when the rounds are over.
    more = " with group thresholds" if served.get("thresholds") else ""
    for i, name in enumerate(names):
        rounds = [int(number) for number in re.findall(r"\d+", name)]
        label = f"served: {', '.join(names)}{more}" if i == 0 else None
        if len(rounds) == 2:
            panel.axvspan(rounds[0], rounds[1], color="0.88", label=label, zorder=0)
        elif rounds:
            panel.axvline(rounds[0], color="black", linestyle="--", linewidth=0.9, label=label)


@rc_context(STYLE)
def plot_clients(run_directory: str | Path) -> Figure:
    """Return the figure of `draw_clients`: a panel a client, its share of train rows dashed.

    A round in which a client did not count leaves a gap. Where the rows of all clients are
    trained on together there is one panel, of that training.
    """
    record = finished_record(run_directory)
    clients: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(Path(run_directory) / "clients.csv"):
        clients.setdefault(row["client"], []).append(row)
    known = {client["name"] for client in record["federation"]["clients"]}
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
        panel.plot(rounds, values, color="black", marker=".", markersize=4, label="coefficient")
        share = sizes[name] / sum(sizes.values())
        label = "share of the train rows, n_k/n"
        panel.axhline(share, color="black", linestyle="--", linewidth=0.9, label=label)
        panel.set_title(name, fontsize="medium")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    for empty in panels.flat[len(clients) :]:
        empty.set_axis_off()
    for panel in panels[-1]:
        panel.set_xlabel("round")
    strategy, data = record["config"]["strategy"]["name"], record["data"]["name"]
    figure.suptitle(f"{strategy} on {data}: how much each client's update counted")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


@rc_context(STYLE)
def plot_comparison(comparison: Comparison) -> Figure:
    """Return the figure of `draw_comparison`: values with intervals, one mark a run.

    Left the goal, who is selected and who of those with the favourable label; right the accuracy
    of everyone, of each group and of each client.
    """
    lines = comparison.lines
    left: dict[str, list[Line]] = {
        "violation of the goal": [line for line in lines if line.metric in comparison.goal],
        "selection rate": [line for line in lines if line.metric == "selection_rate"],
        "true positive rate": [line for line in lines if line.metric == "true_positive_rate"],
    }
    right = [line for line in lines if line.metric == "accuracy"]
    ratios = [len(shown) for shown in left.values()]
    height = 1.6 + 0.14 * (1 + len(comparison.runs)) * max(sum(ratios) + 3, len(right))
    figure = Figure(figsize=(9.5, height), layout="constrained")
    grid = figure.add_gridspec(len(left), 2, height_ratios=ratios)
    for i, (title, shown) in enumerate(left.items()):
        panel = figure.add_subplot(grid[i, 0])
        _plot_lines(panel, shown, comparison.runs)
        panel.set_title(title)
        panel.set_xlim(left=0)
    panel = figure.add_subplot(grid[:, 1])
    _plot_lines(panel, right, comparison.runs)
    panel.set_title("accuracy")
    handles = {
        str(h.get_label()): h for a in figure.axes for h in a.get_legend_handles_labels()[0]
    }
    names = [*comparison.runs, *(name for name in handles if name not in comparison.runs)]
    figure.legend([handles[n] for n in names], names, loc="outside lower center", ncols=6)
    figure.suptitle(f"{comparison.title}; bars are {comparison.level:.0%} intervals")
    return figure


def _plot_lines(panel: Axes, lines: Sequence[Line], runs: Sequence[str]) -> None:
    """Draw every number as a mark with its interval, runs beneath one another."""
    step = 0.6 / len(runs)
    for i, run in enumerate(runs):
        heights = [at + step * (i - (len(runs) - 1) / 2) for at in range(len(lines))]
        numbers = [line.numbers[i] for line in lines]
        for y, number in zip(heights, numbers, strict=True):
            if number.interval is not None:
                panel.plot(number.interval, [y, y], color="black", linewidth=1)
        values = [math.nan if number.value is None else number.value for number in numbers]
        floors = [math.nan if number.floor is None else number.floor for number in numbers]
        # Not clipped: a rate of exactly 0 lies on the frame.
        style: dict[str, Any] = {"linestyle": "", "color": "black", "clip_on": False}
        fill = "white" if i == 0 else str(0.45 * (i % 2))
        mark = MARKERS[i % len(MARKERS)]
        panel.plot(values, heights, marker=mark, markerfacecolor=fill, label=run, **style)
        if not all(map(math.isnan, floors)):
            panel.plot(floors, heights, marker="|", markersize=9, label="noise floor", **style)
    for at in range(1, len(lines)):
        if lines[at].part != lines[at - 1].part:
            panel.axhline(at - 0.5, color="0.6", linewidth=0.8)
    panel.set_yticks(range(len(lines)), [_label(line) for line in lines])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.grid(axis="x", color="0.85", linewidth=0.6)
    panel.set_axisbelow(True)


def _label(line: Line) -> str:
    if line.whom:
        return line.whom
    name = line.metric.removesuffix("_difference").replace("_", " ")
    return "everyone" if line.metric == "accuracy" else name


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV file of the run as text: a client may be called NA or 1."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        rows = []
    if not rows:
        raise RunDirectoryError(f"{path}: missing or empty; restore it or train again")
    return rows


def number_in(text: str) -> float:
    """Return the number in a field of a CSV file; nan if it is empty."""
    return float(text) if text else math.nan


def save(figure: Figure, path: Path) -> None:
    """Write a figure, the kind of file by its ending; the same figure is the same bytes."""
    kind = path.suffix.removeprefix(".")
    data = io.BytesIO()
    try:
        with rc_context(STYLE):
            figure.savefig(data, format=kind, metadata={"Date": None} if kind == "svg" else None)
    except ValueError as error:
        raise DataError(f"cannot draw into {path}: {str(error).splitlines()[0]}") from error
    write_atomically(path, data.getvalue())
