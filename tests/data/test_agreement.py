"""One task over files that stay where they are; who does not fit is told what differs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.data import Task, table_from_frame
from mfairfl.data.agreement import agree, describe_columns
from mfairfl.data.columns import columns_of
from mfairfl.data.files import read_frame
from mfairfl.errors import DataError

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))


def frame(n=40, seed=0, **columns):
    rng = np.random.default_rng(seed)
    given = {
        "age": rng.integers(20, 60, n),
        "job": rng.choice(["cook", "nurse"], n),
        "sex": rng.choice(["f", "m"], n),
        "hired": rng.choice(["no", "yes"], n),
    }
    made = pd.DataFrame(given | columns)
    return made[[c for c in made.columns if made[c].notna().any()]]


def profile(name, rows, task=TASK, floor=1):
    return describe_columns(columns_of(read_frame(rows), name), task, name, floor=floor)


def test_the_agreed_task_is_that_of_the_pooled_table():
    parts = [frame(seed=seed) for seed in range(3)]
    found = agree([profile(str(i), part) for i, part in enumerate(parts)], TASK)
    pooled = table_from_frame(pd.concat(parts, ignore_index=True), TASK, name="all").task
    assert found.refused == {}
    assert set(found.task.numeric) == set(pooled.numeric)
    assert set(found.task.categorical) == set(pooled.categorical)
    assert found.task.unfavourable == pooled.unfavourable
    assert found.task.sensitive == pooled.sensitive
    assert found.task.resolved
    for i, part in enumerate(parts):
        assert table_from_frame(part, found.task, name=str(i)).task == found.task


def counted(column):
    return column.model_dump(include={"values", "texts", "missing"})


JOBS = ["cook"] * 20 + ["nurse"] * 18 + ["astronaut"] * 2


def test_without_a_floor_every_value_is_named_and_counted():
    found = profile("a", frame(job=JOBS)).among(["job"])[0]
    assert found.levels == {"cook": 20, "nurse": 18, "astronaut": 2}
    assert counted(found) == {"values": 40, "texts": 40, "missing": 0}


def test_with_a_floor_values_in_enough_rows_are_named_and_nothing_is_counted():
    ages = [None, "old", *range(20, 60)]
    rows = frame(42, job=[*JOBS, "", ""], age=ages)
    found = profile("a", rows, floor=3)
    assert (found.rows, found.floor) == (50, 3)  # rounded up
    for name, levels in {"job": {"cook": 3, "nurse": 3}, "age": {}}.items():
        column = found.among([name])[0]
        assert column.levels == levels
        assert counted(column) == {"values": 50, "texts": 0, "missing": 0}
    assert "astronaut" not in found.model_dump_json()
    assert found.among(["age"])[0].numeric == profile("a", rows).among(["age"])[0].numeric


@pytest.mark.parametrize("more", [0, 1])
def test_a_profile_with_a_floor_is_that_of_a_file_with_a_row_more(more):
    """One row more: it has a value that few rows hold, or none, or it is the first without one."""
    rows = frame(job=JOBS)
    one = pd.DataFrame({"age": [None], "job": ["pilot"], "sex": ["x"], "hired": ["no"]})
    both = [rows.iloc[more:], pd.concat([rows, one.astype(object)], ignore_index=True).iloc[1:]]
    first, second = (profile("a", given, floor=3) for given in both)
    assert first == second


@pytest.mark.parametrize(("held", "floor"), [(9, 10), (10, 10), (11, 10), (2, 3), (3, 3)])
def test_a_value_is_named_from_the_floor_on(held, floor):
    jobs = ["cook"] * (40 - held) + ["pilot"] * held
    named = profile("a", frame(job=jobs), floor=floor).among(["job"])[0].levels
    assert named == dict.fromkeys(["cook", "pilot"] if held >= floor else ["cook"], floor)


@pytest.mark.parametrize(
    ("rows", "told"), [(1, 10), (10, 10), (11, 20), (99, 100), (100, 100), (1701, 1800)]
)
def test_with_a_floor_two_digits_of_the_rows_are_told(rows, told):
    assert profile("a", frame(rows), floor=2).rows == told
    assert profile("a", frame(rows)).rows == rows


def test_a_column_without_any_value_is_told_as_such():
    empty = frame().assign(age=None)
    found = profile("a", empty, floor=3).among(["age"])[0]
    assert counted(found) == {"values": 0, "texts": 0, "missing": 40}


def test_a_floor_gives_sensitive_columns_a_group_for_what_is_not_named():
    parts = [profile("a", frame(), floor=3), profile("b", frame(seed=1))]
    assert agree(parts, TASK).task.sensitive[0].groups == ("f", "m", "?")
    assert agree(parts[1:], TASK).task.sensitive[0].groups == ("f", "m")
    few = profile("c", frame(sex=["f"] * 20 + ["m"] * 18 + ["x"] * 2), floor=3)
    found = agree([*parts, few], TASK)
    assert found.refused == {}
    assert found.task.sensitive[0].groups == ("f", "m", "?")


def test_numbers_are_not_listed():
    assert profile("a", frame()).among(["age"])[0].levels == {}


def test_a_value_that_one_file_alone_holds_becomes_a_group_of_all():
    other = frame(seed=1, sex=["d"] * 10 + ["f"] * 15 + ["m"] * 15)
    found = agree([profile("a", frame()), profile("b", other)], TASK)
    assert found.task.sensitive[0].groups == ("d", "f", "m")
    assert found.refused == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"age": None, "Age": range(40)}, "unknown column 'age': did you mean 'Age'?"),
        (
            {"age": ["x"] * 2 + ["30"] * 38},
            "column 'age': 2 of 40 values are not numbers; the other files hold numbers",
        ),
        (
            {"hired": ["no", "maybe"] * 20},
            "label column 'hired' holds 'maybe'; agreed are 'yes' and 'no'",
        ),
        (
            {"sex": ["f"] * 39 + ["x"]},
            "sensitive column 'sex' holds 'x'; agreed groups are f, m: add bins, or rest",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_told_what_differs(changes, message):
    task = TASK
    if "sex" in changes:  # groups that are given: a file adds none
        given = {"column": "sex", "groups": ["f", "m"]}
        task = Task(label="hired", favourable="yes", sensitive=(given,))
    fitting = [profile(name, frame(seed=i), task) for i, name in enumerate("abc")]
    odd = profile("odd", frame(seed=9, **changes), task)
    found = agree([*fitting, odd], task)
    assert list(found.refused) == ["odd"]
    assert any(message in line for line in found.refused["odd"])


def test_a_column_that_few_files_have_is_left_out_and_named():
    profiles = [profile("a", frame()), profile("b", frame(seed=1)), profile("c", frame(zip=1))]
    found = agree(profiles, TASK)
    assert "zip" not in (*found.task.numeric, *found.task.categorical)
    assert found.notes == ("column 'zip' is in 1 of 3 files: left out",)


def test_a_file_with_one_label_value_takes_part():
    found = agree([profile("a", frame()), profile("b", frame(hired="no"))], TASK)
    assert found.refused == {}
    assert found.task.unfavourable == "no"


def test_files_that_name_no_second_label_value_are_refused_together():
    with pytest.raises(DataError, match="names a value other than 'yes'"):
        agree([profile("a", frame(hired="yes"))], TASK)


# ------------------------------------------------------------------ not recorded


def without(*columns, seed=0):
    return frame(seed=seed).drop(columns=list(columns))


def test_a_file_that_lacks_a_sensitive_column_takes_part():
    parts = {"a": without("sex"), "b": frame(seed=1), "c": frame(seed=2)}
    found = agree([profile(name, part) for name, part in parts.items()], TASK)
    assert found.refused == {}
    assert found.task.sensitive[0].groups == ("f", "m", "?")
    assert "sex" in found.task.categorical
    pooled = pd.concat(parts.values(), ignore_index=True)
    table = table_from_frame(pooled, found.task, name="all")
    assert np.bincount(table.groups[:, 0]).sum() == 120
    assert np.bincount(table.groups[:, 0])[2] == 40
    # The order of the features, too, is that of the pooled rows.
    given = TASK.model_copy(update={"sensitive": found.task.sensitive})
    assert table_from_frame(pooled, given, name="all").task == found.task
    for name, part in parts.items():
        assert table_from_frame(part, found.task, name=name).task == found.task


def test_a_file_that_lacks_some_values_takes_part():
    some = frame(sex=["f"] * 20 + ["m"] * 17 + [None] * 3)
    found = agree([profile("a", some), profile("b", frame(seed=1))], TASK)
    assert found.refused == {}
    assert found.task.sensitive[0].groups == ("f", "m", "?")


def test_a_sensitive_column_of_one_file_is_a_feature_of_all():
    profiles = [profile("a", frame()), *(profile(n, without("sex", seed=1)) for n in "bcd")]
    found = agree(profiles, TASK)
    assert found.refused == {}
    assert found.notes == ()
    assert "sex" in found.task.categorical


def test_groups_and_bins_that_are_given_get_one_more():
    ages = {"column": "age", "bins": [{"name": "old", "min": 40}], "rest": "young"}
    sexes = {"column": "sex", "groups": ["m", "f", "x"]}
    task = Task(label="hired", favourable="yes", sensitive=(ages, sexes))
    parts = {"a": without("sex"), "b": without("age", seed=1), "c": frame(seed=2)}
    found = agree([profile(name, part, task) for name, part in parts.items()], task)
    assert found.refused == {}
    assert [a.groups for a in found.task.attributes] == [
        ("old", "young", "?"),
        ("m", "f", "x", "?"),
    ]
    sent = Task.model_validate(found.task.model_dump(mode="json"))
    tables = {name: table_from_frame(part, sent, name=name) for name, part in parts.items()}
    assert all(table.task == sent for table in tables.values())
    assert set(tables["b"].groups[:, 0]) == {2}
    expected = np.where(parts["c"]["age"] >= 40, 0, 1)
    assert tables["c"].groups[:, 0].tolist() == expected.tolist()


def test_where_nothing_is_missing_no_group_is_added():
    ages = {"column": "age", "bins": [{"name": "old", "min": 40}], "rest": "young"}
    task = Task(label="hired", favourable="yes", sensitive=(ages,))
    found = agree([profile(n, frame(seed=i), task) for i, n in enumerate("ab")], task)
    assert found.task.attributes[0].groups == ("old", "young")
    assert table_from_frame(frame(), found.task, name="a").task == found.task
    # Nor for the sake of a file that stays out for another reason.
    odd = without("age").assign(hired=["no", "maybe"] * 20)
    found = agree([*(profile(n, frame(), task) for n in "ab"), profile("c", odd, task)], task)
    assert list(found.refused) == ["c"]
    assert found.task.attributes[0].groups == ("old", "young")


@pytest.mark.parametrize(
    ("task", "part"),
    [
        (TASK, without("sex").assign(Sex="f")),  # misspelt rather than lacking
        (TASK.model_copy(update={"missing": "drop"}), without("sex")),
        (TASK.model_copy(update={"missing": "error"}), without("sex")),
        (
            Task(
                label="hired",
                favourable="yes",
                sensitive=(
                    {
                        "column": "sex",
                        "bins": [
                            {"name": "told", "values": ["f", "m"]},
                            {"name": "not told", "values": ["?"]},
                        ],
                    },
                ),
            ),
            without("sex"),
        ),
    ],
    ids=["misspelt", "drop", "error", "a group of its own"],
)
def test_where_a_missing_value_means_something_else_the_column_is_needed(task, part):
    parts = {"a": frame(), "b": frame(seed=1), "odd": part}
    found = agree([profile(name, rows, task) for name, rows in parts.items()], task)
    assert list(found.refused) == ["odd"]
    assert any("unknown column 'sex'" in line for line in found.refused["odd"])
    assert "?" not in found.task.attributes[0].groups


@pytest.mark.parametrize("policy", ["level", "drop", "error"])
def test_a_task_that_names_the_gap_allows_it_under_any_policy(policy):
    gaps = {"sensitive": [{"column": "sex", "groups": ("?", "f", "m")}], "missing": policy}
    task = TASK.model_validate(TASK.model_dump() | gaps)
    parts = {"a": frame(), "b": without("sex", seed=1)}
    found = agree([profile(name, rows, task) for name, rows in parts.items()], task)
    assert found.refused == {}
    assert found.task.attributes[0].groups == ("?", "f", "m")
    assert set(table_from_frame(parts["b"], found.task, name="b").groups[:, 0]) == {0}


@pytest.mark.parametrize("groups", [None, ("f", "m")])
def test_some_file_must_hold_the_column(groups):
    task = TASK.model_validate(
        TASK.model_dump() | {"sensitive": [{"column": "sex", "groups": groups}]}
    )
    with pytest.raises(DataError, match=r"no file .*holds"):
        agree([profile(name, without("sex"), task) for name in "ab"], task)
