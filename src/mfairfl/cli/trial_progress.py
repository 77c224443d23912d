"""Progress of a search: a bar with the time left on a terminal, else a plain line a trial."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mfairfl.cli.show import say
from mfairfl.experiments.search.tuning_trials import Search, Tried

__all__ = ["TrialProgress"]


class TrialProgress:
    """Watcher that shows trials.

    Parameters
    ----------
    console : Console
        Where to; a bar is drawn only on a terminal.
    search : Search
        What is searched.
    trials : int
        How many complete trials are wanted.
    quiet : bool
        Print no plain lines where there is no terminal.
    """

    def __init__(self, console: Console, search: Search, trials: int, *, quiet: bool) -> None:
        self._search, self._trials, self._complete = search, trials, 0
        self._lines = not console.is_terminal and not quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[numbers]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=trials, numbers="")

    def __enter__(self) -> TrialProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # older rich ends even a bar that never was with a line
            self._bar.stop()

    def on_start(self, complete: int) -> None:
        """Say from where a search goes on."""
        self._complete = complete
        if complete and (self._lines or not self._bar.disable):
            say(f"going on after {complete} complete trials of {self._trials}")
        self._bar.reset(self._task, total=self._trials, completed=complete)
        self._bar.start()

    def on_round(self, share: float) -> None:
        """Move the bar by a part of a trial."""
        self._bar.update(self._task, completed=self._complete + share)

    def on_trial(self, trial: Tried, complete: int) -> None:
        """Show the numbers of a complete trial."""
        self._complete = complete
        violation = trial.violation(self._search.metrics)
        text = f"accuracy {trial.mean('accuracy'):.4f}  violation {violation:.4f}"
        name = f"trial {complete}/{self._trials}"
        self._bar.update(self._task, completed=complete, description=name, numbers=text)
        if self._lines:
            values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
            say(f"{name}  {text}  {values}")
