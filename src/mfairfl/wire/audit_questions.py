"""What silos are asked for an audit.

``audit-groups`` asks which groups a file holds; a silo names those with enough rows. ``audit``
asks for counts over the agreed groups, of its own predictions or of a model that is sent along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from mfairfl.data import MISSING, Attribute, Encoder, Task
from mfairfl.data.agreement import MOST_CELLS
from mfairfl.data.columns import MOST_GROUPS
from mfairfl.data.predictions import PredictionColumns
from mfairfl.data.values import StrictModel
from mfairfl.engine.output import Served
from mfairfl.errors import MessageError
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.wire.codec import ArrayForm, Packet, make_packet, read_header, require_arrays
from mfairfl.wire.enrolment_answers import ModelTerms

_MOST_MEMBERS = 4096

_Value = Annotated[str, Field(strict=True, min_length=1, max_length=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentModel:
    """A model that silos apply to their rows.

    Parameters
    ----------
    task, encoder
        How rows are read and encoded, as in training.
    terms : ModelTerms
        The kind of model.
    served : Served
        Its members and how they decide; not one of each client's own.
    audited : tuple of str
        Names of the sensitive attributes that are compared.
    """

    task: Task
    encoder: Encoder
    terms: ModelTerms
    served: Served
    audited: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The fingerprint of the weights."""
        return hashlib.sha256(np.ascontiguousarray(self.served.members).tobytes()).hexdigest()


AuditSubject = PredictionColumns | SentModel
"""Whose decisions are audited: those in each silo's file, or those of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAsk:
    """What is counted: by which groups, and on which grid of scores, if any.

    Parameters
    ----------
    subject : PredictionColumns or SentModel
        Whose decisions: those in a file, or those of a model.
    """

    subject: AuditSubject
    attributes: tuple[Attribute, ...]
    grid: ScoreGrid | None


def audited_attributes(model: SentModel) -> tuple[Attribute, ...]:
    """Return the attributes of a model's audit; rows in no group of the task are ``?``."""
    chosen = [s for s in model.task.sensitive if s.name in model.audited]
    return tuple(Attribute(s.name, s.with_unrecorded(()).levels or ()) for s in chosen)


class _GroupsAsk(StrictModel):
    columns: PredictionColumns


def pack_groups_ask(columns: PredictionColumns) -> Packet:
    """Return the question which groups a file holds."""
    return make_packet("audit-groups", {"columns": columns.model_dump(mode="json")})


def unpack_groups_ask(header: Mapping[str, Any]) -> PredictionColumns:
    """Return the columns that such a question is about."""
    return _GroupsAsk.model_validate(_said(header)).columns


class _AttributeHeader(StrictModel):
    name: _Value
    groups: Annotated[tuple[_Value, ...], Field(min_length=1, max_length=MOST_GROUPS + 1)]


class _ServedHeader(StrictModel):
    kind: Literal["single", "mixture", "ensemble"]
    members: Annotated[int, Field(strict=True, ge=1, le=_MOST_MEMBERS)]
    thresholds: dict[str, Any] | None


class _ColumnsAudit(StrictModel):
    columns: PredictionColumns
    attributes: Annotated[tuple[_AttributeHeader, ...], Field(min_length=1)]
    score_range: tuple[float, float] | None


class _ModelAudit(StrictModel):
    task: Task
    encoder: Annotated[str, Field(strict=True)]
    model: ModelTerms
    served: _ServedHeader
    audited: Annotated[tuple[_Value, ...], Field(min_length=1)]


def pack_audit(ask: AuditAsk) -> Packet:
    """Return the question for counts."""
    subject = ask.subject
    if isinstance(subject, PredictionColumns):
        named = [{"name": a.name, "groups": list(a.groups)} for a in ask.attributes]
        limits = None if ask.grid is None else [ask.grid.lowest, ask.grid.highest]
        plain = {"columns": subject.model_dump(mode="json"), "attributes": named}
        return make_packet("audit", plain | {"score_range": limits})
    served = subject.served
    rule = None if served.thresholds is None else served.thresholds.to_json()
    header = {
        "task": subject.task.model_dump(mode="json"),
        "encoder": subject.encoder.to_json(),
        "model": {"kind": subject.terms.kind, "hidden": list(subject.terms.hidden)},
        "served": {"kind": served.kind, "members": len(served.members), "thresholds": rule},
        "audited": list(subject.audited),
    }
    return make_packet(
        "audit", header, {"members": served.members, "weights": np.asarray(served.weights)}
    )


def unpack_audit(packet: Packet) -> AuditAsk:
    """Return the question that a message holds; the number of weights is not looked at yet."""
    header = _said(read_header(packet)[1])
    if "columns" in header:
        require_arrays(packet.arrays, {})
        said = _ColumnsAudit.model_validate(header)
        attributes = tuple(Attribute(one.name, one.groups) for one in said.attributes)
        _check_attributes(attributes, said.columns)
        grid = None if said.score_range is None else ScoreGrid(*said.score_range)
        if (grid is None) != (said.columns.score is None):
            raise MessageError("a range of scores and a column of scores belong together")
        return AuditAsk(subject=said.columns, attributes=attributes, grid=grid)
    found = _ModelAudit.model_validate(header)
    model = SentModel(
        task=found.task,
        encoder=Encoder.from_json(found.encoder, name="the encoder of the audit"),
        terms=found.model,
        served=_served(packet, found.served),
        audited=found.audited,
    )
    if not model.task.resolved:
        raise MessageError("the task of the model leaves columns, groups or labels open")
    known = {s.name for s in model.task.sensitive}
    if not set(model.audited) <= known:
        raise MessageError(f"the audit is about {list(model.audited)}; the task has {known}")
    attributes = audited_attributes(model)
    _check_cells(attributes)
    return AuditAsk(subject=model, attributes=attributes, grid=ScoreGrid())


def _said(header: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key not in ("version", "kind")}


def _check_attributes(attributes: Sequence[Attribute], columns: PredictionColumns) -> None:
    if tuple(a.name for a in attributes) != columns.sensitive:
        raise MessageError("the groups are not those of the sensitive columns")
    for attribute in attributes:
        if attribute.groups[-1] != MISSING or len(set(attribute.groups)) < attribute.size:
            raise MessageError(f"the groups of '{attribute.name}' do not end with '?', or repeat")
    _check_cells(attributes)


def _check_cells(attributes: Sequence[Attribute]) -> None:
    if (cells := Cells(tuple(attributes)).size) > MOST_CELLS:
        raise MessageError(f"{cells:,} combinations of groups; at most {MOST_CELLS:,} are counted")


def _served(packet: Packet, said: _ServedHeader) -> Served:
    members = packet.arrays.get("members")
    size = members.shape[-1] if members is not None and members.ndim == 2 else 0
    form = ArrayForm(np.float32, (said.members, size))
    shares = ArrayForm(np.float64, (said.members,))
    require_arrays(packet.arrays, {"members": form, "weights": shares})
    if not all(np.isfinite(array).all() for array in packet.arrays.values()):
        raise MessageError("the model holds a number that is not finite")
    if said.kind == "single" and said.members != 1:
        raise MessageError(f"a single model of {said.members} members")
    if said.thresholds is not None and said.kind != "single":
        raise MessageError(f"thresholds of a '{said.kind}'")
    rule = None if said.thresholds is None else Thresholds.from_json(said.thresholds)
    return Served(
        kind=said.kind,
        members=packet.arrays["members"],
        weights=packet.arrays["weights"],
        names=("",) * said.members,
        thresholds=rule,
    )
