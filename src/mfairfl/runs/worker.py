"""A worker process: carries out runs side by side on one thread, and ends with its parent.

Every line of standard input is a part of the work, ``[{"config": …, "out": …}, …]``. It answers
with JSON lines on standard output: ``{"out": …, "round": …, "rounds": …}`` after every round, at
the end ``{"done": true}`` or ``{"error": …}``. Results are the run directories. When standard
input closes, the parent is gone or content, and the worker leaves at once. The runs can be taken
up again.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import MfairflError
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import RunRequest, run_requests

__all__ = ["main"]


class _Tell:
    """Callback that reports rounds to the parent."""

    def __init__(self, out: str) -> None:
        self._out = out

    def on_start(self, setup: Setup, state: RunState) -> None:
        _say({"out": self._out, "round": state.round, "rounds": setup.rounds})

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        del record
        _say({"out": self._out, "round": state.round, "rounds": setup.rounds})


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _read(parts: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        parts.put(line)
    os._exit(0)  # even in the middle of a round: nobody waits for it any more


def main() -> int:
    """Work through the parts given on standard input."""
    # Ctrl-C reaches every process of a terminal; the parent's end is what counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parts: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(parts,), daemon=True).start()
    while True:
        items = json.loads(parts.get())
        try:
            run_requests([_request(item) for item in items])
        except MfairflError as error:
            _say({"error": str(error)})
            return 2
        for item in items:  # also those that were finished before
            _say({"out": item["out"], "round": 1, "rounds": 1})
        _say({"done": True})


def _request(item: dict[str, Any]) -> RunRequest:
    out = item["out"]
    config = make_config(item["config"])
    return RunRequest(config=config, out=Path(out), callbacks=(_Tell(out),))


if __name__ == "__main__":
    sys.exit(main())
