"""One exchange with the clients: send a request, keep the answers that can be believed.

Each generator yields its request and is sent `Replies`; it returns what was accepted, and why the
other clients have no usable answer: the round goes on without them.

What is checked here is what numbers mean; that arrays have the agreed shapes, and that none is
missing, was checked when they were read (`wire/run_messages.py`, `flower/records.py`). No answer
raises, whatever numbers it holds.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Attribute, Split
from mfairfl.engine import state as states
from mfairfl.engine.output import ClientSums
from mfairfl.engine.state import Measure, Replies, RunState, Score, Scored, Setup, Train
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.scores import ScoreSums
from mfairfl.geometry.gram import Floats
from mfairfl.geometry.robust import lower_median
from mfairfl.training.plan import Controller, Job, Plan, Report

T = TypeVar("T")
Exchange = Generator[states.Ask, Replies, T]
Rows = Mapping[Split, Mapping[str, np.ndarray]]
"""Rows per (cell, label) that clients were enrolled with."""


LARGEST_LOSS = 1e4
"""Mean loss of a cell's rows beyond which a measurement is refused: logits of ten thousand."""

LONGEST = 10.0
"""An update may be this many times as long as the median of its round, or of an earlier one."""

_SLACK = 1e-6  # rounding of sums over rows, per row
_OTHER_COUNTS = "its counts are not those it was enrolled with"
_LEAST_SHARE = 1e-6  # scores round to 0 and 1; a loss is not bounded by what was rounded away


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
class Evaluation(Accepted[tuple[ClientSums, ...]]):
    """What is known of weights: the sums and counts of each model that was measured.

    Parameters
    ----------
    asked : frozenset of str
        The clients that were asked to measure them.
    complete : tuple of str
        The splits that all clients were asked to measure, but for those that are suspended.
    """

    asked: frozenset[str] = frozenset()
    complete: tuple[Split, ...] = ()

    @property
    def sums(self) -> ClientSums:
        """The sums and counts of the weights themselves, as far as they were measured."""
        return self.answers[0]

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
            case states.Refusal(reason):
                refused[client] = reason
            case states.Absent(reason):
                absent[client] = reason
            case answer:
                answers[client] = answer
    return Accepted(answers, refused, absent)


def measure(setup: Setup, state: RunState, ask: Measure | None) -> Exchange[Evaluation]:
    """Have weights measured, if anything has to be known of them.

    Where most of a few clients cannot, all are asked: that shows whether the model is broken.
    """
    if ask is None:
        return Evaluation(({},))
    replies = _sort((yield ask))
    models = [
        _by_split({client: answer[i] for client, answer in replies.answers.items()}, ask.splits)
        for i in range(len(ask.weights))
    ]
    faults_of = partial(measurement_faults, at_half=ask.thresholds is None)
    answers, refused = accept_counted(models, setup.enrolled, "measurement", faults_of)
    evaluation = Evaluation(
        answers,
        {**refused, **replies.refused},
        replies.absent,
        asked=frozenset(ask.asked(sorted(setup.summary.counts))),
        complete=ask.splits if ask.only is None else (),
    )
    usable = evaluation.sums[setup.held_out if setup.held_out in ask.splits else ask.splits[0]]
    if usable and len(refused) <= len(usable):
        return evaluation
    if ask.only is not None:
        everyone = replace(ask, only=None, without=state.standing.out(state.round))
        return (yield from measure(setup, state, everyone))
    why = _too_few(evaluation.set_aside, "measurements")
    raise BrokenModelError(f"round {state.round}: {why}")


def score(setup: Setup, ask: Score) -> Exchange[Accepted[Scored]]:
    """Have a model's scores counted."""
    replies = _sort((yield ask))
    counted = [_by_split(replies.answers, ask.splits)]
    (scores,), refused = accept_counted(counted, setup.enrolled, "scores", score_faults)
    scored: Accepted[Scored] = Accepted(scores, {**refused, **replies.refused}, replies.absent)
    if not any(scores.values()):
        raise FederationError(_too_few(scored.set_aside, "scores"))
    return scored


def _by_split(
    answers: Mapping[str, Mapping[Split, T]], splits: Sequence[Split]
) -> dict[Split, dict[str, T]]:
    """Return what clients counted on each split: by split, then client."""
    return {
        split: {client: sums[split] for client, sums in answers.items() if split in sums}
        for split in splits
    }


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
    reports, refused, state.longest = accept_reports(
        [report for reports in replies.answers.values() for report in reports],
        [job for job in jobs if job.client not in replies.absent],
        setup,
        state.longest,
    )
    return Accepted(reports, {**refused, **replies.refused}, replies.absent)


# ------------------------------------------------------------------ measurements and scores


