"""Rows of clients, and codes of missing values that one of them uses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mfairfl.checks.column_checks import compare_clients, missing_codes_by_client, rows_by_client
from mfairfl.data import Task, load_dataset, partition, table_from_frame

TASK = Task(label="hired", favourable=1, sensitive=("sex",), client="site")


def people():
    rng = np.random.default_rng(12)
    n = 400
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, n).astype(float),
            "job": rng.choice(["clerk", "cook"], n),
            "sex": rng.choice(["f", "m"], n),
            "site": np.repeat(["a", "b", "c", "d"], n // 4),
            "hired": rng.integers(0, 2, n),
        }
    )


def test_rows_of_a_table_and_of_its_federation_are_the_same():
    table = table_from_frame(people(), TASK)
    ours, theirs = rows_by_client(table), rows_by_client(partition(table))
    assert list(ours) == list(theirs) == ["a", "b", "c", "d"]
    for name, rows in ours.items():
        assert rows.tolist() == theirs[name].tolist()
        assert set(table.clients[rows]) == {name}


def test_a_code_that_one_client_uses_is_named_with_it():
    frame = people()
    frame.loc[[105, 109, 113], "age"] = -9
    frame.loc[[205, 209], "job"] = "n/a"
    table = table_from_frame(frame, TASK)
    found = missing_codes_by_client(table, rows_by_client(table))
    assert [(one.column, one.codes, one.rows, one.clients) for one in found] == [
        ("age", ("-9",), 3, ("b",)),
        ("job", ("n/a",), 2, ("c",)),
    ]


def test_code_that_stands_out_only_within_a_client():
    frame = people()
    frame["age"] = np.where(frame["site"] == "b", frame["age"], frame["age"] * 20)
    frame.loc[100:107, "age"] = 999
    frame.loc[frame["age"].between(999, 999) & (frame["site"] != "b"), "age"] = 1000
    table = table_from_frame(frame, TASK)
    (found,) = missing_codes_by_client(table, rows_by_client(table))
    assert (found.codes, found.rows, found.clients) == (("999",), 8, ("b",))


def test_code_of_all_clients_names_none():
    frame = people()
    frame.loc[::10, "age"] = -9
    table = table_from_frame(frame, TASK)
    (found,) = missing_codes_by_client(table, rows_by_client(table))
    assert (found.rows, found.clients) == (40, ())


@pytest.mark.parametrize("scheme", ["iid", "high", "low", "dirichlet"])
@pytest.mark.parametrize("name", ["adult", "bank"])
def test_published_data_give_no_difference(name, scheme):
    table = load_dataset(name)
    clients = rows_by_client(partition(table, scheme))
    assert compare_clients(table, clients) == []
