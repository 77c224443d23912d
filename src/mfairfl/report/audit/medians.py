"""How many rows of each cell score above the sample's median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["AboveMedian"]


@dataclass(frozen=True, slots=True, eq=False)
class AboveMedian:
    """The exact median of all scores, and the rows above it, by cell (C,)."""

    median: float
    rows: NDArray[np.int64]
