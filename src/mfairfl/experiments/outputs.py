"""From a study's runs to what people read: rows, tables, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.experiments.figures.histories import (
    epochs_to_best,
    multiplier_history,
    read_history,
    write_epochs_markdown,
)
from mfairfl.experiments.figures.pareto import draw_pareto
from mfairfl.experiments.figures.training import (
    draw_client_bars,
    draw_convergence,
    draw_multipliers,
)
from mfairfl.experiments.results import path_of, results, write_results
from mfairfl.experiments.study import Study, Trial
from mfairfl.experiments.tables.layout import TableLayout
from mfairfl.experiments.tables.tabulate import tabulate
from mfairfl.experiments.tables.writers import write_csv, write_latex, write_markdown, write_text
from mfairfl.fairness import Tally, frontier
from mfairfl.files import write_atomically

__all__ = ["Finished", "layout_of", "publish_curves", "publish_table"]

_SHORT = {"demographic_parity": "dp", "equalized_odds": "eo", "accuracy_parity": "ap"}
_WIDEST, _STEPS = 0.3, 61  # where a frontier line ends, and its points


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A study whose runs are all there: `records` of `work`, kept below `runs`."""

    name: str
    study: Study
    work: Sequence[Trial]
    records: Sequence[Mapping[str, Any]]
    runs: Path

    @property
    def protocols(self) -> tuple[str, ...]:
        """The budgets that were run, in the file's order."""
        there = {trial.protocol for trial in self.work}
        return tuple(p for p in self.study.protocols if p in there)


def layout_of(done: Finished) -> TableLayout:
    """Return how the study's table is laid out."""
    study = done.study
    attributes = {
        trial.data: tuple(s["name"] or s["column"] for s in record["task"]["sensitive"])
        for trial, record in zip(done.work, done.records, strict=True)
    }
    return TableLayout(
        name=done.name,
        title=study.title,
        strategies=study.labels,
        notions=study.notions,
        data=tuple(d.label for d in study.data),
        splits=study.splits,
        protocols=done.protocols,
        reference=study.tested_against,
        attributes=attributes,
        published=study.published,
        published_split=study.published_split,
    )


def publish_table(done: Finished, folder: Path) -> str:
    """Write rows, table and figures into `folder`; return the table for a terminal."""
    frame, layout = results(done.work, done.records), layout_of(done)
    folder.mkdir(parents=True, exist_ok=True)
    write_results(frame, folder, f"{done.name}-runs")
    long = tabulate(frame, layout)
    for suffix, content in (
        ("md", write_markdown(long, layout)),
        ("csv", write_csv(long)),
        ("tex", write_latex(long, layout)),
    ):
        write_atomically(folder / f"{done.name}.{suffix}", content.encode())
    for protocol in done.protocols:
        _draw(done, frame, layout, protocol, folder)
    return write_text(long, layout)


def _draw(
    done: Finished, frame: pd.DataFrame, layout: TableLayout, protocol: str, folder: Path
) -> None:
    """Draw for each split the plane of every notion, the clients, the multipliers."""
    for split in layout.splits:
        words = [done.name, *([split] if len(layout.splits) > 1 else []), protocol]
        for notion in layout.notions:
            draw_pareto(
                frame,
                folder / "-".join([*words, _SHORT.get(notion, notion)]),
                data=layout.data,
                split=split,
                protocol=protocol,
                notion=notion,
                frontiers=_frontiers(done, split, notion),
                reference=layout.reference,
            )
        here = [
            (trial, record)
            for trial, record in zip(done.work, done.records, strict=True)
            if (trial.protocol, trial.split) == (protocol, split)
            and trial.notion in {"", *layout.notions[:1]}
        ]
        draw_client_bars(_clients(here), folder / "-".join([*words, "clients"]))
        rounds = _multipliers(here, done.runs, layout.reference)
        if not rounds.empty:
            draw_multipliers(rounds, folder / "-".join([*words, "multipliers"]))


def _frontiers(done: Finished, split: str, notion: str) -> dict[str, tuple[Any, Any]]:
    """Return each data set's best accuracy at every violation, on the first seed's rows."""
    found: dict[str, tuple[Any, Any]] = {}
    for trial, record in zip(done.work, done.records, strict=True):
        if trial.split != split or trial.data in found:
            continue
        tally = Tally.from_json(record["tallies"]["test"])
        bounds = np.linspace(0, _WIDEST, _STEPS)
        wanted: list[dict[str, Any]] = [{notion: float(bound)} for bound in bounds]
        best = [frontier(tally, **bound).accuracy for bound in wanted]
        found[trial.data] = (bounds, np.array(best))
    return found


def _clients(runs: Sequence[tuple[Trial, Mapping[str, Any]]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "data": trial.data,
                "strategy": trial.strategy,
                "client": name,
                "seed": trial.seed,
                "accuracy": numbers["accuracy"],
            }
            for trial, record in runs
            for name, numbers in record["metrics"]["test"]["by_client"].items()
        ]
    )


def _multipliers(
    runs: Sequence[tuple[Trial, Mapping[str, Any]]], folder: Path, reference: str
) -> pd.DataFrame:
    """Return the reference's multipliers, one run a data set: that of the first seed."""
    first: dict[str, Trial] = {}
    for trial, _ in runs:
        if trial.strategy == reference and trial.notion:
            first.setdefault(trial.data, trial)
    found = [
        multiplier_history(path_of(trial, folder)).assign(run=data)
        for data, trial in first.items()
    ]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def publish_curves(done: Finished, folder: Path) -> str:
    """Write every round's test numbers, their curves, and how long each method takes."""
    parts = [
        read_history(path_of(trial, done.runs)).assign(
            data=trial.data,
            split=trial.split,
            protocol=trial.protocol,
            strategy=trial.strategy,
            notion=trial.notion,
            seed=trial.seed,
        )
        for trial in done.work
    ]
    history = pd.concat(parts, ignore_index=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_results(history, folder, f"{done.name}-rounds")
    for protocol in done.protocols:
        data = [d.label for d in done.study.data]
        path = folder / f"{done.name}-{protocol}"
        draw_convergence(history, path, data=data, protocol=protocol)
    epochs = epochs_to_best(history)
    text = f"# {done.study.title}\n\n{write_epochs_markdown(epochs)}"
    write_atomically(folder / f"{done.name}.md", text.encode())
    csv = epochs.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    write_atomically(folder / f"{done.name}.csv", csv.encode())
    return text
