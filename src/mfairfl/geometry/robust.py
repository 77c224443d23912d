"""Combine updates of which some may be lies, from their Gram matrix alone.

Every rule chooses, shortens or averages whole updates by their distances, and

    |g_k − Σ_j c_j g_j|² = M_kk − 2 (M c)_k + cᵀ M c,

so M = G Gᵀ is all it needs and coefficients c are all it answers. A rule that prepares the updates
for another one answers with a matrix R: `mixed_gram(M, R)` is the Gram matrix of what it makes of
them, and coefficients c on those are Rᵀ c on the originals.

The rules are those of ByzFL 0.0.11, and so are their results. None knows who lies: what is far
from the others counts less, and so does an honest client unlike the others.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.errors import ConfigError, DataError
from mfairfl.geometry.gram import Floats, checked, checked_gram, checked_weights

# A float32 Gram matrix is right to 1e-6 of the squared norms (gram.py), so a distance that it
# takes for 0 may be a thousandth of them.
_RESOLUTION = 1e-3


def lower_median(values: ArrayLike) -> float:
    """Return the median; of two middle values the lower, which is one of the values.

    Of two clients, the one with the larger value cannot set it.

    Examples
    --------
    >>> lower_median([3.0, 1.0]), lower_median([3.0, 1.0, 2.0])
    (1.0, 2.0)
    """
    array = np.asarray(values, dtype=np.float64)
    middle = (len(array) - 1) // 2
    return float(np.partition(array, middle)[middle])


def distances(gram: ArrayLike) -> Floats:
    """Return the distances |g_i − g_j| of all pairs; 0 where rounding leaves a negative square.

    Examples
    --------
    >>> distances([[9.0, 0.0], [0.0, 16.0]]).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    return np.sqrt(_squared_distances(gram))


def mixed_gram(gram: ArrayLike, rows: ArrayLike) -> Floats:
    """Return R M Rᵀ, the Gram matrix of the updates Σ_j R_kj g_j.

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    rows : array (K, K)
        R: row k is what takes the place of client k's update, in terms of the originals.

    Examples
    --------
    Of three updates on a line, mix the two nearest and take the geometric median:

    >>> gram = np.outer([1.0, 2.0, 9.0], [1.0, 2.0, 9.0])
    >>> rows = nearest_neighbour_mixing(gram, f=1)
    >>> mixed_gram(gram, rows).tolist()
    [[2.25, 2.25, 8.25], [2.25, 2.25, 8.25], [8.25, 8.25, 30.25]]
    >>> (rows.T @ geometric_median(mixed_gram(gram, rows))).round(3).tolist()
    [0.5, 0.5, 0.0]
    """
    M = checked_gram(gram)
    R = checked("rows", rows, M.shape)
    mixed = R @ _symmetric(M) @ R.T
    # Where updates cancel, rounding may leave a square below 0 and halves that differ.
    np.fill_diagonal(mixed, np.maximum(np.diag(mixed), 0.0))
    return _symmetric(mixed)


def norm_clipping(gram: ArrayLike, bound: float | None = None) -> Floats:
    """Return the factors min(1, bound / |g_k|) that no update is longer with than `bound`.

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    bound : float, optional
        By default the median of the norms; of an even number the lower one in the middle, so that
        of two clients the one with the longer update does not decide how long it may be.

    Examples
    --------
    >>> norm_clipping(np.diag([1.0, 4.0, 100.0])).tolist()
    [1.0, 1.0, 0.2]
    """
    norms = np.sqrt(np.diag(checked_gram(gram)))
    limit = lower_median(norms) if bound is None else _checked_length("bound", bound)
    return _shortening(norms, limit)


