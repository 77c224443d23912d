"""The arithmetic in which bits are promised: one thread, no denormal numbers.

Sums split over threads round differently, and threads that wait for work on small arrays cost more
than they do. Numbers below 1e-38 (a dead unit's gradient, a decayed
weight) carry no information but slow the processor down many times over; they become 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def steady_arithmetic() -> Iterator[None]:
    """Compute on one thread with denormals flushed; restore the caller's threads afterwards.

    PyTorch can set but not tell its treatment of denormals, so its default is restored. It is a
    thread's own: threads that compute enter a block each, and whoever starts them is inside one,
    so that the first to leave does not give the others more threads.
    """
    threads = torch.get_num_threads()
    compute_steadily()
    try:
        with threadpool_limits(limits=1, user_api="blas"):  # NumPy's
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def compute_steadily() -> None:
    """Let PyTorch compute so in this thread, for as long as the thread lives."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
