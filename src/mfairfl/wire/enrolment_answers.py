"""What clients answer before the first round: profiles, sums and counts, read without trust.

Whatever passes here can be combined with the answers of others: names and columns are those that
were asked for, counts are whole and fit each other, and sums are those of possible numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from mfairfl.data import SPLITS, EncoderStatistics, Split, Task
from mfairfl.data.agreement import Profile
from mfairfl.data.columns import MOST_GROUPS
from mfairfl.data.sums import MOST_ROWS, NumericStatistics
from mfairfl.data.values import StrictModel, canonical_text
from mfairfl.errors import MessageError, first_problem
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS
from mfairfl.strict_json import JsonLimits
from mfairfl.wire.codec import ArrayForm, Packet, expect_answer, require_arrays

DESCRIPTION = JsonLimits(characters=1 << 23, values=1 << 15)
"""The largest description of a file: Adult's profile has 3,300 characters and 210 values."""

_SCALES = (1e-70, 1e70)  # of a column's mean and deviation: their ratios and squares are floats


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """The model that all clients train, before the number of its inputs is known.

    Parameters
    ----------
    kind : str
        ``mlp``, or a model that every silo lists in its own file (`SiloSettings.extensions`).
    hidden : tuple of int
        Widths of an ``mlp``'s hidden layers.

    Examples
    --------
    >>> ModelTerms(hidden=(4,)).build(inputs=3).size
    21
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # for silos, which read it from text

    kind: str = "mlp"
    hidden: tuple[int, ...] = ()

    def build(self, inputs: int) -> Model:
        """Return the model for this many encoded features."""
        factory = MODELS.get(self.kind)
        if factory is not None:
            return ModuleModel(factory, inputs)
        return MLP(inputs=inputs, hidden=self.hidden)


class _ProfileHeader(StrictModel):
    profile: Profile


class _BothSums(StrictModel):
    train: EncoderStatistics
    others: EncoderStatistics


class _SumsHeader(StrictModel):
    sums: _BothSums
    sha256: Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
    rows: Annotated[int, Field(strict=True, ge=0, le=MOST_ROWS)]


class Sums(NamedTuple):
    """What a client tells: sums over its train rows and its others, and about its file.

    Parameters
    ----------
    sha256 : str
        Hash of its file.
    rows : int
        All its rows.
    train_rows : int, optional
        Those to train on; None if no column of numbers tells.
    """

    train: EncoderStatistics
    others: EncoderStatistics
    sha256: str
    rows: int
    train_rows: int | None


def read_profile(name: str, reply: Packet, task: Task) -> Profile:
    """Return a client's description of its file."""
    require_arrays(reply.arrays, {})
    try:
        said = _ProfileHeader.model_validate(expect_answer(reply, "profile", DESCRIPTION))
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    found = said.profile
    if found.client != name:
        raise MessageError(f"it describes itself as '{found.client}'")
    for sensitive in task.sensitive:
        column = found.column(sensitive.column)
        if column is None or sensitive.levels is not None:
            continue
        if len(column.levels) > MOST_GROUPS:
            raise MessageError(
                f"sensitive column '{sensitive.column}' has {len(column.levels)} distinct values; "
                "form a few groups with bins"
            )
    return found


def read_sums(reply: Packet, task: Task, most_rows: int) -> Sums:
    """Return a client's sums over the columns of an agreed task.

    Parameters
    ----------
    most_rows : int
        The rows of its file; some may be left out.
    """
    require_arrays(reply.arrays, {})
    try:
        said = _SumsHeader.model_validate(expect_answer(reply, "sums", DESCRIPTION))
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    if said.rows > most_rows:
        raise MessageError(f"it counts {said.rows} rows; its file has {most_rows}")
    train, others = said.sums.train, said.sums.others
    rows = [_rows(sums, task, said.rows) for sums in (train, others)]
    if task.numeric and sum(n for n in rows if n is not None) != said.rows:
        raise MessageError(f"its sums are not those of {said.rows} rows")
    for column, whole in (train + others).numeric.items():
        _check_scale(column, whole)
    return Sums(train, others, said.sha256, said.rows, rows[0])


def _rows(sums: EncoderStatistics, task: Task, most: int) -> int | None:
    """Return the rows behind sums, if a column of numbers tells; what cannot be is refused."""
    # In the agreed order: it is the order of the encoder's inputs.
    for found, agreed in ((sums.numeric, task.numeric), (sums.categorical, task.categorical)):
        if list(found) != list(agreed or ()):
            odd = sorted(set(found) ^ set(agreed or ()))
            raise MessageError(
                f"its sums are not those of the agreed columns ('{odd[0]}')"
                if odd
                else "its sums have the agreed columns in another order"
            )
    counted = {column.count + column.missing for column in sums.numeric.values()}
    if len(counted) > 1:
        raise MessageError("its columns have different numbers of rows")
    rows = next(iter(counted), None)
    for name, column in sums.numeric.items():
        if not column.possible:
            raise MessageError(f"no numbers have its sums of '{name}'")
        _check_scale(name, column)
    for name, levels in sums.categorical.items():
        if sum(levels.values()) > (most if rows is None else rows):
            raise MessageError(f"it counts more rows of '{name}' than it has")
        if odd := [level for level in levels if level != canonical_text(level)]:
            raise MessageError(f"level {odd[0]!r} of '{name}' is not written as values are")
    return rows


