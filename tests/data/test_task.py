from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from answers import one_line
from mfairfl.data import Bin, Sensitive, Task, canonical_text
from mfairfl.errors import ConfigError

AGE = Bin(name="25-60", min=25, max=60)


def task(**changes: object) -> Task:
    return Task(**({"label": "y", "favourable": 1, "sensitive": ("sex",)} | changes))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.0, "1"),
        ("1", "1"),
        (" 1.00 ", "1"),
        (np.float32(1), "1"),
        (np.int8(1), "1"),
        (-3.0, "-3"),
        (-0.0, "0"),
        ("-0.0", "0"),
        (10**17, "100000000000000000"),
        (1e17, "100000000000000000"),
        (0.1, "0.1"),
        (np.float32(0.1), "0.1"),
        ("1.50", "1.50"),
        ("007", "007"),
        ("01.0", "01.0"),
        (" >50K ", ">50K"),
        (True, "True"),
        (np.True_, "True"),
        (None, "?"),
        (float("nan"), "?"),
        ("", "?"),
        ("  ", "?"),
        ("?", "?"),
    ],
)
def test_canonical_text(value, text):
    assert canonical_text(value) == text


@pytest.mark.parametrize("value", [1, 1.0, "1", "1.0", np.int64(1)])
def test_ways_to_write_the_favourable_value_agree(value):
    assert task(favourable=value) == task(favourable="1")


def test_a_task_survives_json():
    given = task(
        sensitive=(Sensitive(column="age", bins=(AGE,), rest="other", name="years"), "sex"),
        numeric=("age",),
        categorical=("sex",),
        client="site",
        missing="drop",
    )
    assert Task.model_validate_json(given.model_dump_json()) == given


def test_name_defaults_to_the_column():
    assert Sensitive(column="age").name == "age"
    assert Sensitive(column="age", name="years").name == "years"


@pytest.mark.parametrize(
    ("sensitive", "levels"),
    [
        ({}, ()),
        ({"bins": (AGE,), "rest": "other"}, ("25-60", "other")),
        ({"bins": (AGE,), "rest": "other", "groups": ("other", "25-60")}, ("other", "25-60")),
        ({"groups": ("b", "a")}, ("b", "a")),
        ({"groups": ("b", "a"), "rest": "c"}, ("b", "a", "c")),
    ],
)
def test_levels(sensitive, levels):
    assert Sensitive(column="age", **sensitive).levels == levels


def test_intervals_are_closed():
    assert [AGE.contains(x) for x in (24.99, 25, 60, 60.01)] == [False, True, True, False]
    assert Bin(name="young", max=24).contains(-1e9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Bin(name="a"), ["'a'", "values", "min"]),
        (lambda: Bin(name="a", values=("x",), min=1), ["'a'", "either"]),
        (lambda: Bin(name="a", values=()), ["'a'", "empty"]),
        (lambda: Bin(name="a", min=3, max=1), ["'a'", "min 3", "max 1"]),
        (lambda: Sensitive(column="age", rest="other"), ["'age'", "'other'", "bins"]),
        (
            lambda: Sensitive(column="age", bins=(AGE, Bin(name="old", min=60))),
            ["'25-60'", "'old'", "60"],
        ),
        (
            lambda: Sensitive(column="age", bins=(AGE, Bin(name="x", values=(30,)))),
            ["'25-60'", "'x'", "30"],
        ),
        (
            lambda: Sensitive(
                column="r", bins=(Bin(name="x", values=("p", "q")), Bin(name="y", values=("q",)))
            ),
            ["'x'", "'y'", "q"],
        ),
        (lambda: Sensitive(column="age", bins=(AGE,), rest="25-60"), ["'25-60'", "twice"]),
        (lambda: Sensitive(column="age", bins=(AGE,), groups=("young",)), ["young", "25-60"]),
        (lambda: task(favourable=None), ["None", "single value"]),
        (lambda: task(favourable=[1]), ["[1]", "single value"]),
        (lambda: task(sensitive=("sex", "sex")), ["'sex'", "name="]),
        (lambda: task(sensitive=("y",)), ["'y'", "sensitive"]),
        (lambda: task(numeric=("age",), categorical=("age",)), ["'age'", "twice"]),
        (lambda: task(numeric=("y",)), ["label", "'y'"]),
        (lambda: task(client="site", categorical=("site",)), ["client", "'site'"]),
        (lambda: task(client="y"), ["'y'", "client"]),
        (lambda: task(numeric=("age",), ignore=("age",)), ["'age'", "ignored"]),
        (lambda: task(unfavourable=1.0), ["'1'", "unfavourable"]),
    ],
)
def test_contradictions_are_refused_in_one_line(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    message = one_line(caught)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "changes",
    [{"favorable": 1}, {"missing": "keep"}, {"sensitive": ({"col": "sex"},)}],
)
def test_unknown_keys_and_options_are_refused(changes):
    with pytest.raises(ValidationError):
        task(**changes)


def test_a_task_cannot_be_changed():
    with pytest.raises(ValidationError):
        task().label = "z"


def test_one_sensitive_column_needs_no_list():
    listed = Task(label="hired", favourable="yes", sensitive=("sex",))
    assert Task(label="hired", favourable="yes", sensitive="sex") == listed
