"""Messages of an audit: the groups that files hold, and counts of decisions over them.

``audit-groups`` asks which groups a file holds; a silo names those with enough rows. ``audit``
asks for counts over the agreed groups, of its own predictions or of a model that is sent along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mfairfl.data import MISSING, Attribute, Encoder, Task, canonical_text
from mfairfl.data.agreement import MOST_CELLS
from mfairfl.data.columns import MOST_GROUPS
from mfairfl.data.predictions import PredictionColumns
from mfairfl.data.sums import MOST_ROWS
from mfairfl.data.values import StrictModel
from mfairfl.engine.output import Served
from mfairfl.errors import MessageError, MfairflError
from mfairfl.fairness.audit_counts import AuditCounts, ScoreGrid
from mfairfl.fairness.cells import Cells
from mfairfl.strict_json import JsonLimits
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import Form, Message, Packet, RowChange, Sha256, SiloAnswer, UpTo, unpack
from mfairfl.wire.run_messages import COUNTED, MOST_MODELS, ScoreArrays, SentThresholds

_LARGEST_LOSS = 40.0  # of a row: a probability of 0 that fails loses 36

LONGEST_GROUP = 200
"""Characters of a group's name."""

_Name = Annotated[str, Field(strict=True, min_length=1, max_length=1000)]
_Group = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_GROUP)]
_Reason = Annotated[str, Field(strict=True, pattern="^no (decision|score)$")]
_Rows = Annotated[int, Field(strict=True, ge=1, le=MOST_ROWS)]


# ------------------------------------------------------------------ groups


class GroupsQuestion(Message):
    """Asks which groups the sensitive columns of a file hold."""

    kind = "audit-groups"

    columns: PredictionColumns


class GroupsAnswer(SiloAnswer):
    """Names of groups, by column."""

    kind = "groups"
    limits = JsonLimits(characters=1 << 20, values=1 << 13)

    # A name that one row more makes frequent enough, in each column.
    groups: Annotated[
        dict[str, Annotated[tuple[_Group, ...], Field(max_length=MOST_GROUPS)]], RowChange()
    ]


