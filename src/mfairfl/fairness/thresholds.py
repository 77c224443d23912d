"""Rules that turn scores into decisions: thresholds for everyone, groups, clients, or both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, StrictFloat, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import DataError, first_problem
from mfairfl.fairness.histogram import ScoreHistogram, checked_rows

Floats = NDArray[np.float64]

_ROUNDING = 1e-9  # of a sum of probabilities
_CONSTANTS: dict[Any, float] = {"always": -math.inf, "never": math.inf}  # JSON has no infinity


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """For each cell a distribution over R thresholds on the logit.

    Attributes
    ----------
    values, probabilities
        Both (C, R), or (1, R) if all cells are decided alike. −∞ selects always, +∞ never; unused
        places have probability 0.
    clients
        The rules of clients with rules of their own; everyone else is decided by this one.

    Examples
    --------
    >>> rule = Thresholds([[0.0, 1.0], [0.5, 0.0]], [[0.25, 0.75], [1.0, 0.0]])
    >>> rule.positive_probability([0.5, 1.0, 0.5], [0, 0, 1]).tolist()
    [0.25, 1.0, 1.0]
    >>> alike = Thresholds([[0.0]], [[1.0]], {"north": Thresholds([[1.0]], [[1.0]])})
    >>> alike.reads_group, alike.of("north").positive_probability([0.5, 1.5]).tolist()
    (False, [0.0, 1.0])
    """

    values: Floats
    probabilities: Floats
    clients: Mapping[str, Thresholds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("values", "probabilities"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        shape = self.values.shape
        if shape != self.probabilities.shape or len(shape) != 2 or 0 in shape:
            raise DataError(
                f"thresholds: values {shape} and probabilities {self.probabilities.shape}; "
                "expected two arrays of one shape (cells, thresholds)"
            )
        if np.isnan(self.values).any():
            raise DataError("thresholds: values hold nan; use a number, −inf or inf")
        sums = self.probabilities.sum(axis=1)
        good = (self.probabilities >= 0).all(axis=1) & (np.abs(sums - 1.0) <= _ROUNDING)
        if not good.all():
            cell = int(np.argmin(good))
            raise DataError(
                f"thresholds: cell {cell} has probabilities {self.probabilities[cell].tolist()}; "
                "they must be 0 or more and sum to 1"
            )
        for client, rule in self.clients.items():
            if rule.clients or len(rule.values) != len(self.values):
                raise DataError(
                    f"thresholds: those of client '{client}' are for {len(rule.values)} cells; "
                    f"expected {len(self.values)}, and no clients within a client"
                )

    @property
    def reads_group(self) -> bool:
        """Whether a decision needs to know a person's cell."""
        return len(self.values) > 1

    @property
    def randomised(self) -> bool:
        """Whether two people with the same data may get different decisions."""
        rules = [self, *self.clients.values()]
        return any(((rule.probabilities > 0).sum(axis=1) > 1).any() for rule in rules)

    def of(self, client: str) -> Thresholds:
        """Return the rule that decides a client's rows."""
        if not self.clients:
            return self
        return self.clients.get(client) or Thresholds(self.values, self.probabilities)

    def positive_probability(
        self,
        logits: ArrayLike,
        cells: ArrayLike | None = None,
        owners: Sequence[str] | str | None = None,
    ) -> Floats:
        """Return each row's probability of decision 1: Σ_r p[c, r]·1{z ≥ t[c, r]}.

        Parameters
        ----------
        logits
            Of each row.
        cells
            Each row's cell; only for rules that read the group.
        owners
            Each row's client, or that of all rows; only for rules with `clients`.
        """
        if self.clients:
            return self._by_owner(logits, cells, owners)
        if not self.reads_group:
            cells = np.zeros(np.shape(logits), dtype=np.intp)
        elif cells is None:
            raise DataError("thresholds of groups: the rows' cells are needed to decide")
        z, cell = checked_rows(logits, cells, len(self.values))
        passed = z[:, None] >= self.values[cell]
        chance: Floats = np.where(passed, self.probabilities[cell], 0.0).sum(axis=1)
        return np.minimum(chance, 1.0)  # a sum of shares may round to a hair above 1

    def _by_owner(
        self, logits: ArrayLike, cells: ArrayLike | None, owners: Sequence[str] | str | None
    ) -> Floats:
        if owners is None:
            raise DataError("thresholds of clients: the rows' clients are needed to decide")
        if isinstance(owners, str):
            return self.of(owners).positive_probability(logits, cells)
        z, names = np.asarray(logits, dtype=np.float64), np.asarray(owners, dtype=object)
        chance = np.empty(len(z))
        for owner in dict.fromkeys(owners):
            rows = names == owner
            of_rows = None if cells is None else np.asarray(cells)[rows]
            chance[rows] = self.of(owner).positive_probability(z[rows], of_rows)
        return chance

    def bin_chances(self, histogram: ScoreHistogram) -> Floats:
        """Return the probability of decision 1 by cell and bin of the logit, (C, B).

        Exact if every threshold is an edge of the histogram's bins.

        Examples
        --------
        >>> rows = ScoreHistogram.from_logits([-3.0, 0.5], [0, 0], [0, 1], size=1, bins=4)
        >>> Thresholds([[0.0, 4.0]], [[0.75, 0.25]]).bin_chances(rows).tolist()
        [[0.0, 0.0, 0.75, 1.0]]
        """
        lower = histogram.thresholds[:-1]
        passed = lower[None, None, :] >= self.values[:, :, None]
        chance = np.minimum((passed * self.probabilities[:, :, None]).sum(axis=1), 1.0)
        return np.broadcast_to(chance, (histogram.shape[0], len(lower)))

    def to_json(self) -> dict[str, Any]:
        """Return plain lists; −∞ is written ``always``, +∞ ``never``."""
        names = {value: name for name, value in _CONSTANTS.items()}
        values = [[names.get(value, value) for value in row] for row in self.values.tolist()]
        document: dict[str, Any] = {"values": values, "probabilities": self.probabilities.tolist()}
        if self.clients:
            document["clients"] = {name: rule.to_json() for name, rule in self.clients.items()}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Thresholds:
        """Return the thresholds that `to_json` wrote.

        Examples
        --------
        >>> rule = Thresholds([[-np.inf, 0.5]], [[0.5, 0.5]])
        >>> rule.to_json()
        {'values': [['always', 0.5]], 'probabilities': [[0.5, 0.5]]}
        >>> Thresholds.from_json(rule.to_json()).values.tolist()
        [[-inf, 0.5]]
        """
        try:
            stored = _StoredThresholds.model_validate(document)
        except ValidationError as error:
            raise DataError(f"thresholds: {first_problem(error)}; write them by to_json") from None
        rules = {name: rule.arrays() for name, rule in stored.clients.items()}
        return cls(*stored.arrays(), {name: cls(*arrays) for name, arrays in rules.items()})


class _StoredRule(StrictModel):
    """One rule as `Thresholds.to_json` writes it."""

    values: list[list[StrictFloat | Literal["always", "never"]]]
    probabilities: list[list[StrictFloat]]

    def arrays(self) -> tuple[Floats, Floats]:
        """Return values and probabilities."""
        values = [[_CONSTANTS.get(value, value) for value in row] for row in self.values]
        lengths = {len(row) for row in values} | {len(row) for row in self.probabilities}
        if len(lengths) > 1:
            raise DataError("thresholds: lists differ in length; was the file cut?")
        return np.array(values, dtype=np.float64), np.array(self.probabilities)


class _StoredThresholds(_StoredRule):
    """A rule and those of clients."""

    clients: dict[str, _StoredRule] = Field(default_factory=dict)
