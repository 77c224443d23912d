"""A table as text: Markdown, LaTeX and CSV; the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.experiments.tables.layout import (
    POOLED,
    POOLED_NOTE,
    TableLayout,
    TableMeasure,
    measures,
    short_name,
)
from mfairfl.experiments.tables.tabulate import LEVEL
from mfairfl.text import aligned, formula_safe_frame, formula_unsafe, markdown_escaped

Place = tuple[str, str, str]
"""Protocol, data and split: one table."""

_TEXT = ("protocol", "data", "split", "strategy", "notion", "metric", "attribute", "mark")
_MORE = (
    "Log-loss: mean cross-entropy in nats. Calibration error: mean gap between predicted and "
    "observed frequency, in 15 bins. CF gap: best less worst client's accuracy. Largest violation "
    "at a client: on its own test rows, of the clients that have every group; with few rows it is "
    "large by chance alone. Floor: what the test rows would show on average "
    "if the truth were exactly fair. Frontier: the best accuracy that any classifier could have "
    "on the test rows at this violation."
)
_BLOCK = f"pooled references {POOLED}"
_ESCAPED = str.maketrans(
    {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "+": "{+}", **{sign: f"\\{sign}" for sign in "%_&#${}"},
    }
)  # fmt: skip
_SIGNS = {
    "±": r"$\pm$",
    "••": r"$\bullet\bullet$",
    "∘∘": r"$\circ\circ$",
    "•": r"$\bullet$",
    "∘": r"$\circ$",
    "†": r"$\dagger$",
}


def number(value: float) -> str:
    """Write three decimals, without a zero before the point.

    Examples
    --------
    >>> number(0.7916), number(1.0)
    ('.792', '1.000')
    """
    return f"{value:.3f}".removeprefix("0")


def markdown(grid: Sequence[Sequence[str]]) -> str:
    """Write a table of cells that are Markdown already, its first row as heading.

    Examples
    --------
    >>> print(markdown([["method", "accuracy"], ["fedavg", ".8"]]))
    | method | accuracy |
    | --- | --- |
    | fedavg | .8 |
    """
    head, *lines = grid
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *lines])


class CellTexts:
    """The rows of a long frame, by protocol, data and split, strategy, notion and measure."""

    def __init__(self, long: pd.DataFrame) -> None:
        self._rows = {tuple(row[:7]): row for row in long.itertuples(index=False)}
        self._most = long.groupby(["protocol", "data", "split"])["n"].max().to_dict()

    def row(self, table: Place, strategy: str, notion: str, measure: TableMeasure) -> Any:
        """Return the row of a number; None if it does not apply."""
        return self._rows.get((*table, strategy, notion, measure.metric, measure.attribute))

    def text(self, table: Place, strategy: str, notion: str, measure: TableMeasure) -> str:
        """Write mean ± std, mark, published number, and n where it is lower than elsewhere."""
        row = self.row(table, strategy, notion, measure)
        if row is None:
            return "-"
        if row.n == 0:
            return "undefined" if row.runs else ""
        few = row.n < self._most[table]
        tested = "" if row.mark == POOLED else row.mark  # the method's name has it
        parts = [
            spread(row),
            tested * (2 if row.holm_p < LEVEL else 1),
            "" if math.isnan(row.published) else f"({number(row.published)})",
            f"n={row.n}" if few else "",
        ]
        return " ".join(filter(None, parts))


def spread(row: Any) -> str:
    """Write mean ± std; the mean alone if there is one run."""
    return number(row.mean) + ("" if math.isnan(row.std) else f" ± {number(row.std)}")


def write_csv(long: pd.DataFrame) -> str:
    r"""Write the long frame of `tabulate`.

    Examples
    --------
    >>> write_csv(pd.DataFrame({"metric": ["accuracy"], "mean": [1 / 3], "std": [None]}))
    'metric,mean,std\naccuracy,0.333333,\n'
    """
    safe = formula_safe_frame(long)
    return safe.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def read_csv(path: Path) -> pd.DataFrame:
    """Read what `write_csv` wrote: an empty notion, attribute or mark is text, not missing."""
    frame = pd.read_csv(
        path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(_TEXT, str)
    )
    frame = frame.fillna(dict.fromkeys(_TEXT, ""))
    return frame.assign(
        **{name: frame[name].map(formula_unsafe) for name in _TEXT if name in frame.columns}
    )


def write_markdown(
    long: pd.DataFrame, layout: TableLayout, *, sections: Sequence[str] = ()
) -> str:
    r"""Write tables for each protocol, data and split.

    Parameters
    ----------
    long : DataFrame
        From `tabulate`, with the same layout.
    sections : sequence of str
        Paragraphs to put between the title and the tables.

    Examples
    --------
    >>> from mfairfl.experiments.tables.layout import measures
    >>> from mfairfl.experiments.tables.tabulate import tabulate
    >>> layout = TableLayout(
    ...     name="mine", title="Mine", strategies=("mfairfl",), notions=(),
    ...     data=("adult",), splits=("high",), protocols=("10x20",),
    ... )
    >>> run = {"protocol": "10x20", "data": "adult", "split": "high", "strategy": "mfairfl"}
    >>> numbers = {measure.column: 0.25 for measure in measures("")}
    >>> frame = pd.DataFrame([{**run, "notion": "", "seed": seed, **numbers} for seed in (0, 1)])
    >>> print("\n".join(write_markdown(tabulate(frame, layout), layout).splitlines()[10:15]))
    ### adult, split high
    <BLANKLINE>
    | method | accuracy | CF std |
    | --- | --- | --- |
    | mfairfl | .250 ± .000 | .250 ± .000 |
    """
    cells = CellTexts(long)
    parts = [f"# {markdown_escaped(layout.title)}", *sections]
    parts += ["## How to read the tables", markdown_escaped(_legend(long, layout)), _MORE]
    for protocol in layout.protocols:
        parts.append(f"## {markdown_escaped(protocol)} (rounds x local epochs)")
        for data, split in product(layout.data, layout.splits):
            table, names = (protocol, data, split), layout.named_attributes(data)
            shown = [(notion, one) for notion in layout.models for one in measures(notion, names)]
            main = [(notion, one) for notion, one in shown if one.main]
            parts.append(f"### {markdown_escaped(f'{data}, split {split}')}")
            parts.append(_escaped_table(_grid(cells, table, layout, main)))
            for model in layout.models:
                more = [(notion, one) for notion, one in shown if notion == model and not one.main]
                parts.append(_escaped_table(_grid(cells, table, layout, more)))
    return "\n\n".join(parts) + "\n"


def _escaped_table(grid: Sequence[Sequence[str]]) -> str:
    return markdown([[markdown_escaped(cell) for cell in row] for row in grid])


def write_text(long: pd.DataFrame, layout: TableLayout) -> str:
    """Write the main columns for a terminal: a table for each protocol, data, split and notion."""
    cells, parts = CellTexts(long), [layout.title]
    for protocol, data, split in product(layout.protocols, layout.data, layout.splits):
        table, names = (protocol, data, split), layout.named_attributes(data)
        for notion in layout.models:
            main = [(notion, one) for one in measures(notion, names) if one.main]
            parts.append(f"\n{data}, split {split}, {protocol}")
            parts += aligned(_grid(cells, table, layout, main))
    return "\n".join([*parts, "", _legend(long, layout)])


def _grid(
    cells: CellTexts,
    table: Place,
    layout: TableLayout,
    columns: Sequence[tuple[str, TableMeasure]],
) -> list[list[str]]:
    """Return one line per strategy below the headings; a column is a notion and a number.

    Pooled references are a block of their own.
    """
    head = [
        f"{short_name(notion)}: {column.heading}" if notion else column.heading
        for notion, column in columns
    ]
    lines = {
        strategy: [cells.text(table, strategy, notion, column) for notion, column in columns]
        for strategy in layout.rows
    }
    methods = [[name, *lines[name]] for name in layout.strategies]
    pooled = [[f"{name} {POOLED}", *lines[name]] for name in layout.pooled_references]
    block = [[_BLOCK, *([""] * len(head))]] if pooled else []
    return [["method", *head], *methods, *block, *pooled]


def _legend(long: pd.DataFrame, layout: TableLayout) -> str:
    """Explain a main table's cells."""
    parts = [
        "Mean ± standard deviation over seeds.",
        f"• / ∘: {layout.reference} is significantly better / worse than the method (paired "
        "t-test, 95 %); •• / ∘∘: also after Holm's correction over all tests of this protocol.",
        "In parentheses: the published number." if long["published"].notna().any() else "",
        "CF std: standard deviation of the clients' accuracies; -: not applicable.",
        f"{POOLED_NOTE}, and not tested." if layout.pooled_references else "",
    ]
    return " ".join(filter(None, parts))


