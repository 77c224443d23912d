"""Algorithm 2 of mFairFL in the space of coefficients: lessen conflicts between client updates.

Every adjusted update stays in the span of the originals, so the server needs the Gram matrix
M = G Gᵀ alone. Row k of C holds the coefficients of client k's adjusted update a_k = Σ_i C_ki g_i;
(C M)_ki is its inner product with the original g_i, ν_k its norm. For a target i, with
φ = cos(a_k, g_i) and the pair's goal φ̂ (printed Eq. 17), where φ < φ̂:

    c = (ν_k / |g_i|) · (φ̂ √(1 − φ²) / √(1 − φ̂²) − φ),   a_k ← a_k + c g_i,
    ν_k ← ν_k √(1 − φ²) / √(1 − φ̂²),

after which cos(a_k, g_i) = φ̂. The norm is updated in closed form: C M Cᵀ would cancel. Targets
are the *original* updates and their order is common to all clients, so all clients are advanced at
once for each target; this equals the paper's client-by-client loop. A client is never its own
target, though Algorithm 2 does not say so: its adjusted update would be pulled back towards its
original one, and over the rounds the norms explode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.errors import ConfigError, require_known
from mfairfl.geometry.gram import Floats, checked, checked_goals, checked_gram, checked_weights

Order = Literal["loss", "reversed", "random", "fixed"]
Convention = Literal["paper", "gradvac"]
Kept = Literal["loss", "order"]

_ZERO = 1e-12  # norms up to this share of the largest count as zero
_GONE = 1e-7  # an adjustment that shrinks a norm more than this has left rounding errors alone
_SHOWN = 50  # clients whose pairs are logged
_NOISE = 1e-6  # relative error to be expected of a float32 Gram matrix (gram.py)


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

    Examples
    --------
    Two opposite updates of length 1, to be made orthogonal:

    >>> gram = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> step = diminish_conflicts(gram, [0.1, 0.9], np.zeros((2, 2)), beta=1.0, delta=0.5)
    >>> step.conflicts.tolist()
    [[False, True], [True, False]]
    """

    coefficients: Floats
    goals: Floats
    conflicts: NDArray[np.bool_]
    order: NDArray[np.intp]
    adjusted: NDArray[np.bool_]
    rows: Floats
    norms: Floats

    def cosines_after(self, gram: Floats) -> Floats:
        """Return the cosines of the adjusted updates with the original ones, the targets.

        Norms are those of the closed form: an update that an opposite one has cancelled has
        length 0 there, and rounding errors of either sign in C M Cᵀ.
        """
        product = np.outer(self.norms, np.sqrt(np.diag(gram)))
        return _cosines(self.rows @ gram, product)

    def log(self, gram: Floats, goals: Floats, clients: Sequence[str]) -> dict[str, Any]:
        """Return who gave way to whom, and how far: row k is client k, column i its target.

        Tables of pairs are left out where there are more than 2,500 pairs: megabytes a round.
        """
        before = cosines(gram)
        pairs = {"cosines": before, "cosines_after": self.cosines_after(gram), "goals": goals}
        shown = len(clients) <= _SHOWN
        return {
            "order": [clients[i] for i in self.order.tolist()],
            "adjusted": [clients[i] for i in np.flatnonzero(self.adjusted).tolist()],
            "conflicts": int((np.triu(before, 1) < 0).sum()),
            "adjustments": int(self.conflicts.sum()),
            **{name: _plain(table) if shown else None for name, table in pairs.items()},
        }


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
    convention: Convention = "paper",
    kept: Kept = "loss",
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
        Order of the targets: by loss ascending (the paper's), exactly the other way round, drawn
        with `rng`, or as given.
    rng : Generator, optional
        Needed by the random order.
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
    >>> conflicts = diminish_conflicts([[1.0, -0.5], [-0.5, 1.0]], [0.1, 0.2], beta=0.5)
    >>> conflicts.coefficients.round(3).tolist()  # client 0 gave up its part against client 1
    [0.5, 0.75]
    """
    M = checked_gram(gram)
    count = len(M)
    loss = checked("losses", losses, (count,))
    phi_hat = checked_goals(goals, count)
    p = checked_weights(weights, count)
    for name, share in (("beta", beta), ("delta", delta)):
        if not 0 <= share <= 1:
            raise ConfigError(f"{name} must lie in [0, 1], not {share}")
    if not -1 < goal_floor <= goal_cap < 1:
        raise ConfigError(
            f"−1 < goal_floor ≤ goal_cap < 1 must hold, not {goal_floor} and {goal_cap}"
        )
    require_known("convention", [convention], get_args(Convention))
    require_known("value of kept", [kept], get_args(Kept))
    by_loss = np.argsort(loss, kind="stable")
    targets = _targets(order, by_loss, rng)
    adjusted = np.zeros(count, dtype=bool)
    adjusted[(by_loss if kept == "loss" else targets)[: adjusted_count(beta, count)]] = True
    goal = np.clip(phi_hat, goal_floor, goal_cap)
    with np.errstate(over="ignore", invalid="ignore"):
        C, norms, phi = _walk(M, targets, adjusted, goal)
    if not np.isfinite(C).all():
        raise ConfigError(f"adjusted updates overflow: lower goal_cap, now {goal_cap}, or beta")
    old = delta if convention == "paper" else 1 - delta
    return Conflicts(
        coefficients=C.T @ p,
        goals=np.where(np.isnan(phi), phi_hat, old * phi_hat + (1 - old) * phi),
        conflicts=phi < goal,
        order=targets,
        adjusted=adjusted,
        rows=C,
        norms=norms,
    )


def adjusted_count(beta: float, count: int) -> int:
    """Return ⌊βK + ½⌋; rounding half to even would give 2 for β = ½ and K = 5.

    Examples
    --------
    >>> adjusted_count(0.5, 5), adjusted_count(0.8, 5), adjusted_count(0.0, 5)
    (3, 4, 0)
    """
    # 0.29 · 50 is 14.499999999999998 in floating point, and 14.5 was meant.
    return int(np.floor(round(beta * count, 12) + 0.5))


def cosines(gram: ArrayLike) -> Floats:
    """Return the cosines of all pairs; nan where an update is zero.

    Examples
    --------
    >>> cosines([[4.0, -2.0], [-2.0, 1.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    M = checked_gram(gram)
    length = np.sqrt(np.diag(M))
    return _cosines(M, np.outer(length, length))


def _cosines(inner: Floats, product: Floats) -> Floats:
    """Return inner products over products of lengths; nan where a length is 0."""
    ratios = np.full_like(inner, np.nan)
    np.divide(inner, product, out=ratios, where=product > 0)
    return np.clip(ratios, -1.0, 1.0)


def _plain(table: Floats) -> list[list[float | None]]:
    """Return a table as JSON holds it: None where a number is undefined."""
    return [[None if np.isnan(x) else x for x in row] for row in table.tolist()]


def rescaling(gram: ArrayLike, coefficients: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return ρ that gives Σ c_k g_k the length of the plain average Σ p_k g_k.

    It is 0 where the sum has cancelled to a thousandth of its parts: a Gram matrix of float32
    updates knows nothing about the length of such a sum, and its direction means nothing.

    Examples
    --------
    >>> rescaling([[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0])
    0.7071067811865476
    """
    M = checked_gram(gram)
    c = checked("coefficients", coefficients, (len(M),))
    p = checked_weights(weights, len(M))
    parts = float(np.abs(c) @ np.sqrt(np.diag(M)))
    if parts == 0:
        return 0.0
    unit = c / parts  # squares of large coefficients would overflow
    plain, square = float(p @ M @ p), float(unit @ M @ unit)
    return float(np.sqrt(max(plain, 0.0) / square)) / parts if square > _NOISE else 0.0


def _walk(
    M: Floats, targets: NDArray[np.intp], adjusted: NDArray[np.bool_], goal: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return C, the norms ν and the cosines φ met on the way; nan where a pair was not met."""
    length = np.sqrt(np.diag(M))
    alive = length > _ZERO * length.max()
    C, nu, phi = np.eye(len(M)), length.copy(), np.full_like(M, np.nan)
    for i in targets[alive[targets]]:
        rows = adjusted & alive & (nu > 0)
        rows[i] = False
        phi[rows, i] = np.clip((C @ M[i])[rows] / (nu[rows] * length[i]), -1.0, 1.0)
        moved = phi[:, i] < goal[:, i]
        before, after = phi[moved, i], goal[moved, i]
        ratio = np.sqrt((1 - before) * (1 + before)) / np.sqrt((1 - after) * (1 + after))
        C[moved, i] = nu[moved] / length[i] * (after * ratio - before)
        nu[moved] *= np.where(ratio > _GONE, ratio, 0.0)
    return C, nu, phi


def _targets(
    order: Order, by_loss: NDArray[np.intp], rng: np.random.Generator | None
) -> NDArray[np.intp]:
    require_known("order", [order], get_args(Order))
    if order != "random":
        fixed = np.arange(len(by_loss))
        return {"loss": by_loss, "reversed": by_loss[::-1], "fixed": fixed}[order]
    if rng is None:
        raise ConfigError("order 'random' needs rng, a numpy Generator")
    return rng.permutation(len(by_loss))
