"""AuditCounts: all that an audit needs of rows, as counts that add up over silos.

Beside a tally it counts rows without a label, and rows by score on a grid that everyone knows. A
silo withholds small cells (`suppress`). Which ones, and how many rows they hold at most, stays
known, so that every number has bounds that contain its value on all rows.

`StoredCounts` is the form of these counts in audit.json: what is not zero, line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, model_validator

from mfairfl.data import Attribute
from mfairfl.data.values import DocumentedModel
from mfairfl.errors import ConfigError, DataError, MfairflError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.fairness.tally import CodedRows, Tally, binary_column, hidden_cells

UNKNOWN = 2
"""The place of rows without a label on the label axis, after 0 and 1."""

Counts = NDArray[np.int64]
_STEPS = 100
_MOST_CELLS = 1_000_000  # a damaged file must not ask for all memory
_BINS = _STEPS + 2  # a score on the lowest edge is above none, one on the highest above all others
_Bin = Annotated[int, Field(ge=0, lt=_BINS)]


@dataclass(frozen=True, slots=True)
class ScoreGrid:
    """A hundred steps from the lowest to the highest possible score.

    Examples
    --------
    >>> ScoreGrid().edges[29], ScoreGrid(300, 850).edges[-1]
    (0.29, 850.0)
    """

    lowest: float = 0.0
    highest: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite([self.lowest, self.highest]).all() and self.lowest < self.highest):
            raise ConfigError(
                f"score range {self.lowest:g} to {self.highest:g}: give the lowest and the "
                "highest possible score, for example 0 and 1"
            )

    @property
    def edges(self) -> tuple[float, ...]:
        """The thresholds at which rows can be told apart, 101 of them."""
        span = self.highest - self.lowest
        return tuple(self.lowest + span * step / _STEPS for step in range(_STEPS + 1))

    @property
    def probabilities(self) -> bool:
        """Whether scores are read as probabilities."""
        return (self.lowest, self.highest) == (0.0, 1.0)

    def bins(self, scores: Any) -> NDArray[np.intp]:
        """Return how many edges are below each score: the row is above edge j if that is > j."""
        values = np.asarray(scores, dtype=np.float64)
        wrong = np.flatnonzero(~((values >= self.lowest) & (values <= self.highest)))
        if wrong.size:
            raise DataError(
                f"score: row {wrong[0]} holds {values[wrong[0]]:g}, outside {self.lowest:g} to "
                f"{self.highest:g}; say which scores are possible (score_range=, --score-range)"
            )
        return np.searchsorted(self.edges, values, side="left")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditCounts:
    """Counts[client, cell, label or unknown, decision]; `+` puts clients together.

    Attributes
    ----------
    decided
        Rows, (K, C, 3, 2), int64; the label axis is 0, 1, `UNKNOWN`.
    clients
        The K clients' names.
    attributes
        The sensitive attributes; rows whose group is not known are in the group ``?``.
    grid, scored
        With scores: the grid, and rows by bin of the grid, (K, C, 3, 102).
    sums
        With scores that are probabilities: each client's sums over rows that have a label.
    hidden
        Which (client, cell, label) entries were withheld, (K, C, 3); their counts here are 0.
    withheld
        How many rows of each client those entries hold at most, (K,).

    Examples
    --------
    >>> rows = AuditCounts.from_rows([1, None, 0], [1, 1, 0], sensitive_features=["F", "M", None])
    >>> rows.attributes[0].groups, rows.decided.sum(axis=(0, 1)).tolist()
    (('F', 'M', '?'), [[1, 0], [0, 1], [0, 1]])
    """

    decided: Counts
    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    hidden: NDArray[np.bool_]
    withheld: Counts
    grid: ScoreGrid | None = None
    scored: Counts | None = None
    sums: tuple[ScoreSums, ...] | None = None

    def __post_init__(self) -> None:
        # Types, shapes and signs are checked where counts arrive: `mfairfl.wire`, `StoredCounts`.
        if len(set(self.clients)) < len(self.clients):
            raise DataError(f"audit: clients {list(self.clients)} contain a name twice")
        if (self.rows[self.hidden] > 0).any():
            raise DataError("audit: rows are counted in entries that were withheld")
        if (self.grid is None) != (self.scored is None):
            raise DataError("audit: counts of scores and their grid belong together")
        if self.scored is not None and (self.scored.sum(axis=3) != self.rows).any():
            raise DataError("audit: scores are counted on other rows than decisions")
        for sums, rows in zip(self.sums or (), self.rows, strict=False):
            if not np.array_equal(sums.counts, rows[:, :UNKNOWN]):
                raise DataError("audit: scores are summed over other rows than decisions")

    @classmethod
    def from_rows(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        clients: Any = None,
        scores: Any = None,
        grid: ScoreGrid | None = None,
        attributes: Sequence[Attribute] | None = None,
    ) -> AuditCounts:
        """Count rows.

        Parameters
        ----------
        y_true
            Labels 0 or 1, missing where unknown; None if no row has one.
        y_pred
            Decisions 0 or 1.
        sensitive_features, clients, attributes
            As in `Tally.from_predictions`.
        scores
            One score per row.
        grid
            Which scores are possible; by default probabilities.
        """
        decisions = binary_column(y_pred, "y_pred")
        label = _labels(y_true, len(decisions))
        lengths = {"y_pred": len(decisions), "y_true": len(label)}
        bins = None
        if scores is not None:
            grid = grid or ScoreGrid()
            bins = grid.bins(scores)
            lengths["scores"] = len(bins)
        rows = CodedRows.of(sensitive_features, clients, attributes, lengths=lengths)
        decided = rows.counted(2 * label + decisions, 6)
        shape = (*decided.shape[:2], 3)
        counts = cls(
            decided=decided.reshape(*shape, 2),
            clients=rows.clients,
            attributes=rows.attributes,
            hidden=np.zeros(shape, dtype=bool),
            withheld=np.zeros(len(rows.clients), dtype=np.int64),
        )
        if grid is None or bins is None:
            return counts
        scored, sums = rows.counted(_BINS * label + bins, 3 * _BINS).reshape(*shape, _BINS), None
        if grid.probabilities:
            probabilities = RowScores.from_probabilities(scores)
            sums = tuple(ScoreSums.by_client(probabilities, rows, label).values())
        return replace(counts, grid=grid, scored=scored, sums=sums)

    @staticmethod
    def strata_of(
        y_true: Any, *, sensitive_features: Any, attributes: Sequence[Attribute], rows: int
    ) -> NDArray[np.intp]:
        """Return where each of `rows` rows is counted, 3·cell + label; arguments as above."""
        coded = CodedRows.of(sensitive_features, None, attributes, lengths={"y_pred": rows})
        return np.asarray(3 * coded.cell + _labels(y_true, rows))

    @property
    def rows(self) -> Counts:
        """Rows by client, cell and label, (K, C, 3)."""
        return np.asarray(self.decided.sum(axis=3))

    @property
    def cells(self) -> Cells:
        """The cells that are counted over."""
        return Cells(self.attributes)

    def tally(self) -> Tally:
        """Return the counts of rows that have a label."""
        return Tally(self.decided[:, :, :UNKNOWN], self.clients, self.attributes)

    def selections(self) -> Tally:
        """Return decisions on all rows, for measures that no label enters.

        Rows without a label are put with y = 0: only decisions may be looked at.

        Examples
        --------
        >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features=["F", "M"])
        >>> rows.tally().n, rows.selections().n
        (0, 2)
        """
        counts = self.decided[:, :, :UNKNOWN].copy()
        counts[:, :, 0] += self.decided[:, :, UNKNOWN]
        return Tally(counts, self.clients, self.attributes)

    def at_edge(self, edge: int) -> AuditCounts:
        """Return the counts if a score above an edge of the grid were a favourable decision."""
        if self.scored is None:
            raise ConfigError("audit: a threshold needs scores")
        above = self.scored[..., edge + 1 :].sum(axis=3)
        return replace(self, decided=np.stack([self.rows - above, above], axis=-1))

    def suppress(self, minimum: int) -> AuditCounts:
        """Withhold each client's small (cell, label) entries (`hidden_cells`).

        Of a client with fewer than `minimum` rows not even their number is disclosed.

        Examples
        --------
        >>> sex = ["F"] * 24 + ["M"] * 30
        >>> rows = AuditCounts.from_rows(
        ...     [1] * 20 + [0] * 4 + [1] * 30, [1] * 54, sensitive_features=sex
        ... )
        >>> small = rows.suppress(10)
        >>> small.hidden.tolist(), small.withheld.tolist()
        ([[[True, True, False], [False, False, False]]], [24])
        """
        hidden = [hidden_cells(table, self.cells.names, minimum) for table in self.rows]
        small = np.array(hidden, dtype=bool).reshape(self.rows.shape)
        count = np.where(small, self.rows, 0).sum(axis=(1, 2))
        undisclosed = small.all(axis=(1, 2)) & (count < minimum)
        shown = ~small[..., None]
        return replace(
            self,
            decided=np.where(shown, self.decided, 0),
            scored=None if self.scored is None else np.where(shown, self.scored, 0),
            sums=None if self.sums is None else tuple(map(_shown, self.sums, ~small)),
            hidden=self.hidden | small,
            withheld=self.withheld + np.where(undisclosed, minimum - 1, count),
        )

    def of_client(self, place: int) -> AuditCounts:
        """Return the counts of one client.

        Examples
        --------
        >>> rows = AuditCounts.from_rows(
        ...     None, [1, 0], sensitive_features=["F", "M"], clients=["a", "b"]
        ... )
        >>> rows.of_client(1).decided.sum(), rows.of_client(1).clients
        (np.int64(1), ('b',))
        """
        client = slice(place, place + 1)
        parts: dict[str, Any] = {
            name: getattr(self, name)[client]
            for name in ("decided", "clients", "hidden", "withheld", "scored", "sums")
            if getattr(self, name) is not None
        }
        return replace(self, **parts)

    def __add__(self, other: AuditCounts) -> AuditCounts:
        same = (self.attributes, self.grid) == (other.attributes, other.grid)
        if not same or (self.sums is None) != (other.sums is None):
            raise DataError(
                "audit: counts over other groups or scores cannot be added; state the same "
                "attributes and score range for all"
            )
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("decided", "scored", "hidden", "withheld")
            if getattr(self, name) is not None
        }
        sums = None if self.sums is None else (*self.sums, *(other.sums or ()))
        return replace(self, clients=(*self.clients, *other.clients), sums=sums, **both)


def _labels(y_true: Any, rows: int) -> NDArray[np.intp]:
    """Return 0, 1 or `UNKNOWN` for each row."""
    if y_true is None:
        return np.full(rows, UNKNOWN, dtype=np.intp)
    column = np.asarray(y_true, dtype=object)
    recorded = ~np.asarray(pd.isna(column), dtype=bool)
    label = np.full(len(column), UNKNOWN, dtype=np.intp)
    label[recorded] = binary_column(column[recorded], "y_true")
    return label


def _shown(sums: ScoreSums, shown: NDArray[np.bool_]) -> ScoreSums:
    """Return sums with 0 in the (cell, label) entries that are not shown."""
    labelled = shown[:, :UNKNOWN]
    by_bin = labelled[..., None]
    histogram = ScoreHistogram(sums.histogram.counts * by_bin)
    return ScoreSums(histogram, sums.rows * by_bin, sums.sums * by_bin, sums.losses * labelled)


class StoredAttribute(DocumentedModel):
    """A sensitive attribute and its groups."""

    name: str
    groups: tuple[str, ...] = Field(min_length=1)
    """`?`: not known."""


class CountedRows(DocumentedModel):
    """The rows of one client, one combination of groups and one label."""

    client: str
    groups: tuple[str, ...]
    """One for each attribute."""
    label: Annotated[int, Field(ge=0, le=1)] | None
    """Null: not known."""
    refused: NonNegativeInt = 0
    """Rows decided unfavourably."""
    selected: NonNegativeInt = 0
    """Rows decided favourably."""
    scores: dict[Annotated[int, Field(ge=0, lt=_BINS)], NonNegativeInt] = Field(
        default_factory=dict
    )
    """Rows by the number of edges of the score grid that are below their score."""
    hidden: bool = False
    """Whether the client withheld these rows."""


class StoredCounts(DocumentedModel):
    """All counts of an audit.

    Examples
    --------
    >>> rows = AuditCounts.from_rows([1, None], [1, 0], sensitive_features=["F", "M"])
    >>> stored = StoredCounts.of(rows)
    >>> stored.rows[1].label is None, stored.rows[1].refused
    (True, 1)
    >>> bool((stored.counts().decided == rows.decided).all())
    True
    """

    clients: tuple[str, ...]
    attributes: tuple[StoredAttribute, ...]
    score_range: tuple[float, float] | None = None
    """The lowest and the highest possible score, between which the grid has 100 steps."""
    withheld: tuple[NonNegativeInt, ...]
    """Of each client: the rows that it withheld, at most."""
    rows: list[CountedRows]
    """Every combination that holds rows, or hides them."""

    @classmethod
    def of(cls, counts: AuditCounts) -> StoredCounts:
        """Take the counts apart; sums of scores, which no later audit needs, are not kept."""
        rows, names = [], counts.cells.names
        shown = np.argwhere((counts.rows > 0) | counts.hidden)
        for client, cell, label in shown.tolist():
            entry = client, cell, label
            refused, selected = counts.decided[entry].tolist()
            scored = [] if counts.scored is None else counts.scored[entry].tolist()
            rows.append(
                CountedRows(
                    client=counts.clients[client],
                    groups=names[cell],
                    label=None if label == UNKNOWN else label,
                    refused=refused,
                    selected=selected,
                    scores={place: n for place, n in enumerate(scored) if n},
                    hidden=bool(counts.hidden[entry]),
                )
            )
        grid = counts.grid
        return cls(
            clients=counts.clients,
            attributes=tuple(
                StoredAttribute(name=item.name, groups=item.groups) for item in counts.attributes
            ),
            score_range=None if grid is None else (grid.lowest, grid.highest),
            withheld=tuple(counts.withheld.tolist()),
            rows=rows,
        )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        try:
            self.counts()
        except MfairflError as error:
            raise ValueError(str(error)) from None
        return self

    def counts(self) -> AuditCounts:
        """Put the counts together again."""
        attributes = tuple(Attribute(item.name, item.groups) for item in self.attributes)
        cells = Cells(attributes)
        shape = (len(self.clients), cells.size, 3)
        if shape[0] * shape[1] > _MOST_CELLS:
            raise DataError(f"counts: {shape[0]} clients × {shape[1]} cells are too many")
        decided, hidden = np.zeros((*shape, 2), dtype=np.int64), np.zeros(shape, dtype=bool)
        grid = None if self.score_range is None else ScoreGrid(*self.score_range)
        scored = None if grid is None else np.zeros((*shape, _BINS), dtype=np.int64)
        place = {groups: cell for cell, groups in enumerate(cells.names)}
        entries = set()
        for row in self.rows:
            if row.client not in self.clients or row.groups not in place:
                raise DataError(f"counts: client '{row.client}', groups {row.groups} are unknown")
            label = UNKNOWN if row.label is None else row.label
            entry = self.clients.index(row.client), place[row.groups], label
            if entry in entries:
                raise DataError(f"counts: client '{row.client}', groups {row.groups} occur twice")
            entries.add(entry)
            decided[entry], hidden[entry] = (row.refused, row.selected), row.hidden
            if scored is not None:
                scored[entry][list(row.scores)] = list(row.scores.values())
        return AuditCounts(
            decided=decided,
            clients=self.clients,
            attributes=attributes,
            grid=grid,
            scored=scored,
            hidden=hidden,
            withheld=np.array(self.withheld, dtype=np.int64),
        )
