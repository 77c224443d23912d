"""What an honest enrolment isolates: told sets of rows that differ by a few.

A silo counts its train rows by level of each category, and by value of a number where enough rows
hold it. Each of these counts is of ten rows or more. But where one set contains another, as
customers without an earlier campaign (`pdays` = -1) and those without an outcome of it
(`poutcome` = unknown), the difference of their counts is the number of rows that are in one alone.
Nobody has to ask for anything: the counts are those that every run begins with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import mfairfl
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import Table, Task
from mfairfl.models import MLP
from mfairfl.silo.policy import Policy
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import Packet


class ToldSet(NamedTuple):
    """Train rows with one value in a column, as a silo counts them."""

    column: str
    value: str | float
    rows: int


class Isolated(NamedTuple):
    """Two told sets of a silo, one inside the other but for `rows` train rows fewer."""

    client: str
    inner: str
    outer: str
    rows: int


class _Eavesdropper:
    """Carries the messages of an enrolment, and keeps what each silo told."""

    def __init__(self, silos: Mapping[str, Responder]) -> None:
        self._silos = silos
        self.told: dict[str, set[ToldSet]] = {name: set() for name in silos}

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet]:
        answers = {name: self._silos[name].handle("run-1", ask) for name, ask in asks.items()}
        for name, answer in answers.items():
            asked, request = asks[name].request
            if asked == "sums":
                levels = answer.request.fields["train"]["categorical"]
                self.told[name] |= {
                    ToldSet(column, level, rows)
                    for column, counts in levels.items()
                    for level, rows in counts.items()
                }
            elif asked == "cuts":
                self.told[name] |= set(_values(request["columns"], answer))
        return answers


def _values(columns: list[str], answer: Packet) -> Iterator[ToldSet]:
    """Yield the sets of rows that hold one number that was told."""
    for i, column in enumerate(columns):
        told = zip(answer.arrays[f"counts/{i}"], answer.arrays[f"values/{i}"], strict=True)
        yield from (ToldSet(column, float(v), int(n)) for n, v in told if not np.isnan(v))


def isolated_by_enrolment(name: str, folder: Path, policy: Policy) -> list[Isolated]:
    """Enrol the clients of a bundled data set; return the differences below the floor.

    Whether one set contains the other is looked up in the client's file: a coordinator knows it
    from what the columns mean.
    """
    table = mfairfl.load_dataset(name, offline=True)
    files = dict(_client_files(table))
    silos = {}
    for client, rows in files.items():
        home = folder / client
        home.mkdir()
        rows.to_csv(home / "silo.csv", index=False)
        settings = SiloSettings(name=client, csv=home / "silo.csv", state=home / "state")
        silos[client] = Responder(settings, policy)
    ear = _Eavesdropper(silos)
    terms = EnrolmentTerms(task=_open(table.task), seed=0, model=ModelTerms(hidden=MLP(1).hidden))
    enrol(ear, [*silos], terms)
    return [
        found
        for client, told in ear.told.items()
        for found in _nested(client, list(told), files[client])
        if found.rows < policy.disclosure.min_rows
    ]


def _client_files(table: Table) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each client's rows, as the default division has them."""
    frame = table.X.assign(
        **{
            table.task.label: np.where(
                table.y == 1, table.task.favourable, table.task.unfavourable
            )
        }
    )
    for client in mfairfl.partition(table, "high", seed=0).clients:
        rows = np.sort(np.concatenate([client.train.rows, client.test.rows]))
        yield client.name, frame.iloc[rows].reset_index(drop=True)


def _open(task: Task) -> Task:
    """Return the task as people write it."""
    given = task.model_dump(include={"label", "favourable", "sensitive"})
    return Task.model_validate(given)


def _nested(client: str, told: list[ToldSet], file: pd.DataFrame) -> Iterator[Isolated]:
    """Yield pairs of told sets of different columns, one inside the other, that differ."""
    sets = [(one, file[one.column].to_numpy() == one.value) for one in sorted(told, key=str)]
    # A number may stand for neighbours that are counted with it: no set that can be looked up.
    kept = [(one, rows) for one, rows in sets if rows.sum() >= one.rows]
    told, held = [one for one, _ in kept], np.column_stack([rows for _, rows in kept])
    both = held.T.astype(np.float32) @ held.astype(np.float32)
    for i, j in np.argwhere(both == np.diag(both)[:, None]).tolist():
        inner, outer = told[i], told[j]
        if inner.column != outer.column and outer.rows > inner.rows:
            names = (f"{one.column} = {one.value}" for one in (inner, outer))
            yield Isolated(client, *names, outer.rows - inner.rows)
