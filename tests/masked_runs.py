"""Runs whose server sees sums over all clients only: answers are added up on their way to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

import federations as fed
from mfairfl.data import Federation
from mfairfl.engine.embedded import clients_of, counts_of
from mfairfl.engine.loop import Result, federate
from mfairfl.engine.state import Ask, Reply, RunState, Score, Setup, Train
from mfairfl.engine.tallies import pooled
from mfairfl.fairness.masked import EVERYBODY, MaskedSums, Single
from mfairfl.fairness.scores import pooled_scores

Away = Callable[[Ask, RunState], Collection[str]]


def masked_setup(federation: Federation, strategy: Any = "mfairfl", **options: Any) -> Setup:
    """Return a setup whose server knows the rows of each client, and cells of all together."""
    plain = fed.setup_for(federation, strategy, **options)
    rows = {
        split: {name: np.array([[counts.sum()]]) for name, counts in own.items()}
        for split, own in plain.enrolled.items()
    }
    whole = {
        split: np.sum(list(counts_of(federation, split).values()), axis=0)
        for split in plain.splits
    }
    summary = replace(plain.summary, counts=rows["train"], whole=whole["train"])
    return replace(plain, summary=summary, enrolled=rows, whole=whole, masked=True)


def summed(setup: Setup, ask: Ask, found: Any, away: Collection[str] = ()) -> Reply:
    """Return what a server is sent if `away` do not answer."""
    faults = dict.fromkeys(away, "no answer before the deadline")
    lost = f"{min(away)} did not answer" if away else ""
    if isinstance(ask, Train):
        return Reply(_with_means(setup, found, away), faults, lost=lost)
    if isinstance(ask, Score):
        sums = {s: {EVERYBODY: pooled_scores(list(own.values()))} for s, own in found.items()}
        return Reply({} if away else sums, faults, lost=lost)
    return Reply(
        tuple({s: _masked(own, away) for s, own in m.items()} for m in found), faults, lost=lost
    )


def _masked(clients: Any, away: Collection[str]) -> MaskedSums:
    told = {name: Single.of(sums) for name, sums in clients.items() if name not in away}
    return MaskedSums(told, None if away else pooled(clients))


def _with_means(setup: Setup, reports: Any, away: Collection[str]) -> Any:
    """Give every report the means, by rows, of multipliers and gaps."""
    if away or not all(report.multipliers for report in reports):
        return [replace(r, multipliers=(), gaps=()) for r in reports if r.client not in away]
    n = np.array([setup.summary.counts[report.client].sum() for report in reports])
    means = {
        name: tuple(n @ [getattr(r, name) for r in reports] / n.sum())
        for name in ("multipliers", "gaps")
    }
    return [replace(report, **means) for report in reports]


def run_masked(
    setup: Setup,
    federation: Federation,
    *,
    state: RunState | None = None,
    away: Away = lambda ask, state: (),
    lie: Callable[[Ask, Reply], Reply] = lambda ask, reply: reply,
) -> tuple[Result, fed.Watch, RunState]:
    """Run the loop with answers that are added up; `away` says who does not answer."""
    watch = fed.Watch()
    first = fed.first(setup) if state is None else state
    clients = clients_of([fed.member_of(setup, federation)], [first])
    loop = federate(setup, first, [watch])
    ask = next(loop)
    while True:
        answer = clients.answer({0: ask})[0]
        reply = lie(ask, summed(setup, ask, answer, away(ask, first)))
        try:
            ask = loop.send(reply)
        except StopIteration as stop:
            return stop.value, watch, first
