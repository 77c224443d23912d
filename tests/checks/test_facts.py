"""What was made of each column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.checks.column_checks import column_facts, frame_of
from mfairfl.data import Task, load_dataset, table_from_frame
from mfairfl.data.columns import columns_of

FRAME = pd.DataFrame(
    {
        "name": [f"person {i}" for i in range(40)],
        "age": ["31", "", "NA", "45"] * 10,
        "pay": ["$1,200.50", "$900.00"] * 20,
        "since": ["2020-05-31", "2021-01-01"] * 20,
        "job": ["cook", "?", "clerk", "cook"] * 10,
        "sex": ["f", "m"] * 20,
        "site": ["north", "south"] * 20,
        "hired": [1, 0, 0, 1] * 10,
    }
)
TASK = Task(label="hired", favourable=1, sensitive=("sex",), ignore=("name",), client="site")


def shown(facts):
    return {one.name: (one.role, one.type, one.missing, one.extent, one.example) for one in facts}


def test_role_type_gaps_values_and_example():
    task = table_from_frame(FRAME, TASK).task
    assert shown(column_facts(FRAME, task)) == {
        "name": ("ignored", "text", 0, "40 texts", "person 0"),
        "age": ("feature", "number", 20, "31 to 45", "31"),
        "pay": ("feature", "number", 0, "900 to 1200.5", "$1,200.50"),
        "since": ("feature", "date", 0, "2 dates", "2020-05-31"),
        "job": ("feature", "category", 10, "2 levels", "cook"),
        "sex": ("sensitive", "category", 0, "2 levels", "f"),
        "site": ("client", "category", 0, "2 levels", "north"),
        "hired": ("label", "category", 0, "2 levels", "1"),
    }


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["31.12.2020", "01.02.2021"], "date"),
        (["07:30", "18:45"], "date"),
        (["2020.12.31", "2021.02.01"], "category"),
        (["2020-12-31", "2020-13-31"] * 6, "category"),
    ],
)
def test_a_column_is_a_date_where_training_reads_its_dates(cells, kind):
    frame = pd.DataFrame({"since": cells, "sex": "f", "hired": "1"})
    facts = {one.name: one for one in column_facts(frame, TASK)}
    assert facts["since"].type == kind
    assert columns_of(frame, "frame")["since"].dated == (kind == "date")


def test_codes_of_missing_values_are_missing():
    given = FRAME.assign(age=[31, -9, -9, 45] * 10)
    task = Task.model_validate(TASK.model_dump() | {"columns": {"age": {"missing_codes": [-9]}}})
    assert shown(column_facts(given, task))["age"] == ("feature", "number", 20, "31 to 45", "31")


def test_columns_without_a_role_are_ignored():
    task = Task.model_validate(TASK.model_dump() | {"numeric": ("age",), "categorical": ("job",)})
    roles = {one.name: one.role for one in column_facts(FRAME, task)}
    assert roles["pay"] == roles["since"] == "ignored"


def test_named_data_set_has_facts():
    table = load_dataset("bank")
    facts = {one.name: one for one in column_facts(frame_of(table), table.task)}
    assert list(facts) == [*table.X.columns, "y"]
    assert (facts["age"].role, facts["age"].low, facts["age"].high) == ("sensitive", 18, 95)
    assert facts["job"].distinct == table.X["job"].nunique()
    assert (facts["y"].role, facts["y"].example) == ("label", "no")


def test_sensitive_column_that_is_not_a_feature_has_facts():
    task = Task.model_validate(TASK.model_dump() | {"sensitive_as_features": False})
    table = table_from_frame(FRAME, task)
    facts = shown(column_facts(frame_of(table), table.task))
    assert facts["sex"] == ("sensitive", "category", 0, "2 levels", "f")
    assert facts["site"][0] == "client"
    assert np.isin(table.y, (0, 1)).all()
