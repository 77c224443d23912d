"""Pure mathematics on small matrices; no files, no networks, no engines."""

from mfairfl.geometry.conflicts import Conflicts, cosines, diminish_conflicts, rescaling
from mfairfl.geometry.gram import gram_matrix, weighted_sum

__all__ = [
    "Conflicts",
    "cosines",
    "diminish_conflicts",
    "gram_matrix",
    "rescaling",
    "weighted_sum",
]
