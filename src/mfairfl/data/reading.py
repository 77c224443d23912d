"""From a file to a frame: CSV with any delimiter and encoding, gzip, xz, Parquet.

CSV cells stay text: what is a number is the `Task`'s decision, so that "007" survives.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from mfairfl.data.decoding import decode, read_bytes
from mfairfl.errors import DataError

__all__ = ["FileContent", "read_file", "read_frame"]

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_SAMPLE = 1_000_000  # characters in which the delimiter must show
_CHUNK = 65_536  # rows; bounds the memory that loose text objects take


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file as read: its frame, the sha256 of its (decompressed) bytes, and what was guessed."""

    frame: pd.DataFrame
    sha256: str
    notes: tuple[str, ...]


def read_frame(
    source: Any, *, delimiter: str | None = None, encoding: str | None = None
) -> pd.DataFrame:
    """Read a CSV or Parquet file, or take a pandas, polars or pyarrow frame, as a pandas frame.

    Parameters
    ----------
    source
        Path of a CSV file (also .gz or .xz) or of a Parquet file, or a frame.
    delimiter
        The delimiter of a CSV file; found from its first lines unless given.
    encoding
        The encoding of a CSV file. Unless given: a byte order mark decides, then UTF-8, then a
        guess, which is logged as a warning.

    Returns
    -------
    pandas.DataFrame
        CSV columns hold text. The index is named "line" (in the CSV file, header = 1) or "row".

    Examples
    --------
    >>> frame = read_frame(pd.DataFrame({"age": [31, 42]}))
    >>> frame["age"].tolist(), frame.index.name
    ([31, 42], 'row')
    """
    if isinstance(source, (str, PathLike)):
        return read_file(source, delimiter=delimiter, encoding=encoding).frame
    if isinstance(source, pd.DataFrame):
        frame = source.copy(deep=False)
    else:
        try:
            frame = nw.from_native(source, eager_only=True).to_pandas()
        except TypeError as error:
            raise DataError(
                f"cannot read a {type(source).__name__}: give a path or a pandas, polars or "
                "pyarrow frame (collect a lazy one first)"
            ) from error
    return _checked(frame, "the frame")


def read_file(
    path: str | PathLike[str], *, delimiter: str | None = None, encoding: str | None = None
) -> FileContent:
    """Read a file and keep what an auditor asks for: its hash and the guesses made."""
    path = Path(path)
    data = read_bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    if data.startswith(b"PAR1") or path.suffix.lower() in (".parquet", ".pq"):
        return FileContent(_checked(_parquet(path, data), str(path)), digest, ())
    if data.startswith(b"PK\x03\x04"):
        raise DataError(f"{path} is a zip archive or a spreadsheet: save the table as CSV")
    text, notes = decode(path, data, encoding)
    if not text.strip():
        raise DataError(f"{path} is empty: expected a header line and rows")
    return FileContent(_csv(path, text, delimiter), digest, notes)


def _parquet(path: Path, data: bytes) -> pd.DataFrame:
    try:
        return pd.read_parquet(io.BytesIO(data))
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} is no readable Parquet file ({reason}): write it again"
        ) from error


def _checked(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Give text names to the columns and row numbers to the rows of a frame that is not CSV."""
    frame.columns = _names(list(frame.columns), where)
    if frame.empty:
        raise DataError(f"{where} has no rows: give at least a few people")
    if frame.index.name != "line":  # a CSV file's frame handed on
        frame.index = pd.RangeIndex(len(frame), name="row")
    return frame


def _names(header: list[Any], where: str) -> pd.Index[str]:
    names = [str(name).strip() for name in header]
    if "" in names:
        raise DataError(
            f"{where}: column {names.index('') + 1} has no name: name it in the header, or leave "
            "it out (a saved pandas index: write with index=False)"
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where}: column name '{repeated[0]}' occurs twice: rename one")
    return pd.Index(names, dtype="str")


def _csv(path: Path, text: str, told: str | None) -> pd.DataFrame:
    if told is not None and (len(told) != 1 or told in '"\r\n'):
        raise DataError(f"{path}: delimiter {told!r} is not one character: try one of , ; \\t |")
    seems = _sniff(text)
    delimiter = told or seems or ","
    records = _records(path, text, delimiter)
    header = next(records)[1]
    if len(header) == 1 and (told is None or seems is not None):
        found = f"found one column ('{header[0][:60]}')"
        if seems is None:
            raise DataError(f"{path}: {found} and no usual delimiter: give delimiter=")
        raise DataError(
            f"{path}: {found} with delimiter {told!r}: {_DELIMITERS[seems]} seems right, "
            f"give delimiter={seems!r}"
        )
    names = _names(header, str(path))
    chunks = []
    while chunk := list(islice(records, _CHUNK)):
        for line, fields in chunk:
            if len(fields) != len(header):
                raise DataError(
                    f"{path}, line {line}: {len(fields)} fields where the header has "
                    f"{len(header)}: quote values that hold {delimiter!r}"
                )
        index = pd.Index([line for line, _ in chunk], name="line", dtype=np.int64)
        rows = [fields for _, fields in chunk]
        chunks.append(pd.DataFrame(rows, index=index, columns=names, dtype="str"))
    if not chunks:
        raise DataError(f"{path} has a header but no rows")
    return pd.concat(chunks)


def _records(path: Path, text: str, delimiter: str) -> Any:
    """Yield (first line, fields) of every record that is not blank."""
    # strict: a quote that is never closed must not swallow the rest of the file.
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=delimiter != " ",
        strict=True,
    )
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: {error}: check the quotes there") from error


def _sniff(text: str) -> str | None:
    """Find the delimiter that cuts the first records into the most fields, all alike."""
    lines = list(islice(io.StringIO(text.lstrip()[:_SAMPLE], newline=""), 100))
    best, width = None, 1
    for delimiter in _DELIMITERS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue  # a quote left open: reading the records will name its line
        # A record cut off by the sample or one damaged line does not decide.
        alike = sum(len(row) == len(rows[0]) for row in rows)
        if len(rows[0]) > width and alike >= 0.9 * len(rows) - 1:
            best, width = delimiter, len(rows[0])
    return best
