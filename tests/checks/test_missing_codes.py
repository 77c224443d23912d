"""Values that may mean "no value", in columns made to hold them or not."""

from __future__ import annotations

import tomllib

import numpy as np
import pandas as pd
import pytest

from mfairfl.checks.codes import find_missing_codes, missing_code_lines
from mfairfl.data import Task, load_dataset

RNG = np.random.default_rng(8)
AGES = RNG.integers(18, 81, 400)
HEAVY = RNG.lognormal(3, 1, 400).round()


def with_codes(values, *codes):
    return np.concatenate([values, np.repeat(codes, 5)]).astype(float)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (with_codes(AGES, -9), ("-9",)),
        (with_codes(AGES, -1), ("-1",)),
        (with_codes(AGES, -99, -98 - 1), ("-99",)),
        (with_codes(AGES, 999), ("999",)),
        (with_codes(AGES, 99), ("99",)),
        (with_codes(AGES, 98, 99), ("98", "99")),
        (with_codes(AGES, -9, 999), ("-9", "999")),
        (with_codes(RNG.integers(1, 6, 400), 9), ("9",)),
        (with_codes(RNG.integers(0, 2, 400), 9), ("9",)),
        (with_codes(RNG.normal(size=400), -999), ("-999",)),  # below other negative numbers
        (with_codes(-RNG.integers(1, 18_000, 400), 365_243), ("365243",)),
        (with_codes(RNG.normal(245, 40, 400).round().clip(85), 0), ("0",)),  # cholesterol
    ],
)
def test_numbers_that_may_mean_missing(values, codes):
    (found,) = find_missing_codes(pd.DataFrame({"x": values}))
    assert found.codes == codes
    assert found.rows == sum((values == float(code)).sum() for code in codes)


@pytest.mark.parametrize(
    "values",
    [
        AGES,
        RNG.normal(size=400),  # numbers below zero, without a code
        RNG.choice([-1, 0, 1], 400),  # an answer
        RNG.integers(-2, 9, 400),  # months paid early or late
        RNG.integers(1, 100, 400),  # 99 is the next one
        RNG.integers(0, 10, 400),
        RNG.poisson(1, 400),  # zero is a count
        np.append(np.zeros(380), RNG.integers(100, 5000, 20)),  # rare gains
        HEAVY,
        np.append(AGES, 120),  # one odd value is no code
        RNG.integers(-9000, 90_000, 400),
    ],
)
def test_plain_numbers_are_not_taken_for_codes(values):
    assert find_missing_codes(pd.DataFrame({"x": np.asarray(values, dtype=float)})) == []


def test_texts_that_may_mean_missing():
    jobs = ["cook", "clerk"] * 20
    X = pd.DataFrame({"job": [*jobs, "NA", "unknown", "N/A", "-"], "town": [*jobs, *"abcd"]})
    (found,) = find_missing_codes(X)
    assert (found.column, found.codes, found.rows) == ("job", ("-", "N/A", "NA", "unknown"), 4)


def test_proposed_line_is_valid_in_a_task():
    X = pd.DataFrame({"age of entry": with_codes(AGES, -9)})
    (line,) = missing_code_lines(find_missing_codes(X))
    low, high = AGES.min(), AGES.max()
    assert line == (
        f"column 'age of entry': -9 in 5 rows; the others are {low} to {high}: if it means "
        'missing, add columns."age of entry".missing_codes = ["-9"] to [task]'
    )
    offered = line.split("add ")[1].removesuffix(" to [task]")
    given = tomllib.loads(f'label = "y"\nfavourable = "1"\nsensitive = ["s"]\n{offered}\n')
    assert Task.model_validate(given).rules("age of entry").missing_codes == ("-9",)


def test_a_code_in_many_columns_is_one_line():
    X = pd.DataFrame({f"q{i}": with_codes(RNG.integers(1, 6, 400), 99) for i in range(40)})
    assert missing_code_lines(find_missing_codes(X)) == [
        "99 outside the other values of 40 columns, q0 (5 rows), q1 (5 rows), q2 (5 rows) and 37 "
        'more: if it means missing, add missing_codes = ["99"] to [task]'
    ]


def test_findings_on_published_data():
    """Both are right: 99999 is where gains were cut off, -1 is "never called before"."""
    said = {name: find_missing_codes(load_dataset(name).X) for name in ("adult", "bank")}
    assert [(f.column, f.codes, f.rows) for f in said["adult"]] == [
        ("capital-gain", ("99999",), 244)
    ]
    assert [(f.column, f.codes) for f in said["bank"]] == [
        ("pdays", ("-1",)),
        *((column, ("unknown",)) for column in ("job", "education", "contact", "poutcome")),
    ]
