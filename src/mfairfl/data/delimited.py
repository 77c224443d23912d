"""CSV to a frame of text: what is a number is the `Task`'s decision, so that "007" survives."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mfairfl.data.records import Record, frame_of_records, names_of_record
from mfairfl.errors import DataError

__all__ = ["read_delimited"]

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_PLAIN_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # not between digits, where it may be a decimal
_SAMPLE = 1_000_000  # characters in which the delimiter must show


def read_delimited(
    path: Path, text: str, given: str | None, *, header: bool | None
) -> tuple[pd.DataFrame, str]:
    """Return the frame and the delimiter, which is found if none is given."""
    if not text.strip():
        raise DataError(f"{path} is empty: expected a header line and rows")
    given = "\t" if given == r"\t" else given  # what a shell makes of it
    if given is not None and (len(given) != 1 or given in '"\r\n'):
        raise DataError(f"{path}: delimiter {given!r} is not one character: try one of , ; \\t |")
    likely = _sniff(text)
    delimiter = given or likely or ","
    records = _records(path, text, delimiter)
    first = next(records)
    if len(first[1]) == 1 and (given is None or likely is not None):
        found = f"found one column ('{first[1][0][:60]}')"
        if likely is None:
            raise DataError(f"{path}: {found} and no usual delimiter: give delimiter=")
        raise DataError(
            f"{path}: {found} with delimiter {given!r}: {_DELIMITERS[likely]} seems right, "
            f"give delimiter={likely!r}"
        )
    frame = _plain_frame(path, text, delimiter, first, header=header)
    if frame is not None:
        return frame, delimiter
    fix = f"quote values that hold {delimiter!r}"
    return frame_of_records(path, chain([first], records), header=header, fix=fix), delimiter


def _plain_frame(
    path: Path, text: str, delimiter: str, first: Record, *, header: bool | None
) -> pd.DataFrame | None:
    """Read a text without quotes or blank lines, much faster than record by record.

    None where there are any, or a line has too few or too many cells: `_records` reads those, or
    says what is wrong.
    """
    line, cells = first
    if line != 1 or '"' in text or ord(delimiter) > 127:
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text.encode()),
            pyarrow.csv.ReadOptions(
                column_names=[str(i) for i in range(len(cells))],
                skip_rows=0 if header is False else 1,
                use_threads=False,
            ),
            pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=False),
            pyarrow.csv.ConvertOptions(
                column_types={str(i): pa.large_string() for i in range(len(cells))},
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    lines = text.count("\n") + text.count("\r") - text.count("\r\n") + (text[-1] not in "\r\n")
    skipped = 0 if header is False else 1
    if not table.num_rows or table.num_rows != lines - skipped:
        return None
    if delimiter != " ":  # as spaces before a cell are left out elsewhere
        table = pa.table([pc.utf8_ltrim(c, " ") for c in table.columns], table.column_names)
    frame: pd.DataFrame = table.combine_chunks().to_pandas()
    frame.columns = names_of_record(path, cells, header=header)
    frame.index = pd.RangeIndex(1 + skipped, 1 + lines, name="line")
    return frame


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
