"""A goal names its constraints, or says in one line what is missing."""

from __future__ import annotations

import math

import pytest

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal
from mfairfl.runs.config import make_config

SEX, AGE = Attribute("sex", ("F", "M")), Attribute("age", ("young", "mid", "old"))


def groups(goal):
    return [(name, group) for _, _, name, group in goal.constraints((SEX, AGE)).labels]


def test_all_attributes_are_the_default():
    both = [("sex", "F"), ("sex", "M"), ("age", "young"), ("age", "mid"), ("age", "old")]
    assert groups(Goal()) == both


def test_the_default_in_python_is_that_of_the_configuration():
    configured = make_config({}).goal(("sex", "age"))
    assert groups(Goal()) == groups(configured)
    crossed = make_config({"fairness": {"intersections": True}}).goal(("sex", "age"))
    assert groups(Goal(intersections=True)) == groups(crossed)
    assert len(groups(crossed)) == 2 + 3 + 2 * 3


def test_an_empty_choice_is_refused():
    with pytest.raises(ConfigError, match="sensitive attribute"):
        Goal(attributes=()).constraints((SEX, AGE))


def test_attributes_are_taken_as_named():
    assert groups(Goal(attributes=("age",))) == [("age", g) for g in ("young", "mid", "old")]


def test_intersections_come_on_top_of_the_marginals():
    assert len(groups(Goal(attributes=("sex", "age"), intersections=True))) == 2 + 3 + 2 * 3


def test_several_notions_hold_together():
    names = [label[0] for label in Goal(notions=("dp", "ap")).constraints((SEX,)).labels]
    assert names == ["demographic_parity"] * 2 + ["accuracy_parity"] * 2


def test_a_task_without_sensitive_attributes_has_no_constraints():
    assert len(Goal(notions=("dp", "eo")).constraints(())) == 0
    with pytest.raises(ConfigError, match="sensitive attribute"):
        Goal(notions=()).constraints((SEX,))


@pytest.mark.parametrize("width", [-0.1, 1.1, math.nan])
def test_the_dead_zone_is_a_share(width):
    with pytest.raises(ConfigError, match=rf"fairness\.dead_zone .*{width}"):
        Goal(dead_zone=width)


def test_unknown_notions_and_attributes_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'equalized_odds'"):
        Goal(notions=("equalised_odds",))
    with pytest.raises(ConfigError, match="did you mean 'sex'"):
        Goal(attributes=("sexx",)).constraints((SEX,))
