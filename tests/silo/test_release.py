"""The plain floor, one split for all runs of a file, and what is counted for good."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from mfairfl.data import SPLITS, Task
from mfairfl.data.files import read_file
from mfairfl.data.table import table_from_content
from mfairfl.engine.checkpoint import write_sealed
from mfairfl.errors import CheckpointError, MessageError
from mfairfl.silo.policy import Disclosure
from mfairfl.silo.rows import FileMemory, release_rows

FLOOR = 10
TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
TERMS = {"seed": 3, "test": 0.2, "validation": 0.1}


@pytest.fixture
def file(tmp_path):
    """300 rows; 14 of one sex, of which 5 are hired, and a town that four rows are in."""
    rng = np.random.default_rng(0)
    sex = np.array(["f"] * 150 + ["m"] * 136 + ["x"] * 14)
    hired = np.where(rng.random(300) < 0.4, "yes", "no")
    hired[-14:] = ["yes"] * 5 + ["no"] * 9
    town = np.where(np.arange(300) % 75 == 1, "Thule", rng.choice(["Rome", "Oslo"], 300))
    frame = pd.DataFrame({"age": rng.integers(18, 66, 300), "town": town, "sex": sex})
    path = tmp_path / "rows.csv"
    frame.assign(hired=hired).to_csv(path, index=False)
    return path


def released(file, policy=None, terms=TERMS, name="north", task=TASK):
    policy, content = policy or Disclosure(), read_file(file)
    table = table_from_content(content, task, name=file.name)
    memory = FileMemory(file.parent / "state", file, content, policy)
    return release_rows(name, table, memory, policy, **terms)


def frame_of(rows, split):
    """What a count is about, from the file's own words."""
    table, at = rows.silo.table, rows.silo.rows[split]
    return table.X.iloc[at].assign(y=table.y[at], cell=table.cells[at])


def test_counts_of_few_rows_are_withheld_with_the_smallest_others(file):
    rows = released(file)
    for split in SPLITS:
        true = Counter(zip(*frame_of(rows, split)[["cell", "y"]].T.to_numpy(), strict=True))
        counts, withheld = rows.counts(split)
        hidden = {tuple(map(int, pair)) for pair in np.argwhere(rows.hidden[split])}
        small = {pair for pair, n in true.items() if n < FLOOR}
        assert small <= hidden
        assert withheld == sum(true[pair] for pair in hidden) >= FLOOR
        # As few as possible: without the largest of them, too few rows would be withheld.
        largest = max(true[pair] for pair in hidden)
        assert largest < FLOOR or withheld - largest < FLOOR
        for pair, n in true.items():
            assert counts[pair] == (0 if pair in hidden else n)
        cells = rows.cells(split)
        assert Counter(cells.tolist())[3] == withheld


def test_levels_of_few_rows_are_not_named(file):
    rows = released(file)
    sums = rows.sums()
    for part, splits in {"train": ["train"], "others": ["validation", "test"]}.items():
        held = pd.concat([frame_of(rows, split) for split in splits])
        for column in ("town", "sex"):
            true = {k: n for k, n in held[column].value_counts().items() if n >= FLOOR}
            assert sums[part].categorical[column] == true
        assert sums[part].numeric["age"].count == len(held)
        assert sums[part].numeric["age"].mean == pytest.approx(held["age"].astype(float).mean())
    assert "Thule" not in str(sums)


def test_intervals_of_few_rows_are_joined(file):
    rows = released(file)
    ages = np.sort(frame_of(rows, "train")["age"].astype(float))
    (found,) = rows.histograms({"age": np.arange(18.0, 66.0)})
    assert found.total == len(ages)
    assert (found.counts[found.counts > 0] >= FLOOR).all()
    # Rows only move upwards, but for the last few: never more are below a cut than there are.
    below = np.cumsum(found.counts)[:-1]
    assert (below <= np.searchsorted(ages, found.cuts)).all()


def test_rows_are_split_once_whatever_is_asked_later(file):
    first = released(file)
    again = released(file, terms={"seed": 99, "test": 0.2, "validation": 0.1})
    for split in SPLITS:
        assert np.array_equal(first.silo.rows[split], again.silo.rows[split])
    with pytest.raises(MessageError, match=r"split once for all runs, into 0\.2 and 0\.1"):
        released(file, terms={"seed": 3, "test": 0.5, "validation": 0.1})
    parts = np.concatenate([first.silo.rows[split] for split in SPLITS])
    assert sorted(parts.tolist()) == list(range(300))


def test_a_part_of_few_rows_is_joined_to_the_train_rows(file):
    rows = released(file, terms={"seed": 3, "test": 0.2, "validation": 0.02})
    assert [len(rows.silo.rows[split]) for split in SPLITS] == [240, 0, 60]


def test_another_seed_of_the_policy_is_another_split(file):
    first = released(file, Disclosure(split_seed=0))
    other = file.with_name("copy.csv")
    other.write_bytes(file.read_bytes())
    second = released(other, Disclosure(split_seed=1))
    assert set(first.silo.rows["test"]) != set(second.silo.rows["test"])


def test_without_a_floor_each_run_has_its_own_split_and_all_is_told(file):
    policy = Disclosure(min_rows=1)
    first, other = (released(file, policy, {**TERMS, "seed": s}) for s in (1, 2))
    assert set(first.silo.rows["test"]) != set(other.silo.rows["test"])
    assert first.counts("train")[1] == 0
    assert "Thule" in str(first.sums())


def test_a_file_that_has_changed_is_another_version(file):
    released(file)
    text = file.read_text()
    file.write_text(text.rsplit("\n", 2)[0] + "\n")
    with pytest.raises(MessageError) as caught:
        released(file)
    assert str(caught.value) == (
        "2 versions of its file, which has changed: this silo allows 1 (disclosure.versions of "
        "its policy.toml)"
    )
    assert released(file, Disclosure(versions=2))
    file.write_text(text)
    assert released(file, Disclosure(versions=2))  # the first is one of the two


@pytest.mark.parametrize("floor", [1, 10])
def test_ways_to_form_groups_are_counted(file, floor):
    policy = Disclosure(tasks=2, min_rows=floor)
    by_town = TASK.model_copy(update={"sensitive": TASK.select(["sex"]).sensitive})
    released(file, policy)
    released(file, policy)
    other = Task(label="hired", favourable="no", sensitive=("sex",))
    released(file, policy, task=other)
    released(file, policy, task=by_town)
    third = Task(label="hired", favourable="yes", sensitive=("town",))
    with pytest.raises(MessageError, match=r"3 ways to form groups and labels: .* allows 2"):
        released(file, policy, task=third)


def test_a_split_that_0_7_made_still_holds(file):
    policy, content = Disclosure(), read_file(file)
    memory = FileMemory(file.parent / "state", file, content, policy)
    parts = (np.arange(300) % 3).astype(np.int8)
    header = {
        "rows": 300,
        "shares": [0.2, 0.1],
        "told": [{"what": "bins of 'age'", "digest": "a" * 64}],
        "tasks": ["b" * 64],
        "bundled": [],
        "columns": {},
    }
    arrays = {"split": parts, "sets/0": np.zeros(300, np.int32)}
    write_sealed(memory._path, arrays, header)
    rows = released(file)
    for part, split in enumerate(SPLITS):
        assert rows.silo.rows[split].tolist() == np.flatnonzero(parts == part).tolist()


def test_what_is_damaged_is_not_replaced(file):
    released(file)
    (kept,) = (file.parent / "state").rglob("told.safetensors")
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="restore it from a backup"):
        released(file)
