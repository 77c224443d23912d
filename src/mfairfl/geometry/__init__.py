"""Pure mathematics on small matrices; no files, no networks, no engines."""

from mfairfl.geometry.conflicts import Conflicts, cosines, diminish_conflicts, rescaling
from mfairfl.geometry.gram import gram_matrix, weighted_sum
from mfairfl.geometry.min_norm import min_norm_coefficients, project_box_simplex
from mfairfl.geometry.robust import (
    centred_clipping,
    distances,
    geometric_median,
    krum,
    mixed_gram,
    multi_krum,
    nearest_neighbour_mixing,
    norm_clipping,
)

__all__ = [
    "Conflicts",
    "centred_clipping",
    "cosines",
    "diminish_conflicts",
    "distances",
    "geometric_median",
    "gram_matrix",
    "krum",
    "min_norm_coefficients",
    "mixed_gram",
    "multi_krum",
    "nearest_neighbour_mixing",
    "norm_clipping",
    "project_box_simplex",
    "rescaling",
    "weighted_sum",
]