def nearest_neighbour_mixing(gram: ArrayLike, f: int) -> Floats:
    """Return rows R that replace each update by the mean of the K − f nearest, itself among them.

    Allouah et al., Fixing by Mixing (2023). Of others equally near the first ones are taken.

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    f : int
        How many clients may lie: fewer than half.

    Examples
    --------
    >>> nearest_neighbour_mixing(np.outer([1.0, 2.0, 9.0], [1.0, 2.0, 9.0]), f=1).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    apart = _squared_distances(gram)
    count = len(apart) - _checked_liars(f, len(apart))
    np.fill_diagonal(apart, -1.0)  # an update is nearer to itself than its double is
    nearest = np.argsort(apart, axis=1, kind="stable")[:, :count]
    rows = np.zeros_like(apart)
    np.put_along_axis(rows, nearest, 1 / count, axis=1)
    return rows


def geometric_median(
    gram: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    nu: float | None = None,
    rounds: int = 100,
) -> Floats:
    """Return the coefficients of the point whose distances to the updates have the least sum.

    Weiszfeld's iteration from 0, smoothed: each round is the mean of the updates with weights
    p_k / max(ν, |g_k − z|). Pillutla et al., Robust Aggregation for Federated Learning (2022).

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    weights : array (K,), optional
        p, by default 1/K; half of their sum must be honest.
    nu : float, optional
        ν, a length, by default a thousandth of the (lower) median norm. Where all distances are
        below ν the result is the plain mean: ByzFL's 0.1 does not defend updates shorter than
        that.
    rounds : int
        Rounds of the iteration. In a few of them a client gets far by sending 0, where it starts.
        ByzFL's defaults are ``nu=0.1, rounds=3``.

    Returns
    -------
    ndarray (K,)
        Coefficients that are not negative and sum to 1.

    Examples
    --------
    >>> geometric_median(np.outer([1.0, 2.0, 9.0], [1.0, 2.0, 9.0])).round(3).tolist()
    [0.002, 0.998, 0.0]
    """
    M = _symmetric(checked_gram(gram))
    p = checked_weights(weights, len(M))
    if not p.any():
        raise DataError("weights are all 0; give one client more than that")
    norms = np.sqrt(np.diag(M))
    least = _RESOLUTION * lower_median(norms) if nu is None else _checked_length("nu", nu)
    c = np.zeros(len(M))
    for _ in range(_checked_rounds(rounds)):
        c = _attraction(p, np.maximum(_distances_from(M, c), least))
    return c


def multi_krum(gram: ArrayLike, f: int) -> Floats:
    """Return 1 / (K − f) for the K − f updates nearest to their neighbours, 0 for the others.

    An update's score is the sum of squared distances to the K − f − 1 nearest others; of equal
    scores the first ones are taken. ByzFL counts neighbours like this; Blanchard et al., Machine
    Learning with Adversaries (2017), one fewer.

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    f : int
        How many clients may lie: fewer than half.

    Examples
    --------
    >>> multi_krum(np.outer([1.0, 2.0, 9.0], [1.0, 2.0, 9.0]), f=1).tolist()
    [0.5, 0.5, 0.0]
    """
    order = _by_score(gram, f)
    return _share_of(order[: len(order) - f], len(order))


def krum(gram: ArrayLike, f: int) -> Floats:
    """Return 1 for the update nearest to its neighbours, 0 for the others: see `multi_krum`.

    Examples
    --------
    >>> krum(np.outer([1.0, 2.0, 2.5, 9.0], [1.0, 2.0, 2.5, 9.0]), f=1).tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    order = _by_score(gram, f)
    return _share_of(order[:1], len(order))


def centred_clipping(
    gram: ArrayLike, tau: float, *, rounds: int = 1, start: ArrayLike | None = None
) -> Floats:
    """Return the coefficients of a centre that no update moves by more than τ / K a round.

    v ← v + mean_k (g_k − v) min(1, τ / |g_k − v|). Karimireddy et al., Learning from History for
    Byzantine Robust Optimization (2021).

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    tau : float
        τ, a length: choose it by that of honest updates.
    rounds : int
        How often the centre moves.
    start : array (K,), optional
        Coefficients of the first centre, by default of 0. (A ByzFL object starts at its last
        result, a vector that the updates of another round do not span.)

    Examples
    --------
    >>> centred_clipping(np.diag([1.0, 100.0]), tau=2.0).tolist()
    [0.5, 0.1]
    """
    M = _symmetric(checked_gram(gram))
    c = np.zeros(len(M)) if start is None else checked("start", start, (len(M),))
    limit = _checked_length("tau", tau)
    for _ in range(_checked_rounds(rounds)):
        factors = _shortening(_distances_from(M, c), limit)
        c = c * (1 - factors.mean()) + factors / len(M)
    return c


def _symmetric(M: Floats) -> Floats:
    return (M + M.T) / 2


def _squared_distances(gram: ArrayLike) -> Floats:
    M = checked_gram(gram)
    squares = np.diag(M)
    return np.maximum(np.add.outer(squares, squares) - 2 * _symmetric(M), 0.0)


def _distances_from(M: Floats, c: Floats) -> Floats:
    """Return |g_k − Σ_j c_j g_j| for all k; 0 where rounding leaves a negative square."""
    products = M @ c
    return np.sqrt(np.maximum(np.diag(M) - 2 * products + c @ products, 0.0))


def _shortening(lengths: Floats, limit: float) -> Floats:
    longer = lengths > limit
    return np.divide(limit, lengths, out=np.ones_like(lengths), where=longer)


def _attraction(p: Floats, reach: Floats) -> Floats:
    """Return p / reach as shares of 1; clients that are reached already take all."""
    here = p * (reach == 0)
    pull = here if here.any() else np.divide(p, reach, out=np.zeros_like(p), where=p > 0)
    return np.asarray(pull / pull.sum())


def _by_score(gram: ArrayLike, f: int) -> NDArray[np.intp]:
    """Return the clients by Krum's score; ties by position."""
    apart = np.sort(_squared_distances(gram), axis=1)
    others = len(apart) - _checked_liars(f, len(apart))
    return np.argsort(apart[:, 1:others].sum(axis=1), kind="stable")


def _share_of(chosen: NDArray[np.intp], count: int) -> Floats:
    c = np.zeros(count)
    c[chosen] = 1 / len(chosen)
    return c


def _checked_liars(f: int, count: int) -> int:
    if f not in range((count + 1) // 2):
        raise ConfigError(f"f must be a whole number from 0 and below K/2 = {count / 2}, not {f}")
    return f


def _checked_length(name: str, value: float) -> float:
    if not value >= 0:
        raise ConfigError(f"{name} must be at least 0, not {value}")
    return value


def _checked_rounds(rounds: int) -> int:
    if rounds < 1:
        raise ConfigError(f"rounds must be at least 1, not {rounds}")
    return rounds
