"""One exchange with the clients: send a request, keep the answers that can be believed.

Each generator yields its request and is sent `Replies`; it returns what was accepted, and why the
other clients have no usable answer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from mfairfl.data import Split
from mfairfl.engine.acceptance import accept_measured, accept_reports, accept_scored
from mfairfl.engine.output import ClientSums
from mfairfl.engine.state import (
    Absent,
    Ask,
    Measure,
    Refusal,
    Replies,
    RunState,
    Score,
    Scored,
    Setup,
    Train,
)
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import Statistics
from mfairfl.training.plan import Job, Report

T = TypeVar("T")
Exchange = Generator[Ask, Replies, T]


class BrokenModelError(FederationError):
    """Most clients cannot measure the new weights: the model itself is broken."""


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """The answers that can be used, and why the other clients have none.

    Parameters
    ----------
    answers : tuple of ClientSums, Scored, or list of Report
        The answers to a `Measure`, a `Score` or a `Train`.
    refused : mapping of str to str
        Clients whose answer cannot be used, with the reason: it counts against them.
    absent : mapping of str to str
        Clients that could not be asked.
    """

    answers: T
    refused: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def set_aside(self) -> dict[str, str]:
        """The clients without a usable answer, with the reason."""
        return {**self.absent, **self.refused}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is known of weights: who was asked to measure them, and what was answered.

    Parameters
    ----------
    measured : Accepted
        The sums and counts of the weights, and of other models in the same request.
    asked : frozenset of str
        The clients that were asked.
    complete : tuple of str
        The splits that all clients were asked to measure, but for those that are suspended.
    """

    measured: Accepted[tuple[ClientSums, ...]] = field(default_factory=lambda: Accepted(({},)))
    asked: frozenset[str] = frozenset()
    complete: tuple[Split, ...] = ()

    @property
    def sums(self) -> ClientSums:
        """The sums and counts of the weights, as far as they were measured."""
        return self.measured.answers[0]

    @property
    def train(self) -> Mapping[str, Statistics]:
        """The sums and counts of train rows."""
        return self.sums.get("train", {})

    @property
    def silent(self) -> frozenset[str]:
        """The clients that were asked and have no usable answer."""
        return self.asked - set(next(iter(self.sums.values()), ()))


def _sort(replies: Replies) -> Accepted[dict[str, Any]]:
    """Separate the answers, in client order, from the reasons why there are none."""
    answers, refused, absent = {}, {}, {}
    for client in sorted(replies):
        match replies[client]:
            case Refusal(reason):
                refused[client] = reason
            case Absent(reason):
                absent[client] = reason
            case answer:
                answers[client] = answer
    return Accepted(answers, refused, absent)


def measure(setup: Setup, state: RunState, ask: Measure) -> Exchange[Evaluation]:
    """Have weights measured.

    Where most of a few clients cannot, all are asked: that shows whether the model is broken.
    """
    try:
        measured = yield from _measured(setup, state, ask)
    except BrokenModelError:
        if ask.only is None:
            raise
        ask = replace(ask, only=None, without=state.standing.out(state.round))
        measured = yield from _measured(setup, state, ask)
    complete = ask.splits if ask.only is None else ()
    return Evaluation(measured, frozenset(ask.asked(sorted(setup.summary.counts))), complete)


def _measured(
    setup: Setup, state: RunState, ask: Measure
) -> Exchange[Accepted[tuple[ClientSums, ...]]]:
    replies = _sort((yield ask))
    by_model = [
        _by_split({client: answer[i] for client, answer in replies.answers.items()}, ask.splits)
        for i in range(len(ask.weights))
    ]
    at_half = ask.thresholds is None
    models, refused = accept_measured(by_model, setup.enrolled, at_half=at_half)
    measured = Accepted(models, {**refused, **replies.refused}, replies.absent)
    usable = models[0][setup.held_out if setup.held_out in ask.splits else ask.splits[0]]
    if not usable or len(refused) > len(usable):
        why = _too_few(measured.set_aside, "measurements")
        raise BrokenModelError(f"round {state.round}: {why}")
    return measured


def score(setup: Setup, ask: Score) -> Exchange[Accepted[Scored]]:
    """Have a model's scores counted."""
    replies = _sort((yield ask))
    scores, refused = accept_scored(_by_split(replies.answers, ask.splits), setup.enrolled)
    scored: Accepted[Scored] = Accepted(scores, {**refused, **replies.refused}, replies.absent)
    if not any(scores.values()):
        raise FederationError(_too_few(scored.set_aside, "scores"))
    return scored


def _by_split(
    answers: Mapping[str, Mapping[Split, T]], splits: Sequence[Split]
) -> dict[Split, dict[str, T]]:
    """Return what clients counted on each split: by split, then client."""
    counted: dict[Split, dict[str, T]] = {split: {} for split in splits}
    for client, answer in answers.items():
        for split, sums in answer.items():
            counted.setdefault(split, {})[client] = sums
    return counted


def _too_few(set_aside: Mapping[str, str], what: str) -> str:
    client, reason = next(iter(set_aside.items()), ("all", "there is no answer"))
    return (
        f"most clients' {what} cannot be used ({client}: {reason}); if it is the same with all, "
        "training has diverged: lower training.lr"
    )


def let_train(
    setup: Setup, state: RunState, jobs: Sequence[Job]
) -> Exchange[Accepted[list[Report]]]:
    """Let clients train, and return the reports that can be used."""
    if not jobs:
        return Accepted([])
    weights = dict.fromkeys((job.client for job in jobs), state.weights)
    if setup.strategy.card.serves == "ensemble":
        members = dict(zip(sorted(setup.summary.counts), state.weights, strict=True))
        weights = {client: members[client] for client in weights}
    replies = _sort((yield Train(state.round, weights, tuple(jobs))))
    reports, refused, state.standing.longest = accept_reports(
        [report for reports in replies.answers.values() for report in reports],
        [job for job in jobs if job.client not in replies.absent],
        setup,
        state.standing.longest,
    )
    return Accepted(reports, {**refused, **replies.refused}, replies.absent)
