"""Finished runs side by side: what fairness cost in accuracy, and for whom.

Everything is rebuilt from the runs' records. Runs are compared only if they were measured on the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mfairfl.data import Split
from mfairfl.errors import ConfigError
from mfairfl.experiments.tables.layout import POOLED, POOLED_NOTE
from mfairfl.fairness.results import Bounds, Numbers
from mfairfl.references import known_reference
from mfairfl.runs.execute import Run
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import ReferenceRecord, fit_on_rows_of
from mfairfl.runs.side_by_side import different_rows, distinct_names
from mfairfl.text import aligned

GROUP_METRICS = ("accuracy", "selection_rate", "true_positive_rate")
_SCORES = ("roc_auc", "loss", "expected_calibration_error")  # not in records of earlier versions
_LABELS = {"loss": "log-loss"}
_GOAL = (
    "* the fairness goal: largest gap between a group's rate and the overall rate; noise floor: "
    "its mean\nif decisions were exactly fair, on this many rows."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of one run.

    Parameters
    ----------
    value : float, optional
        None if it is undefined.
    interval : (float, float), optional
        Lower and upper end.
    floor : float, optional
        Mean of the metric on as many rows if decisions were exactly fair.
    note : str
        Text to show beside the number, for example which client is the worst.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    floor: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The same metric for every run, in the order of the runs.

    Parameters
    ----------
    part : {"all", "group", "client"}
        The rows it is measured on.
    whom : str
        The group or the client; empty for all.
    """

    part: str
    whom: str
    metric: str
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    r"""Runs side by side: `print` shows the table, `plot` draws it.

    Parameters
    ----------
    runs : tuple of str
        Their names: the strategies, or the folders where those are not distinct. Pooled references
        come last, marked †.
    title : str
        Data, number of clients, and number of rows.
    level : float
        Confidence level of the intervals.
    goal : tuple of str
        The metrics that some run was asked to lower.
    warnings : tuple of str
        What makes a run's numbers doubtful, with the run's name.

    Examples
    --------
    >>> numbers = (Number(value=0.86, interval=(0.85, 0.87)), Number(value=0.84))
    >>> line = Line(part="all", whom="", metric="accuracy", numbers=numbers)
    >>> facts = {"title": "adult, 5 clients, 9,769 test rows", "level": 0.95, "goal": ()}
    >>> both = Comparison(runs=("fedavg", "mfairfl"), lines=(line,), **facts)
    >>> print("\n".join(str(both).splitlines()[:3]))
    adult, 5 clients, 9,769 test rows: value, 95% interval, change from fedavg
              fedavg                    mfairfl   change
    accuracy  0.8600  0.8500 to 0.8700  0.8400   -0.0200
    """

    runs: tuple[str, ...]
    title: str
    level: float
    goal: tuple[str, ...]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the text table: value and interval of each run, and the change from the first."""
        first, *others = self.runs
        changes = ["change"] if len(others) == 1 else [f"change {name}" for name in others]
        table = [["", "", *self.runs, *changes]]
        part = "all"
        for line in self.lines:
            if line.part != part:
                part = line.part
                table.append([""] * len(table[0]))
            label = _LABELS.get(line.metric, line.metric) + " *" * (line.metric in self.goal)
            values = [_cell(number) for number in line.numbers]
            table.append([line.whom, label, *values, *_changes(line)])
            if any(number.floor is not None for number in line.numbers):
                floors = ["" if n.floor is None else f"{n.floor:.4f}" for n in line.numbers]
                table.append(["", "  noise floor", *floors, *([""] * len(changes))])
        return "\n".join(
            [
                *(f"warning: {warning}" for warning in self.warnings),
                f"{self.title}: value, {self.level:.0%} interval, change from {first}",
                *aligned(table, right=range(2 + len(self.runs), len(table[0]))),
                *([_GOAL] if self.goal else []),
                *([f"{POOLED_NOTE}."] if any(name.endswith(POOLED) for name in self.runs) else []),
            ]
        )

    def plot(self, path: str | Path) -> None:
        """Draw the comparison into a file (SVG, PNG or PDF by its suffix)."""
        # Loaded here: drawing is rare, and the library takes long to load.
        from mfairfl.experiments.figures.comparison import plot_comparison  # noqa: PLC0415
        from mfairfl.runs.figures import save_figure  # noqa: PLC0415

        save_figure(plot_comparison(self), path)


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
    if len(runs) + len(pooled) < 2:
        raise ConfigError(f"compare: needs two or more runs, or a study file; got {len(runs)} run")
    paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    records = [run.record if isinstance(run, Run) else RunRecord.read(run) for run in runs]
    first, *others = records
    names = distinct_names(paths, records)
    for path, name, other in zip(paths[1:], names[1:], others, strict=True):
        _refuse_other_rows(f"{paths[0] or names[0]} and {path or name}", first, other)
    fitted = fit_on_rows_of(first, pooled)
    split = first.reported
    clients = first.metrics[split].by_client
    count = sum(client["n"] or 0 for client in clients.values())
    goal = tuple(dict.fromkeys(name for record in records for name in record.goal))
    return Comparison(
        runs=(*names, *(f"{name} {POOLED}" for name in pooled)),
        title=f"{first.data.name}, {len(clients)} clients, {count:,} {split} rows",
        level=first.intervals[split].level,
        goal=goal,
        lines=tuple(_lines([*records, *fitted], split, goal)),
        warnings=tuple(
            f"{name}: {warning}"
            for name, record in zip(names, records, strict=True)
            for warning in [*record.warnings, *filter(None, [record.served.note])]
        ),
    )


def _refuse_other_rows(who: str, one: RunRecord, other: RunRecord) -> None:
    """Refuse runs that were measured on different rows."""
    if key := different_rows(one, other):
        raise ConfigError(
            f"{who}: measured on different rows ({key} differs); train both on the same data, "
            "split and seed"
        )


def _lines(
    records: Sequence[RunRecord | ReferenceRecord], split: Split, goal: Sequence[str]
) -> Iterator[Line]:
    found = [record.evaluation(split) for record in records]
    metrics, ranges = [one.metrics for one in found], [one.intervals for one in found]
    scores = [name for name in _SCORES if any(name in one.by_name for one in metrics)]
    for name in ("accuracy", *scores, *goal, "worst_client_accuracy", "client_accuracy_gap"):
        numbers = [
            Number(
                value=one.metrics.get(name),
                interval=one.intervals.get(name),
                floor=one.noise_floor.get(name),
                note=_worst(one.metrics.by_client) if name == "worst_client_accuracy" else "",
            )
            for one in found
        ]
        yield Line(part="all", whom="", metric=name, numbers=tuple(numbers))
    both = list(zip(metrics, ranges, strict=True))
    for attribute, groups in metrics[0].by_group.items():
        for group in groups:
            cells = [(m.by_group[attribute][group], r.by_group[attribute][group]) for m, r in both]
            for name in GROUP_METRICS:
                yield _cell_line("group", f"{attribute} {group}", name, cells)
    for client in metrics[0].by_client:
        cells = [(m.by_client[client], r.by_client[client]) for m, r in both]
        known = [name for name in goal if any(name in values for values, _ in cells)]
        for name in ("accuracy", *known):
            yield _cell_line("client", client, name, cells)


def _cell_line(
    part: str, whom: str, name: str, cells: Sequence[tuple[Numbers, dict[str, Bounds]]]
) -> Line:
    numbers = [
        Number(value=values.get(name), interval=bounds.get(name)) for values, bounds in cells
    ]
    return Line(part=part, whom=whom, metric=name, numbers=tuple(numbers))


def _worst(clients: Mapping[str, Numbers]) -> str:
    """Name the client of lowest accuracy; empty if no client has one."""
    known = {n: value for n, c in clients.items() if (value := c["accuracy"]) is not None}
    return min(known, key=lambda name: known[name], default="")


def _cell(number: Number) -> str:
    value = "undefined" if number.value is None else f"{number.value:.4f}"
    interval = "" if number.interval is None else "{:.4f} to {:.4f}".format(*number.interval)
    return "  ".join(filter(None, [value, interval, number.note]))


def _changes(line: Line) -> list[str]:
    first, *others = (number.value for number in line.numbers)
    return ["" if first is None or v is None else f"{v - first:+.4f}" for v in others]
