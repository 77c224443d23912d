"""Output for a reader: lines, notes, JSON and tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

if TYPE_CHECKING:  # `mfairfl --help` shows no table
    from mfairfl.checks.column_checks import ColumnFacts
    from mfairfl.display import DisplayTable

PIPE_WIDTH, READABLE = 120, 90
INTERRUPTED = 130  # exit code
HINT = "see: mfairfl explain noise-floor (any word above; without a word: all)"
_GAP = "  "  # between columns
_DEEPER = "    "  # before what a number means; attributes of a number have half of it


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
        table = Grid(box=box.SIMPLE_HEAD, show_header=heads, **look)
        for i, (heading, width) in enumerate(zip(headings, widths, strict=True)):
            table.add_column(heading, justify="right" if i in right else "left", width=width)
        return table

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


def print_display(table: DisplayTable) -> None:
    """Print a table to standard output, below each row what it means."""
    rows, columns = table.shown(), table.columns
    print_table(
        [column.label for column in columns],
        [[cell.plain for cell in row] for row in rows],
        right=[i for i, column in enumerate(columns) if column.numeric],
        wrap=[i for i, column in enumerate(columns) if column.wrap],
        under={column.label: column.detail for column in columns},
        notes=[row[0].meaning for row in rows],
    )


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
