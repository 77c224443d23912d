"""CSV and JSON to a frame of text: what is a number is the `Task`'s decision, so "007" survives.

JSON is an array of flat objects, or one object a line. Its values become the text that the same
table has as CSV: numbers as they are written, ``true`` as ``True``, ``null`` and an absent key as
an empty cell.

The cells of a CSV file are no more than its bytes. Other formats can claim far more than they
hold: rows are bounded there, before memory is asked for them.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mfairfl.data.files.contents import Decoded
from mfairfl.errors import DataError

Record = tuple[int, Sequence[str]]
"""The line on which a record begins, and its cells."""

MOST_COLUMNS = 16_384
"""As many as a sheet of Excel can have. Every column is looked at alone, which takes a while."""

MOST_CELLS = 2**30
"""Rows times columns: 8 GiB as numbers; the whole American Community Survey is within it."""

_CHUNK = 4_096  # rows: few enough to stay in cache while they are loose text objects
_LOOKED_AT = 10_000  # rows in which a name is searched among the values of its column
_NO_HEADER = "header=False (--no-header)"


def frame_of_records(
    path: Path, records: Iterator[Record], *, header: bool | None, fix: str
) -> pd.DataFrame:
    """Return a frame of text with the lines as index; `fix` is the remedy for ragged records."""
    line, first = next(records)
    names = names_of_record(path, first, header=header)
    if header is False:
        records = chain([(line, first)], records)
    chunks = []
    while chunk := list(islice(records, _CHUNK)):
        for line, fields in chunk:
            if len(fields) != len(first):
                where = "first line" if header is False else "header"
                raise DataError(
                    f"{path}, line {line}: {len(fields)} fields where the {where} has "
                    f"{len(first)}: {fix}"
                )
        index = pd.Index([line for line, _ in chunk], name="line", dtype=np.int64)
        rows = [fields for _, fields in chunk]
        chunks.append(pd.DataFrame(rows, index=index, columns=names, dtype="str"))
    if not chunks:
        raise DataError(f"{path} has a header but no rows")
    return pd.concat(chunks)


def names_of_record(path: Path, first: Sequence[str], *, header: bool | None) -> pd.Index[str]:
    """Return the names in the first record, or numbers where it is data."""
    if header is False:
        return pd.Index([f"column-{i}" for i in range(1, len(first) + 1)], dtype="str")
    fix = f", or give {_NO_HEADER} if the first line is data"
    return column_names(first, str(path), fix=fix)


def column_names(header: Sequence[Any], where: str, *, fix: str = "") -> pd.Index[str]:
    """Return the names as text; `fix` is what else may be done if one is empty or repeated.

    Examples
    --------
    >>> column_names([" age", 2019], "people").tolist()
    ['age', '2019']
    """
    names = [str(name).strip() for name in header]
    if "" in names:
        raise DataError(
            f"{where}: column {names.index('') + 1} has no name: name it in the header, or leave "
            f"it out (a saved pandas index: write with index=False){fix}"
        )
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{where}: column name '{repeated[0]}' occurs twice: rename one{fix}")
    return pd.Index(names, dtype="str")


def first_line_notes(
    path: Path, frame: pd.DataFrame, *, header: bool | None = None
) -> tuple[str, ...]:
    """Note that the first line, which was taken for names unasked, looks like one more row.

    Examples
    --------
    >>> frame = pd.DataFrame({"39": ["50", "38"], "Private": ["State", "Private"]})
    >>> first_line_notes(Path("people.csv"), frame)
    ('people.csv: the first line looks like data (39, Private): give header=False (--no-header)',)
    """
    if header is not None:
        return ()
    names = list(frame.columns)
    same = np.stack([frame[name].head(_LOOKED_AT).str.strip() == name for name in names])
    # A line that repeats the whole header is left over from joining files.
    repeated = same[:, ~same.all(axis=0)].any(axis=1)
    points = pd.Series(names, dtype="str").str.replace(",", ".")
    numbers = pd.to_numeric(points, errors="coerce").notna().to_numpy()
    counted = [[str(i + start) for i in range(len(names))] for start in (0, 1)]
    every = (repeated | numbers).all() and names not in counted
    if not every and 2 * repeated.sum() < len(names):
        return ()
    shown = ", ".join(name[:20] for name in names[:3]) + ", ..." * (len(names) > 3)
    return (f"{path}: the first line looks like data ({shown}): give {_NO_HEADER}",)


def refuse_cells(path: Path, columns: int, rows: int = 1) -> None:
    """Refuse a table that is too wide, or has too many cells in all.

    Examples
    --------
    >>> refuse_cells(Path("people.csv"), 300_000)
    Traceback (most recent call last):
    ...
    mfairfl.errors.DataError: people.csv has 300,000 columns, more than the 16,384 that are read: \
