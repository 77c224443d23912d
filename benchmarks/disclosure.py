"""What a coordinator still learns from a silo with the default policy, measured on Adult.

    PYTHONPATH=tests python benchmarks/disclosure.py > benchmarks/disclosure.txt

The floor bounds of how many rows a told set is. It does not bound what is summed over them: the
coordinator chooses encoder and weights, so a sum over a told set of ten rows can be made to depend
on one of them. Counted here is what that takes in models, messages and rounds, beside what the
policy allows. Last, what a coordinator that keeps to the rules can guess about who took part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata

import federations as fed
import mfairfl
from attackers import NAME, Coordinator, Line, Split
from mfairfl.data import Encoder, Table, Task, table_from_frame
from mfairfl.data.assembly import federation_from_tables
from mfairfl.data.encoder import CategoricalColumn, NumericColumn
from mfairfl.engine.embedded import counts_of, splits_of, summarize
from mfairfl.engine.output import Output
from mfairfl.engine.state import Setup
from mfairfl.fairness.goal import Goal
from mfairfl.models import MLP
from mfairfl.remote.policy import Policy
from mfairfl.remote.silo_file import SiloSettings
from mfairfl.strategies import create
from mfairfl.text import aligned
from mfairfl.training.plan import Recipe

SEEDS = (0, 1, 2)
ROWS = 2000
FAR = 64.0  # a logit at which σ is nothing
UNITS = 1024  # traps of one round
SCALE = {  # in the order of the columns; powers of two lose nothing
    "age": 128.0,
    "education-num": 16.0,
    "capital-gain": 131072.0,
    "capital-loss": 8192.0,
    "hours-per-week": 128.0,
}
POLICY = Policy()


def main() -> None:
    """Print the three parts, one after the other."""
    adult = mfairfl.load_dataset("adult", offline=True)
    print(
        f"A silo with {ROWS:,} rows of Adult and the default policy; {len(SEEDS)} samples, their"
    )
    print("mean, the smallest and the largest. It allows " + allowed() + ".\n")
    for title, part in (
        ("1. One told group and label: what chosen models read out of its sums", told_cell),
        ("2. Weights made to trap rows in an update", trapped_rows),
        ("3. Who took part, by a coordinator that keeps to the rules", membership),
    ):
        print(title)
        rows = [list(part(adult, seed).items()) for seed in SEEDS]
        lines = [[name, *spread([dict(one)[name] for one in rows])] for name, _ in rows[0]]
        print("\n".join(aligned([["", "mean", "least", "most"], *lines], right=[1, 2, 3])) + "\n")


def allowed() -> str:
    """Say what the policy's limits allow one coordinator to ask."""
    limits, told = POLICY.limits, POLICY.disclosure
    return (
        f"{told.models} models\na message, {limits.requests:,} messages a run, "
        f"{told.rounds:,} rounds of training a run and {told.runs:,} runs in all"
    )


def spread(values: Sequence[float]) -> list[str]:
    """Return mean, smallest and largest over the samples, as text."""
    held = np.array(values, dtype=np.float64)
    digits = 0 if held.mean() >= 100 else 3 if held.max() <= 1 else 1
    return [f"{x:,.{digits}f}" for x in (held.mean(), held.min(), held.max())]


# ------------------------------------------------------------------ a silo with rows of Adult


def rows_of(adult: Table, seed: int, count: int = ROWS) -> pd.DataFrame:
    """Return so many rows, drawn at random, with their label."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(adult), count, replace=False)
    frame = adult.X.iloc[chosen].reset_index(drop=True)
    frame["income"] = np.where(adult.y[chosen] == 1, "high", "low")
    return frame


def task_of(adult: Table) -> Task:
    """Return a task in which nothing is left for a file to decide."""
    groups = [{"column": c, "groups": tuple(sorted(adult.X[c].unique()))} for c in ("race", "sex")]
    return Task.model_validate(
        {
            "label": "income",
            "favourable": "high",
            "unfavourable": "low",
            "sensitive": groups,
            "numeric": adult.task.numeric,
            "categorical": adult.task.categorical,
        }
    )


def encoder_of(adult: Table, atoms: Mapping[str, Sequence[float]] | None = None) -> Encoder:
    """Return an encoder of the coordinator's choice: exact numbers, and 0/1 for some values."""
    given = atoms or {}
    return Encoder(
        numeric=tuple(
            NumericColumn(
                name=c, mean=0.0, scale=SCALE[c], indicator=False, atoms=tuple(given.get(c, ()))
            )
            for c in adult.task.numeric
        ),
        categorical=tuple(
            CategoricalColumn(name=c, levels=tuple(sorted(adult.X[c].unique())))
            for c in adult.task.categorical
        ),
        unknown_category="ignore",
    )


