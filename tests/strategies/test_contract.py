"""What every strategy must do, whatever its mathematics: runs over all that are registered."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

import federations as fed
from mfairfl.data import Federation
from mfairfl.engine.checkpoint import dump, parse
from mfairfl.engine.embedded import run_all
from mfairfl.engine.loop import Result, federate
from mfairfl.engine.output import Output
from mfairfl.engine.state import Setup, Train
from mfairfl.errors import ConfigError
from mfairfl.strategies import available, create, describe
from mfairfl.training.plan import Report

ROUNDS = 3
every = pytest.mark.parametrize("name", available())
trained = pytest.mark.parametrize(
    "name", [name for name in available() if describe(name).starts == "random"]
)
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


def drive(
    setup: Setup, federation: Federation, tamper: Callable[[int, list[Report]], Sequence[Report]]
) -> tuple[Result, fed.Watch]:
    """Run with replies that `tamper(round, replies)` changes on their way to the server."""
    watch = fed.Watch()
    clients, state = fed.clients_and_state(setup, federation)
    loop = federate(setup, state, [watch])
    request = next(loop)
    while True:
        answer = clients.answer({0: request})[0]
        if isinstance(request, Train):
            answer = tamper(request.round, answer)
        try:
            request = loop.send(answer)
        except StopIteration as stop:
            return stop.value, watch


def same(a: object, b: object) -> bool:
    """Deep equality with types and array bits: a state must come back as it went."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def assert_sound(result: Result, watch: fed.Watch) -> None:
    """All rounds took place; weights, coefficients and logs are finite numbers."""
    assert result.rounds == ROUNDS
    assert [record.round for record in watch.records] == list(range(ROUNDS + 1))
    assert np.isfinite(result.served.members).all()
    for record in watch.records:
        assert all(np.isfinite(c) for c in record.coefficients.values())
        assert set(record.coefficients) == set(record.norms)
        json.dumps(record.log, allow_nan=False)


# ------------------------------------------------------------------ who it says it is


@every
def test_card_is_filled_in(name):
    card = describe(name)
    for line in (card.title, card.paper, card.protects):
        assert line.strip() == line != ""
        assert "\n" not in line
    # A name may preset hyper-parameters and then has a title of its own.
    assert dataclasses.replace(create(name).card, title=card.title) == card


@every
def test_is_frozen_and_equal_by_its_hyper_parameters(name):
    strategy = create(name)
    assert strategy == create(name)
    for one in fields(strategy):
        with pytest.raises(FrozenInstanceError):
            setattr(strategy, one.name, None)


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


# ------------------------------------------------------------------ what it computes


@every
def test_runs_with_a_client_lacking_a_group_and_one_lacking_a_class(name, federation):
    notes = " ".join(federation.warnings)
    assert "north: no train row of sex F" in notes
    assert "south: every train label is unfavourable" in notes
    assert_sound(*fed.run(fed.setup_for(federation, name, rounds=ROUNDS), federation))


@trained
def test_training_lowers_the_loss_on_its_rows(name, federation):
    _, watch = fed.run(fed.setup_for(federation, name, rounds=ROUNDS, lr=0.05), federation)
    first, last = watch.records[0].measured["train"], watch.records[-1].measured["train"]
    assert sum(s.losses.sum() for s in last.values()) < sum(s.losses.sum() for s in first.values())


@every
def test_same_seed_same_bits_and_another_seed_another_start(name, federation):
    setup = fed.setup_for(federation, name, rounds=ROUNDS)
    first, again = fed.run(setup, federation)[0], fed.run(setup, federation)[0]
    assert fed.bits(first) == fed.bits(again)
    other = fed.run(replace(setup, seed=1), federation)[0]
    moved = not np.array_equal(first.served.members, other.served.members)
    assert moved == (describe(name).starts == "random")


@every
def test_the_order_in_which_clients_are_listed_changes_nothing(name, federation):
    turned = replace(federation, clients=federation.clients[::-1])
    runs = [fed.run(fed.setup_for(f, name, rounds=ROUNDS), f) for f in (federation, turned)]
    assert fed.bits(runs[0][0]) == fed.bits(runs[1][0])
    assert runs[0][1].dumps == runs[1][1].dumps


@every
def test_two_runs_side_by_side_have_the_bits_of_each_alone(name, federation):
    setups = [
        fed.setup_for(federation, name, rounds=ROUNDS),
        fed.setup_for(federation, name, rounds=ROUNDS + 1, seed=1, batch_size=33),
        fed.setup_for(federation, "fedavg", rounds=1, hidden=(3, 3)),
    ]
    together = run_all([fed.member_of(setup, federation) for setup in setups])
    for setup, result in zip(setups, together, strict=True):
        assert fed.bits(result) == fed.bits(fed.run(setup, federation)[0])


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


