"""How much one file may hold.

The cells of a CSV file are no more than its bytes. Other formats can claim far more than they
hold: rows are bounded there, before memory is asked for them.
"""

from __future__ import annotations

import os
from pathlib import Path

from mfairfl.errors import DataError

MOST_COLUMNS = 16_384
"""As many as a sheet of Excel can have. Every column is looked at alone, which takes a while."""

MOST_CELLS = 2**30
"""Rows times columns: 8 GiB as numbers; the whole American Community Survey is within it."""


def memory() -> int:
    """Return the bytes of this machine's memory; files are read whole."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
