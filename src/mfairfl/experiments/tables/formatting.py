"""The cells of a table: which numbers stand side by side, and how one is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from mfairfl.experiments.tables.tabulate import LEVEL

__all__ = [
    "CellTexts",
    "Place",
    "TableColumn",
    "main_columns",
    "markdown",
    "more_columns",
    "number",
    "spread",
]

Place = tuple[str, str, str]


class TableColumn(NamedTuple):
    """A heading and the number below it."""

    heading: str
    metric: str
    attribute: str = ""


def main_columns(notion: str, attributes: Sequence[str] = ()) -> list[TableColumn]:
    """Return the columns that the paper has too.

    Examples
    --------
    >>> [column.heading for column in main_columns("equalized_odds", ("sex", "age"))]
    ['accuracy', 'violation, sex', 'violation, age', 'CF std']
    """
    violation = f"{notion}_violation"
    middle = [TableColumn(f"violation, {name}", violation, name) for name in attributes]
    if notion and not attributes:
        middle = [TableColumn("violation", violation)]
    return [
        TableColumn("accuracy", "accuracy"),
        *middle,
        TableColumn("CF std", "client_accuracy_std"),
    ]


def more_columns(notion: str, attributes: Sequence[str] = ()) -> list[TableColumn]:
    """Return the columns that the paper does not have.

    Examples
    --------
    >>> [column.heading for column in more_columns("")]
    ['balanced accuracy', 'CF gap', 'CF std floor']
    """
    found = [
        TableColumn("balanced accuracy", "balanced_accuracy"),
        TableColumn("CF gap", "client_accuracy_gap"),
        TableColumn("CF std floor", "floor_client_accuracy_std"),
    ]
    if not notion:
        return found
    violation = f"{notion}_violation"
    return [
        *found,
        *([TableColumn("largest violation", violation)] if attributes else []),
        TableColumn("train violation", f"train_{violation}"),
        TableColumn("violation floor", f"floor_{violation}"),
        TableColumn("frontier", f"frontier_{violation}"),
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


class CellTexts:
    """The rows of a long frame, by protocol, data and split, strategy, notion and column."""

    def __init__(self, long: pd.DataFrame) -> None:
        self._rows = {tuple(row[:7]): row for row in long.itertuples(index=False)}
        self._most = long.groupby(["protocol", "data", "split"])["n"].max().to_dict()

    def row(self, table: Place, strategy: str, notion: str, column: TableColumn) -> Any:
        """Return the row of a number; None if it does not apply."""
        return self._rows.get((*table, strategy, notion, column.metric, column.attribute))

    def text(self, table: Place, strategy: str, notion: str, column: TableColumn) -> str:
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