@trained
def test_equal_clients_count_equally(name):
    one = fed.people_federation(fed.people(sites={"east": 60}))
    east = one.clients[0]
    three = replace(one, clients=tuple(replace(east, name=n) for n in "abc"))
    setup = fed.setup_for(three, name, rounds=ROUNDS, optimizer="gradient")
    if describe(name).constrained:
        setup = replace(setup, rounds=1)  # before any state tells the clients apart
    _, watch = fed.run(setup, three)
    for record in watch.records[1:]:
        values = list(record.coefficients.values())
        np.testing.assert_allclose(values, values[0], rtol=1e-9)


@every
def test_a_client_with_one_row(name):
    frame = fed.people(sites={"east": 50, "solo": 1, "west": 40})
    federation = fed.people_federation(frame)
    assert {c.name: len(c.train) for c in federation.clients}["solo"] == 1
    assert_sound(*fed.run(fed.setup_for(federation, name, rounds=ROUNDS), federation))


# ------------------------------------------------------------------ when replies are bad or absent


@every
def test_a_missing_reply_is_done_without(name, federation):
    setup = fed.setup_for(federation, name, rounds=ROUNDS)
    result, watch = drive(setup, federation, lambda _, r: [x for x in r if x.client != "east"])
    assert_sound(result, watch)
    assert all("east" not in record.coefficients for record in watch.records)


@trained
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reply_that_is_not_finite_is_set_aside_with_the_reason(name, bad, federation):
    who = "all clients" if describe(name).trains_on == "pooled" else "west"

    def poison(round_: int, replies: list[Report]) -> list[Report]:
        return [_spoilt(r, bad) if (r.client, round_) == (who, 1) else r for r in replies]

    result, watch = drive(fed.setup_for(federation, name, rounds=ROUNDS), federation, poison)
    assert_sound(result, watch)
    assert watch.records[2].set_aside == {who: "its update holds a number that is not finite"}
    assert who not in watch.records[2].coefficients
    # Set aside is as if it had never come.
    absent = drive(
        fed.setup_for(federation, name, rounds=ROUNDS),
        federation,
        lambda round_, r: [x for x in r if (x.client, round_) != (who, 1)],
    )[0]
    assert fed.bits(result) == fed.bits(absent)


def _spoilt(report: Report, value: float) -> Report:
    update = report.update.copy()
    update[3] = value
    return replace(report, update=update)


@every
def test_without_any_reply_the_weights_stay_where_they_are(name, federation):
    result, watch = drive(
        fed.setup_for(federation, name, rounds=ROUNDS), federation, lambda *_: []
    )
    assert_sound(result, watch)
    for weights in watch.weights[1:]:
        assert np.array_equal(weights, watch.weights[0])


@trained
def test_replies_twice_over_and_in_any_order_change_nothing(name, federation):
    setup = fed.setup_for(federation, name, rounds=ROUNDS)
    expected = fed.bits(fed.run(setup, federation)[0])
    assert expected == fed.bits(drive(setup, federation, lambda _, r: [*r[::-1], *r])[0])


@trained
def test_partial_participation_takes_only_those_who_were_drawn(name, federation):
    setup = fed.setup_for(federation, name, rounds=ROUNDS, participation=0.5)
    result, watch = fed.run(setup, federation)
    assert_sound(result, watch)
    assert all(len(record.coefficients) <= 2 for record in watch.records)


# ------------------------------------------------------------------ stopping and going on


@every
def test_state_survives_the_checkpoint(name, federation):
    _, watch = fed.run(fed.setup_for(federation, name, rounds=ROUNDS), federation)
    for data in watch.dumps:
        state = parse(data, "watch")
        assert dump(state, "watch") == data


@every
def test_the_strategys_own_state_survives_as_it_is(name, federation):
    setup = fed.setup_for(federation, name, rounds=ROUNDS)
    clients, state = fed.clients_and_state(setup, federation)
    seen = []
    loop = federate(setup, state)
    request = next(loop)
    for _ in range(2 * ROUNDS):
        seen.append(same(parse(dump(state, "x"), "x").strategy, dict(state.strategy)))
        try:
            request = loop.send(clients.answer({0: request})[0])
        except StopIteration:
            break
    assert len(seen) > 1
    assert all(seen)


@every
@pytest.mark.parametrize("rule", ["last", "mixture"])
def test_stopping_after_any_round_and_going_on_gives_the_same_bits(name, rule, federation):
    fitting = {"ensemble": "select", "personal": "last"}.get(describe(name).serves, rule)
    output = Output(rule=fitting, tolerance=0.02)
    setup = fed.setup_for(federation, name, rounds=ROUNDS, output=output, participation=0.8)
    fed.assert_resumes(setup, federation)
