"""Rows from chosen models: scores and measurements of models that nobody would train.

1. *Place.* The logit of a model is a random projection of the inputs. The histogram of its scores
   says how many rows of each split, group and label lie in each of 2,048 bins; models with the
   same projection, shifted and stretched, make the bins so fine that most hold one row.
2. *Read.* A hidden unit that is open inside one such bin alone passes on a whole number made of
   several columns. The head multiplies it by 2³³ or 2⁵⁹: in the sum of losses of a group and
   label two rows' numbers stand side by side, and no other row shows.
3. *Decode.* A claim is made if the columns read give back the projection the row was found at.
   A second projection then reads what shared a bin in the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from mfairfl.fairness.scores import LOGIT_BINS
from readouts.columns import Table
from readouts.silo import HIGH, LABEL, LOW, Run

REACH = 8.0  # bins of logits are narrow between −8 and 8
PER_LOGIT = LOGIT_BINS / (2 * REACH)
WINDOWS = 8  # stretched models of one projection
WHOLE = 2.0**23  # between this number and its double, float32 holds whole numbers only
LOWEST, APART, PLACES = 33, 26, 2  # exponents of the two places of a sum; four rows fit each
SHUT = WHOLE * 1e4  # closes a unit for a row that is 1e-4 of a logit outside its bin


class Bin(NamedTuple):
    """A bin of a projection: its ends, and its rows by split, group and label."""

    low: float
    high: float
    zoom: float
    rows: np.ndarray


class Projection(NamedTuple):
    """A weight for each input, and the bins that hold rows."""

    direction: np.ndarray
    bins: list[Bin]


# ------------------------------------------------------------------ models


def layers(run: Run, first: np.ndarray, second: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Return weights of the model from each layer's units, (inputs + 1, units), bias last."""
    inputs, (one, two) = run.model.inputs, run.model.hidden
    parts = []
    for given, shape in ((first, (inputs, one)), (second, (one, two)), (head, (two, 1))):
        matrix, bias = np.zeros(shape), np.zeros(shape[1])
        matrix[: len(given) - 1, : given.shape[1]] = given[:-1]
        bias[: given.shape[1]] = given[-1]
        parts += [matrix.ravel(), bias]
    return np.concatenate(parts).astype(np.float32)


def linear_model(run: Run, direction: np.ndarray, centre: float, zoom: float) -> np.ndarray:
    """Return a model whose logit is zoom · (projection − centre)."""
    unit = zoom * np.append(direction, -centre)
    return layers(
        run,
        np.column_stack([unit, -unit]),
        np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        np.array([[1.0], [-1.0], [0.0]]),
    )


def reading_model(
    run: Run, number: np.ndarray, direction: np.ndarray, bins: Sequence[tuple[Bin, int, int]]
) -> np.ndarray:
    """Return a model that writes the number of each bin's row to a place of the sum of losses.

    Each bin comes with its place and a sign: a loss grows with the logit where the label is 0,
    and with its opposite where it is 1.
    """
    first = [number]
    second = np.zeros((1 + 2 * len(bins) + 1, len(bins)))
    head = np.zeros((len(bins) + 1, 1))
    for j, (one, place, sign) in enumerate(bins):
        first.append(one.zoom * np.append(-direction, one.low))
        first.append(one.zoom * np.append(direction, -one.high))
        second[0, j], second[1 + 2 * j : 3 + 2 * j, j] = 1.0, -SHUT
        second[-1, j] = WHOLE  # rounds to a whole number, and tells 0 from a unit that is shut
        head[j, 0] = sign * 2.0 ** (LOWEST + APART * place)
    # Units are given in the order of rows of the next layer; its bias is the last row.
    return layers(run, np.column_stack(first), second, head)


# ------------------------------------------------------------------ 1. place


def place_rows(run: Run, table: Table, rng: np.random.Generator) -> Projection:
    """Return a random projection and its bins, from one score of all rows and one a window."""
    direction = random_direction(table, rng)
    reach = 60.0  # no row is further out
    whole = run.logit_counts(linear_model(run, direction, 0.0, REACH / reach))
    rows = whole.sum(axis=(0, 1, 2))
    edges = (np.arange(1, LOGIT_BINS) - LOGIT_BINS / 2) / PER_LOGIT * reach / REACH
    held = np.flatnonzero(rows)
    left, right = edges[max(held[0] - 1, 0)], edges[min(held[-1], len(edges) - 1)]
    share = np.cumsum(rows)[:-1] / rows.sum()
    inner = np.interp(np.arange(1, WINDOWS) / WINDOWS, share, edges)
    windows = pairwise([left, *inner, right])
    return Projection(direction, [b for ends in windows for b in _window(run, direction, *ends)])


def _window(run: Run, direction: np.ndarray, left: float, right: float) -> Iterator[Bin]:
    centre, zoom = (left + right) / 2, (2 * REACH - 2 / PER_LOGIT) / (right - left)
    counts = run.logit_counts(linear_model(run, direction, centre, zoom))
    inside = counts[..., 1:-1].reshape(-1, LOGIT_BINS - 2)
    for place in np.flatnonzero(inside.any(axis=0)):
        low = (place + 1 - LOGIT_BINS / 2) / PER_LOGIT
        yield Bin(
            centre + low / zoom, centre + (low + 1 / PER_LOGIT) / zoom, zoom, inside[:, place]
        )


