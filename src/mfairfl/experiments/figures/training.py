"""Pictures of many runs: convergence, every client's accuracy, multipliers.

From frames to files; legible in black and white. Each picture is written twice, as SVG and as PNG,
and the same frame gives the same bytes. Accuracy against violation is in `pareto`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mfairfl.errors import DataError, unknown
from mfairfl.experiments.figures.histories import NUMBERS, trained_rounds
from mfairfl.experiments.figures.style import (
    DPI,
    STYLE,
    Look,
    legend_below,
    looks,
    need,
    once,
    save_both,
)

__all__ = [
    "draw_client_bars",
    "draw_convergence",
    "draw_multipliers",
    "plot_client_bars",
    "plot_convergence",
    "plot_multipliers",
]


def draw_convergence(
    history: pd.DataFrame, path: str | Path, *, data: Sequence[str], protocol: str
) -> None:
    """Draw accuracy and the clients' spread over epochs into `path` as .svg and .png.

    Parameters
    ----------
    history
        As for `epochs_to_best`: test numbers of every round of every run.

    Examples
    --------
    >>> draw_convergence(history, "s1", data=["adult"], protocol="40x5")  # doctest: +SKIP
    """
    save_both(plot_convergence(history, data=data, protocol=protocol), path)


@rc_context(STYLE)
def plot_convergence(history: pd.DataFrame, *, data: Sequence[str], protocol: str) -> Figure:
    """Return the figure of `draw_convergence`: a column a data set, from the first round on.

    Lines are means over seeds and end where a seed has no more rounds; bands reach from the lowest
    to the highest seed. The frame may cut bands in the first tenth of the epochs, never a line.
    """
    trained = trained_rounds(history)
    trained = trained[trained["protocol"] == protocol]
    for label in data:
        if label not in set(trained["data"]):
            known = unknown("data", label, set(trained["data"]))
            raise DataError(f"frame: no runs of protocol {protocol}: {known}")
    styles = looks(history["strategy"])
    size = max(6.5, 1 + 3.6 * len(data)), 7.6
    figure = Figure(figsize=size, layout="constrained", dpi=DPI)
    panels = figure.subplots(2, len(data), sharex="col", squeeze=False)
    for column, label in zip(panels.T, data, strict=True):
        rows = trained[trained["data"] == label]
        for panel, name in zip(column, NUMBERS, strict=True):
            _plot_history(panel, rows, name, styles)
        column[0].set_title(label)
        column[1].set_xlabel("epoch")
    panels[0, 0].set_ylabel("accuracy")
    panels[1, 0].set_ylabel("client accuracy std")
    legend_below(figure, styles)
    return figure


def _plot_history(panel: Axes, rows: pd.DataFrame, name: str, styles: Mapping[str, Look]) -> None:
    later = 0.1 * float(rows["epoch"].max())
    alpha = min(0.15, 0.4 / rows["strategy"].nunique())  # many bands on one another stay light
    shown: list[float] = []
    for i, (method, look) in enumerate(styles.items()):
        own = rows[rows["strategy"] == method]
        if own.empty:
            continue
        seeds = own.pivot_table(index="epoch", columns="seed", values=name, dropna=False)
        mean, low, high = (
            getattr(seeds, reduce)(axis=1, skipna=False) for reduce in ("mean", "min", "max")
        )
        # Marks of different methods stand at different epochs, so that none hides another.
        step = max(1, len(seeds) // 6)
        panel.plot(
            seeds.index, mean, label=method, color=look.shade, linestyle=look.dashes,
            linewidth=1.6 if look.marker == "*" else 1.0, marker=look.marker,
            markersize=0.75 * look.size, markerfacecolor=look.fill, markevery=(i % step, step),
            zorder=4 if look.marker == "*" else 3,
        )  # fmt: skip
        if seeds.shape[1] > 1:
            panel.fill_between(seeds.index, low, high, color="0.4", alpha=alpha, linewidth=0)
        shown += [*mean, *low[low.index > later], *high[high.index > later]]
    ends = [value for value in shown if not math.isnan(value)]
    if not ends:
        panel.text(0.5, 0.5, "undefined", transform=panel.transAxes, ha="center", va="center")
        return
    # One bad seed of the first rounds would leave no room for the rest: its band is cut.
    pad = 0.05 * (max(ends) - min(ends)) or 0.01
    panel.set_ylim(min(ends) - pad, max(ends) + pad)
    panel.grid(color="0.9", linewidth=0.6)


def draw_multipliers(rounds: pd.DataFrame, path: str | Path) -> None:
    """Draw multipliers over rounds into `path` as .svg and .png.

    Parameters
    ----------
    rounds
        Columns round, cell, value as of `multiplier_history`; for several runs also a column run
        with their names, a panel each.

    Examples
    --------
    >>> draw_multipliers(multiplier_history("runs/adult"), "multipliers")  # doctest: +SKIP
    """
    save_both(plot_multipliers(rounds), path)


@rc_context(STYLE)
def plot_multipliers(rounds: pd.DataFrame) -> Figure:
    """Return the figure of `draw_multipliers`."""
    need(rounds, ["round", "cell", "value"])
    named = "run" in rounds.columns
    key = ["run", "round", "cell"] if named else ["round", "cell"]
    once(rounds, key, "tell runs apart by a column 'run'")
    runs = {str(name): rows for name, rows in rounds.groupby("run", sort=False)} if named else {}
    runs = runs or {"": rounds}
    figure = Figure(figsize=(8, 0.8 + 2.4 * len(runs)), layout="constrained", dpi=DPI)
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, rows) in zip(panels, runs.items(), strict=True):
        cells = rows.groupby("cell", sort=False)
        for (cell, own), look in zip(cells, looks(map(str, cells.groups)).values(), strict=True):
            step = max(1, len(own) // 8)
            panel.plot(
                own["round"], own["value"], label=str(cell).replace("_", " "), color="black",
                linestyle=look.dashes, linewidth=1.0, marker=look.marker, markersize=5,
                markerfacecolor=look.fill, markevery=step,
            )  # fmt: skip
        panel.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
        panel.set_title(name)
        panel.set_ylabel("multiplier")
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def draw_client_bars(clients: pd.DataFrame, path: str | Path) -> None:
    """Draw every client's accuracy under every method into `path` as .svg and .png.

    Parameters
    ----------
    clients
        Columns data, strategy, client, seed, accuracy; one row for each client of each run.

    Examples
    --------
    >>> draw_client_bars(clients, "clients")  # doctest: +SKIP
    """
    save_both(plot_client_bars(clients), path)


@rc_context(STYLE)
def plot_client_bars(clients: pd.DataFrame) -> Figure:
    """Return the figure of `draw_client_bars`: a panel a data set, bars side by side a client.

    Lines on bars are standard deviations over seeds. The axis starts above 0, which it says:
    from 0 on, what tells methods apart would be too small to see.
    """
    keys = ["data", "strategy", "client", "seed"]
    need(clients, [*keys, "accuracy"])
    once(clients, keys, "keep one split, protocol and notion")
    labels, styles = list(dict.fromkeys(clients["data"])), looks(clients["strategy"])
    most = int(clients.groupby("data")["client"].nunique().max())
    size = max(6.5, 1.5 + 0.16 * most * (len(styles) + 1.5)), 1 + 2.4 * len(labels)
    figure = Figure(figsize=size, layout="constrained", dpi=DPI)
    panels = figure.subplots(len(labels), 1, squeeze=False)[:, 0]
    for panel, label in zip(panels, labels, strict=True):
        _plot_bars(panel, clients[clients["data"] == label], styles)
        panel.set_title(label)
    legend_below(figure, styles)
    return figure


def _plot_bars(panel: Axes, rows: pd.DataFrame, styles: Mapping[str, Look]) -> None:
    names = list(dict.fromkeys(rows["client"]))
    methods = [name for name in styles if name in set(rows["strategy"])]
    width = 0.84 / len(methods)
    for i, method in enumerate(methods):
        by = rows[rows["strategy"] == method].groupby("client")["accuracy"]
        places = np.arange(len(names)) + width * (i - (len(methods) - 1) / 2)
        look = styles[method]
        panel.bar(
            places, by.mean().reindex(names), width, yerr=by.std().reindex(names), label=method,
            color=look.face, hatch=look.hatch, edgecolor="black", linewidth=0.6,
            error_kw={"elinewidth": 0.9, "capsize": 1.5, "ecolor": look.over},
        )  # fmt: skip
    each = rows.groupby(["client", "strategy"])["accuracy"]
    low = float((each.mean() - each.std().fillna(0.0)).min())
    start = max(0.0, math.floor(20 * (low - 0.02)) / 20)
    panel.set_ylim(bottom=start)
    panel.set_ylabel(f"accuracy (from {start:g} on)" if start else "accuracy")
    panel.set_xticks(range(len(names)), names)
    panel.grid(axis="y", color="0.85", linewidth=0.6)
    panel.set_axisbelow(True)
