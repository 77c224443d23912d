"""From a configuration to what an engine runs: table, federation, setup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from mfairfl.data import SPLITS, Federation, Split, Table, load_dataset, partition, read_table
from mfairfl.data.coding import Treated
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.quality import SERIOUS, copies_of, trap_lines, traps_of
from mfairfl.engine.embedded import counts_of, summarize
from mfairfl.engine.state import Setup
from mfairfl.errors import ConfigError
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS, ModuleFactory
from mfairfl.runs.config import Config
from mfairfl.strategies.base import Summary


def content_of(config: Config) -> FileContent | None:
    """Read the file as it is, before the task is applied; None for data known by name."""
    csv = config.data.csv
    return None if csv is None else read_file(Path(csv), config.data.format)


def table_of(config: Config) -> Table:
    """Read the rows the configuration names."""
    data = config.data
    if data.csv is not None and config.task is not None:
        task = config.task.select(data.sensitive)
        return read_table(Path(data.csv), task, **asdict(data.format))
    if data.name is None:
        raise ConfigError("no data: give data.name (see `mfairfl data list`) or data.csv")
    options: dict[str, Any] = dict(data.options)
    return load_dataset(
        data.name, data.path, sensitive=data.sensitive, task=config.task, **options
    )


def federation_of(config: Config, table: Table) -> Federation:
    """Split the rows among clients as the configuration says."""
    clients = config.clients
    scheme = clients.scheme or ("iid" if table.clients is None else "column")
    return partition(
        table,
        scheme,
        seed=config.seed,
        clients=clients.count,
        test=clients.test,
        validation=clients.validation,
        fold=None if clients.folds is None else (clients.fold, clients.folds),
        encoder=config.encoder,
        **clients.options,
    )


def with_warnings(federation: Federation, table: Table) -> Federation:
    """Add what may mislead a reader of the results to a federation's notes and warnings."""
    lines = trap_lines(traps_of(table))
    copies = copies_of(table, federation)
    serious = [copies.line] * copies.serious + [line for kind, line in lines if kind in SERIOUS]
    notes = [line for kind, line in lines if kind not in SERIOUS]
    proxies = [line for kind, line in lines if kind == "proxy"]
    return replace(
        federation,
        notes=(*federation.notes, *notes),
        warnings=tuple(dict.fromkeys([*table.warnings, *serious, *federation.warnings])),
        treatment=(*federation.treatment, *(Treated("proxy", line) for line in proxies)),
    )


def model_of(config: Config, inputs: int, module: ModuleFactory | None = None) -> Model:
    """Build the model for this many encoded features."""
    factory = module or MODELS.get(config.model.kind)
    if factory is not None:
        return ModuleModel(factory, inputs)
    return MLP(inputs=inputs, hidden=config.model.widths)


def setup_of(config: Config, federation: Federation, model: Model) -> Setup:
    """Return what the loop needs, for clients whose rows are here."""
    names = tuple(attribute.name for attribute in federation.attributes)
    pooled = config.strategy.create().card.trains_on == "pooled"
    return setup_for(
        config,
        size=model.size,
        summary=summarize(federation, config.goal(names), pooled=pooled),
        enrolled={split: counts_of(federation, split) for split in SPLITS},
    )


def setup_for(
    config: Config,
    *,
    size: int,
    summary: Summary,
    enrolled: Mapping[Split, Mapping[str, np.ndarray]],
) -> Setup:
    """Return what the loop needs, wherever the clients with these rows are."""
    training = config.training
    return Setup(
        strategy=config.strategy.create(),
        size=size,
        recipe=training.recipe(),
        rounds=config.server_rounds(),
        seed=config.seed,
        summary=summary,
        splits=tuple(s for s in SPLITS if any(rows.sum() for rows in enrolled[s].values())),
        enrolled=enrolled,
        output=config.output_rule(),
        participation=training.participation,
        patience=training.patience,
        evaluate_every=training.evaluate_every,
        robust=config.robust,
    )
