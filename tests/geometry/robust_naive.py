"""ByzFL's rules on the updates themselves, one update after the other; no Gram matrix."""

from __future__ import annotations

import math

import numpy as np


def length(vector):
    return math.hypot(*vector)


def distance(a, b):
    return math.hypot(*(a - b))


def average(vectors):
    return sum(vectors) / len(vectors)


def clipped(G, bound):
    return np.array([g * bound / length(g) if length(g) > bound else g for g in G])


def mixed(G, f):
    ranked = [sorted(G, key=lambda other: distance(g, other)) for g in G]
    return np.array([average(nearest[: len(G) - f]) for nearest in ranked])


def median(G, *, nu, rounds, weights=None):
    """Smoothed Weiszfeld from 0."""
    p = np.ones(len(G)) if weights is None else weights
    z = np.zeros(G.shape[1])
    for _ in range(rounds):
        pulls = [share / max(nu, distance(g, z)) for share, g in zip(p, G, strict=True)]
        z = sum(pull * g for pull, g in zip(pulls, G, strict=True)) / sum(pulls)
    return z


def ranked_by_krum(G, f):
    def score(k):
        others = sorted(distance(G[k], G[j]) ** 2 for j in range(len(G)) if j != k)
        return math.fsum(others[: len(G) - f - 1])

    return sorted(range(len(G)), key=score)


def krum(G, f):
    return G[ranked_by_krum(G, f)[0]]


def multi_krum(G, f):
    return average([G[k] for k in ranked_by_krum(G, f)[: len(G) - f]])


def centre(G, *, tau, rounds, start=None):
    v = np.zeros(G.shape[1]) if start is None else start
    for _ in range(rounds):
        v = v + average(clipped(G - v, tau))
    return v


def heterogeneous(seed, clients, width):
    """Random updates with something in common, of norms over four decades."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(clients, width)) + rng.normal(size=width)
    return G * 10 ** rng.uniform(-2, 2, size=(clients, 1))
