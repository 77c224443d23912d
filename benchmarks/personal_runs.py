"""Scores of the runs of `personal.py`, and what rules of thresholds do with them.

A run trains once for each split and seed, as the package does (`runs/execute.py`); clients' score
histograms are kept below --runs, so that any number of rules is fitted and measured without
training again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from acs_silos import drawn
from mfairfl.data import Attribute
from mfairfl.engine.embedded import Member, run_all
from mfairfl.fairness import Cells, Notion, fitting, notion, programme, thresholds
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.fitting import Demand, fit_thresholds
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.rates import violation_of
from mfairfl.fairness.resampling import decided
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.execute import federation_of, model_of, setup_of, table_of
from mfairfl.training.execution import steady_arithmetic

DRAWS = 500  # fair decisions behind a noise floor
TOGETHER = 5  # runs that are trained side by side
HALF = Thresholds([[0.0]], [[1.0]])

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
            print(f"trained {path.stem}", file=sys.stderr)
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


def fair_decisions(counts: Floats, item: Notion) -> Floats:
    """Draw each client's decisions as if they were fair at its own rates, (draws, K, C, 2, 2)."""
    tables = counts.sum(axis=1)
    rates = tables[:, :, 1] / np.maximum(tables.sum(axis=2), 1.0)
    if item.events[0].labels == (0, 1):
        rate = tables[:, :, 1].sum(axis=1) / tables.sum(axis=(1, 2))
        rates = np.stack([rate, rate], axis=1)
    rows = np.rint(counts.sum(axis=3)).astype(np.int64)
    rates = np.clip(rates, 0.0, 1.0)[:, None, :]
    return decided(rows, rates, DRAWS, np.random.default_rng(0)).astype(np.float64)


def between(counts: Floats) -> Floats:
    """Return the largest less the smallest selection rate of the cells; nan if one is empty."""
    with np.errstate(invalid="ignore"):
        rates = counts[..., 1].sum(axis=-1) / counts.sum(axis=(-1, -2))
    return np.asarray(np.ptp(rates, axis=-1))


def numbers(counts: Floats, item: Notion, cells: Cells) -> dict[str, float]:
    """Return what the page shows of a rule's decisions on some rows."""
    right, rows = counts[:, :, 0, 0] + counts[:, :, 1, 1], counts.sum(axis=(1, 2, 3))
    by_client = right.sum(axis=1) / rows
    pooled = counts.sum(axis=0, keepdims=True)
    fairly = fair_decisions(counts, item)
    local, fair = violations(counts, item, cells), violations(fairly, item, cells)
    return {
        "accuracy": float(right.sum() / rows.sum()),
        "violation": float(violations(pooled, item, cells)[0]),
        "floor": float(violations(fair_decisions(pooled, item), item, cells).mean()),
        "local": float(np.nanmean(local)),
        "local_floor": float(np.nanmean(fair)),
        "largest": float(np.nanmax(local)),
        "largest_floor": float(np.nanmax(fair, axis=1).mean()),
        "between": float(between(pooled)[0]),
        "local_between": float(np.nanmean(between(counts))),
        "local_between_floor": float(np.nanmean(between(fairly))),
        "std": float(by_client.std()),
        "worst": float(by_client.min()),
    }


# ------------------------------------------------------------------ many rules of many runs


def configurations(
    split: Mapping[str, Any], seeds: range, method: str = "fedavg", *, folds: int | None = None
) -> list[dict[str, Any]]:
    """Return a run's configuration for each seed; of folds, the seed says which one measures."""
    clients = [
        split.get("clients", {})
        | ({} if folds is None else {"folds": folds, "fold": seed % folds})
        for seed in seeds
    ]
    return [
        {**split, "clients": part, "strategy": {"name": method}, "seed": seed}
        for seed, part in zip(seeds, clients, strict=True)
    ]


def states(file: Path, rows: int, folder: Path) -> dict[str, Any]:
    """Return a draw of the rows of ACSIncome, as a run's configuration names them."""
    config, _ = drawn(file, rows, folder / f"acs-{rows}")
    return tomllib.loads(config.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A rule to fit to every run of a split; without a demand, score ½ decides."""

    name: str
    demand: Demand | None
    notion: str = "demographic_parity"
    instead: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What replaces a part of the package, in a comparison of alternatives."""

    @property
    def key(self) -> str:
        """What tells answers apart in the book."""
        return json.dumps([self.name, repr(self.demand), self.notion])


class Book:
    """Numbers of rules by run and question, kept in a file as they come."""

    def __init__(self, folder: Path) -> None:
        sources = [Path(module.__file__) for module in (fitting, programme, thresholds)]
        sources.append(Path(__file__))
        code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
        self._folder, self._path = folder, folder / f"numbers-{code}.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._known: dict[str, Any] = dict(map(json.loads, lines))

    def rows(
        self, settings: Sequence[dict[str, Any]], questions: Sequence[Question]
    ) -> pd.DataFrame:
        """Return a row for each question and run, indexed by the question's name and the seed."""
        rows, scored = [], scored_runs(settings, self._folder)
        for setting, (name, run) in zip(settings, scored, strict=True):
            seed, method = setting["seed"], setting["strategy"]["name"]
            for question in questions:
                key = json.dumps([name, question.key])
                if key not in self._known:
                    self._known[key] = answer(run, question)
                    with self._path.open("a") as file:
                        file.write(json.dumps([key, self._known[key]]) + "\n")
                rows.append({"rule": question.name, "seed": seed, **self._known[key]})
            print(f"measured {method}, seed {seed}, {len(questions)} rules", file=sys.stderr)
        return pd.DataFrame(rows).set_index(["rule", "seed"])


def answer(run: Scored, question: Question) -> dict[str, float]:
    """Fit a rule to the train rows; return its numbers, of the train rows as well."""
    item, found = notion(question.notion), fitting.FittedThresholds(thresholds=HALF)
    if question.demand is not None:
        with question.instead():
            found = fit_thresholds(run.train, Constraints(run.cells, item), question.demand)
    train, test = (
        numbers(decisions(found.thresholds, part), item, run.cells)
        for part in (run.train, run.test)
    )
    of_fit = {"excess": found.excess, "drawn": found.drawn, "otherwise": found.otherwise}
    return test | of_fit | {f"train_{name}": value for name, value in train.items()}
