"""The embedded engine: all clients of many runs in this process, deterministically.

Runs advance side by side. Whenever all of them wait for an answer, their measurements and their
training jobs are carried out together, stacked across clients, seeds and strategies. What a run
computes does not depend on its company.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mfairfl.data import SPLITS, Federation, Split
from mfairfl.engine.loop import Callback, Loop, Result, federate, first_state
from mfairfl.engine.state import Ask, Measure, Measured, RunState, Score, Setup, Train
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.goal import Goal
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.strategies.base import Summary
from mfairfl.training.batches import Pool
from mfairfl.training.jobs import batch_stream, finish, work_of
from mfairfl.training.measure import Probe, histograms, measure
from mfairfl.training.plan import Job, Report
from mfairfl.training.trainer import Work, train

__all__ = ["Member", "run_all", "splits_of", "summarize"]


@dataclass(slots=True, kw_only=True)
class Member:
    """One run of the many that the engine carries.

    Parameters
    ----------
    setup : Setup
        What was decided.
    federation : Federation
        The clients' rows; runs may share it.
    state : RunState, optional
        Where to resume; None starts afresh.
    callbacks : sequence of Callback
        Watchers of this run.
    """

    setup: Setup
    federation: Federation
    state: RunState | None = None
    callbacks: Sequence[Callback] = field(default_factory=tuple)


def splits_of(federation: Federation) -> tuple[Split, ...]:
    """Return the splits that hold any rows."""
    return tuple(s for s in SPLITS if any(len(c.shard(s)) for c in federation.clients))


def summarize(federation: Federation, goal: Goal, *, pooled: bool = False) -> Summary:
    """Return what the server learns before the first round: counts of training rows.

    Parameters
    ----------
    pooled : bool
        Whether one trainer has the rows of all clients.
    """
    size = Cells(federation.attributes).size
    counts = {}
    for client in federation.clients:
        strata = 2 * client.train.cells.astype(np.int64) + client.train.y
        table = np.bincount(strata, minlength=2 * size).reshape(size, 2)
        counts[client.name] = table.astype(np.float64)
    if pooled:
        counts = {_pooled_name(federation): np.sum(list(counts.values()), axis=0)}
    return Summary(counts=counts, attributes=federation.attributes, goal=goal)


def _pooled_name(federation: Federation) -> str:
    """Name the trainer of all rows; a lone client's is its own, so that K = 1 is the same run."""
    names = [client.name for client in federation.clients]
    return names[0] if len(names) == 1 else "all clients"


