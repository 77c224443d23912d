"""Messages before the first round: descriptions of files, sums, histograms and counts.

What passes here can be combined with the answers of others: names and columns are those that were
asked for, counts are whole and fit each other, and sums are those of possible numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from mfairfl.data import SPLITS, Encoder, EncoderStatistics, Split, Task
from mfairfl.data.agreement import Profile
from mfairfl.data.columns import MOST_GROUPS
from mfairfl.data.sums import MOST_CUTS, MOST_ROWS, Histogram, NumericStatistics
from mfairfl.data.values import StrictModel, canonical_text
from mfairfl.errors import MessageError, require_known
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS
from mfairfl.wire.packing import (
    NUMBERED,
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

_SCALES = (1e-70, 1e70)  # of a column's mean and deviation: their ratios and squares are floats

Cuts = Mapping[str, np.ndarray]
"""Cuts by column."""

_Floor = Annotated[int, Field(strict=True, ge=1, le=MOST_ROWS)]


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


# ------------------------------------------------------------------ descriptions of files


class ProfileQuestion(Message):
    """Asks for a description of the file."""

    kind = "profile"

    task: Task


class ProfileAnswer(SiloAnswer):
    """A description of the file."""

    kind = "profile"

    # Its columns' counts, and the count of one value of each.
    profile: Annotated[Profile, RowChange(entries=None, most=1)]


def read_profile(name: str, packet: Packet, task: Task, most_rows: int | None = None) -> Profile:
    """Return a client's description of its file; one of more than `most_rows` is refused."""
    profile = unpack(ProfileAnswer, packet).profile
    if most_rows is not None:
        allowed = f"most_rows in the coordinator's file allows {most_rows:,}"
        require(profile.rows <= most_rows, f"it claims {profile.rows:,} rows; {allowed}")
    require(profile.client == name, f"it describes itself as '{profile.client}'")
    for sensitive in task.sensitive:
        count = len(profile.levels(sensitive.column))
        values = f"'{sensitive.column}' has {count} distinct values"
        few = bool(sensitive.levels) or count <= MOST_GROUPS
        require(few, f"sensitive column {values}; form a few groups with bins")
    return profile


# ------------------------------------------------------------------ sums


class SplitQuestion(Message):
    """A question about rows with an agreed task, split into train and other rows."""

    task: Task
    seed: int = Field(ge=0, strict=True)
    test: float = Field(ge=0, lt=1, strict=True)
    validation: float = Field(ge=0, lt=1, strict=True)


class SumsQuestion(SplitQuestion):
    """Asks for the sums that the encoder is fitted from."""

    kind = "sums"


class SumsAnswer(SiloAnswer):
    """Sums over a client's train rows and its others, and about its file.

    Parameters
    ----------
    sha256 : str
        Hash of its file.
    rows : int
        All its rows.
    """

    kind = "sums"

    train: Annotated[EncoderStatistics, RowChange()]  # numbers may be as large as they like
    others: Annotated[EncoderStatistics, RowChange()]
    sha256: Annotated[Sha256, RowChange()]
    rows: Annotated[int, Field(strict=True, ge=0, le=MOST_ROWS), RowChange(entries=1, most=1)]


def read_sums(packet: Packet, task: Task, most_rows: int) -> SumsAnswer:
    """Return a client's sums over the columns of an agreed task.

    Parameters
    ----------
    most_rows : int
        The rows of its file; some may be left out.
    """
    answer = unpack(SumsAnswer, packet)
    rows = answer.rows
    require(rows <= most_rows, f"it counts {rows} rows; its file has {most_rows}")
    for part in (answer.train, answer.others):
        _check_sums(part, task, rows)
    if task.numeric:
        summed = (rows_of(answer.train) or 0) + (rows_of(answer.others) or 0)
        require(summed == rows, f"its sums are not those of {rows} rows")
    for column, total in (answer.train + answer.others).numeric.items():
        _check_scale(column, total)
    return answer


def rows_of(sums: EncoderStatistics) -> int | None:
    """Return the rows behind sums; None if no column of numbers shows them."""
    return next((c.count + c.missing for c in sums.numeric.values()), None)


