"""What `init` proposes, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.checks.proposal import tercile_bins


@pytest.mark.parametrize(
    ("numbers", "names"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], ["<= 3", "4 to 6", ">= 7"]),
        ([1, 2, 3, 4, 5, 6, 7], ["<= 3", "4 to 5", ">= 6"]),  # thirds are rounded up
        ([0, 0, 0, 0, 0, 0, 5, 6], ["<= 0", ">= 5"]),  # ties leave two groups
        ([0, 0, 0, 0, 0, 0, 0, 6], []),  # one value above is no group
        ([0.5, 0.5, 1.25, 1.25, 2.75, 2.75], ["<= 0.5", "1.25 to 1.25", ">= 2.75"]),
    ],
)
def test_thirds_by_hand(numbers, names):
    assert [b.name for b in tercile_bins(np.array(numbers, dtype=float))] == names
