"""How clients that fail are suspended and come back, told round by round."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.engine.defence import STRIKES, TERM, Standing

ALL = ["east", "north", "south", "west"]
LIES = {"south": "it lies"}


def after(rounds, *, start=0, standing=None, trained=ALL, clients=4):
    """Judge rounds, each given as what was refused in it; suspended clients are not asked."""
    standing = Standing() if standing is None else standing
    for i, refused in enumerate(rounds, start):
        out = standing.out(i)
        assert not out or 2 * len(out) < clients
        asked = [name for name in trained if name not in out]
        told = {name: why for name, why in refused.items() if name not in out}
        standing.judge(i, asked, told, clients=clients)
    return standing


def test_the_rule_has_these_numbers():
    """What the documents say; change them together."""
    assert (STRIKES, TERM) == (3, 5)


def test_three_failures_in_a_row_suspend_for_five_rounds():
    standing = after([LIES, LIES])
    assert standing.strikes == {"south": 2}
    assert not standing.suspended
    after([LIES], start=2, standing=standing)
    assert [r for r in range(3, 12) if "south" in standing.out(r)] == [3, 4, 5, 6, 7]
    assert standing.reasons(5) == {
        "south": "suspended until round 9: its answers were refused"  # people count from 1
    }
    assert standing.reasons(8) == {}


def test_a_good_round_clears_the_strikes_but_not_the_memory():
    standing = after([LIES, LIES, {}, LIES, LIES])
    assert standing.strikes == {"south": 2}
    assert standing.rounds == {"south": 4}
    assert not standing.suspended


def test_who_did_not_train_keeps_its_strikes():
    """Of a client that was not drawn, a round says nothing."""
    standing = after([LIES, LIES])
    after([{}] * 9, start=2, standing=standing, trained=["east", "north"])
    assert standing.strikes == {"south": 2}
    after([LIES], start=11, standing=standing)
    assert standing.suspended == {"south": 11 + 1 + TERM}


def test_a_refused_measurement_counts_also_for_who_did_not_train():
    standing = after([LIES] * 3, trained=["east"])
    assert sorted(standing.out(3)) == ["south"]


def test_back_on_probation_one_more_failure_suspends_for_twice_as_long():
    standing = after([LIES] * 9)  # rounds 0 to 2 refused, 3 to 7 away, 8 refused
    assert standing.terms == {"south": 10}
    assert [r for r in range(9, 30) if "south" in standing.out(r)] == [*range(9, 19)]
    after([LIES] * 11, start=9, standing=standing)  # away until 19, refused there
    assert standing.terms == {"south": 20}
    assert standing.suspended == {"south": 19 + 1 + 20}
    assert standing.rounds == {"south": 5}


def test_probation_ends_with_a_good_round():
    standing = after([LIES] * 3 + [{}] * 6)  # it answers well in round 8
    assert standing.strikes == {}
    after([LIES, LIES], start=9, standing=standing)
    assert standing.out(11) == frozenset()
    after([LIES], start=11, standing=standing)
    assert standing.terms == {"south": 10}  # the second suspension, however late


@pytest.mark.parametrize(("clients", "most"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (10, 4)])
def test_fewer_than_half_are_ever_suspended(clients, most):
    names = [f"c{i}" for i in range(clients)]
    liars = dict.fromkeys(names, "all lie")
    standing = after([liars] * 3, trained=names, clients=clients)
    assert sorted(standing.out(3)) == names[:most]
    after([liars] * 20, start=3, standing=standing, trained=names, clients=clients)


def test_who_was_spared_is_suspended_when_there_is_room():
    both = {"north": "it lies", "south": "it lies"}
    standing = after([both] * 3)
    assert sorted(standing.out(3)) == ["north"]
    # North is back in round 8 and good; then it is south's turn.
    after([LIES] * 5 + [LIES], start=3, standing=standing)
    assert sorted(standing.out(9)) == ["south"]


@settings(max_examples=100, deadline=None)
@given(
    clients=st.integers(1, 7),
    rounds=st.lists(st.sets(st.integers(0, 6)), max_size=40),
)
def test_never_half_whatever_happens(clients, rounds):
    names = [f"c{i}" for i in range(clients)]
    told = [{names[i]: "x" for i in one if i < clients} for one in rounds]
    after([*told, {}], trained=names, clients=clients)  # which looks in every round


def test_warnings_say_how_often_how_long_and_why_at_last():
    assert Standing().warnings() == []
    standing = after([{"east": "late", **LIES}, LIES, {"south": "its counts are wrong"}])
    assert standing.warnings() == [
        "east: answers refused in 1 round (late)",
        "south: answers refused in 3 rounds, suspended for 5 rounds (its counts are wrong)",
    ]
    after([LIES] * 17, start=3, standing=standing)  # refused again in rounds 8 and 19
    assert standing.warnings()[1] == (
        "south: answers refused in 5 rounds, suspended for 35 rounds (it lies)"
    )
