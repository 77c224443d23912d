"""Who took part: what a coordinator that keeps to the rules can guess from a default run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

import federations as fed
from mfairfl.data import table_from_frame
from mfairfl.data.federation import federation_from_tables
from mfairfl.engine.embedded import counts_of, splits_of, summarize
from mfairfl.engine.output import Output
from mfairfl.engine.state import Setup
from mfairfl.fairness.constraints import Goal
from mfairfl.models import MLP
from mfairfl.strategies import create
from mfairfl.training.plan import Recipe
from readouts.silo import adult_rows, adult_task

ROWS = 2000


def membership(seed: int) -> dict[str, float]:
    """Guess who of a silo's train and test rows was trained on, from a default mFairFL run.

    Six silos of 2,000 rows. By the final model: a low loss. By all rounds: how much the silo's
    local training lowers a row's loss, and that beside what the other silos' training does (a
    likelihood ratio with the other silos as reference).
    """
    task, everyone = adult_task(), adult_rows(seed, 6 * ROWS)
    frames = [everyone.iloc[i * ROWS : (i + 1) * ROWS].reset_index(drop=True) for i in range(6)]
    tables = {f"silo{i}": table_from_frame(frame, task) for i, frame in enumerate(frames)}
    federation = federation_from_tables(tables, seed=seed)
    setup = default_setup(federation, seed)
    updates: list[dict[str, np.ndarray]] = []

    def watch(round_: int, reports: Sequence[Any]) -> Sequence[Any]:
        del round_
        updates.append({one.client: one.update for one in reports})
        return reports

    result, seen = fed.drive(setup, federation, watch)
    starts = seen.weights[:-1]  # after none, one, two … rounds
    assert np.array_equal(starts[0], fed.first(setup).weights)
    scores = [_guesses(federation, i, starts, updates, result) for i in range(6)]
    return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}


def default_setup(federation: Any, seed: int) -> Setup:
    """Return the default run of the method."""
    model = MLP(inputs=federation.pool.inputs.width)
    return Setup(
        strategy=create("mfairfl"),
        size=fed.size_of(model),
        recipe=Recipe(),
        rounds=40,
        seed=seed,
        summary=summarize(federation, Goal(attributes=("sex",))),
        output=Output(),
        splits=splits_of(federation),
        enrolled={split: counts_of(federation, split) for split in splits_of(federation)},
    )


def _guesses(
    federation: Any,
    place: int,
    starts: Sequence[np.ndarray],
    updates: Sequence[Mapping[str, np.ndarray]],
    result: Any,
) -> dict[str, float]:
    """Return the area under the ROC curve of each guess about one silo's rows."""
    client = federation.clients[place]
    model = MLP(inputs=federation.pool.inputs.width)
    X = torch.from_numpy(
        np.concatenate([client.train.inputs.numbers, client.test.inputs.numbers]).copy()
    )
    y = np.concatenate([client.train.y, client.test.y])
    member = np.arange(len(y)) < len(client.train.y)

    def losses(weights: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            z = model.to_module(weights)(X).numpy().ravel().astype(np.float64)
        return np.logaddexp(0, z) - y * z

    own = beside = 0.0
    for start, by_client in zip(starts, updates, strict=True):
        before = losses(start)
        gains = {name: before - losses(start - u) for name, u in by_client.items()}
        mine = gains.pop(client.name)
        own = own + mine
        beside = beside + mine - np.mean([*gains.values()], axis=0)
    final = -losses(np.atleast_2d(result.served.members)[0])
    return {
        "AUC, loss of the final model": auc(final, member),
        "AUC, all updates: gain of the row by local training": auc(own, member),
        "AUC, all updates: beside the gain by other silos'": auc(beside, member),
        "members among the 1 % of rows guessed first (80 % by chance)": top(beside, member),
    }


def auc(score: np.ndarray, member: np.ndarray) -> float:
    """Return the chance that a member's score is higher than another's."""
    ranks = rankdata(score)
    m, n = member.sum(), (~member).sum()
    return float((ranks[member].sum() - m * (m + 1) / 2) / (m * n))


def top(score: np.ndarray, member: np.ndarray) -> float:
    """Return the share of members among the highest scores."""
    first = np.argsort(-score)[: max(1, len(score) // 100)]
    return float(member[first].mean())
