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

from mfairfl.data import Split
from mfairfl.engine.acceptance import accept_reports
from mfairfl.engine.defence import Defended, Updates, defend, doubted_losses
from mfairfl.engine.exchange import (
    BrokenModelError,
    let_train,
    measure,
    score,
    set_aside,
    terms_of,
)
from mfairfl.engine.output import (
    AVERAGE_DECAY,
    Candidate,
    ClientSums,
    NamedWeights,
    Served,
    choose,
)
from mfairfl.engine.schedule import (
    about,
    ask_after,
    drawn,
    ensemble_shares,
    may_be_served,
    taking_part,
)
from mfairfl.engine.state import (
    Ask,
    LastGoodState,
    Measure,
    Reply,
    RoundRecord,
    RunState,
    Score,
    Scored,
    Setup,
)
from mfairfl.errors import FederationError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.thresholds import fit_thresholds
from mfairfl.geometry.gram import gram_matrix, weighted_sum
from mfairfl.models import Model
from mfairfl.randomness import stream
from mfairfl.strategies.base import Measurement, Round, Step
from mfairfl.training.plan import PERSONAL, Report

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
    measured: tuple[ClientSums, ...]
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
    known = yield from _measured_again(setup, state)
    if state.round == 0:
        _tell(watchers, setup, state, _record(setup, 0, known, set_aside=set_aside(known.reply)))
    while state.round < setup.rounds and not _stalled(setup, state):
        record, known = yield from _round(setup, state, known)
        _tell(watchers, setup, state, record)
    served, final = yield from serve_model(setup, state)
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


@dataclass(frozen=True, slots=True)
class _Known:
    """What was measured of the present weights."""

    reply: Reply = field(default_factory=lambda: Reply(({},)))
    asked: frozenset[str] = frozenset()
    complete: tuple[Split, ...] = ()

    @property
    def silent(self) -> frozenset[str]:
        """Who has no usable answer."""
        return self.asked - set(next(iter(self.measured.values()), ()))

    @property
    def measured(self) -> ClientSums:
        found: ClientSums = self.reply.found[0]
        return found

    @property
    def train(self) -> Mapping[str, Statistics]:
        return self.measured.get("train", {})


def _measured_again(setup: Setup, state: RunState) -> Generator[Ask, Reply, _Known]:
    """Measure what was measured of these weights when their round ended."""
    ask = ask_after(setup, state, about(setup, state.weights))
    return _Known() if ask is None else (yield from _look(setup, state, ask))


def _look(setup: Setup, state: RunState, ask: Measure) -> Generator[Ask, Reply, _Known]:
    """Measure the present weights.

    Where most of a few cannot, all are asked: they say whether it is the model that is broken.
    """
    try:
        reply = yield from measure(setup, state, ask)
    except BrokenModelError:
        if ask.only is None:
            raise
        ask = replace(ask, only=None, without=state.standing.out(state.round))
        reply = yield from measure(setup, state, ask)
    complete = ask.splits if ask.only is None else ()
    return _Known(reply, frozenset(ask.asked(sorted(setup.summary.counts))), complete)


def _tell(
    watchers: Sequence[Callback], setup: Setup, state: RunState, record: RoundRecord
) -> None:
    for watcher in watchers:
        watcher.on_round(setup, state, record)


def _round(
    setup: Setup, state: RunState, known: _Known
) -> Generator[Ask, Any, tuple[RoundRecord, _Known]]:
    """One round: plan, train, combine, measure the new weights if somebody needs to know."""
    train = yield from _for_planning(setup, state, known)
    this, index = _this_round(setup, state, train, known.silent), state.round
    before = state.last_good or LastGoodState.of(state)
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
    state.strategy = planned if step.state is None else step.state
    failpoint("round.combined", state.round + 1)
    _advance(setup, state, step, reports)
    failpoint("round.advanced", state.round)
    suspended = state.standing.reasons(index)
    log = dict(step.log)
    try:
        after = yield from _measure_after(setup, state)
        state.last_good = None if after.asked else before
    except BrokenModelError as error:
        before.restore(state)
        log["undone"] = str(error)
        after = yield from _measured_again(setup, state)
    failpoint("round.measured", state.round)
    answers = after.reply
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
    record = _record(
        setup,
        state.round,
        after,
        coefficients=dict(zip(clients, moved, strict=True)),
        norms=dict(zip(clients, norms, strict=True)),
        clipped=defended.clipped,
        set_aside={**suspended, **answers.absent, **trained.absent, **defended.reasons, **refused},
        log=log,
    )
    return record, after


def _for_planning(
    setup: Setup, state: RunState, known: _Known
) -> Generator[Ask, Reply, Mapping[str, Statistics]]:
    """Return the train rows' sums that the next round is planned from.

    As a rule they are known from the last measurement, but for clients that are drawn in place of
    those that it could not use, or that the last round suspended.
    """
    if not setup.plans_from_measurements:
        return {}
    missing = frozenset(drawn(setup, state, known.silent)) - known.asked
    if not missing or setup.strategy.card.trains_on == "pooled":
        return known.train
    ask = replace(about(setup, state.weights), splits=("train",), only=missing)
    found = yield from _look(setup, state, ask)
    return {**known.train, **found.train}


