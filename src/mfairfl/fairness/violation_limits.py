"""Limits of violations from resampled tables, for many tables at once.

Draws are the last axis throughout: sums over them are contiguous, which is fast, and the same for
a table alone as among others, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DrawnGroups:
    """Resampled tables of the groups of one grouping.

    Attributes
    ----------
    groups
        Rows by group, label and decision, (B, G, 2, 2, draws).
    whole
        The same of all groups together, (B, 1, 2, 2, draws).
    """

    groups: NDArray[Any]
    whole: NDArray[Any]

    @classmethod
    def of(cls, grouping: Grouping, drawn: NDArray[Any]) -> DrawnGroups:
        """Add up the cells of each group; `drawn` are tables (B, C, 2, 2, draws)."""
        groups = np.stack(
            [drawn[:, members].sum(axis=1, dtype=drawn.dtype) for members in grouping.membership],
            axis=1,
        )
        return cls(groups, groups.sum(axis=1, keepdims=True, dtype=drawn.dtype))


def violation_limits(
    notion: Notion, entries: Floats, centre: Floats, drawn: Sequence[DrawnGroups], level: float
) -> tuple[Floats, Floats]:
    """Return lower and upper limits of B violations, (B,) each; nan where one is undefined.

    Parameters
    ----------
    notion
        What is compared.
    entries, centre
        The deviations of groups (`violation_of`): as measured, and of what was drawn from, (B, J).
    drawn
        Of each grouping.
    level
        The limits of all groups hold together with this probability.
    """
    entries = np.abs(entries)
    undefined = np.isnan(entries).any(axis=1)
    lower = np.where(undefined, np.nan, 0.0)
    upper = np.where(undefined, np.nan, np.inf)
    # Of the draws that may be outside, half are left to those in which a group has no rows.
    empty = np.concatenate([_flat(_event_rows(notion, one.groups) == 0) for one in drawn], axis=1)
    told = empty.mean(axis=2) <= (1.0 - level) / (2 * entries.shape[1])
    some = np.flatnonzero(told.any(axis=1) & ~undefined)
    if some.size:
        own, seen = entries[some], told[some]
        away = np.concatenate([_deviations(notion, one, some) for one in drawn], axis=1)
        away = np.abs(away - centre[some, :, None])
        reach = _reach(away, empty[some], seen, level)
        lower[some] = np.where(seen, own - reach, -np.inf).max(axis=1)
        upper[some] = np.where(seen.all(axis=1), (own + reach).max(axis=1), np.inf)
    return np.maximum(lower, 0.0), np.minimum(upper, 1.0)


def _reach(
    away: Floats, empty: NDArray[np.bool_], told: NDArray[np.bool_], level: float
) -> Floats:
    """Return how far each entry's limits are from it, (B, J), where something is told of it."""
    squares = np.square(away)
    squares[empty] = 0.0
    full = away.shape[2] - empty.sum(axis=2)
    error = np.sqrt(squares.sum(axis=2) / np.maximum(full, 1))
    used = told & (error > 0)
    away[~used] = 0.0
    away /= np.where(used, error, 1.0)[..., None]
    farthest = away.max(axis=1)
    farthest[np.isnan(farthest)] = np.inf
    far = np.quantile(farthest, level, axis=1, method="higher")
    return np.asarray(far[:, None] * error)


def _event_rows(notion: Notion, tables: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of (B, G, 2, 2, draws) tables in each event, (B, G, E, draws)."""
    rows = tables.sum(axis=3, dtype=tables.dtype)
    return _by_event(notion, [rows[:, :, y] for y in (0, 1)])


def _event_hits(notion: Notion, tables: NDArray[Any]) -> NDArray[Any]:
    """Return the rows that count in each event: selected ones, or those decided wrongly."""
    # Of label y, the decision that counts: 1, or the wrong one.
    decisions = (1, 0) if notion.statistic == "error" else (1, 1)
    return _by_event(notion, [tables[:, :, y, decisions[y]] for y in (0, 1)])


def _by_event(notion: Notion, by_label: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return (B, G, E, draws) of an array (B, G, draws) for each label."""
    sums = [reduce(np.add, [by_label[y] for y in event.labels]) for event in notion.events]
    return np.stack(sums, axis=2)


def _deviations(notion: Notion, drawn: DrawnGroups, some: NDArray[np.intp]) -> Floats:
    """Return the groups' rates minus the overall one of these tables, (B, G·E, draws)."""
    rates, overall = (_rates(notion, tables[some]) for tables in (drawn.groups, drawn.whole))
    return _flat(rates - overall)


def _rates(notion: Notion, tables: NDArray[Any]) -> Floats:
    with np.errstate(invalid="ignore"):  # 0/0 is nan: no rows
        rates: Floats = np.divide(
            _event_hits(notion, tables), _event_rows(notion, tables), dtype=np.float64
        )
    return rates


def _flat(by_group: NDArray[Any]) -> NDArray[Any]:
    """Return (B, G·E, draws) of (B, G, E, draws)."""
    return by_group.reshape(len(by_group), -1, by_group.shape[-1])
