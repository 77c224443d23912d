"""What every strategy must do, whatever its mathematics: runs over all that are registered.

The promises are those of `mfairfl.testing`, which outsiders check theirs with; here are besides
what the registry promises, and what holds of plain averages alone.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.output import Output
from mfairfl.errors import ConfigError
from mfairfl.strategies import available, create, describe
from mfairfl.testing import STRATEGY_CHECKS

ROUNDS = 3
every = pytest.mark.parametrize("name", available())
# A constraint, an update's length or a direction may change the step even of a lone client, and a
# method with an SGD rate of its own trains on random batches whatever the recipe.
plain = pytest.mark.parametrize(
    "name",
    [
        name
        for name in available()
        if (card := describe(name)).starts == "random"
        and card.needs == "none"
        and card.serves == "global"
        and "lr" not in {one.name for one in fields(create(name))}
        and not card.constrained
    ],
)


@every
@pytest.mark.parametrize("check", STRATEGY_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_what_is_promised_of_every_strategy(name, check):
    check(create(name))


@every
def test_a_name_may_preset_hyper_parameters_and_has_a_title_of_its_own(name):
    card = describe(name)
    assert replace(create(name).card, title=card.title) == card


@every
def test_unknown_hyper_parameter_is_refused(name):
    with pytest.raises(
        ConfigError, match=re.escape(f"hyper-parameter of strategy '{name}' 'betaa'")
    ):
        create(name, betaa=0.5)


@every
def test_a_hyper_parameter_of_the_wrong_type_is_refused(name):
    for one in fields(create(name)):
        with pytest.raises(ConfigError, match=rf"^strategy\.{one.name}"):
            create(name, **{one.name: object()})
        with pytest.raises(ConfigError, match=rf"^strategy\.{one.name}"):
            create(name, **{one.name: float("nan")})


@plain
def test_two_equal_clients_count_as_one(name):
    frame = fed.people(sites={"east": 60})
    twins = fed.people_federation(frame)
    east = twins.clients[0]
    pair = replace(twins, clients=(replace(east, name="a"), replace(east, name="b")))
    options = {"rounds": ROUNDS, "optimizer": "gradient"}  # full batches: no random order
    alone, _ = fed.run(fed.setup_for(twins, name, **options), twins)
    both, watch = fed.run(fed.setup_for(pair, name, **options), pair)
    # ½g + ½g is g without rounding.
    assert np.array_equal(alone.served.members, both.served.members)
    assert watch.records[-1].coefficients == {"a": 0.5, "b": 0.5}


@every
def test_a_mixture_of_rounds_survives_stopping_after_any_of_them(name, federation):
    fitting = {"ensemble": "select", "personal": "last"}.get(describe(name).serves, "mixture")
    output = Output(rule=fitting, tolerance=0.02)
    setup = fed.setup_for(federation, name, rounds=ROUNDS, output=output, participation=0.8)
    fed.assert_resumes(setup, federation)
