"""The coordinator's side of an audit over silos: agree on the groups, gather counts.

A silo that refuses, or whose answer cannot be true, is left out with the reason, and the audit
goes on with the others.
"""

import functools
import math
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mfairfl.coordinator.transport import Participants, Transport, log_left_out
from mfairfl.data import MISSING, Attribute
from mfairfl.data.agreement import MOST_CELLS
from mfairfl.data.columns import MOST_GROUPS
from mfairfl.data.predictions import PredictionColumns, ordered_groups
from mfairfl.errors import FederationError
from mfairfl.fairness.audit_counts import AuditCounts, ScoreGrid
from mfairfl.strict_json import fingerprint
from mfairfl.wire import audit_messages as messages
from mfairfl.wire.packing import pack

Named = Mapping[str, tuple[str, ...]]
"""Names of groups by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTerms:
    """What the coordinator asks silos for.

    Parameters
    ----------
    subject : PredictionColumns or SentModel
        Whose decisions: those in each silo's file, or those of a model that they are sent.
    grid : ScoreGrid
        Which scores are possible, where there is a column of them.
    most_rows : int, optional
        Rows that no silo has: one that claims more is left out.
    """

    subject: messages.AuditSubject
    grid: ScoreGrid = field(default_factory=ScoreGrid)
    most_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredAudit:
    """The counts of all silos.

    Parameters
    ----------
    counts : AuditCounts
        Of the silos that answered; each is a client under its name.
    silos : mapping of str to SiloFacts
        What each of them states about its counts: its floor, the hash of its file.
    left_out : mapping of str to str
        Why others are not counted.
    """

    counts: AuditCounts
    silos: Mapping[str, messages.SiloFacts]
    left_out: Mapping[str, str]


def audit_name(terms: AuditTerms) -> str:
    """Return the name under which silos count the requests of an audit: equal terms, equal name.

    Examples
    --------
    >>> columns = PredictionColumns(sensitive=("sex",), prediction="decision")
    >>> len(audit_name(AuditTerms(subject=columns)))
    22
    """
    subject = terms.subject
    plain: dict[str, Any]
    if isinstance(subject, PredictionColumns):
        plain = {"columns": subject.model_dump(mode="json")}
    else:
        plain = {"model": subject.sha256, "audited": list(subject.audited)}
    digest = fingerprint({**plain, "grid": [terms.grid.lowest, terms.grid.highest]})
    return f"audit-{digest[:16]}"


def gather_counts(
    transport: Transport, names: Sequence[str], terms: AuditTerms, *, minimum: int = 1
) -> GatheredAudit:
    """Ask silos for counts; raise if fewer than `minimum` answer.

    Parameters
    ----------
    names : sequence of str
        The silos that may take part.
    """
    silos = Participants(transport, sorted(names), minimum)
    subject = terms.subject
    if isinstance(subject, messages.SentModel):
        question = messages.AuditQuestion(
            model=subject, attributes=subject.attributes, grid=ScoreGrid()
        )
    else:
        grid = None if subject.score is None else terms.grid
        groups = _agreed_groups(silos, subject)
        question = messages.AuditQuestion(columns=subject, attributes=groups, grid=grid)
    answers = silos.ask(
        pack(question),
        lambda name, reply: messages.read_audit(reply, name, question, most_rows=terms.most_rows),
    )
    for name, reason in silos.refused.items():
        log_left_out(name, reason)
    return GatheredAudit(
        counts=_without_unused(
            functools.reduce(operator.add, [counts for counts, _ in answers.values()])
        ),
        silos={name: facts for name, (_, facts) in answers.items()},
        left_out=silos.refused,
    )


# ------------------------------------------------------------------ groups


def _agreed_groups(silos: Participants, columns: PredictionColumns) -> tuple[Attribute, ...]:
    """Return the groups that any silo names, and ``?`` for all other rows.

    A silo that names so many that they cannot all be counted is left out, the worst one first.
    """
    sensitive = columns.sensitive
    named = silos.ask(
        pack(messages.GroupsQuestion(columns=columns)),
        lambda _, reply: messages.read_groups(reply, sensitive),
    )
    while (fault := _excess(sensitive, named.values())) and len(named) > 1:
        alone = _named_alone(named)
        worst = max(alone, key=lambda name: (alone[name], name))
        silos.refuse({worst: f"{fault}; it alone names {alone[worst]:,} groups"})
        silos.require_minimum()
        del named[worst]
    if fault:
        raise FederationError(f"{fault}: leave a sensitive column out, or form larger groups")
    return tuple(Attribute(c, (*_union(c, named.values()), MISSING)) for c in sensitive)


def _union(column: str, named: Collection[Named]) -> list[str]:
    return ordered_groups({group for groups in named for group in groups[column]})


def _excess(sensitive: Sequence[str], named: Collection[Named]) -> str:
    """Return why these groups cannot be counted; empty if they can."""
    sizes = {column: len(_union(column, named)) for column in sensitive}
    for column, size in sizes.items():
        if size > MOST_GROUPS:
            return f"'{column}' has {size} groups, at most {MOST_GROUPS} are counted"
    cells = math.prod(size + 1 for size in sizes.values())
    return f"{cells:,} combinations of groups, at most {MOST_CELLS:,} are counted" * (
        cells > MOST_CELLS
    )


def _named_alone(named: Mapping[str, Named]) -> dict[str, int]:
    """Return how many groups each silo names that no other one does."""
    times = Counter(
        (c, g) for by_column in named.values() for c, groups in by_column.items() for g in groups
    )
    return {
        name: sum(times[c, group] == 1 for c, groups in by_column.items() for group in groups)
        for name, by_column in named.items()
    }


def _without_unused(counts: AuditCounts) -> AuditCounts:
    """Take groups out that no row is in, counted or withheld: as in an audit of all rows."""
    shape = counts.cells.shape
    occupied = np.argwhere(((counts.rows > 0) | counts.hidden).any(axis=(0, 2)).reshape(shape))
    used = [np.unique(places) for places in occupied.T]
    cells = np.ravel_multi_index(np.ix_(*used), shape).reshape(-1)
    return replace(
        counts,
        attributes=tuple(
            Attribute(attribute.name, tuple(attribute.groups[place] for place in places))
            for attribute, places in zip(counts.attributes, used, strict=True)
        ),
        decided=counts.decided[:, cells],
        scored=None if counts.scored is None else counts.scored[:, cells],
        sums=None if counts.sums is None else tuple(sums.of_cells(cells) for sums in counts.sums),
        hidden=counts.hidden[:, cells],
    )
