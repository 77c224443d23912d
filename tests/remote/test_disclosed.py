"""A silo's account of what it told: it outlives processes, and decides what may follow."""

from __future__ import annotations

import contextlib
from hashlib import sha256

import numpy as np
import pytest

from mfairfl.errors import CheckpointError, MessageError
from mfairfl.guard.row_sets import NOWHERE, Candidate, RowSets
from mfairfl.remote import disclosed
from mfairfl.remote.disclosed import keyed_sha256, open_account
from mfairfl.remote.policy import Disclosure

ROWS, FLOOR = 100, 10
HASH = sha256(b"the file").hexdigest()


def account(tmp_path, *, content=HASH, rows=ROWS, file="rows.csv", **policy):
    """A new process's view of the account."""
    given = Disclosure(**({"min_rows": FLOOR} | policy))
    return open_account(tmp_path / "state", tmp_path / file, content, rows, given)


def levels(*sizes, what="levels", ordered=False):
    classes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return Candidate(what, np.zeros(len(classes), np.int32), classes, ordered)


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
    whole = Candidate("all rows", *np.zeros((2, ROWS), np.int32))
    account(tmp_path).admit([whole])
    nearly = Candidate("most rows", whole.parts.copy(), whole.classes.copy())
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
            account(tmp_path).admit([Candidate("x", np.zeros(ROWS, np.int32), classes)])
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
    with pytest.raises(MessageError, match="this silo keeps account of 4 sets of rows"):
        account(tmp_path).admit([levels(40, 60)])
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
