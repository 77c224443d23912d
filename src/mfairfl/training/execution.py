"""How numbers are computed: in one arithmetic, within a time limit, on several threads.

Bits are promised for one arithmetic: one thread, no denormal numbers. Sums split over threads
round differently, and threads that wait for work on small arrays cost more than they do. Numbers
below 1e-38 (a dead unit's gradient, a decayed weight) carry no information but slow the processor
down many times over; they become 0.

Independent work is spread over threads instead: the same results, in the same order, for any
number of them. Threads share the rows and need no messages, and PyTorch computes outside of
Python's lock, so two threads are as fast as two processes here. A result does not depend on which
thread computes it, nor on the other items in the list.
"""

import contextvars
import heapq
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self, TypeVar

import torch
from threadpoolctl import threadpool_limits

from mfairfl.errors import TimeLimitError

T = TypeVar("T")
R = TypeVar("R")

_end: ContextVar[float] = ContextVar("end", default=math.inf)
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def steady_arithmetic() -> Iterator[None]:
    """Compute on one thread with denormals flushed; restore the caller's threads afterwards.

    PyTorch cannot report its treatment of denormals, so its default is restored. The setting
    belongs to a thread: threads that compute enter a block each, and their starter is inside one,
    so that the first to leave does not give the others more threads.
    """
    threads = torch.get_num_threads()
    _compute_steadily()
    try:
        with threadpool_limits(limits=1, user_api="blas"):  # NumPy's
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _compute_steadily() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let `check_time` raise in this block after this many seconds.

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
    """Raise if the enclosing `time_limit` is over, or the result is no longer needed.

    Computations call it between their steps: no number changes by it.
    """
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise TimeLimitError("the result of this computation is no longer needed")
    if time.monotonic() >= _end.get():
        raise TimeLimitError("the time for this computation is over")


class ThreadExecutor:
    """Runs lists of independent work on threads; close it to stop what is still running.

    Parameters
    ----------
    workers : int
        Threads; with one, work runs in the caller's thread.

    Examples
    --------
    >>> with ThreadExecutor(2) as executor:
    ...     executor.run(lambda words: [len(word) for word in words], ["a", "bcd"], [1, 3])
    [1, 3]
    """

    def __init__(self, workers: int = 1) -> None:
        self._workers, self._stop = workers, threading.Event()
        self._threads: ThreadPoolExecutor | None = None
        if workers > 1:
            self._threads = ThreadPoolExecutor(workers, initializer=_compute_steadily)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def run(
        self,
        function: Callable[[Sequence[T]], list[R]],
        items: Sequence[T],
        sizes: Sequence[float],
    ) -> list[R]:
        """Return `function(items)`, computed on parts of the list at the same time.

        Parameters
        ----------
        function : callable
            Gives a result for each item of a list, whatever else is in it.
        sizes : sequence of float
            How long each item takes, compared with the others.
        """
        if self._threads is None or len(items) < 2:
            return function(items)
        parts = balanced_parts(sizes, self._workers)
        token = _stop.set(self._stop)  # threads get a copy of this context
        try:
            futures: list[Future[list[R]]] = [
                self._threads.submit(
                    contextvars.copy_context().run, function, [items[i] for i in part]
                )
                for part in parts
            ]
        finally:
            _stop.reset(token)
        results: dict[int, R] = {}
        for part, future in zip(parts, futures, strict=True):
            results.update(zip(part, future.result(), strict=True))
        return [results[i] for i in range(len(items))]


def balanced_parts(sizes: Sequence[float], workers: int) -> list[list[int]]:
    """Divide places into parts of about the same size: the largest first, to the lightest part.

    Examples
    --------
    >>> balanced_parts([5, 1, 4, 1], 2)
    [[0, 3], [1, 2]]
    """
    loads = [(0.0, part) for part in range(min(workers, len(sizes)))]
    parts: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, part = heapq.heappop(loads)
        parts[part].append(place)
        heapq.heappush(loads, (load + sizes[place], part))
    return [sorted(part) for part in parts]
