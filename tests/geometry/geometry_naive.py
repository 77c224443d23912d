"""Algorithm 2 as printed, client after client on the updates themselves, without its own target.

Shares no line and no idea with the Gram-space computation: it needs no norms in closed form, no
coefficients, no vectorised targets.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal

import numpy as np


def targets_of(losses, order):
    """The projecting order list; ties keep their positions."""
    ascending = sorted(range(len(losses)), key=lambda k: (losses[k], k))
    return {
        "loss": ascending,
        "reversed": ascending[::-1],
        "fixed": list(range(len(losses))),
    }[order]


def count_of(beta, clients):
    """⌊βK + ½⌋ in decimal arithmetic."""
    exact = Decimal(str(beta)) * clients + Decimal("0.5")
    return int(exact.to_integral_value(rounding=ROUND_FLOOR))


def naive(G, chosen, targets, goals, *, delta, convention="paper", floor=0.0, cap=0.999):
    """Return the adjusted updates and the new moving averages."""
    adjusted, averages = [g.copy() for g in G], goals.copy()
    for k in chosen:
        for i in targets:
            a, g = adjusted[k], G[i]
            if i == k or math.hypot(*a) == 0 or math.hypot(*g) == 0:
                continue
            cos = float(a @ g) / (math.hypot(*a) * math.hypot(*g))
            goal = min(max(goals[k, i], floor), cap)
            if cos < goal:
                sine, sine_goal = math.sqrt(1 - cos**2), math.sqrt(1 - goal**2)
                pull = math.hypot(*a) * (cos * sine_goal - goal * sine)
                adjusted[k] = a - pull / (math.hypot(*g) * sine_goal) * g
            if convention == "paper":
                averages[k, i] = delta * goals[k, i] + (1 - delta) * cos
            else:
                averages[k, i] = (1 - delta) * goals[k, i] + delta * cos
    return np.array(adjusted), averages


def projected(G, chosen, targets):
    """PCGrad's projection in a given order: take the part against each target away."""
    out = G.copy()
    for k in chosen:
        for i in targets:
            against = out[k] @ G[i]
            if i != k and against < 0:
                out[k] -= against / (G[i] @ G[i]) * G[i]
    return out


def federation(seed, clients, *, common=0.5, width=24):
    """Random updates of very different lengths with some agreement, and distinct losses."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(clients, width)) + common * rng.normal(size=width)
    G *= 10 ** rng.uniform(-2, 2, size=(clients, 1))
    return G, rng.permutation(clients) + 0.5


def random_goals(seed, count):
    """Goals of later rounds, some below 0."""
    return np.random.default_rng([seed, 1]).uniform(-0.5, 0.95, size=(count, count))


def unit(G):
    """Directions."""
    return G / np.linalg.norm(G, axis=1, keepdims=True)
