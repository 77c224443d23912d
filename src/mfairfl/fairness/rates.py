"""Numbers from counts[…, client, cell, y, ŷ]: the arithmetic behind metrics and intervals.

Everything here is vectorised over leading axes (resampled tallies) and is nan where a rate has no
rows. Differences, ratios and client spreads are all built on a seminorm N of a vector v of rates,
which is what makes one interval rule serve them all (`mfairfl.fairness.uncertainty`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError, unknown
from mfairfl.fairness.cells import Cells, Grouping
from mfairfl.fairness.notions import Notion, notion

__all__ = [
    "CLIENT_SPREADS",
    "PROPORTIONS",
    "ClientSpread",
    "Disparity",
    "Method",
    "Proportion",
    "Spread",
    "chosen_groupings",
    "client_accuracies",
    "compared_counts",
    "divide",
    "group_spreads",
    "pooled_table",
    "single_groupings",
]

Floats = NDArray[np.float64]
Method = Literal["to_overall", "between_groups"]
METHODS = ("to_overall", "between_groups")


def divide(successes: Any, trials: Any) -> Floats:
    """Return successes / trials, nan where there are no trials.

    Examples
    --------
    >>> divide([1, 0], [4, 0]).tolist()
    [0.25, nan]
    """
    top, bottom = np.broadcast_arrays(np.asarray(successes, float), np.asarray(trials, float))
    share: Floats = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return share


def pooled_table(counts: NDArray[Any]) -> Floats:
    """Return the (…, 2, 2) table of label × decision over all clients and cells."""
    return np.asarray(counts.sum(axis=(-4, -3)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share of rows: successes and trials from a (…, 2, 2) table of label × decision."""

    counts: Callable[[Floats], tuple[Floats, Floats]]
    needs: str

    def value(self, table: Floats) -> Floats:
        """Return the share; nan without trials."""
        return divide(*self.counts(table))


_ROWS = "there are no rows"
PROPORTIONS: dict[str, Proportion] = {
    "accuracy": Proportion(
        lambda t: (t[..., 0, 0] + t[..., 1, 1], t.sum(axis=(-2, -1))),
        _ROWS,
    ),
    "selection_rate": Proportion(
        lambda t: (t[..., 1].sum(axis=-1), t.sum(axis=(-2, -1))),
        _ROWS,
    ),
    "true_positive_rate": Proportion(
        lambda t: (t[..., 1, 1], t[..., 1, :].sum(axis=-1)), "no row has y = 1"
    ),
    "false_positive_rate": Proportion(
        lambda t: (t[..., 0, 1], t[..., 0, :].sum(axis=-1)), "no row has y = 0"
    ),
    "base_rate": Proportion(
        lambda t: (t[..., 1, :].sum(axis=-1), t.sum(axis=(-2, -1))),
        _ROWS,
    ),
    # F1 = 2J / (1 + J), with J the share of true positives among rows that are not true negatives.
    "jaccard": Proportion(
        lambda t: (t[..., 1, 1], t.sum(axis=(-2, -1)) - t[..., 0, 0]),
        "no label and no decision is 1",
    ),
}


def client_accuracies(counts: NDArray[Any]) -> Floats:
    """Return each client's accuracy, shape (…, K)."""
    tables = np.asarray(counts.sum(axis=-3), dtype=np.float64)
    return PROPORTIONS["accuracy"].value(tables)


class Spread(Protocol):
    """A number N(v(counts)), N a seminorm; a ratio is exp(−N) of log rates."""

    @property
    def ratio(self) -> bool:
        """Whether the reported number is exp(−N)."""

    @property
    def largest(self) -> float:
        """The largest value N can have."""

    def vectors(self, counts: NDArray[Any]) -> list[Floats]:
        """Return v, in as many pieces as there are groupings."""

    def norm(self, vectors: list[Floats]) -> Floats:
        """Return N(v)."""