def silo_in(folder: str, frame: pd.DataFrame) -> Line:
    """Write the file; return the line to its silo, with as many messages as are wanted."""
    path = Path(folder) / "silo.csv"
    frame.to_csv(path, index=False)
    settings = SiloSettings(name=NAME, csv=path, state=Path(folder) / "state")
    return Line(settings, POLICY, budget=10**6)


# ------------------------------------------------------------------ 1. sums over a told set


def told_cell(adult: Table, seed: int) -> dict[str, float]:
    """Read one told (cell, label) of ten rows or more: ages by counts, then whole rows.

    The counts of positive decisions at 72 thresholds are all ages. A logit that is far below 0
    unless the age is one that a single row has leaves that row's feature alone in the sum.
    """
    frame = rows_of(adult, seed)
    with tempfile.TemporaryDirectory() as folder:
        line = silo_in(folder, frame)
        run = Coordinator(line, "run-1")
        ages = np.arange(17.0, 91.0)
        encoder = encoder_of(adult, {"age": ages})
        counts = run.encode(task_of(adult), Split(), encoder)["train"]
        cell = min(zip(*np.nonzero(counts), strict=True), key=lambda place: counts[place])
        before = line.sent
        held = _ages(run, cell, ages)
        swept = line.sent - before
        alone = [age for age, n in zip(ages, held, strict=True) if n == 1]
        before = line.sent
        found = [_row(run, cell, encoder, age) for age in alone]
        exact = sum(_is_in(frame, one, adult) for one in found)
        inputs = len(encoder.feature_names)
        each = (line.sent - before) / max(1, len(alone))
        return {
            "rows of the smallest told group and label": float(counts[cell]),
            "models for the age of each of them, exactly": float(len(ages) - 1),
            "  messages": float(swept),
            "models for all features of a row whose age is its own": float(inputs),
            "  messages for one such row": each,
            "share of its rows read whole, without an error": exact / float(counts[cell]),
            "messages for as many rows as the silo trains on": each * 0.8 * ROWS,
            "share of them of their own by group, label, age, hours, occupation": _unique(frame),
        }


def _ages(run: Coordinator, cell: Any, ages: np.ndarray) -> np.ndarray:
    """Return how many rows of the cell have each age."""
    above = [float(run_counts(run, cell)[0])]
    models = []
    for age in ages[1:]:
        model = np.zeros(run.model.size)
        model[0], model[-1] = 1.0, -(age - 0.5) / SCALE["age"]
        models.append(model)
    above += [table[1][cell] for table in measured(run, models)]
    return -np.diff([*above, 0.0])


def run_counts(run: Coordinator, cell: Any) -> np.ndarray:
    """Return counts and sums of the cell under weights of 0."""
    return run.measure([np.zeros(run.model.size)])[0][(slice(None), *cell)]


