"""The person records of the American Community Survey, as the table of folktables' ACSIncome task.

The US Census Bureau publishes one zip archive per year and state. There are no official sums to
compare with: what was fetched is recorded beside the reduced table (address, sha256, rows), its
structure is checked before it is kept, and a kept table must still have its recorded sum.

The task (Ding et al. 2021): people older than 16 with a weight, an income above 100 dollars and
working hours; the label is an income above 50,000 dollars. A table that was reduced by somebody
else is taken as well, if its values can be the Bureau's.
"""

from __future__ import annotations

import hashlib
import logging
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mfairfl.data import sources
from mfairfl.data.columns import require_columns
from mfairfl.data.task import Bin, Sensitive, Task
from mfairfl.data.values import canonical_text
from mfairfl.errors import DataError, require_known

_NUMBERS = """
AL 1, AK 2, AZ 4, AR 5, CA 6, CO 8, CT 9, DE 10, DC 11, FL 12, GA 13, HI 15, ID 16, IL 17,
IN 18, IA 19, KS 20, KY 21, LA 22, ME 23, MD 24, MA 25, MI 26, MN 27, MS 28, MO 29, MT 30,
NE 31, NV 32, NH 33, NJ 34, NM 35, NY 36, NC 37, ND 38, OH 39, OK 40, OR 41, PA 42, RI 44,
SC 45, SD 46, TN 47, TX 48, UT 49, VT 50, VA 51, WA 53, WV 54, WI 55, WY 56, PR 72
"""
STATES = {state: int(n) for state, n in re.findall(r"(\w\w) (\d+)", _NUMBERS)}
"""Postal code → number in the Bureau's files, for every state, DC and Puerto Rico."""

INCOMES = ("<=50K", ">50K")

# Smallest and largest value of the people who are kept, over all years.
_RANGES = {
    "AGEP": (17, 99),
    "COW": (1, 9),
    "SCHL": (1, 24),
    "MAR": (1, 5),
    "OCCP": (0, 9999),
    "POBP": (1, 999),
    "RELP": (0, 17),
    "RELSHIPP": (20, 38),
    "WKHP": (1, 99),
    "SEX": (1, 2),
    "RAC1P": (1, 9),
}
_RELATIONSHIP = ("RELP", "RELSHIPP")  # the second from 2019 on
_STATE = ("STATE", "ST")  # the first from 2023 on, and in reduced tables
_WANTED = {*_RANGES, *_STATE, "PINCP", "PWGTP"}
_MEMBER = re.compile(r"(psam_p\w+|ss\d\dp\w+)\.csv", re.IGNORECASE)
_LARGEST_MEMBER = 4 * 2**30
# A maximum below means merged values: in any real sample each of the Bureau's codes occurs.
_MERGED_BELOW = {"MAR": 5, "RAC1P": 6}


class IncomeTable(NamedTuple):
    """The task's rows: one STATE (postal code), the features as codes, PINCP as <=50K or >50K.

    `people` is the number of rows before the filter. `merged` are the values of columns that are
    not in the Bureau's own coding.
    """

    frame: pd.DataFrame
    people: int
    reduced: bool
    merged: dict[str, list[int]]


def read_people(path: Path) -> pd.DataFrame:
    """Read the needed columns of a Parquet, CSV (also .gz or .xz) or zip file."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".zip":
            return read_archive(path, path.name)
        if suffix in (".parquet", ".pq"):
            names = [name for name in pq.read_schema(path).names if name.upper() in _WANTED]
            return pd.read_parquet(path, columns=names).rename(columns=str.upper)
        return _read_people(path, path.name)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path.name} is not a readable Parquet file ({reason})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: give a readable file") from error


def read_archive(file: Path | IO[bytes], name: str) -> pd.DataFrame:
    """Read the needed columns of the person records in a zip archive of the Bureau."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if _MEMBER.fullmatch(m.filename)]
            if not members:
                names = ", ".join(archive.namelist()[:3]) or "nothing"
                raise DataError(f"{name} holds {names}: expected person records, psam_p….csv")
            frames = []
            for member in members:
                where = f"{name}: {member.filename}"
                if member.file_size > _LARGEST_MEMBER:
                    raise DataError(f"{where} has {member.file_size:,} bytes")
                with archive.open(member) as rows:
                    frames.append(_read_people(rows, where))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{name} is not a whole zip archive ({error}): fetch it again") from error
    return pd.concat(frames, ignore_index=True)


def _read_people(source: Any, name: str) -> pd.DataFrame:
    options = {"usecols": lambda column: column.upper() in _WANTED, "low_memory": False}
    frame = sources.read_csv(source, name, **options)
    return frame.rename(columns=str.upper)


