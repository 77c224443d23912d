"""Clients whose rows are in this process: one implementation of measure, score and train.

The embedded engine answers with it for all clients of many runs at once, a silo for itself alone.
What a run computes does not depend on which others share the process.

Slots are what a client keeps between rounds under a name (a personal model, a control variate,
local multipliers). They never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mfairfl.data import SPLITS, Attribute, Client
from mfairfl.engine.executor import Crew
from mfairfl.engine.sealed import read_sealed, write_sealed
from mfairfl.engine.state import Answer, Ask, Measure, Measured, Score, Scored, Train
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import Cells
from mfairfl.files import make_private_folder
from mfairfl.models import Model
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.jobs import batch_stream, finish, work_of
from mfairfl.training.measure import Probe, measure, score_sums
from mfairfl.training.plan import Job, Report
from mfairfl.training.trainer import Work, run_works

_KEEP = 2  # a server is never more than one completed round behind its clients

Held = dict[str, np.ndarray]


class Slots(Protocol):
    """What the clients of a run keep between rounds."""

    def latest(self, client: str) -> Mapping[str, np.ndarray]:
        """Return what a client holds now."""

    def before(self, round_: int, client: str) -> Held:
        """Return what a client held when this round (from 0) began."""

    def keep(self, round_: int, client: str, slots: Held) -> None:
        """Store what a client holds after this round."""


@dataclass(frozen=True, slots=True)
class MemorySlots:
    """Slots in a dictionary that somebody else stores: the embedded engine's run state."""

    held: dict[str, Held]

    def latest(self, client: str) -> Mapping[str, np.ndarray]:
        """Return what a client holds now."""
        return self.held.get(client, {})

    def before(self, round_: int, client: str) -> Held:
        """Return what a client holds now: nobody takes up an earlier round here."""
        del round_
        return dict(self.latest(client))

    def keep(self, round_: int, client: str, slots: Held) -> None:
        """Store what a client holds."""
        del round_
        self.held[client] = slots


