"""From runs to the numbers of a table: means over seeds, paired tests against the reference.

The result is a long frame, one row per number; `study_tables` turns it into text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mfairfl.experiments.study_tables import LEVEL, POOLED, TableLayout, TableMeasure, measures
from mfairfl.fairness.uncertainty import holm

_METHOD = ["protocol", "data", "split", "strategy", "notion"]
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
    strategies = (*layout.strategies, *layout.pooled_references)
    for *table, strategy, notion in product(
        layout.protocols, layout.data, layout.splits, strategies, layout.models
    ):
        runs_of_method, runs_of_reference = (
            runs.get((*table, name, notion if name in trained else ""))
            for name in (strategy, layout.reference)
        )
        _, data, split = table
        for measure in measures(notion, layout.named_attributes(data)):
            if not layout.applies(strategy, measure.metric):
                continue
            values = _values(runs_of_method, measure)
            mean, std = summary(values)
            yield {
                **dict(zip(_METHOD, (*table, strategy, notion), strict=True)),
                "metric": measure.metric,
                "attribute": measure.attribute,
                "mean": mean,
                "std": std,
                "n": len(values),
                "runs": 0 if runs_of_method is None else len(runs_of_method),
                "published": published.get(
                    (data, split, strategy, measure.metric, measure.attribute), math.nan
                ),
                **_compared(layout, strategy, values, runs_of_reference, measure),
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
    """Return the tests of a federated method against the reference, on the seeds of both."""
    if strategy in layout.pooled_references:
        return _NOT_TESTED | {"mark": POOLED}
    if strategy == layout.reference or not measure.better:
        return _NOT_TESTED
    ours = _values(reference, measure)
    seeds = ours.index.intersection(values.index)
    tests = paired(ours[seeds], values[seeds])
    if tests is None:
        return _NOT_TESTED
    advantage = tests.difference * measure.better
    mark = "" if tests.t_p >= LEVEL else "•" if advantage > 0 else "∘"
    return {"mark": mark, **asdict(tests)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A reference method against another one, both measured on the same rows, seed by seed.

    Attributes
    ----------
    pairs : int
        Their number.
    difference : float
        Mean of reference − other.
    t_p : float
        Two-sided p-value of the paired t-test; 0 if every pair differs by the same amount.
    wilcoxon_p : float
        Two-sided exact p-value of Wilcoxon's signed-rank test; it cannot be below 2 / 2ⁿ, so
        five seeds never reach .05.
    effect : float
        Cohen's d_z: mean over standard deviation (ddof 1) of the differences. Nan if every pair
        differs by the same amount other than zero: the effect is then infinite.
    """

    pairs: int
    difference: float
    t_p: float
    wilcoxon_p: float
    effect: float


def paired(reference: ArrayLike, other: ArrayLike) -> Paired | None:
    """Test whether two methods differ, from matched values.

    Returns
    -------
    Paired or None
        None with fewer than two pairs.

    Examples
    --------
    >>> tests = paired([0.84, 0.85, 0.86], [0.81, 0.83, 0.85])
    >>> print(f"{tests.difference:.3f} {tests.t_p:.4f} {tests.wilcoxon_p} {tests.effect:.2f}")
    0.020 0.0742 0.25 2.00
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (reference, other))
    if len(first) < 2:
        return None
    scale = max(np.abs(first).max(), np.abs(second).max())
    # What is only rounding is dropped: ties stay ties, and equal values differ by zero.
    d = np.round((first - second) / (scale or 1.0), 12) * scale
    mean, spread = float(d.mean()), float(d.std(ddof=1))
    if np.ptp(d) == 0:
        same = d[0] == 0
        t_p, effect = (1.0, 0.0) if same else (0.0, math.nan)
    else:
        t_p, effect = float(stats.ttest_1samp(d, 0.0).pvalue), mean / spread
    rank_p = _signed_rank(d)
    return Paired(pairs=len(d), difference=mean, t_p=t_p, wilcoxon_p=rank_p, effect=effect)


def _signed_rank(d: NDArray[np.float64]) -> float:
    """Return Wilcoxon's exact two-sided p-value, zeros left out.

    scipy's exact test does not allow ties, and its permutations take 2ⁿ calls. The distribution of
    the rank sum under random signs is a product of n two-term polynomials; doubled ranks are whole
    also with ties.
    """
    d = d[d != 0]
    ranks = np.rint(2 * stats.rankdata(np.abs(d))).astype(np.int64)
    chance = np.ones(1)
    for rank in ranks:
        gap = np.zeros(rank)
        chance = (np.append(chance, gap) + np.append(gap, chance)) / 2
    smaller = min(ranks[d > 0].sum(), ranks[d < 0].sum())
    return min(1.0, 2 * float(chance[: smaller + 1].sum()))


def summary(values: ArrayLike) -> tuple[float, float]:
    """Return the mean and the standard deviation (ddof 1); nan where too few values define them.

    Examples
    --------
    >>> summary([1.0, 2.0, 3.0])
    (2.0, 1.0)
    >>> summary([0.5])
    (0.5, nan)
    """
    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean()) if len(numbers) else math.nan
    return mean, float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan
