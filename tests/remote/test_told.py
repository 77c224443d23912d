"""What a silo with a floor says about its rows, compared with numpy on the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.data import SPLITS, Task, table_from_frame
from mfairfl.fairness.cells import Cells
from mfairfl.guard.row_sets import RowSets
from mfairfl.remote.disclosed import Disclosed
from mfairfl.remote.policy import Disclosure
from mfairfl.remote.told import SplitTerms, tell_rows

FLOOR, ROWS = 10, 300
ASKED = SplitTerms(seed=5, test=0.2, validation=0.1)
TASK = Task(
    label="hired",
    favourable="yes",
    unfavourable="no",
    sensitive=({"column": "sex", "groups": ("f", "m", "x", "?")},),
    numeric=("age", "pay"),
    categorical=("job",),
)


def people(seed=0, rows=ROWS, **columns):
    rng = np.random.default_rng(seed)
    found = {
        "age": rng.integers(20, 60, rows).astype(float),
        "pay": rng.normal(3000, 500, rows).round(2),
        "job": rng.choice(["cook", "nurse"], rows),
        "sex": rng.choice(["f", "m"], rows),
        "hired": rng.choice(["no", "yes"], rows),
    }
    return pd.DataFrame(found | columns)


def told(folder, frame, floor=FLOOR, asked=ASKED, task=TASK):
    """A new process's answer; without a folder for nobody else to know."""
    table = table_from_frame(frame, task, name="rows")
    folder.mkdir(exist_ok=True)
    account = Disclosed(folder, len(frame), Disclosure(min_rows=floor))
    return tell_rows("east", table, account, asked)


def places(found, *splits):
    return np.sort(np.concatenate([found.silo.rows[split] for split in splits]))


def as_summed(found, column):
    """Numbers as they count: within limits that enough rows reach, a missing one as another."""
    account, numbers = found.account, found.table.X[column].to_numpy(float)
    known = account.pin(column, np.arange(ROWS)[: len(numbers)], numbers)
    few = np.isnan(numbers).sum() < FLOOR or (~np.isnan(numbers)).sum() < FLOOR
    return np.where(np.isnan(known) & few, account.fill(column), known)


PARTS = {"train": ("train",), "others": ("validation", "test")}


# ------------------------------------------------------------------ sums


@pytest.mark.parametrize("few", [1, 9, 14])
def test_a_level_in_few_rows_is_not_named(tmp_path, few):
    """Of 14 rows some are train rows, and too few are not: it would be told by subtraction."""
    job = np.random.default_rng(1).choice(["cook", "nurse"], ROWS)
    job[:few] = "pilot"
    frame = people(job=job)
    found = told(tmp_path, frame)
    sums = found.sums()
    for part, splits in PARTS.items():
        rows = frame["job"].iloc[places(found, *splits)]
        named = sums[part].categorical["job"]
        assert "pilot" not in named
        for level, count in named.items():
            assert count == (rows == level).sum()
            assert count >= FLOOR
        rest = len(rows) - sum(named.values())
        assert rest == 0 or rest >= FLOOR  # so that no subtraction tells how many are left


def test_levels_in_enough_rows_of_both_parts_are_counted(tmp_path):
    frame = people(job=np.repeat(["cook", "nurse", "pilot"], 100))
    found = told(tmp_path, frame)
    for part, splits in PARTS.items():
        rows = frame["job"].iloc[places(found, *splits)]
        assert found.sums()[part].categorical["job"] == rows.value_counts().sort_index().to_dict()


@pytest.mark.parametrize("missing", range(1, FLOOR))
def test_a_few_missing_numbers_are_not_told(tmp_path, missing):
    frame = people()
    frame.loc[: missing - 1, "pay"] = np.nan
    found = told(tmp_path, frame)
    sums = found.sums()
    for part, splits in PARTS.items():
        rows = frame["pay"].iloc[places(found, *splits)]
        own = sums[part].numeric["pay"]
        assert (own.missing, own.count) == (0, len(rows))
        expected = as_summed(found, "pay")[places(found, *splits)]
        assert not np.isnan(expected).any()
        assert own.mean == pytest.approx(expected.mean(), rel=1e-12)


@pytest.mark.parametrize("known", range(1, FLOOR))
def test_a_few_numbers_are_not_summed(tmp_path, known):
    """Nor is their mean to be had, as it would if the others counted as the mean: all count 0."""
    frame = people()
    train = places(told(tmp_path, frame), "train")
    frame.loc[np.setdiff1d(np.arange(ROWS), train[:known]), "pay"] = np.nan
    found = told(tmp_path, frame)
    for part, splits in PARTS.items():
        own = found.sums()[part].numeric["pay"]
        assert (own.count, own.missing) == (len(places(found, *splits)), 0)
        assert (own.mean, own.deviation) == (0, 0)
    one = histogram(found, "pay", [-1.0, 1.0, 3000.0])
    assert one.counts.tolist() == [0, len(train), 0, 0]


def test_a_column_without_any_number_is_told_as_such(tmp_path):
    found = told(tmp_path, people(pay=np.nan))
    assert found.sums()["train"].numeric["pay"].count == 0
    assert histogram(found, "pay", [1000.0]).counts.tolist() == [0, 0]


def test_many_missing_numbers_are_told(tmp_path):
    frame = people()
    frame.loc[::3, "pay"] = np.nan
    found = told(tmp_path, frame)
    for part, splits in PARTS.items():
        rows = frame["pay"].iloc[places(found, *splits)]
        own = found.sums()[part].numeric["pay"]
        assert (own.missing, own.count) == (rows.isna().sum(), rows.notna().sum())
        assert min(own.missing, own.count) >= FLOOR
        expected = as_summed(found, "pay")[places(found, *splits)]
        assert np.isnan(expected).sum() == own.missing
        assert own.mean == pytest.approx(np.nanmean(expected), rel=1e-12)


def test_without_a_floor_sums_are_those_of_the_rows():
    frame = people(job=["pilot"] + ["cook"] * (ROWS - 1))
    frame.loc[3, "pay"] = np.nan
    found = tell_rows("east", table_from_frame(frame, TASK, name="rows"), None, ASKED)
    sums = found.sums()
    assert sum(sums[part].categorical["job"].get("pilot", 0) for part in PARTS) == 1
    assert sum(sums[part].numeric["pay"].missing for part in PARTS) == 1
    assert not any(found.hidden[split].any() for split in SPLITS)


# ------------------------------------------------------------------ histograms


def histogram(found, column, cuts):
    (one,) = found.histograms({column: np.array(cuts, dtype=float)})
    return one


cuts_of = st.lists(st.floats(0, 6000, width=32), max_size=8, unique=True).map(sorted)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 3), st.lists(cuts_of, min_size=1, max_size=4), st.sampled_from(["age", "pay"])
)
def test_counts_are_unions_of_the_same_groups_whatever_the_cuts(
    tmp_path_factory, seed, grids, column
):
    frame = people(seed)
    frame.loc[: seed - 1, "age"] = np.nan  # none, or a few
    folder = tmp_path_factory.mktemp("account")
    numbers = None
    finest = None
    for cuts in [*grids, *([] if len(grids) == 1 else grids[:1])]:
        found = told(folder, frame)
        if numbers is None:
            numbers = np.sort(as_summed(found, column)[places(found, "train")])
            # The groups: cuts between all neighbours tell each by itself.
            edges = np.unique(numbers)
            every = np.unique(np.concatenate([edges, (edges[1:] + edges[:-1]) / 2]))
            counts = histogram(told(folder, frame), column, every).counts
            finest = counts[counts > 0]
            assert finest.min() >= FLOOR
            assert finest.sum() == len(numbers)
        one = histogram(found, column, cuts)
        assert one.counts.sum() == len(numbers)
        ends = set(np.concatenate([[0], np.cumsum(finest)]).tolist())
        assert set(np.cumsum(one.counts).tolist()) <= ends
        assert (one.counts[one.counts > 0] >= FLOOR).all()
        # A group is at one point within it: counts are off by one group at most.
        true = np.searchsorted(numbers, cuts, side="left")
        assert (np.abs(np.cumsum(one.counts)[:-1] - true) < finest.max()).all()
        for value, count in zip(one.values, one.counts, strict=True):
            if not np.isnan(value):
                assert (numbers == value).sum() >= FLOOR
                assert count >= FLOOR
                assert column == "age" or value not in frame["pay"].to_numpy()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5, 7.0, 7.25, 40.0]), min_size=60, max_size=90))