leave columns out, or write the file with its rows and columns exchanged
    """
    if columns > MOST_COLUMNS:
        raise DataError(
            f"{path} has {columns:,} columns, more than the {MOST_COLUMNS:,} that are read: leave "
            "columns out, or write the file with its rows and columns exchanged"
        )
    if rows * columns > MOST_CELLS:
        raise DataError(
            f"{path} has {rows:,} × {columns:,} cells (rows × columns), more than the "
            f"{MOST_CELLS:,} that are read: leave columns or rows out"
        )


_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_PLAIN_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # not between digits, where it may be a decimal
_SAMPLE = 1_000_000  # characters in which the delimiter must show
_BLOCK = 2**20  # bytes that Arrow parses at once; much longer lines are left to the careful reader
_START = re.compile(r'\s*(\{\s*["}]|\[\s*[\[{\]"\d])')
_CONSTANTS = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
# Objects become tuples of pairs, in which a repeated key is still seen, and arrays lists.
_decode = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=_CONSTANTS.__getitem__
).decode


def read_delimited(
    path: Path, source: Decoded, delimiter: str | None, *, header: bool | None
) -> tuple[pd.DataFrame, str]:
    """Return the frame and the delimiter, which is detected if it is None."""
    text = source.text
    if not text or text.isspace():
        raise DataError(f"{path} is empty: expected a header line and rows")
    stated = "\t" if delimiter == r"\t" else delimiter  # what a shell makes of it
    if stated is not None and (len(stated) != 1 or stated in '"\r\n'):
        raise DataError(f"{path}: delimiter {stated!r} is not one character: try one of , ; \\t |")
    likely = _sniff(text)
    delimiter = stated or likely or ","
    records = careful_records(path, source, delimiter)
    line, first = next(records)
    if len(first) == 1:
        _refuse_one_column(path, first[0], stated, likely)
    refuse_cells(path, len(first))
    frame = _read_plain(source, delimiter, len(first), skip=line - (header is False))
    if frame is not None:
        frame.columns = names_of_record(path, first, header=header)
        return frame, delimiter
    fix = f"quote values that hold {delimiter!r}"
    records = chain([(line, first)], records)
    return frame_of_records(path, records, header=header, fix=fix), delimiter


def _refuse_one_column(path: Path, name: str, stated: str | None, likely: str | None) -> None:
    """Refuse a single column, unless a delimiter was stated and no other one seems right."""
    where = f"{path}: found one column ('{name[:60]}')"
    if likely is not None:
        raise DataError(
            f"{where} with delimiter {stated!r}: {_DELIMITERS[likely]} seems right, give "
            f"delimiter={likely!r}"
        )
    if stated is None:
        raise DataError(f"{where} and no usual delimiter: give delimiter=")


def careful_records(path: Path, source: Decoded, delimiter: str) -> Iterator[Record]:
    """Yield (first line, fields) of every record that is not blank."""
    # Decoded again piece by piece: a stream of the text would copy all of it for the first line.
    stream = io.TextIOWrapper(io.BytesIO(source.data), encoding=source.codec, newline="")
    if stream.read(1) != "\ufeff":
        stream.seek(0)
    # strict: a quote that is never closed must not swallow the rest of the file.
    spaced = delimiter != " "
    reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=spaced, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: {error}: check the quotes there") from error


def _read_plain(source: Decoded, delimiter: str, width: int, *, skip: int) -> pd.DataFrame | None:
    """Read text without quotes by Arrow, many times as fast as record by record.

    Returns
    -------
    pandas.DataFrame or None
        The rows after the first `skip` lines, with numbered columns and the lines as index. None
        if only the careful reader reads the text, or refuses it with the right words: a quote, a
        blank line between others, a line with too few or too many cells, a cell that is too long.
    """
    text = source.text
    if '"' in text or not delimiter.isascii() or text.count("\r") != text.count("\r\n"):
        return None
    names = [str(i) for i in range(width)]
    reading = pyarrow.csv.ReadOptions(
        column_names=names,
        skip_rows=skip,
        block_size=_BLOCK,
        use_threads=False,
        encoding=source.codec,
    )
    parsing = pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=False)
    types = dict.fromkeys(names, pa.large_string())
    conversion = pyarrow.csv.ConvertOptions(check_utf8=False, column_types=types)
    try:
        data = pa.BufferReader(source.data)
        table = pyarrow.csv.read_csv(data, reading, parsing, conversion)
    except pa.ArrowInvalid:
        return None
    end = len(text)
    while text[end - 1] in "\r\n":
        end -= 1
    lines = text.count("\n", 0, end) + 1 - skip
    if not lines or table.num_rows != lines:
        return None
    if max(pc.max(pc.binary_length(c)).as_py() for c in table.columns) > csv.field_size_limit():
        return None
    if delimiter != " " and " " in text:
        table = pa.table([pc.utf8_ltrim(column, " ") for column in table.columns], names)
    frame: pd.DataFrame = table.combine_chunks().to_pandas()
    frame.index = pd.RangeIndex(skip + 1, skip + 1 + lines, name="line")
    return frame


def _sniff(text: str) -> str | None:
    """Find the delimiter that cuts the first records into the most fields, all alike."""
    lines = list(islice(io.StringIO(text.lstrip()[:_SAMPLE], newline=""), 100))
    widths = {delimiter: _width(lines, delimiter) for delimiter in _DELIMITERS}
    likely = {delimiter: width for delimiter, width in widths.items() if width > 1}
    if len(likely) > 1 and not any(map(_PLAIN_COMMA.search, lines)):
        likely.pop(",", None)
    return max(likely, key=lambda delimiter: likely[delimiter], default=None)


def _width(lines: list[str], delimiter: str) -> int:
    """Return how many fields the lines have, or 0 if they differ."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return 0  # a quote left open: reading the records will name its line
    # A record cut off by the sample or one damaged line does not decide.
    alike = sum(len(row) == len(rows[0]) for row in rows)
    return len(rows[0]) if alike >= 0.9 * len(rows) - 1 else 0


