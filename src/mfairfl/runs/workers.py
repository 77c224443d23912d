"""Independent runs spread over processes, one thread each.

The parent (`run_many`) writes lines to a worker's standard input, each a batch of runs with
what they need of others' code: ``{"extensions": […], "runs": [{"config": …, "out": …,
"reference": null}, …]}``; all runs of a batch are trained, or all are pooled references that
`reference` names. The worker (`python -m mfairfl.runs.workers`) carries out the runs of a batch
side by side and answers with JSON lines on standard output: ``{"out": …, "round": …,
"rounds": …}`` after every round, ``{"done": true}`` or ``{"error": …}`` at the end of the batch.
Results are the run directories. When its standard input closes, the parent has ended or needs
nothing more, and the worker exits at once; its runs can be resumed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from mfairfl.errors import MfairflError
from mfairfl.references import ReferenceName
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.extensions import exported, restore
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import ReferenceRequest, fit_references

if TYPE_CHECKING:  # only a worker trains
    from mfairfl.engine.state import RoundRecord, RunState, Setup

Worker = subprocess.Popen[str]
Progress = Callable[[str, int, int], None]
"""Called with the run directory, its completed rounds and their number."""

_BATCH = 5  # runs side by side: a wide enough stack, and little to wait for at the end


class QueuedRun(NamedTuple):
    """A run to train, or a reference to fit, and its folder."""

    config: Config
    out: str | Path
    reference: ReferenceName | None = None


class PlannedRun(NamedTuple):
    """How much there is to do in a run.

    Attributes
    ----------
    rounds
        Its rounds; 0 if it has none, or reports none.
    work
        How long it takes, compared with the others: its epochs.
    """

    rounds: int = 0
    work: float = 1.0


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def planned_runs(
    runs: Sequence[tuple[Config, str | Path]], references: Sequence[ReferenceRequest] = ()
) -> dict[str, PlannedRun]:
    """Return how much there is to do, by the folders that `Progress` names.

    A reference counts as half an average run.

    Examples
    --------
    >>> config = make_config({"data": {"name": "adult"}, "training": {"rounds": 10}})
    >>> planned_runs([(config, "runs/adult")])
    {'runs/adult': PlannedRun(rounds=10, work=20)}
    """
    planned = {
        str(out): PlannedRun(
            config.server_rounds(), config.training.rounds * config.training.local_epochs
        )
        for config, out in runs
    }
    average = sum(run.work for run in planned.values()) / len(planned) if planned else 1.0
    return planned | {str(request.out): PlannedRun(0, average / 2) for request in references}


def run_many(
    runs: Sequence[tuple[Config, str | Path]],
    references: Sequence[ReferenceRequest] = (),
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[RunRecord]:
    """Carry out runs, each into its own directory, and return their records in order.

    Runs are divided into batches of a few that share their rows; each worker process takes batch
    after batch, and inside a batch the runs advance side by side. The results have the same bits
    for any number of processes. Interrupted runs are resumed; finished ones are not repeated.

    Parameters
    ----------
    runs : sequence of (Config, path)
        What to run, and the run directory.
    references : sequence of ReferenceRequest
        Pooled references to be fitted meanwhile, each into its own folder. Those on the same rows
        are one batch, so that each of their models is fitted once.
    processes : int, optional
        Number of workers; by default one for each processor this process may use.
    progress : callable, optional
        Called after every completed round.

    Raises
    ------
    MfairflError
        The first worker's error; the other workers are stopped, and their runs can be resumed.
    """
    train = [QueuedRun(config, out) for config, out in runs]
    fit = [QueuedRun(request.config, request.out, request.name) for request in references]
    pooled = [list(same) for _, same in groupby(sorted(fit, key=_rows), key=_rows)]
    processes = processes or processors()
    size = max(1, min(_BATCH, -(-len(train) // processes)))
    batches = [*_batches(train, size), *pooled]
    exported(work.config for batch in batches for work in batch)  # refused here, not in a worker
    if batches:
        _carry_out(batches, min(processes, len(batches)), progress)
    return [RunRecord.read(out) for _, out in runs]


def _batches(runs: Sequence[QueuedRun], size: int) -> Iterator[list[QueuedRun]]:
    """Divide the runs, in their order, into batches on the same table."""
    for _, same in groupby(runs, key=lambda run: str((run.config.data, run.config.task))):
        # Runs that share clients and seed come together: their rows are prepared once.
        members = sorted(same, key=lambda run: (str(run.config.clients), run.config.seed))
        for at in range(0, len(members), size):
            yield members[at : at + size]


def _rows(work: QueuedRun) -> str:
    """Name the rows, clients and splits that a configuration asks for."""
    config = work.config
    return str((config.data, config.task, config.clients, config.seed))


def _carry_out(
    batches: Sequence[Sequence[QueuedRun]], count: int, progress: Progress | None
) -> None:
    """Give batches to worker processes until all are done, or one fails."""
    waiting = queue.SimpleQueue[Sequence[QueuedRun]]()
    for batch in batches:
        waiting.put(batch)

    def keep_busy(worker: Worker) -> None:
        with suppress(queue.Empty):
            while True:
                _send(worker, waiting.get_nowait())
                _follow(worker, progress)

    with _workers(count) as workers, ThreadPoolExecutor(count) as pool:
        going = {pool.submit(keep_busy, worker) for worker in workers}
        try:
            while going:
                # Woken up again and again: a Ctrl-C that another thread got is seen only then.
                done, going = wait(going, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
        finally:  # also on Ctrl-C: the threads would carry on to the end of the list
            for worker in workers:
                worker.kill()


@contextmanager
def _workers(count: int) -> Iterator[list[Worker]]:
    """Start workers; none is left when the block ends, however it ends."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with ExitStack() as stack:
        workers = []
        for _ in range(count):
            worker = subprocess.Popen(
                [sys.executable, "-m", "mfairfl.runs.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Modules of others are found where this process finds them.
                env=os.environ | threads | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        yield workers


def _send(worker: Worker, batch: Sequence[QueuedRun]) -> None:
    """Write a batch to a worker's standard input."""
    runs = [
        {"config": config.model_dump(mode="json"), "out": str(out), "reference": reference}
        for config, out, reference in batch
    ]
    message = {"extensions": exported(work.config for work in batch), "runs": runs}
    line = json.dumps(message).encode() + b"\n"
    descriptor = cast("IO[str]", worker.stdin).fileno()
    with suppress(BrokenPipeError):  # the worker has ended; `_follow` finds out how
        while line:  # past Python's buffer, whose rest would be written again when it is closed
            line = line[os.write(descriptor, line) :]


def _follow(worker: Worker, progress: Progress | None) -> None:
    """Pass on a worker's messages until its batch is done; raise what went wrong, if anything."""
    for line in worker.stdout or ():
        message = json.loads(line)
        if "done" in message:
            return
        if "error" in message:
            raise MfairflError(message["error"])
        if progress is not None:
            progress(message["out"], message["round"], message["rounds"])
    raise MfairflError(
        f"a worker ended with code {worker.wait()}; run the same command again to resume"
    )


class _RoundReporter:
    """Callback in a worker that reports every round to the parent."""

    def __init__(self, out: str) -> None:
        self._out = out

    def on_start(self, setup: Setup, state: RunState) -> None:
        _answer({"out": self._out, "round": state.round, "rounds": setup.rounds})

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        del record
        self.on_start(setup, state)


def _answer(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _read_batches(batches: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        batches.put(line)
    os._exit(0)  # even in the middle of a round: the parent has ended or needs no more


def _work() -> int:
    """Carry out the batches that come on standard input."""
    # Ctrl-C reaches every process of a terminal; a worker ends when its parent does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    batches: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_batches, args=(batches,), daemon=True).start()
    while True:
        batch = json.loads(batches.get())
        try:
            restore(batch["extensions"])
            _carry_out_batch(batch["runs"])
        except MfairflError as error:
            _answer({"error": str(error)})
            return 2
        for run in batch["runs"]:  # also those that were finished before
            _answer({"out": run["out"], "round": 1, "rounds": 1})
        _answer({"done": True})


def _carry_out_batch(runs: Sequence[dict[str, Any]]) -> None:
    """Train the runs of a batch side by side, or fit its references."""
    work = [(make_config(run["config"]), Path(run["out"]), run["reference"]) for run in runs]
    references = [
        ReferenceRequest(name=name, config=config, out=out) for config, out, name in work if name
    ]
    if references:
        fit_references(references)
        return
    from mfairfl.runs.execute import RunRequest, run_requests  # noqa: PLC0415 - loads PyTorch

    run_requests(
        [
            RunRequest(config=config, out=out, callbacks=(_RoundReporter(str(out)),))
            for config, out, _ in work
        ],
        workers=1,  # the processors have runs of their own
    )


if __name__ == "__main__":
    sys.exit(_work())
