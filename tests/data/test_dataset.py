"""Data sets of one's own: objects, registered names, one-line refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from mfairfl.cli import app
from mfairfl.data import (
    CATALOG,
    Dataset,
    Task,
    describe,
    find_dataset,
    list_datasets,
    load_dataset,
    register_dataset,
    table_from_frame,
    verify,
)
from mfairfl.errors import ConfigError, DataError

TASK = Task(label="hired", favourable="yes", sensitive=("sex", "team"))
PEOPLE = {
    "age": [31, 45, 27, 52, 38, 60],
    "sex": list("fmfmfm"),
    "team": list("aabbab"),
    "hired": ["yes", "no", "no", "yes", "yes", "no"],
}


def dataset(**changes) -> Dataset:
    given = {"name": "people", "read": lambda path: pd.DataFrame(PEOPLE), "task": TASK}
    return Dataset(**(given | changes))


@pytest.fixture
def registered(monkeypatch):
    made = dataset(title="Six people")
    monkeypatch.setitem(CATALOG, made.name, made)
    return made


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_an_object_is_loaded_like_its_frame(frame):
    table = load_dataset(dataset(read=lambda path: frame(PEOPLE)))
    same = table_from_frame(pd.DataFrame(PEOPLE), TASK, name="people")
    assert table.X.equals(same.X)
    assert (table.y == same.y).all()
    assert (table.groups == same.groups).all()
    assert (table.sha256, table.task) == (same.sha256, same.task)
    assert table.notes[0] == "read by data set people"


def test_read_gets_the_path(tmp_path):
    path = tmp_path / "people.csv"
    pd.DataFrame(PEOPLE).to_csv(path, index=False)
    seen = []

    def read(given):
        seen.append(given)
        return pd.DataFrame(PEOPLE) if given is None else pd.read_csv(given)

    table = load_dataset(dataset(read=read), str(path))
    assert len(table) == 6
    assert table.notes[0] == f"read by data set people from {path}"
    load_dataset(dataset(read=read))
    assert seen == [Path(path), None]


def test_all_attributes_of_the_task_unless_some_are_chosen():
    assert [a.name for a in load_dataset(dataset()).attributes] == ["sex", "team"]
    assert [a.name for a in load_dataset(dataset(), sensitive=["team"]).attributes] == ["team"]
    with pytest.raises(ConfigError, match="did you mean 'team'"):
        load_dataset(dataset(), sensitive=["teams"])


@pytest.mark.usefixtures("registered")
def test_a_registered_one_is_found_listed_and_described():
    assert len(load_dataset("people")) == 6
    assert list_datasets()[-1] == {
        "name": "people",
        "title": "Six people",
        "rows": None,
        "sensitive": ["sex", "team"],
        "bundled": None,
        "licence": None,
    }
    facts = describe("people")
    assert (facts["title"], facts["rows"], facts["label"]) == ("Six people", 6, "hired")
    assert facts["attributes"]["sex"]["f"] == {"rows": 3, "favourable": 2, "base_rate": 0.667}
    assert (facts["files"], facts["traps"], facts["citation"]) == ({}, [], "")
    json.dumps(facts)


@pytest.mark.usefixtures("registered")
def test_the_command_line_lists_and_describes_it():
    listed = CliRunner().invoke(app, ["data", "list"]).output
    assert "Six people" in listed
    assert "registered" in listed
    described = CliRunner().invoke(app, ["data", "describe", "people"]).output
    assert "Six people: 6 rows" in described
    assert "66.7%" in described


def test_a_group_without_members_has_no_base_rate(monkeypatch):
    sex = {"column": "sex", "groups": ("f", "m", "x")}
    made = dataset(task=Task(label="hired", favourable="yes", sensitive=(sex,)))
    monkeypatch.setitem(CATALOG, made.name, made)
    empty = {"rows": 0, "favourable": 0, "base_rate": None}
    assert describe("people")["attributes"]["sex"]["x"] == empty
    assert CliRunner().invoke(app, ["data", "describe", "people"]).exit_code == 0


@pytest.mark.usefixtures("registered")
def test_there_is_no_official_sum_to_compare():
    assert [check.ok for check in verify()][:3] == [True] * 3
    with pytest.raises(DataError, match="no official sha256"):
        verify("people")


@pytest.mark.usefixtures("registered")
def test_registering_again_replaces_but_never_a_published_one():
    register_dataset(dataset(title="Once more"))
    assert find_dataset("people").title == "Once more"
    with pytest.raises(DataError, match="'adult' is a published one: choose another name"):
        register_dataset(dataset(name="adult"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "my people"}, "'my people' is not a valid name of a data set"),
        ({"name": "package.module:Name"}, "is not a valid name"),
        ({"name": 3}, "3 is not a valid name"),
        ({"read": "people.csv"}, "read= must be a function"),
        ({"task": {"label": "hired"}}, r"task= must be a mfairfl\.data\.Task"),
    ],
)
def test_wrong_fields_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        dataset(**changes)


@pytest.mark.parametrize("given", [pd.DataFrame(PEOPLE), Path("people.csv"), None])
def test_what_is_not_a_data_set_is_told_what_to_pass(given):
    with pytest.raises(DataError, match="give a name or a Dataset; for a frame use"):
        load_dataset(given)


def test_options_and_results_are_checked():
    with pytest.raises(DataError, match="data set people takes no option 'filtered'"):
        load_dataset(dataset(), filtered=True)
    with pytest.raises(DataError, match="cannot read a list"):
        load_dataset(dataset(read=lambda path: [1, 2]))
