"""What silos answer for an audit: names of groups, and counts; read without trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from mfairfl.data import MISSING, canonical_text
from mfairfl.data.columns import MOST_GROUPS
from mfairfl.data.sums import MOST_ROWS
from mfairfl.data.values import StrictModel
from mfairfl.errors import MessageError, MfairflError, first_problem
from mfairfl.fairness.audit_counts import AuditCounts, ScoreGrid
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import CALIBRATION_BINS, LOGIT_BINS, ScoreSums
from mfairfl.strict_json import JsonLimits
from mfairfl.wire.audit_questions import AuditAsk
from mfairfl.wire.codec import ArrayForm, Packet, expect_answer, make_packet, require_arrays

_LARGEST_LOSS = 40.0  # of a row: a probability of 0 that fails loses 36
_FACTS = JsonLimits(characters=4096, values=64)
_SCORE_SUMS = ("rows", "sums", "losses")  # of `ScoreSums`, beside its histogram

LONGEST_GROUP = 200
"""Characters of a group's name; a longer one is no group that anybody would read."""

_Value = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_GROUP)]
_Reason = Annotated[str, Field(strict=True, pattern="^no (decision|score)$")]
_Rows = Annotated[int, Field(strict=True, ge=1, le=MOST_ROWS)]


class _Groups(StrictModel):
    groups: dict[str, Annotated[list[_Value], Field(max_length=MOST_GROUPS)]]


def pack_groups(groups: Mapping[str, Sequence[str]]) -> Packet:
    """Return the answer: names of groups, by column."""
    return make_packet("groups", {"groups": {name: list(one) for name, one in groups.items()}})


def read_groups(reply: Packet, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups that an answer names; names that no honest silo sends are refused."""
    require_arrays(reply.arrays, {})
    try:
        limits = JsonLimits(2000 + 15_000 * len(columns), 64 + 64 * len(columns))
        said = _Groups.model_validate(expect_answer(reply, "groups", limits)).groups
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    if set(said) != set(columns):
        raise MessageError("it names groups of other columns than it was asked for")
    for column in columns:
        for value in said[column]:
            if value != canonical_text(value) or value == MISSING or not value.isprintable():
                raise MessageError(f"a group {value[:60]!r} of '{column}' cannot be one")
        if len(set(said[column])) < len(said[column]):
            raise MessageError(f"it names a group of '{column}' twice")
    return {column: tuple(said[column]) for column in columns}


class SiloFacts(StrictModel):
    """What a silo says beside its counts.

    Parameters
    ----------
    floor : int
        The smallest number of rows of one group and label that it counts.
    sha256 : str
        Hash of its file, as it says.
    left_out : dict of str to int
        Rows that could not be counted, at most, by reason.
    """

    floor: _Rows
    sha256: Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
    left_out: dict[_Reason, _Rows]


@dataclass(frozen=True, slots=True)
class SiloCounts:
    """What a silo tells: counts without what is below its floor, and facts about them."""

    counts: AuditCounts
    facts: SiloFacts


def pack_counts(found: SiloCounts) -> Packet:
    """Return the answer."""
    counts = found.counts
    arrays: dict[str, np.ndarray] = {
        "decided": counts.decided[0],
        "hidden": counts.hidden[0].astype(np.int64),  # messages hold numbers only
        "withheld": counts.withheld,
    }
    if counts.scored is not None:
        arrays["scored"] = counts.scored[0]
    if counts.sums is not None:
        (sums,) = counts.sums
        arrays["histogram"] = sums.histogram.counts
        arrays |= {name: getattr(sums, name) for name in _SCORE_SUMS}
    return make_packet("audit", found.facts.model_dump(mode="json"), arrays)


def read_counts(
    reply: Packet, name: str, ask: AuditAsk, *, most_rows: int | None = None
) -> SiloCounts:
    """Return what a silo's answer holds; what cannot be true is refused.

    Parameters
    ----------
    name : str
        The silo.
    most_rows : int, optional
        Rows that no silo has.
    """
    try:
        facts = SiloFacts.model_validate(expect_answer(reply, "audit", _FACTS))
        cells = Cells(ask.attributes).size
        require_arrays(reply.arrays, _forms(cells, ask.grid))
        _check_sizes(reply, MOST_ROWS if most_rows is None else min(most_rows, MOST_ROWS))
        counts = _counts(reply, name, ask)
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    except MfairflError as error:
        raise MessageError(str(error)) from None
    _check_floor(counts, facts.floor)
    return SiloCounts(counts, facts)


def _check_floor(counts: AuditCounts, floor: int) -> None:
    """Refuse counts that a floor does not leave, and a number of withheld rows that cannot be."""
    if ((counts.rows > 0) & (counts.rows < floor)).any():
        raise MessageError(f"it counts fewer than {floor} rows, which it says it never does")
    withheld, hidden = int(counts.withheld[0]), int(counts.hidden.sum())
    unsaid = hidden == counts.hidden.size and withheld == floor - 1  # fewer than the floor in all
    if hidden and withheld < max(hidden, floor) and not unsaid:
        raise MessageError(f"it withholds {withheld} rows of {hidden} groups and labels")
    if withheld and not hidden:
        raise MessageError("it withholds rows, and says of no group that it does")


def _forms(cells: int, grid: ScoreGrid | None) -> dict[str, ArrayForm]:
    wanted = {
        "decided": ArrayForm(np.int64, (cells, 3, 2)),
        "hidden": ArrayForm(np.int64, (cells, 3)),
        "withheld": ArrayForm(np.int64, (1,)),
    }
    if grid is not None:
        wanted["scored"] = ArrayForm(np.int64, (cells, 3, len(grid.edges) + 1))
        if grid.probabilities:
            bins = (cells, 2, CALIBRATION_BINS)
            wanted["histogram"] = ArrayForm(np.int64, (cells, 2, LOGIT_BINS))
            wanted["rows"] = ArrayForm(np.int64, bins)
            wanted["sums"] = ArrayForm(np.float64, bins)
            wanted["losses"] = ArrayForm(np.float64, (cells, 2))
    return wanted


def _check_sizes(reply: Packet, most: int) -> None:
    """Refuse counts of more rows than there can be."""
    if not np.isin(reply.arrays["hidden"], (0, 1)).all():
        raise MessageError("'hidden' says something else than yes or no")
    for name, array in reply.arrays.items():
        if array.dtype.kind != "i" or name == "hidden":
            continue
        # A sum of huge counts may come out right: each one is looked at, and the sum as a float.
        if not ((array >= 0) & (array <= most)).all() or array.sum(dtype=float) > most:
            raise MessageError(f"'{name}' holds a negative count or too many rows")
    if int(reply.arrays["decided"].sum()) + int(reply.arrays["withheld"][0]) > most:
        raise MessageError(f"it claims more than {most:,} rows")


def _counts(reply: Packet, name: str, ask: AuditAsk) -> AuditCounts:
    arrays = reply.arrays
    sums = None
    if "histogram" in arrays:
        rest = (arrays[key] for key in _SCORE_SUMS)
        sums = ScoreSums(ScoreHistogram(arrays["histogram"]), *rest)
        if (sums.losses > _LARGEST_LOSS * sums.counts).any():
            raise MessageError(f"its mean loss is above {_LARGEST_LOSS:g}")
    return AuditCounts(
        decided=arrays["decided"][None],
        clients=(name,),
        attributes=ask.attributes,
        grid=ask.grid,
        scored=arrays["scored"][None] if ask.grid is not None else None,
        sums=None if sums is None else (sums,),
        hidden=arrays["hidden"][None].astype(bool),
        withheld=arrays["withheld"],
    )
