"""The shortest vector among convex combinations near a centre: FedMGDA+'s quadratic programme.

    λ⋆ = argmin λᵀMλ  subject to  Σλ = 1,  max(0, λ0 − ε) ≤ λ ≤ min(1, λ0 + ε).

M = AᵀA by its eigenvalues, so the objective is |Aλ|². From the centre, two kinds of moves take
turns: projected gradient steps, which change the face of the box, and least squares over the free
coordinates of a face (exact there; cut where it would leave the box). Values at minima of faces
fall strictly and there are finitely many faces, so this ends. The answer is certified:
f(λ) − f(λ⋆) is at most the duality gap ∇f·λ − min ∇f·s over the feasible s, and at most f(λ);
one of them must be rounding. Where M is singular λ⋆ may not be unique; the vector Σ λ⋆_k g_k is.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.errors import ConfigError, DataError
from mfairfl.geometry.gram import Floats, checked, checked_gram, checked_weights

# Relative to the lengths that are multiplied in it, a duality gap that is rounding.
_CERTAIN = 1e-12
# Per client: eigenvalues of the cosines, and lengths of differences, that are rounding errors.
_FLAT, _ROUNDING = 1e-14, 1e-15
# Per client: an eigenvalue of the cosines so negative that no rounding explains it.
_INDEFINITE = -1e-3
# Projected gradient steps before least squares, which costs as much as many of them.
_STEPS = 10


def min_norm_coefficients(
    gram: ArrayLike, *, centre: ArrayLike | None = None, epsilon: float = 1.0
) -> Floats:
    """Return λ⋆, the convex combination of least norm within ε of the centre.

    Parameters
    ----------
    gram : array (K, K)
        M, inner products of the vectors that are combined.
    centre : array (K,), optional
        λ0, weights that sum to 1; by default 1/K.
    epsilon : float
        How far each λ_k may be from λ0_k; 0 returns the centre, 1 allows every combination.

    Returns
    -------
    ndarray (K,)
        λ⋆. Its objective is within rounding of the least one, or an `ArithmeticError` is raised.

    Examples
    --------
    >>> min_norm_coefficients([[1.0, 0.0], [0.0, 4.0]]).round(12).tolist()
    [0.8, 0.2]
    >>> min_norm_coefficients([[1.0, 0.0], [0.0, 4.0]], epsilon=0.1).tolist()
    [0.6, 0.4]
    """
    M = checked_gram(gram)
    start = checked_weights(centre, len(M))
    if abs(start.sum() - 1) > 1e-9:
        raise DataError(f"centre sums to {start.sum()}; weights of a mean sum to 1")
    if not epsilon >= 0:
        raise ConfigError(f"epsilon must be at least 0, not {epsilon}")
    if epsilon == 0:
        return start
    lower, upper = np.maximum(0.0, start - epsilon), np.minimum(1.0, start + epsilon)
    A = _factor(M)
    x = project_box_simplex(start, lower, upper)  # sums to 1 as well as rounding allows
    for _ in range(100 * len(M)):  # a few are enough; many mean that rounding leads in circles
        x = _face_minimum(A, _descend(A, x, lower, upper), lower, upper)
        if _certain(A, x, lower, upper):
            return x
    raise ArithmeticError(
        f"no combination of {len(M)} vectors is of least norm to within rounding"
    )


def project_box_simplex(v: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Floats:
    """Return the point nearest to v with Σ = 1 and lower ≤ · ≤ upper: clip(v − τ).

    The sum of clip(v − τ) falls with τ and is linear between the points where a coordinate meets a
    bound, so τ is found exactly.

    Parameters
    ----------
    v, lower, upper : array (K,)
        The point and its bounds; Σ lower ≤ 1 ≤ Σ upper.

    Examples
    --------
    >>> project_box_simplex([0.9, 0.5, -1.0], [0, 0, 0], [1, 1, 1]).round(12).tolist()
    [0.7, 0.3, 0.0]
    """
    count = np.size(v)
    point = checked("v", v, (count,))
    low, high = checked("lower", lower, (count,)), checked("upper", upper, (count,))
    if (low > high).any() or not low.sum() <= 1 + 1e-9 <= high.sum() + 2e-9:
        raise DataError(
            f"lower sums to {low.sum()} and upper to {high.sum()}: lower ≤ upper and "
            "Σ lower ≤ 1 ≤ Σ upper must hold"
        )
    for _ in range(2):  # a far point leaves rounding in the sum; a second pass removes it
        bends = np.unique(np.concatenate([point - low, point - high]))
        sums = np.clip(point - bends[:, None], low, high).sum(axis=1)
        tau = np.interp(-1.0, -sums, bends)  # interp wants its abscissae rising
        point = np.clip(point - tau, low, high)
    return point


def _factor(M: Floats) -> Floats:
    """Return A with AᵀA = M; from the cosines, so that short vectors keep their digits."""
    length = np.sqrt(np.diag(M))
    scale = np.where(length > 0, length, 1.0)
    values, vectors = np.linalg.eigh((M + M.T) / 2 / np.outer(scale, scale))
    if values[0] < _INDEFINITE * len(M):
        raise DataError(f"gram has eigenvalue {values[0]} of its cosines; no vectors give that")
    values = np.where(values > _FLAT * len(M), values, 0.0)
    return np.asarray(np.sqrt(values)[:, None] * vectors.T * length)


def _face_minimum(A: Floats, x: Floats, lower: Floats, upper: Floats) -> Floats:
    """Minimise over the free coordinates; one that meets its bound stays there."""
    for _ in range(4 * len(x)):
        step = _newton(A, x, (lower < x) & (x < upper))
        room = np.where(step > 0, upper - x, lower - x)
        reach = np.divide(room, step, out=np.full_like(x, np.inf), where=step != 0)
        t = float(reach.min())
        if t >= 1:
            return np.clip(x + step, lower, upper)
        met = reach == t  # lands on its bound exactly, whatever x + t·step rounds to
        cut = np.where(met, np.where(step > 0, upper, lower), np.clip(x + t * step, lower, upper))
        # The whole step, projected, meets many bounds at once; the cut one is sure to descend.
        bold = project_box_simplex(x + step, lower, upper)
        x = bold if np.linalg.norm(A @ bold) < np.linalg.norm(A @ cut) else cut
    return x


def _newton(A: Floats, x: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return the shortest move of the free coordinates to their minimum that keeps the sum."""
    step = np.zeros_like(x)
    moves, rounding = _moves(A[:, free])
    size = float(np.linalg.norm(moves))
    if size > rounding:
        step[free] = np.linalg.lstsq(moves, -A @ x, rcond=rounding / size)[0]
        step[free] -= step[free].mean()
    return step


