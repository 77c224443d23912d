"""From person records of the US Census Bureau to the table of folktables' ACSIncome task.

The task (Ding et al. 2021): people older than 16 with a weight, an income above 100 dollars and
working hours; the label is an income above 50,000 dollars. A table that was reduced by somebody
else is taken as well, if its values can be the Bureau's.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

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
    try:
        if path.suffix.lower() == ".zip":
            with path.open("rb") as file:
                return read_archive(file, path.name)
        if path.suffix.lower() in (".parquet", ".pq"):
            names = [name for name in pq.read_schema(path).names if name.upper() in _WANTED]
            return _upper(pd.read_parquet(path, columns=names))
        return _read_csv(path, path.name)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path.name} is not a readable Parquet file ({reason})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: give a readable file") from error


def read_archive(file: IO[bytes], name: str) -> pd.DataFrame:
    """Read the needed columns of the person records in a zip archive of the Bureau."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if _MEMBER.fullmatch(m.filename)]
            if not members:
                held = ", ".join(archive.namelist()[:3]) or "nothing"
                raise DataError(f"{name} holds {held}: expected person records, psam_p….csv")
            for member in members:
                if member.file_size > _LARGEST_MEMBER:
                    raise DataError(f"{name}: {member.filename} has {member.file_size:,} bytes")
            frames = []
            for member in members:
                with archive.open(member) as rows:
                    frames.append(_read_csv(rows, f"{name}: {member.filename}"))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{name} is not a whole zip archive ({error}): fetch it again") from error
    return pd.concat(frames, ignore_index=True)


def _read_csv(source: Any, name: str) -> pd.DataFrame:
    try:
        frame = pd.read_csv(
            source, usecols=lambda column: column.upper() in _WANTED, low_memory=False
        )
    except ValueError as error:  # pandas' own parser and decoding errors derive from it
        reason = str(error).splitlines()[0]
        raise DataError(f"{name} is not readable as a table: {reason}") from error
    return _upper(frame)


def _upper(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns=str.upper)


def income_table(frame: pd.DataFrame, name: str) -> IncomeTable:
    """Keep the task's rows and columns of person records; check a table that has them already.

    Examples
    --------
    >>> person = {"ST": 56, "AGEP": 40, "COW": 1, "SCHL": 21, "MAR": 1, "OCCP": 10, "POBP": 56,
    ...           "RELP": 0, "WKHP": 40, "SEX": 2, "RAC1P": 1, "PINCP": 50_001, "PWGTP": 7}
    >>> child = person | {"AGEP": 16, "SEX": 1}
    >>> found = income_table(pd.DataFrame([person, child]), "example")
    >>> found.people, found.frame[["STATE", "SEX", "PINCP"]].values.tolist()
    (2, [['WY', 2, '>50K']])
    """
    _require(frame, ["PINCP"], name)
    people = len(frame)
    incomes = frame["PINCP"]
    reduced = incomes.dtype.kind not in "iuf"
    if reduced:
        labels = _labels(incomes, name)
    else:
        _require(frame, ["AGEP", "WKHP", "PWGTP"], name)
        numbers = {c: _numbers(frame[c], name) for c in ("AGEP", "WKHP", "PWGTP")}
        kept = (
            (numbers["AGEP"] > 16)
            & (incomes > 100)
            & (numbers["WKHP"] > 0)
            & (numbers["PWGTP"] >= 1)
        )
        frame = frame[kept].reset_index(drop=True)
        labels = np.array(INCOMES, dtype=object)[(frame["PINCP"] > 50_000).to_numpy().astype(int)]
    if frame.empty:
        raise DataError(f"{name}: none of {people:,} rows passes the filter of ACSIncome")
    relationship = next((c for c in _RELATIONSHIP if c in frame), _RELATIONSHIP[0])
    features = [c for c in _RANGES if c not in _RELATIONSHIP or c == relationship]
    state = next((c for c in _STATE if c in frame), _STATE[0])
    _require(frame, [state, *features], name)
    columns = {"STATE": _postal(frame[state], name)}
    columns |= {c: _codes(frame[c], name) for c in features}
    columns["PINCP"] = pd.Series(labels, dtype="str")
    found = {c: columns[c] for c, below in _MERGED_BELOW.items() if columns[c].max() < below}
    merged = {c: sorted(values.dropna().unique().tolist()) for c, values in found.items()}
    return IncomeTable(pd.DataFrame(columns), people, reduced, merged if reduced else {})


def _require(frame: pd.DataFrame, needed: list[str], name: str) -> None:
    require_known("column", needed, list(frame.columns), DataError, where=name)


def _labels(incomes: pd.Series[Any], name: str) -> pd.Series[Any]:
    if incomes.dtype.kind == "b":
        return incomes.map({False: INCOMES[0], True: INCOMES[1]})
    strange = [value for value in incomes.unique() if value not in INCOMES]
    if strange:
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


def fitted_task(task: Task, table: IncomeTable) -> Task:
    """Name the relationship's column as the rows do, and the groups that they can have.

    Where race is not in the Bureau's own coding, its groups keep the codes as names.
    """
    held = {canonical_text(code) for code in table.frame["RAC1P"].dropna().unique()}
    coded = "RAC1P" in table.merged
    relationship = next(c for c in _RELATIONSHIP if c in table.frame)
    features = (relationship if c in _RELATIONSHIP else c for c in task.categorical or ())
    groups = (_groups(s, held, coded=coded) if s.column == "RAC1P" else s for s in task.sensitive)
    return task.model_copy(update={"categorical": tuple(features), "sensitive": tuple(groups)})


def _groups(sensitive: Sensitive, held: set[str], *, coded: bool) -> Sensitive:
    """Leave out groups that no row is in, and names that a file's own codes do not bear."""
    values, rest = sensitive.bin_of_value, sensitive.rest
    if coded and rest is None:
        return sensitive.model_copy(update={"bins": (), "groups": tuple(sorted(held))})
    if coded:
        bins = tuple(Bin(name=value, values=(value,)) for value in values)
        return sensitive.model_copy(update={"bins": bins, "groups": (rest, *values)})
    names = {name for value, name in values.items() if value in held} | {rest}
    kept = {
        "bins": tuple(b for b in sensitive.bins if b.name in names),
        "groups": tuple(group for group in sensitive.groups or () if group in names),
    }
    return sensitive.model_copy(update=kept)
