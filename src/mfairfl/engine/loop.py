"""The round loop, written once: measure → plan → train → combine, then the output rule.

The loop is a generator. It yields requests (`Measure`, `Score`, `Train`) and is sent the answers,
so it knows nothing of who carries messages: the embedded engine answers for many loops at once,
the Flower engine asks the silos.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from mfairfl.engine.output import AVERAGE_DECAY, Candidate, Served, choose
from mfairfl.engine.state import (
    Ask,
    Measure,
    Measured,
    RoundRecord,
    RunState,
    Score,
    Scored,
    Setup,
    Train,
)
from mfairfl.engine.tallies import mean_loss, pooled
from mfairfl.failpoints import failpoint
from mfairfl.fairness.thresholds import fit_thresholds
from mfairfl.geometry.gram import gram_matrix, weighted_sum
from mfairfl.guard.acceptance import accept, measurable
from mfairfl.models import Model
from mfairfl.randomness import stream
from mfairfl.strategies.base import Measurement, Round, Step
from mfairfl.training.plan import PERSONAL, Report

__all__ = ["Callback", "Loop", "Result", "federate", "first_state"]


Loop = Generator[Ask, Any, "Result"]
_THRESHOLDS = 512  # bins of the logit between which a group's threshold is chosen


class Callback(Protocol):
    """Watches a run; what it writes or shows is its own business.

    `state.round` says how many rounds are complete. An exception from a callback ends the run.
    """

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Before the first measurement (also when a run is resumed)."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """After every completed round, and once for round 0 of a fresh run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run ends in: the served model, its sums and counts, member by member, its scores."""

    served: Served
    measured: tuple[Measured, ...]
    scored: Scored
    rounds: int


def first_state(setup: Setup, model: Model) -> RunState:
    """Return the state before the first round."""
    if setup.strategy.card.starts == "constant":
        weights = model.constant(setup.summary.base_logit)
    else:
        weights = model.init(stream(setup.seed, "init"))
    if setup.strategy.card.serves == "ensemble":
        weights = np.tile(weights, (len(setup.summary.counts), 1))
    return RunState(round=0, weights=weights, strategy=setup.strategy.start(setup.summary))


def federate(setup: Setup, state: RunState, callbacks: Iterable[Callback] = ()) -> Loop:
    """Run the rounds that are left, then serve a model.

    Parameters
    ----------
    setup : Setup
        What was decided.
    state : RunState
        Where to start; it is advanced in place.
    callbacks : iterable of Callback
        Told of every completed round.
    """
    watchers = list(callbacks)
    for watcher in watchers:
        watcher.on_start(setup, state)
    (measured,) = yield _ask_about(setup, state.weights)
    if state.round == 0:
        _tell(watchers, setup, state, _record(setup, 0, measured))
    while state.round < setup.rounds and not _stalled(setup, state):
        record = yield from _round(setup, state, measured)
        measured = record.measured
        _tell(watchers, setup, state, record)
    served, final = yield from serve_model(setup, state, measured)
    scored = yield _ask_scores(setup, state, served)
    return Result(served=served, measured=tuple(final), scored=scored, rounds=state.round)


def _tell(
    watchers: Sequence[Callback], setup: Setup, state: RunState, record: RoundRecord
) -> None:
    for watcher in watchers:
        watcher.on_round(setup, state, record)


def _round(setup: Setup, state: RunState, measured: Measured) -> Generator[Ask, Any, RoundRecord]:
    """One round: plan, train, combine, measure the new weights."""
    this = _this_round(setup, state, measured)
    planned, jobs = setup.strategy.plan(state.strategy, this)
    failpoint("round.planned", state.round + 1)
    reports: list[Report] = []
    set_aside: dict[str, str] = {}
    if jobs:
        everyone = sorted(setup.summary.counts)
        start = np.broadcast_to(state.weights, (len(everyone), setup.size))
        weights = dict(zip(everyone, start, strict=True))
        answers = yield Train(state.round, weights, tuple(jobs))
        failpoint("round.trained", state.round + 1)
        asked = {job.client for job in jobs if job.send}
        reports, set_aside = accept(answers, asked, setup.size)
        reports, set_aside = measurable(reports, set_aside, this.measurements)
    step = Step(np.zeros(0))
    if reports:
        needed = setup.strategy.card.needs != "none"
        gram = gram_matrix([r.update for r in reports]) if needed else np.zeros((0, 0))
        step = setup.strategy.combine(planned, this, reports, gram)
    state.strategy = planned if step.state is None else step.state
    failpoint("round.combined", state.round + 1)
    _advance(setup, state, step, reports)
    failpoint("round.advanced", state.round)
    measured = yield from _bank(setup, state)
    failpoint("round.measured", state.round)
    clients = [report.client for report in reports]
    norms = [float(np.linalg.norm(report.update.astype(float))) for report in reports]
    moved = (step.scale * step.coefficients).tolist()
    return _record(
        setup,
        state.round,
        measured,
        coefficients=dict(zip(clients, moved, strict=True)),
        norms=dict(zip(clients, norms, strict=True)),
        set_aside=set_aside,
        log=step.log,
    )


def _this_round(setup: Setup, state: RunState, measured: Measured) -> Round:
    # A client without training rows has nothing to say; it is still measured on its other rows.
    # One that did not answer the last measurement is left out until it answers again.
    train, pooled_rows = measured["train"], setup.strategy.card.trains_on == "pooled"
    names = sorted(
        name
        for name, n in setup.summary.counts.items()
        if n.sum() > 0 and (pooled_rows or name in train)
    )
    count = max(1, round(setup.participation * len(names)))
    drawn = stream(setup.seed, "participants", state.round).permutation(len(names))[:count]
    participants = tuple(names[i] for i in sorted(drawn))
    return Round(
        index=state.round,
        rounds=setup.rounds,
        participants=participants,
        plan=setup.recipe.plan(state.round, setup.rounds),
        decay=_decay(setup, state.round),
        rng=stream(setup.seed, "server", state.round),
        summary=setup.summary,
        measurements=tuple(
            Measurement(name, pooled(train) if pooled_rows else train[name])
            for name in participants
        ),
        vectors=state.vectors,
    )


def _decay(setup: Setup, round_: int) -> float:
    first = setup.recipe.rate(0, setup.rounds)
    return setup.recipe.rate(round_, setup.rounds) / first if first else 1.0


def _advance(setup: Setup, state: RunState, step: Step, reports: Sequence[Report]) -> None:
    """Move the weights: w ← w − scale · Σ c_k g_k, in client order and double precision.

    The members of an ensemble move on their own: w_k ← w_k − scale · c_k g_k.
    """
    updates = [report.update for report in reports]
    if reports and setup.strategy.card.serves == "ensemble":
        rows = [sorted(setup.summary.counts).index(report.client) for report in reports]
        moves = step.coefficients[:, None] * np.stack(updates)
        state.weights = state.weights.copy()
        state.weights[rows] = (state.weights[rows] - step.scale * moves).astype(np.float32)
    elif reports:
        move = weighted_sum(updates, step.coefficients)
        state.weights = (state.weights - step.scale * move).astype(np.float32)
    for name, coefficients in step.vectors.items():
        vector = state.vectors.get(name, np.zeros(setup.size, np.float32)).astype(float)
        for coefficient, report in zip(coefficients, reports, strict=True):
            if report.control_change is not None:
                vector += coefficient * report.control_change
        state.vectors[name] = vector.astype(np.float32)
    state.round += 1


def _bank(setup: Setup, state: RunState) -> Generator[Ask, Any, Measured]:
    """Measure the new weights (and their average) and keep them as candidates."""
    candidates = {"round": state.weights}
    if setup.output.rule not in ("last", "threshold"):
        before = state.weights if state.average is None else state.average
        mixed = AVERAGE_DECAY * before + (1 - AVERAGE_DECAY) * state.weights
        state.average = mixed.astype(np.float32)
        if 2 * state.round > setup.rounds:
            candidates["average"] = state.average
    answers: Sequence[Measured] = yield _ask_about(setup, *candidates.values())
    if "average" in candidates:
        for (kind, weights), found in zip(candidates.items(), answers, strict=True):
            sums = pooled(found[setup.held_out])
            state.bank.append(Candidate(f"{kind} {state.round}", weights, sums))
    loss = mean_loss(pooled(answers[0][setup.held_out]))
    if loss < state.best_loss:
        state.best_loss, state.best_round = loss, state.round
    return answers[0]


def _stalled(setup: Setup, state: RunState) -> bool:
    return setup.patience is not None and state.round - state.best_round >= setup.patience


def _record(setup: Setup, round_: int, measured: Measured, **extra: Any) -> RoundRecord:
    lr = setup.recipe.rate(max(round_ - 1, 0), setup.rounds)
    return RoundRecord(round=round_, rounds=setup.rounds, lr=lr, measured=measured, **extra)


def serve_model(
    setup: Setup, state: RunState, measured: Measured
) -> Generator[Ask, Any, tuple[Served, Sequence[Measured]]]:
    """Apply the output rule and measure what is served."""
    last = Candidate(f"round {state.round}", state.weights, pooled(measured[setup.held_out]))
    constraints = setup.summary.constraints
    served = choose(setup.output, last, state.bank, constraints)
    serves = setup.strategy.card.serves
    if serves != "global":
        clients = tuple(sorted(setup.summary.counts))
        served = replace(served, names=served.names * len(clients), clients=clients)
    if serves == "personal":
        return _personal(served, state), (measured,)
    if serves == "ensemble":
        served = replace(served, kind="ensemble", weights=_shares(setup))
        return served, (yield _ask_about(setup, served.members))
    if setup.output.rule == "threshold":
        scored: Scored = yield Score(state.weights, (setup.held_out,))
        sums = scored[setup.held_out]
        counts = (sums[name].histogram.coarse(_THRESHOLDS) for name in sorted(sums))
        total = reduce(add, counts)
        fitted = fit_thresholds(total, constraints, tolerance=setup.output.tolerance)
        served = replace(served, thresholds=fitted)
    request = Measure(tuple(served.members), setup.splits, thresholds=served.thresholds)
    return served, (yield request)


def _ask_about(setup: Setup, *models: np.ndarray) -> Measure:
    """Ask how models do as they would be served."""
    serves = setup.strategy.card.serves
    return Measure(
        models,
        setup.splits,
        shares=_shares(setup) if serves == "ensemble" else None,
        slot=PERSONAL if serves == "personal" else None,
    )


def _ask_scores(setup: Setup, state: RunState, served: Served) -> Score:
    """Ask how the served model scores the rows of every split."""
    if served.kind == "personal":
        return Score(state.weights, setup.splits, slot=PERSONAL)
    if served.kind == "single":
        return Score(served.members[0], setup.splits)
    drawn = served.kind == "mixture"
    return Score(served.members, setup.splits, shares=served.weights, drawn=drawn)


def _shares(setup: Setup) -> np.ndarray:
    """Return how much each member of an ensemble counts, in client order."""
    sizes = np.array([setup.summary.counts[name].sum() for name in sorted(setup.summary.counts)])
    if setup.strategy.card.shares == "uniform":
        sizes = np.sign(sizes)  # who has no rows has no model of its own
    return np.asarray(sizes / sizes.sum())


def _personal(served: Served, state: RunState) -> Served:
    """Serve each client the model it holds; where none is held, the server's."""
    held = [state.slots.get(name, {}).get(PERSONAL, state.weights) for name in served.clients]
    share = np.full(len(held), 1 / len(held))
    return replace(served, kind="personal", members=np.stack(held), weights=share)
