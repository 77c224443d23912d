"""What a person sees: plain tables, and a run's result rebuilt from its record."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table as Grid

__all__ = [
    "REVEALS",
    "number",
    "number_rows",
    "print_json",
    "print_notes",
    "print_record",
    "print_table",
    "say",
    "terminal",
]

REVEALS = {"individual": "each client's update", "sums": "sums of updates only"}

PIPE_WIDTH = 120
_NUMBERS = (
    "accuracy",
    "balanced_accuracy",
    "demographic_parity_difference",
    "equalized_odds_difference",
    "equal_opportunity_difference",
    "accuracy_parity_difference",
    "client_accuracy_gap",
    "client_accuracy_std",
    "worst_client_accuracy",
)
# Notes that tell how the data was made; all others ask for attention.
_PLAIN_NOTES = ("read from ", "option ", "group 0 of the split ")


def terminal(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is, also `[brackets]` and `:colons:`."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def say(line: str) -> None:
    """Print one line to standard error."""
    typer.echo(" ".join(line.splitlines()), err=True)


def print_json(value: Any) -> None:
    """Print JSON to standard output; nan is refused."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print a table to standard output; columns in `right` are numbers."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        grid.add_column(name, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    terminal().print(grid)


def number(value: float | None) -> str:
    """Write a rate with four digits; None is a dash."""
    return "-" if value is None else f"{value:.4f}"


def print_notes(notes: Iterable[str]) -> None:
    """Print notes one a line; those that ask for attention as warnings."""
    for note in notes:
        plain = note.startswith(_PLAIN_NOTES)
        typer.echo(f"{'note' if plain else 'warning'}: {note}")


def print_record(record: dict[str, Any], folder: str) -> None:
    """Print the result of a finished run: numbers, on whom, by client and by group, notes."""
    splits = [s for s in ("test", "validation", "train") if record["metrics"][s] is not None]
    split = splits[0]
    metrics, ranges = record["metrics"][split], record["intervals"][split]
    _print_whom(record, split)
    rows = number_rows(
        metrics,
        ranges,
        record["noise_floor"][split],
        record["constant_classifier"][split],
        goal=[f"{name}_difference" for name in record["config"]["fairness"]["notion"]],
    )
    head = ["number", "value", f"{ranges['level']:.0%} interval", "noise floor", "constant classifier"]
    print_table(head, rows, right=(3, 4))
    typer.echo(
        "difference: largest gap between a group's rate and the overall rate. noise floor: its mean\n"
        "if decisions were exactly fair, on this many rows. constant classifier: one answer for all.\n"
        "* the fairness goal of this run."
    )
    _print_clients(metrics, ranges)
    _print_groups(metrics)
    served = record["served"]
    names = ", ".join(served["names"])
    typer.echo(f"served model: {names} (rule {served['rule']})")
    print_notes([*record["federation"]["notes"], *filter(None, [served["note"]])])
    typer.echo(f"files: {folder}/ (run.json, rounds.csv, clients.csv, model.safetensors, encoder.json)")


def number_rows(
    metrics: dict[str, Any],
    ranges: dict[str, Any],
    floors: dict[str, Any],
    constant: dict[str, Any],
    *,
    goal: Sequence[str] = (),
) -> list[list[str]]:
    """Return one row a number: name, value or why it is undefined, interval, floor, constant."""
    rows = []
    shown = [name for name in _NUMBERS if name in metrics]
    for name in shown:
        mark = " *" if name in goal else ""
        reason = metrics["undefined"].get(name)
        value = f"undefined ({reason})" if reason else number(metrics[name])
        extra = [_interval(ranges[name]), number(floors.get(name)), number(constant.get(name))]
        rows.append([name + mark, value, *extra])
        for attribute, numbers in metrics["by_attribute"].items():
            if name in numbers:
                reason = metrics["undefined"].get(f"{attribute}.{name}")
                value = f"undefined ({reason})" if reason else number(numbers[name])
                low_high = _interval(ranges["by_attribute"][attribute][name])
                floor = number(floors["by_attribute"][attribute].get(name))
                rows.append([f"  {attribute}", value, low_high, floor, ""])
    return rows


def _interval(pair: Sequence[float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.4f} to {pair[1]:.4f}"


def _print_whom(record: dict[str, Any], split: str) -> None:
    metrics = record["metrics"][split]
    count = sum(client["n"] for client in metrics["by_client"].values())
    groups = "; ".join(
        f"{attribute}: " + ", ".join(f"{group} {cell['n']:,}" for group, cell in cells.items())
        for attribute, cells in metrics["by_group"].items()
    )
    config, task = record["config"], record["task"]
    typer.echo(
        f"{config['strategy']['name']} on {record['data']['name']}, {record['rounds']} rounds, seed "
        f"{record['seed']}; favourable: {task['label']} = {task['favourable']}"
    )
    typer.echo(f"measured on {count:,} {split} rows of {len(metrics['by_client'])} clients ({groups})")


def _print_clients(metrics: dict[str, Any], ranges: dict[str, Any]) -> None:
    print_table(
        ["client", "rows", "accuracy", "interval", "selected", "base rate"],
        [
            [
                name,
                f"{cell['n']:,}",
                number(cell["accuracy"]),
                _interval(ranges["by_client"][name]["accuracy"]),
                number(cell["selection_rate"]),
                number(cell["base_rate"]),
            ]
            for name, cell in metrics["by_client"].items()
        ],
        right=(1, 2, 4, 5),
    )


def _print_groups(metrics: dict[str, Any]) -> None:
    keys = ("accuracy", "selection_rate", "true_positive_rate", "false_positive_rate", "base_rate")
    print_table(
        ["attribute", "group", "rows", "accuracy", "selected", "true pos.", "false pos.", "base rate"],
        [
            [attribute, group, f"{cell['n']:,}", *(number(cell[key]) for key in keys)]
            for attribute, cells in metrics["by_group"].items()
            for group, cell in cells.items()
        ],
        right=(2, 3, 4, 5, 6, 7),
    )
