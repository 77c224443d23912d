"""How a library is driven round by round from outside.

A line on standard input asks for one round; the answer is one line of JSON on standard output:
first the versions in use, then the seconds of each round. What the library does between two calls
of `lap` counts, waiting for the next line does not. At the end of the input `Finished` is raised.
Whatever the library itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version

__all__ = ["Finished", "Pace"]


class Finished(SystemExit):
    """No more rounds are wanted."""


class Pace:
    """Waits for the word before every round, and answers with its seconds afterwards."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began = 0.0

    def start(self, *packages: str) -> None:
        """Say that rounds can begin, and with which versions."""
        self._answer({package: version(package).split("+")[0] for package in packages})
        self._wait()

    def lap(self) -> None:
        """Say how long the round took that ends here."""
        self._answer(time.perf_counter() - self._began)
        self._wait()

    def _answer(self, what: object) -> None:
        print(json.dumps(what), file=self._answers, flush=True)

    def _wait(self) -> None:
        if not sys.stdin.readline():
            raise Finished
        self._began = time.perf_counter()
