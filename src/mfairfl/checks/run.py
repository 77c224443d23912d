"""Checks of a run's data and settings; each yields findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.checks.finding import Finding
from mfairfl.data import MISSING, Federation, Table
from mfairfl.engine.state import Setup
from mfairfl.fairness import Tally, noise_floor
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.scores import LOGIT_BINS
from mfairfl.runs.config import Config
from mfairfl.runs.prepare import federation_of, model_of, setup_of, table_of

__all__ = ["REVEALS", "SMALL_GROUP", "best_alone", "examine_run"]

SMALL_GROUP = 30
RARE_LABEL = 0.05
LEAK = 0.99


REVEALS = {
    "individual": "each client's update",
    "sums": "only the sum of the updates",
    "rows": "every row of every client",
}
"""What a method shows the server, by `Card.reveals`."""


def examine_run(config: Config) -> Iterator[Finding]:
    """Yield findings about the data of a run; an error is raised where it cannot be trained."""
    table = table_of(config)
    yield from _columns(table)
    yield from _label(table)
    yield from _leaks(table)
    federation = federation_of(config, table)
    setup = setup_of(config, federation, model_of(config, federation.pool.X.shape[1]))
    yield from _clients(federation)
    yield from _groups(federation)
    yield from _floor(config, federation)
    yield from _server(setup)
    yield from _cost(setup)


def _columns(table: Table) -> Iterator[Finding]:
    task = table.task
    yield Finding("ok", "data", f"{table.name}: {len(table):,} rows, sha256 {table.sha256[:12]}…")
    roles = {
        "numeric": task.numeric or (),
        "categorical": task.categorical or (),
        "ignored": task.ignore,
        "client": (task.client,) if task.client else (),
    }
    said = [f"{role} {', '.join(names)}" for role, names in roles.items() if names]
    yield Finding("ok", "columns", "; ".join(said))
    if not table.X.isna().any().any() and not (table.X == MISSING).any().any():
        yield Finding("ok", "missing values", "none in the features")


def _label(table: Table) -> Iterator[Finding]:
    share = float(table.y.mean())
    level: Literal["ok", "warn"] = "ok" if RARE_LABEL <= share <= 1 - RARE_LABEL else "warn"
    task = table.task
    said = f"{task.label} = {task.favourable} (favourable) in {share:.1%} of the rows"
    rare = ": one label is rare, compare accuracy with the constant classifier"
    yield Finding(level, "label", said + rare * (level == "warn"))


def _leaks(table: Table) -> Iterator[Finding]:
    """Warn of features that predict the label on their own."""
    constant = max(float(table.y.mean()), 1 - float(table.y.mean()))
    found = False
    for name in table.X.columns:
        right = best_alone(table.X[name], table.y)
        # On a rare label every column is right nearly always: it must halve the errors too.
        if right > LEAK and 1 - right < (1 - constant) / 2:
            found = True
            yield Finding(
                "warn", "leakage", f"column '{name}' alone predicts the label with accuracy "
                f"{right:.3f}; if it is not known before the decision, list it in ignore"
            )  # fmt: skip
    if not found:
        yield Finding("ok", "leakage", f"no column alone predicts the label above {LEAK:.0%}")


def best_alone(column: pd.Series, y: NDArray[np.int8]) -> float:
    """Return the accuracy of the best rule on one column.

    Numbers: one threshold. Categories: the majority of each level; a level with a single row is no
    evidence and counts as wrong.

    Examples
    --------
    >>> best_alone(pd.Series([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1], dtype=np.int8))
    1.0
    """
    if pd.api.types.is_numeric_dtype(column):
        order = np.argsort(column.to_numpy(), kind="stable")  # nan comes last
        values, labels = column.to_numpy()[order], y[order].astype(np.int64)
        ones = np.append(0, np.cumsum(labels))
        # Below cut i unfavourable, above it favourable; a cut lies between unequal values only.
        right = np.arange(len(y) + 1) - 2 * ones + ones[-1]
        cuts = np.append(np.append(True, values[1:] != values[:-1]), True)
        best = np.maximum(right, len(y) - right)[cuts].max()
        return float(best / len(y))
    counts = pd.crosstab(column.to_numpy(), y).to_numpy()
    return float(counts.max(axis=1)[counts.sum(axis=1) > 1].sum() / len(y))


def _clients(federation: Federation) -> Iterator[Finding]:
    sizes = [len(client) for client in federation.clients]
    said = (
        f"{len(sizes)} clients (scheme {federation.scheme}), {min(sizes):,} to {max(sizes):,} rows"
    )
    yield Finding("ok", "clients", said)
    for note in federation.notes:
        yield Finding("note", "data", note)
    for warning in federation.warnings:
        yield Finding("warn", "clients", warning)


def _groups(federation: Federation) -> Iterator[Finding]:
    for i, attribute in enumerate(federation.attributes):
        sizes = [a.size for a in federation.attributes]
        rows, test = (
            np.bincount(np.unravel_index(shard.cells, sizes)[i], minlength=attribute.size)
            for shard in (federation.pool, federation.pooled("test"))
        )
        pairs = zip(attribute.groups, rows.tolist(), test.tolist(), strict=True)
        said = ", ".join(f"{group} ({n:,} rows, {t:,} of them test)" for group, n, t in pairs)
        yield Finding("ok", "groups", f"{attribute.name}: {said}")
        for group, t in zip(attribute.groups, test.tolist(), strict=True):
            if t < SMALL_GROUP and group in attribute.recorded:
                yield Finding(
                    "warn", "groups", f"{attribute.name} {group} has {t} test rows: too few to "
                    "tell unfairness from chance; merge groups or collect more rows"
                )  # fmt: skip


def _floor(config: Config, federation: Federation) -> Iterator[Finding]:
    """Estimate the violation that chance alone causes on the test rows."""
    test = federation.pooled("test")
    if len(test) == 0:
        yield Finding(
            "warn", "noise floor", "no test rows: results will be measured on train rows"
        )
        return
    size = Cells(federation.attributes).size
    strata = 2 * test.cells.astype(np.int64) + test.y
    rows = np.bincount(strata, minlength=2 * size).reshape(1, size, 2).astype(np.float64)
    share = float(test.y.mean())
    # Decisions that are fair by construction: favourable at the labels' rate, for everyone.
    counts = np.stack([rows * (1 - share), rows * share], axis=-1)
    fair = noise_floor(Tally(counts, ("all",), federation.attributes))
    floors = fair.to_json()["values"]
    for name in config.fairness.notion:
        if (key := f"{name}_violation") not in floors:
            continue
        value = floors[key]
        said = "undefined, a group has no test row of a label" if value is None else f"{value:.3f}"
        yield Finding(
            "warn" if value is None else "ok",
            "noise floor",
            f"{key} of exactly fair decisions on {len(test):,} test rows: {said} on average",
        )


def _server(setup: Setup) -> Iterator[Finding]:
    card = setup.strategy.card
    cells = Cells(setup.summary.attributes).size
    pooled = (
        "" if card.trains_on == "clients" else "; it pools the rows: a reference, not federated"
    )
    yield Finding(
        "ok", "server sees", f"the method needs {REVEALS[card.reveals]}{pooled}; in addition, "
        f"each round, every client's rows, losses and decisions summed in {2 * cells} cells "
        f"(group × label); at the end also a histogram of the scores in each of them, "
        f"{LOGIT_BINS:,} bins, for ROC-AUC and calibration"
    )  # fmt: skip


def _cost(setup: Setup) -> Iterator[Finding]:
    rows = int(setup.summary.pooled.sum())
    by_gradient = setup.strategy.card.steps == "gradient"  # one pass per round
    epochs = setup.rounds * (1 if by_gradient else setup.recipe.local_epochs)
    sent = 2 * setup.rounds * len(setup.summary.counts) * 4 * setup.size / 1e6
    yield Finding(
        "ok", "cost", f"{rows:,} train rows × {epochs:,} epochs = {rows * epochs:,} row passes; "
        f"{setup.size:,} weights, {sent:,.1f} MB sent and received in total"
    )  # fmt: skip
