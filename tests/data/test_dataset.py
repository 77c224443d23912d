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
    DATASETS,
    Dataset,
    Task,
    catalog,
    describe,
    list_datasets,
    load_dataset,
    table_from_frame,
    verify,
)
from mfairfl.errors import ConfigError, DataError
from mfairfl.plugins import Registry

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
    """A copy of the registry that also knows six people."""
    known = {name: DATASETS.get(name) for name in DATASETS.names()}
    registry = Registry("data set", "mfairfl.datasets", known, lambda thing: thing)
    monkeypatch.setattr(catalog, "DATASETS", registry)
    registry.add("people", dataset(title="Six people"))
    return registry


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


def test_a_group_without_members_has_no_base_rate(registered):
    sex = {"column": "sex", "groups": ("f", "m", "x")}
    task = Task(label="hired", favourable="yes", sensitive=(sex,))
    registered.add("people", dataset(task=task))
    empty = {"rows": 0, "favourable": 0, "base_rate": None}
    assert describe("people")["attributes"]["sex"]["x"] == empty
    assert CliRunner().invoke(app, ["data", "describe", "people"]).exit_code == 0


@pytest.mark.usefixtures("registered")
def test_there_is_no_official_sum_to_compare():
    assert [check.ok for check in verify()][:3] == [True] * 3
    with pytest.raises(DataError, match="no sha256 to compare"):
        verify("people")


def test_an_import_string_is_followed(registered, tmp_path, monkeypatch):
    source = """
import pandas as pd
from mfairfl.data import Dataset, Task

rows = pd.DataFrame({"x": range(4), "sex": list("fmfm"), "hired": [0, 1, 1, 0]})
task = Task(label="hired", favourable=1, sensitive=("sex",))
four = Dataset("four", lambda path: rows, task)
"""
    (tmp_path / "invented_people.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    table = load_dataset("invented_people:four")
    assert (len(table), table.name) == (4, "four")
    assert "invented_people:four" not in registered.names()


def test_a_published_name_is_never_replaced():
    with pytest.raises(ConfigError, match="'adult' is built in"):
        DATASETS.add("adult", dataset())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "'' is not a valid name of a data set"),
        ({"name": 3}, "3 is not a valid name"),
        ({"read": "people.csv"}, "read= takes a function"),
        ({"task": {"label": "hired"}}, r"task= takes a mfairfl\.data\.Task"),
    ],
)
def test_wrong_fields_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataset(**changes)


@pytest.mark.parametrize("given", [pd.DataFrame(PEOPLE), Path("people.csv"), None])
def test_what_is_not_a_data_set_is_told_what_to_pass(given):
    for take in (load_dataset, describe, lambda thing: DATASETS.add("mine", thing)):
        with pytest.raises(ConfigError, match=r"pass a name or a mfairfl\.data\.Dataset; for a"):
            take(given)


def test_options_and_results_are_checked():
    with pytest.raises(DataError, match="data set people takes no option 'filtered'"):
        load_dataset(dataset(), filtered=True)
    with pytest.raises(DataError, match="cannot read a list"):
        load_dataset(dataset(read=lambda path: [1, 2]))
