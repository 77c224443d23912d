"""Messages of a run: measure, score or train, and what clients answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from mfairfl.data import Split
from mfairfl.data.sums import MOST_ROWS
from mfairfl.data.values import StrictModel
from mfairfl.engine.state import Answer, Ask, Measure, Measures, Score, Train
from mfairfl.errors import MessageError, MfairflError
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import CALIBRATION_BINS, LOGIT_BINS, ScoreSums
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.training.plan import Job, Report
from mfairfl.wire.packing import (
    NUMBERED,
    Form,
    Message,
    Packet,
    RowChange,
    SiloAnswer,
    UpTo,
    pack,
    require,
    unpack,
)

MOST_MODELS = 4096
"""Models, jobs or members in a message; no honest request has more."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What both sides know: the number of weights of the model, and of cells of the task."""

    weights: int
    cells: int


SentThresholds = Annotated[
    Thresholds,
    PlainValidator(lambda v: v if isinstance(v, Thresholds) else Thresholds.from_json(v)),
    PlainSerializer(Thresholds.to_json),
]
"""A rule of thresholds; plain values in a text."""

_Weights = Annotated[np.ndarray, Form(np.float32, ("weights",))]
_Models = Annotated[np.ndarray, Form(np.float32, ("weights",), stack=MOST_MODELS)]
_Shares = Annotated[np.ndarray, Form(np.float64, (UpTo(MOST_MODELS),))]


# ------------------------------------------------------------------ questions


class _ModelQuestion(Message):
    """Asks what clients' rows are like under some models.

    Parameters
    ----------
    model : tuple of ndarray
        One model each, (m,), or an ensemble's members as rows, (R, m).
    shares : ndarray (R,), optional
        How much each of the members counts.
    """

    model: tuple[_Models, ...]
    splits: tuple[Split, ...]
    shares: _Shares | None = None
    slot: str | None = None

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.shares is not None:
            shares, members = len(self.shares), len(np.atleast_2d(self.model[0]))
            require(shares == members, f"{shares} shares of {members} models")
        return self


class MeasureQuestion(_ModelQuestion):
    """Asks for sums and counts of models' decisions."""

    kind = "measure"

    model: Annotated[tuple[_Models, ...], Field(min_length=1, max_length=MOST_MODELS), NUMBERED]
    thresholds: SentThresholds | None = None


class ScoreQuestion(_ModelQuestion):
    """Asks for sums and counts of a model's scores."""

    kind = "score"

    model: Annotated[tuple[_Models, ...], Field(min_length=1, max_length=1), NUMBERED]
    drawn: bool = Field(strict=True)


class TrainQuestion(Message):
    """Asks a client to carry out jobs.

    Parameters
    ----------
    server : ndarray (m,)
        The weights to start from.
    linear : dict of str to ndarray (m,)
        The linear correction of jobs that have one, by the job's number.
    """

    kind = "train"

    round: int = Field(ge=0, strict=True)
    jobs: tuple[Job, ...] = Field(max_length=MOST_MODELS)
    server: _Weights
    linear: dict[str, _Weights] = Field(default_factory=dict)

    def addressed_to(self, client: str) -> Train:
        """Return what a client is asked; jobs of others are refused."""
        if odd := self.linear.keys() - {str(i) for i in range(len(self.jobs))}:
            raise MessageError(f"the array 'linear/{min(odd)}' was not asked for")
        if others := [job.client for job in self.jobs if job.client != client]:
            raise MessageError(f"a job for '{others[0]}' reached '{client}'")
        jobs = tuple(
            replace(job, plan=replace(job.plan, linear=self.linear.get(str(i))))
            for i, job in enumerate(self.jobs)
        )
        return Train(self.round, {client: self.server}, jobs)


def pack_ask(ask: Ask, client: str) -> Packet:
    """Return a request as a packet for one client."""
    if isinstance(ask, Train):
        jobs = [job for job in ask.jobs if job.client == client]
        plain = tuple(replace(job, plan=replace(job.plan, linear=None)) for job in jobs)
        linear = {
            str(i): job.plan.linear for i, job in enumerate(jobs) if job.plan.linear is not None
        }
        weights = ask.weights[client]
        return pack(TrainQuestion(round=ask.round, jobs=plain, server=weights, linear=linear))
    shared: dict[str, Any] = {"splits": ask.splits, "shares": ask.shares, "slot": ask.slot}
    if isinstance(ask, Measure):
        rule = None if ask.thresholds is None else ask.thresholds.of(client)
        return pack(MeasureQuestion(model=ask.weights, thresholds=rule, **shared))
    return pack(ScoreQuestion(model=(ask.weights,), drawn=ask.drawn, **shared))


