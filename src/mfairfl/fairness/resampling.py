"""Tables drawn anew, and the limits of violations that follow from them.

Drawn are rows within clients, decisions that are fair, accuracies of many clients.

Up to `OWN_STRATA` clients are drawn one by one. Of more clients only what a number depends on is
drawn (docs/decisions/0025): for what compares groups, rows of all clients together; for what
compares clients, those with the same rows and accuracy at once; for each client's own violations,
rows by the same random numbers.

In limits draws are the last axis: sums over them are contiguous, which is fast, and the same for a
table alone as among others, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, xlog1py, xlogy

from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import event_share

Floats = NDArray[np.float64]

OWN_STRATA = 100  # clients up to which rows are resampled within each of them
_AT_ONCE = 2**18  # numbers that are drawn at a time: a few megabytes
_FEW_ROWS = 128  # rows of a client up to which they are drawn one by one, fastest


def smoothed(counts: NDArray[Any], sizes: NDArray[Any], pseudo: float) -> Floats:
    """Return counts[K, C, 2, 2] with the same rows and no rate of exactly 0 or 1.

    Parameters
    ----------
    counts
        The counts.
    sizes
        For each (client, cell, label), or broadcast to it, the rows of the smallest set that is
        compared and holds it. Each set gets at least `pseudo` rows, spread evenly over its rows.
    pseudo
        Number of added rows, half of them decided 1: z² as at the centre of Wilson's interval.

    Examples
    --------
    >>> smoothed(np.array([[[[4, 0], [1, 1]]]]), np.array([[[4, 2]]]), 1.0).tolist()
    [[[[3.6, 0.4], [1.0, 1.0]]]]
    """
    table = counts.astype(np.float64)
    rows = table.sum(axis=-1, keepdims=True)
    size = np.asarray(sizes, dtype=np.float64)[..., None]
    smooth: Floats = (table * size + 0.5 * pseudo * rows) / (size + pseudo)
    return smooth


def strata(counts: NDArray[Any]) -> NDArray[Any]:
    """Return the tables within which rows are resampled: the clients', or one if they are many.

    Rows of one table vary at least as much as those of its parts; a client of a few rows, drawn
    from itself, hardly varies at all.

    Examples
    --------
    >>> strata(np.ones((5, 2, 2, 2))).shape, strata(np.ones((5000, 2, 2, 2))).shape
    ((5, 2, 2, 2), (1, 2, 2, 2))
    """
    return counts if 0 < len(counts) <= OWN_STRATA else counts.sum(axis=0, keepdims=True)


def resampled(counts: Floats, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (draws, K, C, 2, 2): each client's rows drawn anew from its own shares."""
    rows, shares = _rows_and_shares(counts)
    drawn = rng.multinomial(rows, shares, size=(draws, len(rows)))
    return drawn.reshape(draws, *counts.shape)


