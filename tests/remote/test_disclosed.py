"""A silo's account of what it told: it outlives processes, and decides what may follow."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.errors import CheckpointError, MessageError
from mfairfl.guard.row_sets import NOWHERE, RowClasses, RowSets
from mfairfl.remote import disclosed
from mfairfl.remote.disclosed import keyed_sha256, open_account
from mfairfl.remote.policy import Disclosure
from row_span import min_support_below

ROWS, FLOOR = 100, 10
HASH = sha256(b"the file").hexdigest()


def account(tmp_path, *, content=HASH, rows=ROWS, file="rows.csv", **policy):
    """A new process's view of the account."""
    given = Disclosure(**({"min_rows": FLOOR} | policy))
    return open_account(tmp_path / "state", tmp_path / file, content, rows, given)


def levels(*sizes, what="levels", ordered=False):
    classes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return RowClasses(what, np.zeros(len(classes), np.int32), classes, ordered)


def kept(tmp_path):
    (found,) = (tmp_path / "state").rglob("told.safetensors")
    return found


# ------------------------------------------------------------------ what was told


def test_the_same_question_has_the_same_answer_in_any_process(tmp_path):
    first = levels(50, 45, 5)
    (told,) = account(tmp_path).admit([first])
    assert told.tolist() == [0, NOWHERE, NOWHERE]
    # Something else is told in between, which would change the answer to a new question.
    account(tmp_path).admit([levels(20, 30, 50)])
    before = kept(tmp_path).read_bytes()
    again = account(tmp_path)
    (found,) = again.admit([first])
    assert found.tolist() == told.tolist()
    assert kept(tmp_path).read_bytes() == before  # nothing was told that was not known
    assert len(again.partitions) == 2


def test_what_was_told_before_counts_in_any_process(tmp_path):
    whole = RowClasses("all rows", *np.zeros((2, ROWS), np.int32))
    account(tmp_path).admit([whole])
    nearly = RowClasses("most rows", whole.parts.copy(), whole.classes.copy())
    nearly.parts[-4:] = NOWHERE
    with pytest.raises(MessageError) as caught:
        account(tmp_path).admit([nearly])
    assert str(caught.value) == (
        "most rows: together with what was told before, this would isolate fewer than 10 rows "
        "(disclosure.min_rows of its policy.toml)"
    )
    assert len(account(tmp_path).partitions) == 1  # a refused question was told nothing
    nearly.parts[-FLOOR:] = NOWHERE
    account(tmp_path).admit([nearly])  # of all others there are enough