def write_latex(long: pd.DataFrame, layout: TableLayout) -> str:
    r"""Write a booktabs table for each protocol, data and split, one block of rows per notion.

    Parameters
    ----------
    long : DataFrame
        From `tabulate`, with the same layout.

    Examples
    --------
    >>> from mfairfl.experiments.tables.layout import measures
    >>> from mfairfl.experiments.tables.tabulate import tabulate
    >>> layout = TableLayout(
    ...     name="mine", title="Mine", strategies=("mfairfl",), notions=(),
    ...     data=("adult",), splits=("high",), protocols=("10x20",),
    ... )
    >>> run = {"protocol": "10x20", "data": "adult", "split": "high", "strategy": "mfairfl"}
    >>> numbers = {measure.column: 0.25 for measure in measures("")}
    >>> frame = pd.DataFrame([{**run, "notion": "", "seed": seed, **numbers} for seed in (0, 1)])
    >>> print(write_latex(tabulate(frame, layout), layout).splitlines()[9])
        mfairfl & .250 $\pm$ .000 & .250 $\pm$ .000 \\
    """
    cells, legend = CellTexts(long), _legend(long, layout)
    tables = product(layout.protocols, layout.data, layout.splits)
    return "\n".join("\n".join(_latex(cells, table, layout, legend)) + "\n" for table in tables)


