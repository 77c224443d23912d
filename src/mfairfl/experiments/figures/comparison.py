"""The figure of a `Comparison`: every number of every run with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mfairfl.colours import INK, MUTED, PALETTE
from mfairfl.experiments.comparison import Comparison, Line
from mfairfl.experiments.figures.style import legend_below
from mfairfl.runs.figures import MARKERS, STYLE


@rc_context(STYLE)
def plot_comparison(comparison: Comparison) -> Figure:
    """Draw values with their intervals, one mark per run.

    On the left the goal, who is selected, and who of those with the favourable label; on the
    right the accuracy of everyone, of each group and of each client.
    """
    lines = comparison.lines
    left: dict[str, list[Line]] = {
        "violation of the goal": [
            line for line in lines if line.metric in comparison.goal and line.part == "all"
        ],
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
    legend_below(figure, comparison.runs)
    figure.suptitle(f"{comparison.title}; bars are {comparison.level:.0%} intervals")
    return figure


def _plot_lines(panel: Axes, lines: Sequence[Line], runs: Sequence[str]) -> None:
    """Draw every number as a mark with its interval, runs beneath one another."""
    step = 0.6 / len(runs)
    # Not clipped: a rate of exactly 0 lies on the frame.
    point: dict[str, Any] = {"linestyle": "", "clip_on": False}
    for i, run in enumerate(runs):
        colour = PALETTE[i % len(PALETTE)]
        heights = [at + step * (i - (len(runs) - 1) / 2) for at in range(len(lines))]
        numbers = [line.numbers[i] for line in lines]
        for y, number in zip(heights, numbers, strict=True):
            if number.interval is not None:
                panel.plot(number.interval, [y, y], color=colour, linewidth=1.6)
        values = [math.nan if number.value is None else number.value for number in numbers]
        floors = [math.nan if number.floor is None else number.floor for number in numbers]
        mark = MARKERS[i % len(MARKERS)]
        panel.plot(values, heights, marker=mark, color=colour, label=run, **point)
        if not all(map(math.isnan, floors)):
            panel.plot(
                floors, heights, marker="|", markersize=9, markeredgewidth=1.5, color=INK,
                label="noise floor", **point,
            )  # fmt: skip
    for at in range(1, len(lines)):
        if lines[at].part != lines[at - 1].part:
            panel.axhline(at - 0.5, color=MUTED, linewidth=0.8)
    panel.set_yticks(range(len(lines)), [_label(line) for line in lines])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.grid(axis="x")


def _label(line: Line) -> str:
    if line.whom:
        return line.whom
    name = line.metric.removesuffix("_violation").replace("_", " ")
    return "everyone" if line.metric == "accuracy" else name