def random_direction(table: Table, rng: np.random.Generator) -> np.ndarray:
    """Return a projection to which every column adds about as much."""
    direction = rng.normal(size=len(table.names))
    for i, column in enumerate(table.encoder.numeric):
        spread = {"capital-gain": 5_000.0, "capital-loss": 400.0}.get(column.name)
        direction[i] *= column.scale / (spread or table.sizes[column.name] / 7)
    direction[table.derived] = 0.0  # they tell nothing new
    return direction


# ------------------------------------------------------------------ 2. read


def assigned(strata: Sequence[set[int]], units: int) -> list[list[tuple[int, int]]]:
    """Return for each model the bins that it reads and their places.

    No two rows of a split, group and label share a place of a model.
    """
    models: list[list[tuple[int, int]]] = []
    taken: list[list[set[int]]] = []
    for i in sorted(range(len(strata)), key=lambda one: min(strata[one])):
        for model, places in zip(models, taken, strict=True):
            place = next((p for p in range(PLACES) if not places[p] & strata[i]), None)
            if place is not None and len(model) < units:
                break
        else:
            model, places, place = [], [set() for _ in range(PLACES)], 0
            models.append(model)
            taken.append(places)
        model.append((i, place))
        places[place] |= strata[i]
    return models


def read_bins(
    run: Run, table: Table, projection: Projection, known: np.ndarray, chosen: Sequence[int]
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield bin, stratum and the sums of its rows' whole numbers, for each bin that is chosen.

    One label of a bin can be read: the one that more rows have that are not known yet.
    """
    direction, bins = projection
    label = [_larger_label(bins[i].rows - known[i]) for i in chosen]
    wanted = [
        {int(s) for s in np.flatnonzero(bins[i].rows) if s % 2 == y}
        for i, y in zip(chosen, label, strict=True)
    ]
    one, two = run.model.hidden
    plan = assigned(wanted, min((one - 1) // 2, two))
    models = []
    for digit in table.digits:
        number = table.number(digit)
        for model in plan:
            parts = [(bins[chosen[j]], place, -1 if label[j] else 1) for j, place in model]
            models.append(reading_model(run, number, direction, parts))
    sums = run.losses(models).reshape(len(table.digits), len(plan), -1)
    whole = np.rint(sums / 2.0**LOWEST).astype(np.int64)
    for m, model in enumerate(plan):
        for j, place in model:
            for stratum in wanted[j]:
                held = whole[:, m, stratum] >> (APART * place) & ((1 << APART) - 1)
                yield chosen[j], stratum, held - int(WHOLE * bins[chosen[j]].rows[stratum])


def _larger_label(rows: np.ndarray) -> int:
    """Return the label that more of a bin's rows have; (…, group, label) in the last places."""
    return int(rows[1::2].sum() > rows[::2].sum())


# ------------------------------------------------------------------ 3. decode


def read_rows(
    run: Run, seed: int, *, sizes: Mapping[str, int], passes: int = 2
) -> Iterator[pd.DataFrame]:
    """Yield what is claimed after each pass about the rows of a silo that is enrolled."""
    table = Table(run, sizes, most=WHOLE - 1 if run.exact else WHOLE / 4)
    rng, claims = np.random.default_rng(seed), pd.DataFrame()
    for _ in range(passes):
        found = _new_claims(run, table, place_rows(run, table, rng), claims)
        claims = pd.concat([claims, found], ignore_index=True)
        yield claims.drop(columns=_STRATUM)


_STRATUM = "split, group and label"


def _new_claims(
    run: Run, table: Table, projection: Projection, claims: pd.DataFrame
) -> pd.DataFrame:
    """Read the bins that hold rows not claimed yet."""
    bins = projection.bins
    known = np.zeros((len(bins), len(bins[0].rows)), np.int64)
    told = np.zeros((*known.shape, len(table.digits)), np.int64)
    if len(claims):
        place = bin_of(table, projection, claims)
        at = place[place >= 0], claims[_STRATUM].to_numpy(np.int64)[place >= 0]
        np.add.at(known, at, 1)
        np.add.at(told, at, table.numbers(claims)[place >= 0])
    new = [i for i, one in enumerate(bins) if (one.rows > known[i]).any()]
    numbers, strata, places = [], [], []
    for i, stratum, total in read_bins(run, table, projection, known, new):
        count = int(bins[i].rows[stratum] - known[i, stratum])
        each, rest = np.divmod(total - told[i, stratum], max(count, 1))
        if count > 0 and (each >= 0).all() and not rest.any():  # several rows: only if all alike
            numbers += [each] * count
            strata += [stratum] * count
            places += [i] * count
    found = table.rows(np.array(numbers, np.int64).reshape(-1, len(table.digits)))
    found[LABEL] = np.where(np.array(strata) % 2 == 1, HIGH, LOW)
    found[_STRATUM] = strata
    return found[bin_of(table, projection, found) == np.array(places)]


def bin_of(table: Table, projection: Projection, rows: pd.DataFrame) -> np.ndarray:
    """Return the bin that each row lies in, below 0 if in none that holds rows."""
    places = table.inputs(rows) @ projection.direction
    low, high = (np.array([getattr(b, end) for b in projection.bins]) for end in ("low", "high"))
    order = np.argsort(low)
    near = np.maximum(np.searchsorted(low[order], places, side="right") - 1, 0)
    return np.where((places >= low[order[near]]) & (places < high[order[near]]), order[near], -1)
