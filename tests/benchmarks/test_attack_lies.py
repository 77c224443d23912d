"""What liars send: the numbers of each attack, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from attacks.lies import ATTACKS, STRENGTHS, Attack, Liars, Scene, poisoned, rehearse
from mfairfl.data import Inputs, Shard
from mfairfl.engine.acceptance import measurement_faults
from mfairfl.engine.embedded import run_all
from mfairfl.engine.loop import federate
from mfairfl.engine.state import Measure, Train
from mfairfl.fairness.cells import Statistics
from rounds import close

HONEST = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, 4.0]])


def scene(**changes):
    base = {
        "own": np.array([1.0, -2.0, 4.0]),
        "honest": HONEST,
        "round": 0,
        "rounds": 4,
        "rng": np.random.default_rng(0),
        "harm": lambda vector: float(np.abs(vector).sum()),
    }
    return Scene(**(base | changes))


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("sign-flip", [-1, 2, -4]),
        ("sign-flip-10", [-10, 20, -40]),
        ("scale-100", [100, -200, 400]),
        ("ipm-0.5", [-1, -1, -1]),  # the honest mean is [2, 2, 2]
        ("ipm-10", [-20, -20, -20]),
        ("alie", [3.5, 2, 5]),  # the honest deviations are [1, 0, 2]
        ("mimic", [1, 2, 0]),
        ("infinite", [np.inf] * 3),
    ],
)
def test_updates_are_forged_as_their_names_say(name, sent):
    assert ATTACKS[name].forge(scene()).tolist() == sent


def test_a_client_behaves_for_half_of_the_rounds_and_then_flips():
    forge = ATTACKS["flip-later"].forge
    signs = [forge(scene(round=round_))[0] for round_ in range(4)]
    assert signs == [1, 1, -1, -1]


@pytest.mark.parametrize(("name", "base"), [("ipm-optimal", 0.0), ("alie-optimal", 2.0)])
def test_an_optimal_attack_takes_the_strength_of_most_harm(name, base):
    asked = []

    def harm(vector):
        asked.append(vector)
        return -abs(float(vector[0]) - (base + 3.0))  # best where the first number is base + 3

    found = ATTACKS[name].forge(scene(harm=harm))
    assert len(asked) == 2 * len(STRENGTHS)
    # IPM sends −s · 2 and tries s = ±1.5, ALIE sends 2 + s · 1 and tries s = 3.
    assert found[0] == base + 3.0


SUMS = Statistics(
    counts=[[4.0, 6.0], [2.0, 8.0]],
    positives=[[1.0, 5.0], [0.0, 4.0]],
    scores=[[1.5, 4.0], [0.5, 5.0]],
    losses=[[2.0, 3.0], [1.0, 6.0]],
)


def test_measurements_are_forged_as_their_names_say():
    assert ATTACKS["loss-0"].say(SUMS).losses.tolist() == [[0, 0], [0, 0]]
    assert ATTACKS["loss-1e9"].say(SUMS).losses.tolist() == [[4e9, 6e9], [2e9, 8e9]]
    assert ATTACKS["loss-high"].say(SUMS).losses.tolist() == [[3, 4.5], [1.5, 9]]
    assert ATTACKS["counts-1e6"].say(SUMS).positives.tolist() == [[1e6, 5e6], [0, 4e6]]
    perfect = ATTACKS["loss-perfect"].say(SUMS)
    assert perfect.positives.tolist() == perfect.scores.tolist() == [[0, 6], [0, 8]]
    # It is the best lie that can be true: nothing gives it away.
    assert measurement_faults({"a": perfect}, {"a": SUMS.counts}, at_half=True) == {}


def test_rows_are_poisoned_at_liars_only(federation):
    changed = poisoned(federation, ATTACKS["label-flip"], ["east"])
    for before, after in zip(federation.clients, changed.clients, strict=True):
        flipped = before.name == "east"
        assert np.array_equal(after.train.y, 1 - before.train.y if flipped else before.train.y)
        assert np.array_equal(after.test.y, before.test.y)


def test_groups_are_swapped_and_rows_padded():
    rows = Shard(
        inputs=Inputs.of(np.zeros((2, 1), np.float32)),
        y=np.array([0, 1], np.int8),
        cells=np.array([0, 3], np.int32),
        rows=np.arange(2),
    )
    assert ATTACKS["group-liar"].poison(rows, 4).cells.tolist() == [3, 0]
    padded = ATTACKS["padded-labels"].poison(rows, 4)
    assert padded.y.tolist() == [1] * 10 + [0] * 10
    assert padded.X.shape == (20, 1)


def test_only_liars_lie_on_the_way_to_the_server(federation):
    setup = fed.setup_for(federation, "fedavg", rounds=1)
    clients, state = fed.clients_and_state(setup, federation)
    tamper = Liars(setup, ATTACKS["sign-flip"], ["north"])
    loop = federate(setup, state)
    ask = next(loop)
    while not isinstance(ask, Train):
        ask = loop.send(tamper(ask, clients.answer({0: ask})[0], state))
    honest = clients.answer({0: ask})[0]
    for client, (after,) in tamper(ask, honest, state).items():
        sign = -1 if client == "north" else 1
        assert np.array_equal(after.update, sign * honest[client][0].update)


def test_a_rehearsal_is_the_step_that_is_taken(federation):
    setup = replace(fed.setup_for(federation, "mfairfl", rounds=1), robust="auto")
    clients, state = fed.clients_and_state(setup, federation)
    loop = federate(setup, state)
    ask = next(loop)
    measured = clients.answer({0: ask})[0]
    ask = loop.send(measured)
    reports = clients.answer({0: ask})[0]
    start = state.weights.astype(float)
    expected = rehearse(setup, state, measured, fed.reports_in(reports))
    assert np.array_equal(state.weights, start.astype(np.float32))  # nothing has changed
    ask = loop.send(reports)
    assert isinstance(ask, Measure)
    close(start - state.weights, expected, 1e-6)


def test_an_honest_attack_changes_no_bit(federation):
    setup = fed.setup_for(federation, "mfairfl", rounds=2)
    plain, _ = fed.run(setup, federation)
    tamper = Liars(setup, Attack(title="nothing"), ["north"])
    (watched,) = run_all([fed.member_of(setup, federation, tamper=tamper)])
    assert fed.bits(watched) == fed.bits(plain)


def test_names_of_attacks_are_words_a_shell_takes():
    assert all(name == name.lower() and " " not in name for name in ATTACKS)
    assert sum(attack.honest for attack in ATTACKS.values()) == 2
    assert replace(ATTACKS["none"], forge=lambda s: s.own).honest is False
