"""A sheet of an Excel file to a frame of text, as a CSV file of it would give.

Formulas count by the value that was stored with them, dates are written 2024-01-31, booleans True
and False.
"""

import datetime
import io
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.data.files.records import frame_of_records, refuse_cells
from mfairfl.errors import DataError, unknown

Row = tuple[Any, ...]

_MOST_ROWS = 1_048_576  # a sheet of Excel has no more
_MOST_CELLS = 2**26  # 64 columns of as many rows; as values of Python they take a few GiB


def read_excel(
    path: Path, data: bytes, *, sheet: str | None, header: bool | None
) -> tuple[pd.DataFrame, str]:
    """Return the frame and the name of the sheet it is from."""
    if find_spec("openpyxl") is None:
        raise DataError(
            f"{path} is an Excel file, which openpyxl reads: pip install 'mfairfl[excel]', or "
            "save it as CSV"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about styles and the like
        try:
            sheets = {page.title: page for page in _workbook(data).worksheets}
            name = _chosen(path, sheets, sheet)
            rows = list(_rows(path, sheets[name]))
            _refuse_merged(path, data, name)
            _refuse_uncomputed(path, data, name, rows)
        except DataError:
            raise
        except Exception as error:  # openpyxl raises whatever a damaged part leads to
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise DataError(
                f"{path} is not a readable Excel file ({reason}): save it again"
            ) from error
    records = _records(rows)
    return frame_of_records(path, records, header=header, fix="complete the row"), name


def _workbook(data: bytes, *, values: bool = True) -> Any:
    """Open the file so that its sheets are read row by row: values, or else formulas."""
    import openpyxl  # noqa: PLC0415 - an extra

    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=values)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # the size that the file states may be wrong
    return book


def _chosen(path: Path, sheets: Mapping[str, Any], sheet: str | None) -> str:
    """Return the sheet that was asked for, or the only one that holds anything."""
    if sheet is not None and sheet not in sheets:
        raise DataError(f"{path}: {unknown('sheet', sheet, sheets)}")
    candidates = sheets if sheet is None else [sheet]
    filled = [name for name in candidates if any(map(_filled, _rows(path, sheets[name])))]
    if len(filled) > 1:
        raise DataError(
            f"{path} has {len(filled)} sheets ({', '.join(filled)}): choose one with sheet= "
            f'(--sheet, or sheet = "{filled[0]}" in TOML)'
        )
    if not filled:
        where = f"{path}" if sheet is None else f"{path}, sheet '{sheet}'"
        raise DataError(f"{where} is empty: expected a header line and rows")
    return filled[0]


def _rows(path: Path, sheet: Any) -> Iterator[Row]:
    """Yield the rows of a sheet; a file can name a cell far away, and all before it are cells."""
    cells = 0
    for line, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells += len(row)
        refuse_cells(path, len(row))
        if line > _MOST_ROWS or cells > _MOST_CELLS:
            raise DataError(
                f"{path}, sheet '{sheet.title}' has more than {_MOST_ROWS:,} rows or "
                f"{_MOST_CELLS:,} cells: save the table as CSV"
            )
        yield row


def _filled(row: Row) -> bool:
    return any(cell is not None and cell != "" for cell in row)


def _refuse_merged(path: Path, data: bytes, name: str) -> None:
    """Refuse merged cells: all but the first of them would be read as missing."""
    if not _mentions(data, b"<mergeCell "):
        return
    import openpyxl  # noqa: PLC0415 - an extra

    if merged := openpyxl.load_workbook(io.BytesIO(data))[name].merged_cells.ranges:
        first = min(map(str, merged))
        raise DataError(f"{path}, sheet '{name}': the cells {first} are merged: split them")


def _refuse_uncomputed(path: Path, data: bytes, name: str, rows: list[Row]) -> None:
    """Refuse formulas without a stored value: they would be read as missing."""
    if not _mentions(data, b"<f"):
        return
    formulas = _workbook(data, values=False)[name].iter_rows()
    for values, cells in zip(rows, formulas, strict=True):
        for value, cell in zip(values, cells, strict=True):
            if value is None and cell.value is not None:
                raise DataError(
                    f"{path}, sheet '{name}': the formula in cell {cell.coordinate} has no stored "
                    "value: open the file in a spreadsheet program and save it"
                )


def _mentions(data: bytes, tag: bytes) -> bool:
    """Return whether the XML of any sheet holds a tag."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheets = [n for n in archive.namelist() if n.startswith("xl/worksheets/")]
        return any(tag in archive.read(name) for name in sheets)


def _records(rows: list[Row]) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every row that is not blank, all as wide as the widest."""
    width = max(i for row in rows for i, cell in enumerate(row, 1) if cell not in (None, ""))
    for line, row in enumerate(rows, 1):
        if _filled(row):
            yield line, [_text(cell) for cell in (*row, *[None] * (width - len(row)))[:width]]


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, datetime.datetime):
        return str(cell if cell.time() != datetime.time() else cell.date())
    return str(cell)