def unpack_ask(packet: Packet, client: str, shape: Shape) -> Ask:
    """Return the request that a packet to this client holds."""
    kind = packet.request.kind
    if kind == "measure":
        m = unpack(MeasureQuestion, packet, weights=shape.weights)
        return Measure(m.model, m.splits, m.shares, m.slot, m.thresholds)
    if kind == "score":
        s = unpack(ScoreQuestion, packet, weights=shape.weights)
        return Score(s.model[0], s.splits, s.shares, s.slot, s.drawn)
    if kind == "train":
        return unpack(TrainQuestion, packet, weights=shape.weights).addressed_to(client)
    raise MessageError(f"a message of unknown kind '{kind}'")


# ------------------------------------------------------------------ answers


_SumsTable = Annotated[np.ndarray, Form(np.float64, (len(SUMS), "cells", 2))]


class MeasureAnswer(SiloAnswer):
    """Sums and counts over (cell, label), in the order of `SUMS`, for each model and split."""

    kind = "measured"

    # For each model a count, a decision and a score by 1 at most, and any loss.
    sums: Annotated[
        tuple[dict[Split, _SumsTable], ...], NUMBERED, RowChange(entries=len(SUMS), most=None)
    ]


_BINS = ("cells", 2, CALIBRATION_BINS)
COUNTED = RowChange(entries=1, most=1)  # as a row, or as a probability


class ScoreArrays(StrictModel):
    """The arrays of a `ScoreSums`."""

    histogram: Annotated[np.ndarray, Form.whole("cells", 2, LOGIT_BINS), COUNTED]
    rows: Annotated[np.ndarray, Form.whole(*_BINS), COUNTED]
    sums: Annotated[np.ndarray, Form(np.float64, _BINS, finite=False), COUNTED]
    losses: Annotated[
        np.ndarray, Form(np.float64, ("cells", 2), finite=False), RowChange(entries=1, most=None)
    ]

    @classmethod
    def of(cls, scores: ScoreSums) -> Self:
        """Return the arrays of sums and counts of scores."""
        return cls(
            histogram=scores.histogram.counts,
            rows=scores.rows,
            sums=scores.sums,
            losses=scores.losses,
        )

    def score_sums(self) -> ScoreSums:
        """Return the sums and counts; those that no rows can have are refused."""
        # A sum of huge counts may come out right as an integer: it is looked at as a float.
        rows = self.histogram.sum(dtype=float)
        require(rows <= MOST_ROWS, "'histogram' holds too many rows")
        return ScoreSums(ScoreHistogram(self.histogram), self.rows, self.sums, self.losses)


class ScoreAnswer(SiloAnswer):
    """Sums and counts of a model's scores, for each split."""

    kind = "scores"

    scores: dict[Split, ScoreArrays]


_Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Numbers = Annotated[tuple[_Finite, ...], Field(max_length=MOST_MODELS, strict=False)]


class _Outcome(StrictModel):
    """What a report says beside its vectors."""

    client: str = Field(strict=True)
    steps: int = Field(ge=0, le=MOST_ROWS, strict=True)
    lr: _Finite
    multipliers: _Numbers
    gaps: _Numbers


# The loop handles vectors that are not finite: it sets the client aside by name.
_Update = Annotated[np.ndarray, Form(np.float32, ("weights",), finite=False)]


class TrainAnswer(SiloAnswer):
    """Reports of the jobs whose outcome is sent.

    Parameters
    ----------
    update : tuple of ndarray (m,)
        Of each report.
    control : dict of str to ndarray (m,)
        The change of the control variate, by the report's number, of jobs that keep one.
    """

    kind = "reports"

    reports: Annotated[tuple[_Outcome, ...], Field(max_length=MOST_MODELS), RowChange()]
    update: Annotated[tuple[_Update, ...], NUMBERED, RowChange()] = ()
    control: Annotated[dict[str, _Update], RowChange()] = Field(default_factory=dict)


