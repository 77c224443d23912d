"""Checks of a run's data and settings; each yields findings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from mfairfl.checks.facts import ColumnFacts, column_facts, frame_of
from mfairfl.checks.features import examine_features
from mfairfl.checks.finding import Finding
from mfairfl.checks.server import SEES, configured_view
from mfairfl.checks.silos import rows_by_client
from mfairfl.data import MISSING, Federation, Table, Task
from mfairfl.data.files import FileContent
from mfairfl.data.quality import copies_of, traps_of
from mfairfl.data.table import table_from_content
from mfairfl.engine.state import Setup
from mfairfl.errors import DataError
from mfairfl.fairness import Tally, noise_floor
from mfairfl.fairness.cells import Cells
from mfairfl.runs.config import Config
from mfairfl.runs.prepare import content_of, federation_of, model_of, setup_of, table_of
from mfairfl.text import some_of

SMALL_GROUP = 30
RARE_LABEL = 0.05


REVEALS = {
    "individual": "each client's update",
    "sums": "only the sum of the updates",
}
"""What a method shows the server, by `Card.reveals`."""


def examine_run(config: Config, unknown: Collection[str] = ()) -> Iterator[Finding | ColumnFacts]:
    """Yield findings about the data of a run; an error is raised where it cannot be trained.

    Parameters
    ----------
    unknown : collection of str
        Keys for which the configuration has stand-ins: what depends on them is not said.
    """
    content = None if config.task is None else content_of(config)
    try:
        table = _table(config, content)
    except DataError:
        yield from _file_facts(config, content, config.task)  # what is there helps to correct it
        raise
    yield from _columns(table)
    if content is None:
        yield from column_facts(frame_of(table), table.task, table.name)
    yield from _file_facts(config, content, table.task)
    del content  # before all rows are encoded
    yield from _label(table)
    federation = federation_of(config, table)
    # Refuses what cannot be trained; so it comes before the findings about the features.
    setup = None
    if not unknown:
        setup = setup_of(config, federation, model_of(config, federation.pool.inputs.width))
    yield _copies(table, federation)
    yield from _features(table, federation)
    yield from (Finding("warn", "data", warning) for warning in table.warnings)
    yield from _clients(federation, known=table.warnings)
    yield from _groups(federation)
    yield from _floor(config, federation)
    if setup is not None:
        yield from _server(setup, config)
        yield from _cost(setup)


def _table(config: Config, content: FileContent | None) -> Table:
    """Apply the task to a file that was read already, or read the data that has a name."""
    if content is None or config.task is None:
        return table_of(config)
    task = config.task.select(config.data.sensitive)
    return table_from_content(content, task, name=Path(str(config.data.csv)).name)


def _file_facts(
    config: Config, content: FileContent | None, task: Task | None
) -> list[ColumnFacts]:
    if content is None or task is None:
        return []
    return column_facts(content.frame, task, str(config.data.csv))


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


def _features(table: Table, federation: Federation) -> Iterator[Finding]:
    traps = traps_of(table)
    yield from examine_features(table, rows_by_client(federation), traps)
    if not any(trap.kind == "label" for trap in traps):
        yield Finding("ok", "leakage", "no column alone predicts the label")


def _copies(table: Table, federation: Federation) -> Finding:
    copies = copies_of(table, federation)
    few: Literal["note", "ok"] = "ok" if copies.by_chance else "note"
    return Finding("warn" if copies.serious else few, "copied rows", copies.line)


def _clients(federation: Federation, known: Collection[str]) -> Iterator[Finding]:
    sizes = [len(client) for client in federation.clients]
    said = (
        f"{len(sizes)} clients (scheme {federation.scheme}), {min(sizes):,} to {max(sizes):,} rows"
    )
    yield Finding("ok", "clients", said)
    for note in federation.notes:
        yield Finding("note", "data", note)
    for warning in federation.warnings:
        if warning not in known:
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
        small = {
            group: t
            for group, t in zip(attribute.groups, test.tolist(), strict=True)
            if t < SMALL_GROUP and group in attribute.recorded
        }
        if small:
            named = some_of([f"{group} ({t})" for group, t in small.items()], most=10)
            yield Finding(
                "warn", "groups", f"{attribute.name}: fewer than {SMALL_GROUP} test rows of "
                f"{named}: too few to tell unfairness from chance; merge groups or collect more "
                "rows"
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


def _server(setup: Setup, config: Config) -> Iterator[Finding]:
    """Say what the method needs of updates, then all that crosses."""
    card = setup.strategy.card
    if card.trains_on == "clients":
        cells = Cells(setup.summary.attributes).size
        said = f"the method needs {REVEALS[card.reveals]}; groups × labels are {2 * cells} cells"
        yield Finding("ok", SEES, said)
    yield from configured_view(config)


def _cost(setup: Setup) -> Iterator[Finding]:
    rows = int(setup.summary.pooled.sum())
    by_gradient = setup.strategy.card.steps == "gradient"  # one pass per round
    epochs = setup.rounds * (1 if by_gradient else setup.recipe.local_epochs)
    sent = 2 * setup.rounds * len(setup.summary.counts) * 4 * setup.size / 1e6
    yield Finding(
        "ok", "cost", f"{rows:,} train rows × {epochs:,} epochs = {rows * epochs:,} row passes; "
        f"{setup.size:,} weights, {sent:,.1f} MB sent and received in total"
    )  # fmt: skip
