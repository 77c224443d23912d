"""What the settings of the pooled references were chosen by (decision 0014).

First, settings of gradient boosting, by three folds of the train rows of seed 0 (three times over
where rows are few): no test row is looked at. Then group thresholds that are fitted on the scores
of the model's own train rows, against out-of-fold scores, on the test rows of seeds 0 to 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import mfairfl
from mfairfl.data import Federation, Table
from mfairfl.fairness import Demand, ScoreHistogram, Tally, Thresholds, fit_thresholds
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.rates import overall_numbers
from mfairfl.references import PooledRows

DATA = ("adult", "bank", "compas", "german")
NOTIONS = ("demographic_parity", "equalized_odds")
SEEDS = range(5)
FEW = 5_000
SLOW = {"learning_rate": 0.05, "max_iter": 1000}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "rate .05, 1,000 trees": SLOW,
    "… 20 trees without gain": SLOW | {"n_iter_no_change": 20},
    "… and 15 leaves": SLOW | {"n_iter_no_change": 20, "max_leaf_nodes": 15},
}


def clients(data: str, seed: int) -> tuple[Table, Federation]:
    table = mfairfl.load_dataset(data)
    return table, mfairfl.partition(table, "high", seed=seed)


def folds(data: str, settings: dict[str, Any]) -> tuple[float, float]:
    """Return the mean accuracy and log-loss of boosting over folds of the train rows."""
    table, federation = clients(data, 0)
    train = federation.pooled("train")
    X = table.X.iloc[train.rows].reset_index(drop=True)
    for column in table.task.categorical or ():
        X[column] = pd.Categorical(X[column])
    found = []
    for repeat in range(3 if len(train) < FEW else 1):
        splitter = StratifiedKFold(3, shuffle=True, random_state=repeat)
        for kept, held in splitter.split(X, train.y):
            model = HistGradientBoostingClassifier(
                early_stopping=True, categorical_features="from_dtype", random_state=0, **settings
            ).fit(X.iloc[kept], train.y[kept])
            chance = model.predict_proba(X.iloc[held])[:, 1]
            right = (chance >= 0.5) == train.y[held]
            found.append((right.mean(), log_loss(train.y[held], chance)))
    accuracy, loss = np.mean(found, axis=0)
    return float(accuracy), float(loss)


def measured(
    rows: PooledRows, rule: Thresholds, logits: np.ndarray, notion: str
) -> tuple[float, float]:
    """Return accuracy and violation of the test rows' expected decisions."""
    test, attributes = rows.federation.pooled("test"), rows.federation.attributes
    chance = rule.positive_probability(logits, test.cells)
    counts = np.zeros((1, Cells(attributes).size, 2, 2))
    for decision, share in enumerate((1 - chance, chance)):
        np.add.at(counts[0, :, :, decision], (test.cells, test.y), share)
    numbers = overall_numbers(Tally(counts, ("all",), attributes))
    return numbers["accuracy"][0], numbers[f"{notion}_violation"][0]


def thresholds(data: str, seed: int) -> Iterator[tuple[str, str, float, float]]:
    """Yield notion, scores, accuracy and violation of thresholds fitted in either way."""
    table, federation = clients(data, seed)
    rows, train, test = PooledRows(table, federation), *map(federation.pooled, ("train", "test"))
    model, size = rows.fit("boosting"), Cells(federation.attributes).size
    own, new = (model.logits(table.X.iloc[shard.rows]) for shard in (train, test))
    histogram = ScoreHistogram.from_logits(own, train.cells, train.y, size=size)
    for notion in NOTIONS:
        goal = Goal(notions=(notion,), attributes=tuple(a.name for a in federation.attributes))
        constraints, demand = goal.constraints(federation.attributes), Demand(by="group")
        rule = fit_thresholds({"all": histogram}, constraints, demand).thresholds
        yield notion, "own rows", *measured(rows, rule, new, notion)
        unseen = rows.fit("boosting-threshold", goal=goal).thresholds
        assert unseen is not None
        yield notion, "out-of-fold", *measured(rows, unseen, new, notion)


def main() -> None:
    print(__doc__)
    print(f"{'accuracy / log-loss of folds':30}" + "".join(f"{data:>16}" for data in DATA))
    with threadpool_limits(limits=1):
        for name, settings in SETTINGS.items():
            cells = ["{:.4f} / {:.4f}".format(*folds(data, settings)) for data in DATA]
            print(f"{name:30}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    print(f"\n{'test rows, seeds 0 to 4':40}{'accuracy':>10}{'violation':>20}")
    for data in DATA:
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for seed in SEEDS:
            for notion, scores, *numbers in thresholds(data, seed):
                found.setdefault((notion, scores), []).append((numbers[0], numbers[1]))
        for (notion, scores), numbers in found.items():
            accuracy, violation = np.mean(numbers, axis=0)
            spread = np.std(numbers, axis=0, ddof=1)[1]
            label = f"{data}, {notion}, {scores}"
            print(f"{label:45}{accuracy:.4f}    {violation:.4f} (sd {spread:.4f})", flush=True)


if __name__ == "__main__":
    main()
