"""A bar with the time left on a terminal; elsewhere plain lines."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mfairfl.cli.show import say

__all__ = ["Bar"]


class Bar:
    """Shows how far work is.

    Parameters
    ----------
    console : Console
        Where to; a bar is drawn only on a terminal.
    quiet : bool
        Print no plain lines where there is no terminal.
    """

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self.lines = not console.is_terminal and not quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[numbers]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, numbers="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # older rich ends even a bar that never was with a line
            self._bar.stop()

    def note(self, line: str) -> None:
        """Print a line, unless nothing is to be shown."""
        if self.lines or not self._bar.disable:
            say(line)

    def begin(self, total: int, done: int) -> None:
        """Start the bar; not before, as what is said until then would end up inside it."""
        self._bar.reset(self._task, total=total, completed=done)
        self._bar.start()

    def move(self, done: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done)

    def tell(self, name: str, done: float, text: str, *, line: str | None = None) -> None:
        """Move the bar with a name and numbers; `line` is printed where there is no bar."""
        self._bar.update(self._task, completed=done, description=name, numbers=text)
        if self.lines and line is not None:
            say(line)
