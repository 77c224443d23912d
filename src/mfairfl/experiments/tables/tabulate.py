"""From runs to a table: means over seeds, tests against the reference, the published numbers.

A table is first a long frame, one row a number; `table_text` writes it as Markdown, LaTeX and CSV.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import pandas as pd

from mfairfl.errors import DataError
from mfairfl.experiments.statistics import holm, paired, summary
from mfairfl.experiments.tables.layout import TableLayout, TableMeasure, applies, measures
from mfairfl.experiments.tables.paper import published

__all__ = ["LEVEL", "TableLayout", "tabulate"]

LEVEL = 0.05
_METHOD = ["protocol", "data", "split", "strategy", "notion"]
_RUN = [*_METHOD, "seed"]
_COLUMNS = [
    *_METHOD, "metric", "attribute", "mean", "std", "n", "runs", "published", "mark",
    "pairs", "difference", "t_p", "wilcoxon_p", "holm_p", "effect",
]  # fmt: skip
_NOT_TESTED = {
    "mark": "",
    "pairs": 0,
    **dict.fromkeys(("difference", "t_p", "wilcoxon_p", "holm_p", "effect"), math.nan),
}

Runs = dict[tuple[Any, ...], pd.DataFrame]


def tabulate(frame: pd.DataFrame, layout: TableLayout) -> pd.DataFrame:
    """Summarise runs over seeds and test every method against the reference, paired by seed.

    A strategy all of whose runs have an empty notion serves every notion with the same runs.
    Numbers that do not apply have no row; a number without runs has a row with ``runs`` 0.

    Parameters
    ----------
    frame : DataFrame
        One row a run.
    layout : TableLayout
        What to show.

    Returns
    -------
    DataFrame
        One row for each protocol, data, split, strategy, notion, metric and attribute. ``mean``
        and ``std`` (ddof 1) over the ``n`` runs of ``runs`` that define the number. ``mark``:
        "•" the reference is significantly better, "∘" it is significantly worse (paired t-test at
        95 %, not corrected). ``difference`` is reference − other over ``pairs`` seeds.
        ``holm_p`` corrects ``t_p`` over all tests of one protocol.

    Raises
    ------
    DataError
        If a column is missing or a run is there twice.

    Examples
    --------
    >>> layout = TableLayout(
    ...     name="mine", title="Mine", strategies=("fedavg", "mfairfl"), notions=(),
    ...     data=("adult",), splits=("high",), protocols=("10x20",),
    ... )
    >>> numbers = {measure.column: 0.25 for measure in measures("")}
    >>> run = {"protocol": "10x20", "data": "adult", "split": "high", "notion": "", **numbers}
    >>> who = [(name, seed) for name in layout.strategies for seed in (0, 1)]
    >>> frame = pd.DataFrame([{**run, "strategy": name, "seed": seed} for name, seed in who])
    >>> tabulate(frame, layout)[["strategy", "metric", "mean", "t_p"]].head(1).to_dict("records")
    [{'strategy': 'fedavg', 'metric': 'accuracy', 'mean': 0.25, 't_p': 1.0}]
    """
    _check_columns(frame, layout)
    # An empty cell of a CSV file reads back as missing.
    frame = frame.assign(notion=frame["notion"].fillna(""))
    _check_runs(frame)
    frame = frame.set_index("seed").sort_index()  # sums in the same order, whatever the rows'
    runs: Runs = dict(iter(frame.groupby(_METHOD)))
    trained = set(frame.loc[frame["notion"] != "", "strategy"])
    long = pd.DataFrame(list(_rows(runs, trained, layout)), columns=_COLUMNS)
    for _, family in long.groupby("protocol"):
        long.loc[family.index, "holm_p"] = holm(family["t_p"].tolist())
    return long


def _check_columns(frame: pd.DataFrame, layout: TableLayout) -> None:
    needed = _RUN + [
        measure.column
        for data, notion in product(layout.data, layout.models)
        for measure in measures(notion, layout.named_attributes(data))
    ]
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise DataError(
            f"results: no column '{missing[0]}', which {layout.name} shows; "
            "give results that have it, or a table without it"
        )


def _check_runs(frame: pd.DataFrame) -> None:
    twice = frame[frame.duplicated(_RUN)]
    if len(twice):
        run = ", ".join(f"{name} {twice[name].iloc[0]}" for name in _RUN)
        raise DataError(f"results: the run of {run} is there twice; keep one of them")


def _rows(runs: Runs, trained: set[str], layout: TableLayout) -> Iterator[dict[str, Any]]:
    for *table, strategy, notion in product(
        layout.protocols, layout.data, layout.splits, layout.strategies, layout.models
    ):
        own, reference = (
            runs.get((*table, name, notion if name in trained else ""))
            for name in (strategy, layout.reference)
        )
        _, data, split = table
        for measure in measures(notion, layout.named_attributes(data)):
            if not applies(strategy, measure.metric):
                continue
            values = _values(own, measure)
            mean, std = summary(values)
            yield {
                **dict(zip(_METHOD, (*table, strategy, notion), strict=True)),
                "metric": measure.metric,
                "attribute": measure.attribute,
                "mean": mean,
                "std": std,
                "n": len(values),
                "runs": 0 if own is None else len(own),
                "published": _published(layout, data, split, strategy, measure),
                **(_tests(_values(reference, measure), values, measure)
                   if strategy != layout.reference else _NOT_TESTED),
            }  # fmt: skip


def _values(part: pd.DataFrame | None, measure: TableMeasure) -> pd.Series[float]:
    """Return the numbers that are defined, by seed."""
    if part is None:
        return pd.Series(dtype=float)
    return part[measure.column].astype(float).dropna()


def _published(
    layout: TableLayout, data: str, split: str, strategy: str, measure: TableMeasure
) -> float:
    """Return the paper's number; nan if it prints none for this cell and split."""
    if layout.published is None or split != layout.published_split or not measure.printed:
        return math.nan
    found = published(layout.published, data, strategy, measure.printed, measure.number)
    return math.nan if found is None else found


def _tests(
    reference: pd.Series[float], other: pd.Series[float], measure: TableMeasure
) -> dict[str, Any]:
    """Test the seeds that both have."""
    seeds = reference.index.intersection(other.index)
    found = paired(reference[seeds], other[seeds]) if measure.better else None
    if found is None:
        return _NOT_TESTED
    advantage = found.difference * measure.better
    return {
        "mark": "" if found.t_p >= LEVEL else "•" if advantage > 0 else "∘",
        "pairs": found.n,
        "difference": found.difference,
        "t_p": found.t_p,
        "wilcoxon_p": found.wilcoxon_p,
        "effect": found.effect,
    }
