"""Read a catalogue entry's official files into one frame of text columns."""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Mapping
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.data.cache import cache_folder, obtain
from mfairfl.data.entries import Entry, File
from mfairfl.data.fetch import check_sum
from mfairfl.errors import DataError

__all__ = ["bundled_bytes", "propublica_rows", "read_official"]


def read_official(
    entry: Entry,
    path: str | Path | None,
    data_home: str | Path | None,
    *,
    offline: bool,
    strict: bool,
) -> tuple[pd.DataFrame, str, str]:
    """Return the kept columns as text, the sha256 of the raw bytes and where they came from."""
    if path is not None:
        raw = _given(entry, Path(path))
        if strict:
            for file in entry.files:
                check_sum(raw[file.name], file, str(path))
        where = f"read from {path}" if strict else f"read from {path}, sha256 not compared"
        frame, members = _parse(entry, raw)
        return frame, _sha256(raw), f"{where}: {members}"
    if entry.bundled:
        raw = {file.name: bundled_bytes(file) for file in entry.files}
        for file in entry.files:
            check_sum(raw[file.name], file, "the installed mfairfl")
        frame, members = _parse(entry, raw)
        return frame, _sha256(raw), f"read from the bundled files: {members}"
    folder = cache_folder(data_home) / entry.name
    cached = obtain(entry, lambda raw: _csv(_parse(entry, raw)[0]), folder, offline=offline)
    frame = _frame(cached.csv, f"{folder}/table.csv", sep=",", header=0)
    return frame, entry.files[0].sha256, f"read from {cached.source}, reduced and cached"


def _given(entry: Entry, path: Path) -> dict[str, bytes]:
    """Read the user's own copies: a file, or a folder that holds the official names."""
    if path.is_file() and len(entry.files) == 1:
        return {entry.files[0].name: path.read_bytes()}
    names = [file.name for file in entry.files]
    absent = [name for name in names if not (path / name).is_file()]
    if absent:
        wanted = "a folder with" if len(names) > 1 else "the file, or a folder with,"
        raise DataError(f"{path}: no {absent[0]}; path= takes {wanted} {' and '.join(names)}")
    return {name: (path / name).read_bytes() for name in names}


def bundled_bytes(file: File) -> bytes:
    """Unpack a file that comes with the package; its sum is for the caller to compare."""
    packed = resources.files("mfairfl.data") / "bundled" / f"{file.name}.xz"
    try:
        return lzma.decompress(packed.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise DataError(f"{packed} is damaged ({error}): install mfairfl again") from error


def _sha256(raw: Mapping[str, bytes]) -> str:
    """Sum of the files one after the other, as `cat adult.data adult.test | sha256sum`."""
    total = hashlib.sha256()
    for content in raw.values():
        total.update(content)
    return total.hexdigest()


def _parse(entry: Entry, raw: Mapping[str, bytes]) -> tuple[pd.DataFrame, str]:
    """Read the kept columns as text, rows in the official order; say which file has which."""
    parts: list[pd.DataFrame] = []
    members: list[str] = []
    for file in entry.files:
        shape = {"header": 0} if entry.header else {"header": None, "names": list(entry.columns)}
        frame = _frame(
            raw[file.name], file.name, sep=entry.delimiter, skiprows=file.skip_lines, **shape
        )
        absent = [name for name in entry.columns if name not in frame]
        if absent:
            raise DataError(
                f"{file.name}: no column '{absent[0]}': is it the official file of {entry.name}?"
            )
        # Of a name that occurs twice, the first keeps it; the copies are equal.
        frame = frame[list(entry.columns)]
        label = frame[entry.label].str.removesuffix(file.label_suffix)
        first = sum(map(len, parts))
        members.append(f"rows {first} to {first + len(frame) - 1} are {file.name}")
        parts.append(frame.assign(**{entry.label: label}))
    return pd.concat(parts, ignore_index=True), ", ".join(members)


def _frame(raw: bytes, name: str, **layout: Any) -> pd.DataFrame:
    try:
        # Text only: the task decides what is a number, and "NA" may be a level.
        frame: pd.DataFrame = pd.read_csv(
            BytesIO(raw), dtype=str, keep_default_na=False, skipinitialspace=True, **layout
        )
    except ValueError as error:  # pandas' own parser and decoding errors derive from it
        raise DataError(
            f"{name} is not readable as a table: {str(error).splitlines()[0]}"
        ) from error
    return frame


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n").encode()


def propublica_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of ProPublica's analysis: screened within 30 days of the arrest."""
    days = pd.to_numeric(frame["days_b_screening_arrest"], errors="coerce")
    keep = (
        days.between(-30, 30)
        & (frame["is_recid"] != "-1")
        & (frame["c_charge_degree"] != "O")
        & (frame["score_text"] != "N/A")
    )
    return frame[keep].reset_index(drop=True)
