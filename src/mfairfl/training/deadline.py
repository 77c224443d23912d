"""What ends a computation early, looked at between its steps: no number changes by it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mfairfl.errors import TimeLimitError

_end: ContextVar[float] = ContextVar("end", default=math.inf)
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let `check_time` raise in this block once so many seconds are over.

    Examples
    --------
    >>> with time_limit(60):
    ...     check_time()
    """
    before = _end.set(min(_end.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _end.reset(before)


@contextmanager
def stoppable_by(event: threading.Event) -> Iterator[None]:
    """Let `check_time` raise in this block, and in threads that get its context, once it is set.

    Nobody then waits for the result: whoever set the event has an error of his own.
    """
    before = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(before)


def check_time() -> None:
    """Raise if the time of the enclosing `time_limit` is over, or nobody needs the result."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise TimeLimitError("nobody needs this computation any more")
    if time.monotonic() >= _end.get():
        raise TimeLimitError("the time for this computation is over")