def _check_sums(sums: EncoderStatistics, task: Task, most: int) -> None:
    """Refuse sums over other columns than agreed, and those that no rows can have."""
    for named, agreed in ((sums.numeric, task.numeric), (sums.categorical, task.categorical)):
        if odd := sorted(set(named) ^ set(agreed or ())):
            raise MessageError(f"its sums are not those of the agreed columns ('{odd[0]}')")
        # The order of the encoder's inputs.
        ordered = tuple(named) == tuple(agreed or ())
        require(ordered, "its sums have the agreed columns in another order")
    rows = rows_of(sums)
    for name, total in sums.numeric.items():
        equal = total.count + total.missing == rows
        require(equal, "its columns have different numbers of rows")
        require(total.possible, f"no numbers have its sums of '{name}'")
        _check_scale(name, total)
    most = most if rows is None else rows
    for name, levels in sums.categorical.items():
        require(sum(levels.values()) <= most, f"it counts more rows of '{name}' than it has")
        for level in levels:
            written = f"level {level!r} of '{name}' is not written as values are"
            require(level == canonical_text(level), written)


def _check_scale(name: str, column: NumericStatistics) -> None:
    """Refuse a column whose numbers are too large or too small to be scaled."""
    low, high = _SCALES
    for number in (column.mean, column.deviation):
        scalable = not number or low <= abs(number) <= high
        require(scalable, f"mean or deviation of '{name}' is {number:g}: correct its unit")


# ------------------------------------------------------------------ histograms


