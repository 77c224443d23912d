"""Rows from ordinary training: weights that trap rows, trained as any others.

A unit of the second layer is open inside one bin of a projection, where a single train row lies
(`chosen_models` tells how bins are found). The first layer passes on 1 and the row's columns, as
whole numbers. What the unit's weights from these move by in local training is then all of this
row: their quotients are its columns, however many steps are taken.

All weights that move are tiny. The steps of AdamW are then proportional to the gradient, as its
`eps` is larger, and decay takes the same share of each: quotients stay what they are. The sign of
the head is chosen by the row's label so that a step closes the trap rather than opens it further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from readouts.chosen_models import Bin, Projection, bin_of, layers, place_rows
from readouts.columns import Table
from readouts.silo import HIGH, LABEL, LOW, RefusedError, Run

MOST = 2.0**17  # quotients of float32 tell whole numbers below this apart
OPEN, SHUT = 1e-15, 1e-11  # the bias of a trap; what closes it 1e-4 of a logit outside its bin
HEAD = 1e-12


def trap_model(run: Run, table: Table, projection: Projection) -> np.ndarray:
    """Return weights with a trap for each bin."""
    direction, bins = projection
    passed = [np.append(np.zeros(run.model.inputs), 1.0)]
    passed += [table.number(digit) / MOST for digit in table.digits]
    edges = [
        edge
        for one in bins
        for edge in (
            one.zoom * np.append(-direction, one.low),
            one.zoom * np.append(direction, -one.high),
        )
    ]
    second = np.zeros((len(passed) + len(edges) + 1, len(bins)))
    for j in range(len(bins)):
        first = len(passed) + 2 * j
        second[first : first + 2, j], second[-1, j] = -SHUT, OPEN
    head = np.append([-HEAD if _label(one) else HEAD for one in bins], 0.0)[:, None]
    return layers(run, np.column_stack([*passed, *edges]), second, head)


def trapped(run: Run, update: np.ndarray, table: Table, traps: int) -> np.ndarray:
    """Return the whole numbers in each trap, nan where nothing moved."""
    one, two = run.model.hidden
    start = (run.model.inputs + 1) * one
    second = update[start : start + one * two].reshape(one, two).astype(np.float64)
    moved = second[: 1 + len(table.digits), :traps]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (moved[1:] / moved[0] * MOST).T


def _label(one: Bin) -> int:
    """Return the label of the one train row in a bin; train rows come first."""
    return int(np.flatnonzero(one.rows)[0] % 2)


def read_by_training(
    run: Run, seed: int, *, sizes: Mapping[str, int], plans: Iterable[Mapping[str, Any]]
) -> Iterator[pd.DataFrame]:
    """Yield what is claimed about train rows after each round; every round has its plan."""
    table, rng = Table(run, sizes, most=MOST), np.random.default_rng(seed)
    one, two = run.model.hidden
    traps = min((one - 1 - len(table.digits)) // 2, two)
    claims, left = pd.DataFrame(), list[Bin]()
    for round_, plan in enumerate(plans):
        if not left:
            projection = place_rows(run, table, rng)
            left = _single(table, projection, claims)
        if left:
            chosen = Projection(projection.direction, left[:traps])
            found = _spring(run, table, chosen, plan, round_)
            claims, left = pd.concat([claims, found], ignore_index=True), left[traps:]
        yield claims


def _spring(
    run: Run, table: Table, traps: Projection, plan: Mapping[str, Any], round_: int
) -> pd.DataFrame:
    """Have one round trained; return the rows that were caught where they were expected."""
    if not run.exact:  # the agreed method prices groups: prices that change nothing
        neutral = {"loss_table": [[1.0, 1.0]] * run.cells, "score_table": [[0.0, 0.0]] * run.cells}
        plan = {**plan, **neutral}
    answer = run.train([plan], trap_model(run, table, traps), round_)
    if answer is None:
        raise RefusedError(run.line.reason)
    numbers = trapped(run, answer[1][0], table, len(traps.bins))
    whole = np.isfinite(numbers).all(axis=1) & (numbers > -0.5).all(axis=1)
    found = table.rows(np.rint(np.where(whole[:, None], numbers, 0)).astype(np.int64))
    found[LABEL] = [HIGH if _label(one) else LOW for one in traps.bins]
    return found[whole & (bin_of(table, traps, found) == np.arange(len(traps.bins)))]


def _single(table: Table, projection: Projection, claims: pd.DataFrame) -> list[Bin]:
    """Return the bins in which one train row lies that is not claimed yet."""
    known = set(bin_of(table, projection, claims).tolist()) if len(claims) else set()
    half = len(projection.bins[0].rows) // 2  # train rows come first, then test rows
    return [
        one
        for i, one in enumerate(projection.bins)
        if one.rows[:half].sum() == 1 and i not in known
    ]
