"""What is measured when: counted by who was asked what, and without any influence on the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.embedded import run_all
from mfairfl.engine.output import Output
from mfairfl.engine.state import Measure, Train
from mfairfl.errors import ConfigError
from mfairfl.strategies import available, create
from mfairfl.strategies.base import Card, Step, Strategy

PEOPLE = fed.people_federation()
NAMES = {client.name for client in PEOPLE.clients}


def asked(setup, federation=PEOPLE, tamper=None):
    """Run, and return every measurement asked for: (round, number of models, splits, clients)."""
    found = []

    def watch(ask, answer, state):
        if isinstance(ask, Measure):
            found.append((state.round, len(ask.weights), ask.splits, set(answer)))
        return answer if tamper is None else tamper(ask, answer, state)

    result, watched = fed.run(setup, federation, tamper=watch)
    return found, result, watched


def test_who_plans_without_measurements_is_measured_every_few_rounds():
    found, _, _ = asked(fed.setup_for(PEOPLE, "fedavg", rounds=7, evaluate_every=3))
    both = ("train", "test")
    # Before the first round, after the third, the sixth and the last; then what is served.
    assert found == [(round_, 1, both, NAMES) for round_ in (0, 3, 6, 7, 7)]


def test_who_plans_from_measurements_has_train_rows_measured_in_every_round():
    found, _, _ = asked(fed.setup_for(PEOPLE, "qffl", rounds=5, evaluate_every=3))
    splits = [s for _, _, s, _ in found]
    both, train = ("train", "test"), ("train",)
    assert splits == [both, train, train, both, train, both, both]
    assert all(clients == NAMES for *_, clients in found)


def test_only_participants_are_measured_where_few_take_part():
    setup = fed.setup_for(PEOPLE, "qffl", rounds=6, evaluate_every=3, participation=0.5)
    found, _, watch = asked(setup)
    by_round = {round_: (splits, clients) for round_, _, splits, clients in found[:-1]}
    for round_ in range(6):
        splits, clients = by_round[round_]
        took_part = set(watch.records[round_ + 1].coefficients)
        if round_ % 3:
            assert (splits, clients) == (("train",), took_part)
        else:
            assert (splits, clients) == (("train", "test"), NAMES)


def test_what_may_be_served_is_always_measured_on_the_rows_that_choose():
    output = Output(rule="select")
    found, _, _ = asked(fed.setup_for(PEOPLE, "fedavg", rounds=6, evaluate_every=6, output=output))
    both, train = ("train", "test"), ("train",)
    assert [(r, models, splits) for r, models, splits, _ in found] == [
        (0, 1, both),
        (4, 2, train),
        (5, 2, train),
        (6, 2, both),
        (6, 1, both),
    ]


def test_validation_rows_choose_and_train_rows_plan():
    rows = fed.people_federation(validation=0.2)
    output = Output(rule="select")
    for name, later in (("fedavg", ("validation",)), ("qffl", ("train", "validation"))):
        setup = fed.setup_for(rows, name, rounds=4, evaluate_every=9, output=output)
        found, _, _ = asked(setup, rows)
        assert [splits for round_, _, splits, _ in found if round_ == 3] == [later]


def test_patience_needs_the_loss_of_every_round():
    setup = fed.setup_for(PEOPLE, "fedavg", rounds=4, evaluate_every=9, patience=4)
    found, _, _ = asked(setup)
    assert [round_ for round_, *_ in found] == [0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("name", available())
def test_the_schedule_changes_no_model(name):
    models = []
    for every in (1, 2, 5):
        setup = fed.setup_for(PEOPLE, name, rounds=4, evaluate_every=every)
        (result,) = run_all([fed.member_of(setup, PEOPLE)])
        models.append(fed.bits(result))
    assert models[0] == models[1] == models[2]


@pytest.mark.parametrize("participation", [0.5, 1.0])
@pytest.mark.parametrize("name", ["fedavg", "mfairfl", "scaffold", "cenfair", "indfair"])
@pytest.mark.parametrize("rule", ["last", "select"])
def test_resuming_anywhere_between_two_measurements_changes_nothing(name, rule, participation):
    setup = fed.setup_for(
        PEOPLE,
        name,
        rounds=5,
        evaluate_every=3,
        output=Output(rule=rule),
        participation=participation,
    )
    fed.assert_resumes(setup, PEOPLE)


@pytest.mark.parametrize("name", ["fedavg", "qffl"])
def test_resuming_with_a_silent_client_among_few_changes_nothing(name):
    def more_rows(ask, one):
        return replace(one, counts=3 * one.counts) if isinstance(ask, Measure) else one

    setup = fed.setup_for(PEOPLE, name, rounds=6, evaluate_every=2, participation=0.5)
    watch = fed.assert_resumes(setup, PEOPLE, tamper=fed.lying("west", more_rows))
    # Where rounds are planned from measurements another takes its place; elsewhere it is left out
    # of the round after a measurement that cannot be used.
    counted = [set(record.coefficients) for record in watch.records[1:]]
    assert all(len(one) == 2 for one in counted)
    planned = name == "qffl"
    for i, one in enumerate(counted):
        if planned or i % 2 == 0:
            assert "west" not in one


def broken_in(*rounds):
    """Make every update of some rounds so long that nobody can measure the model."""

    def tamper(ask, found, state):
        del state
        if isinstance(ask, Train) and ask.round in rounds:
            return fed.by_client(
                replace(report, update=np.float32(1e25) * report.update)
                for report in fed.reports_in(found)
            )
        return found

    return tamper


def test_steps_that_break_the_model_are_taken_back_to_the_last_sound_one():
    """The second step breaks the model; that is seen after the third, and both are taken back."""
    setup = fed.setup_for(PEOPLE, "fedavg", rounds=6, evaluate_every=3, **fed.CALM)
    watch = fed.assert_resumes(setup, PEOPLE, tamper=broken_in(1))
    states = [parse(data, "watch") for data in watch.dumps]
    assert [state.undone for state in states] == [0, 0, 0, 3, 3, 3, 3]
    assert [None if s.last_good is None else s.last_good.round for s in states] == [
        None,
        0,
        0,
        None,
        3,
        3,
        None,
    ]
    assert np.array_equal(watch.weights[3], watch.weights[0])
    assert not np.array_equal(watch.weights[4], watch.weights[3])
    assert "undone" in watch.records[3].log
    assert states[-1].longest["update"] < 10  # what broke the model bounds nothing


def test_weights_that_are_not_finite_are_taken_back_at_once():
    def infinite(ask, found, state):
        del state
        if isinstance(ask, Train) and ask.round == 1:
            return fed.by_client(
                replace(report, update=np.full_like(report.update, 3e38))
                for report in fed.reports_in(found)
            )
        return found

    @dataclass(frozen=True)
    class Doubled(Strategy):
        card = Card(title="Twice the sum", measures="none")

        def combine(self, state, round, reports, gram):
            return Step(np.full(len(reports), 2.0))

    setup = fed.setup_for(PEOPLE, Doubled(), rounds=3, evaluate_every=9, **fed.CALM)
    _, watch = fed.run(setup, PEOPLE, tamper=infinite)
    assert "not finite" in watch.records[2].log["undone"]
    assert np.array_equal(watch.weights[2], watch.weights[0])
    assert np.isfinite(watch.weights[-1]).all()


def test_a_strategy_that_reads_what_its_card_does_not_ask_for_is_told():
    @dataclass(frozen=True)
    class Curious(Strategy):
        card = Card(title="Reads losses", measures="none")

        def combine(self, state, round, reports, gram):
            return Step(round.losses(reports))

    with pytest.raises(ConfigError, match='give its card measures="participants"'):
        fed.run(fed.setup_for(PEOPLE, Curious(), rounds=1), PEOPLE)


def test_cards_say_what_strategies_read():
    """Who asks for measurements uses them: with other losses it plans or combines otherwise."""
    none = {name for name in available() if create(name).card.measures == "none"}
    assert none == {
        *("fedavg", "fedavg-f", "fedavg-threshold", "fedprox", "scaffold", "ditto"),
        *("fedmgda+", "indfair", "cenfair", "constant"),
    }


def test_a_robust_rule_wants_to_know_losses():
    found, _, _ = asked(fed.setup_for(PEOPLE, "fedavg", rounds=3, evaluate_every=9, robust="auto"))
    assert [round_ for round_, *_ in found] == [0, 1, 2, 3, 3]
