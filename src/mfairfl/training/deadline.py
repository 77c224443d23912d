"""A limit on the time of a computation, looked at between its steps: no number changes by it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mfairfl.errors import TimeLimitError

__all__ = ["check_time", "time_limit"]

_end: ContextVar[float] = ContextVar("end", default=math.inf)


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


def check_time() -> None:
    """Raise if the time of the enclosing `time_limit` is over; without one there is no limit."""
    if time.monotonic() >= _end.get():
        raise TimeLimitError("the time for this computation is over")
