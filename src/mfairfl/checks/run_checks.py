"""Checks of a run's settings and data."""

from collections.abc import Collection, Generator, Iterator
from pathlib import Path

import numpy as np

from mfairfl.checks import SEES, Finding, Level, column_checks, server_findings
from mfairfl.checks.base_rates import base_rate_lines
from mfairfl.checks.column_checks import ColumnFacts, column_facts
from mfairfl.data import MISSING, Federation, Table
from mfairfl.data.quality import copies_of, traps_of
from mfairfl.data.table import table_from_content
from mfairfl.engine.state import Setup
from mfairfl.errors import DataError
from mfairfl.fairness import MetricTable, Tally
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.measuring import has_noise_floor
from mfairfl.runs.config import Config
from mfairfl.runs.execute import content_of, federation_of, model_of, setup_of, table_of
from mfairfl.text import some_of

SMALL_GROUP = 30
RARE_LABEL = 0.05
COSTLY = 0.01
"""A note is made of a notion that costs this much accuracy by itself."""

REVEALS = {"individual": "each client's update", "sums": "only the sum of the updates"}
"""What a method shows the server, by `Card.reveals`."""


def check_run(config: Config, unknown: Collection[str] = ()) -> Iterator[Finding | ColumnFacts]:
    """Yield findings about a run and its data; raise an error where it cannot be trained.

    Parameters
    ----------
    unknown : collection of str
        Keys for which the configuration has stand-ins: what depends on them is left out.
    """
    table = yield from _columns(config)
    yield _label(table)
    federation = federation_of(config, table)
    # Refuses what cannot be trained; so it comes before the findings about the features.
    setup = None
    if not unknown:
        setup = setup_of(config, federation, model_of(config, federation.pool.inputs.width))
    copies, traps = copies_of(table, federation), traps_of(table)
    level: Level = "warn" if copies.serious else "ok" if copies.by_chance else "note"
    yield Finding(level, "copied rows", copies.line)
    yield from column_checks.feature_findings(
        table, column_checks.rows_by_client(federation), traps
    )
    if not any(trap.kind == "label" for trap in traps):
        yield Finding("ok", "leakage", "no column alone predicts the label")
    yield from (Finding("warn", "data", warning) for warning in table.warnings)
    yield from _clients(federation, table.warnings)
    yield from _groups(federation)
    for price, line in base_rate_lines(table, config.fairness.notion):
        yield Finding("note" if price >= COSTLY else "ok", "base rates", line)
    yield from _noise_floor(config, federation)
    if setup is not None:
        if setup.strategy.card.trains_on == "clients":
            cells = 2 * Cells(setup.summary.attributes).size
            needs = f"the method needs {REVEALS[setup.strategy.card.reveals]}"
            yield Finding("ok", SEES, f"{needs}; groups × labels are {cells} cells")
        yield from server_findings(config)
        yield _cost(setup)


def _columns(config: Config) -> Generator[Finding | ColumnFacts, None, Table]:
    """Yield findings about the columns, and how they are read; return the rows."""
    content, task = content_of(config), config.applied_task
    if content is None or task is None:
        table = table_of(config)
        frame, name = column_checks.frame_of(table), table.name
    else:
        frame, name = content.frame, str(config.data.csv)
        selected = task.select(config.data.sensitive)
        try:
            table = table_from_content(content, selected, name=Path(name).name)
        except DataError:
            yield from column_facts(frame, task, name)  # helps to correct the file
            raise
    task = table.task
    yield Finding("ok", "data", f"{table.name}: {len(table):,} rows, sha256 {table.sha256[:12]}…")
    roles = {
        "numeric": task.numeric,
        "categorical": task.categorical,
        "ignored": task.ignore,
        "client": (task.client,) if task.client else (),
    }
    listed = [f"{role} {', '.join(names)}" for role, names in roles.items() if names]
    yield Finding("ok", "columns", "; ".join(listed))
    if not (table.X.isna() | (table.X == MISSING)).any(axis=None):
        yield Finding("ok", "missing values", "none in the features")
    yield from column_facts(frame, task, name)
    return table


