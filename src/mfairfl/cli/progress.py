"""How far work is: a bar with the time left on a terminal, elsewhere plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM, signal
from typing import TYPE_CHECKING, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mfairfl.cli.show import INTERRUPTED, say

if TYPE_CHECKING:
    from mfairfl.engine.state import RoundRecord, RunState, Setup
    from mfairfl.experiments.search.trials import SearchTrial

__all__ = [
    "Bar",
    "JournalProgress",
    "ManyRuns",
    "RoundProgress",
    "TrialProgress",
    "stoppable",
    "terminable",
]

_BAR = 10  # characters
_SHOWN = {
    "loss": "train_loss",
    "accuracy": "train_accuracy",
    "violation": "train_violation",
    "client gap": "train_client_accuracy_gap",
}


@contextmanager
def terminable() -> Iterator[None]:
    """Let a termination signal end the block as Ctrl-C does, so that no process is left behind."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal(SIGTERM, leave)
    try:
        yield
    finally:
        signal(SIGTERM, before)


@contextmanager
def stoppable(
    message: Callable[[], str] = lambda: "stopped; repeat the command to resume",
) -> Iterator[None]:
    """End the block with a line and exit code 130 when it is interrupted or terminated."""
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        say(message())
        raise typer.Exit(INTERRUPTED) from None


class Bar:
    """Shows how far work is.

    Parameters
    ----------
    console : Console
        Where to show it; a bar is drawn only on a terminal.
    quiet : bool
        Print no plain lines where there is no terminal.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.lines = not console.is_terminal and not quiet
        self._width = console.width
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[numbers]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, numbers="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # older rich ends even a bar that never started with a line
            self._bar.stop()

    def note(self, line: str) -> None:
        """Print a line, unless nothing is to be shown."""
        if self.lines or not self._bar.disable:
            say(line)

    def start(self, total: int, done: int) -> None:
        """Start the bar; not before, since lines printed earlier would end up inside it."""
        self._bar.reset(self._task, total=total, completed=done)
        self._bar.start()

    def move(self, done: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done)

    def show(self, name: str, done: float, numbers: Sequence[str]) -> None:
        """Move the bar, with a name and as many numbers as fit beside it."""
        room = self._width - len(name) - _BAR - len("   0:00:00left  ")
        text = ""
        for number in numbers:
            longer = f"{text}  {number}".strip()
            if len(longer) > room:
                break
            text = longer
        self._bar.update(self._task, completed=done, description=name, numbers=text)

    def show_round(
        self, round_: int, rounds: int, values: Mapping[str, Any], conflicts: int | None = None
    ) -> None:
        """Show a round's numbers; where there is no bar, a line for every tenth of the rounds."""
        numbers = [f"{name} {_three_digits(values[key])}" for name, key in _SHOWN.items()]
        if conflicts is not None:
            numbers.append(f"conflicts {conflicts}")
        name = f"round {round_}/{rounds}"
        self.show(name, round_, numbers)
        if self.lines and (round_ % max(1, round(rounds / 10)) == 0 or round_ == rounds):
            say("  ".join([name, *numbers]))


def _three_digits(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


class RoundProgress(Bar):
    """Callback that shows the rounds of a run in this process.

    Parameters
    ----------
    folder : Path
        The run folder, named at the start.
    """

    def __init__(self, console: Console, folder: Path, *, quiet: bool) -> None:
        super().__init__(console, quiet=quiet)
        self.started, self._folder = False, folder

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Say where the run is, and from where it resumes."""
        self.started = True
        where = f", resuming after round {state.round}" if state.round else ""
        self.note(f"run folder: {self._folder}{where}")
        self.start(setup.rounds, state.round)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Show the round's numbers on train rows."""
        from mfairfl.runs.history import round_numbers  # noqa: PLC0415 - loads PyTorch

        del state
        values, conflicts = round_numbers(setup, record), record.log.get("conflicts")
        self.show_round(record.round, record.rounds, values, conflicts)


class JournalProgress(Bar):
    """Follower that shows the lines of a federated run's journal."""

    def __call__(self, line: dict[str, Any]) -> None:
        """Show one line."""
        event = line["event"]
        if event == "waiting":
            self.note(f"waiting for {', '.join(line['clients'])}")
        elif event == "enrolling":
            self.note(f"online: {', '.join(line['online'])}; agreeing on one encoding")
        elif event == "auditing":
            self.note(f"online: {', '.join(line['online'])}; asking for counts")
        elif event == "started":
            where = f", resuming after round {line['round']}" if line["round"] else ""
            self.note(f"training with {', '.join(line['clients'])}{where}")
            self.start(line["rounds"], line["round"])
        elif event == "round":
            self.show_round(line["round"], line["rounds"], line)
        elif event == "warning":
            self.note(f"warning: {line['message']}")


class TrialProgress(Bar):
    """Watcher that shows the trials of a search.

    Parameters
    ----------
    trials : int
        How many complete trials are wanted.
    """

    def __init__(self, console: Console, trials: int, *, quiet: bool) -> None:
        super().__init__(console, quiet=quiet)
        self._trials, self._complete = trials, 0

    def on_start(self, complete: int) -> None:
        """Say from where a search resumes."""
        self._complete = complete
        if complete:
            self.note(f"resuming after {complete} complete trials of {self._trials}")
        self.start(self._trials, complete)

    def on_round(self, share: float) -> None:
        """Move the bar by a part of a trial."""
        self.move(self._complete + share)

    def on_trial(self, trial: SearchTrial, complete: int) -> None:
        """Show the numbers of a complete trial."""
        self._complete = complete
        accuracy = f"accuracy {trial.mean('accuracy'):.4f}"
        numbers = [accuracy, f"violation {trial.violation:.4f}"]
        name = f"trial {complete}/{self._trials}"
        values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
        self.show(name, complete, numbers)
        if self.lines:
            say("  ".join([name, *numbers, values]))


class ManyRuns(Bar):
    """Adds up the rounds of runs that go on side by side in several processes.

    Parameters
    ----------
    console : Console
        Where to show it.
    clock : callable
        Seconds; for the plain lines.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console)
        self._clock = clock
        self._lock = threading.Lock()  # every worker process is followed by a thread of its own
        self._shares: dict[str, float] = {}

    def begin(self, name: str, total: int) -> None:
        """Start counting a new list of `total` runs."""
        with self._lock:
            self._name, self._total, self._printed = name, total, 0
            self._shares, self._started = {}, self._clock()
            self.start(total, 0)
            self.show(name, 0, [f"0/{total} runs"])

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Count a completed round."""
        with self._lock:
            self._shares[out] = round_ / rounds if rounds else 1.0
            done = sum(self._shares.values())
            runs = f"{sum(share == 1 for share in self._shares.values())}/{self._total} runs"
            self.show(self._name, done, [runs])
            twentieth = int(20 * done / max(1, self._total))
            if self.lines and twentieth > self._printed:
                self._printed = twentieth
                spent = self._clock() - self._started
                left = spent * (self._total - done) / done
                say(f"{self._name}: {runs}, {_minutes(spent)} gone, about {_minutes(left)} left")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
