"""Progress: a bar with the time left on a terminal, elsewhere plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM, signal
from typing import TYPE_CHECKING, Any, Self

import typer
from rich import progress
from rich.console import Console

from mfairfl.cli.show import INTERRUPTED, say

if TYPE_CHECKING:
    from mfairfl.engine.state import RoundRecord, RunState, Setup
    from mfairfl.experiments.search.trials import SearchTrial
    from mfairfl.runs.workers import PlannedRun

_BAR = 10  # characters
_TIME = len("0:00:00 left ")
_SPEED_PERIOD = 3600  # seconds over which the speed is measured; a round may take minutes
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
    """A progress bar; without a terminal, plain lines.

    Parameters
    ----------
    console : Console
        Where to show it; a bar is drawn only on a terminal.
    quiet : bool
        Print no plain lines where there is no terminal.
    elapsed : bool
        Show the time elapsed beside the time left.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        quiet: bool = False,
        elapsed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lines = not console.is_terminal and not quiet
        self._counting = False
        self._numbers, self._last_line = list[str](), 0
        left = [progress.TimeRemainingColumn(), progress.TextColumn("left")]
        gone = [progress.TimeElapsedColumn(), progress.TextColumn("gone")]
        times: list[progress.ProgressColumn] = [*gone, *left] if elapsed else left
        self._room = console.width - _BAR - _TIME * len(times) // 2 - 3
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=_BAR),
            *times,
            progress.TextColumn("{task.fields[numbers]}", markup=False),
            console=console,
            disable=not console.is_terminal,
            get_time=clock,
            speed_estimate_period=_SPEED_PERIOD,
        )
        self._id = self._bar.add_task("starting", total=None, numbers="")
        self.work = self._bar.tasks[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # older rich ends even a bar that never started with a line
            self._bar.live.transient = not self._counting  # an error stands alone
            self._bar.stop()

    def note(self, line: str) -> None:
        """Print a line, unless nothing is to be shown."""
        if self._bar.live.is_started:  # above the bar, not inside it
            self._bar.console.print(line, soft_wrap=True)
        elif self.lines or not self._bar.disable:
            say(line)

    def loading(self, what: str, *, checked: bool = False) -> None:
        """Show that libraries and data are being loaded.

        As long as the input is not `checked`, only a terminal shows it, and takes it back if the
        input proves wrong: an error is one line.
        """
        self._bar.update(self._id, description=f"{what}: loading", numbers="")
        self._bar.start()
        if self.lines and checked:
            say(f"{what}: loading")

    def start(self, total: float, done: int = 0) -> None:
        """Start the bar; not before, since lines printed earlier would end up inside it."""
        self._counting = True
        self._bar.reset(self._id, total=total, completed=done)
        self._bar.start()

    def start_rounds(self, what: str, rounds: int, done: int) -> None:
        """Start the bar of a run, with a line that names the round from which it resumes."""
        self.note(f"{what}, resuming after round {done}" if done else what)
        self.start(rounds, done)

    def show(self, name: str, numbers: Sequence[str], done: float | None = None) -> None:
        """Move the bar, and show a name with as many numbers as fit beside it."""
        text = ""
        for number in numbers:
            longer = f"{text}  {number}".strip()
            if len(longer) > self._room - len(name):
                break
            text = longer
        self._bar.update(self._id, description=name, numbers=text, completed=done)

    def show_round(
        self, round_: int, rounds: int, values: Mapping[str, Any], conflicts: int | None = None
    ) -> None:
        """Show a round's numbers; where there is no bar, a line for every tenth of the rounds.

        A round that was not measured moves the bar and leaves the last numbers beside it.
        """
        title = f"round {round_}/{rounds}"
        if set(_SHOWN.values()) <= values.keys():
            self._numbers = [
                f"{key} undefined" if values[name] is None else f"{key} {values[name]:.3f}"
                for key, name in _SHOWN.items()
            ]
            if conflicts is not None:
                self._numbers.append(f"conflicts {conflicts}")
            tenth = round_ - self._last_line >= max(1, round(rounds / 10))
            if self.lines and (tenth or round_ in (0, rounds)):
                self._last_line = round_
                say("  ".join([title, *self._numbers]))
        self.show(title, self._numbers, round_)


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
        """Show the run's folder, and the round from which it resumes."""
        self.started = True
        self.start_rounds(f"run folder: {self._folder}", setup.rounds, state.round)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Show the round's numbers on train rows."""
        from mfairfl.runs.history import round_numbers  # noqa: PLC0415 - loads PyTorch

        del state
        conflicts = record.log.get("conflicts")
        values = round_numbers(setup, record) if "train" in record.complete else {}
        self.show_round(record.round, record.rounds, values, conflicts)


class JournalProgress(Bar):
    """Follower that shows the lines of a federated run's journal."""

    def __call__(self, line: dict[str, Any]) -> None:
        """Show one line."""
        match line["event"]:
            case "waiting":
                self.note(f"waiting for {', '.join(line['clients'])}")
            case "enrolling":
                self.note(f"online: {', '.join(line['online'])}; agreeing on one encoding")
            case "auditing":
                self.note(f"online: {', '.join(line['online'])}; asking for counts")
            case "started":
                what = f"training with {', '.join(line['clients'])}"
                self.start_rounds(what, line["rounds"], line["round"])
            case "round":
                self.show_round(line["round"], line["rounds"], line)
            case "warning":
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
        """Show the number of trials after which a search resumes."""
        self._complete = complete
        if complete:
            self.note(f"resuming after {complete} complete trials of {self._trials}")
        self.start(self._trials, complete)

    def on_round(self, share: float) -> None:
        """Move the bar by a part of a trial."""
        self._bar.update(self._id, completed=self._complete + share)

    def on_trial(self, trial: SearchTrial, complete: int) -> None:
        """Show the numbers of a complete trial."""
        self._complete = complete
        name = f"trial {complete}/{self._trials}"
        accuracy, violation = trial.mean("accuracy"), trial.violation
        numbers = [f"accuracy {accuracy:.4f}", f"violation {violation:.4f}"]
        self.show(name, numbers, complete)
        if self.lines:
            values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
            say("  ".join([name, *numbers, values]))


class ManyRuns(Bar):
    """Sums up the rounds of runs that go on side by side in several processes.

    Parameters
    ----------
    console : Console
        Where to show it.
    clock : callable
        Seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, elapsed=True, clock=clock)
        self._lock = threading.Lock()  # every worker process is followed by a thread of its own
        self._shares: dict[str, float] = {}
        self._runs: Mapping[str, PlannedRun] = {}
        self._name, self._twentieth = "", 0

    def stage(self, what: str) -> None:
        """Show what is being done while there is nothing to count."""
        with self._lock:
            self.show(f"{self._name}: {what}", self._counts())
            if self.lines:
                say(f"{self._name}: {what}")

    def begin(self, name: str, runs: Mapping[str, PlannedRun]) -> None:
        """Start counting a new list of runs."""
        with self._lock:
            self._name, self._runs, self._shares, self._twentieth = name, runs, {}, 0
            self.start(sum(run.work for run in runs.values()))
            self.show(f"{name}: reading data", self._counts())
            if self.lines:
                say(f"{name}: {', '.join(self._counts())}; reading data")

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Count a completed round; the first message of a run says from where it resumes."""
        with self._lock:
            resumes = out not in self._shares and self._runs[out].rounds > 0
            self._shares[out] = round_ / rounds if rounds else 1.0
            done = sum(self._runs[name].work * share for name, share in self._shares.items())
            if resumes:
                self.work.completed = done  # earlier work does not count as speed
            self.show(self._name, self._counts(), done)
            twentieth = int(20 * done / max(1.0, self.work.total or 0.0))
            if self.lines and twentieth > self._twentieth:
                self._twentieth = twentieth
                times = [f"{_minutes(self.work.elapsed or 0.0)} gone"]
                if (left := self.work.time_remaining) is not None:
                    times.append(f"about {_minutes(left)} left")
                say(f"{self._name}: {', '.join([*self._counts(), *times])}")

    def _counts(self) -> list[str]:
        total = sum(run.rounds for run in self._runs.values())
        done = sum(share * self._runs[out].rounds for out, share in self._shares.items())
        ended = sum(share == 1 for share in self._shares.values())
        rounds = [f"{done:,.0f}/{total:,} rounds"] if total else []
        return [*rounds, f"{ended}/{len(self._runs)} runs"]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
