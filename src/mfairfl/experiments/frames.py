"""Checks of the frames that tables and figures are made from."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mfairfl.errors import DataError


def require_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse a frame that has no rows or lacks one of the columns."""
    for column in columns:
        if column not in frame.columns:
            raise DataError(f"frame: lacks column '{column}'; add it (it has {[*frame.columns]})")
    if frame.empty:
        raise DataError("frame: has no rows; give at least one run")


def require_unique(frame: pd.DataFrame, key: Sequence[str], fix: str) -> None:
    """Refuse a frame with two rows of the same key."""
    repeated = frame[frame.duplicated([*key])]
    if len(repeated):
        values = ", ".join(f"{name} {repeated.iloc[0][name]}" for name in key)
        raise DataError(f"frame: two rows of {values}; {fix}")
