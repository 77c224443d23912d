"""Progress of a run: a bar on a terminal, else a plain line every tenth of the rounds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mfairfl.cli.show import say
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.experiments.history import round_numbers

__all__ = ["RoundProgress"]


class RoundProgress:
    """Callback that shows rounds.

    Parameters
    ----------
    console : Console
        Where to; a bar is drawn only on a terminal.
    folder : Path
        The run folder, to be named at the start.
    quiet : bool
        Print no plain lines where there is no terminal.
    """

    def __init__(self, console: Console, folder: Path, *, quiet: bool) -> None:
        self.started = False
        self._folder = folder
        self._lines = not console.is_terminal and not quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[numbers]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, numbers="")

    def __enter__(self) -> RoundProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # older rich ends even a bar that never was with a line
            self._bar.stop()

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Say from where a run goes on."""
        self.started = True
        if self._lines or not self._bar.disable:
            where = f", going on after round {state.round}" if state.round else ""
            say(f"run folder: {self._folder}{where}")
        self._bar.reset(self._task, total=setup.rounds, completed=state.round)
        # Not before: what is said while data are read would end up inside the bar.
        self._bar.start()

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Show the round's numbers on train rows."""
        del state
        text = _numbers(setup, record)
        name = f"round {record.round}/{record.rounds}"
        self._bar.update(self._task, completed=record.round, description=name, numbers=text)
        step = max(1, round(record.rounds / 10))
        if self._lines and (record.round % step == 0 or record.round == record.rounds):
            say(f"{name}  {text}")


def _numbers(setup: Setup, record: RoundRecord) -> str:
    numbers = round_numbers(setup, record)
    shown = {
        "loss": numbers["train_loss"],
        "accuracy": numbers["train_accuracy"],
        "violation": numbers["train_violation"],
        "client gap": numbers["train_client_accuracy_gap"],
    }
    parts = [f"{name} {_three_digits(value)}" for name, value in shown.items()]
    if (pairs := record.log.get("conflicts")) is not None:
        parts.append(f"conflicts {pairs}")
    return "  ".join(parts)


def _three_digits(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
