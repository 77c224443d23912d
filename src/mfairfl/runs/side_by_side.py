"""Finished runs side by side: whether their rows are the same, and what to call them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mfairfl.data import Task
from mfairfl.runs.record import DataFacts, FederationFacts, RunRecord


class MeasuredRecord(Protocol):
    """A record of a model that was measured on rows: of a run or of a reference."""

    @property
    def data(self) -> DataFacts:
        """The rows."""

    @property
    def task(self) -> Task:
        """What they mean."""

    @property
    def federation(self) -> FederationFacts:
        """How they were divided."""


def different_rows(one: MeasuredRecord, other: MeasuredRecord) -> str:
    """Name what the rows of two records differ in; empty if the rows are the same.

    Examples
    --------
    >>> different_rows(RunRecord.read("runs/a"), RunRecord.read("runs/b"))  # doctest: +SKIP
    'seed'
    """
    found = [
        {
            "data": record.data.sha256,
            "task": record.task,
            "scheme": record.federation.scheme,
            "seed": record.federation.seed,
            # How rows are encoded is the model's affair: they are the same rows.
            "options": {k: v for k, v in record.federation.options.items() if k != "encoder"},
            "clients": record.federation.clients,
        }
        for record in (one, other)
    ]
    return next((key for key, value in found[0].items() if value != found[1][key]), "")


def distinct_names(paths: Sequence[Path | None], records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the shortest names that tell runs apart: strategies, folders, or whole paths.

    Examples
    --------
    >>> paths = [Path("runs/a"), Path("runs/b")]
    >>> distinct_names(paths, [RunRecord.read(path) for path in paths])  # doctest: +SKIP
    ('fedavg', 'mfairfl')
    """
    strategies = [record.strategy for record in records]
    numbered = [f"{name} {i}" for i, name in enumerate(strategies, 1)]
    folders = [path.name if path else name for path, name in zip(paths, numbered, strict=True)]
    for names in (strategies, folders):
        if len(set(names)) == len(names):
            return tuple(names)
    return tuple(str(path or name) for path, name in zip(paths, numbered, strict=True))
