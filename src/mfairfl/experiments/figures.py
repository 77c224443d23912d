"""Figures of many runs: a style for each method, accuracy against violation, clients' bars."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from mfairfl.colours import DASHES, GRID, INK, MUTED, PALETTE, tint
from mfairfl.errors import DataError
from mfairfl.experiments.study_tables import POOLED, POOLED_NOTE
from mfairfl.files import write_atomically

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
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DPI = 160

Frontiers = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""For a data set, violations (rising) and the best accuracy any classifier has at them."""

_POOLED_MARKERS = ("<", ">", "p")
_FILLS = (1.0, 0.0, 0.4)  # how much of the colour a mark is filled with
_HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "oo")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodStyle:
    """How one method is drawn: as a point, as a line and as a bar.

    Parameters
    ----------
    colour
        Of its marks, lines and bars.
    marker, fill, size
        Of its points: full, hollow or half full. No two of 22 methods share marker and filling,
        and no method a marker with a pooled reference, so that they differ in grey as well.
    dashes
        Of its lines, as matplotlib takes them.
    hatch
        Of its bars, white on the colour.
    """

    colour: str
    marker: str
    fill: str
    size: float
    dashes: Any
    hatch: str


def line_style(at: int) -> Any:
    """Return the dashes that go with a colour of the palette, as matplotlib takes them.

    Examples
    --------
    >>> line_style(0), line_style(1)
    ('-', (0, (5, 2)))
    """
    dashes = DASHES[at % len(DASHES)]
    return (0, dashes) if dashes else "-"


