"""The events of a federated run, one per line: journal.jsonl in its folder.

The server app writes it, the process that waits for the run reads it, and an auditor finds in it
which clients were left out of which exchange, and why.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mfairfl.engine.loop import Callback
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import MfairflError
from mfairfl.failpoints import failpoint
from mfairfl.runs.history import round_numbers

JOURNAL = "journal.jsonl"
"""Name of the file."""

_SHOWN = ("train_loss", "train_accuracy", "train_violation", "train_client_accuracy_gap")


class Journal(logging.Handler, Callback):
    """Writes events; also a callback of the round loop and a log handler for warnings.

    Parameters
    ----------
    run : str
        Flower's number of this attempt: a run that was stopped has several.
    """

    def __init__(self, path: Path, run: str) -> None:
        logging.Handler.__init__(self, logging.WARNING)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._run = path, run
        if path.exists():  # an incomplete last line is what a full disk left
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def add(self, event: str, **facts: Any) -> None:
        """Append a line."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "run": self._run}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"event": event} | facts, ensure_ascii=False) + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        """Append a warning."""
        self.add("warning", message=record.getMessage())

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Append who takes part, and the round from which the run continues."""
        clients = sorted(setup.summary.counts)
        self.add("started", round=state.round, rounds=setup.rounds, clients=clients)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Append the round's metrics, if all clients were measured."""
        del state
        numbers = round_numbers(setup, record)
        self.add(
            "round",
            round=record.round,
            rounds=record.rounds,
            counted=sorted(record.coefficients),
            **{name: numbers[name] for name in _SHOWN if "train" in record.complete},
        )
        failpoint("journal.round", record.round)


@contextmanager
def journalled(folder: Path, run: str) -> Iterator[Journal]:
    """Write a journal of what is done in the block: warnings, and why it fails if it does."""
    journal, logger = Journal(folder / JOURNAL, run), logging.getLogger("mfairfl")
    logger.addHandler(journal)
    try:
        yield journal
    except Exception as error:
        kind = "" if isinstance(error, MfairflError) else f"{type(error).__name__}: "
        journal.add("failed", message=kind + " ".join(str(error).split()))
        raise
    finally:
        logger.removeHandler(journal)


def read_journal(path: Path, run: str, skip: int = 0) -> Iterator[dict[str, Any]]:
    """Return the complete lines of one attempt, after the first `skip`."""
    if not path.exists():
        return
    # Not `splitlines` of text: a message may hold other line ends, which JSON keeps.
    lines = (json.loads(line) for line in path.read_bytes().split(b"\n")[:-1])
    yield from [line for line in lines if line["run"] == run][skip:]
