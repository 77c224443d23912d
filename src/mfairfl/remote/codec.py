"""Requests and answers as one JSON text and named arrays: what server and clients exchange.

No code is sent, and nothing is trusted: the receiver knows how many weights the model and how many
cells the task has, and refuses anything that does not fit, in one line. How the parts of a
`Packet` are carried is up to the transport.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from mfairfl.data import Split
from mfairfl.engine.state import Answer, Ask, Measure, Score, Train
from mfairfl.errors import MessageError, MfairflError, first_problem
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import ScoreSums
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.training.plan import Job, Report

__all__ = [
    "Packet",
    "Shape",
    "check_statistics",
    "make_packet",
    "pack_answer",
    "pack_ask",
    "read_header",
    "unpack_answer",
    "unpack_ask",
]

VERSION = 3
Arrays = Mapping[str, np.ndarray]
_SAME_VERSION = "install the same mfairfl on server and clients"
_MOST = 4096  # models, jobs or members in one message; no honest request has more


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
    """Return the answer that a client's message holds."""
    kind, header = read_header(packet)
    expected = {Measure: "sums", Score: "scores", Train: "reports"}[type(ask)]
    if kind != expected:
        raise MessageError(f"'{client}' answered with '{kind}'; '{expected}' was asked for")
    try:
        if isinstance(ask, Measure):
            return tuple(
                {
                    split: check_statistics(
                        _array(packet.arrays, f"{i}/{split}"), shape.cells, f"'{i}/{split}'"
                    )
                    for split in ask.splits
                }
                for i in range(len(ask.weights))
            )
        if isinstance(ask, Score):
            return {split: _scores(packet.arrays, split, shape.cells) for split in ask.splits}
        return _ReportsHeader.model_validate(header).answer(packet.arrays, client, shape)
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


def read_header(packet: Packet) -> tuple[str, dict[str, Any]]:
    """Return a message's kind and its parsed text; other formats are refused."""
    try:
        header = json.loads(packet.text)
    except (ValueError, RecursionError):
        raise MessageError(f"a message whose text is not JSON; {_SAME_VERSION}") from None
    if not isinstance(header, dict) or header.get("version") != VERSION:
        version = header.get("version") if isinstance(header, dict) else None
        raise MessageError(
            f"a message of format {version}, this mfairfl reads {VERSION}; {_SAME_VERSION}"
        )
    return str(header.get("kind")), header


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


class _ReportsHeader(BaseModel):
    reports: list[dict[str, Any]] = Field(max_length=_MOST)

    def answer(self, arrays: Arrays, client: str, shape: Shape) -> list[Report]:
        found = []
        for i, plain in enumerate(self.reports):
            # The loop handles numbers that are not finite: it sets the client aside by name.
            vectors = {"update": _vector(arrays, f"update/{i}", shape.weights, finite=False)}
            if f"control/{i}" in arrays:
                change = _vector(arrays, f"control/{i}", shape.weights, finite=False)
                vectors["control_change"] = change
            report = _REPORT.validate_python(plain | vectors)
            if report.client != client:
                raise MessageError(f"it reports as '{report.client}'")
            found.append(report)
        return found


_SCORE_ARRAYS = ("rows", "sums", "losses")  # of `ScoreSums`, beside its histogram


def _scores(arrays: Arrays, split: str, cells: int) -> ScoreSums:
    histogram = ScoreHistogram(_array(arrays, f"{split}/histogram"))
    if len(histogram.counts) != cells:
        raise MessageError(f"a histogram of {len(histogram.counts)} cells, not {cells}")
    return ScoreSums(histogram, *(_array(arrays, f"{split}/{name}") for name in _SCORE_ARRAYS))


_REPORT = TypeAdapter(Report)  # once: building one takes milliseconds


def check_statistics(table: np.ndarray, cells: int, name: str) -> Statistics:
    """Return the sums and counts in a table (4, cells, 2); what cannot be true is refused."""
    expected = (len(SUMS), cells, 2)
    if table.shape != expected or table.dtype != np.float64:
        raise MessageError(f"{name} is {table.dtype} {table.shape}; expected float64 {expected}")
    if not np.isfinite(table).all():  # one would spoil the sums over all clients
        raise MessageError(f"{name} holds a number that is not finite")
    counts, positives = table[0], table[1]
    if not ((positives >= 0) & (positives <= counts)).all():
        raise MessageError(f"{name} holds impossible counts")
    return Statistics(**dict(zip(SUMS, table, strict=True)))


def _array(arrays: Arrays, name: str) -> np.ndarray:
    if name not in arrays:
        raise MessageError(f"the array '{name}' is missing")
    return arrays[name]


def _vector(
    arrays: Arrays,
    name: str,
    size: int,
    dtype: Any = np.float32,
    *,
    finite: bool = True,
) -> np.ndarray:
    found = _array(arrays, name)
    if found.shape != (size,) or found.dtype != dtype:
        wanted = f"{np.dtype(dtype)} ({size},)"
        raise MessageError(f"'{name}' is {found.dtype} {found.shape}; expected {wanted}")
    if finite and not np.isfinite(found).all():
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
