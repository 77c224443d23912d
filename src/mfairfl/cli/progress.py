"""Progress of a run: a bar on a terminal, else a plain line every tenth of the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from mfairfl.cli.bar import Bar
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.runs.history import round_numbers

__all__ = ["JournalProgress", "RoundProgress"]

_SHOWN = {
    "loss": "train_loss",
    "accuracy": "train_accuracy",
    "violation": "train_violation",
    "client gap": "train_client_accuracy_gap",
}


class RoundProgress(Bar):
    """Callback that shows rounds.

    Parameters
    ----------
    folder : Path
        The run folder, to be named at the start.
    """

    def __init__(self, console: Console, folder: Path, *, quiet: bool) -> None:
        super().__init__(console, quiet=quiet)
        self.started, self._folder = False, folder

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Say from where a run goes on."""
        self.started = True
        where = f", going on after round {state.round}" if state.round else ""
        self.note(f"run folder: {self._folder}{where}")
        self.begin(setup.rounds, state.round)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Show the round's numbers on train rows."""
        del state
        pairs = record.log.get("conflicts")
        text = _text(round_numbers(setup, record), pairs)
        _show(self, record.round, record.rounds, text)


class JournalProgress(Bar):
    """Follower that shows the lines of a federated run's journal."""

    def __call__(self, line: dict[str, Any]) -> None:
        """Show one line."""
        event = line["event"]
        if event == "waiting":
            self.note(f"waiting for {', '.join(line['clients'])}")
        elif event == "enrolling":
            self.note(f"online: {', '.join(line['online'])}; agreeing on one encoding")
        elif event == "started":
            where = f", going on after round {line['round']}" if line["round"] else ""
            self.note(f"training with {', '.join(line['clients'])}{where}")
            self.begin(line["rounds"], line["round"])
        elif event == "round":
            _show(self, line["round"], line["rounds"], _text(line, None))
        elif event == "warning":
            self.note(f"warning: {line['message']}")


def _show(bar: Bar, round_: int, rounds: int, text: str) -> None:
    name, step = f"round {round_}/{rounds}", max(1, round(rounds / 10))
    said = f"{name}  {text}" if round_ % step == 0 or round_ == rounds else None
    bar.tell(name, round_, text, line=said)


def _text(numbers: Mapping[str, Any], conflicts: int | None) -> str:
    parts = [f"{name} {_three_digits(numbers[key])}" for name, key in _SHOWN.items()]
    if conflicts is not None:
        parts.append(f"conflicts {conflicts}")
    return "  ".join(parts)


def _three_digits(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
