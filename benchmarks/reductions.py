"""fairlearn's reductions on the pooled rows of a federation, counted with our tallies.

A. Agarwal, A. Beygelzimer, M. Dudík, J. Langford, H. Wallach: A Reductions Approach to Fair
Classification. ICML 2018. The answer is a random choice among classifiers, so counts are expected
ones. fairlearn's parity constraints are on the difference to the overall rate, as ours are.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import mfairfl
from mfairfl.data import EncoderConfig, Federation, Shard
from mfairfl.fairness import Tally
from mfairfl.fairness.rates import overall_numbers
from version_02 import ENCODER

BOUND = {"dp": 0.005, "eo": 0.01}  # the tolerances with which our runs select
MOMENT = {"dp": DemographicParity, "eo": EqualizedOdds}

Floats = NDArray[np.float64]


def reduced(notion: str | None, seed: int, folder: Path) -> dict[str, Any]:
    """Return the numbers of a logistic regression under the notion; None leaves it alone.

    They are kept in the folder and not computed again.
    """
    path = folder / f"{notion or 'plain'}-{seed}.json"
    if not path.exists():
        table = mfairfl.load_dataset("adult")
        federation = mfairfl.partition(table, "high", seed=seed, encoder=EncoderConfig(**ENCODER))
        chance = fitted(federation.pooled("train"), notion)
        metrics = {}
        for part in ("train", "test"):
            numbers = overall_numbers(tally(federation, part, chance))
            metrics[part] = {n: None if why else value for n, (value, why) in numbers.items()}
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"metrics": metrics}), encoding="utf-8")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def fitted(train: Shard, notion: str | None) -> Callable[[Shard], Floats]:
    """Fit, and return the chance of a favourable decision for every row of a shard."""
    base = LogisticRegression(max_iter=1000)
    if notion is None:
        base.fit(train.X, train.y)
        return lambda shard: np.asarray(base.predict(shard.X), dtype=np.float64)
    moment = MOMENT[notion](difference_bound=BOUND[notion])
    reduction = ExponentiatedGradient(base, moment, eps=BOUND[notion])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fairlearn's own use of pandas
        reduction.fit(train.X, train.y, sensitive_features=train.cells)
    members = [
        (weight, reduction.predictors_[i]) for i, weight in reduction.weights_.items() if weight
    ]
    return lambda shard: np.sum([w * member.predict(shard.X) for w, member in members], axis=0)


def tally(federation: Federation, part: str, chance: Callable[[Shard], Floats]) -> Tally:
    """Count expected decisions by client, group and label."""
    counts = np.zeros((len(federation.clients), federation.attributes[0].size, 2, 2))
    for k, client in enumerate(federation.clients):
        shard = client.shard(part)
        p = chance(shard)
        np.add.at(counts[k, :, :, 1], (shard.cells, shard.y), p)
        np.add.at(counts[k, :, :, 0], (shard.cells, shard.y), 1 - p)
    return Tally(counts, tuple(c.name for c in federation.clients), federation.attributes)


def records(notion: str | None, seeds: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    return [reduced(notion, seed, folder) for seed in seeds]