def _latex(cells: CellTexts, table: Place, layout: TableLayout, legend: str) -> Iterator[str]:
    protocol, data, split = table
    names = layout.named_attributes(data)
    head = [one.heading for one in measures(layout.models[0], names) if one.main]
    title = f"{layout.title}: {data}, split {split}, {protocol} rounds x local epochs."
    yield r"\begin{table}"
    yield r"  \centering"
    yield r"  \footnotesize"
    yield f"  \\caption{{{_escape(title)} {_escape(legend)}}}"
    yield f"  \\label{{tab:{'-'.join((layout.name, *table))}}}"
    yield f"  \\begin{{tabular}}{{{'l' * (len(head) + 1)}}}"
    yield r"    \toprule"
    yield _latex_row(["method", *head])
    for notion in layout.models:
        yield r"    \midrule"
        if notion:
            words = _escape(notion.replace("_", " "))
            yield f"    \\multicolumn{{{len(head) + 1}}}{{l}}{{\\emph{{{words}}}}} \\\\"
        shown = [(notion, one) for one in measures(notion, names) if one.main]
        for row in _grid(cells, table, layout, shown)[1:]:
            if row[0] == _BLOCK:
                yield r"    \addlinespace"
            yield _latex_row(row)
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _latex_row(cells: Sequence[str]) -> str:
    return f"    {' & '.join(map(_escape, cells))} \\\\"


def _escape(text: str) -> str:
    r"""Return the text as LaTeX shows it.

    Examples
    --------
    >>> print(_escape("fedmgda+ 95 % ••"))
    fedmgda{+} 95 \% $\bullet\bullet$
    """
    text = text.translate(_ESCAPED)
    for sign, command in _SIGNS.items():
        text = text.replace(sign, command)
    return text
