"""From runs to a table: means over seeds, tests against the reference, published numbers.

A table is first a long frame, one row per number; `writers` turns it into Markdown, LaTeX and CSV.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from typing import Any

import pandas as pd

from mfairfl.experiments.frames import require_columns, require_unique
from mfairfl.experiments.statistics import paired, summary
from mfairfl.experiments.tables.layout import POOLED, TableLayout, TableMeasure, measures
from mfairfl.fairness.uncertainty import holm

LEVEL = 0.05
_METHOD = ["protocol", "data", "split", "strategy", "notion"]
_RUN = [*_METHOD, "seed"]
_NUMBER = ["metric", "attribute", "mean", "std", "n", "runs", "published"]
_TESTS = ["difference", "t_p", "wilcoxon_p", "holm_p", "effect"]
_NOT_TESTED = {"mark": "", "pairs": 0, **dict.fromkeys(_TESTS, math.nan)}

Published = Mapping[tuple[str, str, str, str, str], float]
"""Numbers of others, by data, split, strategy, metric and attribute."""

_Runs = dict[tuple[Any, ...], pd.DataFrame]


def tabulate(
    frame: pd.DataFrame, layout: TableLayout, published: Published | None = None
) -> pd.DataFrame:
    """Summarise runs over seeds and test every method against the reference, paired by seed.

    A strategy all of whose runs have an empty notion serves every notion with the same runs.
    Numbers that do not apply have no row; a number without runs has a row with ``runs`` 0.

    Parameters
    ----------
    frame : DataFrame
        One row per run.
    layout : TableLayout
        What to show.
    published : mapping, optional
        Numbers of others that stand beside ours.

    Returns
    -------
    DataFrame
        One row for each protocol, data, split, strategy, notion, metric and attribute. ``mean``
        and ``std`` (ddof 1) over the ``n`` runs of ``runs`` that define the number. ``mark``:
        "•" the reference is significantly better, "∘" it is significantly worse (paired t-test at
        95 %, not corrected), "†" a pooled reference: not tested. ``difference`` is reference −
        other over ``pairs`` seeds. ``holm_p`` corrects ``t_p`` over all tests of one protocol.

    Raises
    ------
    DataError
        If a column is missing or a run appears twice.

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
    columns = [
        measure.column
        for data, notion in product(layout.data, layout.models)
        for measure in measures(notion, layout.named_attributes(data))
    ]
    require_columns(frame, [*_RUN, *columns])
    # An empty cell of a CSV file reads back as missing.
    frame = frame.assign(notion=frame["notion"].fillna(""))
    require_unique(frame, _RUN, "keep one of them")
    frame = frame.set_index("seed").sort_index()  # sums in the same order, whatever the rows'
    runs: _Runs = dict(iter(frame.groupby(_METHOD)))
    trained = set(frame.loc[frame["notion"] != "", "strategy"])
    rows = list(_rows(runs, trained, layout, published or {}))
    long = pd.DataFrame(rows, columns=[*_METHOD, *_NUMBER, *_NOT_TESTED])
    for _, family in long.groupby("protocol"):
        long.loc[family.index, "holm_p"] = holm(family["t_p"].tolist())
    return long


def _rows(
    runs: _Runs, trained: set[str], layout: TableLayout, published: Published
) -> Iterator[dict[str, Any]]:
    for *table, strategy, notion in product(
        layout.protocols, layout.data, layout.splits, layout.rows, layout.models
    ):
        own, reference = (
            runs.get((*table, name, notion if name in trained else ""))
            for name in (strategy, layout.reference)
        )
        _, data, split = table
        for measure in measures(notion, layout.named_attributes(data)):
            if not layout.applies(strategy, measure.metric):
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
                "published": published.get(
                    (data, split, strategy, measure.metric, measure.attribute), math.nan
                ),
                **_compared(layout, strategy, values, reference, measure),
            }


def _values(part: pd.DataFrame | None, measure: TableMeasure) -> pd.Series[float]:
    """Return the numbers that are defined, by seed."""
    if part is None:
        return pd.Series(dtype=float)
    return part[measure.column].astype(float).dropna()


def _compared(
    layout: TableLayout,
    strategy: str,
    values: pd.Series[float],
    reference: pd.DataFrame | None,
    measure: TableMeasure,
) -> dict[str, Any]:
    """Return the tests of a federated method against the reference; others have none."""
    if strategy in layout.pooled_references:
        return _NOT_TESTED | {"mark": POOLED}
    if strategy == layout.reference:
        return _NOT_TESTED
    return _tests(_values(reference, measure), values, measure)


def _tests(
    reference: pd.Series[float], other: pd.Series[float], measure: TableMeasure
) -> dict[str, Any]:
    """Test the seeds that both have."""
    seeds = reference.index.intersection(other.index)
    found = paired(reference[seeds], other[seeds]) if measure.better else None
    if found is None:
        return _NOT_TESTED
    advantage = found.difference * measure.better
    mark = "" if found.t_p >= LEVEL else "•" if advantage > 0 else "∘"
    return {"mark": mark, **asdict(found)}
