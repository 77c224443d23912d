"""FairBatch: groups that fare badly get heavier rows; the weights follow the measured gaps.

Y. Roh, K. Lee, S. E. Whang, C. Suh: FairBatch: Batch Selection for Model Fairness. ICLR 2021.
Y. Zeng, H. Chen, K. Lee: Improving Fairness via Federated Learning. 2021 (FedFB).

Symbols: constraint j = (event e, group z) with n_{e,z} of the n rows of which the attribute is
recorded (normally all; others weigh 1), p_j = n_{e,z}/n, and q_z = n_{e,z}/n_e its share of the
event; λ_j the mass that stands for it, at first p_j; F_e and F_{e,z} the rates, and
d_j = F_e − F_{e,z}.

Weight of a row, A = 1 + Σ_j of the deviations from 1 that its groups bring:
- demographic parity: λ_z/p_z on y = 0 and 2 − λ_z/p_z on y = 1,
- equal opportunity, equalized odds, accuracy parity: λ_j/p_j on the rows of (e, z).
So several attributes (or notions) add their deviations; a weight never falls below 0.

Move: λ_z ← λ_z ± a · 2 q_z d_z / Σ_g q_g (1 − q_g), with + where heavier rows raise the rate
(y = 1 alone) and − elsewhere; then λ_z ∈ [0, 2 p_z] for demographic parity, λ ≥ 0 with an
unchanged sum for the others. The papers compare every group with group 0. This move is the mean of
theirs over all pairs of groups, the pair (g, z) weighted by q_g q_z: for two groups it is theirs,
for more it does not depend on which group is called 0.

Rates are those of the decisions or, as in the papers, cross-entropies in the place of errors
(`surrogate`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import Statistic
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Summary
from mfairfl.training.plan import dead_zone

Driver = Literal["loss", "rates"]


class _Block(NamedTuple):
    """The groups that are compared with one another: one notion, event and grouping."""

    at: slice
    statistic: Statistic
    labels: tuple[int, ...]
    membership: NDArray[np.bool_]

    @property
    def balances_labels(self) -> bool:
        """Whether mass moves between a group's two labels (demographic parity)."""
        return self.statistic == "selection" and len(self.labels) == 2

    @property
    def pattern(self) -> tuple[float, float]:
        """What a deviation δ adds to the weight of a row with y = 0 and with y = 1."""
        if self.balances_labels:
            return 1.0, -1.0
        return float(0 in self.labels), float(1 in self.labels)

    @property
    def direction(self) -> float:
        """Whether λ grows (+1) or shrinks (−1) where the rate is below the overall one."""
        return 1.0 if self.statistic == "selection" and self.labels == (1,) else -1.0


def _blocks(constraints: Constraints) -> Iterator[_Block]:
    """Cut the constraints, in the order of their labels, into blocks."""
    at = 0
    for notion in constraints.notions:
        for event in notion.events:
            for grouping in constraints.groupings:
                end = at + len(grouping.groups)
                yield _Block(slice(at, end), notion.statistic, event.labels, grouping.membership)
                at = end


@dataclass(frozen=True, slots=True, kw_only=True)
class FairBatch:
    """How λ moves and what rows weigh; symbols and formulas at the top of the module.

    Parameters
    ----------
    constraints : Constraints
        What is to be made equal.
    counts : ndarray (C, 2)
        The rows that λ speaks of: the federation's, or one client's own.
    driven_by : {"loss", "rates"}
        Whether cross-entropies or decisions are compared.
    alpha : float
        Gaps up to here are left alone.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> from mfairfl.fairness.constraints import Goal
    >>> constraints = Goal(notions=("dp",)).constraints((Attribute("sex", ("F", "M")),))
    >>> counts = np.array([[30.0, 10.0], [40.0, 20.0]])
    >>> rule = FairBatch(constraints=constraints, counts=counts)
    >>> rule.masses().tolist()
    [0.4, 0.6]
    >>> rule.weights(np.array([0.3, 0.6])).round(12).tolist()
    [[0.75, 1.25], [1.0, 1.0]]
    """

    constraints: Constraints
    counts: Floats
    driven_by: Driver = "loss"
    alpha: float = 0.0

    @classmethod
    def of(cls, summary: Summary, counts: Floats, driven_by: Driver) -> Self:
        """Return the rule of a run's goal for these rows."""
        constraints, alpha = summary.constraints, summary.goal.dead_zone
        return cls(constraints=constraints, counts=counts, driven_by=driven_by, alpha=alpha)

    def masses(self) -> Floats:
        """Return p_j = n_{e,z}/n for each constraint: the λ with which every row weighs 1."""
        groups = self.constraints.counts(self.counts)[1]
        for block in _blocks(self.constraints):
            rows = float((block.membership @ self.counts).sum())
            if rows > 0:
                groups[block.at] /= rows
        return groups

    def weights(self, lam: Floats) -> Floats:
        """Return the weight A of a row per (cell, label), given λ."""
        base = self.masses()
        deviation = np.divide(lam, base, out=np.ones_like(base), where=base > 0) - 1
        table = np.ones((self.constraints.cells.size, 2))
        for block in _blocks(self.constraints):
            table += np.outer(deviation[block.at] @ block.membership, block.pattern)
        return np.maximum(table, 0.0)

    def moved(self, lam: Floats, statistics: Statistics, step: float) -> Floats:
        """Return λ after a step on sums at the present weights; absent groups move nothing."""
        compared = surrogate(statistics) if self.driven_by == "loss" else statistics
        gaps = np.nan_to_num(self.constraints.gaps(compared), nan=0.0)
        gaps = dead_zone(gaps, self.alpha)
        events, groups = self.constraints.counts(statistics.counts)
        shares = np.divide(groups, events, out=np.zeros_like(groups), where=events > 0)
        base, after = self.masses(), lam.copy()
        for block in _blocks(self.constraints):
            at, q = block.at, shares[block.at]
            # Centred, what some groups gain others lose, with a dead zone as without.
            centred = gaps[at] - q @ gaps[at]
            after[at] += step * block.direction * moves(centred, q)
            if block.balances_labels:
                after[at] = np.clip(after[at], 0.0, 2 * base[at])
            else:
                after[at] = with_sum(np.maximum(after[at], 0.0), float(base[at].sum()))
        return after


def surrogate(statistics: Statistics) -> Statistics:
    """Return the statistics with cross-entropies in the place of errors.

    A row counts as misjudged by its loss instead of by 0 or 1, so the number of favourable
    decisions becomes L_0 among rows with y = 0 and n_1 − L_1 among rows with y = 1.
    """
    n, losses = statistics.counts, statistics.losses
    return replace(statistics, positives=np.column_stack([losses[:, 0], n[:, 1] - losses[:, 1]]))


def moves(gaps: Floats, shares: Floats) -> Floats:
    """Return 2 q_z d_z / Σ_g q_g (1 − q_g): how far a step of size 1 goes for each group.

    Examples
    --------
    >>> moves(np.array([0.3, -0.1]), np.array([0.25, 0.75])).round(12).tolist()  # ±(F_0 − F_1)
    [0.4, -0.4]
    """
    pairs = float((shares * (1 - shares)).sum())
    return 2 * shares * gaps / pairs if pairs > 0 else np.zeros_like(gaps)


def with_sum(values: Floats, total: float) -> Floats:
    """Scale non-negative values to a sum; zeros stay zeros.

    Examples
    --------
    >>> with_sum(np.array([0.0, 1.0, 3.0]), 1.0).tolist()
    [0.0, 0.25, 0.75]
    """
    return values * (total / values.sum()) if values.any() else values
