"""Search spaces: what may be drawn, and what is refused before anything is run."""

from __future__ import annotations

import math

import pytest

from mfairfl.errors import ConfigError
from mfairfl.experiments.search.space import (
    Choices,
    Range,
    applied,
    check_space,
    default_space,
    own_values,
)
from mfairfl.runs.config import make_config
from mfairfl.strategies import available, create, grids


def test_the_default_is_the_learning_rate_and_the_method_s_grids():
    assert default_space("fedavg") == {"training.lr": Range(0.0005, 0.02, log=True)}
    # The paper's grids of FPFL, written down by hand.
    assert default_space("fpfl") == {
        "training.lr": Range(0.0005, 0.02, log=True),
        "strategy.gamma": Choices((0.01, 0.05, 0.08, 1.0)),
        "strategy.damping": Choices((0.0, 1.0, 10.0)),
    }


@pytest.mark.parametrize("name", available())
def test_every_value_of_every_grid_can_be_used(name):
    for key, grid in grids(name).items():
        assert len(set(grid)) == len(grid) > 1
        for value in grid:
            assert getattr(create(name, **{key: value}), key) == value
    check_space(make_config({"strategy": {"name": name}}), default_space(name))


@pytest.mark.parametrize(
    ("low", "high", "log"), [(2, 1, False), (1, 1, False), (0, 1, True), (0.0, math.inf, False)]
)
def test_a_range_goes_up(low, high, log):
    with pytest.raises(ConfigError, match=rf"^range {low}:{high}"):
        Range(low, high, log=log)


def test_whole_bounds_hold_whole_numbers_only():
    assert Range(1, 5).whole
    assert not Range(1, 5.0).whole
    assert 3 in Range(1, 5)
    assert 3.0 not in Range(1, 5)
    assert 3 in Range(1.0, 5.0)
    assert 6 not in Range(1, 5)


def test_values_are_laid_over_the_configuration_and_nothing_else_is_set():
    given = make_config({"training": {"rounds": 3}, "strategy": {"name": "qffl", "q": 1.0}})
    changed = applied(given, {"training.lr": 0.01, "strategy.q": 5.0})
    assert changed.model_dump(exclude_unset=True) == {
        "training": {"rounds": 3, "lr": 0.01},
        "strategy": {"name": "qffl", "q": 5.0},
    }
    assert given.training.lr == 4e-3


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"training.lrr": Range(0.1, 0.2)}, "--search training.lrr: .*did you mean 'training.lr'"),
        ({"training.lr": Range(-1.0, 0.2)}, r"--search training.lr: .*-1\.0"),
        ({"strategy.beta": Choices((0.5, 1.5))}, "strategy.beta must be at most 1, not 1.5"),
        ({"clients.fold": Choices((0, 1))}, "--search clients.fold: .*--folds"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_key(space, said):
    with pytest.raises(ConfigError, match=said) as caught:
        check_space(make_config({}), space)
    assert "\n" not in str(caught.value)


def test_own_values_are_those_given_or_the_defaults_where_the_space_holds_them():
    config = make_config({"training": {"lr": 0.2}, "model": {"hidden": [8]}})
    space = {
        "training.lr": Range(0.001, 0.1),  # 0.2 is outside
        "training.batch_size": Range(1, 600),
        "strategy.beta": Choices((0.2, 0.8)),
        "strategy.delta": Choices((0.3,)),  # the default is 0.1
        "model.hidden": Choices(([8], [4, 4])),
        "output.rule": Choices(("last",)),  # not set
    }
    assert own_values(config, space) == {
        "training.batch_size": 512,
        "strategy.beta": 0.8,
        "model.hidden": [8],
    }