def read_groups(packet: Packet, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups that an answer names; names that no honest silo sends are refused."""
    groups = unpack(GroupsAnswer, packet).groups
    if set(groups) != set(columns):
        raise MessageError("it names groups of other columns than it was asked for")
    for column, names in groups.items():
        for group in names:
            if group != canonical_text(group) or group == MISSING or not group.isprintable():
                raise MessageError(f"a group {group[:60]!r} of '{column}' cannot be one")
        if len(set(names)) < len(names):
            raise MessageError(f"it names a group of '{column}' twice")
    return groups


# ------------------------------------------------------------------ the question for counts


class SentModel(StrictModel):
    """A model that silos apply to their rows.

    Parameters
    ----------
    task, encoder
        How rows are read and encoded, as in training.
    terms : ModelTerms
        The kind of model.
    combined : str
        How its members make one model.
    members : ndarray (R, m)
        Weight vectors.
    weights : ndarray (R,)
        Probabilities or shares of the members.
    thresholds : Thresholds, optional
        How scores become decisions.
    audited : tuple of str
        Names of the sensitive attributes that are compared.
    """

    task: Task
    encoder: Encoder
    terms: ModelTerms
    combined: Literal["single", "mixture", "ensemble"]
    members: Annotated[np.ndarray, Form(np.float32, (UpTo(1 << 40),), stack=MOST_MODELS)]
    weights: Annotated[np.ndarray, Form(np.float64, (UpTo(MOST_MODELS),))]
    thresholds: SentThresholds | None = None
    audited: Annotated[tuple[_Name, ...], Field(min_length=1)]

    @property
    def sha256(self) -> str:
        """The fingerprint of the weights."""
        return hashlib.sha256(np.ascontiguousarray(self.members).tobytes()).hexdigest()

    @property
    def served(self) -> Served:
        """The members and how they decide."""
        return Served(
            kind=self.combined,
            members=self.members,
            weights=self.weights,
            names=("",) * len(self.members),
            thresholds=self.thresholds,
        )

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of an audit of the model; rows in no group of the task are ``?``."""
        chosen = [s for s in self.task.sensitive if s.name in self.audited]
        return tuple(Attribute(s.name, s.with_unrecorded(()).levels or ()) for s in chosen)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.members.ndim != 2 or len(self.weights) != len(self.members):
            raise ValueError(f"{len(self.weights)} weights of members {self.members.shape}")
        if self.combined == "single" and len(self.members) != 1:
            raise ValueError(f"a single model of {len(self.members)} members")
        if self.thresholds is not None and self.combined != "single":
            raise ValueError(f"thresholds of a '{self.combined}'")
        if not self.task.resolved:
            raise ValueError("the task of the model leaves columns, groups or labels open")
        named = {s.name for s in self.task.sensitive}
        if not set(self.audited) <= named:
            raise ValueError(f"the audit is about {list(self.audited)}; the task has {named}")
        return self


AuditSubject = PredictionColumns | SentModel
"""Whose decisions are audited: those in each silo's file, or those of a model."""


class AuditQuestion(Message):
    """Asks for counts of decisions by group, and on a grid of scores, if there are any.

    Parameters
    ----------
    columns, model
        Whose decisions: those in each silo's file, or those of a model; one of the two.
    attributes : tuple of Attribute
        The groups that are counted.
    """

    kind = "audit"

    columns: PredictionColumns | None = None
    model: SentModel | None = None
    attributes: Annotated[tuple[Attribute, ...], Field(min_length=1)]
    grid: ScoreGrid | None

    @property
    def subject(self) -> AuditSubject:
        """Whose decisions are counted."""
        subject = self.columns or self.model
        if subject is None or (self.columns and self.model):
            raise MessageError("an audit is either about columns or about a model")
        return subject

    @property
    def cells(self) -> int:
        """The number of combinations of groups."""
        return Cells(self.attributes).size


def unpack_audit(packet: Packet) -> AuditQuestion:
    """Return the question that a packet holds; the number of weights is not looked at yet."""
    question = unpack(AuditQuestion, packet)
    subject, attributes = question.subject, question.attributes
    if isinstance(subject, SentModel):
        if (attributes, question.grid) != (subject.attributes, ScoreGrid()):
            raise MessageError("the groups and the grid are not those of the model")
    else:
        if tuple(a.name for a in attributes) != subject.sensitive:
            raise MessageError("the groups are not those of the sensitive columns")
        for a in attributes:
            if a.groups[-1:] != (MISSING,) or len(set(a.groups)) < a.size:
                raise MessageError(f"the groups of '{a.name}' do not end with '?', or repeat")
        if (question.grid is None) != (subject.score is None):
            raise MessageError("a range of scores and a column of scores belong together")
    if question.cells > MOST_CELLS:
        raise MessageError(
            f"{question.cells:,} combinations of groups; at most {MOST_CELLS:,} are counted"
        )
    return question


# ------------------------------------------------------------------ counts


class SiloFacts(StrictModel):
    """What a silo states about its counts.

    Parameters
    ----------
    floor : int
        The smallest number of rows of one group and label that it counts.
    sha256 : str
        Hash of its file.
    left_out : dict of str to int
        Rows that could not be counted, at most, by reason.
    """

    floor: _Rows
    sha256: Sha256
    left_out: dict[_Reason, _Rows]


_Scored = Annotated[np.ndarray, Form.whole("cells", 3, "bins")]


class AuditAnswer(SiloAnswer):
    """One client's counts without what is below its floor, and facts about them.

    Parameters
    ----------
    decided, hidden, withheld, scored, scores
        As in `AuditCounts`, of one client; `hidden` is 0 or 1.
    """

    kind = "audit"
    limits = JsonLimits(characters=4096, values=64)

    facts: Annotated[SiloFacts, RowChange()]
    decided: Annotated[np.ndarray, Form.whole("cells", 3, 2), COUNTED]
    hidden: Annotated[np.ndarray, Form.whole("cells", 3, most=1), RowChange(entries=0)]
    withheld: Annotated[np.ndarray, Form.whole(1), RowChange(entries=0)]
    scored: Annotated[_Scored | None, COUNTED] = None
    scores: ScoreArrays | None = None

    @classmethod
    def of(cls, counts: AuditCounts, facts: SiloFacts) -> Self:
        """Return the answer with one client's counts."""
        return cls(
            facts=facts,
            decided=counts.decided[0],
            hidden=counts.hidden[0].astype(np.int64),
            withheld=counts.withheld,
            scored=None if counts.scored is None else counts.scored[0],
            scores=None if counts.sums is None else ScoreArrays.of(counts.sums[0]),
        )


def read_audit(
    packet: Packet, name: str, question: AuditQuestion, *, most_rows: int | None = None
) -> tuple[AuditCounts, SiloFacts]:
    """Return what a silo's answer holds; what cannot be true is refused.

    Parameters
    ----------
    name : str
        The silo.
    most_rows : int, optional
        Rows that no silo has.
    """
    grid = question.grid
    bins = 0 if grid is None else len(grid.edges) + 1
    answer = unpack(AuditAnswer, packet, cells=question.cells, bins=bins)
    if (answer.scored is None) != (grid is None):
        raise MessageError("it does not count scores exactly if it was asked to")
    if (answer.scores is None) != (grid is None or not grid.probabilities):
        raise MessageError("it does not add up probabilities exactly if it was asked to")
    # A sum of huge counts may come out right as an integer: it is looked at as a float.
    most = MOST_ROWS if most_rows is None else min(most_rows, MOST_ROWS)
    if answer.decided.sum(dtype=float) + float(answer.withheld[0]) > most:
        raise MessageError(f"it claims more than {most:,} rows")
    if answer.scored is not None and answer.scored.sum(dtype=float) > most:
        raise MessageError(f"it claims scores of more than {most:,} rows")
    try:
        sums = None if answer.scores is None else answer.scores.score_sums()
        counts = AuditCounts(
            decided=answer.decided[None],
            clients=(name,),
            attributes=question.attributes,
            grid=grid,
            scored=None if answer.scored is None else answer.scored[None],
            sums=None if sums is None else (sums,),
            hidden=answer.hidden[None].astype(bool),
            withheld=answer.withheld,
        )
    except MfairflError as error:
        raise MessageError(str(error)) from None
    if sums is not None and (sums.losses > _LARGEST_LOSS * sums.counts).any():
        raise MessageError(f"its mean loss is above {_LARGEST_LOSS:g}")
    _check_floor(counts, answer.facts.floor)
    return counts, answer.facts


def _check_floor(counts: AuditCounts, floor: int) -> None:
    """Refuse counts that a floor does not leave, and an impossible number of withheld rows."""
    if ((counts.rows > 0) & (counts.rows < floor)).any():
        raise MessageError(f"it counts fewer than {floor} rows, which it says it never does")
    withheld, hidden = int(counts.withheld[0]), int(counts.hidden.sum())
    all_hidden = hidden == counts.hidden.size and withheld == floor - 1  # below the floor in all
    if hidden and withheld < max(hidden, floor) and not all_hidden:
        raise MessageError(f"it withholds {withheld} rows of {hidden} groups and labels")
    if withheld and not hidden:
        raise MessageError("it withholds rows, and says of no group that it does")
