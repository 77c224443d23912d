"""Columns that differ between clients: from rows and from sums, by the same rules."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.data import differences
from mfairfl.data.differences import (
    ClientColumn,
    columns_of_sums,
    difference_lines,
    find_differences,
)
from mfairfl.data.sums import EncoderStatistics, NumericStatistics

RNG = np.random.default_rng(2)
BEGINNING = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    RNG.bit_generator.state = BEGINNING


def of_rows(numbers):
    return ClientColumn.numbers(np.asarray(numbers, dtype=float))


def of_sums(numbers):
    return ClientColumn.sums(NumericStatistics.of(np.asarray(numbers, dtype=float)))


def found(describe, **clients):
    compared = find_differences({"x": {name: describe(x) for name, x in clients.items()}})
    return [(one.kind, one.clients) for one in compared]


def normal(mean, deviation, rows=90):
    return RNG.normal(mean, deviation, rows)


def drawn(shape, rows=90):
    return RNG.exponential(40, rows) if shape is None else normal(*shape, rows=rows)


@pytest.mark.parametrize("describe", [of_rows, of_sums])
@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        ((171, 9), lambda x: x / 100),  # metres
        ((171, 9), lambda x: x / 2.54),  # inches
        ((75, 15), lambda x: x / 0.4536),  # pounds
        ((6.2, 1.2), lambda x: x * 38.67),  # mg/dl
        ((30, 8), lambda x: 12 * x),  # months
        ((3000, 900), lambda x: x / 1000),
        ((37, 0.7), lambda x: 1.8 * x + 32),
        ((12, 8), lambda x: 1.8 * x + 32),
        (None, lambda x: 100 * x),  # with a long tail
        (None, lambda x: x / 12),
    ],
)
def test_other_units_at_one_client(describe, usual, odd):
    others = {name: drawn(usual) for name in ("a", "b", "c")}
    assert found(describe, **others, odd=odd(drawn(usual))) == [("units", ("odd",))]
    # Of two clients the larger one is the usual one.
    pair = {"a": drawn(usual, rows=100), "odd": odd(drawn(usual))}
    assert found(describe, **pair) == [("units", ("odd",))]


@pytest.mark.parametrize("describe", [of_rows, of_sums])
@pytest.mark.parametrize(
    "values",
    [
        {"a": normal(50, 12), "b": normal(62, 12), "c": normal(38, 12)},  # older and younger
        {"a": RNG.lognormal(10, 0.5, 90), "b": RNG.lognormal(10.5, 0.5, 90)},  # richer
        {"a": RNG.poisson(0.2, 90), "b": RNG.poisson(2, 90)},
        {"a": RNG.exponential(40, 90), "b": RNG.exponential(90, 90)},
        {"a": np.zeros(90), "b": np.append(np.zeros(88), [5000, 7000])},  # rare gains
        {"a": normal(0, 1), "b": normal(0.4, 1)},
        {"a": normal(171, 9), "b": normal(1.71, 0.09, 29)},  # too few to judge, said elsewhere
    ],
)
def test_clients_may_differ_as_people_do(describe, values):
    assert [kind for kind, _ in found(describe, **values) if kind != "rows"] == []


@pytest.mark.parametrize("describe", [of_rows, of_sums])
def test_one_value_where_the_others_vary(describe):
    usual = {"a": normal(245, 50), "b": normal(245, 50)}
    assert found(describe, **usual, z=np.zeros(60)) == [("constant", ("z",))]
    both = found(describe, **usual, y=np.zeros(60), z=np.zeros(60))
    assert both == [("constant", ("y", "z"))]
    mean = np.full(60, np.concatenate(list(usual.values())).mean())  # as a gap was filled
    assert found(of_rows, **usual, z=mean) == [("constant", ("z",))]
    # Two of a hundred rows hold another value elsewhere: none of forty is no surprise.
    rare = np.append(np.zeros(98), [1, 1])
    assert found(describe, a=rare, b=rare, z=np.zeros(40)) == []


def test_the_share_from_sums_is_a_bound():
    """Sums do not tell how many rows hold a value, but how many can at most."""
    for _ in range(20):
        x = RNG.choice([0, 1, 5, 40], (2, 200), p=RNG.dirichlet([2, 1, 1, 1]))
        most = differences._share("1", 1.0, [of_sums(part) for part in x])
        assert (x == 1).mean() <= most + 1e-12
    assert differences._share("0", 0.0, [of_sums([0] * 60 + [7] * 40)]) == pytest.approx(0.6)


@pytest.mark.parametrize("describe", [of_rows, of_sums])
def test_no_value_at_one_client(describe):
    gaps = np.append(np.full(96, np.nan), [3, 4])
    usual = {"a": normal(3, 1), "b": normal(3, 1)}
    assert found(describe, **usual, z=np.full(50, np.nan), y=gaps) == [("empty", ("z", "y"))]
    half = np.append(np.full(50, np.nan), normal(3, 1, 50))
    assert found(describe, **usual, z=half) == []


def test_a_small_client():
    assert found(of_rows, a=normal(3, 1), b=normal(3, 1, 3)) == [("rows", ("b",))]


def test_categories_that_only_one_client_has():
    plain = ClientColumn.categories({"f": 50, "m": 40})
    sites = {"a": plain, "b": plain, "odd": ClientColumn.categories({"female": 44, "male": 46})}
    assert [(d.kind, d.clients) for d in find_differences({"x": sites})] == [
        ("spelling", ("odd",))
    ]
    partly = sites | {"odd": ClientColumn.categories({"f": 30, "m": 30, "d": 30})}
    assert find_differences({"x": partly}) == []


def test_categories_that_never_change_at_one_client():
    plain = ClientColumn.categories({"f": 50, "m": 40})
    sites = {"a": plain, "b": plain, "z": ClientColumn.categories({"f": 60})}
    assert [(d.kind, d.clients) for d in find_differences({"x": sites})] == [("constant", ("z",))]
    # The groups of a sensitive column may live apart.
    assert find_differences({"x": sites}, sensitive=["x"]) == []


def test_a_column_that_names_the_client():
    sites = {name: ClientColumn.categories({name.upper(): 50}) for name in "abc"}
    (one,) = find_differences({"state": sites})
    assert one.message == (
        "column 'state' has one value at each client: it names the client, list it in ignore"
    )


def test_sums_of_clients_are_compared_column_by_column():
    def sums(numbers, levels):
        return EncoderStatistics({"chol": NumericStatistics.of(numbers)}, {"thal": levels})

    usual = {"fixed": 40, "normal": 50}
    sites = {
        "a": sums(normal(245, 50), usual),
        "b": sums(normal(245, 50), {"?": 90}),
        "z": sums(np.zeros(90), usual),
    }
    lines = [line for _, line in difference_lines(find_differences(columns_of_sums(sites)))]
    assert lines == [
        "column 'chol' is always 0 at z (90 rows) and varies elsewhere: if 0 means missing, add "
        'columns.chol.missing_codes = ["0"] to [task]',
        "column 'thal' has no value at b (90 of 90 rows): list it in ignore, or fill it in there",
    ]


def test_many_like_findings_are_one_line():
    held = {f"site-{i:03d}": of_rows(normal(3, 1, 3)) for i in range(300)}
    usual = {f"big-{i}": of_rows(normal(3, 1)) for i in range(2)}
    lines = difference_lines(find_differences({f"x{i}": usual | held for i in range(5)}))
    assert lines == [
        (
            "rows",
            "300 clients have fewer than 30 rows: site-000 (3), site-001 (3), site-002 (3) and "
            "297 more: merge with others or leave out",
        )
    ]
    columns = {f"x{i}": usual | {"z": of_rows(np.full(60, 7.0))} for i in range(12)}
    ((kind, line),) = difference_lines(find_differences(columns))
    assert kind == "constant"
    assert line.startswith("12 columns never change at z: x0, x1, x2 and 9 more: if their value")
