"""Studies and searches whose runs are carried out here: starting workers would take longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from mfairfl.runs import workers


@contextmanager
def in_one_process() -> Iterator[list[int]]:
    """Carry out the batches of `run_many` as its workers do; yield the numbers of runs."""
    asked: list[int] = []

    def carry_out(
        batches: Sequence[Sequence[workers.QueuedRun]],
        count: int,
        progress: workers.Progress | None,
    ) -> None:
        def answer(message: dict[str, object]) -> None:
            if progress is not None:
                progress(message["out"], message["round"], message["rounds"])

        del count
        asked.append(sum(map(len, batches)))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(workers, "_answer", answer)
            for batch in batches:
                runs = [
                    {"config": config.model_dump(mode="json"), "out": str(out), "reference": name}
                    for config, out, name in batch
                ]
                workers._carry_out_batch(runs)
                for run in runs:  # also those that were finished before
                    answer({"out": run["out"], "round": 1, "rounds": 1})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "_carry_out", carry_out)
        yield asked
