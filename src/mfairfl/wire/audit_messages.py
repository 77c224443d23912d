"""Messages of an audit: the groups that files hold, and counts of decisions over them.

``audit-groups`` asks which groups a file holds; a silo names those with enough rows. ``audit``
asks for counts over the agreed groups, of its own predictions or of a model that is sent along.
"""

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
from mfairfl.wire.enrolment_messages import ModelTerms, check_floor
from mfairfl.wire.packing import (
    Form,
    Message,
    Packet,
    RowChange,
    Sha256,
    SiloAnswer,
    UpTo,
    require,
    unpack,
)
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

    # A name that one row more makes frequent enough, in each column.
    groups: Annotated[
        dict[str, Annotated[tuple[_Group, ...], Field(max_length=MOST_GROUPS)]], RowChange()
    ]


def read_groups(packet: Packet, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups that an answer names; names that no honest silo sends are refused."""
    groups = unpack(GroupsAnswer, packet).groups
    asked = set(groups) == set(columns)
    require(asked, "it names groups of other columns than it was asked for")
    for column, names in groups.items():
        for group in names:
            good = group == canonical_text(group) != MISSING and group.isprintable()
            require(good, f"a group {group[:60]!r} of '{column}' cannot be one")
        require(len(set(names)) == len(names), f"it names a group of '{column}' twice")
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
        return tuple(Attribute(s.name, s.with_unrecorded(()).levels) for s in chosen)

    @model_validator(mode="after")
    def _check(self) -> Self:
        members, single = self.members, self.combined == "single"
        shaped = members.ndim == 2 and len(self.weights) == len(members)
        require(shaped, f"{len(self.weights)} weights of members {members.shape}")
        require(not single or len(members) == 1, f"a single model of {len(members)} members")
        require(single or self.thresholds is None, f"thresholds of a '{self.combined}'")
        open_task = "the task of the model leaves columns, groups or labels open"
        require(self.task.resolved, open_task)
        named, audited = {s.name for s in self.task.sensitive}, list(self.audited)
        require(named >= set(audited), f"the audit is about {audited}; the task has {named}")
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        subject, attributes = self.subject, self.attributes
        if isinstance(subject, SentModel):
            same = (attributes, self.grid) == (subject.attributes, ScoreGrid())
            require(same, "the groups and the grid are not those of the model")
        else:
            same = tuple(a.name for a in attributes) == subject.sensitive
            require(same, "the groups are not those of the sensitive columns")
            for a in attributes:
                good = a.groups[-1:] == (MISSING,) and len(set(a.groups)) == a.size
                require(good, f"the groups of '{a.name}' do not end with '?', or repeat")
            both = (self.grid is None) == (subject.score is None)
            require(both, "a range of scores and a column of scores belong together")
        cells = f"{self.cells:,} combinations of groups"
        require(self.cells <= MOST_CELLS, f"{cells}; at most {MOST_CELLS:,} are counted")
        return self


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
    scored, scores = answer.scored, answer.scores
    asked = (scored is None) == (grid is None)
    require(asked, "it does not count scores exactly if it was asked to")
    asked = (scores is None) == (grid is None or not grid.probabilities)
    require(asked, "it does not add up probabilities exactly if it was asked to")
    # A sum of huge counts may come out right as an integer: it is looked at as a float.
    most = MOST_ROWS if most_rows is None else min(most_rows, MOST_ROWS)
    rows = answer.decided.sum(dtype=float) + float(answer.withheld[0])
    require(rows <= most, f"it claims more than {most:,} rows")
    rows = 0.0 if scored is None else scored.sum(dtype=float)
    require(rows <= most, f"it claims scores of more than {most:,} rows")
    try:
        sums = () if scores is None else (scores.score_sums(),)
        counts = AuditCounts(
            decided=answer.decided[None],
            clients=(name,),
            attributes=question.attributes,
            grid=grid,
            scored=None if scored is None else scored[None],
            sums=sums or None,
            hidden=answer.hidden[None].astype(bool),
            withheld=answer.withheld,
        )
    except MfairflError as error:
        raise MessageError(str(error)) from None
    for added in sums:
        possible = (added.losses <= _LARGEST_LOSS * added.counts).all()
        require(possible, f"its mean loss is above {_LARGEST_LOSS:g}")
    _check_withheld(counts, answer.facts.floor)
    return counts, answer.facts


def _check_withheld(counts: AuditCounts, floor: int) -> None:
    """Refuse counts that a floor does not leave, and an impossible number of withheld rows."""
    withheld, hidden = int(counts.withheld[0]), int(counts.hidden.sum())
    check_floor(counts.rows, counts.hidden, withheld, floor)
    all_hidden = hidden == counts.hidden.size and withheld == floor - 1  # below the floor in all
    enough = hidden == 0 or withheld >= max(hidden, floor) or all_hidden
    require(enough, f"it withholds {withheld} rows of {hidden} groups and labels")