def run_all(members: Sequence[Member]) -> list[Result]:
    """Run every member to its end; results in the same order.

    Members must share the shape of their encoded rows only if they share a model shape; runs that
    differ are simply not stacked together.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, member in enumerate(members):
        model, cells = member.setup.model, Cells(member.federation.attributes).size
        # Modules describe themselves too loosely to be shared between factories.
        shape = id(model) if model.describe()["kind"] == "module" else str(model.describe())
        groups.setdefault((shape, cells), []).append(i)
    results: dict[int, Result] = {}
    for indices in groups.values():
        found = _run_group([members[i] for i in indices])
        results |= dict(zip(indices, found, strict=True))
    return [results[i] for i in range(len(members))]


def _run_group(members: Sequence[Member]) -> list[Result]:
    """Advance runs of one model shape side by side."""
    desk = _Desk(members)
    loops: dict[int, Loop] = {}
    waiting: dict[int, Ask] = {}
    results: dict[int, Result] = {}
    for i, member in enumerate(members):
        loops[i] = federate(member.setup, desk.states[i], member.callbacks)
        waiting[i] = next(loops[i])
    while waiting:
        for i, answer in desk.answer(waiting).items():
            try:
                waiting[i] = loops[i].send(answer)
            except StopIteration as stop:
                results[i] = stop.value
                del waiting[i]
    return [results[i] for i in range(len(members))]


class _Desk:
    """Holds the rows of a group's runs and answers their requests together."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self.states = [m.state or first_state(m.setup) for m in members]
        self._model = members[0].setup.model
        self._pool, self._rows = _pool(members)

    def answer(self, waiting: dict[int, Ask]) -> dict[int, Any]:
        """Answer measurements first; training waits until every run is ready to train."""
        measuring = {i: r for i, r in waiting.items() if isinstance(r, Measure)}
        if measuring:
            return self._measure(measuring)
        scoring = {i: r for i, r in waiting.items() if isinstance(r, Score)}
        if scoring:
            return {i: self._score(i, request) for i, request in scoring.items()}
        return self._train({i: r for i, r in waiting.items() if isinstance(r, Train)})

    def _measure(self, requests: dict[int, Measure]) -> dict[int, tuple[Measured, ...]]:
        keys, probes = [], []
        for i, request in requests.items():
            for v, weights in enumerate(request.weights):
                for (split, client), rows in self._rows[i].items():
                    if split in request.splits:
                        held = self.states[i].slots.get(client, {})
                        own = held.get(request.slot or "", weights)
                        keys.append((i, v, split, client))
                        probes.append(Probe(own, rows, request.shares, request.thresholds))
        found = dict(zip(keys, measure(probes, self._model, self._pool), strict=True))
        answers: dict[int, tuple[Measured, ...]] = {}
        for i, request in requests.items():
            names = [c.name for c in self._members[i].federation.clients]
            answers[i] = tuple(
                {split: {n: found[i, v, split, n] for n in names} for split in request.splits}
                for v in range(len(request.weights))
            )
        return answers

    def _score(self, i: int, request: Score) -> dict[str, ScoreHistogram]:
        names = [c.name for c in self._members[i].federation.clients]
        probes = [Probe(request.weights, self._rows[i][request.split, name]) for name in names]
        return dict(zip(names, histograms(probes, self._model, self._pool), strict=True))

    def _train(self, requests: dict[int, Train]) -> dict[int, list[Report]]:
        jobs = [(i, job) for i, request in requests.items() for job in request.jobs]
        works = [self._work(i, requests[i], job) for i, job in jobs]
        outcomes = train(works, self._model, self._pool)
        answers: dict[int, list[Report]] = {i: [] for i in requests}
        for (i, job), work, outcome in zip(jobs, works, outcomes, strict=True):
            report = finish(job, work, outcome, self._slots(i, job.client))
            if job.send:
                answers[i].append(report)
        return answers

    def _slots(self, i: int, client: str) -> dict[str, np.ndarray]:
        return self.states[i].slots.setdefault(client, {})

    def _work(self, i: int, request: Train, job: Job) -> Work:
        member = self._members[i]
        return work_of(
            job,
            server=request.weights[job.client],
            slots=self._slots(i, job.client),
            rows=self._rows[i][member.setup.strategy.card.trains_on, job.client],
            attributes=member.federation.attributes,
            rng=batch_stream(member.setup.seed, request.round, job),
        )


def _all_rows(federation: Federation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and cells of every client's training rows, in name order."""
    shards = [client.train for client in sorted(federation.clients, key=lambda c: c.name)]
    return (
        np.concatenate([shard.X for shard in shards]),
        np.concatenate([shard.y for shard in shards]),
        np.concatenate([shard.cells for shard in shards]),
    )


def _pool(members: Sequence[Member]) -> tuple[Pool, list[dict[tuple[str, str], range]]]:
    """Join the rows of the distinct federations; say where each run's shards are.

    A shard is found under (split, client); training rows also under ("clients", client), and those
    of all clients together, if a method trains on them, under ("pooled", name).
    """
    federations = {id(m.federation): m.federation for m in members}
    merging = {id(m.federation) for m in members if m.setup.strategy.card.trains_on == "pooled"}
    keys: list[tuple[int, str, str]] = []
    shards = []
    for key, federation in federations.items():
        if key in merging:
            keys.append((key, "pooled", _pooled_name(federation)))
            shards.append(_all_rows(federation))
        for split in splits_of(federation):
            for client in federation.clients:
                shard = client.shard(split)
                keys.append((key, split, client.name))
                shards.append((shard.X, shard.y, shard.cells))
    cells = Cells(members[0].federation.attributes).size
    pool, ranges = Pool.from_arrays(shards, cells)
    where = dict(zip(keys, ranges, strict=True))
    where |= {(k, "clients", c): rows for (k, s, c), rows in where.items() if s == "train"}
    return pool, [
        {
            (split, name): rows
            for (key, split, name), rows in where.items()
            if key == id(m.federation)
        }
        for m in members
    ]