def method_styles(
    strategies: Iterable[str], reference: str = "mfairfl", pooled: Sequence[str] = ()
) -> dict[str, MethodStyle]:
    """Return each method's style, `reference` (the star) first, then by appearance.

    Those in `pooled` come last and are black, with markers of their own.

    Examples
    --------
    >>> {name: style.marker for name, style in method_styles(["fedavg", "mfairfl"]).items()}
    {'mfairfl': '*', 'fedavg': 'o'}
    """
    names = list(dict.fromkeys(strategies))
    look: dict[str, Any] = {"colour": PALETTE[0], "fill": PALETTE[0], "dashes": "-", "hatch": ""}
    star = MethodStyle(**look, marker="*", size=12)
    styles = {reference: star} if reference in names else {}
    first = len(styles)  # the star's colour, dashes and hatching are its own
    marks = [mark for mark in MARKERS if mark != "*"]
    for i, name in enumerate(name for name in names if name not in (reference, *pooled)):
        at = first + i % (len(PALETTE) - first)
        styles[name] = MethodStyle(
            colour=PALETTE[at],
            marker=marks[i % len(marks)],
            fill=tint(PALETTE[at], _FILLS[i // len(marks) % len(_FILLS)]),
            size=6.5,
            dashes=line_style(at),
            hatch=_HATCHES[(first + i) % len(_HATCHES)],
        )
    for name, marker in zip(pooled, _POOLED_MARKERS, strict=False):
        styles[name] = replace(star, colour=INK, fill=INK, marker=marker, size=8)
    return styles


def legend_below(figure: Figure, first: Iterable[str] = (), *, title: str = "") -> None:
    """Put one legend for all panels below them, the names in `first` at its beginning."""
    handles = {
        str(label): handle
        for panel in figure.axes
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    order = [name for name in first if name in handles]
    order += [name for name in handles if name not in order]
    across = max(1, int(figure.get_figwidth() / 1.7))
    figure.legend(
        [handles[name] for name in order], order, loc="outside lower center", ncols=across,
        fontsize="small", handlelength=3, title=title or None, title_fontsize="small",
    )  # fmt: skip


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


@rc_context(STYLE)
def plot_pareto(
    frame: pd.DataFrame,
    *,
    data: Sequence[str],
    split: str,
    protocol: str,
    notion: str,
    frontiers: Frontiers = MappingProxyType({}),
    reference: str = "mfairfl",
    pooled: Sequence[str] = (),
) -> Figure:
    """Draw accuracy against violation, one panel per data set.

    Bars are standard deviations over seeds. The constant classifier is a line, not a point: a
    violation of 0 has no place on a logarithmic axis. An undefined mean is named, not drawn.

    Parameters
    ----------
    frame : DataFrame
        Results, one row per run. Runs that were trained for no notion (empty `notion`) are drawn
        with those of `notion`.
    frontiers : mapping
        For a data set, violations (rising) and the best accuracy any classifier has at them.
    reference : str
        The method drawn as a star.
    pooled : sequence of str
        References that saw all rows: black marks of their own, and the legend says what they are.

    Examples
    --------
    >>> plot_pareto(results, data=["adult"], split="high", protocol="40x5",
    ...             notion="demographic_parity")  # doctest: +SKIP
    """
    violation = f"{notion}_violation"
    floor = f"floor_{violation}"
    chosen = (frame["split"] == split) & (frame["protocol"] == protocol)
    chosen &= frame["notion"].isin([notion, ""]) & (frame["strategy"] != "constant")
    runs = frame[chosen]
    # A linear axis would crowd violations that differ by an order of magnitude.
    means = runs.groupby(["data", "strategy"])[violation].mean().groupby(level="data")
    low, high = means.min(), means.max()
    logarithmic = bool((low > 0).all() and (high > 10 * low).any())
    figure = Figure(figsize=(max(6.5, 1 + 3.6 * len(data)), 4.8), layout="constrained", dpi=DPI)
    panels = figure.subplots(1, len(data), squeeze=False)[0]
    styles = method_styles(frame["strategy"], reference, pooled)
    for panel, label in zip(panels, data, strict=True):
        rows = runs[runs["data"] == label]
        middle = float(rows[floor].mean())
        panel.axvline(middle, color=MUTED, linewidth=0.9, label="noise floor", zorder=0)
        _plot_points(panel, rows, violation, styles, pooled)
        _set_violation_axis(panel, rows, violation, middle, logarithmic=logarithmic)
        _plot_bounds(panel, rows, frontiers.get(label))
        panel.set_title(label)
        panel.set_xlabel(violation.replace("_", " ") + (", log scale" if logarithmic else ""))
    panels[0].set_ylabel("accuracy")
    legend_below(
        figure, [_label(name, pooled) for name in styles], title=POOLED_NOTE if pooled else ""
    )
    return figure


def _label(name: str, pooled: Sequence[str]) -> str:
    return f"{name} {POOLED}" if name in pooled else name


def _plot_points(
    panel: Axes,
    rows: pd.DataFrame,
    violation: str,
    styles: Mapping[str, MethodStyle],
    pooled: Sequence[str],
) -> None:
    """Draw every method's mean with a bar of one standard deviation to either side.

    The star lies lowest: its tips show below a smaller mark on the same spot.
    """
    undefined = []
    for name, style in styles.items():
        points = rows.loc[rows["strategy"] == name, [violation, "accuracy"]].to_numpy(dtype=float)
        if not len(points):
            continue
        x, y = points.mean(axis=0)
        if math.isnan(x) or math.isnan(y):
            undefined.append(name)
            continue
        wide, high = points.std(axis=0, ddof=1) if len(points) > 1 else (None, None)
        panel.errorbar(
            x, y, xerr=wide, yerr=high, label=_label(name, pooled), linestyle="",
            color=style.colour, elinewidth=0.8, marker=style.marker, markersize=style.size,
            markerfacecolor=style.fill, markeredgewidth=1.1,
            zorder=2.5 if style.marker == "*" else 3,
        )  # fmt: skip
    if undefined:
        note = f"undefined: {', '.join(undefined)}"
        panel.text(0.02, 0.02, note, transform=panel.transAxes, fontsize="small")


def _set_violation_axis(
    panel: Axes, rows: pd.DataFrame, violation: str, floor: float, *, logarithmic: bool
) -> None:
    by = rows.groupby("strategy")[violation]
    # What is undefined or 0 does not tell how far the axis must reach.
    starts = [value for value in [*by.mean(), floor] if value > 0]
    ends = [value for value in [*(by.mean() + by.std().fillna(0.0)), floor] if value > 0]
    if not logarithmic:
        panel.set_xlim(0.0, 1.08 * max(ends, default=1.0))
        return
    # A bar that reaches below 0 ends at the frame.
    panel.set_xscale("log", nonpositive="clip")
    panel.set_xlim(min(starts) / 1.6, 1.3 * max(ends))
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _plot_bounds(
    panel: Axes, rows: pd.DataFrame, frontier: tuple[ArrayLike, ArrayLike] | None
) -> None:
    """Draw the constant classifier and the frontier; one far from the points is a note."""
    by = rows.groupby("strategy")["accuracy"]
    low = float((by.mean() - by.std().fillna(0.0)).min())
    high = float((by.mean() + by.std().fillna(0.0)).max())
    room = max(high - low, 0.01)
    constant = float(rows["constant_accuracy"].mean())
    lines = {"constant classifier": (constant, constant)}
    panel.axhline(constant, color=INK, linestyle=":", label="constant classifier", zorder=1)
    if frontier is not None:
        x, y = (np.asarray(values, dtype=float) for values in frontier)
        panel.plot(
            x, y, color=INK, linewidth=1.2, label="frontier: best of any classifier", zorder=1
        )
        start, end = np.interp(panel.get_xlim(), x, y)
        lines["frontier"] = (float(start), float(end))
    near = [first for first, _ in lines.values() if low - room <= first <= high + room]
    bottom, top = min([low, *near]), max([high, *near])
    above = [_position("↑", name, ends) for name, ends in lines.items() if ends[0] > top]
    below = [_position("↓", name, ends) for name, ends in lines.items() if ends[0] < bottom]
    pad = 0.08 * (top - bottom or 0.01)
    panel.set_ylim(bottom - pad * (1 + len(below)), top + pad * (1 + len(above)))
    for notes, height, side in ((above, 0.985, "top"), (below, 0.015, "bottom")):
        panel.text(
            0.98, height, "\n".join(notes), transform=panel.transAxes, ha="right", va=side,
            fontsize="small",
        )  # fmt: skip


def _position(arrow: str, name: str, ends: tuple[float, float]) -> str:
    """Describe where a line outside the panel is, from its left end to its right end."""
    values = list(dict.fromkeys(f"{value:.3f}" for value in ends))
    return f"{arrow} {name}: {' to '.join(values)}"


@rc_context(STYLE)
def plot_client_bars(clients: pd.DataFrame) -> Figure:
    """Draw one panel per data set, the methods' bars side by side for each client.

    Lines on bars are standard deviations over seeds. The axis starts above 0, and its label says
    so: from 0, the differences between methods would be too small to see.

    Parameters
    ----------
    clients : DataFrame
        Columns data, strategy, client, seed, accuracy; one row for each client of each run.

    Examples
    --------
    >>> plot_client_bars(clients)  # doctest: +SKIP
    """
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
    bars_of = rows.groupby(["client", "strategy"])["accuracy"]
    low = float((bars_of.mean() - bars_of.std().fillna(0.0)).min())
    start = max(0.0, math.floor(20 * (low - 0.02)) / 20)
    panel.set_ylim(bottom=start)
    panel.set_ylabel(f"accuracy (from {start:g} on)" if start else "accuracy")
    panel.set_xticks(range(len(names)), names)
    panel.grid(axis="y")
