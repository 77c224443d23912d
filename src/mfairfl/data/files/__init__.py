"""From a file or a frame of any library to a pandas frame.

What a file is, its content decides, not its name: CSV with any delimiter and encoding, Excel,
JSON, Parquet or Arrow, as it is or packed with gzip, xz, bzip2, Zstandard or zip.
"""

import hashlib
import io
import logging
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from mfairfl.data.files import records
from mfairfl.data.files.contents import Contents, decode, load_contents
from mfairfl.data.files.excel import read_excel
from mfairfl.errors import DataError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """What a user may say about a file; what is left out is found in the file.

    Parameters
    ----------
    delimiter : str, optional
        The character between the cells of a CSV file.
    encoding : str, optional
        The encoding of a CSV or JSON file.
    header : bool, optional
        Whether the first line of a CSV file or an Excel sheet names the columns. If it does not,
        they are called ``column-1``, ``column-2`` and so on. None: it does, and the file's notes
        say so if it looks otherwise.
    sheet : str, optional
        Which sheet of an Excel file holds the rows.

    Examples
    --------
    >>> FileFormat(delimiter=";", header=False).sheet is None
    True
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None


def read_frame(
    source: Any,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    sheet: str | None = None,
) -> pd.DataFrame:
    """Read a file, or take a pandas, polars or pyarrow frame, as a pandas frame.

    Parameters
    ----------
    source
        A frame, or the path of a CSV, Excel, JSON, Parquet or Arrow file; CSV and JSON may be
        packed (gzip, xz, bzip2, Zstandard, or a zip archive of this one file).
    delimiter
        The delimiter of a CSV file; detected from its first lines if omitted.
    encoding
        The encoding of a CSV or JSON file. If omitted: the byte order mark decides, then UTF-8,
        then a guess, which is logged as a warning.
    header
        False: the first line of a CSV file or an Excel sheet is data, and the columns are called
        column-1, column-2 and so on. If omitted, it holds the names, and a warning is logged if it
        looks like data.
    sheet
        The sheet of an Excel file that has several.

    Returns
    -------
    pandas.DataFrame
        Columns of CSV, Excel and JSON files hold text. The index is named "line" (of the file or
        sheet, header = 1), "record" (of a JSON array, from 1) or "row" (from 0).

    Examples
    --------
    >>> frame = read_frame(pd.DataFrame({"age": [31, 42]}))
    >>> frame["age"].tolist(), frame.index.name
    ([31, 42], 'row')
    """
    if isinstance(source, (str, PathLike)):
        return read_file(source, FileFormat(delimiter, encoding, header, sheet)).frame
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
        Hash of the (unpacked) bytes.
    notes : tuple of str
        What was guessed.
    format : FileFormat
        What was given or detected. The encoding is None where the file itself decides.
    """

    frame: pd.DataFrame
    sha256: str
    notes: tuple[str, ...] = ()
    format: FileFormat = FileFormat()


def read_file(path: str | PathLike[str], stated: FileFormat | None = None) -> FileContent:
    """Read a file with its hash and the guesses made, which an auditor asks for."""
    path = Path(path)
    contents = load_contents(path)
    frame, detected, notes = _read(path, contents, stated or FileFormat())
    for note in notes:
        _log.warning(note)
    return FileContent(frame, hashlib.sha256(contents.data).hexdigest(), notes, detected)


def _read(
    path: Path, contents: Contents, stated: FileFormat
) -> tuple[pd.DataFrame, FileFormat, tuple[str, ...]]:
    """Return the frame, its format as given or detected, and what was guessed."""
    header = stated.header
    if contents.kind == "excel":
        frame, sheet = read_excel(path, contents.data, sheet=stated.sheet, header=header)
        detected = FileFormat(header=header, sheet=sheet)
        return frame, detected, records.first_line_notes(path, frame, header=header)
    if stated.sheet is not None:
        raise DataError(f"{path} is not an Excel file; remove sheet='{stated.sheet}' (--sheet)")
    source = decode(path, contents.data, stated.encoding) if contents.kind == "text" else None
    if source is not None and not records.looks_like_json(source.text):
        frame, delimiter = records.read_delimited(path, source, stated.delimiter, header=header)
        detected = FileFormat(delimiter, source.encoding, header)
        return frame, detected, source.notes + records.first_line_notes(path, frame, header=header)
    if header is False:
        raise DataError(f"{path} names its columns; remove header=False (--no-header)")
    if source is not None:
        frame = records.read_json(path, source.text)
        return frame, FileFormat(encoding=source.encoding), source.notes
    return _checked(_arrow(path, contents), str(path)), FileFormat(), ()


def _arrow(path: Path, contents: Contents) -> pd.DataFrame:
    try:
        if contents.kind == "parquet":
            footer = pyarrow.parquet.read_metadata(pa.BufferReader(contents.data))
            records.refuse_cells(path, footer.num_columns, footer.num_rows)
            frame = pd.read_parquet(io.BytesIO(contents.data))
        else:
            table = pyarrow.feather.read_table(pa.BufferReader(contents.data))
            records.refuse_cells(path, table.num_columns, table.num_rows)
            frame = table.to_pandas()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        kind = contents.kind.capitalize()
        raise DataError(
            f"{path} is not a readable {kind} file ({reason}): write it again"
        ) from error
    # An index that pandas stored under a name is a column of the file like the others.
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named) if named else frame


def _checked(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Give text names to the columns and row numbers to the rows of a frame that is not text."""
    frame.columns = records.column_names(list(frame.columns), where)
    if frame.empty:
        raise DataError(f"{where} has no rows: give at least a few")
    if frame.index.name not in ("line", "record"):  # a file's frame handed on
        frame.index = pd.RangeIndex(len(frame), name="row")
    return frame
