"""rounds.csv and clients.csv: what every round measured, appended round by round.

Rows are on disk before the round's checkpoint is. A resumed run first drops rows of rounds that
the checkpoint does not know, so the files end the same as those of an undisturbed run.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from mfairfl.data import Split
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import RunDirectoryError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import NOTIONS, Notion, notion
from mfairfl.fairness.rates import overall_numbers
from mfairfl.fairness.tally import Tally
from mfairfl.files import naming, write_atomically
from mfairfl.text import csv_text, formula_unsafe

_OVERALL = ("accuracy", "balanced_accuracy")
_CLIENTS = ("client_accuracy_std", "client_accuracy_gap", "worst_client_accuracy")

# One whole row: a quoted field may hold line ends, and a torn last row has none.
_ROW = re.compile(rb'(?:[^"\n]++|"[^"]*+")*+\n')


def round_numbers(setup: Setup, record: RoundRecord) -> dict[str, float | None]:
    """Return the numbers of a round, named `<split>_<metric>`; `violation` is the run's goal's.

    None where a number is undefined, or where not all clients measured the split after this round
    (`RoundRecord.complete`).
    """
    if not record.numbers:  # progress displays and files ask for the same
        # Not whatever is registered: a resumed run must find the same columns.
        goal = [item.name for item in setup.summary.constraints.notions]
        notions = [notion(name) for name in dict.fromkeys([*NOTIONS, *goal])]
        names = _columns(setup, notions)
        for split in setup.splits:
            complete = split in record.complete
            numbers = _split_numbers(setup, notions, record.measured[split]) if complete else {}
            for name in names:
                record.numbers[f"{split}_{name}"] = _defined(numbers.get(name))
    return record.numbers


def _columns(setup: Setup, notions: Sequence[Notion]) -> list[str]:
    by_loss = {f"{item.name}_violation": item.statistic == "loss" for item in notions}
    losses = [name for name, of_losses in by_loss.items() if of_losses]
    # Without a sensitive attribute nothing is decided differently for groups.
    decided = [name for name in by_loss if name not in losses and setup.summary.attributes]
    return ["loss", "violation", *_OVERALL, *decided, *_CLIENTS, *losses]


def _split_numbers(
    setup: Setup, notions: Sequence[Notion], clients: Mapping[str, Statistics]
) -> dict[str, float]:
    attributes = setup.summary.attributes
    whole, tally = Statistics.pooled(clients), Tally.from_statistics(clients, attributes)
    numbers = {name: value for name, (value, _) in overall_numbers(tally, notions=notions).items()}
    numbers |= {
        f"{item.name}_violation": Constraints(Cells(attributes), item).violation(whole)
        for item in notions
        if item.statistic == "loss"
    }
    goal = setup.summary.constraints.violation(whole)
    return numbers | {"loss": whole.mean_loss, "violation": goal}


def _defined(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


class History:
    """Callback that writes the two files into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._rounds, self._clients = folder / "rounds.csv", folder / "clients.csv"

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Forget rows of rounds that are not committed."""
        del setup
        for path in (self._rounds, self._clients):
            _drop_after(path, state.round)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Append this round's rows."""
        del state
        row: dict[str, Any] = {"round": record.round, "lr": record.lr}
        row |= round_numbers(setup, record)
        row["log"] = json.dumps(record.log, sort_keys=True) if record.log else ""
        _append(self._rounds, {name: [value] for name, value in row.items()})
        failpoint("history.rounds", record.round)
        _append(self._clients, _client_columns(setup, record))
        failpoint("history.clients", record.round)


