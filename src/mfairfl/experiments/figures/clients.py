"""Every client's accuracy under every method, as bars."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from mfairfl.colours import INK
from mfairfl.experiments.figures.style import DPI, MethodStyle, legend_below, method_styles
from mfairfl.experiments.frames import require_columns, require_unique
from mfairfl.runs.figures import STYLE


@rc_context(STYLE)
def plot_client_bars(clients: pd.DataFrame) -> Figure:
    """Draw one panel per data set, the methods' bars side by side for each client.

    Lines on bars are standard deviations over seeds. The axis starts above 0, and its label says
    so: from 0 on, what tells methods apart would be too small to see.

    Parameters
    ----------
    clients : DataFrame
        Columns data, strategy, client, seed, accuracy; one row for each client of each run.

    Examples
    --------
    >>> plot_client_bars(clients)  # doctest: +SKIP
    """
    keys = ["data", "strategy", "client", "seed"]
    require_columns(clients, [*keys, "accuracy"])
    require_unique(clients, keys, "keep one split, protocol and notion")
    labels, styles = list(dict.fromkeys(clients["data"])), method_styles(clients["strategy"])
    most = int(clients.groupby("data")["client"].nunique().max())
    size = max(6.5, 1.5 + 0.16 * most * (len(styles) + 1.5)), 1 + 2.4 * len(labels)
    figure = Figure(figsize=size, layout="constrained", dpi=DPI)
    panels = figure.subplots(len(labels), 1, squeeze=False)[:, 0]
    for panel, label in zip(panels, labels, strict=True):
        _plot_bars(panel, clients[clients["data"] == label], styles)
        panel.set_title(label)
    legend_below(figure, styles)
    return figure


def _plot_bars(panel: Axes, rows: pd.DataFrame, styles: Mapping[str, MethodStyle]) -> None:
    names = list(dict.fromkeys(rows["client"]))
    methods = [name for name in styles if name in set(rows["strategy"])]
    width = 0.84 / len(methods)
    for i, method in enumerate(methods):
        by = rows[rows["strategy"] == method].groupby("client")["accuracy"]
        places = np.arange(len(names)) + width * (i - (len(methods) - 1) / 2)
        style = styles[method]
        bars = panel.bar(
            places, by.mean().reindex(names), width, yerr=by.std().reindex(names), label=method,
            color=style.colour, hatch=style.hatch, edgecolor="white", linewidth=0.6,
            error_kw={"elinewidth": 1.0, "capsize": 1.5, "ecolor": INK},
        )  # fmt: skip
        spread = bars.errorbar.get_children() if bars.errorbar else ()
        for part in spread:  # dark lines on dark bars
            part.set_path_effects([withStroke(linewidth=2.4, foreground="white")])
    each = rows.groupby(["client", "strategy"])["accuracy"]
    low = float((each.mean() - each.std().fillna(0.0)).min())
    start = max(0.0, math.floor(20 * (low - 0.02)) / 20)
    panel.set_ylim(bottom=start)
    panel.set_ylabel(f"accuracy (from {start:g} on)" if start else "accuracy")
    panel.set_xticks(range(len(names)), names)
    panel.grid(axis="y")
