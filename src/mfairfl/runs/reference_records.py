"""Pooled references on the rows of a run, and whether two records are of the same rows.

A reference is not a run: it has no rounds, and its model is not served. Its folder holds
`reference.json` alone, the numbers of `run.json` with how they came about.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from mfairfl import __version__
from mfairfl.data import SPLITS, Split, Task
from mfairfl.data.values import DocumentedModel
from mfairfl.errors import ConfigError, RunDirectoryError
from mfairfl.fairness.results import MetricTable
from mfairfl.fairness.scores import RowScores
from mfairfl.files import write_atomically
from mfairfl.references import FittedReference, PooledRows, ReferenceName, reference_settings
from mfairfl.runs import record as facts
from mfairfl.runs.config import Config, FairnessConfig, make_config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.outcome import library_versions
from mfairfl.runs.rows import MeasuredRows, measure_rows
from mfairfl.strict_json import fingerprint

_FILE = "reference.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequest:
    """A reference to be fitted on the rows of a configuration, and the folder it is kept in."""

    name: ReferenceName
    config: Config
    out: Path


class ReferenceRecord(DocumentedModel):
    """reference.json: which reference on which rows, and every number of it.

    Examples
    --------
    >>> record = ReferenceRecord.read("runs/study/runs/adult-boosting")  # doctest: +SKIP
    >>> record.table("test")["accuracy"].value  # doctest: +SKIP
    0.8725
    """

    schema_version: Literal[1] = 1
    """Version of this format."""
    reference: ReferenceName
    identity: str
    """Hash of everything that decides the result."""
    seed: int
    """Seed of the split and of the fit."""
    settings: dict[str, Any]
    """What decides the fit: settings of scikit-learn, and the goal of the thresholds."""
    thresholds: dict[str, Any] | None
    """Thresholds of each group; null decides at score 1/2."""
    versions: dict[str, str]
    """Python, mfairfl and the libraries it used."""
    data: facts.DataFacts
    task: Task
    """Label, sensitive attributes and types of the columns."""
    federation: facts.FederationFacts
    """Whose rows were pooled."""
    evaluations: dict[Split, facts.StoredTable]
    """By split: everything that is reported, as of a run."""
    tallies: dict[Split, facts.StoredTally]
    """By split: the counts by client, cell, label and decision."""
    seconds: float
    """Wall-clock seconds of fitting and measuring."""
    machine: facts.MachineFacts

    def table(self, split: Split) -> MetricTable:
        """Return every number on one split."""
        return self.evaluations[split].table()

    @classmethod
    def read(cls, folder: str | Path) -> ReferenceRecord:
        """Read the reference that is kept in a folder."""
        file = Path(folder) / _FILE
        plain = facts.read_json(file, "repeat the command")
        return facts.validated(cls, plain, file, "delete the folder and repeat the command")

    def write(self, folder: Path) -> None:
        """Write reference.json atomically."""
        plain = self.model_dump(mode="json")
        text = json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_atomically(folder / _FILE, text.encode())


def different_rows(
    one: facts.RunRecord | ReferenceRecord, other: facts.RunRecord | ReferenceRecord
) -> str:
    """Return what the rows of two records differ in; nothing if the rows are the same.

    Examples
    --------
    >>> different_rows(RunRecord.read("runs/a"), RunRecord.read("runs/b"))  # doctest: +SKIP
    'seed'
    """
    rows_of_one, rows_of_other = (
        {
            "data": record.data.sha256,
            "task": record.task,
            "scheme": record.federation.scheme,
            "seed": record.federation.seed,
            # The encoding belongs to the model: the rows are the same.
            "options": {k: v for k, v in record.federation.options.items() if k != "encoder"},
            "clients": record.federation.clients,
        }
        for record in (one, other)
    )
    return next((key for key in rows_of_one if rows_of_one[key] != rows_of_other[key]), "")


def distinct_names(
    paths: Sequence[Path | None], records: Sequence[facts.RunRecord]
) -> tuple[str, ...]:
    """Return the shortest names that tell runs apart: strategies, folders, or whole paths.

    Examples
    --------
    >>> paths = [Path("runs/a"), Path("runs/b")]
    >>> distinct_names(paths, [RunRecord.read(path) for path in paths])  # doctest: +SKIP
    ('fedavg', 'mfairfl')
    """
    strategies = [record.strategy for record in records]
    numbered = [Path(f"{name} {i}") for i, name in enumerate(strategies, 1)]
    folders = [path or number for path, number in zip(paths, numbered, strict=True)]
    for names in (strategies, [folder.name for folder in folders]):
        if len(set(names)) == len(names):
            return tuple(names)
    return tuple(map(str, folders))


def fit_on_rows_of(run: facts.RunRecord, names: Sequence[ReferenceName]) -> list[ReferenceRecord]:
    """Fit references on the rows that a run was trained on, for its fairness goal.

    Raises
    ------
    ConfigError
        If the rows are not on file, or no longer the same.
    """
    if not names:
        return []
    settings = {key: run.config[key] for key in ("seed", "data", "task", "clients")}
    aim = run.config["fairness"]  # of an earlier version, with keys that are gone
    settings["fairness"] = {key: aim[key] for key in FairnessConfig.model_fields if key in aim}
    settings["output"] = {"rule": "thresholds"}
    config = make_config(settings, "the first run's configuration")
    if config.data.name is None and config.data.csv is None:
        raise ConfigError("references: the first run's rows are not on file; remove references")
    with TemporaryDirectory() as folder:
        records = fit_references(
            [ReferenceRequest(name=n, config=config, out=Path(folder) / n) for n in names]
        )
    if key := different_rows(run, records[0]):
        raise ConfigError(
            f"the first run and its file today: measured on different rows ({key} differs); train "
            "both on the same data, split and seed"
        )
    return records


def fit_references(requests: Sequence[ReferenceRequest]) -> list[ReferenceRecord]:
    """Fit references on one set of rows, each into its folder; kept ones are not repeated.

    The configurations must name the same data, clients and seed.
    """
    from mfairfl.runs.execute import federation_of, table_of  # noqa: PLC0415 - loads PyTorch

    config = requests[0].config
    table = table_of(config)
    rows = PooledRows(table, federation_of(config, table))
    return [_fit_or_read(request, rows) for request in requests]


def _fit_or_read(request: ReferenceRequest, rows: PooledRows) -> ReferenceRecord:
    """Return what the folder holds, or fit the reference and keep it there."""
    from mfairfl.engine.embedded import counts_of  # noqa: PLC0415 - loads PyTorch

    federation = rows.federation
    goal = request.config.goal(tuple(a.name for a in federation.attributes))
    measured = facts.reported([split for split in SPLITS if len(federation.pooled(split))])
    counts = counts_of(federation, measured).values()
    tolerance = request.config.allowed(goal.constraints(federation.attributes), counts).output
    settings = reference_settings(request.name)
    if request.name == "boosting-threshold":
        settings |= {
            "notions": list(goal.notions),
            "attributes": list(goal.attributes or ()),
            "intersections": goal.intersections,
            "tolerance": tolerance,
        }
    split = [federation.scheme, federation.seed, dict(federation.options)]
    same_rows = [federation.sha256, federation.task.model_dump(mode="json"), *split]
    identity = fingerprint([request.name, settings, same_rows, __version__])
    directory = RunDirectory(request.out)
    with directory.locked():
        if not (directory.path / _FILE).exists():
            began = time.perf_counter()
            fitted = rows.fit(request.name, goal=goal, tolerance=tolerance)
            stated = {"reference": request.name, "identity": identity, "settings": settings}
            _record(fitted, rows, stated, began).write(directory.path)
        record = ReferenceRecord.read(directory.path)
    if record.identity != identity:
        raise RunDirectoryError(
            f"{directory.path}: holds another reference (other data, settings or version of "
            "mfairfl); choose another --out or delete the folder"
        )
    return record


def _record(
    fitted: FittedReference, rows: PooledRows, stated: dict[str, Any], began: float
) -> ReferenceRecord:
    """Measure a reference on each split; `stated` are the fields beside those of the rows."""
    federation = rows.federation
    measured = {
        split: _measured(fitted, rows, split) for split in SPLITS if len(federation.pooled(split))
    }
    tallies = {split: part.tally for split, part in measured.items()}
    tables = {split: part.table(majority=tallies["train"]) for split, part in measured.items()}
    divided = facts.FederationFacts.of(federation)
    return ReferenceRecord(
        **stated,
        seed=federation.seed,
        thresholds=None if fitted.thresholds is None else fitted.thresholds.to_json(),
        versions=library_versions("mfairfl", "scikit-learn", "numpy", "scipy", "pandas"),
        data=facts.DataFacts.of(divided),
        task=federation.task,
        federation=divided,
        evaluations={split: facts.StoredTable.of(table) for split, table in tables.items()},
        tallies=tallies,
        seconds=round(time.perf_counter() - began, 3),
        machine=facts.MachineFacts.here(),
    )


def _measured(fitted: FittedReference, rows: PooledRows, split: Split) -> MeasuredRows:
    """Count decisions and sum scores client by client, as clients do for a run."""
    federation, shard = rows.federation, rows.federation.pooled(split)
    logits = fitted.logits(rows.table.X.iloc[shard.rows])
    names = [client.name for client in federation.clients]
    return measure_rows(
        shard.y,
        fitted.chances(logits, shard.cells),
        RowScores.from_logits(logits),
        cells=shard.cells.astype(np.intp),
        clients=np.repeat(names, [len(client.shard(split)) for client in federation.clients]),
        attributes=federation.attributes,
        names=names,
    )
