"""Spread independent runs over processes, one thread each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from mfairfl.errors import MfairflError
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory

__all__ = ["run_many"]

Worker = subprocess.Popen[str]
Work = tuple[Config, str | Path]
Progress = Callable[[str, int, int], None]
"""Called with the run directory, its completed rounds and their number."""

_AT_ONCE = 5  # runs side by side: wide enough a stack, and little to wait for at the end


def run_many(
    runs: Sequence[Work], *, processes: int | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Carry out runs, each into its own directory, and return their records in order.

    Runs are cut into parts of a few that share their rows; each worker process takes part after
    part, and inside a part the runs advance side by side. Whatever the number of processes, the
    results have the same bits. Interrupted runs go on; finished ones are not repeated.

    Parameters
    ----------
    runs : sequence of (Config, path)
        What to run, and the run directory.
    processes : int, optional
        Number of workers; by default one for each processor this process may use.
    progress : callable, optional
        Told of every completed round.

    Raises
    ------
    MfairflError
        The first worker's error; the others are stopped, and can be taken up again.
    """
    if not runs:
        return []
    count = min(processes or len(os.sched_getaffinity(0)), len(runs))
    parts = deque(_parts(runs, min(_AT_ONCE, -(-len(runs) // count))))
    with _workers(count) as workers, ThreadPoolExecutor(count) as pool:
        following = [pool.submit(_lead, worker, parts, progress) for worker in workers]
        try:
            error = _first_error(following)
        finally:  # also on Ctrl-C: the threads would carry on to the end of the list
            parts.clear()
            for worker in workers:
                worker.kill()
    if error is not None:
        raise MfairflError(error)
    return [RunDirectory(out).read_record() for _, out in runs]


def _first_error(following: Sequence[Future[str | None]]) -> str | None:
    """Wait until all have ended, or one with an error."""
    going = set(following)
    while going:
        # Not without end: where the system hands Ctrl-C to another thread, only waking up sees it.
        ended, going = wait(going, timeout=0.2, return_when=FIRST_COMPLETED)
        for error in filter(None, (each.result() for each in ended)):
            return error
    return None


def _parts(runs: Sequence[Work], size: int) -> Iterator[list[Work]]:
    """Cut the runs, in their order, into parts on the same table."""
    for _, same in groupby(runs, key=lambda run: str((run[0].data, run[0].task))):
        # Runs that share clients and seed come together: their rows are prepared once.
        members = sorted(same, key=lambda run: (str(run[0].clients), run[0].seed))
        for at in range(0, len(members), size):
            yield members[at : at + size]


@contextmanager
def _workers(count: int) -> Iterator[list[Worker]]:
    """Start workers; none is left when the block ends, however it ends."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with ExitStack() as stack:
        workers = []
        for _ in range(count):
            worker = subprocess.Popen(
                [sys.executable, "-m", "mfairfl.runs.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | threads,  # its standard input stays open as long as we live
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        yield workers


def _lead(worker: Worker, parts: deque[list[Work]], progress: Progress | None) -> str | None:
    """Give a worker part after part until none is left; return what went wrong, if anything."""
    while parts:
        try:
            part = parts.popleft()
        except IndexError:  # another worker was faster
            break
        items = [{"config": c.model_dump(mode="json"), "out": str(out)} for c, out in part]
        _send(worker, json.dumps(items))
        error = _follow(worker, progress)
        if error is not None:
            return error
    return None


def _send(worker: Worker, line: str) -> None:
    if worker.stdin is None:
        return
    rest = line.encode() + b"\n"
    try:  # past Python's buffer: what is left in it would be written again when it is closed
        while rest:
            rest = rest[os.write(worker.stdin.fileno(), rest) :]
    except BrokenPipeError:
        return  # the worker has ended; `_follow` finds out how


def _follow(worker: Worker, progress: Progress | None) -> str | None:
    """Pass on a worker's messages until its part is done; return what went wrong, if anything."""
    for line in worker.stdout or ():
        message = json.loads(line)
        if "done" in message:
            return None
        if "error" in message:
            return str(message["error"])
        if progress is not None:
            progress(message["out"], message["round"], message["rounds"])
    return f"a worker ended with code {worker.wait()}; run again to go on"