class DiskSlots:
    """One client's slots on its own disk, one file per round.

    A server that was killed and takes up an earlier round again finds the client as it was then,
    so the run ends the same. The files are hashed, and a damaged one is refused: going on from an
    older one would end in other numbers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private_folder(folder)
        remedy = f"restore it, or delete {folder}: the client then starts afresh"
        self._rounds: dict[int, Held] = {
            _number(path): read_sealed(path, remedy=remedy)[0] for path in folder.glob("round-*")
        }

    def latest(self, client: str) -> Mapping[str, np.ndarray]:
        """Return what is held now."""
        return self.before(max(self._rounds, default=0) + 1, client)

    def before(self, round_: int, client: str) -> Held:
        """Return what was held when this round (from 0) began."""
        del client
        earlier = [number for number in self._rounds if number < round_]
        return dict(self._rounds[max(earlier)]) if earlier else {}

    def keep(self, round_: int, client: str, slots: Held) -> None:
        """Store what is held after this round; what a later round left behind is forgotten."""
        del client
        failpoint("slots.unsaved", round_ + 1)
        later = [number for number in self._rounds if number > round_]
        self._rounds[round_] = dict(slots)
        if slots:
            write_sealed(self._path(round_), slots)
        for number in [*later, *sorted(set(self._rounds) - set(later))[:-_KEEP]]:
            del self._rounds[number]
            self._path(number).unlink(missing_ok=True)
        failpoint("slots.saved", round_ + 1)

    def _path(self, round_: int) -> Path:
        return self._folder / f"round-{round_:06d}.safetensors"


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """One run's clients: where their rows are in the pool, and what they keep.

    Parameters
    ----------
    rows : mapping of split to mapping of client to range
        Row numbers of each shard.
    trainers : mapping of str to range
        The rows that each trainer trains on: its client's train rows, or those of all clients.
    attributes : tuple of Attribute
        The task's sensitive attributes.
    seed : int
        With round and name it orders the rows.
    """

    rows: Mapping[str, Mapping[str, range]]
    trainers: Mapping[str, range]
    attributes: tuple[Attribute, ...]
    seed: int
    slots: Slots


class LocalClients:
    """Answers the requests of runs that share a model shape and a pool of rows.

    Parameters
    ----------
    crew : Crew, optional
        Threads that share the work; by default it is done in the caller's.
    """

    def __init__(
        self, model: Model, pool: Pool, runs: Sequence[RunRows], crew: Crew | None = None
    ) -> None:
        self._model, self._pool, self._runs = model, pool, runs
        self._crew = crew or Crew()

    def answer(self, asks: Mapping[int, Ask]) -> dict[int, Any]:
        """Answer requests by run: measurements first; training waits until every run can train."""
        measuring = {i: ask for i, ask in asks.items() if isinstance(ask, Measure)}
        if measuring:
            return self._measure(measuring)
        scoring = {i: ask for i, ask in asks.items() if isinstance(ask, Score)}
        if scoring:
            return {i: self._score(self._runs[i], ask) for i, ask in scoring.items()}
        return self._train({i: ask for i, ask in asks.items() if isinstance(ask, Train)})

    def _measure(self, asks: Mapping[int, Measure]) -> dict[int, tuple[Measured, ...]]:
        probes: list[Probe] = []
        for i, ask in asks.items():
            run = self._runs[i]
            for weights in ask.weights:
                for split in ask.splits:
                    for client in ask.asked(run.rows[split]):
                        own = _own_model(run.slots, client, ask.slot, weights)
                        rows = run.rows[split][client]
                        probes.append(Probe(own, rows, ask.shares, ask.thresholds))
        sums = iter(
            self._crew.carry_out(
                lambda some: measure(some, self._model, self._pool), probes, _sizes(probes)
            )
        )
        return {  # in the order in which the probes were laid out
            i: tuple(
                {s: {c: next(sums) for c in ask.asked(self._runs[i].rows[s])} for s in ask.splits}
                for _ in ask.weights
            )
            for i, ask in asks.items()
        }

    def _score(self, run: RunRows, ask: Score) -> Scored:
        answers = {}
        for split in ask.splits:
            shards = run.rows[split]
            probes = [
                Probe(_own_model(run.slots, client, ask.slot, ask.weights), rows, ask.shares)
                for client, rows in shards.items()
            ]
            found = self._crew.carry_out(
                lambda some: score_sums(some, self._model, self._pool, drawn=ask.drawn),
                probes,
                _sizes(probes),
            )
            answers[split] = dict(zip(shards, found, strict=True))
        return answers

    def _train(self, asks: Mapping[int, Train]) -> dict[int, list[Report]]:
        jobs = [(i, job) for i, ask in asks.items() for job in ask.jobs]
        held = {
            (i, job.client): self._runs[i].slots.before(asks[i].round, job.client)
            for i, job in jobs
        }
        works = [self._work(i, asks[i], job, held[i, job.client]) for i, job in jobs]
        answers: dict[int, list[Report]] = {i: [] for i in asks}
        outcomes = self._crew.carry_out(
            lambda some: run_works(some, self._model, self._pool),
            works,
            [work.plan.epochs * len(work.rows) for work in works],
        )
        for (i, job), work, outcome in zip(jobs, works, outcomes, strict=True):
            report = finish(job, work, outcome, held[i, job.client])
            if job.send:
                answers[i].append(report)
        for (i, client), slots in held.items():
            self._runs[i].slots.keep(asks[i].round, client, slots)
        return answers

    def _work(self, i: int, ask: Train, job: Job, slots: Held) -> Work:
        run = self._runs[i]
        return work_of(
            job,
            server=ask.weights[job.client],
            slots=slots,
            rows=run.trainers[job.client],
            attributes=run.attributes,
            rng=batch_stream(run.seed, ask.round, job),
        )


def _sizes(probes: Sequence[Probe]) -> list[float]:
    return [probe.weights.size * len(probe.rows) for probe in probes]


def _own_model(slots: Slots, client: str, slot: str | None, weights: np.ndarray) -> np.ndarray:
    """Return the model that a client holds in this slot, if any; else `weights`."""
    return weights if slot is None else slots.latest(client).get(slot, weights)


class SoleClient:
    """A client that answers for its own rows.

    Parameters
    ----------
    client : Client
        Its encoded rows.
    model : Model
        The shape every participant agreed on.
    attributes : tuple of Attribute
        The task's sensitive attributes.
    seed : int
        The run's; with round and name it orders the rows.
    slots : Slots
        What it keeps between rounds.
    """

    def __init__(
        self,
        client: Client,
        model: Model,
        attributes: tuple[Attribute, ...],
        seed: int,
        slots: Slots,
    ) -> None:
        shards = {split: client.shard(split) for split in SPLITS}
        arrays = [(shard.inputs, shard.y, shard.cells) for shard in shards.values()]
        pool, ranges = Pool.from_arrays(arrays, Cells(attributes).size)
        rows = {str(split): {client.name: at} for split, at in zip(shards, ranges, strict=True)}
        run = RunRows(
            rows=rows, trainers=rows["train"], attributes=attributes, seed=seed, slots=slots
        )
        self._name, self._clients = client.name, LocalClients(model, pool, [run])

    def answer(self, ask: Ask) -> Answer:
        """Do what is asked."""
        with steady_arithmetic():
            found = self._clients.answer({0: ask})[0]
        if isinstance(ask, Measure):
            return tuple({s: one[s][self._name] for s in ask.splits} for one in found)
        if isinstance(ask, Score):
            return {split: found[split][self._name] for split in ask.splits}
        reports: list[Report] = found
        return reports
