"""The round loop, written once: measure → plan → train → combine, then the output rule.

The loop is a generator. It yields requests (`Measure`, `Score`, `Train`) and is sent the answers,
so it knows nothing of who carries messages: the embedded engine answers for many loops at once,
the Flower engine asks the silos.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from mfairfl.engine.exchange import (
    BrokenModelError,
    let_train,
    measure,
    score,
    set_aside,
    terms_of,
)
from mfairfl.engine.output import AVERAGE_DECAY, Candidate, Served, choose
from mfairfl.engine.state import (
    Ask,
    Measure,
    Measured,
    Reply,
    RoundRecord,
    RunState,
    Score,
    Scored,
    Setup,
)
from mfairfl.engine.tallies import mean_loss, pooled
from mfairfl.errors import FederationError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.thresholds import fit_thresholds
from mfairfl.geometry.gram import gram_matrix, weighted_sum
from mfairfl.guard.acceptance import accept_reports
from mfairfl.guard.defence import Defended, Updates, defend, doubted_losses
from mfairfl.models import Model
from mfairfl.randomness import stream
from mfairfl.strategies.base import Measurement, Round, Step
from mfairfl.training.plan import PERSONAL, Report

__all__ = ["Callback", "Loop", "Result", "federate", "first_state", "rehearse"]


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
    """What a run ends in: the served model, its sums and counts, member by member, its scores.

    `left_out` says why clients are missing in them, `warnings` what went wrong on the way.
    """

    served: Served
    measured: tuple[Measured, ...]
    scored: Scored
    rounds: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


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
    first = yield from measure(setup, state, _ask_again(setup, state))
    measured: Measured = first.found[0]
    if state.round == 0:
        _tell(watchers, setup, state, _record(setup, 0, measured, set_aside=set_aside(first)))
    while state.round < setup.rounds and not _stalled(setup, state):
        record = yield from _round(setup, state, measured)
        measured = _without_suspended(setup, state, record.measured)
        _tell(watchers, setup, state, record)
    served, final = yield from serve_model(setup, state, measured)
    scored = yield from score(setup, _ask_scores(setup, state, served))
    return Result(
        served=served,
        measured=tuple(final.found),
        scored=scored.found,
        rounds=state.round,
        left_out={**set_aside(scored), **set_aside(final)},
        warnings=(*_diverged(state), *state.standing.warnings()),
    )


def _diverged(state: RunState) -> list[str]:
    if not state.undone:
        return []
    return [
        f"training diverged in {state.undone} of {state.round} rounds, and these steps were taken "
        "back; lower training.lr"
    ]


def _without_suspended(setup: Setup, state: RunState, measured: Measured) -> Measured:
    """Return what a run that is resumed here would measure: this round may have suspended some."""
    out = state.standing.out(state.round)
    kept = {
        split: {name: sums for name, sums in clients.items() if name not in out}
        for split, clients in measured.items()
    }
    if not kept[setup.held_out]:
        raise FederationError(
            f"round {state.round}: the only clients whose measurement can be used are suspended"
        )
    return kept


def _tell(
    watchers: Sequence[Callback], setup: Setup, state: RunState, record: RoundRecord
) -> None:
    for watcher in watchers:
        watcher.on_round(setup, state, record)


def _round(setup: Setup, state: RunState, measured: Measured) -> Generator[Ask, Any, RoundRecord]:
    """One round: plan, train, combine, measure the new weights."""
    this, index = _this_round(setup, state, measured), state.round
    longest = state.standing.longest
    planned, jobs = setup.strategy.plan(state.strategy, this)
    failpoint("round.planned", index + 1)
    trained = yield from let_train(setup, state, jobs)
    failpoint("round.trained", index + 1)
    reports: list[Report] = trained.found
    defended, seen, gram = _defended(setup, this, reports)
    step = Step(np.zeros(0))
    if seen:
        step = setup.strategy.combine(planned, this, seen, gram)
        step = _on_originals(step, defended)
    before = replace(state, bank=[*state.bank], vectors={**state.vectors})
    state.strategy = planned if step.state is None else step.state
    failpoint("round.combined", state.round + 1)
    _advance(setup, state, step, reports)
    failpoint("round.advanced", state.round)
    suspended = state.standing.reasons(index)
    log = dict(step.log)
    try:
        answers = yield from _bank(setup, state)
    except BrokenModelError as error:
        _undo(state, before)
        state.standing.longest = longest
        log["undone"] = str(error)
        answers = yield from measure(setup, state, _ask_again(setup, state))
    failpoint("round.measured", state.round)
    refused = {**answers.faults, **trained.faults}
    if defended.accused:
        refused = {**defended.reasons, **refused}
    there = {job.client for job in jobs} - set(trained.absent)
    state.standing.judge(index, there, refused, clients=len(setup.summary.counts))
    clients = [report.client for report in reports]
    norms = [float(np.linalg.norm(report.update.astype(float))) for report in reports]
    moved = (step.scale * step.coefficients).tolist()
    if setup.robust != "none":
        log["robust"] = defended.log(setup.robust)
    return _record(
        setup,
        state.round,
        answers.found[0],
        coefficients=dict(zip(clients, moved, strict=True)),
        norms=dict(zip(clients, norms, strict=True)),
        clipped=defended.clipped,
        set_aside={**suspended, **answers.absent, **trained.absent, **defended.reasons, **refused},
        log=log,
    )


def rehearse(
    setup: Setup, state: RunState, measured: Measured, reports: Sequence[Report]
) -> np.ndarray:
    """Return the move Σ c_k g_k that the server would make with these reports; nothing changes.

    For those who want to know the server's answer beforehand: attackers and auditors.
    """
    this = _this_round(setup, state, measured)
    planned, jobs = setup.strategy.plan(state.strategy, this)
    sound, _, _ = accept_reports(reports, terms_of(setup, state, jobs))
    defended, seen, gram = _defended(setup, this, sound)
    step = _on_originals(setup.strategy.combine(planned, this, seen, gram), defended)
    return step.scale * weighted_sum([r.update for r in sound], step.coefficients)


def _undo(state: RunState, before: RunState) -> None:
    """Take back a step after which the model is broken; the round counts, and its strikes do."""
    state.undone += 1
    for name in ("weights", "strategy", "vectors", "average", "bank"):
        setattr(state, name, getattr(before, name))


def _defended(
    setup: Setup, this: Round, reports: Sequence[Report]
) -> tuple[Defended, list[Report], np.ndarray]:
    """Defend against lies; return what was done, the reports to combine, their Gram matrix."""
    rule = setup.robust
    needed = setup.strategy.card.needs != "none" or rule != "none"
    gram = gram_matrix([r.update for r in reports]) if needed else np.zeros((0, 0))
    if rule == "none" or not reports:
        everybody = Defended(kept=list(range(len(reports))), rows=np.eye(len(reports)))
        return everybody, list(reports), gram
    found = defend(rule, _updates(this, reports, gram))
    return found, [reports[i] for i in found.kept], found.gram(gram)


def _on_originals(step: Step, defended: Defended) -> Step:
    """Return a step on what a defence left as one on what was sent."""
    left_out = np.eye(len(defended.rows))[defended.kept].T
    return replace(
        step,
        coefficients=defended.on_originals(step.coefficients),
        vectors={name: np.asarray(left_out @ own) for name, own in step.vectors.items()},
    )


def _updates(this: Round, reports: Sequence[Report], gram: np.ndarray) -> Updates:
    counts = [this.summary.counts[report.client] for report in reports]
    return Updates(
        clients=[report.client for report in reports],
        gram=gram,
        weights=this.shares(reports),
        favourable=np.array([rows[:, 1].sum() / rows.sum() for rows in counts]),
    )


def _this_round(setup: Setup, state: RunState, measured: Measured) -> Round:
    # A client without training rows has nothing to say; it is still measured on its other rows.
    # One without a usable answer to the last measurement is left out until it has one.
    train, pooled_rows = measured["train"], setup.strategy.card.trains_on == "pooled"
    out = state.standing.out(state.round)
    names = sorted(
        name
        for name, n in setup.summary.counts.items()
        if n.sum() > 0 and (pooled_rows or name in train) and name not in out
    )
    if not names:
        raise FederationError(f"round {state.round}: no client with train rows can take part")
    count = max(1, round(setup.participation * len(names)))
    drawn = stream(setup.seed, "participants", state.round).permutation(len(names))[:count]
    participants = tuple(names[i] for i in sorted(drawn))
    known = tuple(
        Measurement(name, pooled(train) if pooled_rows else train[name]) for name in participants
    )
    robust = setup.robust != "none"
    return Round(
        index=state.round,
        rounds=setup.rounds,
        participants=participants,
        plan=setup.recipe.plan(state.round, setup.rounds),
        decay=_decay(setup, state.round),
        rng=stream(setup.seed, "server", state.round),
        summary=setup.summary,
        measurements=known,
        vectors=state.vectors,
        doubted=doubted_losses({m.client: m.loss for m in known}) if robust else {},
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


def _bank(setup: Setup, state: RunState) -> Generator[Ask, Reply, Reply]:
    """Measure the new weights (and their average) and keep them as candidates."""
    candidates = {"round": state.weights}
    if setup.output.rule not in ("last", "threshold"):
        before = state.weights if state.average is None else state.average
        mixed = AVERAGE_DECAY * before + (1 - AVERAGE_DECAY) * state.weights
        state.average = mixed.astype(np.float32)
        if 2 * state.round > setup.rounds:
            candidates["average"] = state.average
    out = state.standing.out(state.round)
    ask = replace(_ask_about(setup, *candidates.values()), without=out)
    answers = yield from measure(setup, state, ask)
    if "average" in candidates:
        for (kind, weights), found in zip(candidates.items(), answers.found, strict=True):
            sums = pooled(found[setup.held_out])
            state.bank.append(Candidate(f"{kind} {state.round}", weights, sums))
    loss = mean_loss(pooled(answers.found[0][setup.held_out]))
    if loss < state.best_loss:
        state.best_loss, state.best_round = loss, state.round
    return answers


def _stalled(setup: Setup, state: RunState) -> bool:
    return setup.patience is not None and state.round - state.best_round >= setup.patience


def _record(setup: Setup, round_: int, measured: Measured, **extra: Any) -> RoundRecord:
    lr = setup.recipe.rate(max(round_ - 1, 0), setup.rounds)
    return RoundRecord(round=round_, rounds=setup.rounds, lr=lr, measured=measured, **extra)


def serve_model(
    setup: Setup, state: RunState, measured: Measured
) -> Generator[Ask, Reply, tuple[Served, Reply]]:
    """Apply the output rule and measure what is served."""
    last = Candidate(f"round {state.round}", state.weights, pooled(measured[setup.held_out]))
    constraints = setup.summary.constraints
    served = choose(setup.output, last, state.bank, constraints)
    serves = setup.strategy.card.serves
    if serves != "global":
        clients = tuple(sorted(setup.summary.counts))
        served = replace(served, names=served.names * len(clients), clients=clients)
    if serves == "personal":
        everyone = yield from measure(setup, state, _ask_about(setup, state.weights))
        return _personal(served, state), everyone
    if serves == "ensemble":
        served = replace(served, kind="ensemble", weights=_shares(setup))
        return served, (yield from measure(setup, state, _ask_about(setup, served.members)))
    if setup.output.rule == "threshold":
        scored = yield from score(setup, Score(state.weights, (setup.held_out,)))
        sums = scored.found[setup.held_out]
        counts = (sums[name].histogram.coarse(_THRESHOLDS) for name in sorted(sums))
        total = reduce(add, counts)
        fitted = fit_thresholds(total, constraints, tolerance=setup.output.tolerance)
        served = replace(served, thresholds=fitted)
    request = Measure(tuple(served.members), setup.splits, thresholds=served.thresholds)
    return served, (yield from measure(setup, state, request))


def _ask_about(setup: Setup, *models: np.ndarray) -> Measure:
    """Ask how models do as they would be served."""
    serves = setup.strategy.card.serves
    return Measure(
        models,
        setup.splits,
        shares=_shares(setup) if serves == "ensemble" else None,
        slot=PERSONAL if serves == "personal" else None,
    )


def _ask_again(setup: Setup, state: RunState) -> Measure:
    """Ask how the server's weights do, as a run that is resumed here would."""
    ask = _ask_about(setup, state.weights)
    return replace(ask, without=state.standing.out(state.round))


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
