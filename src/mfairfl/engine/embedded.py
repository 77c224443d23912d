"""The embedded engine: all clients of many runs in this process, deterministically.

Runs advance side by side. Whenever all of them wait for an answer, their measurements and their
training jobs are carried out together, stacked across clients, seeds and strategies. What a run
computes does not depend on which others run beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mfairfl.data import SPLITS, Federation, Split
from mfairfl.engine.clients import LocalClients, MemorySlots, RunRows
from mfairfl.engine.loop import Callback, Loop, Result, federate, first_state
from mfairfl.engine.state import Ask, Replies, RunState, Setup
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Goal
from mfairfl.models import Model
from mfairfl.strategies.base import Summary
from mfairfl.training.batches import RowStore
from mfairfl.training.execution import ThreadExecutor


@dataclass(slots=True, kw_only=True)
class Member:
    """One run of the many that the engine carries.

    Parameters
    ----------
    setup : Setup
        What was decided.
    model : Model
        What is trained.
    federation : Federation
        The clients' rows; runs may share it.
    state : RunState, optional
        Where to resume; None starts afresh.
    callbacks : sequence of Callback
        Watchers of this run.
    tamper : callable, optional
        Given a request, the clients' answers and the run's state, it returns the replies that
        reach the server: how benchmarks/attacks tries attacks.
    """

    setup: Setup
    model: Model
    federation: Federation
    state: RunState | None = None
    callbacks: Sequence[Callback] = field(default_factory=tuple)
    tamper: Callable[[Ask, Replies, RunState], Replies] | None = None


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
    counts = counts_of(federation, "train")
    if pooled:
        counts = {_pooled_name(federation): np.sum(list(counts.values()), axis=0)}
    return Summary(counts=counts, attributes=federation.attributes, goal=goal)


def counts_of(federation: Federation, split: Split) -> dict[str, np.ndarray]:
    """Return each client's rows per (cell, label), (C, 2)."""
    size, counts = Cells(federation.attributes).size, {}
    for client in federation.clients:
        shard = client.shard(split)
        strata = 2 * shard.cells.astype(np.int64) + shard.y
        table = np.bincount(strata, minlength=2 * size).reshape(size, 2)
        counts[client.name] = table.astype(np.float64)
    return counts


def _pooled_name(federation: Federation) -> str:
    """Name the trainer of all rows; a lone client's is its own, so that K = 1 is the same run."""
    names = [client.name for client in federation.clients]
    return names[0] if len(names) == 1 else "all clients"


def run_all(members: Sequence[Member], *, workers: int = 1) -> list[Result]:
    """Run every member to its end; results in the same order.

    Runs of one model shape advance side by side: when all wait, they are answered together, by as
    many threads as there are `workers`.
    """
    results: dict[int, Result] = {}
    with ThreadExecutor(workers) as executor:
        for group in _same_shape(members):
            runs = [member for _, member in group]
            states = [run.state or first_state(run.setup, run.model) for run in runs]
            clients = clients_of(runs, states, executor)
            loops: list[Loop] = [
                federate(run.setup, state, run.callbacks)
                for run, state in zip(runs, states, strict=True)
            ]
            waiting: dict[int, Ask] = {i: next(loop) for i, loop in enumerate(loops)}
            while waiting:
                for i, answers in clients.answer(waiting).items():
                    tamper = runs[i].tamper
                    replies = answers if tamper is None else tamper(waiting[i], answers, states[i])
                    try:
                        waiting[i] = loops[i].send(replies)
                    except StopIteration as stop:
                        results[group[i][0]] = stop.value
                        del waiting[i]
    return [results[i] for i in range(len(members))]


def _same_shape(members: Sequence[Member]) -> Iterable[list[tuple[int, Member]]]:
    """Group the members, with their places, by model, number of cells and layout of rows."""
    groups: dict[tuple[Any, ...], list[tuple[int, Member]]] = {}
    for i, member in enumerate(members):
        model, cells = member.model, Cells(member.federation.attributes).size
        layout = member.federation.pool.inputs.layout
        # Modules describe themselves too loosely to be shared between factories.
        shape = id(model) if model.describe()["kind"] == "module" else str(model.describe())
        groups.setdefault((shape, cells, layout), []).append((i, member))
    return groups.values()


def clients_of(
    members: Sequence[Member], states: Sequence[RunState], executor: ThreadExecutor | None = None
) -> LocalClients:
    """Join the rows of the distinct federations; return the clients of all runs."""
    federations = {id(m.federation): m.federation for m in members}
    places = [
        (key, split, client)
        for key, federation in federations.items()
        for split in splits_of(federation)
        for client in sorted(federation.clients, key=lambda client: client.name)
    ]
    shards = [client.shard(split) for _, split, client in places]
    arrays = [(shard.inputs, shard.y, shard.cells) for shard in shards]
    store, ranges = RowStore.from_arrays(arrays, Cells(members[0].federation.attributes).size)
    where: dict[int, dict[Split, dict[str, range]]] = {}
    for (key, split, client), rows in zip(places, ranges, strict=True):
        where.setdefault(key, {}).setdefault(split, {})[client.name] = rows
    runs = [
        _run_rows(member, state, where[id(member.federation)])
        for member, state in zip(members, states, strict=True)
    ]
    return LocalClients(members[0].model, store, runs, executor)


def _run_rows(member: Member, state: RunState, rows: dict[Split, dict[str, range]]) -> RunRows:
    trainers = rows["train"]
    if member.setup.strategy.card.trains_on == "pooled":
        # The clients' train rows lie one after the other.
        shards = list(trainers.values())
        trainers = {_pooled_name(member.federation): range(shards[0].start, shards[-1].stop)}
    return RunRows(
        rows=rows,
        trainers=trainers,
        attributes=member.federation.attributes,
        seed=member.setup.seed,
        slots=MemorySlots(state.slots),
    )
