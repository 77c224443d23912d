"""A loop that knows sums over all clients only ends where one that knows each client ends."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from answers import one_line
from masked_runs import masked_setup, run_masked
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.output import Output
from mfairfl.engine.state import Measure, Score, Train
from mfairfl.engine.tallies import pooled, served_singles, served_tally, tally_of
from mfairfl.errors import ConfigError, FederationError
from mfairfl.fairness.masked import MaskedSums, Single
from mfairfl.fairness.metrics import client_accuracy_std, worst_client_accuracy
from mfairfl.runs.history import round_numbers
from mfairfl.strategies import available, create
from mfairfl.strategies.base import Measurement

PEOPLE = fed.people_federation(validation=0.2)
LOSSES = [
    name
    for name in available()
    if create(name).card.reads == "losses" and create(name).card.trains_on == "clients"
]
CELLS = [name for name in available() if name not in LOSSES]


def options(strategy, **more):
    rule = create(strategy).card.output or "select"
    fits = create(strategy).card.serves == "global"
    return {"output": Output(rule=rule if fits else "last"), "rounds": 4} | more


def test_the_methods_that_need_no_more_than_losses_say_so():
    assert {"mfairfl", "mfairfl-paper", "fpfl", "fedavg", "fedavg-threshold", "qffl"} <= {*LOSSES}
    assert sorted(CELLS) == ["cenfair", "fairfed", "fedavg-f", "fedfb", "indfair"]


@pytest.mark.parametrize("strategy", LOSSES)
def test_the_same_model_as_with_every_client_s_cells(strategy):
    given = options(strategy)
    plain, plainly = fed.run(fed.setup_for(PEOPLE, strategy, **given), PEOPLE)
    found, watch, _ = run_masked(masked_setup(PEOPLE, strategy, **given), PEOPLE)
    assert found.served.names == plain.served.names
    assert np.array_equal(found.served.members, plain.served.members)
    for ours, theirs in zip(watch.weights, plainly.weights, strict=True):
        assert np.array_equal(ours, theirs)
    attributes = PEOPLE.attributes
    for split in ("train", "validation", "test"):
        ours = served_tally(found.served, found.measured, split, attributes)
        theirs = served_tally(plain.served, plain.measured, split, attributes)
        # Randomised thresholds have expected counts, which are rounded.
        close = 0 if theirs.counts.dtype == np.int64 else 1e-12
        np.testing.assert_allclose(ours.counts[0], theirs.counts.sum(axis=0), rtol=close)
        singles = served_singles(found.served, found.measured, split)
        for number in (client_accuracy_std, worst_client_accuracy):
            assert number(singles, None) == pytest.approx(number(theirs, None), rel=1e-12)
    assert served_singles(plain.served, plain.measured, "test") is None


def test_multipliers_that_move_at_the_clients_are_followed_by_their_mean():
    """Inside a round of ten epochs; means differ from a sum of products by rounding only."""
    given = {"rounds": 4, "local_epochs": 10}
    plain, plainly = fed.run(fed.setup_for(PEOPLE, "mfairfl", **given), PEOPLE)
    found, watch, state = run_masked(masked_setup(PEOPLE, "mfairfl", **given), PEOPLE)
    assert np.abs(state.strategy["multipliers"]).max() > 0
    for ours, theirs in zip(watch.weights, plainly.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert found.rounds == plain.rounds == 4


def test_numbers_of_rounds_are_those_of_the_run_that_sees_all():
    given = {"rounds": 2}
    _, plainly = fed.run(setup := fed.setup_for(PEOPLE, "mfairfl", **given), PEOPLE)
    masked = masked_setup(PEOPLE, "mfairfl", **given)
    _, watch, _ = run_masked(masked, PEOPLE)
    for ours, theirs in zip(watch.records, plainly.records, strict=True):
        assert round_numbers(masked, ours) == pytest.approx(round_numbers(setup, theirs))


# ------------------------------------------------------------------ drops


def lost_in(round_, kind=Measure, client="south"):
    """This client does not answer such a question once, after so many rounds."""

    def away(ask, state):
        return (client,) if isinstance(ask, kind) and state.round == round_ else ()

    return away


def test_a_drop_loses_the_measurement_and_not_the_run():
    setup = masked_setup(PEOPLE, "mfairfl", rounds=6, output=Output(rule="select"))
    found, watch, state = run_masked(setup, PEOPLE, away=lost_in(4))
    assert found.rounds == 6
    record = watch.records[4]
    assert record.complete == ()
    assert record.log["measurement lost"] == "south did not answer"
    assert record.set_aside == {"south": "no answer before the deadline"}
    assert all(number is None for number in round_numbers(setup, record).values())
    assert set(record.measured["train"]) == {"east", "north", "west"}
    assert [one.name for one in state.bank] == ["round 5", "average 5", "round 6", "average 6"]
    # Who did not measure does not train; the others went on with the sums before.
    assert set(watch.records[5].coefficients) == {"east", "north", "west"}
    assert set(watch.records[6].coefficients) == {"east", "north", "south", "west"}
    assert all(record.complete for i, record in enumerate(watch.records) if i != 4)


def test_the_last_sums_that_were_told_stay_in_force():
    setup = masked_setup(PEOPLE, "mfairfl", rounds=3)
    _, watch, _ = run_masked(setup, PEOPLE, away=lost_in(2))
    told = pooled(watch.records[1].measured["train"])
    kept = parse(watch.dumps[2], "watch").released
    assert np.array_equal(kept.positives, told.positives)
    assert np.array_equal(kept.losses, told.losses)
    law = setup.strategy.law(setup.summary)
    assert parse(watch.dumps[3], "watch").strategy["gaps"].tolist() == law.gaps(told).tolist()


def test_before_anything_is_told_no_multiplier_moves():
    setup = masked_setup(PEOPLE, "mfairfl", rounds=2)
    _, watch, _ = run_masked(setup, PEOPLE, away=lost_in(0))
    assert parse(watch.dumps[0], "watch").released is None
    assert not parse(watch.dumps[1], "watch").strategy["multipliers"].any()
    assert parse(watch.dumps[2], "watch").strategy["multipliers"].any()


def test_a_drop_in_training_keeps_the_server_s_own_multipliers():
    setup = masked_setup(PEOPLE, "mfairfl", rounds=2, local_epochs=10)
    _, watch, state = run_masked(setup, PEOPLE, away=lost_in(0, Train))
    assert watch.records[1].log["multipliers lost"] == "south did not answer"
    assert set(watch.records[1].coefficients) == {"east", "north", "west"}
    assert state.round == 2


def test_a_run_that_is_stopped_and_resumed_ends_in_the_same_bits():
    setup = masked_setup(PEOPLE, "mfairfl", rounds=4, output=Output(rule="select"))
    straight, watch, _ = run_masked(setup, PEOPLE)
    for data in watch.dumps:
        resumed, _, _ = run_masked(setup, PEOPLE, state=parse(data, "watch"))
        assert np.array_equal(resumed.served.members, straight.served.members)
        assert resumed.served.names == straight.served.names


@pytest.mark.parametrize("kind", [Measure, Score])
def test_what_is_served_needs_all_sums(kind):
    setup, asks = masked_setup(PEOPLE, "mfairfl", rounds=2), []

    def away(ask, state):
        asks.append(ask)
        ended = state.round == 2 and len([a for a in asks if not isinstance(a, Train)]) > 3
        return ("west",) if ended and isinstance(ask, kind) else ()

    with pytest.raises(FederationError) as caught:
        run_masked(setup, PEOPLE, away=away)
    assert one_line(caught) == (
        "the served model needs sums over all silos: west did not answer; when all are there, "
        "run the same command again to resume from the last completed round"
    )


# ------------------------------------------------------------------ what is believed


def lying(change, kind=Measure):
    def lie(ask, reply):
        if not isinstance(ask, kind):
            return reply
        return reply._replace(
            found=tuple({s: change(sums) for s, sums in model.items()} for model in reply.found)
        )

    return lie


def once(change, round_):
    """Change the measurement after a round."""
    calls = []

    def lie(ask, reply):
        if isinstance(ask, Measure):
            calls.append(ask)
        return lying(change)(ask, reply) if len(calls) == round_ + 1 else reply

    return lie


def with_single(single):
    return lambda sums: MaskedSums({**sums, "south": single(sums["south"])}, sums.whole)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda sums: MaskedSums(sums, replace(sums.whole, counts=sums.whole.counts + 1)),
            "the sum over train rows: its counts are not those it was enrolled with",
        ),
        (
            lambda sums: MaskedSums(sums, replace(sums.whole, positives=-sums.whole.counts - 1)),
            "the sum over train rows: its positives are below 0 or above its counts",
        ),
        (
            lambda sums: MaskedSums(sums, replace(sums.whole, losses=sums.whole.losses * np.nan)),
            "the sum over train rows: a number is not finite",
        ),
        (
            with_single(lambda one: Single.told(Single.of(one).rows + 1, 0.0, 9.0)),
            "the sums hold the numbers of south, which cannot be true",
        ),
        (
            with_single(lambda one: Single.told(Single.of(one).rows, -1.0, 9.0)),
            "the sums hold the numbers of south, which cannot be true",
        ),
        (
            with_single(lambda one: Single.told(Single.of(one).rows, 5.0, 0.0)),
            "the sums hold the numbers of south, which cannot be true",
        ),
        (
            with_single(lambda one: Single.told(Single.of(one).rows, 0.0, np.inf)),
            "the sums hold the numbers of south, which cannot be true",
        ),
    ],
)
def test_sums_that_cannot_be_true_are_lost(change, reason):
    setup = masked_setup(PEOPLE, "mfairfl", rounds=3)
    found, watch, _ = run_masked(setup, PEOPLE, lie=once(change, 2))
    assert watch.records[2].log["measurement lost"] == reason
    assert found.rounds == 3
    assert all("measurement lost" not in watch.records[i].log for i in (1, 3))


def test_impossible_means_of_multipliers_are_left_out_and_nobody_is_blamed():
    setup = masked_setup(PEOPLE, "mfairfl", rounds=2, local_epochs=10)

    def lie(ask, reply):
        if not isinstance(ask, Train):
            return reply
        wrong = [replace(r, multipliers=(1e9,) * len(r.multipliers)) for r in reply.found]
        return reply._replace(found=wrong)

    _, watch, state = run_masked(setup, PEOPLE, lie=lie)
    assert all(not record.set_aside for record in watch.records)
    assert np.abs(state.strategy["multipliers"]).max() < 20


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("strategy", [name for name in CELLS if name != "cenfair"])
def test_methods_that_read_single_clients_cells_are_refused(strategy):
    with pytest.raises(ConfigError) as caught:
        masked_setup(PEOPLE, strategy, **options(strategy))
    assert one_line(caught) == (
        "masked = true: with these settings the strategy reads single clients' rates by group, "
        "and masks hide them; choose one that reads losses only (see `mfairfl strategies`)"
    )


@pytest.mark.parametrize(
    "hyper",
    [{"scope": "local"}, {"client_parity": 0.1}, {"order": "objective"}, {"weights": "uniform"}],
)
def test_so_are_settings_of_mfairfl_that_do(hyper):
    with pytest.raises(ConfigError, match="reads single clients' rates"):
        masked_setup(PEOPLE, create("mfairfl", **hyper))


def test_other_settings_that_masks_exclude_are_refused_in_one_line():
    with pytest.raises(ConfigError) as caught:
        masked_setup(PEOPLE, "mfairfl", robust="auto")
    assert one_line(caught) == (
        "masked = true: robust = 'auto' compares what single clients measured with their updates, "
        "and masks hide it; use robust = 'none'"
    )
    with pytest.raises(ConfigError) as caught:
        masked_setup(PEOPLE, "mfairfl", participation=0.5)
    assert one_line(caught) == (
        "masked = true: sums over other clients in every round tell single ones apart; use "
        "training.participation = 1"
    )
    two = fed.people_federation(fed.people(sites={"east": 60, "west": 60}))
    with pytest.raises(ConfigError) as caught:
        masked_setup(two, "mfairfl")
    assert one_line(caught) == "masked = true: 2 clients; sums are over at least 3"


def test_a_strategy_that_reads_what_it_did_not_declare_is_told():
    with pytest.raises(ConfigError) as caught:
        _ = Measurement("a", Single.told(3.0, 1.0, 2.0)).statistics
    assert one_line(caught) == (
        "masked = true: the strategy reads the rates of a single client, which masks hide; its "
        'card must say reads="cells"'
    )


def test_records_can_be_written(tmp_path):
    """Logs are JSON; a tally of singles has one cell."""
    setup = masked_setup(PEOPLE, "mfairfl", rounds=1)
    _, watch, _ = run_masked(setup, PEOPLE)
    assert json.dumps(watch.records[1].log)
    assert tally_of(dict(watch.records[1].measured["test"]), ()).counts.shape == (4, 1, 2, 2)
