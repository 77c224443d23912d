"""The person records of the American Community Survey, fetched state by state and reduced.

The US Census Bureau publishes one zip archive per year and state. There are no official sums to
compare with: what was fetched is recorded beside the reduced table (address, sha256, rows), its
structure is checked before it is kept, and a kept table must still have its recorded sum.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Literal, NamedTuple

import pandas as pd

from mfairfl.data.census_rows import (
    STATES,
    IncomeTable,
    fitted_task,
    income_table,
    read_archive,
    read_people,
)
from mfairfl.data.download import Unavailable, download, locked, read_manifest
from mfairfl.data.sources import Check, LoadRequest, OfficialFile, OptionValue, RowsRead
from mfairfl.data.task import Task
from mfairfl.data.values import StrictModel
from mfairfl.errors import DataError, require_known
from mfairfl.files import write_atomically

_log = logging.getLogger(__name__)

_FIRST_YEAR = 2014  # earlier files have other columns
# Raised when the same archive would give another reduced table: old caches are then replaced.
_REDUCTION = 1


class CensusDataset(StrictModel):
    """A task over the Bureau's person records, with the options `year` and `states`.

    Parameters
    ----------
    rows
        How many rows the default year and states have, as published.
    address
        Where an archive is; holds ``{year}`` and ``{state}`` (two small letters).
    people
        Fewest and most records that an archive of a state can hold.
    largest
        Most bytes of an archive.
    """

    name: str
    title: str
    rows: int
    address: str
    people: tuple[int, int]
    largest: int
    task: Task
    options: dict[str, OptionValue]
    licence: str
    citation: str
    traps: tuple[str, ...]
    bundled: Literal[False] = False
    files: tuple[OfficialFile, ...] = ()

    def read(self, request: LoadRequest) -> RowsRead:
        """Return the task's rows: from the cache or the Bureau, or from the user's own files."""
        year, states = _year(request.options["year"]), _states(request.options["states"])
        if request.path is not None:
            chosen = states if "states" in request.given else None
            return _local(self, request.path, year, chosen)
        folder = request.folder / str(year)
        kept = [_kept_or_fetched(self, year, s, folder, request.offline) for s in states]
        frame = pd.concat([one.frame() for one in kept], ignore_index=True)
        notes = [
            f"American Community Survey {year}, one-year person records of the US Census Bureau, "
            f"fetched from its address: {len(states)} states ({', '.join(states)})"
        ]
        if {"year": year, "states": states} == self.options and len(frame) != self.rows:
            notes.append(f"{len(frame):,} rows, where {self.rows:,} were published")
        digest = _joined(
            year, {s: one.archive_sha256 for s, one in zip(states, kept, strict=True)}
        )
        table = IncomeTable(frame, sum(one.people for one in kept), reduced=False, merged={})
        return RowsRead(frame, digest, tuple(notes), fitted_task(self.task, table))

    def checks(self, folder: Path) -> list[Check]:
        """Compare every kept table with its recorded sum."""
        found = []
        for path in sorted(folder.glob("*/*.json")):
            if (kept := _kept(path.parent, path.stem)) is not None:
                same = kept.sha256 == kept.expected
                found.append(Check(str(kept.path), kept.expected, kept.sha256, same))
        return found or [Check(str(folder), "of what was fetched", None, False)]


def _year(value: OptionValue) -> int:
    if not isinstance(value, int) or value < _FIRST_YEAR:
        raise DataError(f"option year={value!r}: give a year from {_FIRST_YEAR}")
    return value


def _states(value: OptionValue) -> tuple[str, ...]:
    """Return the chosen states in the catalogue's order, so that equal sets are equal tables."""
    chosen = {str(state).upper() for state in value} if isinstance(value, tuple) else set()
    require_known("state", sorted(chosen), STATES, DataError, where="option states")
    return tuple(state for state in STATES if state in chosen)


