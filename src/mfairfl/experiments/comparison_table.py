"""A comparison of runs as a text table."""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.experiments.comparison import Comparison, Line, Number

__all__ = ["write_comparison"]

_GOAL = (
    "* the fairness goal: largest gap between a group's rate and the overall rate; noise floor: "
    "its mean\nif decisions were exactly fair, on this many rows."
)


def write_comparison(comparison: Comparison) -> str:
    r"""Write one line a number: each run's value and interval, and the change from the first run.

    Examples
    --------
    >>> numbers = (Number(value=0.86, interval=(0.85, 0.87)), Number(value=0.84))
    >>> line = Line(part="all", whom="", metric="accuracy", numbers=numbers)
    >>> facts = {"title": "adult, 5 clients, 9,769 test rows", "level": 0.95, "goal": ()}
    >>> both = Comparison(runs=("fedavg", "mfairfl"), lines=(line,), **facts)
    >>> print("\n".join(write_comparison(both).splitlines()[:3]))
    adult, 5 clients, 9,769 test rows: value, 95% interval, change from fedavg
              fedavg                    mfairfl   change
    accuracy  0.8600  0.8500 to 0.8700  0.8400   -0.0200
    """
    changes = [
        "change" if len(comparison.runs) == 2 else f"change {name}" for name in comparison.runs[1:]
    ]
    table = [["", "", *comparison.runs, *changes]]
    part = "all"
    for line in comparison.lines:
        if line.part != part:
            part = line.part
            table.append([""] * len(table[0]))
        mark = " *" if line.metric in comparison.goal else ""
        values = [_cell(number) for number in line.numbers]
        table.append([line.whom, line.metric + mark, *values, *_changes(line)])
        if any(number.floor is not None for number in line.numbers):
            floors = ["" if n.floor is None else f"{n.floor:.4f}" for n in line.numbers]
            table.append(["", "  noise floor", *floors, *([""] * len(changes))])
    return "\n".join(
        [
            f"{comparison.title}: value, {comparison.level:.0%} interval, change from "
            f"{comparison.runs[0]}",
            *_aligned(table, right=len(changes)),
            *([_GOAL] if comparison.goal else []),
            *(f"warning: {said}" for said in comparison.warnings),
        ]
    )


def _cell(number: Number) -> str:
    value = "undefined" if number.value is None else f"{number.value:.4f}"
    interval = "" if number.interval is None else "{:.4f} to {:.4f}".format(*number.interval)
    return "  ".join(filter(None, [value, interval, number.note]))


def _changes(line: Line) -> list[str]:
    first, *others = (number.value for number in line.numbers)
    return ["" if first is None or v is None else f"{v - first:+.4f}" for v in others]


def _aligned(table: Sequence[Sequence[str]], *, right: int) -> list[str]:
    """Pad the cells of each column; the last `right` columns to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    kept = [i for i, width in enumerate(widths) if width]
    numbers = range(len(widths) - right, len(widths))
    return [
        "  ".join(
            row[i].rjust(widths[i]) if i in numbers else row[i].ljust(widths[i]) for i in kept
        ).rstrip()
        for row in table
    ]