def _descend(A: Floats, x: Floats, lower: Floats, upper: Floats) -> Floats:
    """Take projected gradient steps of 1/L: they leave a wrong face and get near the right one.

    L bounds the curvature along moves that keep the sum; where there is none nothing is gained.
    """
    moves, rounding = _moves(A)
    size = float(np.linalg.norm(moves, 2))
    if size > rounding:
        for _ in range(_STEPS):
            x = project_box_simplex(x - moves.T @ (A @ x) / size**2, lower, upper)
    return x


def _moves(columns: Floats) -> tuple[Floats, float]:
    """Return the columns less their mean, and the size at which that is rounding.

    What is left of equal columns must not pass for a direction.
    """
    if not columns.size:
        return columns, 0.0
    moves = columns - columns.mean(axis=1, keepdims=True)
    return moves, _ROUNDING * len(columns) * float(np.linalg.norm(columns))


def _certain(A: Floats, x: Floats, lower: Floats, upper: Floats) -> bool:
    """Return whether x is feasible, and f(x) or its duality gap rounding."""
    point = A @ x
    slope = A.T @ point
    # Filling up in the order of the slopes solves the gap's linear programme.
    order = np.argsort(slope, kind="stable")
    room = (upper - lower)[order]
    best = lower.copy()
    best[order] += np.clip(1 - lower.sum() - (np.cumsum(room) - room), 0.0, room)
    length = np.linalg.norm(A, axis=0)
    parts, rivals = float(x @ length), float(best @ length)
    gap, error = 2 * slope @ (x - best), _CERTAIN * parts * (parts + rivals)
    return bool(abs(x.sum() - 1) <= _CERTAIN and min(gap, point @ point) <= error)
