"""Curves over rounds: accuracy, the clients' spread, multipliers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mfairfl.colours import MUTED
from mfairfl.errors import DataError, require_known
from mfairfl.experiments.figures.style import DPI, MethodStyle, legend_below, method_styles
from mfairfl.experiments.frames import require_columns, require_unique
from mfairfl.experiments.histories import NUMBERS, trained_rounds
from mfairfl.runs.figures import STYLE


@rc_context(STYLE)
def plot_convergence(history: pd.DataFrame, *, data: Sequence[str], protocol: str) -> Figure:
    """Draw accuracy and the clients' spread over epochs, one column per data set.

    Lines are means over seeds and end where a seed has no more rounds; bands reach from the lowest
    to the highest seed. The frame may cut bands in the first tenth of the epochs, never a line.

    Parameters
    ----------
    history : DataFrame
        As for `epochs_to_best`: test numbers of every round of every run.

    Examples
    --------
    >>> plot_convergence(history, data=["adult"], protocol="40x5")  # doctest: +SKIP
    """
    trained = trained_rounds(history)
    trained = trained[trained["protocol"] == protocol]
    where = f"frame: no runs of protocol {protocol}"
    require_known("data", data, set(trained["data"]), DataError, where=where)
    styles = method_styles(history["strategy"])
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


def _plot_history(
    panel: Axes, rows: pd.DataFrame, name: str, styles: Mapping[str, MethodStyle]
) -> None:
    later = 0.1 * float(rows["epoch"].max())
    alpha = min(0.15, 0.4 / rows["strategy"].nunique())  # many bands on one another stay light
    shown: list[float] = []
    for i, (method, style) in enumerate(styles.items()):
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
            seeds.index, mean, label=method, color=style.colour, linestyle=style.dashes,
            linewidth=2.0 if style.marker == "*" else 1.3, marker=style.marker,
            markersize=0.75 * style.size, markerfacecolor=style.fill, markevery=(i % step, step),
            zorder=4 if style.marker == "*" else 3,
        )  # fmt: skip
        if seeds.shape[1] > 1:
            panel.fill_between(seeds.index, low, high, color=style.colour, alpha=alpha, lw=0)
        shown += [*mean, *low[low.index > later], *high[high.index > later]]
    ends = [value for value in shown if not math.isnan(value)]
    if not ends:
        panel.text(0.5, 0.5, "undefined", transform=panel.transAxes, ha="center", va="center")
        return
    # One bad seed of the first rounds would leave no room for the rest: its band is cut.
    pad = 0.05 * (max(ends) - min(ends)) or 0.01
    panel.set_ylim(min(ends) - pad, max(ends) + pad)
    panel.grid()


@rc_context(STYLE)
def plot_multipliers(rounds: pd.DataFrame) -> Figure:
    """Draw multipliers over rounds.

    Parameters
    ----------
    rounds : DataFrame
        Columns round, cell, value as of `multiplier_history`; for several runs also a column run
        with their names, one panel each.

    Examples
    --------
    >>> plot_multipliers(multiplier_history("runs/adult"))  # doctest: +SKIP
    """
    require_columns(rounds, ["round", "cell", "value"])
    key = [name for name in ("run", "round", "cell") if name in rounds.columns]
    require_unique(rounds, key, "tell runs apart by a column 'run'")
    rounds = rounds if "run" in rounds.columns else rounds.assign(run="")
    runs = {str(name): rows for name, rows in rounds.groupby("run", sort=False)}
    figure = Figure(figsize=(8, 0.8 + 2.4 * len(runs)), layout="constrained", dpi=DPI)
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, rows) in zip(panels, runs.items(), strict=True):
        cells = rows.groupby("cell", sort=False)
        for (cell, own), style in zip(
            cells, method_styles(map(str, cells.groups)).values(), strict=True
        ):
            step = max(1, len(own) // 8)
            panel.plot(
                own["round"], own["value"], label=str(cell).replace("_", " "),
                color=style.colour, linestyle=style.dashes, linewidth=1.4, marker=style.marker,
                markersize=5, markerfacecolor=style.fill, markevery=step,
            )  # fmt: skip
        panel.axhline(0.0, color=MUTED, linewidth=0.8, zorder=0)
        panel.set_title(name)
        panel.set_ylabel("multiplier")
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
