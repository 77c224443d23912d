"""Requests and answers as one JSON text and named arrays: what server and clients exchange.

No code is sent, and nothing is trusted: the receiver knows how many weights the model and how many
cells the task has, and refuses anything that does not fit, in one line. How the parts of a
`Packet` are carried is up to the transport.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mfairfl.data import Split
from mfairfl.data.sums import MOST_ROWS
from mfairfl.engine.state import Answer, Ask, Measure, Measures, Score, Train
from mfairfl.errors import MessageError, MfairflError, first_problem
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import CALIBRATION_BINS, LOGIT_BINS, ScoreSums
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.strict_json import JsonLimits, parse_json
from mfairfl.training.plan import Job, Report

VERSION = 5
Arrays = Mapping[str, np.ndarray]
_SAME_VERSION = "install the same mfairfl on server and clients"
_MOST = 4096  # models, jobs or members in one message; no honest request has more
_REQUESTS = JsonLimits(characters=1 << 26, values=1 << 20)
_KIND = 40  # characters

_PLAIN = JsonLimits(characters=1024, values=64)  # an answer that says nothing but its kind


@dataclass(frozen=True, slots=True)
class Packet:
    """One message: a JSON text and named arrays."""

    text: str
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Shape:
    """What both sides know: the number of weights of the model, and of cells of the task."""

    weights: int
    cells: int


def pack_ask(ask: Ask, client: str) -> Packet:
    """Return a request as a message to one client."""
    if isinstance(ask, Measure):
        arrays = {f"model/{i}": weights for i, weights in enumerate(ask.weights)}
        arrays |= {} if ask.shares is None else {"shares": ask.shares}
        rule = None if ask.thresholds is None else ask.thresholds.to_json()
        header = {"splits": ask.splits, "slot": ask.slot, "thresholds": rule}
        return make_packet("measure", header | {"models": len(ask.weights)}, arrays)
    if isinstance(ask, Score):
        arrays = {"model/0": ask.weights}
        arrays |= {} if ask.shares is None else {"shares": ask.shares}
        said = {"splits": ask.splits, "slot": ask.slot, "drawn": ask.drawn}
        return make_packet("score", said, arrays)
    jobs = [job for job in ask.jobs if job.client == client]
    arrays = {"server": ask.weights[client]}
    plain = []
    for i, job in enumerate(jobs):
        if job.plan.linear is not None:
            arrays[f"linear/{i}"] = job.plan.linear
        plain.append(asdict(replace(job, plan=replace(job.plan, linear=None))))
    return make_packet("train", {"round": ask.round, "jobs": plain}, arrays)


def unpack_ask(packet: Packet, client: str, shape: Shape) -> Ask:
    """Return the request that a message to this client holds."""
    kind, header = read_header(packet)
    try:
        if kind == "measure":
            return _MeasureHeader.model_validate(header).ask(packet.arrays, shape)
        if kind == "score":
            return _ScoreHeader.model_validate(header).ask(packet.arrays, shape)
        if kind == "train":
            return _TrainHeader.model_validate(header).ask(packet.arrays, client, shape)
    except ValidationError as error:
        raise MessageError(f"a '{kind}' message: {first_problem(error)}") from None
    raise MessageError(f"a message of unknown kind '{kind}'; {_SAME_VERSION}")


def pack_answer(answer: Answer) -> Packet:
    """Return a client's answer as a message."""
    arrays: dict[str, np.ndarray] = {}
    if isinstance(answer, dict):
        for split, scores in answer.items():
            arrays[f"{split}/histogram"] = scores.histogram.counts
            arrays |= {f"{split}/{name}": getattr(scores, name) for name in _SCORE_ARRAYS}
        return make_packet("scores", {}, arrays)
    if isinstance(answer, tuple):
        for i, measured in enumerate(answer):
            for split, sums in measured.items():
                arrays[f"{i}/{split}"] = np.stack([getattr(sums, name) for name in SUMS])
        return make_packet("sums", {"models": len(answer)}, arrays)
    plain = []
    for i, report in enumerate(answer):
        arrays[f"update/{i}"] = report.update
        if report.control_change is not None:
            arrays[f"control/{i}"] = report.control_change
        said = asdict(replace(report, update=np.zeros(0), control_change=None))
        plain.append({k: v for k, v in said.items() if k not in ("update", "control_change")})
    return make_packet("reports", {"reports": plain}, arrays)


