"""What a served model answers on encoded rows: logits, and chances of favourable decisions.

One implementation for whoever holds a run's files, and for a silo that was sent the model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Inputs
from mfairfl.engine.output import Served
from mfairfl.errors import DataError
from mfairfl.models import Model
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.measure import Probe, logits

Floats = NDArray[np.float64]


def served_logits(
    served: Served, model: Model, inputs: Inputs, *, name: str = "the rows"
) -> Floats:
    """Return the logits of a model's members on rows, (R, n); an ensemble answers as one.

    Parameters
    ----------
    inputs : Inputs
        The encoded rows.
    name : str
        What messages call them.
    """
    none = np.zeros(len(inputs), dtype=np.int64)
    pool, (where,) = Pool.from_arrays([(inputs, none, none)], cells=1)
    models = served.members[None] if served.kind == "ensemble" else served.members
    with steady_arithmetic():  # as in training: the same rows get the same decisions
        probes = [Probe(weights, where, served.weights) for weights in models]
        z = np.stack([found.numpy() for found in logits(probes, model, pool)])
    if np.isnan(z).any():
        row = int(np.isnan(z).any(axis=0).argmax())
        raise DataError(
            f"{name}, row {row}: the model's score is not a number: its weights are too "
            "large; training diverged, or the file was altered: train again"
        )
    return z


def decision_chance(
    served: Served, z: Floats, cells: NDArray[np.intp] | None = None, *, limit: float = 0.0
) -> Floats:
    """Return the probability of a favourable decision of each row; 0 or 1 unless it is drawn.

    Parameters
    ----------
    z : ndarray (n,), or (R, n) for a mixture
        The logits.
    cells : ndarray (n,), optional
        Each row's cell, for a model with thresholds for each group.
    limit : float
        The logit above which other models decide favourably.

    Examples
    --------
    >>> two = Served(kind="mixture", members=np.zeros((2, 1)), weights=np.array([0.25, 0.75]),
    ...              names=("round 1", "round 2"))
    >>> decision_chance(two, np.array([[1.0, -1.0], [1.0, 2.0]])).tolist()
    [1.0, 0.75]
    """
    if served.kind == "mixture":
        return np.asarray(np.tensordot(served.weights, z > 0, axes=1))
    if served.thresholds is not None:
        if cells is None:
            raise DataError("thresholds for each group: the rows' cells are needed to decide")
        return served.thresholds.positive_probability(z, cells)
    return np.asarray(z > limit, dtype=np.float64)


def draw_decisions(chance: Floats, seed: int = 0) -> NDArray[np.int8]:
    """Return decisions with these probabilities of a favourable one, 1 = favourable.

    Examples
    --------
    >>> draw_decisions(np.array([0.0, 1.0])).tolist()
    [0, 1]
    """
    draws = np.random.default_rng(seed).random(len(chance))
    return np.asarray(draws < chance, dtype=np.int8)
