"""Numbers that may be codes of categories, and those that are amounts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.checks.codes import category_code_findings, find_category_codes
from mfairfl.data import load_dataset

RNG = np.random.default_rng(9)
POSITIONS = [1110, 1121, 1122, 1131, 1132, 1140, 1210, 1220]


@pytest.mark.parametrize(
    ("name", "values", "asked"),
    [
        ("position_1", RNG.choice(POSITIONS, 1000), True),
        ("x", RNG.choice(POSITIONS, 1000), True),  # the values tell
        ("x", RNG.choice([111, 112, 120], 1000), True),
        ("OCCP", RNG.choice(np.arange(10, 9830, 30), 1000), True),  # the name tells
        ("zip", RNG.integers(10_000, 10_300, 1000), True),
        ("MaritalStatus", RNG.integers(1, 5, 1000), True),
        ("region_id", RNG.integers(1, 30, 1000), True),
        ("age", RNG.integers(18, 80, 1000), False),
        ("year", RNG.integers(1990, 2020, 1000), False),  # without holes
        ("limit", RNG.choice(np.arange(10_000, 80_000, 5_000), 1000), False),  # in equal steps
        ("pressure", RNG.normal(131, 8, 4000).round(), False),
        ("weight", RNG.lognormal(6, 0.1, 4000).round(), False),
        ("number_of_branches", RNG.integers(1, 9, 1000), False),
        ("sex", RNG.choice([1, 2], 1000), False),  # two values are the same either way
        ("state", RNG.normal(size=1000), False),  # no whole numbers
        ("status", RNG.integers(0, 10**6, 1000), False),  # nearly one for each row
    ],
)
def test_which_columns_may_hold_codes(name, values, asked):
    X = pd.DataFrame({name: np.asarray(values, dtype=float)})
    assert list(find_category_codes(X)) == [name] * asked


def test_one_finding_for_all_columns():
    X = pd.DataFrame({"a": RNG.choice(POSITIONS, 1000), "b": RNG.choice([111, 112, 120], 1000)})
    (finding,) = category_code_findings(X.astype(float))
    assert (finding.level, finding.check) == ("note", "codes")
    assert finding.message == (
        "whole numbers that may be codes of categories: a (8 values: 1110, 1121, 1122, …), "
        "b (3 values: 111, 112, 120): if so, list them in categorical"
    )


@pytest.mark.parametrize("name", ["adult", "bank"])
def test_nothing_is_asked_about_published_data(name):
    assert find_category_codes(load_dataset(name).X) == {}
