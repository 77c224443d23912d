"""One exchange with the clients: send a request, keep the answers that can be believed.

Each generator yields its request and is sent a `Reply`; it returns what was accepted, and why the
rest was not.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mfairfl.data import Split
from mfairfl.engine.acceptance import Terms, accept_measured, accept_reports, accept_scored
from mfairfl.engine.output import ClientSums
from mfairfl.engine.state import Ask, Measure, Reply, RunState, Score, Setup, Train
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import Statistics
from mfairfl.training.plan import Job


class BrokenModelError(FederationError):
    """Most clients cannot measure the new weights: the model itself is broken."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of weights: who was asked to measure them, and what was answered.

    Parameters
    ----------
    reply : Reply
        The accepted measurements: of the weights, and of other models in the same request.
    asked : frozenset of str
        The clients that were asked.
    complete : tuple of str
        The splits that all clients were asked to measure, but for those that are suspended.
    """

    reply: Reply = field(default_factory=lambda: Reply(({},)))
    asked: frozenset[str] = frozenset()
    complete: tuple[Split, ...] = ()

    @property
    def sums(self) -> ClientSums:
        """The sums and counts of the weights, as far as they were measured."""
        sums: ClientSums = self.reply.answers[0]
        return sums

    @property
    def train(self) -> Mapping[str, Statistics]:
        """The sums and counts of train rows."""
        return self.sums.get("train", {})

    @property
    def silent(self) -> frozenset[str]:
        """The clients that were asked and have no usable answer."""
        return self.asked - set(next(iter(self.sums.values()), ()))


def measure(setup: Setup, state: RunState, ask: Measure) -> Generator[Ask, Reply, Known]:
    """Have weights measured.

    Where most of a few clients cannot, all are asked: that shows whether the model is broken.
    """
    try:
        reply = yield from _measured(setup, state, ask)
    except BrokenModelError:
        if ask.only is None:
            raise
        ask = replace(ask, only=None, without=state.standing.out(state.round))
        reply = yield from _measured(setup, state, ask)
    complete = ask.splits if ask.only is None else ()
    return Known(reply, frozenset(ask.asked(sorted(setup.summary.counts))), complete)


def _measured(setup: Setup, state: RunState, ask: Measure) -> Generator[Ask, Reply, Reply]:
    reply = yield ask
    at_half = ask.thresholds is None
    answers, refused = accept_measured(reply.answers, setup.enrolled, at_half=at_half)
    accepted = Reply(answers, {**refused, **reply.faults}, reply.absent)
    usable = answers[0][setup.held_out if setup.held_out in ask.splits else ask.splits[0]]
    if not usable or len(refused) > len(usable):
        raise BrokenModelError(f"round {state.round}: {_too_few(accepted, 'measurements')}")
    return accepted


def score(setup: Setup, ask: Score) -> Generator[Ask, Reply, Reply]:
    """Have a model's scores counted."""
    reply = yield ask
    answers, refused = accept_scored(reply.answers, setup.enrolled)
    accepted = Reply(answers, {**refused, **reply.faults}, reply.absent)
    if not any(answers.values()):
        raise FederationError(_too_few(accepted, "scores"))
    return accepted


def _too_few(reply: Reply, what: str) -> str:
    name, why = next(iter(reply.set_aside.items()), ("all", "there is no answer"))
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
    reports, refused, state.standing.longest = accept_reports(reply.answers, terms)
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
