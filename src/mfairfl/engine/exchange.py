"""One exchange with the clients: ask, and keep the answers that can be believed.

Each generator yields its request and is sent a `Reply`; it returns a `Reply` with what was
accepted, and why the rest was not.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from mfairfl.engine.acceptance import Terms, accept_measured, accept_reports, accept_scored
from mfairfl.engine.state import Ask, Measure, Reply, RunState, Score, Setup, Train
from mfairfl.errors import FederationError
from mfairfl.training.plan import Job


class BrokenModelError(FederationError):
    """Most clients cannot measure the new weights: it is the model that is broken."""


def measure(setup: Setup, state: RunState, ask: Measure) -> Generator[Ask, Reply, Reply]:
    """Return the measurements that can be believed."""
    reply = yield ask
    at_half = ask.thresholds is None
    answers, refused = accept_measured(reply.found, setup.enrolled, at_half=at_half)
    found = Reply(answers, {**refused, **reply.faults}, reply.absent)
    left = answers[0][setup.held_out if setup.held_out in ask.splits else ask.splits[0]]
    if not left or len(refused) > len(left):
        raise BrokenModelError(f"round {state.round}: {_too_few(found, 'measurements')}")
    return found


def score(setup: Setup, ask: Score) -> Generator[Ask, Reply, Reply]:
    """Return the scores that can be believed."""
    reply = yield ask
    answers, refused = accept_scored(reply.found, setup.enrolled)
    found = Reply(answers, {**refused, **reply.faults}, reply.absent)
    if not any(answers.values()):
        raise FederationError(_too_few(found, "scores"))
    return found


def _too_few(reply: Reply, what: str) -> str:
    name, why = next(iter(set_aside(reply).items()), ("all", "there is no answer"))
    return (
        f"most clients' {what} cannot be used ({name}: {why}); if it is the same with all, "
        "training has diverged: lower training.lr"
    )


def let_train(setup: Setup, state: RunState, jobs: Sequence[Job]) -> Generator[Ask, Reply, Reply]:
    """Let clients train, and return the reports that can be used."""
    if not jobs:
        return Reply([])
    weights = dict.fromkeys((job.client for job in jobs), state.weights)
    if setup.strategy.card.serves == "ensemble":
        members = dict(zip(sorted(setup.summary.counts), state.weights, strict=True))
        weights = {client: members[client] for client in weights}
    reply = yield Train(state.round, weights, tuple(jobs))
    terms = terms_of(setup, state, jobs)
    reports, refused, state.standing.longest = accept_reports(reply.found, terms)
    faults = {n: why for n, why in refused.items() if n not in reply.absent} | {**reply.faults}
    return Reply(reports, faults, reply.absent)


def terms_of(setup: Setup, state: RunState, jobs: Sequence[Job]) -> Terms:
    """Return what the reports of these jobs are held against."""
    return Terms(
        jobs=jobs,
        size=setup.size,
        rows={job.client: setup.summary.rows(job.client) for job in jobs},
        usual_rows=setup.usual_rows,
        attributes=setup.summary.attributes,
        longest=state.standing.longest,
    )


def set_aside(reply: Reply) -> dict[str, str]:
    """Say who is missing in answers, and why."""
    return {**reply.absent, **reply.faults}