def income_table(frame: pd.DataFrame, name: str) -> IncomeTable:
    """Keep the task's rows and columns of person records; check a table that has them already.

    Examples
    --------
    >>> person = {"ST": 56, "AGEP": 40, "COW": 1, "SCHL": 21, "MAR": 1, "OCCP": 10, "POBP": 56,
    ...           "RELP": 0, "WKHP": 40, "SEX": 2, "RAC1P": 1, "PINCP": 50_001, "PWGTP": 7}
    >>> child = person | {"AGEP": 16, "SEX": 1}
    >>> table = income_table(pd.DataFrame([person, child]), "example")
    >>> table.people, table.frame[["STATE", "SEX", "PINCP"]].values.tolist()
    (2, [['WY', 2, '>50K']])
    """
    require_columns(frame.columns, ["PINCP"], name)
    people = len(frame)
    incomes = frame["PINCP"]
    if reduced := incomes.dtype.kind not in "iuf":
        labels = _labels(incomes, name)
    else:
        filtered = ["AGEP", "WKHP", "PWGTP"]
        require_columns(frame.columns, filtered, name)
        age, hours, weight = (_numbers(frame[c], name) for c in filtered)
        in_task = (age > 16) & (incomes > 100) & (hours > 0) & (weight >= 1)
        frame = frame[in_task].reset_index(drop=True)
        labels = np.array(INCOMES, dtype=object)[(frame["PINCP"] > 50_000).to_numpy().astype(int)]
    if frame.empty:
        raise DataError(f"{name}: none of {people:,} rows passes the filter of ACSIncome")
    relationship = next((c for c in _RELATIONSHIP if c in frame), _RELATIONSHIP[0])
    features = [c for c in _RANGES if c not in _RELATIONSHIP or c == relationship]
    state = next((c for c in _STATE if c in frame), _STATE[0])
    require_columns(frame.columns, [state, *features], name)
    columns = {"STATE": _postal(frame[state], name)}
    columns |= {c: _codes(frame[c], name) for c in features}
    columns["PINCP"] = pd.Series(labels, dtype="str")
    merged = {
        c: sorted(columns[c].dropna().unique().tolist())
        for c, below in _MERGED_BELOW.items()
        if reduced and columns[c].max() < below
    }
    return IncomeTable(pd.DataFrame(columns), people, reduced, merged)


def _labels(incomes: pd.Series[Any], name: str) -> pd.Series[Any]:
    if incomes.dtype.kind == "b":
        return incomes.map({False: INCOMES[0], True: INCOMES[1]})
    if strange := [value for value in incomes.unique() if value not in INCOMES]:
        raise DataError(
            f"{name}: PINCP holds {strange[0]!r}: expected incomes in dollars, or "
            f"'{INCOMES[0]}' and '{INCOMES[1]}'"
        )
    return incomes


def _numbers(column: pd.Series[Any], name: str) -> pd.Series[Any]:
    if column.dtype.kind not in "iuf":
        text = next(v for v in column.dropna() if not str(v).strip().isdigit())
        raise DataError(f"{name}: column {column.name} holds {text!r}: expected whole numbers")
    return column