class _Kept(NamedTuple):
    """A reduced table in the cache, and what its manifest says about it."""

    path: Path
    data: bytes
    sha256: str
    expected: str
    archive_sha256: str
    people: int

    def frame(self) -> pd.DataFrame:
        """Return the rows, if they are still those that were kept."""
        if self.sha256 != self.expected:
            raise DataError(
                f"{self.path} has sha256 {self.sha256}, expected {self.expected}: delete the file "
                "and load the data set again"
            )
        return pd.read_parquet(BytesIO(self.data))


def _kept(folder: Path, state: str) -> _Kept | None:
    """Return a state's table if there is one, made by this version's reduction."""
    path, about = folder / f"{state}.parquet", folder / f"{state}.json"
    remedy = f"delete it and {path.name}, and load the data set again"
    manifest = read_manifest(about, remedy)
    if manifest is None or manifest.get("reduction") != _REDUCTION:
        return None
    try:
        data = path.read_bytes()
        sums = str(manifest["table_sha256"]), str(manifest["archive_sha256"])
        people = int(manifest["people"])
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing beside {about.name}: {remedy}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{about} is damaged ({error!r}): {remedy}") from error
    return _Kept(path, data, hashlib.sha256(data).hexdigest(), *sums, people)


def _kept_or_fetched(
    dataset: CensusDataset, year: int, state: str, folder: Path, offline: bool
) -> _Kept:
    """Return a state's table from the cache; if it is not there, fetch, reduce and keep it."""
    kept = _kept(folder, state)
    if kept is None and offline:
        raise DataError(
            f"{dataset.name}: {state} {year} was never fetched, and offline forbids it: load it "
            "once online, or give path="
        )
    if kept is None:
        with locked(folder, f".{state}.lock"):
            kept = _kept(folder, state) or _fetch(dataset, year, state, folder)
    return kept


def _fetch(dataset: CensusDataset, year: int, state: str, folder: Path) -> _Kept:
    address = dataset.address.format(year=year, state=state.lower())
    _log.info("%s: fetching %s", dataset.name, address)
    with tempfile.TemporaryFile(dir=folder, prefix=".archive-") as archive:
        try:
            download(address, archive, limit=dataset.largest)
        except Unavailable as reason:
            raise _no_archive(dataset, reason) from reason
        size = archive.tell()
        if size > dataset.largest:
            raise DataError(f"{address} is larger than {dataset.largest:,} bytes: not an archive")
        digest = _sha256(archive)
        table = _reduced(dataset, archive, address, state)
    rows = BytesIO()
    table.frame.to_parquet(rows, index=False)
    data = rows.getvalue()
    manifest = {
        "source": address,
        "archive_sha256": digest,
        "archive_bytes": size,
        "people": table.people,
        "rows": len(table.frame),
        "table_sha256": hashlib.sha256(data).hexdigest(),
        "reduction": _REDUCTION,
    }
    # The manifest goes last: it alone makes the table count as kept.
    write_atomically(folder / f"{state}.parquet", data)
    write_atomically(folder / f"{state}.json", json.dumps(manifest, indent=1).encode())
    path, table_sha256 = folder / f"{state}.parquet", str(manifest["table_sha256"])
    return _Kept(path, data, table_sha256, table_sha256, digest, table.people)


def _no_archive(dataset: CensusDataset, reason: Unavailable) -> DataError:
    if reason.missing:
        return DataError(
            f"{dataset.name}: {reason}: the Bureau has no such file; check year and states (of "
            "2020 there is no regular one-year file)"
        )
    return DataError(
        f"{dataset.name}: cannot get {reason}; try again, or download the archives yourself and "
        "give their folder as path="
    )