@dataclass(frozen=True, slots=True)
class Disparity:
    """How far groups differ under a notion: worst over groupings and events."""

    notion: Notion
    groupings: tuple[Grouping, ...]
    method: Method = "to_overall"
    ratio: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(unknown("method", self.method, METHODS))

    @property
    def largest(self) -> float:
        """Rates differ by 1 at most; their logarithms without limit."""
        return np.inf if self.ratio else 1.0

    def vectors(self, counts: NDArray[Any]) -> list[Floats]:
        """Return, for each grouping, (…, G, E): rates, or their differences to overall."""
        cells = np.asarray(counts.sum(axis=-4), dtype=np.float64)
        pieces = []
        for grouping in self.groupings:
            member = grouping.membership.astype(np.float64)
            rates = self._rates(np.einsum("gc,...cyp->...gyp", member, cells))
            if self.method == "to_overall":
                whole = compared_counts(cells, [grouping]).sum(axis=-3)
                overall = self._rates(whole)[..., None, :]
                with np.errstate(invalid="ignore"):  # log 0 − log 0 is undefined: nan
                    rates = rates - overall
            pieces.append(rates)
        return pieces

    def norms(self, vectors: list[Floats]) -> Floats:
        """Return (…, groupings, E): the seminorm within each grouping and event."""
        with np.errstate(invalid="ignore"):
            if self.method == "to_overall":
                each = [np.abs(v).max(axis=-2) for v in vectors]
            else:
                each = [v.max(axis=-2) - v.min(axis=-2) for v in vectors]
        return np.stack(each, axis=-2)

    def norm(self, vectors: list[Floats]) -> Floats:
        """Return the worst over groupings and events."""
        worst: Floats = self.norms(vectors).max(axis=(-2, -1))
        return worst

    def undefined(self, counts: NDArray[Any]) -> str:
        """Say why the number is undefined for the (K, C, 2, 2) counts."""
        rows = counts.sum(axis=(0, 3))
        for grouping in self.groupings:
            for event in self.notion.events:
                members = (grouping.membership @ rows)[:, list(event.labels)].sum(axis=1)
                for group, count in zip(grouping.groups, members, strict=True):
                    if count == 0:
                        which = "" if len(event.labels) == 2 else f" with {event.name}"
                        return f"group '{group}' of '{grouping.name}' has no rows{which}"
        what = "decision" if self.notion.statistic == "selection" else "correct decision"
        wanted = "favourable " if self.notion.statistic == "selection" else ""
        return f"no {wanted}{what} in an event: the ratio is 0/0"

    def _rates(self, tables: Floats) -> Floats:
        """Return (…, E) rates of (…, 2, 2) tables; logarithms for a ratio."""
        hits = tables[..., 1]
        if self.notion.statistic == "error":
            hits = np.stack([tables[..., 0, 1], tables[..., 1, 0]], axis=-1)
        rows = tables.sum(axis=-1)
        events = [list(event.labels) for event in self.notion.events]
        rates = np.stack(
            [divide(hits[..., e].sum(axis=-1), rows[..., e].sum(axis=-1)) for e in events], axis=-1
        )
        if not self.ratio:
            return rates
        # An error rate of 0 is the ideal, so parity of accuracy is compared as accuracy.
        shares = 1.0 - rates if self.notion.statistic == "error" else rates
        with np.errstate(divide="ignore"):
            return np.log(shares)


@dataclass(frozen=True, slots=True)
class ClientSpread:
    """How far the clients' accuracies differ: population standard deviation or range."""

    kind: Literal["std", "gap"]

    @property
    def ratio(self) -> bool:
        """A spread is a difference."""
        return False

    @property
    def largest(self) -> float:
        """Numbers in [0, 1] differ by 1 and have a standard deviation of .5 at most."""
        return 0.5 if self.kind == "std" else 1.0

    def vectors(self, counts: NDArray[Any]) -> list[Floats]:
        """Return the clients' accuracies (…, K)."""
        return [client_accuracies(counts)]

    def norm(self, vectors: list[Floats]) -> Floats:
        """Return the standard deviation (ddof 0) or the range."""
        (v,) = vectors
        value: Floats = v.std(axis=-1) if self.kind == "std" else np.ptp(v, axis=-1)
        return value


CLIENT_SPREADS: dict[str, ClientSpread] = {
    "client_accuracy_std": ClientSpread("std"),
    "client_accuracy_gap": ClientSpread("gap"),
}


def group_spreads(groupings: Sequence[Grouping]) -> dict[str, Disparity]:
    """Return every reported group-fairness number on these groupings, by its name."""
    kept = tuple(groupings)
    return {
        f"{name}_{'ratio' if ratio else 'difference'}": Disparity(notion(name), kept, ratio=ratio)
        for name, ratio in (
            ("demographic_parity", False),
            ("equalized_odds", False),
            ("equal_opportunity", False),
            ("accuracy_parity", False),
            ("demographic_parity", True),
            ("equalized_odds", True),
            ("accuracy_parity", True),
        )
    }


def compared_counts(counts: NDArray[Any], groupings: Sequence[Grouping]) -> NDArray[Any]:
    """Return counts[…, cell, y, ŷ] with 0 in cells that none of these groupings compares."""
    compared = np.any([grouping.compared for grouping in groupings], axis=0)
    return np.where(compared[:, None, None], counts, 0)


def single_groupings(cells: Cells) -> list[Grouping]:
    """Return what is reported apart if there are several attributes: each, and all crossed."""
    if len(cells.attributes) < 2:
        return []
    return [*cells.groupings(), cells.grouping(*(a.name for a in cells.attributes))]


def chosen_groupings(cells: Cells, attribute: str | None) -> list[Grouping]:
    """Return the marginals (None), one attribute's marginal, or the full ``intersection``."""
    names = [item.name for item in cells.attributes]
    if not names:
        raise ConfigError("a group metric needs sensitive_features=; give one column or more")
    if attribute is None:
        return cells.groupings()
    if attribute not in names and attribute == "intersection":
        return [cells.grouping(*names)]
    if attribute not in names:
        raise ConfigError(unknown("sensitive attribute", attribute, [*names, "intersection"]))
    return [cells.grouping(attribute)]
