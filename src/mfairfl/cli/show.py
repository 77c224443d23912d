"""Output for a reader: lines, notes, JSON and tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

if TYPE_CHECKING:  # `mfairfl --help` shows no table
    from mfairfl.checks.column_checks import ColumnFacts
    from mfairfl.display import DisplayTable, Head
    from mfairfl.display.tables import Entry

PIPE_WIDTH, READABLE = 120, 90
INTERRUPTED = 130  # exit code
HINT = "see: mfairfl explain noise-floor (or any term above; without one, all)"
_WORSE = 6  # that are named
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


def print_worse(sentence: str, worsened: Sequence[object]) -> None:
    """Print what got worse, the worst in a sentence and others in a list; nothing if unknown."""
    if not sentence:
        return
    print_text(sentence)
    for item in worsened[1:_WORSE]:
        print_text(f"  {item}")
    if worsened[_WORSE:]:
        typer.echo(f"  and {len(worsened[_WORSE:])} more, in the report")


def print_note(text: str) -> None:
    """Print what something means: indented, faint on a terminal."""
    console = terminal()
    room = min(console.width, READABLE) - len(_DEEPER)
    lines = indent(fill(text, room, break_on_hyphens=False), _DEEPER)
    console.print(Text(lines, style="dim"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON to standard output; nan is refused."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def print_rows(
    heads: Sequence[str],
    rows: Iterable[Sequence[Entry]],
    *,
    numeric: Collection[int] = (),
    wrap: Collection[int] = (),
) -> None:
    """Print a table by the headings of its columns, as `DisplayTable.of` takes them."""
    from mfairfl.display import DisplayTable  # noqa: PLC0415 - loads pandas

    print_table(DisplayTable.of(heads, rows, numeric=numeric, wrap=wrap))


def print_table(table: DisplayTable) -> None:
    """Print a table to standard output, below each row what it means.

    Where the terminal is too narrow, headings and the columns that may wrap are broken between
    words; names and numbers never are, even if lines get too long.
    """
    console, rows = terminal(), table.shown()
    widths = _widths(table.columns, [[cell.plain for cell in row] for row in rows], console.width)
    console.width = max(console.width, sum(widths) + len(_GAP) * (len(widths) - 1))

    def grid(*, heads: bool) -> Grid:
        look: dict[str, Any] = {"padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
        part = Grid(box=box.SIMPLE_HEAD, show_header=heads, **look)
        for column, width in zip(table.columns, widths, strict=True):
            heading = Text(column.label)
            if column.detail:
                heading.append(f"\n{column.detail}", "not bold dim")
            part.add_column(heading, justify="right" if column.numeric else "left", width=width)
        return part

    console.print()
    part = grid(heads=True)
    for row in rows:
        part.add_row(*(cell.plain for cell in row))
        if row[0].meaning:
            console.print(part)
            print_note(row[0].meaning)
            part = grid(heads=False)
    if part.row_count or not rows:
        console.print(part)
    console.print()


def _widths(columns: Sequence[Head], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of columns: all they need, or so much less that they fit if they can."""
    widths, least = [], []
    for column, *cells in zip(columns, *rows, strict=True):
        words = [word for cell in cells for word in cell.split()] if column.wrap else cells
        whole = [*column.label.split(), *column.detail.split(), *words]
        least.append(max(map(len, ["", *whole])))
        widths.append(max(map(len, [column.label, *cells, *whole])))
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
    for row, column in zip(rows, columns, strict=True):
        example = column.example
        row.append(example if len(example) <= room else f"{example[: room - 1]}…")
    print_rows([*head, "example"], rows, numeric=[3])
