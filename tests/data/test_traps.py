"""Features that are none: columns made to name rows, repeat others, or say nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.data import Task, load_dataset, table_from_frame
from mfairfl.data.traps import find_traps, trap_lines, traps_of

N = 600
RNG = np.random.default_rng(1)


def kinds(**columns):
    found = find_traps(pd.DataFrame(columns), None, {})
    return {trap.column: trap.kind for trap in found}


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("row", np.arange(N), "identifier"),
        ("row", RNG.permutation(np.arange(5 * N))[:N], "identifier"),  # gaps, no repeats
        ("EmployeeNumber", RNG.integers(1, 10 * N, N), "identifier"),  # the name tells
        ("id_student", np.repeat(RNG.permutation(10**6)[: N // 2], 2), "identifier"),
        ("customerID", RNG.integers(10**8, 10**9, N), "identifier"),
        ("stamp", RNG.permutation(10**9 + 7 * np.arange(N) ** 2), "unique"),  # a question only
        ("bill", RNG.integers(-90_000, 170_000, N), None),  # nobody is number -12
        ("pay", RNG.integers(900, 170_000, N), None),
        ("income", RNG.integers(10_000, 200_000, N // 6).repeat(6), None),
        ("income", np.round(RNG.lognormal(10, 0.5, N), -1), None),
        ("weight", RNG.lognormal(4, 0.2, N), None),  # numbers with decimals are measured
        ("year", 1990 + np.arange(N) % 30, None),
        ("age", RNG.integers(18, 80, N), None),
        ("NumberOfCars", RNG.integers(0, 5, N), None),
        ("education-num", RNG.integers(1, 17, N), None),
    ],
)
def test_numbers_that_name_rows(name, values, kind):
    assert kinds(**{name: np.asarray(values, dtype=float)}).get(name) == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([f"person {i}" for i in range(N)], "identifier"),
        ([f"ticket {2 * i // 3}" for i in range(N)], "identifier"),
        ([f"ticket {i // 2}" for i in range(N)], None),
        ([f"street {i % 50}" for i in range(N)], None),
        (["?"] * (N - 100) + [f"cabin {i}" for i in range(100)], "identifier"),
        (["?"] * (N - 10) + [f"cabin {i}" for i in range(10)], None),  # too few to tell
    ],
)
def test_texts_that_name_rows(values, kind):
    assert kinds(text=values).get("text") == kind


def test_repeats_are_compared_with_evenly_spread_numbers():
    """600 draws of 3,000 numbers repeat about 56 times; 600 numbers given out never do."""
    drawn = np.random.default_rng(4).integers(0, 3000, N).astype(float)
    expected = N - 3000 * (1 - (1 - 1 / 3000) ** N)
    assert N - len(np.unique(drawn)) == pytest.approx(expected, abs=3 * np.sqrt(expected))
    assert kinds(a=drawn) == {}
    half = np.random.default_rng(4).permutation(3000)[:N].astype(float)
    assert kinds(a=half) == {"a": "identifier"}


def test_constant_columns():
    gaps = ["Y"] * (N - 1) + ["?"]
    found = kinds(hours=np.full(N, 80.0), over18=["Y"] * N, varied=gaps, known=[1.0, np.nan] * 300)
    assert found == {"hours": "constant", "over18": "constant"}


def test_a_column_that_repeats_another():
    level = RNG.integers(0, 9, N)
    height = RNG.normal(171, 9, N)
    X = pd.DataFrame(
        {
            "level": level.astype(float),
            "height": height,
            "inches": height / 2.54,
            "noisy": height + RNG.normal(0, 3, N),
            "name": [f"grade {i}" for i in level],
            "merged": [f"part {i // 2}" for i in level],
        }
    )
    found = {(t.kind, t.column, t.of) for t in find_traps(X, None, {})}
    assert found == {("duplicate", "name", "level"), ("duplicate", "inches", "height")}


def test_a_few_huge_values_in_two_columns_do_not_make_them_one():
    a, b = RNG.normal(size=N), RNG.normal(size=N)
    a[:3] = b[:3] = 1e9
    assert np.corrcoef(a, b)[0, 1] > 0.9999
    assert kinds(a=a, b=b) == {}


def test_columns_that_differ_in_every_row_are_no_copies():
    assert kinds(a=RNG.normal(size=N), b=RNG.normal(size=N)) == {}


def frame():
    sex = RNG.choice(["f", "m"], N)
    return pd.DataFrame(
        {
            "title": np.where(sex == "f", "Ms", "Mr"),
            "sex": sex,
            "x": RNG.normal(size=N),
            "hired": RNG.integers(0, 2, N),
        }
    )


def test_of_a_pair_the_sensitive_column_stays():
    table = table_from_frame(frame(), Task(label="hired", favourable=1, sensitive=("sex",)))
    assert [(t.kind, t.column, t.of) for t in traps_of(table)] == [("duplicate", "title", "sex")]


def test_a_proxy_of_a_column_that_is_kept_out():
    task = Task(label="hired", favourable=1, sensitive=("sex",), sensitive_as_features=False)
    found = traps_of(table_from_frame(frame(), task))
    assert trap_lines(found) == [
        (
            "proxy",
            "column 'title' repeats a sensitive column that is kept out (one value for each group "
            "of sex): list it in ignore",
        )
    ]


def test_a_column_that_decides_the_label():
    given = frame()
    given["contract"] = np.where(RNG.random(N) < 0.97, given["hired"], 1 - given["hired"])
    table = table_from_frame(given, Task(label="hired", favourable=1, sensitive=("sex",)))
    (trap,) = [t for t in traps_of(table) if t.kind == "label"]
    right = (given["contract"] == given["hired"]).mean()
    assert trap.column == "contract"
    assert trap.why.startswith(f"accuracy {right:.3f}, that of the constant classifier 0.5")


def test_many_columns_of_a_kind_are_one_line():
    X = pd.DataFrame({f"c{i}": ["same"] * N for i in range(14)})
    ((kind, line),) = trap_lines(find_traps(X, None, {}))
    assert kind == "constant"
    assert line.startswith("14 columns never change: c0 (same), c1 (same)")
    assert line.endswith("c9 (same) and 4 more: list them in ignore")


@pytest.mark.parametrize("name", ["adult", "bank"])
def test_no_alarm_on_published_data(name):
    assert traps_of(load_dataset(name)) == []


def test_adults_weights_are_measured_and_its_education_is_there_twice():
    table = load_dataset("adult", fnlwgt=True, education=True)
    assert [(t.kind, t.column, t.of) for t in traps_of(table)] == [
        ("duplicate", "education", "education-num")
    ]


def test_dates_and_amounts_without_a_gap_are_no_names_of_rows():
    days = pd.date_range("2020-01-01", periods=N).strftime("%d.%m.%Y")
    pay = [f"{amount:,}" for amount in RNG.permutation(np.arange(900, 900 + N))]
    given = frame().assign(since=days, pay=pay)
    table = table_from_frame(given, Task(label="hired", favourable=1, sensitive=("sex",)))
    assert {"since", "pay"} < set(table.task.numeric)
    assert not {"since", "pay"} & {trap.column for trap in traps_of(table)}