def _label(table: Table) -> Finding:
    share, task = float(table.y.mean()), table.task
    message = f"{task.label} = {task.favourable} (favourable) in {share:.1%} of the rows"
    if RARE_LABEL <= share <= 1 - RARE_LABEL:
        return Finding("ok", "label", message)
    advice = "one label is rare, compare accuracy with the constant classifier"
    return Finding("warn", "label", f"{message}: {advice}")


def _clients(federation: Federation, table_warnings: Collection[str]) -> Iterator[Finding]:
    sizes = [len(client) for client in federation.clients]
    number = f"{len(sizes)} clients (scheme {federation.scheme})"
    yield Finding("ok", "clients", f"{number}, {min(sizes):,} to {max(sizes):,} rows")
    yield from (Finding("note", "data", note) for note in federation.notes)
    for warning in federation.warnings:
        if warning not in table_warnings:
            yield Finding("warn", "clients", warning)


def _groups(federation: Federation) -> Iterator[Finding]:
    sizes = [attribute.size for attribute in federation.attributes]
    for i, attribute in enumerate(federation.attributes):
        rows, test = (
            np.bincount(np.unravel_index(shard.cells, sizes)[i], minlength=attribute.size).tolist()
            for shard in (federation.pool, federation.pooled("test"))
        )
        groups = list(zip(attribute.groups, rows, test, strict=True))
        listed = ", ".join(f"{group} ({n:,} rows, {t:,} of them test)" for group, n, t in groups)
        yield Finding("ok", "groups", f"{attribute.name}: {listed}")
        small = [f"{g} ({t})" for g, _, t in groups if t < SMALL_GROUP and g in attribute.recorded]
        if small:
            message = f"fewer than {SMALL_GROUP} test rows of {some_of(small, most=10)}"
            advice = "merge groups or collect more rows"
            message += f": too few to distinguish unfairness from chance; {advice}"
            yield Finding("warn", "groups", f"{attribute.name}: {message}")


def _noise_floor(config: Config, federation: Federation) -> Iterator[Finding]:
    """Estimate the violation that chance alone causes on the test rows."""
    test = federation.pooled("test")
    if len(test) == 0:
        message = "no test rows: results will be measured on train rows"
        yield Finding("warn", "noise floor", message)
        return
    size = Cells(federation.attributes).size
    strata = 2 * test.cells.astype(np.int64) + test.y
    rows = np.bincount(strata, minlength=2 * size).reshape(1, size, 2).astype(np.float64)
    share = float(test.y.mean())
    # Decisions that are fair by construction: favourable at the labels' rate, for every group.
    counts = np.stack([rows * (1 - share), rows * share], axis=-1)
    fair = MetricTable.from_tally(Tally(counts, ("all",), federation.attributes))
    for name in config.fairness.notion:
        key = f"{name}_violation"
        if not has_noise_floor(key) or key not in fair.overall:
            continue
        value, what = fair[key].noise_floor, f"{key} of exactly fair decisions on {len(test):,}"
        if value is None:
            why = "undefined, a group has no test row of a label"
            yield Finding("warn", "noise floor", f"{what} test rows: {why}")
        else:
            yield Finding("ok", "noise floor", f"{what} test rows: {value:.3f} on average")


def _cost(setup: Setup) -> Finding:
    rows = int(setup.summary.pooled.sum())
    by_gradient = setup.strategy.card.steps == "gradient"  # one pass per round
    epochs = setup.rounds * (1 if by_gradient else setup.recipe.local_epochs)
    sent = 2 * setup.rounds * len(setup.summary.counts) * 4 * setup.size / 1e6
    passes = f"{rows:,} train rows × {epochs:,} epochs = {rows * epochs:,} row passes"
    traffic = f"{setup.size:,} weights, {sent:,.1f} MB sent and received in total"
    return Finding("ok", "cost", f"{passes}; {traffic}")
