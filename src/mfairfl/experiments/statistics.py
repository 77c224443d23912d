"""Comparing two methods over seeds: paired tests, their correction over a table, effect sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]


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

    Raises
    ------
    ValueError
        If the values do not match one to one, or one of them is not finite.

    Examples
    --------
    >>> found = paired([0.84, 0.85, 0.86], [0.81, 0.83, 0.85])
    >>> print(f"{found.difference:.3f} {found.t_p:.4f} {found.wilcoxon_p} {found.effect:.2f}")
    0.020 0.0742 0.25 2.00
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (reference, other))
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"paired: shapes {first.shape} and {second.shape} are not two matched rows"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("paired: a value is not finite; leave out the seeds without a number")
    if len(first) < 2:
        return None
    d = _differences(first, second)
    mean, spread = float(d.mean()), float(d.std(ddof=1))
    if np.ptp(d) == 0:
        same = d[0] == 0
        t_p, effect = (1.0, 0.0) if same else (0.0, math.nan)
    else:
        t_p, effect = float(stats.ttest_1samp(d, 0.0).pvalue), mean / spread
    rank_p = _signed_rank(d)
    return Paired(pairs=len(d), difference=mean, t_p=t_p, wilcoxon_p=rank_p, effect=effect)


def _differences(first: Floats, second: Floats) -> Floats:
    """Subtract, and drop what is only rounding: ties stay ties, equal values differ by zero."""
    scale = max(np.abs(first).max(), np.abs(second).max())
    if scale == 0:
        return np.zeros_like(first)
    found: Floats = np.round((first - second) / scale, 12) * scale
    return found


def _signed_rank(d: Floats) -> float:
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
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean()) if len(found) else math.nan
    return mean, float(found.std(ddof=1)) if len(found) > 1 else math.nan