def unpack_answer(packet: Packet, ask: Ask, client: str, shape: Shape) -> Answer:
    """Return the answer that a client's message holds.

    It holds exactly the arrays that were asked for, of their types and shapes.
    """
    try:
        if isinstance(ask, Measure):
            return _measures(packet, ask, shape)
        if isinstance(ask, Score):
            return _scored(packet, ask, shape)
        return _reports(packet, [job for job in ask.jobs if job.client == client], client, shape)
    except ValidationError as error:
        raise MessageError(f"'{client}': {first_problem(error)}") from None
    except MfairflError as error:
        raise MessageError(f"'{client}': {error}") from None


# ------------------------------------------------------------------ parts


def make_packet(kind: str, header: Mapping[str, Any], arrays: Arrays | None = None) -> Packet:
    """Return a message of this kind."""
    text = json.dumps({"version": VERSION, "kind": kind, **header}, allow_nan=False)
    named = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    return Packet(text, named)


def read_header(packet: Packet, limits: JsonLimits = _REQUESTS) -> tuple[str, dict[str, Any]]:
    """Return a message's kind and its parsed text; other formats are refused."""
    try:
        header = parse_json(packet.text, limits)
    except ValueError as error:
        raise MessageError(f"{error}; {_SAME_VERSION}") from None
    version = header.get("version") if isinstance(header, dict) else None
    if not isinstance(header, dict) or version != VERSION:
        said = version if isinstance(version, int) else None
        raise MessageError(
            f"a message of format {said}, this mfairfl reads {VERSION}; {_SAME_VERSION}"
        )
    kind = header.get("kind")
    if not isinstance(kind, str) or len(kind) > _KIND:
        raise MessageError(f"a message without a kind; {_SAME_VERSION}")
    return kind, header


def expect_answer(packet: Packet, kind: str, limits: JsonLimits = _PLAIN) -> dict[str, Any]:
    """Return what the text of an answer says beside its kind, which must be this one."""
    found, header = read_header(packet, limits)
    if found != kind:
        raise MessageError(f"it answered with '{found}'; '{kind}' was asked for")
    return {key: value for key, value in header.items() if key not in ("version", "kind")}


class ArrayForm(NamedTuple):
    """Type and shape of an array that is asked for."""

    dtype: type[np.generic]
    shape: tuple[int, ...]


def require_arrays(arrays: Arrays, wanted: Mapping[str, ArrayForm]) -> None:
    """Refuse an answer that has other arrays than these; no number of them is looked at.

    Examples
    --------
    >>> require_arrays({"a": np.zeros(2)}, {"a": ArrayForm(np.float64, (2,))})
    """
    for name, form in wanted.items():
        _form(arrays, name, form)
    if len(arrays) > len(wanted):
        extra = next(name for name in arrays if name not in wanted)
        raise MessageError(f"the array '{extra}' was not asked for")


def _form(arrays: Arrays, name: str, form: ArrayForm) -> np.ndarray:
    found = _array(arrays, name)
    if found.shape != form.shape or found.dtype != form.dtype:
        wanted = f"{np.dtype(form.dtype)} {form.shape}"
        raise MessageError(f"'{name}' is {found.dtype} {found.shape}; expected {wanted}")
    return found


class _MeasureHeader(BaseModel):
    models: int = Field(ge=1, le=_MOST, strict=True)
    splits: tuple[Split, ...]
    slot: str | None
    thresholds: dict[str, Any] | None

    def ask(self, arrays: Arrays, shape: Shape) -> Measure:
        models = tuple(_models(arrays, f"model/{i}", shape.weights) for i in range(self.models))
        shares = _shares(arrays, models[0])
        rule = None if self.thresholds is None else Thresholds.from_json(self.thresholds)
        return Measure(models, self.splits, shares, self.slot, rule)


class _ScoreHeader(BaseModel):
    splits: tuple[Split, ...]
    slot: str | None
    drawn: bool = Field(strict=True)

    def ask(self, arrays: Arrays, shape: Shape) -> Score:
        weights = _models(arrays, "model/0", shape.weights)
        return Score(weights, self.splits, _shares(arrays, weights), self.slot, self.drawn)


class _TrainHeader(BaseModel):
    round: int = Field(ge=0, strict=True)
    jobs: list[Job] = Field(max_length=_MOST)

    def ask(self, arrays: Arrays, client: str, shape: Shape) -> Train:
        jobs = []
        for i, job in enumerate(self.jobs):
            if job.client != client:
                raise MessageError(f"a job for '{job.client}' reached '{client}'")
            for table in filter(None, (job.plan.loss_table, job.plan.score_table)):
                if len(table) != shape.cells:
                    raise MessageError(
                        f"a table of {len(table)} cells; the task has {shape.cells}"
                    )
            name = f"linear/{i}"
            linear = _vector(arrays, name, shape.weights) if name in arrays else None
            jobs.append(replace(job, plan=replace(job.plan, linear=linear)))
        weights = {client: _vector(arrays, "server", shape.weights)}
        return Train(self.round, weights, tuple(jobs))


# ------------------------------------------------------------------ answers


