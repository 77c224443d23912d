"""AuditCounts as they are kept in audit.json: what is not zero, line by line."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from mfairfl.data import Attribute
from mfairfl.data.values import DocumentedModel
from mfairfl.errors import DataError, MfairflError
from mfairfl.fairness.audit_counts import UNKNOWN, AuditCounts, ScoreGrid
from mfairfl.fairness.cells import Cells

_BINS = len(ScoreGrid().edges) + 1
_Bin = Annotated[int, Field(ge=0, lt=_BINS)]
_MOST_CELLS = 1_000_000  # a damaged file must not ask for all memory


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
    scores: dict[_Bin, NonNegativeInt] = Field(default_factory=dict)
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
        shown = (counts.rows > 0) | counts.hidden
        rows = []
        for k, c, y in zip(*(axis.tolist() for axis in np.nonzero(shown)), strict=True):
            refused, selected = counts.decided[k, c, y].tolist()
            scored = [] if counts.scored is None else counts.scored[k, c, y].tolist()
            rows.append(
                CountedRows(
                    client=counts.clients[k],
                    groups=counts.cells.decode(c),
                    label=None if y == UNKNOWN else y,
                    refused=refused,
                    selected=selected,
                    scores={at: n for at, n in enumerate(scored) if n},
                    hidden=bool(counts.hidden[k, c, y]),
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
        place = {cells.decode(cell): cell for cell in range(cells.size)}
        client = {name: k for k, name in enumerate(self.clients)}
        seen = set()
        for row in self.rows:
            if row.client not in client or row.groups not in place:
                raise DataError(f"counts: client '{row.client}', groups {row.groups} are unknown")
            label = UNKNOWN if row.label is None else row.label
            at = (client[row.client], place[row.groups], label)
            if at in seen:
                raise DataError(f"counts: client '{row.client}', groups {row.groups} occur twice")
            seen.add(at)
            decided[at], hidden[at] = (row.refused, row.selected), row.hidden
            if scored is not None:
                scored[at][list(row.scores)] = list(row.scores.values())
        return AuditCounts(
            decided=decided,
            clients=self.clients,
            attributes=attributes,
            grid=grid,
            scored=scored,
            sums=None,
            hidden=hidden,
            withheld=np.array(self.withheld, dtype=np.int64),
        )