def _tables(measured: Mapping[Split, Statistics]) -> dict[Split, np.ndarray]:
    return {s: np.stack([getattr(sums, name) for name in SUMS]) for s, sums in measured.items()}


def answer_message(answer: Answer) -> SiloAnswer:
    """Return the message that says what a client answers."""
    if isinstance(answer, dict):
        return ScoreAnswer(scores={s: ScoreArrays.of(sums) for s, sums in answer.items()})
    if isinstance(answer, tuple):
        return MeasureAnswer(sums=tuple(_tables(measured) for measured in answer))
    return TrainAnswer(
        reports=tuple(_Outcome.model_validate(report, from_attributes=True) for report in answer),
        update=tuple(report.update for report in answer),
        control={
            str(i): report.control_change
            for i, report in enumerate(answer)
            if report.control_change is not None
        },
    )


def unpack_answer(packet: Packet, ask: Ask, client: str, shape: Shape) -> Answer:
    """Return the answer that a client's packet holds: exactly what was asked for."""
    try:
        if isinstance(ask, Measure):
            return _measures(unpack(MeasureAnswer, packet, cells=shape.cells), ask)
        if isinstance(ask, Score):
            scores = unpack(ScoreAnswer, packet, cells=shape.cells).scores
            _require_splits(scores, ask.splits)
            return {split: scores[split].score_sums() for split in ask.splits}
        jobs = [job for job in ask.jobs if job.client == client and job.send]
        return _reports(unpack(TrainAnswer, packet, weights=shape.weights), jobs, client)
    except MfairflError as error:
        raise MessageError(f"'{client}': {error}") from None


def check_statistics(table: np.ndarray, name: str) -> Statistics:
    """Return the sums and counts in a table (4, cells, 2); what cannot be true is refused."""
    # One would spoil the sums over all clients.
    require(np.isfinite(table).all(), f"{name} holds a number that is not finite")
    counts, positives = table[0], table[1]
    whole = (counts == np.floor(counts)) & (counts <= MOST_ROWS)
    possible = whole & (positives >= 0) & (positives <= counts)
    require(possible.all(), f"{name} holds impossible counts")
    return Statistics(**dict(zip(SUMS, table, strict=True)))


def _require_splits(answered: dict[Split, Any], splits: Sequence[Split]) -> None:
    asked = f"{sorted(splits)} were asked for"
    require(set(answered) == set(splits), f"it answered for {sorted(answered)}; {asked}")


def _measures(answer: MeasureAnswer, ask: Measure) -> Measures:
    models, asked = len(answer.sums), len(ask.weights)
    require(models == asked, f"sums of {models} models; {asked} were asked for")
    for tables in answer.sums:
        _require_splits(tables, ask.splits)
    return tuple(
        {split: check_statistics(tables[split], f"'sums/{i}/{split}'") for split in ask.splits}
        for i, tables in enumerate(answer.sums)
    )


def _reports(answer: TrainAnswer, jobs: Sequence[Job], client: str) -> list[Report]:
    """Return one report for each job whose outcome is sent, in their order."""
    reports, updates, asked = len(answer.reports), len(answer.update), len(jobs)
    complete = reports == updates == asked
    require(complete, f"{reports} reports with {updates} updates; {asked} were asked for")
    moves = {str(i) for i, job in enumerate(jobs) if job.keep_control is not None}
    if odd := moves ^ answer.control.keys():
        fault = "is missing" if min(odd) in moves else "was not asked for"
        raise MessageError(f"the array 'control/{min(odd)}' {fault}")
    for outcome, job in zip(answer.reports, jobs, strict=True):
        _check_outcome(outcome, job, client)
    return [
        Report(**dict(outcome), update=update, control_change=answer.control.get(str(i)))
        for i, (outcome, update) in enumerate(zip(answer.reports, answer.update, strict=True))
    ]


def _check_outcome(outcome: _Outcome, job: Job, client: str) -> None:
    """Refuse a report of another client, of another rate, or of more constraints."""
    rate, controller = job.plan.optimizer.lr, job.plan.controller
    require(outcome.client == client, f"it reports as '{outcome.client}'")
    require(outcome.lr == rate, f"a rate of {outcome.lr:g}; {rate:g} was asked for")
    most = 0 if controller is None else len(controller.multipliers)
    for name in ("multipliers", "gaps"):
        count = len(getattr(outcome, name))
        require(count <= most, f"{count} {name}; the job has {most}")