class CutsQuestion(SplitQuestion):
    """Asks how many train rows lie between cuts.

    Parameters
    ----------
    columns : tuple of str
        Columns of numbers.
    cuts : tuple of ndarray
        The cuts of each column, in ascending order.
    """

    kind = "cuts"

    columns: tuple[str, ...] = Field(min_length=1)
    cuts: Annotated[
        tuple[Annotated[np.ndarray, Form(np.float64, (UpTo(MOST_CUTS),))], ...], NUMBERED
    ] = ()

    def by_column(self, numeric: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the cuts of each column, which must be one of these columns of numbers."""
        require_known("numeric column", self.columns, numeric, MessageError)
        count, given = len(self.columns), len(self.cuts)
        require(len(set(self.columns)) == count, "a column is named twice")
        require(given == count, f"cuts of {given} columns; {count} are named")
        by_column = dict(zip(self.columns, self.cuts, strict=True))
        for column, cuts in by_column.items():
            ascending = (np.diff(cuts) > 0).all()
            require(ascending, f"the cuts of '{column}' are not in ascending order")
        return by_column


_Histogram = Annotated[np.ndarray, Form.whole(UpTo(MOST_CUTS + 1))]
_Values = Annotated[np.ndarray, Form(np.float64, (UpTo(MOST_CUTS + 1),), finite=False)]


class HistogramsAnswer(SiloAnswer):
    """Train rows between cuts, in the order of the question's columns.

    Parameters
    ----------
    values : tuple of ndarray
        The value of each interval whose rows all hold the same; else nan.
    """

    kind = "histograms"

    # A row is in one interval of each column.
    counts: Annotated[tuple[_Histogram, ...], NUMBERED, RowChange(entries=None, most=1)]
    values: Annotated[tuple[_Values, ...], NUMBERED, RowChange()]


def read_histograms(packet: Packet, cuts: Cuts, rows: Mapping[str, int]) -> dict[str, Histogram]:
    """Return the histograms that an answer holds; `rows` are known to have a value."""
    answer = unpack(HistogramsAnswer, packet)
    complete = len(answer.counts) == len(answer.values) == len(cuts)
    require(complete, f"histograms of {len(answer.counts)} columns; expected {len(cuts)}")
    histograms = {}
    for column, counts, values in zip(cuts, answer.counts, answer.values, strict=True):
        low, high = np.array([-np.inf, *cuts[column]]), np.array([*cuts[column], np.inf])
        complete = len(counts) == len(values) == len(low)
        require(complete, f"{len(counts)} counts of '{column}'; expected {len(low)}")
        # Each one as well: a sum of huge counts may come out right.
        right = (counts <= rows[column]).all() and counts.sum() == rows[column]
        require(right, f"its counts of '{column}' are not those of {rows[column]} rows")
        inside = np.isfinite(values) & (values >= low) & (values < high) & (counts > 0)
        between = (np.isnan(values) | inside).all()
        require(between, f"its values of '{column}' do not lie between their cuts")
        histograms[column] = Histogram(cuts[column], counts, values)
    return histograms


# ------------------------------------------------------------------ counts


class EncodeQuestion(SplitQuestion):
    """Asks to encode and store the rows, and to count them by group and label."""

    kind = "encode"

    encoder: Encoder
    model: ModelTerms


_Counts = Annotated[np.ndarray, Form.whole("cells", 2), RowChange(entries=1, most=1)]
_Flags = Annotated[np.ndarray, Form.whole("cells", 2, most=1)]


class SiloDisclosure(StrictModel):
    """What a client withholds.

    Parameters
    ----------
    floor : int
        Fewest rows that it counts.
    policy : str
        Fingerprint of the disclosure section of its policy.
    hidden : dict of split to tuple of (cell, label)
        The pairs that it withholds: no rows, few, or others that hide those.
    rows : dict of split to int
        How many rows those hold together.
    """

    floor: _Floor
    policy: Sha256
    hidden: dict[Split, tuple[tuple[int, Literal[0, 1]], ...]]
    rows: dict[Split, int]


class CountsAnswer(SiloAnswer):
    """A client's rows per (cell, label) of each split, 0 where withheld.

    Parameters
    ----------
    hidden : dict of split to ndarray (C, 2)
        1 for each pair that is withheld.
    withheld : ndarray (3,)
        The rows of each split that are withheld.
    """

    kind = "counts"

    floor: _Floor
    policy: Sha256
    train: _Counts
    validation: _Counts
    test: _Counts
    hidden: Annotated[dict[Split, _Flags], RowChange(entries=0)]
    withheld: Annotated[np.ndarray, Form.whole(len(SPLITS)), RowChange(entries=0)]


def read_counts(
    packet: Packet, cells: int, sums: SumsAnswer
) -> tuple[dict[Split, np.ndarray], SiloDisclosure]:
    """Return a client's rows per (cell, label) of each split, and what it withholds of them.

    They are those of its sums; what no floor leaves is refused.
    """
    answer = unpack(CountsAnswer, packet, cells=cells)
    every = set(answer.hidden) == set(SPLITS)
    require(every, "it says of some split only what it withholds")
    counts: dict[Split, np.ndarray] = {part: getattr(answer, part) for part in SPLITS}
    withheld, floor = dict(zip(SPLITS, answer.withheld.tolist(), strict=True)), answer.floor
    totals, pairs = {}, {}
    for part, table in counts.items():
        hidden, rows = answer.hidden[part] == 1, withheld[part]
        possible = rows == 0 or rows >= floor
        require(possible, f"it withholds {rows} {part} rows; its floor is {floor}")
        check_floor(table, hidden, rows, floor, part)
        # Each one as well: a sum of huge counts may come out right.
        right = (table <= sums.rows).all()
        require(right, f"its counts of {part} rows are not those of {sums.rows} rows")
        require(not table[hidden].any(), f"it counts {part} rows that it withholds")
        totals[part] = int(table.sum()) + rows
        pairs[part] = tuple((int(c), int(y)) for c, y in np.argwhere(hidden))
    total, train, summed = sum(totals.values()), totals["train"], rows_of(sums.train)
    require(total == sums.rows, f"it counts {total} rows; its sums had {sums.rows}")
    equal = summed in (None, train)
    require(equal, f"it counts {train} train rows; its sums had {summed}")
    fault = f"every group and label of its {train} train rows is withheld"
    remedy = f"it has too few rows for its own floor of {floor}"
    require(answer.train.any() or train == 0, f"{fault}: {remedy}")
    return counts, SiloDisclosure(floor=floor, policy=answer.policy, hidden=pairs, rows=withheld)


def check_floor(
    counts: np.ndarray, hidden: np.ndarray, withheld: int, floor: int, part: str = "its"
) -> None:
    """Refuse counts that a floor does not leave, and withheld rows that are in no group."""
    above = ((counts == 0) | (counts >= floor)).all()
    require(above, f"it counts fewer than {floor} rows, as it never does")
    named = withheld == 0 or hidden.any()
    require(named, f"it withholds {part} rows, and says of no group that it does")
