"""A worker process: carries out runs side by side on one thread, and ends with its parent.

It reads one JSON line, ``[{"config": …, "out": …}, …]``, from standard input and answers with JSON
lines on standard output: ``{"out": …, "round": …, "rounds": …}`` after every round, or
``{"error": …}``. Results are the run directories. Standard input stays open as long as the parent
lives; when it closes, the worker leaves at once. The runs can be taken up again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import MfairflError
from mfairfl.experiments.config import make_config
from mfairfl.experiments.execute import Request, run_requests

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


def _leave_with_parent() -> None:
    sys.stdin.read()  # returns when the parent is gone, however it went
    os._exit(1)


def main() -> int:
    """Work through the runs given on standard input."""
    items = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        run_requests(
            [
                Request(
                    config=make_config(item["config"]),
                    out=Path(item["out"]),
                    callbacks=(_Tell(item["out"]),),
                )
                for item in items
            ]
        )
    except MfairflError as error:
        _say({"error": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
