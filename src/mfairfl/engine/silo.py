"""One client by itself: its rows, what it keeps on disk, and its answers to requests.

What it keeps between rounds (a personal model, a control variate, local multipliers) is stored
round by round. A server that was killed and takes up an earlier round again finds the client as it
was then, so the run ends the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from mfairfl.data import SPLITS, Attribute, Client
from mfairfl.engine.state import Answer, Ask, Measure, Measures, Score, Train
from mfairfl.errors import CheckpointError
from mfairfl.fairness.cells import Cells
from mfairfl.files import write_atomically
from mfairfl.models import Model
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.jobs import batch_stream, finish, work_of
from mfairfl.training.measure import Probe, histograms, measure
from mfairfl.training.plan import Report
from mfairfl.training.trainer import train

__all__ = ["Silo", "SlotStore"]

_KEEP = 2  # a server is never more than one completed round behind its clients


class SlotStore:
    """What a client holds under names, one file a round.

    Parameters
    ----------
    folder : Path, optional
        Where; None keeps it in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._rounds: dict[int, dict[str, np.ndarray]] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._rounds = {_number(path): _read(path) for path in folder.glob("round-*")}

    def before(self, round_: int) -> dict[str, np.ndarray]:
        """Return what was held when this round (from 0) began."""
        earlier = [number for number in self._rounds if number < round_]
        return dict(self._rounds[max(earlier)]) if earlier else {}

    def latest(self) -> dict[str, np.ndarray]:
        """Return what is held now."""
        return self.before(max(self._rounds, default=0) + 1)

    def keep(self, round_: int, slots: Mapping[str, np.ndarray]) -> None:
        """Store what is held after this round; what a later round left behind is forgotten."""
        later = [number for number in self._rounds if number > round_]
        self._rounds[round_] = dict(slots)
        if self._folder is not None and slots:
            data = save_tensors({k: np.asarray(v, order="C") for k, v in slots.items()})
            write_atomically(_path(self._folder, round_), data)
        for number in [*later, *sorted(set(self._rounds) - set(later))[:-_KEEP]]:
            del self._rounds[number]
            if self._folder is not None:
                _path(self._folder, number).unlink(missing_ok=True)


def _path(folder: Path, round_: int) -> Path:
    return folder / f"round-{round_:06d}.safetensors"


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        found: dict[str, np.ndarray] = load_tensors(path.read_bytes())
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error}); delete it to start afresh") from None
    return found


class Silo:
    """A client that answers for itself alone.

    Parameters
    ----------
    client : Client
        Its encoded rows.
    model : Model
        The shape every participant agreed on.
    attributes : sequence of Attribute
        The task's sensitive attributes.
    seed : int
        The run's; with round and name it orders the rows.
    slots : SlotStore
        What it holds between rounds.
    """

    def __init__(
        self,
        client: Client,
        model: Model,
        attributes: Sequence[Attribute],
        seed: int,
        slots: SlotStore,
    ) -> None:
        self._name, self._model, self._seed = client.name, model, seed
        self._attributes, self._slots = tuple(attributes), slots
        shards = [client.shard(split) for split in SPLITS]
        cells = Cells(self._attributes).size
        arrays = [(shard.X, shard.y, shard.cells) for shard in shards]
        self._pool, ranges = Pool.from_arrays(arrays, cells)
        self._rows = dict(zip(SPLITS, ranges, strict=True))

    def answer(self, ask: Ask) -> Answer:
        """Do what is asked."""
        with steady_arithmetic():
            if isinstance(ask, Measure):
                return self._measure(ask)
            if isinstance(ask, Score):
                probe = Probe(ask.weights, self._rows[ask.split])
                return histograms([probe], self._model, self._pool)[0]
            return self._train(ask)

    def _measure(self, ask: Measure) -> Measures:
        held = self._slots.latest() if ask.slot is not None else {}
        found = []
        for weights in ask.weights:
            own = held.get(ask.slot or "", weights)
            probes = [Probe(own, self._rows[s], ask.shares, ask.thresholds) for s in ask.splits]
            sums = measure(probes, self._model, self._pool)
            found.append(dict(zip(ask.splits, sums, strict=True)))
        return tuple(found)

    def _train(self, ask: Train) -> list[Report]:
        slots = self._slots.before(ask.round)
        works = [
            work_of(
                job,
                server=ask.weights[self._name],
                slots=slots,
                rows=self._rows["train"],
                attributes=self._attributes,
                rng=batch_stream(self._seed, ask.round, job),
            )
            for job in ask.jobs
        ]
        outcomes = train(works, self._model, self._pool)
        reports = [
            (job, finish(job, work, outcome, slots))
            for job, work, outcome in zip(ask.jobs, works, outcomes, strict=True)
        ]
        self._slots.keep(ask.round, slots)
        return [report for job, report in reports if job.send]