def resampled_together(counts: Floats, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (C, 2, 2, draws): what `resampled` draws, added up over clients."""
    step = max(1, _AT_ONCE // counts.size)
    starts = range(0, draws, step)
    parts = [resampled(counts, min(step, draws - at), rng).sum(axis=1) for at in starts]
    return np.moveaxis(np.concatenate(parts), 0, -1).copy()


def each_resampled(
    counts: Floats, draws: int, rng: np.random.Generator, *, alike: bool = False
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.integer[Any]]]]:
    """Draw as `resampled` does, client after client, and yield some clients at a time.

    Parameters
    ----------
    counts
        Each client's table, (K, C, 2, 2).
    draws, rng
        How often, and by what.
    alike
        Draw small clients first, all by the same random numbers, one for each row and draw: what
        is drawn for one of them depends on its own table only, and takes a fraction of the time.

    Yields
    ------
    ndarray (B,), ndarray (B, C, 2, 2, draws)
        Which clients, and their tables.
    """
    rows, shares = _rows_and_shares(counts)
    few = rows <= _FEW_ROWS if alike else np.zeros(len(rows), dtype=bool)
    numbers = rng.random((int(rows[few].max(initial=0)), draws))
    step = max(1, _AT_ONCE // (draws * shares.shape[1]))
    for n in np.unique(rows[few]).tolist():
        for some in _some(np.flatnonzero(rows == n), step):
            drawn: NDArray[Any] = _counted(shares[some], numbers[:n])
            yield some, drawn.reshape(len(some), *counts.shape[1:], draws)
    for some in _some(np.flatnonzero(~few), step):
        size = (len(some), draws)
        flat = rng.multinomial(rows[some, None], shares[some, None], size=size)
        drawn = np.ascontiguousarray(flat.transpose(0, 2, 1))
        yield some, drawn.reshape(len(some), *counts.shape[1:], draws)


def _some(places: NDArray[np.intp], step: int) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(places), step):
        yield places[start : start + step]


def _rows_and_shares(counts: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return each client's number of rows, (K,), and the shares of its entries, (K, 4C)."""
    flat = counts.reshape(len(counts), math.prod(counts.shape[1:]))
    total = flat.sum(axis=1, keepdims=True)
    # A client without rows draws 0 rows whatever its shares; any valid shares do.
    shares = np.where(total > 0, flat / np.where(total > 0, total, 1.0), 1.0 / flat.shape[1])
    return np.rint(total[:, 0]).astype(np.int64), shares


def _counted(shares: Floats, numbers: Floats) -> NDArray[np.uint8]:
    """Count each draw's n numbers by the entry in which they fall, (B, entries, draws)."""
    ends = np.cumsum(shares, axis=1)
    ends /= ends[:, -1:]  # exactly 1 after the last entry that has a share
    n, draws = numbers.shape
    below = np.zeros((len(shares), shares.shape[1] + 1, draws), dtype=np.uint8)
    below[:, -1] = n
    for number in numbers:
        below[:, 1:-1] += number < ends[:, :-1, None]
    return np.diff(below, axis=1)


def decided(
    rows: NDArray[np.int64], rates: Floats, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return (draws, K, C, 2, 2) counts with decisions drawn at P(ŷ=1 | y) = rates[y]."""
    positives = rng.binomial(rows, rates, size=(draws, *rows.shape))
    return np.stack([rows - positives, positives], axis=-1)


def accuracy_spreads(
    rows: NDArray[np.int64], chances: Floats, draws: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Draw many clients' accuracies; return standard deviation and range of their errors.

    Clients with the same rows and chance are exchangeable: if they are more than the values that
    an accuracy can have, it is drawn how many of them have each value.

    Parameters
    ----------
    rows, chances
        Each client's rows, at least one, and its chance of a correct decision, (K,).
    draws, rng
        How often, and by what.

    Returns
    -------
    dict
        By name of the number, (draws,): of correct / rows − chance over clients.
    """
    kinds, many = np.unique(np.stack([rows, chances], axis=1), axis=0, return_counts=True)
    total, square = np.zeros(draws), np.zeros(draws)
    low, high = np.full(draws, np.inf), np.full(draws, -np.inf)
    for (size, chance), members in zip(kinds.tolist(), many.tolist(), strict=True):
        n = int(size)
        values = np.arange(n + 1) / n - chance
        if members > n:
            have = rng.multinomial(members, _binomial_shares(n, chance), size=draws)
            total += have @ values
            square += have @ np.square(values)
            least = values[(have > 0).argmax(axis=1)]
            most = values[n - (have[:, ::-1] > 0).argmax(axis=1)]
        else:
            away = values[rng.binomial(n, chance, size=(members, draws))]
            total += away.sum(axis=0)
            square += np.square(away).sum(axis=0)
            least, most = away.min(axis=0), away.max(axis=0)
        np.minimum(low, least, out=low)
        np.maximum(high, most, out=high)
    variance = square / len(rows) - np.square(total / len(rows))
    return {
        "client_accuracy_std": np.sqrt(np.maximum(variance, 0.0)),
        "client_accuracy_gap": high - low,
    }


def _binomial_shares(n: int, chance: float) -> Floats:
    """Return the probabilities of 0 … n successes."""
    k = np.arange(n + 1)
    choices = -betaln(n - k + 1, k + 1) - np.log(n + 1)
    shares = np.exp(choices + xlogy(k, chance) + xlog1py(n - k, -chance))
    return np.asarray(shares / shares.sum())


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
        kind, membership = drawn.dtype, grouping.membership
        sums = [drawn[:, members].sum(axis=1, dtype=kind) for members in membership]
        groups = np.stack(sums, axis=1)
        return cls(groups, groups.sum(axis=1, keepdims=True, dtype=kind))


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
    empty = np.concatenate(
        [_by_entry(_hits_and_rows(notion, grouping.groups)[1] == 0) for grouping in drawn], axis=1
    )
    informative = empty.mean(axis=2) <= (1.0 - level) / (2 * entries.shape[1])
    some = np.flatnonzero(informative.any(axis=1) & ~undefined)
    if some.size:
        measured, seen = entries[some], informative[some]
        away = np.concatenate([_deviations(notion, grouping, some) for grouping in drawn], axis=1)
        away = np.abs(away - centre[some, :, None])
        reach = _reach(away, empty[some], seen, level)
        lower[some] = np.where(seen, measured - reach, -np.inf).max(axis=1)
        upper[some] = np.where(seen.all(axis=1), (measured + reach).max(axis=1), np.inf)
    return np.maximum(lower, 0.0), np.minimum(upper, 1.0)


def _reach(
    away: Floats, empty: NDArray[np.bool_], informative: NDArray[np.bool_], level: float
) -> Floats:
    """Return how far each entry's limits are from it, (B, J), where its rows say something."""
    squares = np.square(away)
    squares[empty] = 0.0
    full = away.shape[2] - empty.sum(axis=2)
    error = np.sqrt(squares.sum(axis=2) / np.maximum(full, 1))
    used = informative & (error > 0)
    away[~used] = 0.0
    away /= np.where(used, error, 1.0)[..., None]
    farthest = away.max(axis=1)
    farthest[np.isnan(farthest)] = np.inf
    far = np.quantile(farthest, level, axis=1, method="higher")
    return np.asarray(far[:, None] * error)


def _deviations(notion: Notion, drawn: DrawnGroups, some: NDArray[np.intp]) -> Floats:
    """Return the groups' rates minus the overall one of these tables, (B, G·E, draws)."""
    rates, overall = (_rates(notion, tables[some]) for tables in (drawn.groups, drawn.whole))
    return _by_entry(rates - overall)


def _rates(notion: Notion, tables: NDArray[Any]) -> Floats:
    hits, rows = _hits_and_rows(notion, tables)
    with np.errstate(invalid="ignore"):  # 0/0 is nan: no rows
        rates: Floats = np.divide(hits, rows, dtype=np.float64)
    return rates


def _hits_and_rows(notion: Notion, tables: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what (B, G, 2, 2, draws) tables count in each event, (B, G, E, draws) each."""
    last = np.moveaxis(tables, 4, 0)  # label and decision; in memory draws remain the last axis
    counted = [event_share(notion, event).counts(last) for event in notion.events]
    hits, rows = (
        np.stack([np.moveaxis(part, 0, 2) for part in parts], axis=2)
        for parts in zip(*counted, strict=True)
    )
    return hits, rows


def _by_entry(by_group: NDArray[Any]) -> NDArray[Any]:
    """Return (B, G·E, draws) of (B, G, E, draws)."""
    return by_group.reshape(len(by_group), -1, by_group.shape[-1])