def accept_counted(
    models: Sequence[Mapping[Split, Mapping[str, T]]],
    enrolled: Rows,
    what: str,
    faults_of: Callable[[Mapping[str, T], Mapping[str, np.ndarray]], Mapping[str, str]],
) -> tuple[tuple[Mapping[Split, Mapping[str, T]], ...], dict[str, str]]:
    """Return what can be believed of clients' counts, and why the others' cannot.

    Parameters
    ----------
    models : sequence of mapping
        For each model, each split's measurements or scores by client.
    enrolled : mapping
        Counts must equal these, for the splits and clients it has.
    what : str
        What reasons call a client's counts.
    faults_of : callable
        Given those of a split and their enrolled rows, why some clients' cannot be true.
    """
    refused: dict[str, str] = {}
    for splits in models:
        for split, clients in splits.items():
            for name, fault in faults_of(clients, enrolled.get(split, {})).items():
                refused.setdefault(name, f"its {what} of {split} rows: {fault}")
    accepted = tuple(
        {split: _without(clients, refused) for split, clients in splits.items()}
        for splits in models
    )
    return accepted, refused


def score_faults(
    clients: Mapping[str, ScoreSums], enrolled: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """Return why the scores of clients cannot be true, where they cannot."""
    faults = {}
    for name, scores in clients.items():
        if not np.array_equal(scores.counts, enrolled.get(name, scores.counts)):
            faults[name] = "its histogram does not hold the rows it was enrolled with"
        elif (scores.losses > LARGEST_LOSS * np.maximum(scores.counts, 1)).any():
            faults[name] = f"its mean loss is above {LARGEST_LOSS:g}"
    return faults


def _without(clients: Mapping[str, T], refused: Collection[str]) -> dict[str, T]:
    return {name: value for name, value in clients.items() if name not in refused}


def measurement_faults(
    clients: Mapping[str, Statistics], enrolled: Mapping[str, np.ndarray], *, at_half: bool
) -> dict[str, str]:
    """Return why the sums of clients cannot be true, where they cannot.

    All clients are checked at once: they may be thousands, and every check is of single
    (cell, label) pairs.

    Parameters
    ----------
    at_half : bool
        Whether decisions were made at score ½: a wrong one then has a loss of at least ln 2.
    """
    if not clients:
        return {}
    names, faults = list(clients), dict[str, str]()
    rows = np.array([enrolled.get(name, sums.counts) for name, sums in clients.items()])
    tables = Statistics.tables(clients.values())
    joined = Statistics(**{key: table.reshape(-1, 2) for key, table in tables.items()})
    with np.errstate(invalid="ignore", over="ignore"):  # numbers may be anything
        checks = _checks(joined, rows.reshape(-1, 2), at_half)
    for wrong, reason in checks:
        for client in np.flatnonzero(wrong.reshape(len(names), -1).any(axis=1)).tolist():
            faults.setdefault(names[client], reason)
    return faults


def _checks(sums: Statistics, rows: Floats, at_half: bool) -> list[tuple[NDArray[np.bool_], str]]:
    """Return what must not be, (cells, 2) each, with its reason; the first that is counts."""
    n, slack = sums.counts, _SLACK * sums.counts
    finite = np.all([np.isfinite(getattr(sums, name)) for name in SUMS], axis=0)
    least = _least_losses(sums, at_half) - 1e-4 * n - slack
    return [
        (~finite, "a number is not finite"),
        (n != rows, _OTHER_COUNTS),
        (n < 0, "a count is negative"),
        *(
            ((value < -slack) | (value > n + slack), f"its {name} are below 0 or above its counts")
            for name, value in (("positives", sums.positives), ("scores", sums.scores))
        ),
        (sums.losses > LARGEST_LOSS * n + slack, f"its mean loss is above {LARGEST_LOSS:g}"),
        (sums.losses < least, "its loss is lower than its scores and decisions allow"),
    ]


def _least_losses(sums: Statistics, at_half: bool) -> Floats:
    """Return the least losses that these scores and decisions can have, per (cell, label).

    −ln is convex, so n rows whose probabilities of their own label have mean p lose at least
    −n ln p (Jensen); and a row that is decided wrongly at ½ loses at least ln 2.
    """
    n = np.maximum(sums.counts, 1.0)
    right = np.stack([1 - sums.scores[:, 0] / n[:, 0], sums.scores[:, 1] / n[:, 1]], axis=1)
    least = -sums.counts * np.log(np.clip(right + _LEAST_SHARE, _LEAST_SHARE, 1.0))
    if at_half:
        negatives = sums.counts[:, 1] - sums.positives[:, 1]
        wrong = np.stack([sums.positives[:, 0], negatives], axis=1)
        least = np.maximum(least, wrong * np.log(2))
    return np.asarray(least)


# ------------------------------------------------------------------ reports


def accept_reports(
    reports: Sequence[Report], jobs: Sequence[Job], setup: Setup, longest: Mapping[str, float]
) -> tuple[list[Report], dict[str, str], dict[str, float]]:
    """Return sound reports by client name, why others are set aside, and the new `longest`.

    A client counts once: of several reports the first sound one is taken.

    Parameters
    ----------
    longest : mapping of str to float
        The largest median norm of updates and control changes in earlier rounds.
    """
    asked = {job.client: job for job in jobs if job.send}
    accepted: dict[str, Report] = {}
    faults: dict[str, str] = {}
    for report in sorted(reports, key=lambda report: report.client):
        job = asked.get(report.client)
        fault = _report_fault(report, job, setup) if job else "it was not asked to train"
        if fault:
            faults.setdefault(report.client, fault)
        else:
            accepted.setdefault(report.client, report)
    too_long, longest = _too_long(accepted, asked, setup, longest)
    accepted, faults = _without(accepted, too_long), faults | too_long
    refused = {
        client: faults.get(client, "it sent no report")
        for client in sorted({*asked, *faults} - set(accepted))
    }
    return list(accepted.values()), refused, longest


def _report_fault(report: Report, job: Job, setup: Setup) -> str:
    """Return why a report cannot be used; empty if it can."""
    for name, vector in report.vectors.items():
        if not np.isfinite(vector).all():
            return f"its {name} holds a number that is not finite"
    steps, lr = job.plan.steps(setup.summary.rows(job.client)), job.plan.optimizer.lr
    if (report.steps, report.lr) != (steps, lr):
        return (
            f"it reports {report.steps} steps at rate {report.lr:g}; it was asked for {steps} "
            f"at {lr:g}"
        )
    return _multiplier_fault(report, job.plan, setup.summary.attributes)


def _multiplier_fault(report: Report, plan: Plan, attributes: Sequence[Attribute]) -> str:
    """Return why multipliers or gaps cannot be what the agreed controller ended in."""
    controller = plan.controller
    if controller is None or controller.slot is not None:
        unasked = report.multipliers or report.gaps
        return "it sends multipliers that were not asked for" if unasked else ""
    for name in ("multipliers", "gaps"):
        numbers = np.array(getattr(report, name))
        if numbers.shape != (len(controller.multipliers),):
            return f"it sends {numbers.size} {name}; {len(controller.multipliers)} were asked for"
    widest, most = _reach(controller, plan.epochs, attributes)
    if not (np.abs(report.gaps) <= widest + _SLACK).all():  # nan is not, either
        return "a gap is larger than rates can differ"
    if not (np.abs(report.multipliers) <= most + _SLACK).all():
        return "a multiplier is larger than its steps and its price allow"
    return ""


def _reach(
    controller: Controller, epochs: int, attributes: Sequence[Attribute]
) -> tuple[Floats, Floats]:
    """Return how large the gaps and the multipliers of a controller can be after a job."""
    constraints = controller.goal.constraints(attributes)
    losses = any(notion.statistic == "loss" for notion in constraints.notions)
    apart = 2 * LARGEST_LOSS if losses else 2.0  # two differences of rates
    widest = apart + np.abs(controller.offset or np.zeros(len(constraints)))
    start, step = np.abs(controller.multipliers), np.abs(controller.step)
    most = start + epochs // controller.every * step * widest
    if controller.counts is not None:
        limits = constraints.limits(np.array(controller.counts), controller.prices.cap)
        most = np.minimum(most, np.maximum(limits, start))
    return widest, np.asarray(most)


def _too_long(
    reports: Mapping[str, Report],
    jobs: Mapping[str, Job],
    setup: Setup,
    longest: Mapping[str, float],
) -> tuple[dict[str, str], dict[str, float]]:
    """Return whose vectors are far longer than the others', for the steps they took.

    The bound follows honest clients: `LONGEST` times the lower median of this round's norms or
    of an earlier round's, whichever is larger, more for clients that took more steps. It is there
    to stop what no training gives; a robust rule decides about the rest.
    """
    wrong: dict[str, str] = {}
    longest = dict(longest)
    for name in ("update", "control change"):
        vectors = {c: r.vectors[name] for c, r in reports.items() if name in r.vectors}
        norms = {client: float(np.linalg.norm(v.astype(float))) for client, v in vectors.items()}
        if len(norms) > 1:  # a lone client is held against earlier rounds only
            longest[name] = max(longest.get(name, 0.0), lower_median([*norms.values()]))
        for client, norm in norms.items():
            plan = jobs[client].plan
            steps = plan.steps(setup.summary.rows(client)) / plan.steps(setup.usual_rows)
            bound = LONGEST * longest.get(name, 0.0) * max(1.0, steps)
            if norm > bound > 0:
                wrong[client] = f"its {name} has length {norm:.3g}; {bound:.3g} is the longest"
    return wrong, longest