def _codes(column: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return whole numbers in the smallest type, after a look at their range."""
    numbers = _numbers(column, name)
    low, high = _RANGES[str(column.name)]
    missing = numbers.isna()
    strange = ~(numbers.between(low, high) & (numbers % 1 == 0)) & ~missing
    if strange.any():
        value = canonical_text(numbers[strange].iloc[0])
        raise DataError(
            f"{name}: column {column.name} holds {value} in {strange.sum():,} rows: expected "
            f"codes from {low} to {high}"
        )
    return numbers.astype("Int16" if missing.any() else "int16")


def _postal(column: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return postal codes, from such codes or from the Bureau's numbers."""
    by_number = {str(number): state for state, number in STATES.items()}
    places, values = pd.factorize(column, use_na_sentinel=False)
    texts = [canonical_text(value).upper() for value in values]
    states = [by_number.get(text.lstrip("0"), text) for text in texts]
    require_known("state", states, STATES, DataError, where=f"{name}, column {column.name}")
    return pd.Series(np.array(states, dtype=object)[places], dtype="str")


def fitted_task(task: Task, frame: pd.DataFrame, *, coded: bool = False) -> Task:
    """Name the relationship's column as the rows do, and the groups that they can have.

    Where race is not in the Bureau's own coding (`coded`), its groups keep the codes as names.
    """
    races = {canonical_text(code) for code in frame["RAC1P"].dropna().unique()}
    relationship = next(c for c in _RELATIONSHIP if c in frame)
    features = (relationship if c in _RELATIONSHIP else c for c in task.categorical or ())
    groups = (_groups(s, races, coded=coded) if s.column == "RAC1P" else s for s in task.sensitive)
    return task.model_copy(update={"categorical": tuple(features), "sensitive": tuple(groups)})


def _groups(sensitive: Sensitive, codes: set[str], *, coded: bool) -> Sensitive:
    """Leave out groups that no row is in, and names if the file has codes of its own."""
    values, rest = sensitive.bin_of_value, sensitive.rest
    bins, groups = tuple[Bin, ...](), tuple(sorted(codes))
    if not coded:
        names = {name for value, name in values.items() if value in codes} | {rest}
        bins = tuple(b for b in sensitive.bins if b.name in names)
        groups = tuple(group for group in sensitive.groups or () if group in names)
    elif rest is not None:
        bins = tuple(Bin(name=value, values=(value,)) for value in values)
        groups = (rest, *values)
    return sensitive.model_copy(update={"bins": bins, "groups": groups})


_log = logging.getLogger(__name__)

_FIRST_YEAR = 2014  # earlier files have other columns
# Raised when the same archive would give another reduced table: old caches are then replaced.
_REDUCTION = 1


class CensusDataset(sources.BuiltIn):
    """A task over the Bureau's person records, with the options `year` and `states`.

    `rows` is the published number of the default year and states.

    Parameters
    ----------
    address
        Where an archive is; holds ``{year}`` and ``{state}`` (two small letters).
    people
        Fewest and most records that an archive of a state can hold.
    largest
        Most bytes of an archive.
    """

    address: str
    people: tuple[int, int]
    largest: int

    def read(
        self,
        path: Path | None,
        *,
        folder: Path,
        offline: bool,
        options: Mapping[str, sources.OptionValue],
        chosen: Collection[str],
        **_: Any,
    ) -> sources.RowsRead:
        """Return the task's rows: from the cache or the Bureau, or from the user's own files.

        Parameters
        ----------
        path
            A file or folder of the user's.
        folder
            The data set's folder of the cache.
        offline
            Whether connections are forbidden.
        options
            Year and states, defaults filled in.
        chosen
            The options that the user set: of a file all states are taken unless some are chosen.
        """
        year, states = options["year"], _states(options["states"])
        if not isinstance(year, int) or year < _FIRST_YEAR:
            raise DataError(f"option year={year!r}: give a year from {_FIRST_YEAR}")
        if path is not None:
            return self._local(path, year, states if "states" in chosen else None)
        frames, sums = [], {}
        for state in states:
            entry = _cache(folder / str(year), state)
            if offline and entry.read() is None:
                raise DataError(
                    f"{self.name}: {state} {year} was never fetched, and offline forbids it: load "
                    "it once online, or give path="
                )
            table = entry.read_or_fetch(partial(self._fetch, year, state))
            frames.append(pd.read_parquet(BytesIO(table.data)))
            sums[state] = str(table.manifest["archive_sha256"])
        frame = pd.concat(frames, ignore_index=True)
        notes = [
            f"American Community Survey {year}, one-year person records of the US Census Bureau, "
            f"fetched from its address: {len(states)} states ({', '.join(states)})"
        ]
        if {"year": year, "states": states} == self.options and len(frame) != self.rows:
            notes.append(f"{len(frame):,} rows, where {self.rows:,} were published")
        task = fitted_task(self.task, frame)
        return sources.RowsRead(frame, _joined_sha256(year, sums), tuple(notes), task)

    def checks(self, folder: Path) -> list[sources.Check]:
        """Compare every cached table with its recorded sum."""
        entries = (_cache(path.parent, path.stem) for path in sorted(folder.glob("*/*.json")))
        tables = [table for entry in entries if (table := entry.read()) is not None]
        nothing = sources.Check(str(folder), "of what was fetched", None, False)
        return [table.check for table in tables] or [nothing]

    def _fetch(self, year: int, state: str) -> tuple[bytes, dict[str, Any]]:
        """Fetch a state's archive; return the reduced table as Parquet, and facts about it."""
        address = self.address.format(year=year, state=state.lower())
        _log.info("%s: fetching %s", self.name, address)
        try:
            archive = sources.download(address, limit=self.largest)
        except sources.Unavailable as reason:
            problem = (
                f"cannot get {reason}; try again, or download the archives yourself and give "
            )
            problem += "their folder as path="
            if reason.missing:
                problem = f"{reason}: the Bureau has no such file; check year and states (of 2020 "
                problem += "there is no regular one-year file)"
            raise DataError(f"{self.name}: {problem}") from reason
        table = self._reduced(archive, address, state)
        rows = BytesIO()
        table.frame.to_parquet(rows, index=False)
        return rows.getvalue(), {
            "source": address,
            "archive_sha256": hashlib.sha256(archive).hexdigest(),
            "archive_bytes": len(archive),
            "people": table.people,
            "rows": len(table.frame),
        }

    def _reduced(self, archive: bytes, address: str, state: str) -> IncomeTable:
        """Read an archive and check that it is what its address says."""
        table = income_table(read_archive(BytesIO(archive), address), address)
        fewest, most = self.people
        if not fewest <= table.people <= most:
            raise DataError(
                f"{address} holds {table.people:,} records: expected {fewest:,} to {most:,}"
            )
        if table.reduced:
            raise DataError(f"{address}: PINCP holds no incomes: not the Bureau's person records")
        if strangers := sorted(set(table.frame["STATE"].unique()) - {state}):
            raise DataError(f"{address} holds records of {', '.join(strangers)}: expected {state}")
        return table

    def _local(self, path: Path, year: int, states: Sequence[str] | None) -> sources.RowsRead:
        """Read the user's own file or folder; without `states`, all states it holds."""
        if not path.exists():
            raise DataError(f"no such file: {path}: give a Parquet, CSV or zip file, or a folder")
        if path.is_dir():
            table, digest, kind = _folder(path, year, states)
        else:
            table, digest = income_table(read_people(path), path.name), _sha256(path)
            kind = "a local file"
        frame, present = table.frame, set(table.frame["STATE"].unique())
        if states is not None:
            require_known("state", states, present, DataError, where=path.name)
            frame = frame[frame["STATE"].isin(states)].reset_index(drop=True)
            present = set(states)
        source = f"read from {path.name}, {kind}, sha256 {digest}; not checked against the Census "
        source += "Bureau's files"
        if table.merged:
            merged = [f"{c} holds {', '.join(map(str, of))}" for c, of in table.merged.items()]
            source += f"; a modified edition, not in the Bureau's coding: {'; '.join(merged)}"
        rows = f"{len(frame):,} rows of {len(present)} states"
        usual = self.options["states"]
        absent = [s for s in usual if s not in present] if isinstance(usual, tuple) else []
        if 0 < len(absent) <= len(present):
            rows += f"; not in it: {', '.join(absent)}"
        notes = [source, rows]
        if not table.reduced:
            notes.append(f"{len(frame):,} of {table.people:,} people are in the task")
        task = fitted_task(self.task, frame, coded="RAC1P" in table.merged)
        return sources.RowsRead(frame, digest, tuple(notes), task)


def _cache(folder: Path, state: str) -> sources.CacheEntry:
    table, manifest = folder / f"{state}.parquet", folder / f"{state}.json"
    facts = ("source", "table_sha256", "archive_sha256")
    return sources.CacheEntry(table, manifest, {"reduction": _REDUCTION}, facts)


def _states(value: sources.OptionValue) -> tuple[str, ...]:
    """Return the chosen states in the catalogue's order, so that equal sets are equal tables."""
    chosen = {str(state).upper() for state in value} if isinstance(value, tuple) else set()
    require_known("state", sorted(chosen), STATES, DataError, where="option states")
    return tuple(state for state in STATES if state in chosen)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _joined_sha256(year: int, sums: Mapping[str, str]) -> str:
    """Return one sum for several archives."""
    lines = "".join(f"{year} {state} {sha256}\n" for state, sha256 in sums.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _folder(path: Path, year: int, states: Sequence[str] | None) -> tuple[IncomeTable, str, str]:
    """Read a folder of archives or unpacked files, named as the Bureau names them."""
    files = {}
    for state in states or STATES:
        names = _names(year, state)
        if present := [path / name for name in names if (path / name).is_file()]:
            files[state] = present[0]
        elif states:
            raise _no_records(path, names)
    if not files:
        raise _no_records(path, _names(year, next(iter(STATES))))
    tables = [income_table(read_people(file), file.name) for file in files.values()]
    sums = {state: _sha256(file) for state, file in files.items()}
    frame = pd.concat([table.frame for table in tables], ignore_index=True)
    people, reduced = sum(t.people for t in tables), any(t.reduced for t in tables)
    joined = IncomeTable(frame, people, reduced, merged={})
    return joined, _joined_sha256(year, sums), f"a folder of {len(files)} files"


def _no_records(path: Path, names: Sequence[str]) -> DataError:
    wanted = ", ".join(names)
    return DataError(f"{path} holds none of {wanted}: path= takes a folder of such files")


def _names(year: int, state: str) -> tuple[str, ...]:
    """Return the names of a state's archive, of what is in it, and of a table in the cache."""
    small = state.lower()
    unpacked = f"psam_p{STATES[state]:02d}.csv", f"ss{year % 100:02d}p{small}.csv"
    return f"csv_p{small}.zip", *unpacked, f"{state}.parquet"