def test_what_is_kept_isolates_no_few_rows(tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(12):
        classes = rng.integers(0, 6, ROWS).astype(np.int32)
        with contextlib.suppress(MessageError):  # later ones
            account(tmp_path).admit([RowClasses("x", np.zeros(ROWS, np.int32), classes)])
        sets = RowSets(ROWS, tuple(account(tmp_path).partitions))
        assert not sets.exposed(FLOOR).any()


def test_the_sets_behind_an_answer_are_listed(tmp_path):
    one = account(tmp_path)
    one.admit([levels(50, 30, 20, what="levels of 'a'"), levels(96, 4, what="levels of 'b'")])
    said = [(fact.what, fact.sets, fact.smallest, fact.rows) for fact in one.used]
    assert said == [("levels of 'a'", 3, 20, 100), ("levels of 'b'", 1, 100, 100)]
    assert account(tmp_path).used == []


def test_there_is_an_end_to_the_sets_that_are_kept(tmp_path, monkeypatch):
    account(tmp_path).admit([levels(50, 30, 20)])
    monkeypatch.setattr(disclosed, "_MOST_SETS", 4)
    with pytest.raises(MessageError) as caught:
        account(tmp_path).admit([levels(40, 60)])
    assert str(caught.value) == "levels: account is kept of 4 sets at most"
    assert len(account(tmp_path).partitions) == 1
    account(tmp_path).admit([levels(50, 30, 20)])


# ------------------------------------------------------------------ versions


def test_another_version_of_a_file_is_refused(tmp_path):
    account(tmp_path).admit([levels(50, 50)])
    with pytest.raises(MessageError) as caught:
        account(tmp_path, content=sha256(b"a row more").hexdigest(), rows=101)
    assert str(caught.value) == (
        "its file has changed: 2 versions of it would be told about, this silo allows 1 "
        "(disclosure.versions of its policy.toml)"
    )
    assert len(account(tmp_path).partitions) == 1  # the one that is known is answered still


def test_as_many_versions_as_are_allowed_have_an_account_each(tmp_path):
    other = sha256(b"a row more").hexdigest()
    account(tmp_path).admit([levels(50, 50)])
    assert account(tmp_path, content=other, rows=101, versions=2).partitions == []
    with pytest.raises(MessageError, match=r"3 versions .* allows 2"):
        account(tmp_path, content=sha256(b"two rows more").hexdigest(), versions=2)
    account(tmp_path, content=other, file="audited.csv")  # a file of another name is another file


# ------------------------------------------------------------------ the split


STRATA = np.repeat(np.arange(4, dtype=np.int32), [40, 30, 20, 10])


def test_the_split_is_made_once(tmp_path):
    first = account(tmp_path).split(STRATA, "east", 0.2, 0.1)
    assert np.bincount(first).tolist() == [70, 10, 20]
    again = account(tmp_path).split(STRATA, "east", 0.2, 0.1)
    assert np.array_equal(again, first)
    # Other strata, as another task has: a row stays in its part.
    shuffled = np.random.default_rng(0).permutation(STRATA)
    assert np.array_equal(account(tmp_path).split(shuffled, "east", 0.2, 0.1), first)
    # Nor does the policy's seed move rows once they have a part.
    moved = account(tmp_path, split_seed=7).split(STRATA, "east", 0.2, 0.1)
    assert np.array_equal(moved, first)


def test_the_split_is_the_silo_s_own(tmp_path):
    seeds = [account(tmp_path / str(s), split_seed=s).split(STRATA, "e", 0.2, 0.1) for s in (0, 1)]
    assert not np.array_equal(*seeds)
    for found in seeds:  # each stratum alike
        shares = np.array([np.bincount(found[s == STRATA], minlength=3) for s in range(4)])
        assert shares.sum(axis=0).tolist() == [70, 10, 20]
        assert np.abs(shares - np.outer([40, 30, 20, 10], [0.7, 0.1, 0.2])).max() <= 1


@pytest.mark.parametrize("asked", [(0.3, 0.1), (0.2, 0.0), (0.2, 0.2)])
def test_other_shares_are_refused_and_the_rule_is_named(tmp_path, asked):
    account(tmp_path).split(STRATA, "east", 0.2, 0.1)
    with pytest.raises(MessageError) as caught:
        account(tmp_path).split(STRATA, "east", *asked)
    assert str(caught.value) == (
        f"a split into {asked[0]:g} test and {asked[1]:g} validation rows: the rows of this file "
        "were split once for all runs, into 0.2 and 0.1 ([disclosure] of its policy.toml)"
    )


def test_rows_that_are_of_no_use_have_no_part_and_later_ones_train(tmp_path):
    some = STRATA.copy()
    some[::10] = NOWHERE
    first = account(tmp_path).split(some, "east", 0.2, 0.1)
    assert (first[::10] == NOWHERE).all()
    every = account(tmp_path).split(STRATA, "east", 0.2, 0.1)
    assert (every[::10] == 0).all()
    used = some != NOWHERE
    assert np.array_equal(every[used], first[used])


def test_a_part_of_too_few_rows_is_trained_on(tmp_path):
    found = account(tmp_path).split(STRATA, "east", 0.2, 0.05)
    assert np.bincount(found, minlength=3)[1] == 0
    assert np.bincount(found, minlength=3)[2] == 20


# ------------------------------------------------------------------ ways to form groups


def test_there_is_an_end_to_the_ways_to_form_groups(tmp_path):
    ways = [np.roll(STRATA, shift) for shift in (0, 7, 14)]
    for way in [*ways[:2], *ways[:2]]:  # a known one counts once
        account(tmp_path, tasks=2).count_task(way)
    with pytest.raises(MessageError, match=r"3 ways to form groups .*\(disclosure\.tasks of its"):
        account(tmp_path, tasks=2).count_task(ways[2])
    account(tmp_path, tasks=2).count_task(ways[1])
    account(tmp_path, tasks=3).count_task(ways[2])


# ------------------------------------------------------------------ bundles


def strata_of(rng, rows, count):
    """A (cell, label) of each row; some rows are not trained on."""
    found = rng.integers(0, count, rows).astype(np.int32)
    found[rng.random(rows) < 0.1] = NOWHERE
    return found


def check_bundles(found, strata, floor):
    """Bundles are of one stratum, and of enough rows, or of all of theirs."""
    assert np.array_equal(found == NOWHERE, strata == NOWHERE)
    for bundle in range(found.max() + 1):
        rows = np.flatnonzero(found == bundle)
        (stratum,) = np.unique(strata[rows])
        assert len(rows) >= min(floor, (strata == stratum).sum())
        assert len(rows) > 0


@given(st.integers(0, 999), st.integers(1, 6))
@settings(deadline=None, max_examples=25)
def test_bundles_are_of_one_group_and_label_and_of_enough_rows(tmp_path_factory, seed, count):
    folder = tmp_path_factory.mktemp("bundles")
    strata = strata_of(np.random.default_rng(seed), 400, count)
    found = account(folder, rows=400).bundles(strata, "east")
    check_bundles(found, strata, FLOOR)
    sizes = np.bincount(found[found != NOWHERE])
    assert sizes.min() >= FLOOR
    assert sizes.max() < 2 * FLOOR  # no more rows are joined than must be


PROCESS = """
import sys
from pathlib import Path
import numpy as np
from mfairfl.remote.disclosed import open_account
from mfairfl.remote.policy import Disclosure
folder = Path(sys.argv[1])
strata = np.load(folder / "strata.npy")
mine = open_account(folder / "state", folder / "rows.csv", sys.argv[2], len(strata), Disclosure())
sys.stdout.write(mine.bundles(strata, "east").tobytes().hex())
"""


def test_the_same_question_has_the_same_bundles_in_a_new_process(tmp_path):
    strata = strata_of(np.random.default_rng(0), 300, 4)
    other = strata_of(np.random.default_rng(1), 300, 2)
    np.save(tmp_path / "strata.npy", strata)
    first = account(tmp_path, rows=300).bundles(strata, "east")
    account(tmp_path, rows=300).bundles(other, "east")  # what is asked in between
    before = kept(tmp_path).read_bytes()
    words = [sys.executable, "-c", PROCESS, str(tmp_path), HASH]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == first.tobytes().hex()
    assert kept(tmp_path).read_bytes() == before
    # Nor do they depend on what is kept: another silo with these rows has the same.
    again = account(tmp_path / "new", rows=300).bundles(strata, "east")
    assert np.array_equal(again, first)


@given(st.integers(0, 9999), st.integers(1, 4), st.integers(1, 4))
@settings(deadline=None, max_examples=15)
def test_bundles_of_two_tasks_isolate_nobody(tmp_path_factory, seed, one, other):
    """By brute force: no combination of them is about fewer rows than the floor."""
    rng, folder, floor = np.random.default_rng(seed), tmp_path_factory.mktemp("bundles"), 3
    told = []
    for count in (one, other, one + 1):
        strata = rng.permutation(np.arange(36, dtype=np.int32) % count)
        strata[rng.integers(0, 36, 3)] = NOWHERE
        with contextlib.suppress(MessageError):
            told.append(account(folder, rows=36, min_rows=floor).bundles(strata, "east"))
            check_bundles(told[-1], strata, floor)
        assert min_support_below(told, floor) is None
    assert told


# ------------------------------------------------------------------ sums of numbers


def summed(tmp_path, numbers, **more):
    numbers = np.asarray(numbers, dtype=float)
    mine = account(tmp_path, rows=len(numbers), **more)
    return mine.pin("pay", np.arange(len(numbers)), numbers)


@given(st.integers(0, 999), st.floats(-1e12, 1e12), st.integers(0, 59))
@settings(deadline=None, max_examples=40)
def test_one_outlier_changes_no_sum(tmp_path_factory, seed, value, place):
    """However far out a row is, its sum is that of a row at the limit."""
    numbers = np.random.default_rng(seed).normal(50, 9, 60)
    found = {}
    for sign in (-1, 1):
        for reach in (200.0, 1e3 + abs(value)):
            numbers[place] = sign * reach
            found[sign, reach] = summed(tmp_path_factory.mktemp("pinned"), numbers)
        (first, second) = [v for (s, _), v in found.items() if s == sign]
        assert np.array_equal(first, second)
    assert np.ptp(first) < 60


def test_a_column_of_zeros_but_for_one_row_tells_nothing(tmp_path):
    numbers = np.zeros(ROWS)
    numbers[17] = 1e6
    assert (summed(tmp_path / "high", numbers) == 0).all()
    assert (summed(tmp_path / "low", -numbers) == 0).all()
    numbers[:FLOOR] = 1.0  # of these there are enough
    assert np.unique(summed(tmp_path / "ten", numbers)).tolist() == [0, 1]


@given(st.integers(0, 999), st.integers(0, 80), st.sampled_from([0, 1, 2]))
@settings(deadline=None, max_examples=60)
def test_the_limits_are_reached_by_enough_rows_and_are_nobody_s_value(
    tmp_path_factory, seed, rows, decimals
):
    numbers = np.random.default_rng(seed).normal(0, 5, rows).round(decimals) + 0.0
    found = summed(tmp_path_factory.mktemp("pinned"), numbers)
    if rows:
        values, counts = np.unique(found, return_counts=True)
        assert counts[0] >= min(FLOOR, rows)
        assert counts[-1] >= min(FLOOR, rows)
        assert np.isin(values[1:-1], numbers).all()
    rare = [v for v in np.unique(numbers) if (numbers == v).sum() < FLOOR]
    assert not (set(rare[:1]) | set(rare[-1:])) & set(found) or decimals == 0
    if rows < FLOOR:
        assert (found == 0).all()


def test_a_limit_is_not_the_value_of_one_row(tmp_path):
    numbers = np.random.default_rng(0).normal(3000, 500, ROWS).round(2)
    found = summed(tmp_path, numbers)
    for limit in (found.min(), found.max()):
        assert (found == limit).sum() >= FLOOR
        assert limit not in numbers
    few = summed(tmp_path / "few", numbers[:FLOOR])  # nothing may be cut off: all count alike
    assert len(np.unique(few)) == 1
    assert few[0] not in numbers


def test_a_column_is_summed_as_it_was_read_first(tmp_path):
    numbers = np.random.default_rng(0).normal(0, 1, ROWS)
    numbers[:20] = np.nan
    first = summed(tmp_path, numbers)
    assert np.array_equal(summed(tmp_path, numbers), first, equal_nan=True)
    assert np.isnan(first).sum() == 20
    for place, value in ((50, 1.5), (50, np.nan), (3, 0.0)):
        other = numbers.copy()
        other[place] = value
        with pytest.raises(MessageError) as caught:
            summed(tmp_path, other)
        assert str(caught.value) == (
            "column 'pay' is read in another way than before: its sums would differ by the "
            "numbers of few rows ([disclosure] of its policy.toml)"
        )
    assert np.array_equal(summed(tmp_path, numbers), first, equal_nan=True)


def test_limits_are_those_of_the_first_rows_that_were_summed(tmp_path):
    numbers = np.random.default_rng(0).normal(0, 1, ROWS)
    some = np.arange(0, ROWS, 2)
    first = account(tmp_path).pin("pay", some, numbers[some])
    every = summed(tmp_path, numbers)
    assert np.array_equal(every[some], first)
    assert (every.min(), every.max()) == (first.min(), first.max())


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d[:40] + b"x" + d[41:], lambda d: b""]
)
def test_a_damaged_account_is_refused_and_not_taken_for_none(tmp_path, change):
    account(tmp_path).admit([levels(50, 50)])
    path = kept(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"restore it; without it policy\.toml cannot be"):
        account(tmp_path)


def test_the_account_is_for_the_silo_alone(tmp_path):
    account(tmp_path).admit([levels(50, 50)])
    keyed_sha256(tmp_path / "state", HASH)
    for path in (tmp_path / "state").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_fingerprint_needs_the_silo_s_secret(tmp_path):
    first = keyed_sha256(tmp_path / "a", HASH)
    assert len(first) == 64
    assert first != HASH
    assert keyed_sha256(tmp_path / "a", HASH) == first
    assert keyed_sha256(tmp_path / "b", HASH) != first
    assert keyed_sha256(tmp_path / "a", sha256(b"other").hexdigest()) != first
