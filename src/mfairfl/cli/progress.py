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
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from mfairfl.cli.pace import Pace
from mfairfl.cli.show import INTERRUPTED, say

if TYPE_CHECKING:
    from mfairfl.engine.state import RoundRecord, RunState, Setup
    from mfairfl.experiments.search.trials import SearchTrial
    from mfairfl.runs.workers import PlannedRun

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


class _Times(ProgressColumn):
    """Shows times that are asked for whenever the bar is drawn."""

    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell
        super().__init__()

    def render(self, task: Task) -> Text:
        """Draw them."""
        del task
        return Text(self._tell())


class Bar:
    """Shows how far work is.

    Parameters
    ----------
    console : Console
        Where to show it; a bar is drawn only on a terminal.
    quiet : bool
        Print no plain lines where there is no terminal.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lines = not console.is_terminal and not quiet
        self.clock, self._width = clock, console.width
        self._pace: Pace | None = None
        self._done, self._counting = 0.0, False
        self._numbers, self._told = list[str](), 0
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR),
            _Times(self.times),
            TextColumn("{task.fields[numbers]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, numbers="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # older rich ends even a bar that never started with a line
            self._bar.live.transient = not self._counting  # an error stands alone
            self._bar.stop()

    def times(self) -> str:
        """Return the times that stand beside the bar; asked for by the thread that draws."""
        return f"{_hours(self.seconds_left())} left "

    def seconds_left(self) -> float | None:
        """Return how long the work will still take, None as long as that is not known."""
        return None if self._pace is None else self._pace.left(self.clock())

    def note(self, line: str) -> None:
        """Print a line, unless nothing is to be shown."""
        if self._bar.live.is_started:  # above the bar, not inside it
            self._bar.console.print(line, soft_wrap=True)
        elif self.lines or not self._bar.disable:
            say(line)

    def loading(self, what: str, *, checked: bool = False) -> None:
        """Say that what is needed is being loaded.

        As long as the input is not `checked`, only a terminal shows it, and takes it back if the
        input proves wrong: an error is one line.
        """
        self._bar.update(self._task, description=f"{what}: loading", numbers="")
        self._bar.start()
        if self.lines and checked:
            say(f"{what}: loading")

    def start(self, total: float, done: float) -> None:
        """Start the bar; not before, since lines printed earlier would end up inside it."""
        self._pace, self._done, self._counting = Pace(total - done, self.clock()), done, True
        self._bar.reset(self._task, total=total, completed=int(done))
        self._bar.start()

    def move(self, done: float) -> None:
        """Move the bar."""
        if self._pace is not None:
            self._pace.advance(done - self._done, self.clock())
        self._done = done
        self._bar.update(self._task, completed=done)

    def show(self, name: str, done: float, numbers: Sequence[str]) -> None:
        """Move the bar, with a name and as many numbers as fit beside it."""
        self.move(done)
        room = self._width - len(name) - _BAR - len(self.times()) - 3
        text = ""
        for number in numbers:
            longer = f"{text}  {number}".strip()
            if len(longer) > room:
                break
            text = longer
        self._bar.update(self._task, description=name, numbers=text)

    def show_round(
        self, round_: int, rounds: int, values: Mapping[str, Any], conflicts: int | None = None
    ) -> None:
        """Show a round's numbers; where there is no bar, a line for every tenth of the rounds.

        Without values of its own a round moves the bar beside the numbers of the last that had.
        """
        name = f"round {round_}/{rounds}"
        if set(_SHOWN.values()) <= values.keys():
            told = [f"{name} {_three_digits(values[key])}" for name, key in _SHOWN.items()]
            self._numbers = told if conflicts is None else [*told, f"conflicts {conflicts}"]
            tenth = round_ - self._told >= max(1, round(rounds / 10)) or round_ in (0, rounds)
            if self.lines and tenth:
                self._told = round_
                say("  ".join([name, *self._numbers]))
        self.show(name, round_, self._numbers)


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
        conflicts = record.log.get("conflicts")
        values = round_numbers(setup, record) if "train" in record.complete else {}
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

    What a run need not do, because it was finished or begun before, does not count as speed.

    Parameters
    ----------
    console : Console
        Where to show it.
    clock : callable
        Seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, clock=clock)
        self._lock = threading.Lock()  # every worker process is followed by a thread of its own
        self._shares: dict[str, float] = {}
        self._runs: Mapping[str, PlannedRun] = {}
        self._name, self._printed = "", 0
        self._since: float | None = None

    def times(self) -> str:
        """Return the time gone and the time left."""
        gone = 0.0 if self._since is None else self.clock() - self._since
        return f"{_hours(gone)} gone {super().times()}"

    def loading(self, what: str, *, checked: bool = False) -> None:
        """Say that what is needed is being loaded; from now on time is counted."""
        self._since = self.clock()
        super().loading(what, checked=checked)

    def stage(self, what: str) -> None:
        """Say what is being done while there is nothing to count."""
        with self._lock:
            self.show(f"{self._name}: {what}", self._done, self._counts())
            if self.lines:
                say(f"{self._name}: {what}")

    def begin(self, name: str, runs: Mapping[str, PlannedRun]) -> None:
        """Start counting a new list of runs."""
        with self._lock:
            if self._name or self._since is None:  # else it began with what was said before it
                self._since = self.clock()
            self._name, self._runs, self._shares, self._printed = name, runs, {}, 0
            self.start(sum(run.work for run in runs.values()), 0)
            self._pace = None if self._rounds() else self._pace  # from the first message on
            self.show(f"{name}: reading data", 0, self._counts())
            if self.lines:
                say(f"{name}: {', '.join(self._counts())}; reading data")

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Count a completed round; the first message of a run says from where it resumes."""
        with self._lock:
            run, share = self._runs[out], round_ / rounds if rounds else 1.0
            if self._pace is None:
                self._pace = Pace(sum(one.work for one in self._runs.values()), self.clock())
            if out not in self._shares and run.rounds:
                self._pace.skip(share * run.work)
                self._done += share * run.work
            self._shares[out] = share
            done = sum(self._runs[name].work * part for name, part in self._shares.items())
            self.show(self._name, done, self._counts())
            twentieth = int(20 * done / max(1.0, sum(one.work for one in self._runs.values())))
            if self.lines and twentieth > self._printed:
                self._printed = twentieth
                say(f"{self._name}: {', '.join([*self._counts(), *self._gone_and_left()])}")

    def _rounds(self) -> int:
        return sum(run.rounds for run in self._runs.values())

    def _counts(self) -> list[str]:
        done = sum(share * self._runs[out].rounds for out, share in self._shares.items())
        ended = sum(share == 1 for share in self._shares.values())
        rounds = [f"{done:,.0f}/{self._rounds():,} rounds"] if self._rounds() else []
        return [*rounds, f"{ended}/{len(self._runs)} runs"]

    def _gone_and_left(self) -> list[str]:
        gone, left = self.clock() - (self._since or 0.0), self.seconds_left()
        told = [] if left is None else [f"about {_minutes(left)} left"]
        return [f"{_minutes(gone)} gone", *told]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _hours(seconds: float | None) -> str:
    """Write a time as a clock does.

    Examples
    --------
    >>> _hours(61.2), _hours(3661), _hours(None)
    ('1:01', '1:01:01', '-:--')
    """
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
