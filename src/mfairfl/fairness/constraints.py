"""What is asked of decisions, as constraints; their prices; the best accuracy under them.

`Goal` names notions, attributes and tolerance. `Constraints` are F_e − F_{e,g} of some notions on
some groupings. With signed multipliers μ the constraint term is a mean of per-row prices,

    Σ_j μ_j (F_e − F_{e,g}) = (1/n) Σ_i u(i) f_i,
    u(i) = Σ_{j: i ∈ e} [ μ_j n/n_e − 1{i ∈ g} μ_j n/n_{e,g} ],

so u depends on a row only through its (cell, label), and no client needs another's rows. A row of
which the attribute is not recorded is in no event e of its groups: there its price is 0.

`frontier` is a linear programme over P(ŷ=1 | cell, y): it knows labels and groups and nothing
else, so no classifier, however good its features, does better. A published row above it cannot be
one model.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError, require_known
from mfairfl.fairness.cells import Cells, Grouping, Statistics
from mfairfl.fairness.notions import Notion, notion
from mfairfl.fairness.rates import divide
from mfairfl.fairness.tally import Tally

Floats = NDArray[np.float64]
Kind = Literal["hard", "smooth"]
_SURELY_MET = 1.96 + 1.28  # half a 95 % interval, and what one of ten samples is above the mean


class Constraints:
    """An index over (notion, event, grouping, group); all results are arrays over it.

    Parameters
    ----------
    cells
        The cells of the task.
    notions
        One notion or several.
    groupings
        Which groups are compared; by default the marginal of every attribute. Without attributes
        there are no constraints, and the violation is nan.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> from mfairfl.fairness.notions import notion
    >>> constraints = Constraints(Cells((Attribute("sex", ("F", "M")),)), notion("dp"))
    >>> constraints.labels
    (('demographic_parity', 'all', 'sex', 'F'), ('demographic_parity', 'all', 'sex', 'M'))
    >>> n = [[30, 10], [20, 40]]
    >>> score_price, loss_price = constraints.prices([0.3, -0.1], n)
    >>> score_price.round(3).tolist()
    [[-0.55, -0.55], [0.367, 0.367]]
    """

    __slots__ = ("_event", "_member", "_statistic", "cells", "groupings", "labels", "notions")

    def __init__(
        self,
        cells: Cells,
        notions: Notion | Iterable[Notion],
        groupings: Iterable[Grouping] | None = None,
    ) -> None:
        self.cells = cells
        self.notions = (notions,) if isinstance(notions, Notion) else tuple(notions)
        self.groupings = tuple(cells.groupings() if groupings is None else groupings)
        rows = [
            (notion, event, grouping, index)
            for notion in self.notions
            for event in notion.events
            for grouping in self.groupings
            for index in range(len(grouping.groups))
        ]
        if not rows and (cells.attributes or not self.notions):
            raise ConfigError("constraints need a notion and a sensitive attribute; name them")
        self.labels = tuple(
            (notion.name, event.name, grouping.name, grouping.groups[index])
            for notion, event, grouping, index in rows
        )
        self._statistic = np.array([notion.statistic for notion, _, _, _ in rows], dtype=np.str_)
        self._event, self._member = np.zeros((2, len(rows), cells.size, 2), dtype=np.bool_)
        for j, (_, event, grouping, index) in enumerate(rows):
            # Who is not recorded is in no group, nor in the overall rate they are compared with.
            self._event[j][:, event.labels] = grouping.compared[:, None]
            self._member[j][:, event.labels] = grouping.membership[index][:, None]

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self, counts: ArrayLike) -> tuple[Floats, Floats]:
        """Return n_e and n_{e,g} for each constraint, from the (C, 2) counts of rows."""
        n = self._table(counts)
        return _over(self._event, n), _over(self._member, n)

    @staticmethod
    def capped(
        score: Floats, loss: Floats, cap: float, against: float, shared: float
    ) -> tuple[Floats, Floats]:
        """Return the prices on σ and on the loss, per (cell, label), within their caps.

        A price that pushes a row towards its label (down for y = 0, up for y = 1) works like a
        weight and stays within `cap`. One that pushes it away stays within `against`: at a price
        of 2 the rows of a group begin to flip all at once. So do prices on the loss.

        What both labels of a cell have in common of a push towards their labels moves no
        threshold: the cell's rows only count more, and a flexible model learns them by heart. It
        stays within `shared`.
        """
        towards_label = np.array([1.0, -1.0])
        common = (score * towards_label).min(axis=1, keepdims=True)
        score = score - towards_label * np.maximum(common - shared, 0.0)
        low, high = np.array([-against, -cap]), np.array([cap, against])
        return np.clip(score, low, high), np.clip(loss, -against, against)

    def limits(self, counts: ArrayLike, cap: float) -> Floats:
        """Return cap·n_{e,g}/n: a multiplier beyond it alone prices its group's rows over `cap`.

        Integrating further would change no price of that group, only the others', and would have
        to be undone before the price comes back (wind-up). Errors and losses have no limit: a
        group's own may be as low as they get, and parity then needs the others' to rise. Nor has a
        group without rows, which has no price.
        """
        _, members = self.counts(counts)
        share = members / max(1.0, float(np.sum(counts)))
        limited = (self._statistic == "selection") & (members > 0)
        return np.where(limited, cap * share, np.inf)

    def margin(self, counts: ArrayLike) -> float:
        """Return how far below a tolerance to aim, so that rows like these show it to be met.

        A tolerance is met if the whole 95 % interval of the violation lies within it. For that to
        happen in nine of ten samples of as many rows, the violation has to stay below it by
        1.96 + 1.28 standard errors of the gap.

        Parameters
        ----------
        counts
            The (C, 2) counts of the rows that will be measured.
        """
        return _SURELY_MET * self.standard_error(counts)

    def standard_error(self, counts: ArrayLike) -> float:
        """Return the largest standard error of a gap on as many rows of each cell and label.

        It is √(q(1 − q)(1/n_{e,g} − 1/n_e)), with the event's share of favourable labels for the
        unknown rate q, or ½ where that share is 0 or 1.
        """
        n = self._table(counts)
        of_event, of_group = self.counts(n)
        favourable = np.where(self._event, n, 0.0)[:, :, 1].sum(axis=1)
        rows = np.column_stack([of_event, of_group, favourable])[of_group > 0]
        of_event, of_group, favourable = rows.T
        rate = favourable / of_event
        spread = np.where((rate > 0) & (rate < 1), rate * (1.0 - rate), 0.25)
        errors = np.sqrt(spread * (1.0 / of_group - 1.0 / of_event))
        return float(np.max(errors, initial=0.0))

    def rates(self, statistics: Statistics, kind: Kind = "hard") -> tuple[Floats, Floats]:
        """Return F_e and F_{e,g}; nan where the event or the group in it has no rows.

        Parameters
        ----------
        statistics
            Sums over the data (one client's, or pooled).
        kind
            ``hard``: thresholded decisions; ``smooth``: σ(z). A loss is the same in both.
        """
        require_known("kind of rate", [kind], get_args(Kind))
        n = self._table(statistics.counts)
        chosen = statistics.positives if kind == "hard" else statistics.scores
        error = np.column_stack([chosen[:, 0], n[:, 1] - chosen[:, 1]])
        sums = {"selection": chosen, "error": error, "loss": statistics.losses}
        values = np.array([sums[name] for name in self._statistic.tolist()]).reshape(-1, *n.shape)
        overall, group = (
            divide(_over(mask, values), _over(mask, n)) for mask in (self._event, self._member)
        )
        return overall, group

    def gaps(self, statistics: Statistics, kind: Kind = "hard") -> Floats:
        """Return the signed gaps d = F_e − F_{e,g}; nan where undefined, never 0."""
        overall, group = self.rates(statistics, kind)
        return overall - group

    def violation(self, statistics: Statistics, kind: Kind = "hard") -> float:
        """Return the largest |d| over the defined constraints; nan if none is defined."""
        gaps = np.abs(self.gaps(statistics, kind))
        defined = gaps[~np.isnan(gaps)]
        return float(defined.max()) if defined.size else float("nan")

    def largest_gap(self, statistics: Statistics) -> tuple[float, str]:
        """Return the largest |d| of hard rates; nan, and why, if one is undefined."""
        gaps = np.abs(self.gaps(statistics))
        empty = np.flatnonzero(np.isnan(gaps))
        if not empty.size:
            return float(gaps.max()), ""
        _, _, attribute, group = self.labels[empty[0]]
        return math.nan, f"group '{group}' of '{attribute}' has no rows"

    def influence(self, counts: ArrayLike) -> Floats:
        """Return the (J, C, 2) weight of one row's f in each gap: 1/n_e − 1{i ∈ g}/n_{e,g}.

        Undefined constraints get weight 0: an empty group can neither be measured nor moved.
        """
        n_event, n_group = self.counts(counts)
        of_event, of_group = n_event[:, None, None], n_group[:, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            weight: Floats = self._event / of_event - self._member / of_group
        weight[n_group == 0] = 0.0
        return weight

    def selected_weights(self, counts: ArrayLike) -> tuple[Floats, Floats]:
        """Return W (J, C, 2) and o with gaps F_e − F_{e,g} = Σ_{c,y} W·selected + o.

        The errors of a cell are its selected rows if y = 0 and the others if y = 1. Gaps of losses
        do not depend on decisions: not for constraints on them.
        """
        n, weight = self._table(counts), self.influence(counts)
        error = self._statistic == "error"
        offset = np.where(error, weight[:, :, 1] @ n[:, 1], 0.0)
        weight[error, :, 1] *= -1.0
        return weight, offset

    def prices(
        self, multipliers: ArrayLike, counts: ArrayLike, *, one_sided: bool = False
    ) -> tuple[Floats, Floats]:
        """Return the price per row on σ(z) and on the loss, each a (C, 2) table.

        Adding mean_i [score_price·σ(z_i) + loss_price·ℓ_i] to the objective adds
        Σ μ (F_e − F_{e,g}) up to a constant: the error |σ − y| of a row is σ if y = 0 and 1 − σ
        if y = 1, so an error price u becomes +u and −u on σ, and the constant u·1{y=1} is left
        out.

        Parameters
        ----------
        multipliers
            One signed multiplier for each constraint, in the order of `labels`.
        counts
            The (C, 2) counts of rows of the whole federation.
        one_sided
            Where errors (or losses) of a cell must *rise*, price false positives only: a negative
            price on |σ − y| or on the loss leaves thresholded decisions unmoved until it flips
            all of them at once. No longer the exact gradient of the Lagrangian.
        """
        mu = np.asarray(multipliers, dtype=np.float64)
        if mu.shape != (len(self),) or not np.isfinite(mu).all():
            raise ConfigError(
                f"multipliers of shape {mu.shape}: give {len(self)} finite numbers, one per label"
            )
        n = self._table(counts)
        weighted = n.sum() * mu[:, None, None] * self.influence(n)
        score = weighted[self._statistic == "selection"].sum(axis=0)
        error = weighted[self._statistic == "error"].sum(axis=0)
        loss: Floats = weighted[self._statistic == "loss"].sum(axis=0)
        if one_sided:
            falling = np.minimum(error, 0.0) + np.minimum(loss, 0.0)
            score = score + falling * np.array([1.0, 0.0])
            error, loss = np.maximum(error, 0.0), np.maximum(loss, 0.0)
        score = score + error * np.array([1.0, -1.0])
        # A (cell, label) without rows carries no price.
        empty = n == 0
        return np.where(empty, 0.0, score), np.where(empty, 0.0, loss)

    def _table(self, counts: ArrayLike) -> Floats:
        n = np.asarray(counts, dtype=np.float64)
        if n.shape != (self.cells.size, 2):
            raise DataError(f"counts have shape {n.shape}; expected ({self.cells.size}, 2)")
        if not np.isfinite(n).all() or (n < 0).any():
            raise DataError("counts hold a negative or missing number; send sums of rows")
        return n


def _over(mask: NDArray[np.bool_], values: Floats) -> Floats:
    """Sum `values` ((C, 2) or (J, C, 2)) over each constraint's mask."""
    return np.asarray(np.where(mask, values, 0.0).sum(axis=(1, 2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The constraint |F_e − F_{e,g}| ≤ dead_zone for every event, group and notion chosen.

    Parameters
    ----------
    notions : tuple of str
        Names or aliases of notions; several hold together.
    attributes : tuple of str, optional
        Sensitive attributes; None means all of the task.
    intersections : bool
        Whether every intersection of the attributes is constrained as well.
    dead_zone : float
        Gaps up to here are left alone.

    Examples
    --------
    >>> sex = Attribute("sex", ("F", "M"))
    >>> len(Goal(notions=("eo",)).constraints((sex,)))  # two labels × two groups
    4
    >>> age = Attribute("age", ("young", "old"))
    >>> len(Goal().constraints((sex, age))), len(Goal(attributes=("sex",)).constraints((sex, age)))
    (4, 2)
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # when it is read from text

    notions: tuple[str, ...] = ("demographic_parity",)
    attributes: tuple[str, ...] | None = None
    intersections: bool = False
    dead_zone: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.dead_zone <= 1:
            raise ConfigError(f"fairness.dead_zone must lie in [0, 1], not {self.dead_zone}")
        for name in self.notions:
            notion(name)

    def constraints(self, attributes: Sequence[Attribute]) -> Constraints:
        """Return the constraints of this goal on a task with these attributes."""
        cells = Cells(tuple(attributes))
        groupings = cells.groupings(self.attributes, self.intersections)
        return Constraints(cells, [notion(name) for name in self.notions], groupings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrontierPoint:
    """The best accuracy and the (C, 2) rates P(ŷ=1 | cell, y) that reach it (nan: no rows).

    Examples
    --------
    >>> point = frontier([[6, 4], [2, 8]], demographic_parity=0.0)
    >>> round(point.accuracy, 3), point.rates.shape
    (0.8, (2, 2))
    """

    accuracy: float
    rates: Floats


def frontier(
    rows: Tally | ArrayLike,
    *,
    attributes: Sequence[Attribute] | None = None,
    **bounds: float | None,
) -> FrontierPoint:
    """Return the most accurate decision rates within the bounds.

    Parameters
    ----------
    rows
        A tally (its decisions are ignored), or a table n[cell, label] of counts or joint shares.
    attributes
        The attributes whose cells the table's rows are; by default one attribute.
    **bounds
        The largest allowed violation of a notion, for every attribute, by the notion's name
        (``demographic_parity=0.05``); None is no bound.

    Examples
    --------
    >>> point = frontier([[10, 30], [30, 10]], demographic_parity=0.0)
    >>> round(point.accuracy, 6)
    0.75
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to load, rarely needed

    if isinstance(rows, Tally):
        if attributes is not None:
            raise ConfigError("a Tally holds its own attributes; pass it without attributes=")
        attributes, rows = rows.attributes, rows.counts.sum(axis=(0, 3))
    n = np.asarray(rows, dtype=np.float64)
    if attributes is None:
        attributes = [Attribute("group", tuple(str(index) for index in range(len(n))))]
    cells = Cells(tuple(attributes))
    if n.shape != (cells.size, 2):
        raise DataError(f"rows: shape {n.shape}; expected ({cells.size}, 2), cells by labels")
    if not np.isfinite(n).all() or (n < 0).any() or not n.sum() > 0:
        raise DataError("rows: counts must be finite, 0 or more, and not all 0")
    present = n > 0
    label = np.broadcast_to(np.array([-1.0, 1.0]), n.shape)
    gain = (label * n / n.sum())[present]  # accuracy = P(y=0) + gain · rates
    left, right = [np.zeros((0, gain.size))], [np.zeros(0)]
    for name, bound in bounds.items():
        if bound is None:
            continue
        if not (math.isfinite(bound) and bound >= 0):
            raise ConfigError(f"{name} = {bound}; use a bound of 0 or more, or None")
        if notion(name).statistic == "loss":
            reason = "compares losses, which decisions do not determine"
            raise ConfigError(f"{name} {reason}; leave it out")
        weight, offset = Constraints(cells, notion(name)).selected_weights(n)
        matrix = (weight * n)[:, present]
        left += [matrix, -matrix]
        right += [bound - offset, bound + offset]
    result = linprog(-gain, A_ub=np.vstack(left), b_ub=np.concatenate(right), bounds=(0.0, 1.0))
    if result.status != 0:  # ŷ drawn by a fair coin meets every bound: this is a solver's failure
        raise RuntimeError(f"linear programme not solved: {result.message}")
    rates = np.full(n.shape, np.nan)
    rates[present] = result.x
    return FrontierPoint(accuracy=float(n[:, 0].sum() / n.sum() - result.fun), rates=rates)
