"""One task over files that stay where they are; who does not fit is told what differs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.data import Task, table_from_frame
from mfairfl.data.columns import columns_of
from mfairfl.data.joining import agree, describe_columns
from mfairfl.data.reading import read_frame
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


def profile(name, rows, task=TASK, min_count=3):
    return describe_columns(columns_of(read_frame(rows), name), task, name, min_count=min_count)


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


def test_rare_values_are_counted_and_not_named():
    jobs = ["cook"] * 20 + ["nurse"] * 18 + ["astronaut"] * 2
    found = profile("a", frame(job=jobs)).column("job")
    assert (found.levels, found.rare, found.texts) == ({"cook": 20, "nurse": 18}, 2, 40)
    assert "astronaut" not in profile("a", frame(job=jobs)).model_dump_json()


def test_numbers_are_not_listed():
    assert profile("a", frame()).column("age").levels == {}


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
            "column 'age': 2 of 40 values are no numbers; the other files hold numbers",
        ),
        (
            {"hired": ["no", "maybe"] * 20},
            "label column 'hired' holds 'maybe'; agreed are 'yes' and 'no'",
        ),
        ({"sex": ["f"] * 39 + ["x"]}, "values in too few rows to be named"),
    ],
)
def test_a_file_that_does_not_fit_is_told_what_differs(changes, message):
    fitting = [profile(name, frame(seed=i)) for i, name in enumerate("abc")]
    odd = profile("odd", frame(seed=9, **changes))
    found = agree([*fitting, odd], TASK)
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
    with pytest.raises(DataError, match="names a value beside 'yes'"):
        agree([profile("a", frame(hired="yes"))], TASK)
