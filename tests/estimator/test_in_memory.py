"""Features, labels, groups and clients side by side, whatever they are called."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import one_line
from mfairfl.data import Task
from mfairfl.errors import DataError
from mfairfl.estimator.in_memory import features_of, labelled_table, labels_of, raw_rows

names = st.text(min_size=1, max_size=4).map(str.strip).filter(bool)
few = st.sampled_from(["a", "a (group)", "client", "label", "=cmd()", "<script>"])
N = 6


@settings(max_examples=40)
@given(
    columns=st.lists(names | few, min_size=1, max_size=4, unique=True),
    label=names | few,
    attributes=st.lists(names | few, min_size=1, max_size=2, unique=True),
    client=names | few,
)
def test_names_of_any_kind_are_told_apart(columns, label, attributes, client):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, len(columns))), columns=columns)
    y = pd.Series(["no", "yes"] * (N // 2), name=label)
    groups = {name: ["f", "f", "m"] * (N // 3) for name in attributes}
    sites = pd.Series(["east", "east", "west"] * (N // 3), name=client)
    table = labelled_table(features_of(X), labels_of(y), groups, sites)
    assert table.X.columns.tolist() == columns
    np.testing.assert_array_equal(table.X.to_numpy(), X.to_numpy())
    assert table.y.tolist() == [0, 1] * (N // 2)
    assert [attribute.name for attribute in table.attributes] == attributes
    assert (table.groups == np.array([[0], [0], [1]] * (N // 3))).all()
    assert table.clients.tolist() == sites.tolist()
    again = raw_rows(
        features_of(X.to_numpy()), columns, table.task, sensitive_features=groups, clients=sites
    )
    assert {*again.columns} == {*columns, *(s.column for s in table.task.sensitive)} | {
        table.task.client
    }
    np.testing.assert_array_equal(again[columns].to_numpy(), X.to_numpy())


def test_the_frame_that_is_given_stays_as_it_is():
    X = pd.DataFrame({"a": [1.0, 2.0], 7: ["x", "y"]}, index=[5, 6])
    before = X.copy()
    table = labelled_table(features_of(X), labels_of([0, 1]), {"a": [1, 2]}, ["s", "s"])
    pd.testing.assert_frame_equal(X, before)
    assert table.X.columns.tolist() == ["a", "7"]
    assert table.task.sensitive[0].column == "a"  # 1.0 and 1 say the same


def test_a_group_of_the_same_name_that_says_otherwise_is_another_column():
    X = features_of(pd.DataFrame({"sex": [0, 1, 0, 1]}))
    table = labelled_table(X, labels_of([0, 1, 1, 0]), {"sex": list("fmfm")}, None)
    assert table.task.sensitive[0].column == "sex (group)"
    assert table.task.numeric == ("sex",)
    assert table.attributes[0].groups == ("f", "m")


def test_types_of_columns():
    frame = pd.DataFrame(
        {
            "number": pd.array([1, None], dtype="Int64"),
            "flag": [True, False],
            "day": pd.to_datetime(["2024-01-01", "2024-01-03"]),
            "word": pd.Categorical(["a", "b"]),
            "digits": ["1.5", "2.5"],
        }
    )
    for X in (frame, pl.from_pandas(frame)):
        task = labelled_table(features_of(X), labels_of([0, 1]), None, None).task
        assert task.numeric == ("number", "day", "digits")
        assert task.categorical == ("flag", "word")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([[1.0], [np.inf]]), "X, row 1, column 'x0': infinity, or a number above 1e+100"),
        (np.array([[1e101], [0]]), "X, row 0, column 'x0': infinity, or"),
        (pd.DataFrame({"a": [1, [2]]}), "X, row 1, column 'a' holds a list: every cell of this"),
        (pd.DataFrame({"a": [1], " a": [2]}), "X: column name 'a' occurs twice: rename one"),
        (pd.DataFrame({"": [1]}), "X: column 1 has no name"),
    ],
)
def test_cells_and_names_that_are_refused(X, message):
    with pytest.raises(DataError) as caught:
        features_of(X)
    assert message in one_line(caught)


def test_new_rows_may_come_without_groups():
    task = Task(label="y", favourable=1, sensitive=("sex",), client="site", numeric=("a",))
    X = features_of([[1.0], [2.0]] @ np.ones((1, 1)))
    assert raw_rows(X, ["a"], task).columns.tolist() == ["a"]
