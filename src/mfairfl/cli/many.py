"""Progress of many runs: one bar with the time left, or a plain line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mfairfl.cli.show import say

__all__ = ["ManyRuns"]


class ManyRuns:
    """Adds up the rounds of runs that go on side by side in several processes.

    Parameters
    ----------
    console : Console
        Where to; a bar is drawn only on a terminal.
    clock : callable
        Seconds; for the plain lines.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[runs]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, runs="")
        self._clock, self._started = clock, clock()
        self._shares: dict[str, float] = {}
        self._lock = threading.Lock()  # every worker process is followed by a thread of its own
        self._said = 0
        self._name, self._total = "", 0

    def __enter__(self) -> ManyRuns:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, name: str, total: int) -> None:
        """Start counting a new list of `total` runs."""
        with self._lock:
            self._name, self._total, self._said = name, total, 0
            self._shares = {}
            self._started = self._clock()
            self._bar.reset(self._task, total=total, description=name, runs=f"0/{total} runs")

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Take note of a completed round."""
        with self._lock:
            self._shares[out] = round_ / rounds if rounds else 1.0
            done = sum(self._shares.values())
            whole = sum(share == 1 for share in self._shares.values())
            runs = f"{whole}/{self._total} runs"
            self._bar.update(self._task, completed=done, runs=runs)
            twentieth = int(20 * done / max(1, self._total))
            if self._bar.disable and twentieth > self._said:
                self._said = twentieth
                spent = self._clock() - self._started
                left = spent * (self._total - done) / done
                say(f"{self._name}: {runs}, {_minutes(spent)} gone, about {_minutes(left)} left")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
