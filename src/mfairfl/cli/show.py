"""Output for a reader: plain tables, and a run's result rebuilt from its record."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from mfairfl.errors import ConfigError

if TYPE_CHECKING:  # `mfairfl --help` shows no run
    from mfairfl.checks.column_checks import ColumnFacts
    from mfairfl.fairness.results import Measured, MetricTable
    from mfairfl.runs.record import RunRecord, ServedFacts

PIPE_WIDTH, READABLE = 120, 90
INTERRUPTED = 130  # exit code
HINT = "see: mfairfl explain noise-floor (any word above; without a word: all)"
_GAP = "  "  # between columns
_DEEPER = "    "  # before what a number means; attributes of a number have half of it
_OVERALL = ("accuracy", "balanced_accuracy", "roc_auc", "loss", "expected_calibration_error")
_LABELS = {"loss": "log-loss"}
_CLIENTS = ("client_accuracy_gap", "client_accuracy_std", "worst_client_accuracy")
_INTERVAL = "plausible values"
_UNDER = {
    "noise floor": "if exactly fair",
    "constant classifier": "same for all",
}


def terminal(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is, also `[brackets]` and `:colons:`."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def say(line: str) -> None:
    """Print one line to standard error."""
    typer.echo(" ".join(line.splitlines()), err=True)


def print_text(text: str) -> None:
    """Print a paragraph to standard output, in lines of readable length."""
    typer.echo(fill(text, min(terminal().width, READABLE), break_on_hyphens=False))


def print_note(text: str) -> None:
    """Print what something means: indented, faint on a terminal."""
    console = terminal()
    room = min(console.width, READABLE) - len(_DEEPER)
    lines = indent(fill(text, room, break_on_hyphens=False), _DEEPER)
    console.print(Text(lines, style="dim"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON to standard output; nan is refused."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    wrap: Sequence[int] = (),
    under: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print a table to standard output.

    Columns in `right` are numbers. Where the terminal is too narrow, headings and the columns in
    `wrap` are broken between words; names and numbers never are, even if lines get too long.
    `under` says below a heading what its column means, `notes` below each row what the row means;
    an empty note leaves no line.
    """
    console, cells = terminal(), [list(row) for row in rows]
    widths = _widths(head, cells, wrap, under or {}, console.width)
    console.width = max(console.width, sum(widths) + len(_GAP) * (len(widths) - 1))
    headings = [Text(name) for name in head]
    for heading in headings:
        if meaning := (under or {}).get(heading.plain):
            heading.append(f"\n{meaning}", "not bold dim")

    def grid(*, heads: bool) -> Grid:
        look: dict[str, Any] = {"padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
        made = Grid(box=box.SIMPLE_HEAD, show_header=heads, **look)
        for i, (heading, width) in enumerate(zip(headings, widths, strict=True)):
            made.add_column(heading, justify="right" if i in right else "left", width=width)
        return made

    console.print()
    part = grid(heads=True)
    for row, note in zip_longest(cells, notes, fillvalue=""):
        part.add_row(*row)
        if note:
            console.print(part)
            print_note(note)
            part = grid(heads=False)
    if part.row_count or not cells:
        console.print(part)
    console.print()


def _widths(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    wrap: Sequence[int],
    under: Mapping[str, str],
    room: int,
) -> list[int]:
    """Return the widths of columns: all they need, or so much less that they fit if they can."""
    widths, least = [], []
    for i, (heading, *cells) in enumerate(zip(head, *rows, strict=True)):
        words = [word for cell in cells for word in cell.split()] if i in wrap else cells
        whole = [*heading.split(), *under.get(heading, "").split(), *words]
        least.append(max(map(len, ["", *whole])))
        widths.append(max(map(len, [heading, *cells, *whole])))
    room -= len(_GAP) * (len(widths) - 1)
    while sum(widths) > room and widths != least:
        widest = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        widths[widest] -= 1
    return widths


def print_columns(columns: Sequence[ColumnFacts]) -> None:
    """Print what was made of each column of a file; long examples are cut."""
    head = ["column", "role", "type", "missing", "values"]
    rows = [[c.name, c.role, c.type, f"{c.missing:,}", c.extent] for c in columns]
    used = sum(max(map(len, cells)) + len(_GAP) for cells in zip(head, *rows, strict=True))
    room = max(terminal().width - used, len("example"))
    examples = [
        c.example if len(c.example) <= room else f"{c.example[: room - 1]}…" for c in columns
    ]
    shown = [[*row, example] for row, example in zip(rows, examples, strict=True)]
    print_table([*head, "example"], shown, right=(3,))


def number(value: float | None) -> str:
    """Write a rate with four digits; None and nan are a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def print_run(record: RunRecord, folder: Path, *, as_json: bool) -> None:
    """Print a finished run: its run.json as it is, or its numbers and notes for a reader."""
    if as_json:
        typer.echo(record.to_json(), nl=False)
        return
    table = record.table(record.reported)
    # First of all: whatever makes the numbers below worth less than they look.
    about_model = [*record.warnings, *filter(None, [record.served.note])]
    for warning in [*about_model, *record.federation.warnings]:
        print_text(f"warning: {warning}")
    _print_whom(record, table)
    print_numbers(table, record.goal)
    _print_clients(table, record.goal)
    _print_groups(table)
    typer.echo(f"served model: {_served(record.served)} (rule {record.served.rule})")
    print_note(_meaning(record.served.rule))
    for note in record.federation.notes:
        typer.echo(f"note: {note}")
    typer.echo(
        f"files: {folder}/ (run.json, rounds.csv, clients.csv, model.safetensors, encoder.json)"
    )
    typer.echo(f"for whoever decides about the model: mfairfl report {shlex.quote(str(folder))}")
    print_text(HINT)


def _served(served: ServedFacts) -> str:
    """Describe whose model decides."""
    names = ", ".join(dict.fromkeys(served.names))
    if served.kind == "mixture":
        return f"{names}, one of them drawn at random for each decision"
    if served.kind == "ensemble":
        return f"{len(served.clients)} clients' own models, averaged, at {names}"
    if served.kind == "personal":
        return f"a model of its own for each of {len(served.clients)} clients, at {names}"
    return names + ", with a threshold for each group" * (served.thresholds is not None)


def print_numbers(table: MetricTable, goal: Sequence[str] = ()) -> None:
    """Print the numbers of all rows, with intervals and noise floors."""
    level = f"{table.level:.0%} interval"
    head = ["number", "value", level, "noise floor", "constant classifier"]
    shown = _shown(table, goal)
    rows = _number_rows(table, goal, shown)
    under, notes = {level: _INTERVAL, **_UNDER}, [note for _, note in rows]
    print_table(head, [row for row, _ in rows], right=(3, 4), under=under, notes=notes)
    # Below the table: a reason is a sentence, too long for a cell.
    for name in shown:
        for prefix, measure in _by_attribute(table, name):
            if measure.value is None:
                print_text(f"{prefix}{_LABELS.get(name, name)}: undefined ({measure.undefined})")


def _by_attribute(table: MetricTable, name: str) -> list[tuple[str, Measured]]:
    """Return a number of all rows and, with several attributes, that of each ("sex.")."""
    several = table.sections if len(table.sections) > 1 else []
    return [("", table[name])] + [
        (f"{section.attribute}.", measure)
        for section in several
        for measure in section.measures
        if measure.name == name
    ]


def _shown(table: MetricTable, goal: Sequence[str]) -> list[str]:
    """Return the numbers that are shown: of the goal also difference and ratio."""
    from mfairfl.fairness.measuring import has_noise_floor  # noqa: PLC0415 - loads slowly

    names = list(_OVERALL)
    violations = (name for name in table.overall if name.endswith("_violation"))
    for name in filter(has_noise_floor, violations):
        notion = name.removesuffix("_violation")
        names += [name, *([f"{notion}_difference", f"{notion}_ratio"] if name in goal else [])]
    return [name for name in (*names, *_CLIENTS) if name in table.overall]


def _number_rows(
    table: MetricTable, goal: Sequence[str], shown: Sequence[str]
) -> list[tuple[list[str], str]]:
    """Return a row for each number (name, value, interval, floor, constant) and its meaning."""
    rows = []
    for name in shown:
        mark, aim = (" *", "the goal of this run: ") if name in goal else ("", "")
        label, constant = _LABELS.get(name, name), number(table.constant_classifier.get(name))
        for prefix, measure in _by_attribute(table, name):
            parts = [_interval(measure.interval), number(measure.noise_floor)]
            head = f"  {prefix[:-1]}" if prefix else label + mark
            row = [head, _value(measure.value), *parts, "" if prefix else constant]
            rows.append((row, "" if prefix else aim + _meaning(name)))
    return rows


def _meaning(word: str) -> str:
    """Return what a word means as part of a line, without capital and full stop."""
    from mfairfl.glossary import explain  # noqa: PLC0415 - only when a result is shown

    try:
        short = explain(word).short
    except ConfigError:  # of a notion that was registered where the run was made
        short = explain(word.rpartition("_")[2]).short
    return short[0].lower() + short[1:].rstrip(".")


def _print_meanings(words: Mapping[str, str]) -> None:
    """Say what the headings of a table mean: each heading with a word of the glossary."""
    for heading, word in words.items():
        print_note(f"{heading}: {_meaning(word)}")


def _value(value: float | None) -> str:
    return "undefined" if value is None else number(value)


def _interval(pair: Sequence[float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.4f} to {pair[1]:.4f}"


def group_sizes(table: MetricTable) -> str:
    """Return the number of rows of each group.

    Examples
    --------
    >>> from mfairfl.fairness import MetricTable
    >>> rows = {"sensitive_features": {"sex": ["f"] + ["m"] * 1200}}
    >>> group_sizes(MetricTable.from_predictions([1] * 1201, [1] * 1201, **rows))
    'sex: f (1), m (1,200)'
    """
    return "; ".join(
        f"{section.attribute}: "
        + ", ".join(f"{group.name} ({group.rows:,})" for group in section.groups)
        for section in table.sections
    )


def _print_whom(record: RunRecord, table: MetricTable) -> None:
    typer.echo(
        f"{record.strategy} on {record.data.name}, {record.rounds} rounds, seed {record.seed}; "
        f"favourable: {record.task.label} = {record.task.favourable}"
    )
    print_text(
        f"measured on {table.rows:,} {record.reported} rows of {len(table.clients)} clients "
        f"({group_sizes(table)})"
    )


def _print_clients(table: MetricTable, goal: Sequence[str]) -> None:
    """Print a row for each client; one that lacks a group has no violation."""
    from mfairfl.experiments.study_tables import short_name  # noqa: PLC0415 - loads slowly

    names = [short_name(name.removesuffix("_violation")) for name in goal]
    rates = {
        "AUC": "roc_auc",
        **{f"{name} violation *": key for name, key in zip(names, goal, strict=True)},
        "selected": "selection_rate",
        "base rate": "base_rate",
    }
    rows = [
        [
            client.name,
            f"{client.rows:,}",
            number(client["accuracy"].value),
            _interval(client["accuracy"].interval),
            *(number(client.get(key).value) for key in rates.values()),
        ]
        for client in table.clients
    ]
    head = ["client", "rows", "accuracy", "interval", *rates]
    _print_meanings({key: rates[key] for key in ("AUC", "selected", "base rate")})
    print_table(head, rows, right=(1, 2, *range(4, len(head))))


def _print_groups(table: MetricTable) -> None:
    rates = {
        "accuracy": "accuracy",
        "selected": "selection_rate",
        "true pos.": "true_positive_rate",
        "false pos.": "false_positive_rate",
        "base rate": "base_rate",
        "calib. error": "expected_calibration_error",
    }
    rows = [
        [
            section.attribute,
            group.name,
            f"{group.rows:,}",
            *(number(group.get(key).value) for key in rates.values()),
        ]
        for section in table.sections
        for group in section.groups
    ]
    _print_meanings({key: rates[key] for key in ("true pos.", "false pos.", "calib. error")})
    print_table(["attribute", "group", "rows", *rates], rows, right=range(2, 3 + len(rates)))