def measured(run: Coordinator, models: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the table of each model, as many in a message as the silo allows."""
    most = POLICY.disclosure.models
    for first in range(0, len(models), most):
        yield from run.measure(models[first : first + most])


def _row(run: Coordinator, cell: Any, encoder: Encoder, age: float) -> np.ndarray:
    """Return all inputs of the one row of the cell that has this age."""
    names = encoder.feature_names
    models = []
    for i in range(len(names)):
        model = np.zeros(run.model.size)
        model[names.index(f"age={age:g}")] = FAR
        model[i] += 1.0
        model[-1] = -FAR
        models.append(model)
    score = np.array([table[2][cell] for table in measured(run, models)])
    return np.log(score / (1 - score))


def _is_in(frame: pd.DataFrame, inputs: np.ndarray, adult: Table) -> bool:
    """Say whether some row of the file has these inputs, every one to 1e-5."""
    plain = encoder_of(adult)
    width = len(plain.numeric)
    levels = len(plain.feature_names) - width
    read = np.concatenate([inputs[:width], inputs[len(inputs) - levels :]])
    true = plain.transform(frame)
    return bool((np.abs(true - read).max(axis=1) < 1e-5).any())


def _unique(frame: pd.DataFrame) -> float:
    """Return the share of rows that no other has these values with."""
    columns = ["race", "sex", "income", "age", "hours-per-week", "occupation"]
    return float((~frame.duplicated(columns, keep=False)).mean())


# ------------------------------------------------------------------ 2. traps in an update


def trapped_rows(adult: Table, seed: int) -> dict[str, float]:
    """Send a layer whose units fire beyond ever higher thresholds of a random projection.

    Two neighbours' gradients differ by the rows between their thresholds; a row that is alone
    there is the quotient of weights' and bias' (Fowl et al., 2022). Each round has a projection
    of its own. A row counts if all its categories are right, and all its numbers when rounded.
    """
    frame = rows_of(adult, seed)
    full = {"epochs": 1, "batch_size": ROWS, "optimizer": {"name": "gradient"}}
    usual = Recipe().plan(0, 40)
    honest = {
        "epochs": usual.epochs,
        "batch_size": usual.batch_size,
        "optimizer": {"name": "adamw", "lr": usual.optimizer.lr},
    }
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        line = silo_in(folder, frame)
        run = Coordinator(line, "run-1")
        encoder = encoder_of(adult)
        run.encode(task_of(adult), Split(), encoder, hidden=(UNITS,))
        true = encoder.transform(frame)
        for name, plan, last in (
            ("full-batch gradient", full, 100),
            ("default local epochs", honest, 10),
        ):
            found: set[int] = set()
            for round_ in range(last):
                rng = np.random.default_rng((seed, round_))
                weights = traps(run.model, true.mean(axis=0), true.std(axis=0), rng)
                answer = run.train([plan], weights, round_)
                found |= caught(answer[1][0], run.model, true)
                if round_ + 1 in (1, 10, 100):
                    share = len(found) / (0.8 * ROWS)
                    told[f"{name}: share of train rows after {round_ + 1:3} rounds"] = share
    return told


def traps(
    model: MLP, mean: np.ndarray, deviation: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return weights whose unit j is positive beyond the j-th quantile of a projection.

    Means and deviations are those that the silo's sums tell; a bell curve stands for the rest.
    """
    inputs, units = model.inputs, UNITS
    direction = rng.normal(size=inputs) / np.maximum(deviation, 1e-3)
    centre, width = direction @ mean, np.sqrt(((direction * deviation) ** 2).sum())
    quantiles = np.quantile(rng.normal(size=100_000), (np.arange(units) + 0.5) / units)
    weights = np.zeros(model.size)
    weights[: inputs * units] = np.repeat(direction / width, units)
    weights[inputs * units : (inputs + 1) * units] = -(centre / width + quantiles)
    weights[(inputs + 1) * units : -1] = 1e-4  # the slope of each row stays about ½
    return weights


def caught(update: np.ndarray, model: MLP, true: np.ndarray) -> set[int]:
    """Return the rows of the file that differences of neighbouring units give."""
    inputs, units = model.inputs, UNITS
    matrix = update[: inputs * units].reshape(inputs, units).astype(np.float64)
    bias = update[inputs * units : (inputs + 1) * units].astype(np.float64)
    held, alone = np.diff(matrix, axis=1), np.diff(bias)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = (held / alone).T
    rows = rows[np.isfinite(rows).all(axis=1)]
    numbers = len(SCALE)
    marks = np.abs(rows[:, numbers:] - np.round(rows[:, numbers:])).max(axis=1) < 0.2
    found = set()
    for row in rows[marks]:
        same = (np.abs(true[:, numbers:] - row[numbers:]) < 0.5).all(axis=1)
        same &= (np.abs(true[:, :numbers] - row[:numbers]) * [*SCALE.values()] < 0.5).all(axis=1)
        found |= set(np.flatnonzero(same)[:1].tolist())
    return found


# ------------------------------------------------------------------ 3. membership


def membership(adult: Table, seed: int) -> dict[str, float]:
    """Guess who of a silo's train and test rows was trained on, from a default mFairFL run.

    Six silos of 2,000 rows. By the final model: a low loss. By all rounds: how much the silo's
    local training lowers a row's loss, and that beside what the other silos' training does (a
    likelihood ratio with the other silos as reference).
    """
    task = task_of(adult)
    everyone = rows_of(adult, seed, 6 * ROWS)
    frames = [everyone.iloc[i * ROWS : (i + 1) * ROWS].reset_index(drop=True) for i in range(6)]
    tables = {f"silo{i}": table_from_frame(one, task) for i, one in enumerate(frames)}
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


if __name__ == "__main__":
    main()