class _ModelsHeader(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    models: int


def _measures(packet: Packet, ask: Measure, shape: Shape) -> Measures:
    said = _ModelsHeader.model_validate(expect_answer(packet, "sums"))
    if said.models != len(ask.weights):
        raise MessageError(f"sums of {said.models} models; {len(ask.weights)} were asked for")
    form = ArrayForm(np.float64, (len(SUMS), shape.cells, 2))
    names = [f"{i}/{split}" for i in range(len(ask.weights)) for split in ask.splits]
    require_arrays(packet.arrays, dict.fromkeys(names, form))
    return tuple(
        {
            split: check_statistics(packet.arrays[f"{i}/{split}"], f"'{i}/{split}'")
            for split in ask.splits
        }
        for i in range(len(ask.weights))
    )


def _scored(packet: Packet, ask: Score, shape: Shape) -> dict[Split, ScoreSums]:
    if expect_answer(packet, "scores"):
        raise MessageError("scores with a text; only arrays were asked for")
    cells = shape.cells
    bins = (cells, 2, CALIBRATION_BINS)
    forms = {
        "histogram": ArrayForm(np.int64, (cells, 2, LOGIT_BINS)),
        "rows": ArrayForm(np.int64, bins),
        "sums": ArrayForm(np.float64, bins),
        "losses": ArrayForm(np.float64, (cells, 2)),
    }
    wanted = {f"{split}/{name}": form for split in ask.splits for name, form in forms.items()}
    require_arrays(packet.arrays, wanted)
    return {split: _scores(packet.arrays, split) for split in ask.splits}


_SCORE_ARRAYS = ("rows", "sums", "losses")  # of `ScoreSums`, beside its histogram


def _scores(arrays: Arrays, split: str) -> ScoreSums:
    counts = arrays[f"{split}/histogram"]
    # A sum of huge counts may come out right: each one is looked at, and the sum as a float.
    if not ((counts >= 0) & (counts <= MOST_ROWS)).all() or counts.sum(dtype=float) > MOST_ROWS:
        raise MessageError(f"'{split}/histogram' holds a negative count or too many rows")
    rest = (arrays[f"{split}/{name}"] for name in _SCORE_ARRAYS)
    return ScoreSums(ScoreHistogram(counts), *rest)


_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Numbers = Annotated[list[_Finite], Field(max_length=_MOST)]


class _ReportHeader(BaseModel):
    """What a report says beside its vectors."""

    model_config = ConfigDict(extra="forbid", strict=True)

    client: str
    steps: int = Field(ge=0, le=MOST_ROWS)
    lr: _Finite
    multipliers: _Numbers
    gaps: _Numbers


class _ReportsHeader(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    reports: list[_ReportHeader] = Field(max_length=_MOST)


def _reports(packet: Packet, jobs: list[Job], client: str, shape: Shape) -> list[Report]:
    """Read one report for each job whose outcome is sent, in their order."""
    sending = [job for job in jobs if job.send]
    header = expect_answer(packet, "reports", _report_limits(sending, client))
    said = _ReportsHeader.model_validate(header).reports
    if len(said) != len(sending):
        raise MessageError(f"{len(said)} reports; {len(sending)} were asked for")
    vector = ArrayForm(np.float32, (shape.weights,))
    wanted = {f"update/{i}": vector for i in range(len(sending))}
    moves = {i for i, job in enumerate(sending) if job.keep_control is not None}
    require_arrays(packet.arrays, wanted | {f"control/{i}": vector for i in moves})
    found = []
    for i, (one, job) in enumerate(zip(said, sending, strict=True)):
        if one.client != client:
            raise MessageError(f"it reports as '{one.client}'")
        if one.lr != job.plan.optimizer.lr:
            raise MessageError(f"a rate of {one.lr:g}; {job.plan.optimizer.lr:g} was asked for")
        # The loop handles vectors that are not finite: it sets the client aside by name.
        found.append(
            Report(
                client=client,
                update=packet.arrays[f"update/{i}"],
                steps=one.steps,
                lr=one.lr,
                multipliers=tuple(one.multipliers),
                gaps=tuple(one.gaps),
                control_change=packet.arrays[f"control/{i}"] if i in moves else None,
            )
        )
    return found


def _report_limits(jobs: list[Job], client: str) -> JsonLimits:
    """Return how long the text of honest reports can be, and as much again."""
    numbers = sum(2 * len(job.plan.controller.multipliers) for job in jobs if job.plan.controller)
    written = 6 * len(client)  # a character may be written as \uXXXX
    characters = 200 + len(jobs) * (200 + written) + 30 * numbers
    return JsonLimits(2 * characters, 2 * (10 + 10 * len(jobs) + numbers))


def check_statistics(table: np.ndarray, name: str) -> Statistics:
    """Return the sums and counts in a table (4, cells, 2); what cannot be true is refused."""
    if not np.isfinite(table).all():  # one would spoil the sums over all clients
        raise MessageError(f"{name} holds a number that is not finite")
    counts, positives = table[0], table[1]
    whole = (counts == np.floor(counts)) & (counts <= MOST_ROWS)
    if not (whole & (positives >= 0) & (positives <= counts)).all():
        raise MessageError(f"{name} holds impossible counts")
    return Statistics(**dict(zip(SUMS, table, strict=True)))


def _array(arrays: Arrays, name: str) -> np.ndarray:
    if name not in arrays:
        raise MessageError(f"the array '{name}' is missing")
    return arrays[name]


def _vector(
    arrays: Arrays, name: str, size: int, dtype: type[np.generic] = np.float32
) -> np.ndarray:
    found = _form(arrays, name, ArrayForm(dtype, (size,)))
    if not np.isfinite(found).all():
        raise MessageError(f"'{name}' holds a number that is not finite")
    return found


def _shares(arrays: Arrays, models: np.ndarray) -> np.ndarray | None:
    """Return how much each of several models counts, if that was said."""
    if "shares" not in arrays:
        return None
    return _vector(arrays, "shares", len(np.atleast_2d(models)), np.float64)


def _models(arrays: Arrays, name: str, size: int) -> np.ndarray:
    """Return one model, or an ensemble's members as rows."""
    found = _array(arrays, name)
    if found.ndim == 2 and found.shape[1] == size and 0 < len(found) <= _MOST:
        _vector({name: found.reshape(-1)}, name, found.size)
        return found
    return _vector(arrays, name, size)
