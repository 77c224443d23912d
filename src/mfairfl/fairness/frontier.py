"""The best accuracy that any classifier can have under bounds on its violations.

A linear programme over P(ŷ=1 | cell, y): it knows labels and groups and nothing else, so no
classifier, however good its features, does better. A published row above it cannot be one model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import notion
from mfairfl.fairness.tally import Tally

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrontierPoint:
    """The best accuracy and the (C, 2) rates P(ŷ=1 | cell, y) that reach it (nan: no rows)."""

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

    n, cells = _rows(rows, attributes)
    stated = {name: bound for name, bound in bounds.items() if bound is not None}
    for name, bound in stated.items():
        if not (math.isfinite(bound) and bound >= 0):
            raise ConfigError(f"{name} = {bound}; use a bound of 0 or more, or None")
        if notion(name).statistic == "loss":
            raise ConfigError(
                f"{name} compares losses, which decisions do not determine; leave it out"
            )
    present = n > 0
    label = np.broadcast_to(np.array([-1.0, 1.0]), n.shape)
    gain = (label * n / n.sum())[present]  # accuracy = P(y=0) + gain · rates
    left, right = [np.zeros((0, gain.size))], [np.zeros(0)]
    for name, bound in stated.items():
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


def _rows(rows: Tally | ArrayLike, attributes: Sequence[Attribute] | None) -> tuple[Floats, Cells]:
    """Return the table n[cell, label] and its cells, checked."""
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
    return n, cells
