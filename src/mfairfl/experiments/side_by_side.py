"""Finished runs side by side: what fairness cost in accuracy, and for whom.

Everything is rebuilt from the runs' records. Runs are compared only if they were measured on the
same rows.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from pydantic import Field

from mfairfl.colours import INK, MUTED, PALETTE
from mfairfl.data.values import DocumentedModel
from mfairfl.display import Block, DisplayTable
from mfairfl.display.numbers import DECIMAL
from mfairfl.errors import ConfigError
from mfairfl.experiments.figures import MARKERS, STYLE, legend_below, save_figure
from mfairfl.experiments.study_tables import POOLED, POOLED_NOTE
from mfairfl.fairness.results import Measured, MetricTable, absent
from mfairfl.fairness.worsened import Worsened, same_rows, worsened
from mfairfl.references import known_reference
from mfairfl.runs.execute import Run
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import (
    ReferenceRecord,
    different_rows,
    distinct_names,
    fit_on_rows_of,
)

GROUP_METRICS = ("accuracy", "selection_rate", "true_positive_rate")
_SCORES = ("roc_auc", "loss", "expected_calibration_error")  # not in records of earlier versions
_WORST = "worst_client_accuracy"
_LABELS = {"loss": "log-loss"}
_GOAL = (
    "* the fairness goal: largest gap between a group's rate and the overall rate; noise floor: "
    "its mean\nif decisions were exactly fair, on this many rows."
)


Part = Literal["all", "group", "client"]


class Line(DocumentedModel):
    """The same number of every run, in the order of the runs."""

    part: Part
    """The rows it is measured on."""
    whom: str = ""
    """The group or the client; empty for all."""
    metric: str
    numbers: tuple[Measured, ...]
    notes: tuple[str, ...] = ()
    """What stands beside each number, for example which client is the worst."""


class Comparison(DocumentedModel):
    r"""Runs side by side: `print` shows the table, `plot` draws it.

    Examples
    --------
    >>> accuracy = Measured(name="accuracy", value=0.86, interval=(0.85, 0.87))
    >>> numbers = (accuracy, Measured(name="accuracy", value=0.84))
    >>> line = Line(part="all", metric="accuracy", numbers=numbers)
    >>> facts = {"title": "adult, 5 clients, 9,769 test rows", "level": 0.95, "goal": ()}
    >>> both = Comparison(runs=("fedavg", "mfairfl"), lines=(line,), **facts)
    >>> print("\n".join(str(both).splitlines()[:3]))
    adult, 5 clients, 9,769 test rows: value, 95% interval, change from fedavg
              fedavg                    mfairfl   change
    accuracy  0.8600  0.8500 to 0.8700  0.8400   -0.0200
    """

    runs: tuple[str, ...]
    """Their names: the strategies, or the folders where those are not distinct. Pooled references
    come last, marked †."""
    title: str
    """Data, number of clients, and number of rows."""
    level: float
    """Confidence level of the intervals."""
    goal: tuple[str, ...]
    """The metrics that some run was asked to lower."""
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()
    """What makes a run's numbers doubtful, with the run's name."""
    worsened: dict[str, list[Worsened]] = Field(default_factory=dict)
    """By the name of each run but the first: what is worse than in the first, beyond chance."""

    def table(self) -> DisplayTable:
        """Return value and interval of each run, and the change from the first."""
        changes = [f"change {name}" for name in self.runs[1:]]
        if len(changes) == 1:
            changes = ["change"]
        rows: list[Sequence[str] | Block] = []
        for _, lines in groupby(self.lines, key=attrgetter("part")):
            rows += [Block()] * bool(rows)
            for line in lines:
                label = _LABELS.get(line.metric, line.metric) + " *" * (line.metric in self.goal)
                rows.append([line.whom, label, *_values(line), *_changes(line)])
                floors = [DECIMAL.if_any(number.noise_floor) for number in line.numbers]
                if any(floors):
                    rows.append(["", "  noise floor", *floors, *[""] * len(changes)])
        heads = ["", "", *self.runs, *changes]
        return DisplayTable.of(heads, rows, numeric=range(2 + len(self.runs), len(heads)))

    def __str__(self) -> str:
        parts = [f"warning: {warning}" for warning in self.warnings]
        parts.append(f"{self.title}: value, {self.level:.0%} interval, change from {self.runs[0]}")
        parts.append(self.table().to_text())
        if self.goal:
            parts.append(_GOAL)
        for name, worse in self.worsened.items():
            parts.append(f"{name}, worse than {self.runs[0]} by more than chance explains:")
            parts += [f"  {item}" for item in worse] or ["  nothing"]
        if self.runs[-1].endswith(POOLED):
            parts.append(f"{POOLED_NOTE}.")
        return "\n".join(parts)

    def plot(self, path: str | Path) -> None:
        """Draw the comparison into a file (SVG, PNG or PDF by its suffix)."""
        save_figure(plot_comparison(self), path)


def _values(line: Line) -> list[str]:
    """Return value, interval and note of each run."""
    cells = []
    for number, note in zip_longest(line.numbers, line.notes):
        value = "undefined" if number.value is None else DECIMAL.one(number.value)
        cells.append("  ".join(filter(None, [value, DECIMAL.span(number.interval), note])))
    return cells


def _changes(line: Line) -> list[str]:
    first, *others = (number.value for number in line.numbers)
    return ["" if first is None or value is None else f"{value - first:+.4f}" for value in others]


def compare_runs(
    runs: Sequence[Run | str | Path], *, references: Sequence[str] = ()
) -> Comparison:
    """Put finished runs side by side; changes are relative to the first.

    Parameters
    ----------
    runs : sequence of Run or path
        Runs in memory or run directories, each complete, all of the same data, split and seed of
        the split.
    references : sequence of str
        Pooled references (`mfairfl.references.REFERENCES`) to fit on the rows of the first run,
        which must be on file, and for its fairness goal.

    Raises
    ------
    ConfigError
        If fewer than two are given, or one was measured on other rows.

    Examples
    --------
    >>> print(compare_runs(["runs/fedavg", "runs/mfairfl"]))  # doctest: +SKIP
    """
    pooled = [known_reference(name) for name in dict.fromkeys(references)]
    if not runs or len(runs) + len(pooled) < 2:
        raise ConfigError(f"compare: needs two or more runs, or a study file; got {len(runs)} run")
    paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    records = [run.record if isinstance(run, Run) else RunRecord.read(run) for run in runs]
    first, names = records[0], distinct_names(paths, records)
    for path, name, record in zip(paths, names, records, strict=True):
        if key := different_rows(first, record):
            raise ConfigError(
                f"{paths[0] or names[0]} and {path or name}: measured on different rows ({key} "
                "differs); train both on the same data, split and seed"
            )
    split = first.reported
    goal = tuple(dict.fromkeys(name for record in records for name in record.goal))
    of_all: list[RunRecord | ReferenceRecord] = [*records, *fit_on_rows_of(first, pooled)]
    tables = [record.table(split) for record in of_all]
    before, *tallies = (record.tallies.get(split) for record in of_all)
    marked = [f"{name} {POOLED}" for name in pooled]
    clients = f"{len(tables[0].clients)} clients"
    return Comparison(
        runs=(*names, *marked),
        title=f"{first.data.name}, {clients}, {tables[0].rows:,} {split} rows",
        level=tables[0].level,
        goal=goal,
        lines=tuple(_lines(tables, goal)),
        warnings=tuple(_warnings(names, records)),
        worsened={
            name: worsened(before, after)
            for name, after in zip((*names, *marked)[1:], tallies, strict=True)
            if before is not None and after is not None and same_rows(before, after)
        },
    )


def _warnings(names: Sequence[str], records: Sequence[RunRecord]) -> Iterator[str]:
    for name, record in zip(names, records, strict=True):
        for warning in filter(None, [*record.warnings, record.served.note]):
            yield f"{name}: {warning}"


def _lines(tables: Sequence[MetricTable], goal: Sequence[str]) -> Iterator[Line]:
    """Yield the numbers that are shown of all rows, each group and each client, if measured."""
    shown: dict[str, tuple[Part, Sequence[str]]] = {
        "overall": ("all", ("accuracy", *_SCORES, *goal, _WORST, "client_accuracy_gap")),
        "attribute": ("group", ()),
        "group": ("group", GROUP_METRICS),
        "client": ("client", ("accuracy", *goal)),
    }
    numbers_by_place = [{place: part for place, _, part in table.places()} for table in tables]
    for place in numbers_by_place[0]:
        part, metrics = shown[place[0]]
        of_runs = [numbers[place] for numbers in numbers_by_place]
        for metric in metrics:
            if any(metric in numbers for numbers in of_runs):
                yield Line(
                    part=part,
                    whom=" ".join(place[1:]),
                    metric=metric,
                    numbers=tuple(numbers.get(metric) or absent(metric) for numbers in of_runs),
                    notes=_worst_clients(tables) if metric == _WORST else (),
                )


def _worst_clients(tables: Sequence[MetricTable]) -> tuple[str, ...]:
    worst = (table.worst("accuracy", "clients") for table in tables)
    return tuple("" if client is None else client.name for client in worst)


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
        ]
    }
    for metric in ("selection_rate", "true_positive_rate"):
        left[metric.replace("_", " ")] = [line for line in lines if line.metric == metric]
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
    for i, run in enumerate(runs):
        heights = np.arange(len(lines)) + step * (i - (len(runs) - 1) / 2)
        _plot_run(panel, i, run, [line.numbers[i] for line in lines], heights)
    for at in range(1, len(lines)):
        if lines[at].part != lines[at - 1].part:
            panel.axhline(at - 0.5, color=MUTED, linewidth=0.8)
    panel.set_yticks(range(len(lines)), [_label(line) for line in lines])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.grid(axis="x")


def _plot_run(
    panel: Axes, at: int, name: str, numbers: Sequence[Measured], heights: ArrayLike
) -> None:
    colour, mark = PALETTE[at % len(PALETTE)], MARKERS[at % len(MARKERS)]
    # Not clipped: a rate of exactly 0 lies on the frame.
    point: dict[str, Any] = {"linestyle": "", "clip_on": False}
    for y, number in zip(np.asarray(heights), numbers, strict=True):
        if number.interval is not None:
            panel.plot(number.interval, [y, y], color=colour, linewidth=1.6)
    # None becomes nan.
    values = np.array([number.value for number in numbers], dtype=np.float64)
    floors = np.array([number.noise_floor for number in numbers], dtype=np.float64)
    panel.plot(values, heights, marker=mark, color=colour, label=name, **point)
    if not np.isnan(floors).all():
        panel.plot(
            floors, heights, marker="|", markersize=9, markeredgewidth=1.5, color=INK,
            label="noise floor", **point,
        )  # fmt: skip


def _label(line: Line) -> str:
    if line.whom:
        return line.whom
    name = line.metric.removesuffix("_violation").replace("_", " ")
    return "everyone" if line.metric == "accuracy" else name
