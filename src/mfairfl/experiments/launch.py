"""Spread independent runs over processes, one thread each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mfairfl.errors import MfairflError
from mfairfl.experiments.config import Config
from mfairfl.experiments.directory import RunDirectory

__all__ = ["run_many"]

Worker = subprocess.Popen[str]
Progress = Callable[[str, int, int], None]
"""Called with the run directory, its completed rounds and their number."""


def run_many(
    runs: Sequence[tuple[Config, str | Path]],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Carry out runs, each into its own directory, and return their records in order.

    Runs are dealt to worker processes so that each gets about the same number of epochs; inside a
    process they advance side by side. Whatever the number of processes, the results have the same
    bits. Interrupted runs go on; finished ones are not repeated.

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
    with _workers(_deal(runs, count)) as workers, ThreadPoolExecutor(count) as pool:
        following = [pool.submit(_follow, worker, progress) for worker in workers]
        for done in as_completed(following):
            if (error := done.result()) is not None:
                for worker in workers:
                    worker.kill()
                raise MfairflError(error)
    return [RunDirectory(out).read_record() for _, out in runs]


def _deal(
    runs: Sequence[tuple[Config, str | Path]], count: int
) -> list[list[tuple[Config, str | Path]]]:
    """Give each run, the longest first, to the worker that has the least so far."""
    parts: list[list[tuple[Config, str | Path]]] = [[] for _ in range(count)]
    load = [0] * count
    for config, out in sorted(runs, key=lambda run: -_epochs(run[0])):
        least = load.index(min(load))
        parts[least].append((config, out))
        load[least] += _epochs(config)
    return parts


def _epochs(config: Config) -> int:
    return config.training.rounds * config.training.local_epochs + 1


@contextmanager
def _workers(parts: Sequence[Sequence[tuple[Config, str | Path]]]) -> Iterator[list[Worker]]:
    """Start a worker for each part; none is left when the block ends, however it ends."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with ExitStack() as stack:
        workers = []
        for part in parts:
            worker = subprocess.Popen(
                [sys.executable, "-m", "mfairfl.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | threads,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
            items = [{"config": c.model_dump(mode="json"), "out": str(out)} for c, out in part]
            if worker.stdin is not None:  # stays open: its end tells the worker that we are gone
                worker.stdin.write(json.dumps(items) + "\n")
                worker.stdin.flush()
        yield workers


def _follow(worker: Worker, progress: Progress | None) -> str | None:
    """Pass on a worker's messages until it ends; return what went wrong, if anything."""
    error = None
    for line in worker.stdout or ():
        message = json.loads(line)
        error = message.get("error", error)
        if progress is not None and "round" in message:
            progress(message["out"], message["round"], message["rounds"])
    code = worker.wait()
    return error if code == 0 or error else f"a worker ended with code {code}; run again to go on"
