"""What the tests of the simpler methods share: clients in a line, and SGD spelt out in float64."""

from __future__ import annotations

import mfairfl_naive as naive
import numpy as np

from mfairfl.fairness.cells import Statistics
from mfairfl.strategies.base import Measurement
from mfairfl.training.plan import Report

# One step an epoch on all rows of a client: nothing random is left.
FULL = {"batch_size": 512, "weight_decay": 0.0}
# Cosine over three rounds, 1 → 0, between lr .02 and lr_final 5e-5 of the recipe.
DECAY = [1.0, 0.50125, 0.0025]


def measured(losses, rows=None):
    """Measurements of clients a, b, … with these mean losses."""
    sizes = [10.0] * len(losses) if rows is None else rows
    found = []
    for name, loss, n in zip("abcdefgh", losses, sizes, strict=False):
        table = np.array([[n, 0.0]])
        statistics = Statistics(
            counts=table, positives=table, scores=table, losses=np.array([[n * loss, 0.0]])
        )
        found.append(Measurement(name, statistics))
    return found


def reported(clients, lr=0.1):
    return [Report(client=c, update=np.ones(2, np.float32), steps=1, lr=lr) for c in clients]


def loss(w, rows):
    return naive.cross_entropy(w, rows).mean()


def mean_loss(w, rows):
    """L_k as a number."""
    return float(loss(naive.torch.from_numpy(w), rows))


def sgd(w, rows, lr, steps, *, decay=0.0, pull=0.0, shift=0.0):
    """Steps of −lr (∇L + decay·w + pull·(w − start) + shift) on all rows."""
    start = w.copy()
    for _ in range(steps):
        slope = naive.gradient(lambda v: loss(v, rows), w)
        w = w - lr * (slope + decay * w + pull * (w - start) + shift)
    return w


def close(found, expected, atol=2e-5):
    """Against float32 training."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
