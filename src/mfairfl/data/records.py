"""What may be said about a file, and a frame from its records, with names and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.errors import DataError

Record = tuple[int, Sequence[str]]
"""The line on which a record begins, and its cells."""

_CHUNK = 65_536  # rows; bounds the memory that loose text objects take
_LOOKED_AT = 10_000  # rows in which a name is searched among the values of its column
_NO_HEADER = "header=False (--no-header)"


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
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None


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
