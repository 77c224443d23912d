"""The reference method beside its published numbers, with a yes or no to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from mfairfl.experiments.tables.layout import TableLayout, TableMeasure, measures
from mfairfl.experiments.tables.writers import CellTexts, Place, markdown, number, spread

SLACK = 1.3


def verdict(ours: float, theirs: float, noise: float, error: float = 0.0) -> str:
    """Return whether a violation is at most the published one, or else no more than noise.

    Where our mean is above both by no more than its error, the seeds cannot decide: "open".

    Examples
    --------
    >>> verdict(0.010, 0.012, 0.005), verdict(0.010, 0.005, 0.011), verdict(0.020, 0.005, 0.011)
    ('yes', 'yes (noise)', 'no')
    >>> verdict(0.020, 0.005, 0.011, error=0.010)
    'open'
    """
    if ours <= theirs:
        return "yes"
    if ours <= noise:
        return "yes (noise)"
    return "open" if ours - error <= max(theirs, noise) else "no"


def error_of(std: float, n: int) -> float:
    """Return half the width of a mean's 95 % interval (Student's t); 0 for a single run.

    Examples
    --------
    >>> round(error_of(0.01, 5), 4)
    0.0124
    """
    return 0.0 if n < 2 else float(student.ppf(0.975, n - 1) * std / np.sqrt(n))


def write_verdicts(long: pd.DataFrame, layout: TableLayout) -> list[str]:
    """Return a heading, a table of the reference and its explanation; nothing if unpublished."""
    if long["published"].isna().all():
        return []
    cells, split = CellTexts(long), layout.splits[0]
    head = ["data", "protocol", *(["notion"] if layout.notions else []), "accuracy", "higher?"]
    head += ["violation", "as low?"] if layout.notions else []
    lines = [
        [
            data,
            protocol,
            *([notion] if notion else []),
            *_claims(cells, layout, (protocol, data, split), notion),
        ]
        for data, protocol, notion in product(layout.data, layout.protocols, layout.models)
    ]
    several = any(layout.named_attributes(data) for data in layout.data)
    notes = [
        f"{layout.reference}, split {split}: mean ± standard deviation over seeds (published).",
        "Floor: what exactly fair decisions would show on these test rows.",
        f"As low: at most the published number, or (noise) at most {SLACK} floors of a violation "
        "and one floor of CF std. Open: above, by no more than the 95 % interval of the mean.",
        "Of several attributes the largest violation counts." if several else "",
    ]
    grid = [[*head, "CF std", "as low?"], *lines]
    return ["## At a glance", markdown(grid), " ".join(filter(None, notes))]


def _claims(cells: CellTexts, layout: TableLayout, table: Place, notion: str) -> Iterator[str]:
    """Yield text and verdict of accuracy, violation and client fairness."""
    row_of = partial(cells.row, table, layout.reference, notion)
    shown = measures(notion, layout.named_attributes(table[1]))
    first, *violations, last = (one for one in shown if one.main)
    row = row_of(first)
    if row.n == 0 or np.isnan(row.published):
        yield from ("", "")
    else:
        yield f"{spread(row)} ({number(row.published)})"
        yield "yes" if row.mean > row.published else "no"
    if violations:
        yield from _low(row_of, violations, SLACK)
    yield from _low(row_of, [last], 1.0)


def _low(
    row_of: Callable[[TableMeasure], Any], columns: list[TableMeasure], slack: float
) -> tuple[str, str]:
    """Return text and verdict of a number that should be low: the largest of the columns."""
    metric = columns[0].metric
    ours, floor = row_of(TableMeasure("", metric)), row_of(TableMeasure("", f"floor_{metric}"))
    if ours is None or ours.n == 0:
        return "", ""
    # Nan if one of them was not published.
    theirs = float(np.max([row_of(column).published for column in columns]))
    if np.isnan(theirs):
        return "", ""
    text = f"{spread(ours)} ({number(theirs)}), floor {number(floor.mean)}"
    error = error_of(ours.std, ours.n)
    return text, verdict(ours.mean, theirs, slack * floor.mean, error)
