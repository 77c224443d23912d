"""The round loop, written once: plan → train → defend → combine → measure; then the output rule.

The loop is a generator. It yields requests (`Measure`, `Score`, `Train`) and is sent the answers,
so it does not know how messages travel: the embedded engine answers for many loops at once,
the Flower engine asks the silos.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from mfairfl.engine import acceptance, schedule
from mfairfl.engine.acceptance import BrokenModelError, Evaluation, Exchange
from mfairfl.engine.defence import Defended, Updates, defend, doubted_losses
from mfairfl.engine.output import AVERAGE_DECAY, Candidate, ClientSums, Served, choose, single
from mfairfl.engine.state import (
    Ask,
    LastGoodState,
    Replies,
    RoundRecord,
    RunState,
    Score,
    Scored,
    Setup,
)
from mfairfl.errors import FederationError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.fitting import FittedThresholds, fit_thresholds
from mfairfl.geometry.gram import gram_matrix, weighted_sum
from mfairfl.models import Model
from mfairfl.randomness import stream
from mfairfl.strategies.base import Measurement, Round, Step, by_client
from mfairfl.training.plan import PERSONAL, Report

Loop = Generator[Ask, Replies, "Result"]


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

    `left_out` gives the reason why clients are missing in them, `warnings` what went wrong on the
    way, `fitted` what is to be said of fitted thresholds.
    """

    served: Served
    measured: tuple[ClientSums, ...]
    scored: Scored
    rounds: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    fitted: FittedThresholds | None = None


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
        Called after every completed round.
    """
    watchers = list(callbacks)
    for watcher in watchers:
        watcher.on_start(setup, state)
    ask = schedule.needed_measure(setup, state, state.weights)
    evaluation = yield from acceptance.measure(setup, state, ask)
    if state.round == 0:
        record = _record(setup, state, evaluation, set_aside=evaluation.set_aside)
        for watcher in watchers:
            watcher.on_round(setup, state, record)
    patience = setup.rounds if setup.patience is None else setup.patience
    while state.round < min(setup.rounds, state.best_round + patience):
        record, evaluation = yield from _round(setup, state, evaluation)
        for watcher in watchers:
            watcher.on_round(setup, state, record)
    return (yield from _serve(setup, state))


# ------------------------------------------------------------------ one round


def _round(
    setup: Setup, state: RunState, evaluation: Evaluation
) -> Exchange[tuple[RoundRecord, Evaluation]]:
    """Plan, train, defend, combine, and measure the new weights as far as that is needed."""
    last_good = state.last_good or LastGoodState.of(state)
    this = yield from _open_round(setup, state, evaluation)
    planned, jobs = setup.strategy.plan(state.strategy, this)
    failpoint("round.planned", state.round + 1)
    trained = yield from acceptance.let_train(setup, state, jobs)
    reports = trained.answers
    failpoint("round.trained", state.round + 1)
    defended = _defend(setup, this, reports)
    step = Step(np.zeros(0))
    if reports:
        seen = [reports[i] for i in defended.seen]
        step = defended.on_originals(setup.strategy.combine(planned, this, seen, defended.gram))
    state.strategy = planned if step.state is None else step.state
    failpoint("round.combined", state.round + 1)
    _advance(setup, state, step, reports)
    failpoint("round.advanced", state.round)
    evaluation, undone = yield from _measure_or_undo(setup, state, last_good)
    failpoint("round.measured", state.round)
    norms = [float(np.linalg.norm(report.update.astype(float))) for report in reports]
    refused = {**defended.accused, **evaluation.refused, **trained.refused}
    absent = {**state.standing.reasons(this.index), **evaluation.absent, **trained.absent}
    present = {job.client for job in jobs} - set(trained.absent)
    clients = len(setup.summary.counts)
    state.standing.judge(this.index, present, refused, clients=clients)
    record = _record(
        setup,
        state,
        evaluation,
        coefficients=by_client(reports, step.scale * step.coefficients),
        norms=by_client(reports, norms),
        clipped=defended.clipped,
        set_aside={**absent, **defended.reasons, **refused},
        log={**step.log, **undone, **defended.log(setup.robust)},
    )
    return record, evaluation


def _defend(setup: Setup, this: Round, reports: Sequence[Report]) -> Defended:
    """Return what the strategy is to see of the reports."""
    gram = np.zeros((0, 0))
    if setup.robust != "none" or setup.strategy.card.needs != "none":
        gram = gram_matrix([report.update for report in reports])
    clients = [report.client for report in reports]
    counts = [this.summary.counts[client] for client in clients]
    updates = Updates(clients=clients, gram=gram, weights=this.shares(reports), counts=counts)
    return defend(setup.robust if reports else "none", updates)


def _measure_or_undo(
    setup: Setup, state: RunState, last_good: LastGoodState
) -> Exchange[tuple[Evaluation, dict[str, str]]]:
    """Measure the new weights; if that shows a broken model, go back to the last good state.

    The second value is empty, or has the reason under `undone`, for the round's log.
    """
    try:
        evaluation = yield from _measure_new(setup, state)
    except BrokenModelError as error:
        last_good.restore(state)
        ask = schedule.needed_measure(setup, state, state.weights)
        return (yield from acceptance.measure(setup, state, ask)), {"undone": str(error)}
    state.last_good = None if evaluation.asked else last_good
    return evaluation, {}


def _open_round(setup: Setup, state: RunState, evaluation: Evaluation) -> Exchange[Round]:
    """Return what the strategy may know of the round.

    A round that is planned from measurements usually has them in the last evaluation, except for
    clients that are drawn in place of those without a usable answer, or of those that the last
    round suspended: these are asked now, and left out if their answers cannot be used.
    """
    participants = schedule.drawn(setup, state, evaluation.silent)
    measurements: tuple[Measurement, ...] = ()
    if setup.plans_from_measurements:
        sums, missing = evaluation.train, frozenset(participants) - evaluation.asked
        if setup.strategy.card.trains_on == "pooled":
            sums = dict.fromkeys(participants, Statistics.pooled(sums))
        elif missing:
            full = schedule.full_measure(setup, state.weights)
            ask = replace(full, splits=("train",), only=missing)
            sums = {**sums, **(yield from acceptance.measure(setup, state, ask)).train}
        participants = [client for client in participants if client in sums]
        measurements = tuple(Measurement(client, sums[client]) for client in sorted(participants))
    if not participants:
        raise FederationError(f"round {state.round}: no client with train rows can take part")
    losses = {m.client: m.loss for m in measurements} if setup.robust != "none" else {}
    return Round(
        index=state.round,
        rounds=setup.rounds,
        participants=tuple(sorted(participants)),
        plan=setup.recipe.plan(state.round, setup.rounds),
        decay=setup.recipe.decay(state.round, setup.rounds),
        rng=stream(setup.seed, "server", state.round),
        summary=setup.summary,
        measurements=measurements,
        vectors=state.vectors,
        doubted=doubted_losses(losses),
    )


@np.errstate(over="ignore")  # a step that leaves float32 is taken back
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
        vector = state.vectors.get(name, np.zeros(setup.size)).astype(float)
        for coefficient, report in zip(coefficients, reports, strict=True):
            if report.control_change is not None:
                vector += coefficient * report.control_change
        state.vectors = {**state.vectors, name: vector.astype(np.float32)}
    state.round += 1


def _measure_new(setup: Setup, state: RunState) -> Exchange[Evaluation]:
    """Measure the new weights, and their average, as far as needed; keep what may be served."""
    models = [state.weights]
    if setup.output.rule not in ("last", "thresholds"):
        before = state.weights if state.average is None else state.average
        average = AVERAGE_DECAY * before + (1 - AVERAGE_DECAY) * state.weights
        state.average = average.astype(np.float32)
        if schedule.may_be_served(setup, state.round):
            models.append(state.average)
    if not all(np.isfinite(model).all() for model in models):
        raise BrokenModelError(f"round {state.round}: its weights are not finite")
    ask = schedule.needed_measure(setup, state, *models)
    evaluation = yield from acceptance.measure(setup, state, ask)
    if setup.held_out in evaluation.complete:
        pooled = [Statistics.pooled(sums[setup.held_out]) for sums in evaluation.answers]
        if len(models) > 1:
            names = f"round {state.round}", f"average {state.round}"
            state.bank += map(Candidate, names, models, pooled)
        loss = pooled[0].mean_loss
        if loss < state.best_loss:
            state.best_loss, state.best_round = loss, state.round
    return evaluation


def _record(
    setup: Setup, state: RunState, evaluation: Evaluation, **of_the_round: Any
) -> RoundRecord:
    return RoundRecord(
        round=state.round,
        rounds=setup.rounds,
        lr=setup.recipe.rate(max(state.round - 1, 0), setup.rounds),
        measured=evaluation.sums,
        complete=evaluation.complete,
        **of_the_round,
    )


# ------------------------------------------------------------------ the served model


def _serve(setup: Setup, state: RunState) -> Exchange[Result]:
    """Apply the output rule; measure and score what is served."""
    name, serves, bank = f"round {state.round}", setup.strategy.card.serves, state.bank
    if not bank and setup.output.rule in ("select", "mixture"):
        ask = schedule.full_measure(setup, state.weights)
        evaluation = yield from acceptance.measure(setup, state, ask)
        sums = Statistics.pooled(evaluation.sums[setup.held_out])
        bank = [Candidate(name, state.weights, sums)]
    served = choose(setup.output, single(name, state.weights), bank, setup.summary.constraints)
    models, fitted = tuple(served.members), None
    if serves != "global":
        clients = tuple(sorted(setup.summary.counts))
        served = replace(served, kind=serves, names=served.names * len(clients), clients=clients)
    if serves == "ensemble":
        models = (served.members,)
        served = replace(served, weights=schedule.ensemble_shares(setup))
    elif serves == "personal":  # a client without a model of its own is served the server's
        slots = [state.slots.get(client, {}) for client in served.clients]
        members = np.stack([vectors.get(PERSONAL, state.weights) for vectors in slots])
        served = replace(served, members=members, weights=np.full(len(slots), 1 / len(slots)))
    elif setup.output.rule == "thresholds":
        fitted = yield from _fit_thresholds(setup, state)
        served = replace(served, thresholds=fitted.thresholds)
    ask = replace(schedule.full_measure(setup, *models), thresholds=served.thresholds)
    scores = Score(models[0], ask.splits, shares=ask.shares, slot=ask.slot)
    if served.kind == "mixture":
        scores = Score(served.members, ask.splits, shares=served.weights, drawn=True)
    final = yield from acceptance.measure(setup, state, ask)
    scored = yield from acceptance.score(setup, scores)
    return Result(
        served=served,
        measured=final.answers,
        scored=scored.answers,
        rounds=state.round,
        left_out={**scored.set_aside, **final.set_aside},
        warnings=tuple(state.warnings()),
        fitted=fitted,
    )


def _fit_thresholds(setup: Setup, state: RunState) -> Exchange[FittedThresholds]:
    """Fit thresholds to the scores of the rows that choose."""
    scored = yield from acceptance.score(setup, Score(state.weights, (setup.held_out,)))
    by_client = scored.answers[setup.held_out]
    histograms = {name: by_client[name].histogram for name in sorted(by_client)}
    demand = replace(setup.output.demand, tolerance=setup.output.tolerance)
    return fit_thresholds(histograms, setup.summary.constraints, demand)
