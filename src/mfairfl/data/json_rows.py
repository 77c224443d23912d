"""JSON to a frame: an array of flat objects, or one object a line.

Values become the text that the same table has as CSV: numbers as they are written, ``true`` as
``True``, ``null`` and an absent key as an empty cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from mfairfl.data.limits import refuse_cells
from mfairfl.data.records import column_names
from mfairfl.errors import DataError

_START = re.compile(r'\s*(\{\s*["}]|\[\s*[\[{\]"\d])')
_CONSTANTS = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
# Objects become tuples of pairs, in which a repeated key is still seen, and arrays lists.
_decode = json.JSONDecoder(
    object_pairs_hook=tuple,
    parse_int=str,
    parse_float=str,
    parse_constant=_CONSTANTS.__getitem__,
).decode


def looks_like_json(text: str) -> bool:
    """Say whether a text begins like an array or an object.

    Examples
    --------
    >>> looks_like_json('[{"age": 31}]'), looks_like_json("[age],sex")
    (True, False)
    """
    return _START.match(text) is not None


def read_json(path: Path, text: str) -> pd.DataFrame:
    """Return a frame of text; its index is the line, or the number of the record from 1."""
    unit, found = _documents(path, text)
    places, records = [], []
    names: set[str] = set()
    for place, value in found:
        where = f"{path}, {unit} {place}"
        records.append(_record(where, value))
        places.append(place)
        # A key that is absent from a record is a cell of it nonetheless.
        names.update(records[-1])
        refuse_cells(path, len(records), len(names))
    if not records:
        raise DataError(f'{path} has no records: expected objects such as {{"age": 31}}')
    frame = pd.DataFrame(records, index=pd.Index(places, name=unit), dtype="str").fillna("")
    if not len(frame.columns):
        raise DataError(f"{path}: the objects are empty: give each a key for every column")
    frame.columns = column_names(list(frame.columns), str(path))
    return frame


def _documents(path: Path, text: str) -> tuple[str, Iterator[tuple[int, Any]]]:
    """Return what records are counted by, and the records."""
    first = text.lstrip().partition("\n")[0]
    if not text.lstrip().startswith("[") and _complete(first):
        lines = ((i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip())
        return "line", ((i, _parse(path, line, i)) for i, line in lines)
    whole = _parse(path, text)
    return "record", enumerate(whole if isinstance(whole, list) else [whole], 1)


def _complete(line: str) -> bool:
    """Say whether a line is a JSON document, or would be but for a mistake in it."""
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
        what = "an array" if isinstance(value, list) else "a single value"
        raise DataError(f'{where}: {what} in place of an object such as {{"age": 31}}')
    record: dict[str, str | None] = {}
    for key, cell in value:
        if key in record:
            raise DataError(f"{where}: the key '{key}' occurs twice: rename one")
        if isinstance(cell, tuple | list):
            _refuse_nested(where, key, cell)
        record[key] = cell if cell is None or isinstance(cell, str) else str(cell)
    return record


def _refuse_nested(where: str, key: str, cell: tuple[Any, ...] | list[Any]) -> NoReturn:
    what = "an object" if isinstance(cell, tuple) else "an array"
    raise DataError(
        f"{where}, key '{key}': holds {what}, not one value: write one flat object a row "
        "(pandas: orient='records')"
    )
