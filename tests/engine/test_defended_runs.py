"""Whole runs with a liar among the clients: what it gets, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.acceptance import LONGEST
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.defence import ROBUST
from mfairfl.engine.output import Output
from mfairfl.engine.state import Measure, Score, Train
from mfairfl.strategies import available, create
from rounds import close

PEOPLE, ALIKE = fed.people_federation(validation=0.2), fed.alike()
CARDS = {name: create(name).card for name in available()}
AVERAGING = [
    name
    for name, card in CARDS.items()
    if card.trains_on == "clients" and card.serves != "ensemble"
]
RULES = [rule for rule in ROBUST if rule != "none"]


def setup_of(name, federation=PEOPLE, **options):
    output = Output(rule=CARDS[name].output or "last")
    return fed.setup_for(federation, name, output=output, **options)


def reversed_update(ask, one):
    return replace(one, update=-one.update) if isinstance(ask, Train) else one


def more_rows(ask, one):
    return replace(one, counts=1e6 * one.counts) if isinstance(ask, Measure) else one


# ------------------------------------------------------------------ every method, every rule


@pytest.mark.parametrize("name", AVERAGING)
@pytest.mark.parametrize("rule", RULES)
def test_every_method_that_averages_runs_with_every_rule(rule, name):
    tamper = fed.lying("south", reversed_update)
    result, watch = fed.run(setup_of(name, rounds=2, robust=rule), PEOPLE, tamper=tamper)
    assert np.isfinite(result.served.members).all()
    for record in watch.records[1:]:
        assert set(record.coefficients) <= set(fed.SITES)
        assert record.log["robust"]["rule"] == rule
        assert record.clipped == record.log["robust"]["clipped"]
        assert set(record.log["robust"]["set_aside"]) <= set(record.set_aside)


@pytest.mark.parametrize("name", ["fedavg", "mfairfl", "scaffold", "fpfl", "ditto"])
def test_where_a_rule_finds_nothing_the_run_is_the_plain_one(name, monkeypatch):
    """The way through a rule changes no number but by rounding."""
    plain, one = fed.run(setup_of(name), PEOPLE)
    monkeypatch.setitem(ROBUST, "auto", ROBUST["none"])
    passed, other = fed.run(setup_of(name, robust="auto"), PEOPLE)
    close(passed.served.members, plain.served.members, atol=1e-6)
    for first, second in zip(one.records[1:], other.records[1:], strict=True):
        assert second.coefficients == pytest.approx(first.coefficients, abs=1e-9)
        assert "robust" not in first.log


def test_without_a_rule_the_step_is_that_of_the_updates_as_they_were_sent():
    """By hand: w − Σ n_k/n g_k, bit for bit, and nothing of a rule in the log."""
    updates = []

    def seen(ask, found, state):
        updates.extend(fed.reports_in(found) if isinstance(ask, Train) else [])
        return found

    _, watch = fed.run(setup_of("fedavg", rounds=1), PEOPLE, tamper=seen)
    sizes = {c.name: len(c.shard("train")) for c in PEOPLE.clients}
    total = sum(sizes.values())
    move = sum(
        np.float64(sizes[r.client] / total) * r.update.astype(np.float64)
        for r in sorted(updates, key=lambda r: r.client)
    )
    expected = (watch.weights[0] - move).astype(np.float32)
    assert np.array_equal(watch.weights[1], expected)
    assert watch.records[1].log == {}
    assert watch.records[1].clipped == {}


# ------------------------------------------------------------------ liars


def test_auto_sets_a_reversed_client_aside_and_the_model_is_that_of_the_others():
    setup = setup_of("fedavg", ALIKE, rounds=3, robust="auto", **fed.CALM)
    reversing = fed.lying("e", reversed_update)

    def silent(ask, found, state):
        return {n: r for n, r in found.items() if n != "e" or not isinstance(ask, Train)}

    others, _ = fed.run(setup, ALIKE, tamper=silent)
    found, watch = fed.run(setup, ALIKE, tamper=reversing)
    close(found.served.members, others.served.members, atol=1e-6)
    for record in watch.records[1:]:
        assert list(record.set_aside) == ["e"]
        assert record.set_aside["e"].startswith("its update works against the others'")
        assert record.coefficients == pytest.approx(dict.fromkeys("abcd", 0.25) | {"e": 0})
    plain, _ = fed.run(replace(setup, robust="none"), ALIKE, tamper=reversing)
    moved = np.abs(plain.served.members - others.served.members).max()
    assert moved > 100 * np.abs(found.served.members - others.served.members).max()


def scaled(factor):
    return lambda ask, one: (
        replace(one, update=factor * one.update) if isinstance(ask, Train) else one
    )


def with_losses(factor):
    def lie(ask, one):
        return replace(one, losses=factor * one.losses) if isinstance(ask, Measure) else one

    return lie


@pytest.mark.parametrize("robust", ["none", "auto"])
@pytest.mark.parametrize("name", ["fedavg", "mfairfl", "qffl", "fedfb"])
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (more_rows, "its counts are not those it was enrolled with"),
        (scaled(np.float32(1e6)), "is the longest"),
        (scaled(np.float32(1e30)), "is the longest"),
        (with_losses(0.0), "its loss is lower than its scores and decisions allow"),
        (with_losses(1e9), "its mean loss is above 10000"),
    ],
)
def test_no_lie_takes_the_model(lie, reason, name, robust):
    """Counts × 1e6, updates × 1e6 or losses of 0: named, and the model stays with the others."""
    setup = setup_of(name, rounds=2, robust=robust)
    honest, usual = fed.run(setup, PEOPLE)
    attacked, watch = fed.run(setup, PEOPLE, tamper=fed.lying("south", lie))
    most = max(max(record.coefficients.values()) for record in usual.records[1:])
    for record in watch.records[1:]:
        assert record.set_aside["south"].endswith(reason)
        assert "south" not in record.coefficients
        assert max(record.coefficients.values()) <= 2 * most
    assert np.abs(attacked.served.members).max() <= 2 * np.abs(honest.served.members).max()
    assert attacked.warnings == (
        f"south: answers refused in 2 rounds ({watch.records[-1].set_aside['south']})",
    )


def test_a_scaled_update_within_the_bound_is_shortened_by_auto():
    factor = np.float32(LONGEST / 2)
    tamper = fed.lying("south", scaled(factor))
    _, watch = fed.run(setup_of("fedavg", rounds=2, robust="auto"), PEOPLE, tamper=tamper)
    for record in watch.records[1:]:
        norms = sorted(record.norms.values())
        assert record.clipped["south"] == pytest.approx(2 * norms[1] / record.norms["south"])


def test_what_was_refused_at_the_end_is_named_in_the_result():
    def late(ask, one):
        return replace(one, losses=one.losses + 1e9) if isinstance(ask, Score) else one

    result, _ = fed.run(setup_of("fedavg"), PEOPLE, tamper=fed.lying("west", late))
    assert result.left_out == {"west": "its scores of train rows: its mean loss is above 10000"}
    assert "west" not in result.scored["test"]
    assert "west" in result.measured[0]["test"]


# ------------------------------------------------------------------ suspension


@pytest.mark.parametrize("name", ["mfairfl", "ditto", "scaffold", "fedavg-threshold"])
@pytest.mark.parametrize(
    ("lie", "rounds_away"),
    [
        # Three strikes, five rounds away; back in the ninth round, and one more strike.
        (reversed_update, [3, 4, 5, 6, 7, 9]),
        # The eighth round ends with a measurement for the ninth: it is wrong again.
        (more_rows, [3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_resuming_in_the_middle_of_a_suspension_changes_nothing(name, lie, rounds_away):
    setup = setup_of(name, ALIKE, rounds=9, robust="auto", **fed.CALM)
    watch = fed.assert_resumes(setup, ALIKE, tamper=fed.lying("e", lie))
    standings = [parse(data, "watch").standing for data in watch.dumps]
    assert [i for i, one in enumerate(standings) if "e" in one.out(i)] == rounds_away
    for record in watch.records[4:8]:
        assert "e" not in record.coefficients
        assert "e" not in record.measured["train"]
        assert record.set_aside["e"] == "suspended until round 9: its answers were refused"


@pytest.mark.parametrize("name", ["mfairfl", "scaffold", "fedavg-threshold"])
def test_resuming_after_a_step_that_was_taken_back_changes_nothing(name):
    """All clients' first updates are 1e25 times as long, and e lies in every measurement."""
    liar = fed.lying("e", more_rows)

    def tamper(ask, found, state):
        if isinstance(ask, Train) and ask.round == 0:
            return fed.by_client(
                replace(report, update=np.float32(1e25) * report.update)
                for report in fed.reports_in(found)
            )
        return liar(ask, found, state)

    setup = setup_of(name, ALIKE, rounds=4, robust="auto", **fed.CALM)
    watch = fed.assert_resumes(setup, ALIKE, tamper=tamper)
    assert np.array_equal(watch.weights[0], watch.weights[1])
    assert not np.array_equal(watch.weights[1], watch.weights[2])
    state = parse(watch.dumps[-1], "watch")
    assert state.undone == 1
    assert state.longest["update"] < 10  # what broke the model bounds nothing
    assert state.standing.rounds == {"e": 3}


def test_participants_are_drawn_from_those_who_are_not_suspended():
    setup = setup_of("fedavg", rounds=8, participation=0.5)
    _, watch = fed.run(setup, PEOPLE, tamper=fed.lying("south", more_rows))
    for record in watch.records[1:]:
        assert len(record.coefficients) == 2
        assert "south" not in record.coefficients
