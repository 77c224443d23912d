"""AuditCounts: all that an audit needs of rows, as counts that add up over silos.

Beside a tally it counts rows without a label, and rows by score on a grid that everyone knows. A
silo withholds small cells (`suppress`). Which ones, and how many rows they hold at most, stays
known, so that every number has bounds that contain its value on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.fairness.tally import CodedRows, Tally, binary_column, hidden_cells
from mfairfl.fairness.thresholds import ScoreHistogram

UNKNOWN = 2
"""The place of rows without a label on the label axis, after 0 and 1."""

Counts = NDArray[np.int64]
_STEPS = 100
_BINS = _STEPS + 2  # a score on the lowest edge is above none, one on the highest above all others


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
    >>> found = AuditCounts.from_rows([1, None, 0], [1, 1, 0], sensitive_features=["F", "M", None])
    >>> found.attributes[0].groups, found.decided.sum(axis=(0, 1)).tolist()
    (('F', 'M', '?'), [[1, 0], [0, 1], [0, 1]])
    """

    decided: Counts
    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    grid: ScoreGrid | None
    scored: Counts | None
    sums: tuple[ScoreSums, ...] | None
    hidden: NDArray[np.bool_]
    withheld: Counts

    def __post_init__(self) -> None:
        k, cells = len(self.clients), Cells(self.attributes).size
        if len(set(self.clients)) < k:
            raise DataError(f"audit: clients {list(self.clients)} contain a name twice")
        for name, shape, kind in (
            ("decided", (k, cells, 3, 2), "i"),
            ("scored", (k, cells, 3, _BINS), "i"),
            ("hidden", (k, cells, 3), "b"),
            ("withheld", (k,), "i"),
        ):
            given = getattr(self, name)
            if given is None:
                continue
            if given.shape != shape or given.dtype.kind != kind:
                said = f"{given.dtype} {given.shape}"
                raise DataError(f"audit: {name} are {said}; expected {shape}")
            if kind == "i" and (given < 0).any():
                raise DataError(f"audit: {name} hold a negative number of rows")
            given.setflags(write=False)
        if (self.rows[self.hidden] > 0).any():
            raise DataError("audit: rows are counted in entries that were withheld")
        self._check_scores(k)

    def _check_scores(self, k: int) -> None:
        if (self.grid is None) != (self.scored is None):
            raise DataError("audit: counts of scores and their grid belong together")
        if self.scored is not None and (self.scored.sum(axis=3) != self.rows).any():
            raise DataError("audit: scores are counted on other rows than decisions")
        if self.sums is not None and len(self.sums) != k:
            raise DataError(f"audit: sums of scores of {len(self.sums)} clients; expected {k}")
        for own, rows in zip(self.sums or (), self.rows, strict=False):
            if not np.array_equal(own.counts, rows[:, :UNKNOWN]):
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
        grid = None if scores is None else grid or ScoreGrid()
        bins = np.zeros(0, dtype=np.intp)
        if grid is not None:
            bins = grid.bins(scores)
            lengths["scores"] = len(bins)
        rows = CodedRows.of(sensitive_features, clients, attributes, lengths=lengths)
        counts = rows.counted(2 * label + decisions, 6)
        shape = counts.shape[:2]
        scored, sums = None, None
        if grid is not None:
            scored = rows.counted(_BINS * label + bins, 3 * _BINS).reshape(*shape, 3, _BINS)
            sums = _sums(scores, rows, label) if grid.probabilities else None
        return cls(
            decided=counts.reshape(*shape, 3, 2),
            clients=rows.clients,
            attributes=rows.attributes,
            grid=grid,
            scored=scored,
            sums=sums,
            hidden=np.zeros((*shape, 3), dtype=bool),
            withheld=np.zeros(shape[0], dtype=np.int64),
        )

    @staticmethod
    def strata_of(
        y_true: Any, *, sensitive_features: Any, attributes: Sequence[Attribute], rows: int
    ) -> NDArray[np.intp]:
        """Return where each of `rows` rows is counted, 3·cell + label; arguments as above."""
        lengths = {"y_pred": rows}
        coded = CodedRows.of(sensitive_features, None, attributes, lengths=lengths)
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
        names = [self.cells.decode(cell) for cell in range(self.cells.size)]
        small = np.array(
            [hidden_cells(table, names, minimum) for table in self.rows], dtype=bool
        ).reshape(self.rows.shape)
        return self.without(small, minimum)

    def without(self, small: NDArray[np.bool_], minimum: int) -> AuditCounts:
        """Withhold these (client, cell, label) entries.

        Of a client with fewer than `minimum` rows not even their number is disclosed.
        """
        count = np.where(small, self.rows, 0).sum(axis=(1, 2))
        unsaid = small.all(axis=(1, 2)) & (count < minimum)
        return replace(
            self,
            decided=np.where(small[..., None], 0, self.decided),
            scored=None if self.scored is None else np.where(small[..., None], 0, self.scored),
            sums=None if self.sums is None else tuple(map(_without, self.sums, small)),
            hidden=self.hidden | small,
            withheld=self.withheld + np.where(unsaid, minimum - 1, count),
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
        rows = slice(place, place + 1)
        return replace(
            self,
            decided=self.decided[rows],
            clients=self.clients[rows],
            scored=None if self.scored is None else self.scored[rows],
            sums=None if self.sums is None else self.sums[rows],
            hidden=self.hidden[rows],
            withheld=self.withheld[rows],
        )

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
    known = ~np.asarray(pd.isna(column), dtype=bool)
    label = np.full(len(column), UNKNOWN, dtype=np.intp)
    label[known] = binary_column(column[known], "y_true")
    return label


def _sums(scores: Any, rows: CodedRows, label: NDArray[np.intp]) -> tuple[ScoreSums, ...]:
    """Sum each client's scores over its rows that have a label."""
    row_scores, size = RowScores.from_probabilities(scores), Cells(rows.attributes).size
    sums = []
    for client in range(len(rows.clients)):
        chosen = (rows.client == client) & (label != UNKNOWN)
        sums.append(
            ScoreSums.from_rows(row_scores[chosen], rows.cell[chosen], label[chosen], size=size)
        )
    return tuple(sums)


def _without(sums: ScoreSums, hidden: NDArray[np.bool_]) -> ScoreSums:
    """Return sums with 0 in the (cell, label) entries that are hidden."""
    shown = ~hidden[:, :UNKNOWN]
    return ScoreSums(
        histogram=ScoreHistogram(sums.histogram.counts * shown[..., None]),
        rows=sums.rows * shown[..., None],
        sums=sums.sums * shown[..., None],
        losses=sums.losses * shown,
    )