def _reduced(dataset: CensusDataset, file: IO[bytes], address: str, state: str) -> IncomeTable:
    """Read an archive and check that it is what its address says."""
    table = income_table(read_archive(file, address), address)
    fewest, most = dataset.people
    if not fewest <= table.people <= most:
        raise DataError(
            f"{address} holds {table.people:,} records: expected {fewest:,} to {most:,}"
        )
    if table.reduced:
        raise DataError(f"{address}: PINCP holds no incomes: not the Bureau's person records")
    strangers = sorted(set(table.frame["STATE"].unique()) - {state})
    if strangers:
        raise DataError(f"{address} holds records of {', '.join(strangers)}: expected {state}")
    return table


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    return digest


def _joined(year: int, sums: dict[str, str]) -> str:
    """Return one sum for several archives."""
    lines = "".join(f"{year} {state} {sha256}\n" for state, sha256 in sums.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _local(
    dataset: CensusDataset, path: Path, year: int, states: Sequence[str] | None
) -> RowsRead:
    """Read the user's own file or folder; without `states` whatever states it holds."""
    if not path.exists():
        raise DataError(
            f"no such file: {path}: path= takes a Parquet, CSV or zip file, or a folder"
        )
    if path.is_dir():
        table, digest, what = _folder(path, year, states)
    else:
        table = income_table(read_people(path), path.name)
        with path.open("rb") as file:
            digest, what = _sha256(file), "a local file"
    frame = table.frame
    held = set(frame["STATE"].unique())
    if states is not None:
        require_known("state", states, held, DataError, where=path.name)
        frame = frame[frame["STATE"].isin(states)].reset_index(drop=True)
        table, held = table._replace(frame=frame), set(states)
    notes = [
        f"read from {path.name}, {what}, sha256 {digest}; not checked against the Census "
        f"Bureau's files{_edition(table)}",
        f"{len(frame):,} rows of {len(held)} states{_absent(dataset, held)}",
    ]
    if not table.reduced:
        notes.append(f"{len(frame):,} of {table.people:,} people are in the task")
    return RowsRead(frame, digest, tuple(notes), fitted_task(dataset.task, table))


def _absent(dataset: CensusDataset, held: set[str]) -> str:
    wanted = dataset.options["states"]
    absent = [s for s in wanted if s not in held] if isinstance(wanted, tuple) else []
    return f"; not in it: {', '.join(absent)}" if 0 < len(absent) <= len(held) else ""


def _edition(table: IncomeTable) -> str:
    held = (f"{c} holds {', '.join(map(str, codes))}" for c, codes in table.merged.items())
    listed = "; ".join(held)
    return f"; a modified edition, not in the Bureau's coding: {listed}" if listed else ""


def _folder(path: Path, year: int, states: Sequence[str] | None) -> tuple[IncomeTable, str, str]:
    """Read a folder of archives or unpacked files, named as the Bureau names them."""
    found = {state: _file_of(path, year, state) for state in states or STATES}
    files = {state: file for state, file in found.items() if file is not None}
    if not files or (states and len(files) < len(found)):
        state = next(state for state in found if state not in files)
        names = ", ".join(_names(year, state))
        raise DataError(f"{path} holds none of {names}: path= takes a folder of such files")
    tables, sums = [], {}
    for state, file in files.items():
        tables.append(income_table(read_people(file), file.name))
        with file.open("rb") as content:
            sums[state] = _sha256(content)
    joined = IncomeTable(
        frame=pd.concat([table.frame for table in tables], ignore_index=True),
        people=sum(table.people for table in tables),
        reduced=any(table.reduced for table in tables),
        merged={},
    )
    return joined, _joined(year, sums), f"a folder of {len(files)} files"


def _names(year: int, state: str) -> tuple[str, ...]:
    """Return the names of a state's archive, of what is in it, and of a table in the cache."""
    small = state.lower()
    unpacked = f"psam_p{STATES[state]:02d}.csv", f"ss{year % 100:02d}p{small}.csv"
    return f"csv_p{small}.zip", *unpacked, f"{state}.parquet"


def _file_of(path: Path, year: int, state: str) -> Path | None:
    candidates = (path / name for name in _names(year, state))
    return next((file for file in candidates if file.is_file()), None)