def test_a_value_of_many_rows_is_counted_by_itself(tmp_path_factory, ages):
    frame = people(rows=len(ages), age=ages)
    found = told(tmp_path_factory.mktemp("account"), frame)
    train = as_summed(found, "age")[places(found, "train")]
    for value in np.unique(train):
        one = histogram(found, "age", [value - 0.01, value + 0.01])
        assert one.counts.sum() == len(train)
        assert one.counts[1] == 0 or one.counts[1] >= FLOOR
        (_, named, _) = one.values  # noqa: PD011 - no pandas
        if not np.isnan(named):
            assert named == value
            assert (train == value).sum() >= FLOOR


# ------------------------------------------------------------------ groups and labels


sizes = st.lists(st.integers(0, 30), min_size=8, max_size=8).filter(lambda n: sum(n[:6]) >= 60)


@settings(max_examples=60, deadline=None)
@given(sizes)
def test_told_and_withheld_rows_are_all_rows(tmp_path_factory, held):
    """Rows by group (f, m, x, ?) and label."""
    pairs = [(sex, label) for sex in ("f", "m", "x", "") for label in ("no", "yes")]
    rows = [pair for pair, n in zip(pairs, held, strict=True) for _ in range(n)]
    frame = people(rows=len(rows), sex=[s for s, _ in rows], hired=[y for _, y in rows])
    found = told(tmp_path_factory.mktemp("account"), frame)
    size = Cells(found.table.attributes).size
    for split in SPLITS:
        own = found.silo.rows[split]
        true = np.zeros((size, 2), int)
        np.add.at(true, (found.table.cells_of(own), found.table.y[own]), 1)
        counts, withheld = found.counts(split)
        hidden = found.hidden[split]
        assert counts.sum() + withheld == len(own)
        assert (counts[counts > 0] >= FLOOR).all()
        assert withheld == 0 or withheld >= FLOOR
        assert np.array_equal(counts, np.where(hidden, 0, true))
        assert withheld == true[hidden].sum()
        assert hidden[true == 0].all()  # nor is it told that a pair has no row at all
        cells = found.cells(split)
        pair = found.table.cells_of(own), found.table.y[own]
        assert np.array_equal(cells == size, hidden[pair])
        assert np.array_equal(cells[cells < size], pair[0][cells < size])
    assert sum(len(found.silo.rows[split]) for split in SPLITS) == len(rows)


def test_another_task_over_the_same_file_tells_no_few_rows_by_subtraction(tmp_path):
    """Groups of another task differ from those told before in three people."""
    frame = people()
    first = told(tmp_path, frame)
    first.sums()
    other = frame.copy()
    other.loc[:2, "sex"] = "x"
    second = told(tmp_path, other)
    second.sums()
    sets = Disclosed(tmp_path, ROWS, Disclosure(min_rows=FLOOR)).partitions
    assert not RowSets(ROWS, tuple(sets)).exposed(FLOOR).any()
    moved = second.table.cells != first.table.cells
    assert moved.sum() == 3
    # Whatever pair one of the three is in now, its count is not told beside the former one.
    for split in SPLITS:
        rows = second.silo.rows[split]
        mine = rows[moved[rows]]
        assert second.hidden[split][second.table.cells[mine], second.table.y[mine]].all()


def test_rows_without_a_label_are_in_no_split_and_places_are_those_of_the_file(tmp_path):
    frame = people()
    frame.loc[::10, "hired"] = None
    found = told(tmp_path, frame)
    assert len(found.table) == 270
    assert sum(len(found.silo.rows[split]) for split in SPLITS) == 270
    found.sums()
    for codes in Disclosed(tmp_path, ROWS, Disclosure(min_rows=FLOOR)).partitions:
        assert len(codes) == ROWS
        assert (codes[::10] == -1).all()