def rehearse(
    setup: Setup, state: RunState, measured: ClientSums, reports: Sequence[Report]
) -> np.ndarray:
    """Return the move Σ c_k g_k that the server would make with these reports; nothing changes.

    For those who want to know the server's answer beforehand: attackers and auditors.

    Parameters
    ----------
    measured : mapping
        The participants' sums and counts, where the strategy plans from them.
    """
    this = _this_round(setup, state, measured.get("train", {}))
    planned, jobs = setup.strategy.plan(state.strategy, this)
    sound, _, _ = accept_reports(reports, terms_of(setup, state, jobs))
    defended, seen, gram = _defended(setup, this, sound)
    step = _on_originals(setup.strategy.combine(planned, this, seen, gram), defended)
    return step.scale * weighted_sum([r.update for r in sound], step.coefficients)


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
        favourable=np.array([rows[:, 1].sum() / rows.sum() for rows in counts]),  # as told
    )


def _this_round(
    setup: Setup,
    state: RunState,
    train: Mapping[str, Statistics],
    silent: frozenset[str] = frozenset(),
) -> Round:
    participants = taking_part(setup, state, train, silent)
    if not participants:
        raise FederationError(f"round {state.round}: no client with train rows can take part")
    known: tuple[Measurement, ...] = ()
    if setup.plans_from_measurements:
        whole = setup.strategy.card.trains_on == "pooled"
        known = tuple(
            Measurement(n, Statistics.pooled(train) if whole else train[n]) for n in participants
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
        vector = state.vectors.get(name, np.zeros(setup.size, np.float32)).astype(float)
        for coefficient, report in zip(coefficients, reports, strict=True):
            if report.control_change is not None:
                vector += coefficient * report.control_change
        state.vectors[name] = vector.astype(np.float32)
    state.round += 1


def _measure_after(setup: Setup, state: RunState) -> Generator[Ask, Reply, _Known]:
    """Measure the new weights (and their average) as far as need be; keep what may be served."""
    models = [state.weights]
    if setup.output.rule not in ("last", "threshold"):
        before = state.weights if state.average is None else state.average
        mixed = AVERAGE_DECAY * before + (1 - AVERAGE_DECAY) * state.weights
        state.average = mixed.astype(np.float32)
    candidates = may_be_served(setup, state.round) and state.average is not None
    if candidates and state.average is not None:
        models.append(state.average)
    if not all(np.isfinite(model).all() for model in models):
        raise BrokenModelError(f"round {state.round}: its weights are not finite")
    ask = ask_after(setup, state, about(setup, *models))
    if ask is None:
        return _Known()
    found = yield from _look(setup, state, ask)
    if setup.held_out in found.complete:
        sums = [Statistics.pooled(one[setup.held_out]) for one in found.reply.found]
        if candidates:
            for kind, weights, total in zip(("round", "average"), models, sums, strict=True):
                state.bank.append(Candidate(f"{kind} {state.round}", weights, total))
        loss = sums[0].mean_loss
        if loss < state.best_loss:
            state.best_loss, state.best_round = loss, state.round
    return found


def _stalled(setup: Setup, state: RunState) -> bool:
    return setup.patience is not None and state.round - state.best_round >= setup.patience


def _record(setup: Setup, round_: int, known: _Known, **extra: Any) -> RoundRecord:
    return RoundRecord(
        round=round_,
        rounds=setup.rounds,
        lr=setup.recipe.rate(max(round_ - 1, 0), setup.rounds),
        measured=known.measured,
        complete=known.complete,
        **extra,
    )


def serve_model(setup: Setup, state: RunState) -> Generator[Ask, Reply, tuple[Served, Reply]]:
    """Apply the output rule and measure what is served."""
    constraints, bank = setup.summary.constraints, state.bank
    last = NamedWeights(f"round {state.round}", state.weights)
    if not bank and setup.output.rule in ("select", "mixture"):
        found = yield from measure(setup, state, about(setup, state.weights))
        bank = [Candidate(*last, Statistics.pooled(found.found[0][setup.held_out]))]
    served = choose(setup.output, last, bank, constraints)
    serves = setup.strategy.card.serves
    if serves != "global":
        clients = tuple(sorted(setup.summary.counts))
        served = replace(served, names=served.names * len(clients), clients=clients)
    if serves == "personal":
        everyone = yield from measure(setup, state, about(setup, state.weights))
        return _personal(served, state), everyone
    if serves == "ensemble":
        served = replace(served, kind="ensemble", weights=ensemble_shares(setup))
        return served, (yield from measure(setup, state, about(setup, served.members)))
    if setup.output.rule == "threshold":
        scored = yield from score(setup, Score(state.weights, (setup.held_out,)))
        sums = scored.found[setup.held_out]
        counts = (sums[name].histogram.coarse(_THRESHOLDS) for name in sorted(sums))
        total = reduce(add, counts)
        fitted = fit_thresholds(total, constraints, tolerance=setup.output.tolerance)
        served = replace(served, thresholds=fitted)
    request = Measure(tuple(served.members), setup.splits, thresholds=served.thresholds)
    return served, (yield from measure(setup, state, request))


def _ask_scores(setup: Setup, state: RunState, served: Served) -> Score:
    """Ask how the served model scores the rows of every split."""
    if served.kind == "personal":
        return Score(state.weights, setup.splits, slot=PERSONAL)
    if served.kind == "single":
        return Score(served.members[0], setup.splits)
    drawn = served.kind == "mixture"
    return Score(served.members, setup.splits, shares=served.weights, drawn=drawn)


def _personal(served: Served, state: RunState) -> Served:
    """Serve each client the model it holds; where none is held, the server's."""
    held = [state.slots.get(name, {}).get(PERSONAL, state.weights) for name in served.clients]
    share = np.full(len(held), 1 / len(held))
    return replace(served, kind="personal", members=np.stack(held), weights=share)
