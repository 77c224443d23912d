"""Independent work on several threads: the same results, in the same order, for any number.

Threads share the rows and need no messages, and PyTorch computes outside of Python's lock: two of
them are as fast as two processes here. What a piece of work computes does not depend on its
company, so it does not matter which thread gets it.
"""

from __future__ import annotations

import contextvars
import heapq
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

from mfairfl.training.arithmetic import compute_steadily
from mfairfl.training.deadline import stoppable_by

T = TypeVar("T")
R = TypeVar("R")


class Crew:
    """Carries out lists of work; close it when there is no more.

    Parameters
    ----------
    workers : int
        Threads; with one, work is done where it is asked for.

    Examples
    --------
    >>> with Crew(2) as crew:
    ...     crew.carry_out(lambda words: [len(word) for word in words], ["a", "bcd"], [1, 3])
    [1, 3]
    """

    def __init__(self, workers: int = 1) -> None:
        self._workers, self._stop = workers, threading.Event()
        self._threads: ThreadPoolExecutor | None = None
        if workers > 1:
            self._threads = ThreadPoolExecutor(workers, initializer=compute_steadily)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def carry_out(
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
        parts = shared_out(sizes, self._workers)
        with stoppable_by(self._stop):
            futures: list[Future[list[R]]] = [
                self._threads.submit(
                    contextvars.copy_context().run, function, [items[i] for i in part]
                )
                for part in parts
            ]
        found: dict[int, R] = {}
        for part, future in zip(parts, futures, strict=True):
            found.update(zip(part, future.result(), strict=True))
        return [found[i] for i in range(len(items))]


def shared_out(sizes: Sequence[float], workers: int) -> list[list[int]]:
    """Divide places into parts of about the same size: the largest first, to whoever has least.

    Examples
    --------
    >>> shared_out([5, 1, 4, 1], 2)
    [[0, 3], [1, 2]]
    """
    loads = [(0.0, part) for part in range(min(workers, len(sizes)))]
    parts: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, part = heapq.heappop(loads)
        parts[part].append(place)
        heapq.heappush(loads, (load + sizes[place], part))
    return [sorted(part) for part in parts]