def looks_like_json(text: str) -> bool:
    """Return whether a text begins like an array or an object.

    Examples
    --------
    >>> looks_like_json('[{"age": 31}]'), looks_like_json("[age],sex")
    (True, False)
    """
    return _START.match(text) is not None


def read_json(path: Path, text: str) -> pd.DataFrame:
    """Return a frame of text; its index is the line, or the number of the record from 1."""
    unit, documents = _documents(path, text)
    places, records, names = [], [], set[str]()
    for place, value in documents:
        records.append(_record(f"{path}, {unit} {place}", value))
        places.append(place)
        # A key that is absent from a record is a cell of it nonetheless.
        names.update(records[-1])
        refuse_cells(path, len(names), len(records))
    if not records:
        raise DataError(f'{path} has no records: expected objects such as {{"age": 31}}')
    frame = pd.DataFrame(records, index=pd.Index(places, name=unit), dtype="str").fillna("")
    if not len(frame.columns):
        raise DataError(f"{path}: the objects are empty: give each a key for every column")
    frame.columns = column_names(list(frame.columns), str(path))
    return frame


def _documents(path: Path, text: str) -> tuple[str, Iterator[tuple[int, Any]]]:
    """Return what records are counted by, and the records."""
    start = text.lstrip()
    if not start.startswith("[") and _complete(start.partition("\n")[0]):
        lines = ((i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip())
        return "line", ((i, _parse(path, line, i)) for i, line in lines)
    document = _parse(path, text)
    return "record", enumerate(document if isinstance(document, list) else [document], 1)


def _complete(line: str) -> bool:
    """Return whether a line is a JSON document, or would be but for a mistake in it."""
    try:
        _decode(line)
    except json.JSONDecodeError:
        return line.rstrip().endswith("}")
    except RecursionError:
        return False
    return True


def _parse(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        place = line or error.lineno
        raise DataError(
            f"{path}, line {place}: not JSON ({error.msg} at character {error.colno}): correct it"
        ) from error
    except RecursionError as error:
        raise DataError(f"{path} is nested too deeply: give flat objects") from error


def _record(where: str, value: Any) -> dict[str, str | None]:
    """Return an object's values by key as text."""
    if not isinstance(value, tuple):
        kind = "an array" if isinstance(value, list) else "a single value"
        raise DataError(f'{where}: {kind} in place of an object such as {{"age": 31}}')
    record: dict[str, str | None] = {}
    for key, cell in value:
        if key in record:
            raise DataError(f"{where}: the key '{key}' occurs twice: rename one")
        if isinstance(cell, tuple | list):
            kind = "an object" if isinstance(cell, tuple) else "an array"
            raise DataError(
                f"{where}, key '{key}': holds {kind}, not one value: write one flat object a row "
                "(pandas: orient='records')"
            )
        record[key] = cell if cell is None or isinstance(cell, str) else str(cell)
    return record
