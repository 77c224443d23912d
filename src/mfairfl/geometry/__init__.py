"""Pure mathematics on small matrices; no files, no networks, no engines."""

from mfairfl.geometry.conflicts import Conflicts, cosines, diminish_conflicts, rescaling
from mfairfl.geometry.gram import gram_matrix, weighted_sum
from mfairfl.geometry.min_norm import min_norm_coefficients, project_box_simplex

__all__ = [
    "Conflicts",
    "cosines",
    "diminish_conflicts",
    "gram_matrix",
    "min_norm_coefficients",
    "project_box_simplex",
    "rescaling",
    "weighted_sum",
]
