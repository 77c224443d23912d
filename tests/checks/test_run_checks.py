"""Checks of data, against rules found by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.checks.run import best_alone


@pytest.mark.parametrize(
    ("column", "y", "right"),
    [
        ([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], 1.0),
        ([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0], 1.0),  # the other way round
        ([1.0, 1.0, 2.0, 2.0], [0, 1, 1, 1], 0.75),  # no cut between equal values
        ([5.0, 5.0, 5.0, 5.0], [0, 0, 0, 1], 0.75),
        ([3.0, 1.0, 2.0, np.nan], [1, 0, 0, 1], 1.0),  # missing ones lie above
        (["a", "a", "b", "b"], [0, 0, 1, 0], 0.75),
        (["a", "b", "c", "c"], [0, 1, 1, 1], 0.5),  # single rows say nothing
    ],
)
def test_best_rule_on_one_column_by_hand(column, y, right):
    assert best_alone(pd.Series(column), np.array(y, dtype=np.int8)) == right
