"""CSV to a frame of text: what is a number is the `Task`'s decision, so that "007" survives."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import pandas as pd

from mfairfl.data.limits import refuse_columns
from mfairfl.data.records import Record, frame_of_records, names_of_record
from mfairfl.data.well_formed import read_well_formed
from mfairfl.errors import DataError

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_PLAIN_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # not between digits, where it may be a decimal
_SAMPLE = 1_000_000  # characters in which the delimiter must show


def read_delimited(
    path: Path, text: str, given: str | None, *, header: bool | None
) -> tuple[pd.DataFrame, str]:
    """Return the frame and the delimiter, which is found if none is given."""
    if not text or text.isspace():
        raise DataError(f"{path} is empty: expected a header line and rows")
    given = "\t" if given == r"\t" else given  # what a shell makes of it
    if given is not None and (len(given) != 1 or given in '"\r\n'):
        raise DataError(f"{path}: delimiter {given!r} is not one character: try one of , ; \\t |")
    likely = _sniff(text)
    delimiter = given or likely or ","
    data = _encoded(path, text)
    records = careful_records(path, data, delimiter)
    first = next(records)
    if len(first[1]) == 1 and (given is None or likely is not None):
        found = f"found one column ('{first[1][0][:60]}')"
        if likely is None:
            raise DataError(f"{path}: {found} and no usual delimiter: give delimiter=")
        raise DataError(
            f"{path}: {found} with delimiter {given!r}: {_DELIMITERS[likely]} seems right, "
            f"give delimiter={likely!r}"
        )
    refuse_columns(path, len(first[1]))
    frame = read_well_formed(data, delimiter, len(first[1]), header=header is not False)
    if frame is not None:
        frame.columns = names_of_record(path, first[1], header=header)
        return frame, delimiter
    fix = f"quote values that hold {delimiter!r}"
    return frame_of_records(path, chain([first], records), header=header, fix=fix), delimiter


def _encoded(path: Path, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{path}: character {error.start} is half of one (U+{ord(text[error.start]):X}): "
            "give the right encoding="
        ) from error


def careful_records(path: Path, data: bytes, delimiter: str) -> Iterator[Record]:
    """Yield (first line, fields) of every record that is not blank; the text is UTF-8."""
    # strict: a quote that is never closed must not swallow the rest of the file.
    reader = csv.reader(
        io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline=""),
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
