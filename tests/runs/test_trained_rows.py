"""The split of every row of the file that a run was trained on, found again."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import mfairfl
from answers import one_line
from mfairfl.data import Task, partition, read_table
from mfairfl.data.files import FileFormat, read_file
from mfairfl.errors import DataError
from mfairfl.runs.record import RunRecord
from mfairfl.runs.rows import splits_of_rows
from mfairfl.silo.policy import Policy

QUICK = {"strategy": "fedavg", "rounds": 8, "hidden": (8,), "local_epochs": 2, "seed": 5}
ROLES = {"label": "hired", "favourable": "no", "sensitive": ["sex"]}


@pytest.fixture
def people(tmp_path):
    """A file in which some rows have no label, no group, no number."""
    rng = np.random.default_rng(2)
    n = 400
    skill = rng.normal(size=n).round(3)
    sex = rng.choice(["F", "M"], n)
    frame = pd.DataFrame(
        {
            "skill": skill,
            "job": rng.choice(["cook", "smith"], n),
            "sex": sex,
            "site": rng.choice(["east", "north", "west"], n),
            "hired": np.where(skill + 0.5 * (sex == "M") + rng.normal(size=n) > 0, "yes", "no"),
        }
    )
    frame.loc[::13, "hired"] = None
    frame.loc[::17, "sex"] = None
    frame.loc[::19, "skill"] = None
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def found_in(record, path):
    return splits_of_rows(record, read_file(path), name=path.name)


CASES = {
    "a column of clients": {"client": "site"},
    "with validation rows": {"client": "site", "clients.validation": 0.25},
    "iid": {"heterogeneity": "iid", "clients": 4},
    "dirichlet": {"heterogeneity": "dirichlet", "clients": 3, "concentration": 2.0},
    "a published split": {"heterogeneity": "high"},
    "rows of no client": {"heterogeneity": "cf-literal"},
    "a fold": {"heterogeneity": "iid", "clients": 2, "clients.folds": 4, "clients.fold": 1},
    "an encoder of its own": {"client": "site", "encoder.numeric": "standard"},
    "rows without a value dropped": {"client": "site", "task.missing": "drop"},
    "pooled rows": {"client": "site", "strategy": "cenfair"},
    "a model for each client": {"client": "site", "strategy": "ditto"},
    "no test rows": {"client": "site", "clients.test": 0.0},
}


@pytest.mark.parametrize("case", CASES)
def test_the_model_decides_the_rows_of_each_split_as_the_run_recorded(people, tmp_path, case):
    """Counts of decisions by client, group and label: other rows would have others."""
    options = QUICK | ROLES | CASES[case]
    run = mfairfl.train(csv=people, out=tmp_path / "run", **options)
    splits = found_in(RunRecord.read(tmp_path / "run"), people)
    frame = read_file(people).frame
    assert len(splits) == len(frame)
    assert set(splits[frame["hired"] == ""]) == {""}
    for split, tally in run.record.tallies.items():
        own = run.predictor.evaluate(frame[splits == split])
        assert own.n == tally.n == (splits == split).sum()
        recorded = tally.counts if own.clients == tally.clients else tally.counts.sum(0)[None]
        groups = [list(a.groups) for a in tally.attributes]
        assert groups == [list(a.groups) for a in own.attributes]
        assert np.array_equal(own.counts, recorded), split
    assert set(splits) - {""} == set(run.record.tallies)


def test_the_splits_are_those_of_the_partition(people, tmp_path):
    mfairfl.train(csv=people, client="site", out=tmp_path / "run", **QUICK, **ROLES)
    splits = found_in(RunRecord.read(tmp_path / "run"), people)
    task = Task(label="hired", favourable="no", sensitive=("sex",), client="site")
    table = read_table(people, task)
    federation = partition(table, "column", seed=5)
    for split in ("train", "test"):
        rows = table.places[federation.pooled(split).rows]
        assert np.flatnonzero(splits == split).tolist() == sorted(rows.tolist())


def test_rows_in_memory_that_came_from_the_file_are_known_by_its_hash(people, tmp_path):
    task = Task(label="hired", favourable="no", sensitive=("sex",), client="site")
    federation = partition(read_table(people, task), "column", seed=9, test=0.4)
    run = mfairfl.train(federation, **QUICK)
    splits = found_in(run.record, people)
    assert {s: (splits == s).sum() for s in ("train", "test")} == {
        s: len(federation.pooled(s)) for s in ("train", "test")
    }


def test_of_other_bytes_nothing_is_said(people, tmp_path):
    mfairfl.train(csv=people, client="site", out=tmp_path / "run", **QUICK, **ROLES)
    record = RunRecord.read(tmp_path / "run")
    with people.open("a", encoding="utf-8") as file:
        file.write("0.5,cook,F,east,no\n")
    assert found_in(record, people) is None
    frame = read_file(people).frame
    in_memory = mfairfl.train(frame, client="site", **QUICK, **ROLES)
    assert found_in(in_memory.record, people) is None
    guarded = mfairfl.train(csv=people, client="site", policy=Policy(), **QUICK, **ROLES)
    assert found_in(guarded.record, people) is None


def test_another_sheet_of_the_same_file_is_not_taken_for_the_first(people, tmp_path):
    frame, book = pd.read_csv(people), tmp_path / "people.xlsx"
    with pd.ExcelWriter(book) as writer:
        frame.to_excel(writer, sheet_name="a", index=False)
        frame[::-1].iloc[:200].to_excel(writer, sheet_name="b", index=False)
    run = mfairfl.train(csv=book, sheet="a", client="site", **QUICK, **ROLES)
    first = splits_of_rows(run.record, read_file(book, FileFormat(sheet="a")), name="people.xlsx")
    assert (first == "train").sum() == sum(c.train for c in run.record.federation.clients)
    with pytest.raises(DataError, match="which of its rows cannot be told") as caught:
        splits_of_rows(run.record, read_file(book, FileFormat(sheet="b")), name="people.xlsx")
    assert one_line(caught).startswith("people.xlsx: the run was trained on this file")


@pytest.mark.parametrize(
    "options", [{"test": "much"}, {"seed": 3}, {"test": 0.2, "colour": 1}, {"fold": 3}]
)
def test_a_forged_record_is_one_line(people, tmp_path, options):
    mfairfl.train(csv=people, client="site", out=tmp_path / "run", **QUICK, **ROLES)
    path = tmp_path / "run" / "run.json"
    plain = json.loads(path.read_text())
    plain["federation"]["options"] = options
    path.write_text(json.dumps(plain))
    with pytest.raises(DataError, match="cannot be told") as caught:
        found_in(RunRecord.read(path), people)
    one_line(caught)
