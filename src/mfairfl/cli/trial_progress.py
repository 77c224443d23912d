"""Progress of a search: a bar with the time left on a terminal, else a plain line a trial."""

from __future__ import annotations

from rich.console import Console

from mfairfl.cli.bar import Bar
from mfairfl.experiments.search.space import Search
from mfairfl.experiments.search.trials import Tried

__all__ = ["TrialProgress"]


class TrialProgress(Bar):
    """SearchWatcher that shows trials.

    Parameters
    ----------
    search : Search
        What is searched.
    trials : int
        How many complete trials are wanted.
    """

    def __init__(self, console: Console, search: Search, trials: int, *, quiet: bool) -> None:
        super().__init__(console, quiet=quiet)
        self._search, self._trials, self._complete = search, trials, 0

    def on_start(self, complete: int) -> None:
        """Say from where a search goes on."""
        self._complete = complete
        if complete:
            self.note(f"going on after {complete} complete trials of {self._trials}")
        self.begin(self._trials, complete)

    def on_round(self, share: float) -> None:
        """Move the bar by a part of a trial."""
        self.move(self._complete + share)

    def on_trial(self, trial: Tried, complete: int) -> None:
        """Show the numbers of a complete trial."""
        self._complete = complete
        violation = trial.violation(self._search.metrics)
        text = f"accuracy {trial.mean('accuracy'):.4f}  violation {violation:.4f}"
        name = f"trial {complete}/{self._trials}"
        values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
        self.tell(name, complete, text, line=f"{name}  {text}  {values}")
