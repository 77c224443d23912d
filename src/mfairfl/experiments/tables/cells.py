"""The cells of a table: which numbers stand side by side, and how one is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from mfairfl.experiments.tables.tabulate import LEVEL

__all__ = [
    "Cells",
    "Column",
    "Place",
    "main_columns",
    "markdown",
    "more_columns",
    "number",
    "spread",
]

Place = tuple[str, str, str]


class Column(NamedTuple):
    """A heading and the number below it."""

    heading: str
    metric: str
    attribute: str = ""


def main_columns(notion: str, attributes: Sequence[str] = ()) -> list[Column]:
    """Return the columns that the paper has too.

    Examples
    --------
    >>> [column.heading for column in main_columns("equalized_odds", ("sex", "age"))]
    ['accuracy', 'violation, sex', 'violation, age', 'CF std']
    """
    violation = f"{notion}_difference"
    middle = [Column(f"violation, {name}", violation, name) for name in attributes]
    if notion and not attributes:
        middle = [Column("violation", violation)]
    return [Column("accuracy", "accuracy"), *middle, Column("CF std", "client_accuracy_std")]


def more_columns(notion: str, attributes: Sequence[str] = ()) -> list[Column]:
    """Return the columns that the paper does not have.

    Examples
    --------
    >>> [column.heading for column in more_columns("")]
    ['balanced accuracy', 'CF gap', 'CF std floor']
    """
    found = [
        Column("balanced accuracy", "balanced_accuracy"),
        Column("CF gap", "client_accuracy_gap"),
        Column("CF std floor", "floor_client_accuracy_std"),
    ]
    if not notion:
        return found
    violation = f"{notion}_difference"
    return [
        *found,
        *([Column("largest violation", violation)] if attributes else []),
        Column("train violation", f"train_{violation}"),
        Column("violation floor", f"floor_{violation}"),
        Column("frontier", f"frontier_{violation}"),
    ]


def number(value: float) -> str:
    """Write three decimals, without a zero before the point.

    Examples
    --------
    >>> number(0.7916), number(1.0)
    ('.792', '1.000')
    """
    return f"{value:.3f}".removeprefix("0")


def markdown(grid: Sequence[Sequence[str]]) -> str:
    r"""Write a Markdown table, its first row as heading.

    Examples
    --------
    >>> print(markdown([["method", "accuracy"], ["a|b", ".8"]]))
    | method | accuracy |
    | --- | --- |
    | a\|b | .8 |
    """
    head, *lines = ([cell.replace("|", r"\|") for cell in row] for row in grid)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *lines])


class Cells:
    """The rows of a long frame, by protocol, data and split, strategy, notion and column."""

    def __init__(self, long: pd.DataFrame) -> None:
        self._rows = {tuple(row[:7]): row for row in long.itertuples(index=False)}
        self._most = long.groupby(["protocol", "data", "split"])["n"].max().to_dict()

    def row(self, table: Place, strategy: str, notion: str, column: Column) -> Any:
        """Return the row of a number; None if it does not apply."""
        return self._rows.get((*table, strategy, notion, column.metric, column.attribute))

    def text(self, table: Place, strategy: str, notion: str, column: Column) -> str:
        """Write mean ± std, mark, published number, and n where it is lower than elsewhere."""
        row = self.row(table, strategy, notion, column)
        if row is None:
            return "-"
        if row.n == 0:
            return "undefined" if row.runs else ""
        few = row.n < self._most[table]
        parts = [
            spread(row),
            row.mark * (2 if row.holm_p < LEVEL else 1),
            "" if math.isnan(row.published) else f"({number(row.published)})",
            f"n={row.n}" if few else "",
        ]
        return " ".join(filter(None, parts))


def spread(row: Any) -> str:
    """Write mean ± std; the mean alone if there is one run."""
    return number(row.mean) + ("" if math.isnan(row.std) else f" ± {number(row.std)}")
