"""Scores of the runs of `personal.py`, and what a rule of thresholds does with them.

A run trains once for each split and seed, as the package does (`runs/execute.py`); clients' score
histograms are kept below --runs, so that any number of rules is fitted and measured without
training again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Attribute
from mfairfl.engine.embedded import Member, run_all
from mfairfl.fairness import Cells, Notion
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.rates import group_measure, violation_of
from mfairfl.fairness.resampling import decided
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.execute import federation_of, model_of, setup_of, table_of
from mfairfl.training.execution import steady_arithmetic

DRAWS = 500  # fair decisions behind a noise floor
TOGETHER = 5  # runs that are trained side by side

Floats = NDArray[np.float64]
Parts = dict[str, ScoreHistogram]
"""Each client's rows by cell, label and score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A trained run: its clients' scores on the rows that choose, and on those that measure."""

    train: Parts
    test: Parts
    attributes: tuple[Attribute, ...]

    @property
    def cells(self) -> Cells:
        """The groups of its rows."""
        return Cells(self.attributes)

    def write(self, path: Path) -> None:
        """Write a file that is there in one piece, or not at all."""
        plain = [[attribute.name, attribute.groups] for attribute in self.attributes]
        arrays: dict[str, Any] = {
            "clients": np.array(list(self.train)),
            "attributes": np.array(json.dumps(plain)),
            "train": np.array([part.counts for part in self.train.values()], dtype=np.int32),
            "test": np.array([self.test[client].counts for client in self.train], dtype=np.int32),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **arrays)
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Scored:
        """Read what `write` wrote."""
        with np.load(path) as arrays:
            clients = arrays["clients"].tolist()
            train, test = (
                dict(zip(clients, map(ScoreHistogram, arrays[split]), strict=True))
                for split in ("train", "test")
            )
            plain = json.loads(str(arrays["attributes"]))
        attributes = tuple(Attribute(name, tuple(groups)) for name, groups in plain)
        return cls(train=train, test=test, attributes=attributes)


def scored_runs(
    settings: Sequence[Mapping[str, Any]], folder: Path
) -> Iterator[tuple[str, Scored]]:
    """Yield name and scores of a run of each configuration; what is not stored is trained."""
    configs = [make_config(values) for values in settings]
    # The identity leaves the place of the rows out, which tells one draw of them from another.
    keys = [config.identity(str(config.data.path))[:20] for config in configs]
    paths = [folder / "scores" / f"{key}.npz" for key in keys]
    missing = [pair for pair in zip(configs, paths, strict=True) if not pair[1].exists()]
    for start in range(0, len(missing), TOGETHER):
        some = missing[start : start + TOGETHER]
        members = [_member(config) for config, _ in some]
        with steady_arithmetic():
            results = run_all(members)
        for member, result, (_, path) in zip(members, results, some, strict=True):
            parts = {
                split: {name: sums.histogram for name, sums in sorted(clients.items())}
                for split, clients in result.scored.items()
            }
            attributes = member.federation.attributes
            Scored(train=parts["train"], test=parts["test"], attributes=attributes).write(path)
            print(f"trained {path.stem}", flush=True)
    yield from ((path.stem, Scored.read(path)) for path in paths)


def _member(config: Config) -> Member:
    federation = federation_of(config, table_of(config))
    model = model_of(config, federation.pool.inputs.width)
    return Member(setup=setup_of(config, federation, model), model=model, federation=federation)


# ------------------------------------------------------------------ what a rule does


def decisions(rule: Thresholds, parts: Parts) -> Floats:
    """Return the expected counts of rows by client, cell, label and decision, (K, C, 2, 2)."""
    tables = []
    for client, part in parts.items():
        chance = rule.of(client).bin_chances(part)
        selected = (part.counts * chance[:, None, :]).sum(axis=2)
        tables.append(np.stack([part.rows - selected, selected], axis=-1))
    return np.array(tables)


def violations(counts: Floats, item: Notion, cells: Cells) -> Floats:
    """Return the violation of each (C, 2, 2) table of (..., C, 2, 2); nan where undefined."""
    groupings = cells.groupings()
    return np.asarray(violation_of(item, groupings).value(counts[..., None, :, :, :]))


def fair_violations(counts: Floats, item: Notion, cells: Cells) -> Floats:
    """Draw the violation of each client, were its decisions fair at its own rates, (draws, K)."""
    tables = counts.sum(axis=1)
    rates = tables[:, :, 1] / np.maximum(tables.sum(axis=2), 1.0)
    if item.events[0].labels == (0, 1):
        rate = tables[:, :, 1].sum(axis=1) / tables.sum(axis=(1, 2))
        rates = np.stack([rate, rate], axis=1)
    rows = np.rint(counts.sum(axis=3)).astype(np.int64)
    rates = np.clip(rates, 0.0, 1.0)[:, None, :]
    drawn = decided(rows, rates, DRAWS, np.random.default_rng(0))
    return violations(drawn.astype(np.float64), item, cells)


def numbers(counts: Floats, item: Notion, cells: Cells) -> dict[str, float]:
    """Return what the page shows of a rule's decisions on some rows."""
    right, rows = counts[:, :, 0, 0] + counts[:, :, 1, 1], counts.sum(axis=(1, 2, 3))
    by_client = right.sum(axis=1) / rows
    pooled = counts.sum(axis=0, keepdims=True)
    local, fair = violations(counts, item, cells), fair_violations(counts, item, cells)
    between = [
        group_measure("difference", item, part, cells.groupings())[0]
        for part in (counts, *counts[:, None])
    ]
    return {
        "accuracy": float(right.sum() / rows.sum()),
        "violation": float(violations(pooled, item, cells)[0]),
        "floor": float(fair_violations(pooled, item, cells).mean()),
        "local": float(np.nanmean(local)),
        "local_floor": float(np.nanmean(fair)),
        "largest": float(np.nanmax(local)),
        "largest_floor": float(np.nanmax(fair, axis=1).mean()),
        "between": between[0],
        "local_between": float(np.nanmean(between[1:])),
        "std": float(by_client.std()),
        "worst": float(by_client.min()),
    }
