"""Frames of results: checked before tables and figures are made from them, in CSV and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mfairfl.errors import DataError
from mfairfl.files import write_atomically
from mfairfl.text import formula_safe_frame, formula_unsafe

_TEXT = ("protocol", "data", "split", "strategy", "notion", "metric", "attribute", "mark")


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


def write_rows(frame: pd.DataFrame, path: Path) -> None:
    """Write CSV and Parquet, numbers in full; the same rows are the same bytes."""
    text = formula_safe_frame(frame).to_csv(index=False, lineterminator="\n")
    write_atomically(Path(f"{path}.csv"), text.encode())
    write_atomically(Path(f"{path}.parquet"), frame.to_parquet(index=False))


def csv_of(frame: pd.DataFrame) -> str:
    r"""Return a frame as CSV, numbers with six digits.

    Examples
    --------
    >>> csv_of(pd.DataFrame({"metric": ["accuracy"], "mean": [1 / 3], "std": [None]}))
    'metric,mean,std\naccuracy,0.333333,\n'
    """
    safe = formula_safe_frame(frame)
    return safe.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def read_csv(path: Path) -> pd.DataFrame:
    """Read what `csv_of` returned: an empty notion, attribute or mark is text, not missing."""
    kinds = dict.fromkeys(_TEXT, str)
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=kinds)
    frame = frame.fillna(dict.fromkeys(_TEXT, ""))
    names = [name for name in _TEXT if name in frame.columns]
    return frame.assign(**{name: frame[name].map(formula_unsafe) for name in names})