def _check_scale(name: str, column: NumericStatistics) -> None:
    """Refuse a column whose numbers are too large or too small to be scaled."""
    low, high = _SCALES
    for number in (column.mean, column.deviation):
        if number and not low <= abs(number) <= high:
            raise MessageError(f"mean or deviation of '{name}' is {number:g}: correct its unit")


class _CountsFacts(StrictModel):
    """What a client says of its counts in words.

    Parameters
    ----------
    floor : int
        Fewest rows that it tells about.
    policy : str
        Fingerprint of what its policy lets out.
    """

    floor: Annotated[int, Field(strict=True, ge=1, le=MOST_ROWS)]
    policy: Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]


class SiloDisclosure(_CountsFacts):
    """What a client withholds.

    Parameters
    ----------
    hidden : dict of split to tuple of (cell, label)
        The pairs that it tells nothing about: no rows, few, or others that hide those.
    rows : dict of split to int
        How many rows those hold together.
    """

    hidden: dict[Split, tuple[tuple[int, Literal[0, 1]], ...]]
    rows: dict[Split, int]


class RowCounts(NamedTuple):
    """A client's rows per (cell, label) of each split, 0 where withheld, and what is."""

    counts: Mapping[Split, np.ndarray]
    disclosure: SiloDisclosure


def _withheld(arrays: Mapping[str, np.ndarray], facts: _CountsFacts) -> SiloDisclosure:
    """Return what a client withholds; what no floor leaves is refused."""
    rows = dict(zip(SPLITS, arrays["withheld"].tolist(), strict=True))
    hidden = {}
    for part in SPLITS:
        told = arrays[f"hidden/{part}"]
        if not np.isin(told, (0, 1)).all():
            raise MessageError(f"'hidden/{part}' says something else than yes or no")
        if not 0 <= rows[part] <= MOST_ROWS or 0 < rows[part] < facts.floor:
            raise MessageError(
                f"it withholds {rows[part]} {part} rows; its floor is {facts.floor}"
            )
        if rows[part] and not told.any():
            raise MessageError(f"it withholds {part} rows, and says of no group that it does")
        hidden[part] = tuple((int(c), int(y)) for c, y in np.argwhere(told))
    return SiloDisclosure(floor=facts.floor, policy=facts.policy, hidden=hidden, rows=rows)


def read_counts(reply: Packet, cells: int, said: Sums) -> RowCounts:
    """Return a client's rows per (cell, label) of each split; they are those of its sums."""
    try:
        facts = _CountsFacts.model_validate(expect_answer(reply, "counts"))
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    form = ArrayForm(np.int64, (cells, 2))
    forms = dict.fromkeys([*SPLITS, *(f"hidden/{part}" for part in SPLITS)], form)
    require_arrays(reply.arrays, {**forms, "withheld": ArrayForm(np.int64, (len(SPLITS),))})
    for part in SPLITS:
        counts = reply.arrays[part]
        # Each one first: a sum of huge counts may come out right.
        if not ((counts >= 0) & (counts <= said.rows)).all():
            raise MessageError(f"its counts of {part} rows are not those of {said.rows} rows")
        if counts[reply.arrays[f"hidden/{part}"] == 1].any():
            raise MessageError(f"it counts {part} rows that it withholds")
        if ((counts > 0) & (counts < facts.floor)).any():
            raise MessageError(f"it counts fewer than {facts.floor} rows, as it never does")
    withheld = _withheld(reply.arrays, facts)
    totals = {part: int(reply.arrays[part].sum()) + withheld.rows[part] for part in SPLITS}
    _check_totals(totals, said)
    if not reply.arrays["train"].any() and totals["train"]:
        raise MessageError(
            f"every group and label of its {totals['train']} train rows is withheld: it has too "
            f"few rows for its own floor of {facts.floor}"
        )
    found = {part: reply.arrays[part].astype(np.float64) for part in SPLITS}
    return RowCounts(found, withheld)


def _check_totals(totals: Mapping[Split, int], said: Sums) -> None:
    if sum(totals.values()) != said.rows:
        raise MessageError(f"it counts {sum(totals.values())} rows; its sums had {said.rows}")
    if said.train_rows is not None and totals["train"] != said.train_rows:
        raise MessageError(
            f"it counts {totals['train']} train rows; its sums had {said.train_rows}"
        )
