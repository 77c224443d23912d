"""A frame of text made of records: names of its columns, lines of its rows, and how much it holds.

The cells of a CSV file are no more than its bytes. Other formats can claim far more than they
hold: rows are bounded there, before memory is asked for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where}: column name '{repeated[0]}' occurs twice: rename one{fix}")
    return pd.Index(names, dtype="str")


def first_line_notes(path: Path, frame: pd.DataFrame) -> tuple[str, ...]:
    """Note that the first line, which was taken for names, looks like one more row.

    Examples
    --------
    >>> frame = pd.DataFrame({"39": ["50", "38"], "Private": ["State", "Private"]})
    >>> first_line_notes(Path("people.csv"), frame)
    ('people.csv: the first line looks like data (39, Private): give header=False (--no-header)',)
    """
    names = list(frame.columns)
    same = np.stack([frame[name].head(_LOOKED_AT).str.strip() == name for name in names])
    # A line that repeats the whole header is left over from joining files.
    repeated = [bool(one.any()) for one in same[:, ~same.all(axis=0)]]
    numbers = [_is_number(name) for name in names]
    counted = [[str(i + start) for i in range(len(names))] for start in (0, 1)]
    every = all(a or b for a, b in zip(repeated, numbers, strict=True)) and names not in counted
    if not every and 2 * sum(repeated) < len(names):
        return ()
    shown = ", ".join(name[:20] for name in names[:3]) + ", ..." * (len(names) > 3)
    return (f"{path}: the first line looks like data ({shown}): give {_NO_HEADER}",)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def refuse_columns(path: Path, columns: int) -> None:
    """Refuse a table that is too wide.

    Examples
    --------
    >>> refuse_columns(Path("people.csv"), 300_000)
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


def refuse_cells(path: Path, rows: int, columns: int) -> None:
    """Refuse a table that is too wide, or has too many cells in all."""
    refuse_columns(path, columns)
    if rows * columns > MOST_CELLS:
        raise DataError(
            f"{path} has {rows:,} × {columns:,} cells (rows × columns), more than the "
            f"{MOST_CELLS:,} that are read: leave columns or rows out"
        )
