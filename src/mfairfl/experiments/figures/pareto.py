"""Accuracy against violation: every method, its spread over seeds, and what bounds them all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from mfairfl.colours import INK, MUTED
from mfairfl.errors import DataError, require_known
from mfairfl.experiments.figures.style import DPI, MethodStyle, legend_below, method_styles
from mfairfl.experiments.frames import require_columns, require_unique
from mfairfl.experiments.tables.layout import POOLED, POOLED_NOTE
from mfairfl.fairness import notion as notion_of
from mfairfl.runs.figures import STYLE

Frontiers = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""For a data set, violations (rising) and the best accuracy any classifier has at them."""

# Means that differ by more than this factor are drawn on a logarithmic axis.
_DECADE = 10.0


@rc_context(STYLE)
def plot_pareto(
    frame: pd.DataFrame,
    *,
    data: Sequence[str],
    split: str,
    protocol: str,
    notion: str,
    frontiers: Frontiers | None = None,
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
    frontiers : mapping, optional
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
    name = notion_of(notion).name
    violation = f"{name}_violation"
    floor = f"floor_{violation}"
    keys = ["data", "split", "protocol", "strategy", "notion", "seed"]
    require_columns(frame, [*keys, "accuracy", violation, floor, "constant_accuracy"])
    if frame["notion"].isna().any():
        raise DataError("frame: column 'notion' has nan; read it with keep_default_na=False")
    chosen = (frame["split"] == split) & (frame["protocol"] == protocol)
    chosen &= frame["notion"].isin([name, ""]) & (frame["strategy"] != "constant")
    runs = frame[chosen]
    require_unique(runs, ["data", "strategy", "seed"], "keep one run of each")
    where = f"frame: no runs of split {split}, protocol {protocol}, notion {name}"
    require_known("data", data, set(runs["data"]), DataError, where=where)
    runs = runs[runs["data"].isin(data)]
    logarithmic = _spreads(runs, violation)
    figure = Figure(figsize=(max(6.5, 1 + 3.6 * len(data)), 4.8), layout="constrained", dpi=DPI)
    panels = figure.subplots(1, len(data), squeeze=False)[0]
    styles = method_styles(frame["strategy"], reference, pooled)
    for panel, label in zip(panels, data, strict=True):
        rows = runs[runs["data"] == label]
        middle = float(rows[floor].mean())
        panel.axvline(middle, color=MUTED, linewidth=0.9, label="noise floor", zorder=0)
        _plot_points(panel, rows, violation, styles, pooled)
        _set_violation_axis(panel, rows, violation, middle, logarithmic=logarithmic)
        _plot_bounds(panel, rows, (frontiers or {}).get(label))
        panel.set_title(label)
        panel.set_xlabel(violation.replace("_", " ") + (", log scale" if logarithmic else ""))
    panels[0].set_ylabel("accuracy")
    legend_below(
        figure, [_label(name, pooled) for name in styles], title=POOLED_NOTE if pooled else ""
    )
    return figure


def _label(name: str, pooled: Sequence[str]) -> str:
    return f"{name} {POOLED}" if name in pooled else name


def _spreads(runs: pd.DataFrame, violation: str) -> bool:
    """Return whether the violations differ so much that a linear axis would crowd them."""
    means = runs.groupby(["data", "strategy"])[violation].mean().groupby(level="data")
    low, high = means.min(), means.max()
    return bool((low > 0).all() and (high > _DECADE * low).any())


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
        own = rows.loc[rows["strategy"] == name, [violation, "accuracy"]].to_numpy(dtype=float)
        if not len(own):
            continue
        x, y = own.mean(axis=0)
        if math.isnan(x) or math.isnan(y):
            undefined.append(name)
            continue
        wide, high = own.std(axis=0, ddof=1) if len(own) > 1 else (None, None)
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
