"""Carry out `mfairfl predict`: score a file, write it whole, measure it where labels are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from mfairfl.cli.show import group_sizes, print_json, print_numbers, say
from mfairfl.data import (
    MISSING,
    Attribute,
    Task,
    canonical_text,
    read_frame,
    table_from_frame,
)
from mfairfl.errors import DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.cells import Cells
from mfairfl.files import write_atomically
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.predictor import load
from mfairfl.runs.record import measured_numbers

__all__ = ["score_file"]


def score_file(
    run: Path,
    csv: Path,
    out: Path,
    *,
    client: str | None,
    delimiter: str | None,
    encoding: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write scores and decisions of the rows in `csv` to `out`, and say what was measured."""
    _check_target(out, force=force)
    predictor = load(run)
    frame = read_frame(csv, delimiter=delimiter, encoding=encoding)
    score = predictor.predict_proba(frame, client=client, name=str(csv))[:, 1]
    favourable = predictor.predict(frame, client=client, name=str(csv))
    decision = np.array(predictor.classes, dtype=object)[favourable]
    columns = {"row": np.arange(len(frame)), "score": score, "decision": decision}
    text = pd.DataFrame(columns | {"favourable": favourable}).to_csv(
        index=False, lineterminator="\n"
    )
    write_atomically(out, text.encode())
    summary: dict[str, Any] = {
        "out": str(out),
        "rows": len(frame),
        "favourable": int(favourable.sum()),
        "kind": predictor.kind,
    }
    # A randomised model's numbers are expected ones: its score is the decision's probability.
    chance = score if predictor.randomised else favourable.astype(np.float64)
    found = _measure(frame, predictor.task, chance, run, csv)
    if as_json:
        print_json(summary | (found or {"metrics": None}))
        return
    typer.echo(
        f"{out}: {len(frame):,} rows, {summary['favourable']:,} decided "
        f"{predictor.task.label} = {predictor.task.favourable}"
    )
    if predictor.randomised:
        typer.echo("the model decides by chance: decisions were drawn at random with seed 0")
    if found is not None:
        _print_measured(found)


def _check_target(out: Path, *, force: bool) -> None:
    if out.is_dir():
        raise DataError(f"{out}: is a folder: give a file name with --out")
    if out.exists() and not force:
        raise DataError(f"{out}: exists: choose another --out, or add --force to replace it")
    if not out.parent.is_dir():
        raise DataError(f"{out}: no folder {out.parent}: make it first")


def _measure(
    frame: pd.DataFrame, task: Task, chance: NDArray[np.float64], run: Path, csv: Path
) -> dict[str, Any] | None:
    """Measure the rows that have a label; the scores stand whether or not that works."""
    if task.label not in frame:
        return None
    texts = np.array([canonical_text(value) for value in frame[task.label]], dtype=object)
    known = texts != MISSING
    if not known.any():
        return None
    try:
        tally = _tally(frame[known], task, texts[known], chance[known], str(csv))
    except DataError as error:
        say(f"warning: scores are written but not measured: {error}")
        return None
    train = Tally.from_json(RunDirectory(run).read_record()["tallies"]["train"])
    return {"measured_rows": tally.n, **measured_numbers(tally, majority=train)}


def _tally(
    frame: pd.DataFrame,
    task: Task,
    labels: NDArray[np.object_],
    chance: NDArray[np.float64],
    name: str,
) -> Tally:
    """Count rows by client, cell, label and decision; a group needs its column in the file."""
    strange = [text for text in labels if text not in (task.favourable, task.unfavourable)]
    if strange:
        raise DataError(
            f"{name}: column '{task.label}' holds '{strange[0]}', neither '{task.favourable}' nor "
            f"'{task.unfavourable}'"
        )
    y = (labels == task.favourable).astype(np.intp)
    cells, clients = np.zeros(len(y), dtype=np.intp), np.full(len(y), "all")
    attributes: tuple[Attribute, ...] = ()
    present = tuple(s for s in task.sensitive if s.column in frame or MISSING in (s.groups or ()))
    if present:
        client = task.client if task.client in frame else None
        same = {"sensitive": present, "client": client, "missing": "level"}
        table = table_from_frame(frame, task.model_copy(update=same), name=name)
        cells, attributes = table.cells, table.attributes
        clients = clients if table.clients is None else table.clients
    names, codes = np.unique(clients, return_inverse=True)
    shape = (len(names), Cells(attributes).size, 2)
    place = np.ravel_multi_index((codes, cells, y), shape)
    sums = [np.bincount(place, weights, math.prod(shape)) for weights in (1 - chance, chance)]
    counts = np.stack(sums, axis=-1).reshape(*shape, 2)
    whole = np.isin(chance, (0.0, 1.0)).all()
    return Tally(counts.astype(np.int64) if whole else counts, tuple(map(str, names)), attributes)


def _print_measured(found: dict[str, Any]) -> None:
    metrics = found["metrics"]
    if len(metrics["by_client"]) == 1:  # nothing to compare
        metrics = {name: value for name, value in metrics.items() if "client_acc" not in name}
    groups = group_sizes(metrics)
    typer.echo(
        f"measured on {found['measured_rows']:,} labelled rows" + f" ({groups})" * bool(groups)
    )
    print_numbers({**found, "metrics": metrics})
