"""Algorithm 2 of mFairFL in the space of coefficients: lessen conflicts between client updates.

Every adjusted update stays in the span of the originals, so the server needs the Gram matrix
M = G Gᵀ alone. Row k of C holds the coefficients of client k's adjusted update a_k = Σ_i C_ki g_i,
S = C M its inner products with the originals, ν its norm. For a target i, with φ = cos(a_k, g_i)
and the pair's goal φ̂ (printed Eq. 17), where φ < φ̂:

    c = (ν_k / |g_i|) · (φ̂ √(1 − φ²) / √(1 − φ̂²) − φ),   a_k ← a_k + c g_i,
    ν_k ← ν_k √(1 − φ²) / √(1 − φ̂²),

after which cos(a_k, g_i) = φ̂. The norm is updated in closed form: C M Cᵀ would cancel. Targets
are the *original* updates and their order is common to all clients, so all clients are advanced at
once for each target; this equals the paper's client-by-client loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.errors import ConfigError, unknown

__all__ = ["Conflicts", "adjusted_count", "cosines", "diminish_conflicts", "rescaling"]

Floats = NDArray[np.float64]
Order = Literal["loss", "reversed", "random", "fixed"]
ORDERS = ("loss", "reversed", "random", "fixed")

_ZERO = 1e-12  # norms below this share of the largest count as zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicts:
    """What the conflict step decided.

    Attributes
    ----------
    coefficients : ndarray (K,)
        c = Cᵀ p: the step is Σ c_k g_k, before any rescaling.
    goals : ndarray (K, K)
        The moving averages of the cosines, raw; [k, i] is client k's goal towards target i.
    conflicts : ndarray of bool (K, K)
        Whether client k was adjusted towards target i.
    order : ndarray of int (K,)
        The targets in the order they were taken.
    adjusted : ndarray of bool (K,)
        Clients whose update was open to adjustment; the others kept theirs.
    rows : ndarray (K, K)
        C: row k is client k's adjusted update in terms of the originals.
    norms : ndarray (K,)
        Norms of the adjusted updates.
    """

    coefficients: Floats
    goals: Floats
    conflicts: NDArray[np.bool_]
    order: NDArray[np.intp]
    adjusted: NDArray[np.bool_]
    rows: Floats
    norms: Floats


def diminish_conflicts(
    gram: ArrayLike,
    losses: ArrayLike,
    goals: ArrayLike | None = None,
    *,
    beta: float = 0.8,
    delta: float = 0.1,
    order: Order = "loss",
    rng: np.random.Generator | None = None,
    weights: ArrayLike | None = None,
    convention: Literal["paper", "gradvac"] = "paper",
    kept: Literal["loss", "order"] = "loss",
    goal_floor: float = 0.0,
    goal_cap: float = 0.999,
) -> Conflicts:
    """Adjust conflicting updates towards their cosine goals and average them.

    Parameters
    ----------
    gram : array (K, K)
        Inner products of the updates.
    losses : array (K,)
        Clients' losses at the server's weights; ties go by position.
    goals : array (K, K), optional
        Moving averages φ̂ of the last round; zeros in the first.
    beta : float
        Share of clients that are adjusted: the ⌊βK + ½⌋ of lowest loss.
    delta : float
        Moving-average rate δ.
    order : {"loss", "reversed", "random", "fixed"}
        Order of the targets: by loss ascending (the paper's), descending, drawn with `rng`, or as
        given.
    weights : array (K,), optional
        p, by default 1/K.
    convention : {"paper", "gradvac"}
        φ̂ ← δφ̂ + (1 − δ)φ, as the paper writes, or φ̂ ← (1 − δ)φ̂ + δφ, as Gradient Vaccine does.
    kept : {"loss", "order"}
        Whether who keeps the update follows the losses always, or the order of targets.
    goal_floor, goal_cap : float
        A goal is clipped to this range when used; the average itself is stored raw.

    Examples
    --------
    >>> found = diminish_conflicts([[1.0, -0.5], [-0.5, 1.0]], [0.1, 0.2], beta=0.5)
    >>> found.coefficients.round(3).tolist()  # client 0 gave up its part against client 1
    [0.5, 0.75]
    """
    M, loss, phi_hat, p = _checked(gram, losses, goals, weights)
    if not 0 <= beta <= 1:
        raise ConfigError(f"beta must lie in [0, 1], not {beta}")
    if not 0 <= delta <= 1:
        raise ConfigError(f"delta must lie in [0, 1], not {delta}")
    if not -1 < goal_floor <= goal_cap < 1:
        raise ConfigError(f"goals must satisfy −1 < floor ≤ cap < 1, not {goal_floor}, {goal_cap}")
    count = len(M)
    by_loss = np.argsort(loss, kind="stable")
    targets = _targets(order, by_loss, rng)
    chosen = (by_loss if kept == "loss" else targets)[: adjusted_count(beta, count)]
    adjusted = np.zeros(count, dtype=bool)
    adjusted[chosen] = True
    C, S, length = np.eye(count), M.copy(), np.sqrt(np.diag(M))
    nu, zero = length.copy(), _ZERO * length.max(initial=0.0)
    goal = np.clip(phi_hat, goal_floor, goal_cap)
    new, conflicts = phi_hat.copy(), np.zeros((count, count), dtype=bool)
    keep = delta if convention == "paper" else 1 - delta
    for i in targets:
        if length[i] <= zero:
            continue
        rows = adjusted & (nu > zero)
        rows[i] = False  # Algorithm 2 does not say so, but a client never conflicts with itself
        phi = np.clip(S[rows, i] / (nu[rows] * length[i]), -1.0, 1.0)
        new[rows, i] = keep * phi_hat[rows, i] + (1 - keep) * phi
        moved = np.flatnonzero(rows)[phi < goal[rows, i]]
        conflicts[moved, i] = True
        before, after = phi[phi < goal[rows, i]], goal[moved, i]
        ratio = np.sqrt((1 - before) * (1 + before)) / np.sqrt((1 - after) * (1 + after))
        c = nu[moved] / length[i] * (after * ratio - before)
        C[moved, i] += c
        S[moved] += c[:, None] * M[i]
        nu[moved] *= ratio
    return Conflicts(
        coefficients=C.T @ p,
        goals=new,
        conflicts=conflicts,
        order=targets,
        adjusted=adjusted,
        rows=C,
        norms=nu,
    )


def adjusted_count(beta: float, count: int) -> int:
    """Return ⌊βK + ½⌋; rounding half to even would give 2 for β = ½ and K = 5.

    Examples
    --------
    >>> adjusted_count(0.5, 5), adjusted_count(0.8, 5), adjusted_count(0.0, 5)
    (3, 4, 0)
    """
    return min(count, int(np.floor(beta * count + 0.5)))


def cosines(gram: ArrayLike) -> Floats:
    """Return the cosines of all pairs; nan where an update is zero.

    Examples
    --------
    >>> cosines([[4.0, -2.0], [-2.0, 1.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    M = np.asarray(gram, dtype=np.float64)
    length = np.sqrt(np.diag(M))
    product = np.outer(length, length)
    found = np.full_like(M, np.nan)
    np.divide(M, product, out=found, where=product > 0)
    return np.clip(found, -1.0, 1.0)


def rescaling(gram: ArrayLike, coefficients: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return ρ that gives Σ c_k g_k the length of the plain average Σ p_k g_k; 0 if c vanishes.

    Examples
    --------
    >>> rescaling([[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0])
    0.7071067811865476
    """
    M = np.asarray(gram, dtype=np.float64)
    c = np.asarray(coefficients, dtype=np.float64)
    p = np.full(len(M), 1 / len(M)) if weights is None else np.asarray(weights, dtype=np.float64)
    plain, found = float(p @ M @ p), float(c @ M @ c)
    # Below this the sum has cancelled to rounding noise and its direction means nothing.
    noise = _ZERO * float(np.abs(c) @ np.abs(M) @ np.abs(c))
    return float(np.sqrt(max(plain, 0.0) / found)) if found > noise else 0.0


def _targets(
    order: Order, by_loss: NDArray[np.intp], rng: np.random.Generator | None
) -> NDArray[np.intp]:
    if order == "loss":
        return by_loss
    if order == "reversed":
        return by_loss[::-1]
    if order == "fixed":
        return np.arange(len(by_loss))
    if order == "random":
        if rng is None:
            raise ConfigError("order 'random' needs rng, a numpy Generator")
        return rng.permutation(len(by_loss))
    raise ConfigError(unknown("order", order, ORDERS))


def _checked(
    gram: ArrayLike, losses: ArrayLike, goals: ArrayLike | None, weights: ArrayLike | None
) -> tuple[Floats, Floats, Floats, Floats]:
    M = np.asarray(gram, dtype=np.float64)
    count = len(M)
    loss = np.asarray(losses, dtype=np.float64)
    phi_hat = np.zeros((count, count)) if goals is None else np.asarray(goals, dtype=np.float64)
    p = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=np.float64)
    shapes = {"gram": M, "goals": phi_hat}
    for name, array in shapes.items():
        if array.shape != (count, count):
            raise ConfigError(f"{name} has shape {array.shape}; expected ({count}, {count})")
    for name, array in {"losses": loss, "weights": p}.items():
        if array.shape != (count,):
            raise ConfigError(f"{name} have shape {array.shape}; expected ({count},)")
    for name, array in {**shapes, "losses": loss, "weights": p}.items():
        if not np.isfinite(array).all():
            raise ConfigError(f"{name}: a number is not finite")
    return M, loss, phi_hat, p