def _client_columns(setup: Setup, record: RoundRecord) -> dict[str, Sequence[Any]]:
    """Return the columns of clients.csv; the trainer of pooled rows, no client, has a row too.

    Where a client was not measured, its loss and accuracy are empty. Of thousands of clients most
    may rest: where not all take part, those that neither did nor were measured have no row.
    """
    enrolled = setup.enrolled.get("train", {})
    together = [name for name in setup.summary.counts if name not in enrolled]
    names = _involved(setup, record) or sorted({*enrolled, *together})
    columns: dict[str, Sequence[Any]] = {
        "round": [record.round] * len(names),
        "client": names,
        "coefficient": [record.coefficients.get(name) for name in names],
        "update_norm": [record.norms.get(name) for name in names],
        "set_aside": [record.set_aside.get(name, "") for name in names],
        "clipped": [record.clipped.get(name) for name in names],
    }
    for split in setup.splits:
        counts = setup.enrolled[split]
        whole = {name: np.sum(list(counts.values()), axis=0) for name in together}
        rows = np.array([whole[name] if name in whole else counts[name] for name in names])
        losses, accuracies = _client_numbers(record, split, together)
        columns[f"{split}_rows"] = rows.sum(axis=(1, 2)).astype(np.int64).tolist()
        columns[f"{split}_loss"] = [losses.get(name) for name in names]
        columns[f"{split}_accuracy"] = [accuracies.get(name) for name in names]
    return columns


def _client_numbers(
    record: RoundRecord, split: Split, together: Sequence[str]
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the losses and the accuracies of the clients that were measured, all in one go."""
    measured = dict(record.measured.get(split, {}))
    measured |= {name: Statistics.pooled(measured) for name in together if measured}
    if not measured:
        return {}, {}
    names = "counts", "positives", "losses"
    counts, positives, losses = Statistics.tables(measured.values(), names).values()
    rows = counts.sum(axis=(1, 2))
    right = (counts[..., 0] - positives[..., 0] + positives[..., 1]).sum(axis=1)
    with np.errstate(invalid="ignore"):  # without rows both are undefined
        means = losses.sum(axis=(1, 2)) / rows, right / rows
    loss, accuracy = (
        dict(zip(measured, map(_defined, mean.tolist()), strict=True)) for mean in means
    )
    return loss, accuracy


def _involved(setup: Setup, record: RoundRecord) -> list[str]:
    """Return the clients that took part or were measured; empty if all have a row."""
    if setup.participation == 1 or record.complete:
        return []
    measured = [name for clients in record.measured.values() for name in clients]
    return sorted({*record.coefficients, *record.set_aside, *measured})


def _append(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    table = csv_text(list(columns), zip(*columns.values(), strict=True))
    with naming(path), path.open("a", encoding="utf-8", newline="") as file:
        without_head = table.partition("\n")[2]
        file.write(table if file.tell() == 0 else without_head)
        file.flush()
        os.fsync(file.fileno())


def _drop_after(path: Path, round_: int) -> None:
    """Keep the rows of rounds up to `round_`; those are whole, a later one may be torn.

    A run that is resumed at round 0 measures it again, so nothing of it is kept.
    """
    if round_ == 0:
        path.unlink(missing_ok=True)
        return
    data = path.read_bytes() if path.exists() else b""
    header, *rows = _ROW.findall(data) or [b""]
    committed = [row for row in rows if _number(row) <= round_]
    if {_number(row) for row in committed} != set(range(round_ + 1)):
        raise RunDirectoryError(
            f"{path}: lacks rounds that the checkpoint knows (it is at round {round_}); delete "
            f"{path.parent} to start again"
        )
    write_atomically(path, b"".join([header, *committed]))


def _number(row: bytes) -> float:
    """Return a row's round; infinity for the rest of a torn row."""
    first = row.split(b",", 1)[0]
    return int(first) if first.isdigit() else float("inf")


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read rounds.csv or clients.csv as text: a client may be called NA or 1."""
    try:
        rows = pd.read_csv(path, dtype=str, na_filter=False).map(formula_unsafe)
    except (FileNotFoundError, pd.errors.EmptyDataError):
        rows = pd.DataFrame()
    if rows.empty:
        raise RunDirectoryError(f"{path}: missing or empty; restore it or train again")
    if not isinstance(rows.index, pd.RangeIndex):  # pandas took surplus fields for an index
        raise RunDirectoryError(f"{path}: rows are longer than the header; restore it")
    return cast("list[dict[str, str]]", rows.to_dict("records"))


def number_in(text: str) -> float:
    """Return the number in a field of these files; nan if it is empty."""
    return float(text) if text else math.nan
