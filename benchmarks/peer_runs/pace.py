"""How a library is driven round by round from outside.

A line on standard input asks for one round; the answer is one line of JSON on standard output:
first the versions in use, then for each round its seconds and this process's processor seconds.
What the library does between two calls of `lap` counts, waiting for the next line does not. At the
end of the input `Finished` is raised. Whatever the library itself prints goes to standard error.
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
    """Waits for the word before every round, and answers with its times afterwards."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began = self._spent = 0.0

    def start(self, *packages: str) -> None:
        """Say that rounds can begin, and with which versions."""
        self._answer({package: version(package).split("+")[0] for package in packages})
        self._wait()

    def lap(self, *, alone: bool = True) -> None:
        """Say how long the round took that ends here, and how much of it this process worked.

        If it did not work `alone`, its share says nothing and is left out.
        """
        seconds, spent = time.perf_counter() - self._began, time.process_time() - self._spent
        self._answer([seconds, spent if alone else None])
        self._wait()

    def _answer(self, what: object) -> None:
        print(json.dumps(what), file=self._answers, flush=True)

    def _wait(self) -> None:
        if not sys.stdin.readline():
            raise Finished
        self._began, self._spent = time.perf_counter(), time.process_time()
