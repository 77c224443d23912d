"""From a file or a frame of any library to a pandas frame.

Files are CSV with any delimiter and encoding, gzip, xz or Parquet. CSV cells stay text: what is a
number is the `Task`'s decision, so that "007" survives.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import logging
import lzma
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import charset_normalizer
import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from mfairfl.errors import DataError

__all__ = ["FileContent", "read_file", "read_frame"]

_log = logging.getLogger(__name__)

_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16: its mark begins with UTF-16's
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What spreadsheets and statistics programs write; rarer encodings fit short texts by accident.
_LEGACY = [
    *(f"cp125{i}" for i in range(9)),
    *("cp874", "cp932", "cp949", "big5", "gb18030", "euc_jp", "koi8_r"),
]
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_SAMPLE = 1_000_000  # characters in which the delimiter must show
_CHUNK = 65_536  # rows; bounds the memory that loose text objects take


def read_frame(
    source: Any, *, delimiter: str | None = None, encoding: str | None = None
) -> pd.DataFrame:
    """Read a CSV or Parquet file, or take a pandas, polars or pyarrow frame, as a pandas frame.

    Parameters
    ----------
    source
        Path of a CSV file (also .gz or .xz) or of a Parquet file, or a frame.
    delimiter
        The delimiter of a CSV file; detected from its first lines if omitted.
    encoding
        The encoding of a CSV file. If omitted: the byte order mark decides, then UTF-8, then a
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


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file as read.

    Parameters
    ----------
    frame : pandas.DataFrame
    sha256 : str
        Hash of the (decompressed) bytes.
    notes : tuple of str
        What was guessed.
    delimiter : str, optional
        The delimiter that was given or detected; None for Parquet.
    encoding : str, optional
        The encoding that was given or guessed; None where the file itself decides.
    """

    frame: pd.DataFrame
    sha256: str
    notes: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str | None = None


def read_file(
    path: str | PathLike[str], *, delimiter: str | None = None, encoding: str | None = None
) -> FileContent:
    """Read a file and keep what an auditor asks for: its hash and the guesses made."""
    path = Path(path)
    data = _decompressed(path, _raw(path))
    digest = hashlib.sha256(data).hexdigest()
    if data.startswith(b"PAR1") or path.suffix.lower() in (".parquet", ".pq"):
        return FileContent(_checked(_parquet(path, data), str(path)), digest)
    if data.startswith(b"PK\x03\x04"):
        raise DataError(f"{path} is a zip archive or a spreadsheet: save the table as CSV")
    text, encoding, notes = _decode(path, data, encoding)
    if not text.strip():
        raise DataError(f"{path} is empty: expected a header line and rows")
    frame, delimiter = _csv(path, text, delimiter)
    return FileContent(frame, digest, notes, delimiter, encoding)


def _raw(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, siblings, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "check the path"
        raise DataError(f"no such file: {path}: {hint}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: give a readable file") from error


def _decompressed(path: Path, data: bytes) -> bytes:
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        if data.startswith(b"\xfd7zXZ\x00"):
            return lzma.decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is damaged ({error}): fetch or compress it again") from error
    return data


def _decode(path: Path, data: bytes, given: str | None) -> tuple[str, str | None, tuple[str, ...]]:
    """Decode by the given encoding, the byte order mark, as UTF-8, or by a guess that is noted."""
    notes: tuple[str, ...] = ()
    known = given or next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    try:
        text = data.decode(known or "utf-8")
    except LookupError as error:
        raise DataError(f"{path}: unknown encoding '{known}': try 'utf-8' or 'cp1252'") from error
    except UnicodeDecodeError as error:
        guess = _guess_encoding(data)
        problem = (
            f"{path}: byte 0x{data[error.start]:02x} at offset {error.start} is not "
            f"{known or 'utf-8'}"
        )
        if known is not None or guess is None:
            hint = f"try encoding='{guess}'" if guess else "give the right encoding="
            raise DataError(f"{problem}: {hint}") from error
        notes = (f"{problem}; read as {guess}, a guess: give encoding= to be sure",)
        _log.warning(notes[0])
        text, given = data.decode(guess), guess
    if "\0" in text:
        raise DataError(
            f"{path}: not plain text (NUL at character {text.index(chr(0))}): "
            "if it is UTF-16, give encoding='utf-16-le' or 'utf-16-be'"
        )
    return text.removeprefix("\ufeff"), given, notes


def _guess_encoding(data: bytes) -> str | None:
    matches = charset_normalizer.from_bytes(data, cp_isolation=_LEGACY)
    best = matches.best()
    if best is None:
        return None
    # Short western files fit many code pages equally well; the most common one wins a tie.
    tied = {m.encoding for m in matches if m.chaos <= best.chaos} | {*best.could_be_from_charset}
    return "cp1252" if "cp1252" in tied else best.encoding


def _csv(path: Path, text: str, given: str | None) -> tuple[pd.DataFrame, str]:
    if given is not None and (len(given) != 1 or given in '"\r\n'):
        raise DataError(f"{path}: delimiter {given!r} is not one character: try one of , ; \\t |")
    likely = _sniff(text)
    delimiter = given or likely or ","
    records = _records(path, text, delimiter)
    header = next(records)[1]
    if len(header) == 1 and (given is None or likely is not None):
        found = f"found one column ('{header[0][:60]}')"
        if likely is None:
            raise DataError(f"{path}: {found} and no usual delimiter: give delimiter=")
        raise DataError(
            f"{path}: {found} with delimiter {given!r}: {_DELIMITERS[likely]} seems right, "
            f"give delimiter={likely!r}"
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
    return pd.concat(chunks), delimiter


def _records(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
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


def _parquet(path: Path, data: bytes) -> pd.DataFrame:
    try:
        return pd.read_parquet(io.BytesIO(data))
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} is not a readable Parquet file ({reason}): write it again"
        ) from error


def _checked(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Give text names to the columns and row numbers to the rows of a frame that is not CSV."""
    frame.columns = _names(list(frame.columns), where)
    if frame.empty:
        raise DataError(f"{where} has no rows: give at least a few")
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
