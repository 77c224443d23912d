"""mFairFL step by step: two clients by hand, the printed algorithms in plain loops, small runs.

Client a holds the women (40 rows), b the men (60 rows):

              y = 0   y = 1     all       round 2
    a (F)     3/30    5/10      8/40      10/40
    b (M)    18/40   16/20     34/60      30/60
    both     21/70   21/30     42/100     40/100
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import hypothesis.strategies as st
import mfairfl_naive as naive
import numpy as np
import pytest
from biased_runs import violations
from hypothesis import given, settings

import federations as fed
import mfairfl
import rounds
from mfairfl.engine.embedded import summarize
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.geometry import diminish_conflicts
from mfairfl.randomness import stream
from mfairfl.runs.config import make_config
from mfairfl.strategies import create
from mfairfl.training.plan import Prices, Recipe
from rounds import a_round, close, measurement, report

WOMEN, MEN = [[30.0, 10.0], [0.0, 0.0]], [[0.0, 0.0], [40.0, 20.0]]
D = [0.22, 0.42 - 34 / 60]  # both − F, both − M: what demographic parity sees in round 1
D_LATER = [0.15, -0.1]  # and in round 2


A = measurement("a", WOMEN, [[3, 5], [0, 0]])
B = measurement("b", MEN, [[0, 0], [18, 16]])
A_LATER = measurement("a", WOMEN, [[4, 6], [0, 0]])
B_LATER = measurement("b", MEN, [[0, 0], [15, 15]])


def this_round(known=(A, B), *, epochs=5, **where):
    return a_round(known, recipe=Recipe(local_epochs=epochs), **where)


def planned(strategy, known=(A, B), state=None, *, epochs=5, **where):
    return rounds.planned(strategy, known, state, recipe=Recipe(local_epochs=epochs), **where)


def combined(strategy, updates, known=(A, B), *, goals=None, **where):
    state = {} if goals is None else {"goals": np.array(goals, dtype=float)}
    return rounds.combined(strategy, known, updates, state, **where)


# ------------------------------------------------------------------ multipliers become prices

# μ = d, so u_g = Σ μ − μ_g n/n_g.
U = np.array([sum(D) - D[0] / 0.4, sum(D) - D[1] / 0.6])


@pytest.mark.parametrize(
    ("weights", "scale"), [("size", {"a": 1, "b": 1}), ("uniform", {"a": 0.8, "b": 1.2})]
)
def test_every_client_gets_the_pooled_prices(weights, scale):
    state, plans = planned(create("mfairfl", weights=weights))
    close(state["multipliers"], D)
    for client, plan in plans.items():
        close(plan.loss_table, np.ones((2, 2)))
        close(plan.score_table, scale[client] * np.repeat(U[:, None], 2, axis=1))
        assert plan.controller is None
        assert plan.optimizer.name == "adamw"


def test_loss_prices_are_added_to_the_weight_of_the_loss():
    goal = Goal(notions=("ap-loss",))
    known = [measurement("a", WOMEN, WOMEN, [[12, 8], [0, 0]]), measurement("b", MEN, MEN, MEN)]
    # F = .8, d = (.3, −.2); u = .1 − .75 = −.65 and .1 + 1/3.
    state, plans = planned(create("mfairfl"), known, goal=goal)
    close(state["multipliers"], [0.3, -0.2])
    close(plans["a"].loss_table, [[1, 1], [1 + 13 / 30, 1 + 13 / 30]])
    close(plans["a"].score_table, [[-0.65, 0], [0, 0]])
    _, plans = planned(create("mfairfl", prices={"one_sided": False}), known, goal=goal)
    close(plans["b"].loss_table, [[0.35, 0.35], [1 + 13 / 30, 1 + 13 / 30]])


def test_the_papers_prices():
    # λ = γ(|d| − α) = 2(.12, .0467), signs (+, −).
    strategy = create("mfairfl", multiplier="paper", gamma=2.0)
    state, plans = planned(strategy, goal=Goal(dead_zone=0.1))
    lam = [0.24, 2 * (34 / 60 - 0.52)]
    close(state["multipliers"], lam)
    u = [lam[0] - lam[1] - lam[0] / 0.4, lam[0] - lam[1] + lam[1] / 0.6]
    close(plans["a"].score_table, np.repeat(np.array(u)[:, None], 2, axis=1))


def test_without_the_constraint_nothing_is_priced():
    state, plans = planned(create("mfairfl", constraint=False), epochs=20)
    assert not state["multipliers"].any()
    close(plans["a"].loss_table, np.ones((2, 2)))
    close(plans["a"].score_table, np.zeros((2, 2)))
    assert plans["a"].controller is None


# ------------------------------------------------------------------ client parity


@pytest.mark.parametrize(("weights", "scale"), [("size", (1, 1)), ("uniform", (0.8, 1.2))])
def test_the_price_of_client_parity(weights, scale):
    # Errors: a 8/40 = .2, b 22/60, both .3; μ = 2(.1, −1/15); u_k = Σ μ − μ_k n/n_k.
    strategy = create("mfairfl", client_parity=2.0, constraint=False, weights=weights)
    state, plans = planned(strategy)
    close(state["client_multipliers"], [0.2, -2 / 15])
    low, high = scale[0] * (1 / 15 - 0.5), scale[1] * (1 / 15 + 2 / 9)
    close(plans["a"].score_table, [[low, 0]] * 2)  # errors must rise: false positives alone
    close(plans["b"].score_table, [[high, -high]] * 2)
    _, plans = planned(replace(strategy, prices=Prices(one_sided=False)))
    close(plans["a"].score_table, [[low, -low]] * 2)
    _, plans = planned(replace(strategy, prices=Prices(cap=0.1, counter_cap=0.1)))
    close(plans["b"].score_table, [[0.1, -0.1]] * 2)


def test_client_parity_comes_on_top_of_the_groups_prices():
    _, plans = planned(create("mfairfl", client_parity=2.0))
    low = 1 / 15 - 0.5
    close(plans["a"].score_table, [[U[0] + low, U[0]], [U[1] + low, U[1]]])


def test_client_parity_may_be_driven_by_smooth_errors():
    known = [
        measurement("a", WOMEN, WOMEN, scores=[[6, 8], [0, 0]]),  # 6 + 10 − 8 = 8 of 40
        measurement("b", MEN, MEN, scores=[[0, 0], [12, 10]]),  # 12 + 20 − 10 = 22 of 60
    ]
    strategy = create(
        "mfairfl", client_parity=1.0, constraint=False, prices={"driven_by": "smooth"}
    )
    state, _ = planned(strategy, known)
    close(state["client_multipliers"], [0.1, -1 / 15])


def test_client_parity_leaves_absent_clients_out_of_the_price():
    """Σ over the clients whose rows are compared, or the prices' mean would not be 0."""
    absent = measurement("c", MEN, MEN)
    strategy = create("mfairfl", client_parity=1.0, constraint=False, prices={"one_sided": False})
    place = this_round(absent=[absent])
    state = {**strategy.start(place.summary), "client_multipliers": np.array([0.0, 0.0, 0.9])}
    after, plans = planned(strategy, state=state, absent=[absent])
    close(after["client_multipliers"], [0.1, -1 / 15, 0.9])
    prices = [plans[name].score_table[0][0] for name in "ab"]
    close(prices, [1 / 30 - 0.25, 1 / 30 + 1 / 9])
    close(0.4 * prices[0] + 0.6 * prices[1], 0.0)


# ------------------------------------------------------------------ steps inside a round


def answer(strategy, state, known, reports, **where):
    G = np.array([r.update for r in reports], dtype=float)
    return strategy.combine(state, this_round(known, **where), reports, G @ G.T).state


def test_two_rounds_of_following_the_pooled_gap():
    strategy = create("mfairfl", every=5)
    state, plans = planned(strategy, epochs=10)
    for plan in plans.values():
        moving = plan.controller
        close(moving.multipliers, D)
        close(moving.step, [1, 1])
        close(moving.offset, D)
        close(moving.counts, np.add(WOMEN, MEN))
        assert (moving.every, moving.relative, moving.slot) == (5, True, None)
        assert moving.prices.driven_by == "hard"
        assert moving.scale == 1.0
        close(plan.score_table, np.zeros((2, 2)))  # the controller's prices come on top
    replies = [
        report("a", multipliers=(0.5, -0.3), gaps=(0.2, -0.1)),
        report("b", multipliers=(0.3, -0.2), gaps=(0.1, -0.05)),
    ]
    state = answer(strategy, state, (A, B), replies, epochs=10)
    close(state["multipliers"], [0.4 * 0.5 + 0.6 * 0.3, -0.4 * 0.3 - 0.6 * 0.2])  # .38, −.24
    # Tracked .4·.2 + .6·.1 = .14 and −.07; found .15 and −.1: averaging shifted by .01, −.03.
    state, plans = planned(strategy, (A_LATER, B_LATER), state, epochs=10)
    close(state["multipliers"], [0.53, -0.34])
    close(plans["b"].controller.multipliers, [0.53, -0.34])
    close(plans["b"].controller.offset, [0.16, -0.13])
    # What clients report holds the shift; what they tracked does not: .16 − .01, −.07 + .03.
    replies = [
        report("a", multipliers=(0, 0), gaps=(0.1, -0.1)),
        report("b", multipliers=(0, 0), gaps=(0.2, -0.05)),
    ]
    state = answer(strategy, state, (A_LATER, B_LATER), replies, epochs=10)
    state, plans = planned(strategy, state=state, epochs=10)
    close(plans["a"].controller.offset, [2 * D[0] - 0.15, 2 * D[1] + 0.04])


def test_the_controller_knows_weights_shares_and_the_kind_of_rates():
    strategy = create("mfairfl", every=2, gamma=0.5, weights="uniform")
    prices = Prices(driven_by="smooth", one_sided=False, cap=3.0)
    strategy = replace(strategy, prices=prices)
    _, plans = planned(strategy, goal=Goal(notions=("eo",)), epochs=3)
    moving = plans["b"].controller
    close(moving.step, [0.35, 0.35, 0.15, 0.15])
    close(moving.scale, 1.2)
    assert (moving.every, moving.prices) == (2, prices)


def test_a_round_that_is_not_longer_than_the_step_has_no_controller():
    assert planned(create("mfairfl", every=5), epochs=5)[1]["a"].controller is None
    assert planned(create("mfairfl", every=5), epochs=6)[1]["a"].controller is not None
    # λ ≥ 0 on |d| moves once a round.
    paper = create("mfairfl", multiplier="paper", every=5)
    assert planned(paper, epochs=20)[1]["a"].controller is None


def test_the_mean_is_over_those_who_reported():
    strategy = create("mfairfl")
    state, _ = planned(strategy, epochs=10)
    state = answer(
        strategy,
        state,
        (A, B),
        [report("b", multipliers=(0.3, -0.2), gaps=(0.1, -0.05))],
        epochs=10,
    )
    close(state["multipliers"], [0.3, -0.2])


@pytest.mark.parametrize(
    ("notion", "steps"),
    # Equalized odds: gaps times the share of their label, .7 and .3.
    [("dp", D), ("eo", [0.7 * 0.2, 0.7 * -0.15, 0.3 * 0.2, 0.3 * -0.1])],
)
def test_damping_is_priced_inside_the_round_and_not_kept(notion, steps):
    strategy, where = create("mfairfl", damping=0.5), {"goal": Goal(notions=(notion,))}
    state, plans = planned(strategy, epochs=10, **where)
    close(plans["a"].controller.multipliers, 1.5 * np.array(steps))
    ended = tuple(x + 0.1 for x in plans["a"].controller.multipliers)
    replies = [report(name, multipliers=ended, gaps=(0.0,) * len(steps)) for name in "ab"]
    state = answer(strategy, state, (A, B), replies, epochs=10, **where)
    close(state["multipliers"], np.array(steps) + 0.1)


def test_other_clients_tell_nothing_about_what_averaging_did():
    """Women are with client a alone: in a round without it their gap is unknown, not 0."""
    strategy = create("mfairfl")
    men = [replace_client(B, "b"), replace_client(B, "c")]
    everyone = {"absent": [A, *men], "epochs": 10}
    state = strategy.start(this_round((A,), **everyone).summary)
    state, _ = planned(strategy, (A, men[0]), state, **everyone)
    replies = [
        report("a", multipliers=(0.5, -0.3), gaps=(0.2, -0.1)),
        report("b", multipliers=(0.5, -0.3), gaps=(0.2, -0.1)),
    ]
    state = answer(strategy, state, (A, men[0]), replies, **everyone)
    state, plans = planned(strategy, men, state, **everyone)
    close(state["multipliers"], [0.5, -0.3])
    for plan in plans.values():
        close(plan.controller.offset, [0, 0])
    replies = [
        report("b", multipliers=(0.5, -0.3), gaps=(0, 0)),
        report("c", multipliers=(0.5, -0.3), gaps=(0, 0)),
    ]
    state = answer(strategy, state, men, replies, **everyone)
    state, plans = planned(strategy, (A, men[0]), state, **everyone)
    close(plans["a"].controller.offset, D)


def replace_client(known, name):
    return replace(known, client=name)


# ------------------------------------------------------------------ local scope


def test_local_scope_leaves_multipliers_with_the_clients():
    strategy = create("mfairfl", scope="local", every=5)
    known = [measurement("a", [[30, 10], [10, 50]], np.zeros((2, 2))), B]
    state, plans = planned(strategy, known, goal=Goal(notions=("eo",)), epochs=2)
    assert not state["multipliers"].any()
    moving = plans["a"].controller
    assert moving.multipliers == (0.0,) * 4
    close(moving.step, [0.4, 0.4, 0.6, 0.6])  # its own labels' shares
    close(plans["b"].controller.step, [2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert (moving.slot, moving.relative, moving.offset, moving.counts, moving.scale) == (
        "multipliers",
        False,
        None,
        None,
        1.0,
    )
    assert moving.every == 2  # a short round has a step at its end
    replies = [report(name, multipliers=(1.0,) * 4, gaps=(1.0,) * 4) for name in "ab"]
    after = answer(strategy, state, known, replies, goal=Goal(notions=("eo",)))
    assert not after["multipliers"].any()


def test_local_scope_moves_by_the_clients_own_gap_and_remembers():
    """One client: its weights are the server's, so every round's record holds its gap."""
    federation = fed.people_federation(fed.people(sites={"all": 120}))
    strategy = create("mfairfl", scope="local", gamma=0.5, shrink=1.0)
    setup = fed.setup_for(federation, strategy, rounds=3)
    state = fed.first(setup)
    _, watch = fed.run(setup, federation, state=state)
    constraints = setup.summary.goal.constraints(federation.attributes)
    gaps = [constraints.gaps(r.measured["train"]["all"], "hard") for r in watch.records[1:]]
    multipliers, gain, latest = state.slots["all"]["multipliers"]
    close(multipliers, 0.5 * np.sum(gaps, axis=0))
    close(gain, 1)
    close(latest, gaps[-1])
    assert np.abs(gaps).max() > 0.01


def test_a_gap_that_changes_sign_halves_its_step_until_it_keeps_one():
    """40 women and 60 men, of whom 30 are chosen: d_F = (30 + x)/100 − x/40."""
    strategy, state, mu = create("mfairfl", gamma=0.5), None, 0.0
    for chosen, gain in ((8, 1), (36, 0.5), (4, 0.25), (4, 0.3), (4, 0.36)):
        women = measurement("a", WOMEN, [[chosen * 0.75, chosen * 0.25], [0, 0]])
        men = measurement("b", MEN, [[0, 0], [20, 10]])
        state, _ = planned(strategy, (women, men), state)
        mu += gain * 0.5 * ((30 + chosen) / 100 - chosen / 40)
        assert state["multipliers"][0] == pytest.approx(mu, abs=1e-12)
    strategy, state = create("mfairfl", gamma=0.5, shrink=1.0), None
    for known in ((A, B), (B_LATER, A_LATER), (A, B)):
        state, _ = planned(strategy, known, state)
    assert state["gain"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "needed"),
    [
        ({"update": "gradient"}, "update = 'local'"),
        ({"multiplier": "paper"}, "multiplier = 'signed'"),
        ({"damping": 1.0}, "damping = 0"),
        ({"order": "objective"}, "an order other than 'objective'"),
    ],
)
def test_what_local_scope_cannot_do_is_refused(wrong, needed):
    with pytest.raises(
        ConfigError, match=rf"strategy\.scope = 'local' needs (strategy\.)?{needed}"
    ):
        create("mfairfl", scope="local", **wrong)
    create("mfairfl", scope="local", constraint=False, **wrong)  # scope means nothing then


@pytest.mark.parametrize(
    "wrong",
    [
        {"beta": 1.2},
        {"beta": -0.1},
        {"delta": 2},
        {"goals": {"cap": 1.0}},
        {"goals": {"floor": -1.0}},
        {"goals": {"floor": 0.95}},
        {"every": 0},
        {"gamma": -1},
        {"damping": -1},
        {"client_parity": -1},
        {"prices": {"cap": -1}},
        {"prices": {"counter_cap": -1}},
        {"shrink": 1.5},
        {"eta": -1},
    ],
)
def test_a_number_out_of_range_is_refused_before_any_training(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"^strategy\..*{name}") as caught:
        create("mfairfl", **wrong)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------ coefficients

OPPOSED = {"a": (1.0, 0.0), "b": (-0.5, math.sqrt(0.75))}  # unit updates, cosine −½


@pytest.mark.parametrize(("weights", "p"), [("size", [0.4, 0.6]), ("uniform", [0.5, 0.5])])
@pytest.mark.parametrize("off", [{"conflict": False}, {"beta": 0.0}])
def test_without_surgery_clients_count_by_their_weights(weights, p, off):
    step = combined(create("mfairfl", weights=weights, **off), OPPOSED)
    assert step.coefficients.tolist() == p
    assert step.scale == 1.0


def test_where_nobody_gives_way_a_small_average_is_not_given_up():
    # Σ p g is a millionth of its parts: too little for a direction after surgery, but no surgery.
    updates = {"a": (1.5, 0.0), "b": (-1.0 + 1e-6, 0.0)}
    step = combined(create("mfairfl", beta=0.0), updates)
    assert step.coefficients.tolist() == [0.4, 0.6]


@pytest.mark.parametrize(
    ("weights", "before", "after", "p"),
    # g_a' = g_a + ½ g_b; |Σ c g|² = c_a² + c_b² − c_a c_b.
    [
        ("uniform", [0.5, 0.75], 0.4375, 0.25),
        ("size", [0.4, 0.8], 0.48, 0.28),
    ],
)
def test_the_client_of_lower_loss_gives_way(weights, before, after, p):
    known = [
        measurement("a", WOMEN, WOMEN, WOMEN),
        measurement("b", MEN, MEN, np.multiply(2, MEN)),
    ]
    step = combined(create("mfairfl", beta=0.5, weights=weights), OPPOSED, known)
    close(step.coefficients, math.sqrt(p / after) * np.array(before))
    close(step.state["goals"], [[0, -0.45], [0, 0]])  # (1 − δ)φ; b was not adjusted
    assert step.log["order"] == ["a", "b"]
    assert step.log["adjusted"] == ["a"]
    known = [replace_client(known[1], "a"), replace_client(known[0], "b")]  # b has less to lose
    step = combined(create("mfairfl", beta=0.5, weights="uniform"), OPPOSED, known)
    close(step.coefficients, math.sqrt(0.25 / 0.4375) * np.array([0.75, 0.5]))


def test_goals_are_averaged_in_either_convention():
    goals = [[0, 0.4], [0.4, 0]]
    for convention, expected in {"paper": 0.1 * 0.4 - 0.45, "gradvac": 0.9 * 0.4 - 0.05}.items():
        strategy = create("mfairfl", beta=1.0, goals={"convention": convention})
        close(combined(strategy, OPPOSED, goals=goals).state["goals"][0, 1], expected)


@pytest.mark.parametrize(
    ("bounds", "goal"),
    [({}, 0.9), ({"cap": 0.6}, 0.6), ({"floor": 0.95, "cap": 0.97}, 0.95)],
)
def test_goals_are_kept_in_bounds_when_used(bounds, goal):
    # Reaching a goal g from cosine −½ takes (g √¾/√(1 − g²) + ½) of a unit target.
    strategy = create("mfairfl", beta=0.5, weights="uniform", goals=bounds)
    stored = 0.1 if "floor" in bounds else 0.92
    step = combined(strategy, OPPOSED, goals=[[0, stored], [0, 0]])
    pull = goal * math.sqrt(0.75) / math.sqrt(1 - goal**2) + 0.5
    close(step.coefficients[1] / step.coefficients[0], 1 + pull)
    close(step.log["cosines_after"][0][1], goal)
    close(step.state["goals"][0, 1], 0.1 * stored - 0.45)  # the average itself is not clipped


def test_who_keeps_its_update_may_follow_the_order():
    known = [
        measurement("a", WOMEN, WOMEN, WOMEN),
        measurement("b", MEN, MEN, np.multiply(2, MEN)),
    ]
    for order, adjusted in {"reversed": ["a"], "reversed-kept": ["b"]}.items():
        strategy = create("mfairfl-rev", beta=0.5, order=order)
        log = combined(strategy, OPPOSED, known).log
        assert (log["order"], log["adjusted"]) == (["b", "a"], adjusted)


def test_one_client_alone():
    step = combined(create("mfairfl", beta=1.0), {"a": (3.0, 4.0)}, [A])
    assert step.coefficients.tolist() == [1.0]


def test_a_step_of_gradients_is_scaled_by_eta():
    assert combined(create("mfairfl", update="gradient", eta=0.07), OPPOSED).scale == 0.07
    assert combined(create("mfairfl", eta=0.07), OPPOSED).scale == 1.0


def test_goals_belong_to_pairs_of_clients_whoever_takes_part():
    everyone = [measurement(name, WOMEN, WOMEN) for name in "abcd"]
    goals = np.arange(16).reshape(4, 4) / 32
    strategy = create("mfairfl", beta=1.0, delta=0.25, goals={"cap": 0.999})
    present = [everyone[0], everyone[3]]
    updates = {"a": (1.0, 0.0), "d": (0.6, 0.8)}
    step = combined(strategy, updates, present, goals=goals, absent=everyone)
    expected = goals.copy()
    expected[0, 3] = 0.25 * 3 / 32 + 0.75 * 0.6
    expected[3, 0] = 0.25 * 12 / 32 + 0.75 * 0.6
    close(step.state["goals"], expected)
    close(step.log["goals"], [[0, 3 / 32], [12 / 32, 15 / 32]])  # as they were used


def test_goals_follow_clients_through_a_run_with_partial_participation(federation):
    setup = fed.setup_for(federation, "mfairfl", rounds=6, participation=0.5)
    state = fed.first(setup)
    _, watch = fed.run(setup, federation, state=state)
    met = {tuple(sorted(record.log["order"])) for record in watch.records[1:]}
    assert len(met) > 1
    names = state.strategy["clients"]
    strangers = {(i, j) for i in names for j in names} - {
        pair for a, b in met for pair in ((a, b), (b, a))
    }
    for i, j in strangers:
        assert state.strategy["goals"][names.index(i), names.index(j)] == 0.0
    assert state.strategy["goals"].any()


def test_ordering_by_the_objective_counts_the_prices():
    # L = ½ and .45. With U = (−.4767, .3178) and scores n/2: J_a = .5 − .2383, J_b = .45 + .1589.
    known = [A, measurement("b", MEN, B.statistics.positives, np.multiply(0.45, MEN))]
    strategy = create("mfairfl", beta=0.5)
    for order, expected in {"loss": ["b", "a"], "objective": ["a", "b"]}.items():
        chosen = replace(strategy, order=order)
        state, _ = planned(chosen, known)
        G = np.array(list(OPPOSED.values()))
        reports = [report(name, update=g) for name, g in OPPOSED.items()]
        step = chosen.combine(state, this_round(known), reports, G @ G.T)
        assert step.log["order"] == expected
        assert step.log["adjusted"] == expected[:1]


@pytest.mark.parametrize(("goal", "cosine"), [(0.5, 0.13), (0.8, -0.18), (0.95, -0.48)])
def test_the_guard_falls_back_exactly_where_the_step_would_ascend(goal, cosine):
    """Lengths 1 and 5 at 154°: the published counter-example to Theorem 3."""
    angle = math.radians(154)
    updates = {"a": (1.0, 0.0), "b": (5 * math.cos(angle), 5 * math.sin(angle))}
    options = {"beta": 1.0, "goals": {"cap": 0.999}, "weights": "uniform"}
    goals = [[0, goal], [goal, 0]]
    free = combined(create("mfairfl", **options), updates, goals=goals)
    G = np.array(list(updates.values()))
    step, mean = free.coefficients @ G, G.mean(axis=0)
    assert np.linalg.norm(step) == pytest.approx(np.linalg.norm(mean), rel=1e-12)
    assert round(step @ mean / (mean @ mean), 2) == cosine
    guarded = combined(create("mfairfl", descent_guard=True, **options), updates, goals=goals)
    assert guarded.log["guarded"] is (cosine < 0)
    expected = [0.5, 0.5] if cosine < 0 else free.coefficients
    assert guarded.coefficients.tolist() == list(expected)
    assert free.log["guarded"] is False


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.floats(0.01, 100),
    goal=st.floats(-1, 1),
    guard=st.booleans(),
)
def test_opposite_updates_end_in_no_step_and_no_nan(seed, length, goal, guard):
    g = np.random.default_rng(seed).normal(size=7)
    updates = {"a": tuple(g), "b": tuple(-length * g)}
    strategy = create("mfairfl", beta=1.0, goals={"cap": 0.999}, descent_guard=guard)
    step = combined(strategy, updates, goals=[[0, goal], [goal, 0]])
    assert step.coefficients.tolist() == ([0.4, 0.6] if guard else [0.0, 0.0])
    assert np.isfinite(step.state["goals"]).all()
    json.dumps(step.log, allow_nan=False)


def test_a_client_without_an_update_is_no_target():
    step = combined(create("mfairfl", beta=1.0), {"a": (0.0, 0.0), "b": (1.0, 2.0)})
    assert step.coefficients.tolist() == [0.4, 0.6]
    assert step.log["cosines"][0] == [None, None]
    assert step.log["cosines_after"][0] == [None, None]


# ------------------------------------------------------------------ the log


def crowd(rng, count):
    known = [
        measurement(f"c{k}", WOMEN, WOMEN, rng.random() * np.array(WOMEN)) for k in range(count)
    ]
    G = rng.normal(size=(count, 9)) * 10 ** rng.uniform(-1, 1, size=(count, 1))
    return known, G, {m.client: tuple(g) for m, g in zip(known, G, strict=True)}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), beta=st.floats(0, 1), count=st.integers(2, 6))
def test_the_last_target_of_an_adjusted_client_is_agreed_with(seed, beta, count):
    rng = np.random.default_rng(seed)
    known, G, updates = crowd(rng, count)
    goals = rng.uniform(-0.5, 0.95, size=(count, count))
    strategy = create("mfairfl", beta=beta)
    log = combined(strategy, updates, known, goals=goals).log
    names = list(updates)
    close(log["goals"], np.clip(goals, 0, 0.9))
    for name in log["adjusted"]:
        k, last = names.index(name), [n for n in log["order"] if n != name][-1]
        after = log["cosines_after"][k][names.index(last)]
        assert after >= log["goals"][k][names.index(last)] - 1e-9
    unit = G / np.linalg.norm(G, axis=1, keepdims=True)
    close(log["cosines"], unit @ unit.T)
    against = [(i, j) for i in range(count) for j in range(i) if G[i] @ G[j] < 0]
    assert log["conflicts"] == len(against)
    for k in set(range(count)) - {names.index(n) for n in log["adjusted"]}:
        close(log["cosines_after"][k], unit[k] @ unit.T)  # who kept its update did not turn


def test_the_log_says_what_was_priced_and_why():
    goal = Goal(notions=("dp", "ap-loss"))
    known = [
        measurement("a", WOMEN, A.statistics.positives, [[12, 8], [0, 0]]),
        measurement("b", MEN, B.statistics.positives, MEN),
    ]
    strategy = create("mfairfl", beta=0.5)
    state, plans = planned(strategy, known, goal=goal)
    G = np.array(list(OPPOSED.values()))
    reports = [report(name, update=g) for name, g in OPPOSED.items()]
    log = strategy.combine(state, this_round(known, goal=goal), reports, G @ G.T).log
    assert json.loads(json.dumps(log, allow_nan=False, sort_keys=True)) == log
    assert log["constraints"][:2] == [
        "demographic_parity | all | sex | F",
        "demographic_parity | all | sex | M",
    ]
    close(log["multipliers"], [*D, 0.3, -0.2])
    close(log["score_prices"], plans["a"].score_table)
    close(log["score_prices"], [[U[0] - 0.65, U[0]], [U[1], U[1]]])
    close(log["loss_prices"], [[0, 0], [13 / 30, 13 / 30]])
    assert log["violation_hard"] == pytest.approx(0.3, rel=1e-12)  # of the loss: .8 − .5
    assert log["violation_smooth"] == pytest.approx(0.3, rel=1e-12)
    assert (log["order"], log["adjusted"]) == (["a", "b"], ["a"])
    assert (log["conflicts"], log["adjustments"]) == (1, 1)
    close(log["cosines"], [[1, -0.5], [-0.5, 1]])
    close(
        log["cosines_after"], [[math.sqrt(0.75), 0], [-0.5, 1]]
    )  # a turned by 30°, to a right angle
    close(log["goals"], np.zeros((2, 2)))


def test_a_violation_that_is_undefined_is_none():
    nobody = measurement("a", [[5, 0], [5, 0]], np.zeros((2, 2)))
    goal = Goal(notions=("equal_opportunity",))
    log = combined(create("mfairfl"), {"a": (1.0, 0.0)}, [nobody], goal=goal).log
    assert log["violation_hard"] is None
    assert log["violation_smooth"] is None


# ------------------------------------------------------------------ whole runs


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_with_both_halves_off_it_is_fedavg_bit_for_bit(weights, federation):
    off = create("mfairfl", constraint=False, conflict=False, weights=weights)
    plain = create("fedavg", weights=weights)
    fed.assert_same_runs(federation, off, plain)


def losses_before(watch):
    """Every client's mean loss at the start of each round."""
    for record in watch.records[:-1]:
        train = record.measured["train"]
        yield {name: s.losses.sum() / s.counts.sum() for name, s in train.items()}


def test_targets_come_by_loss_in_reverse_or_by_the_rounds_stream(federation):
    runs = {
        name: fed.run(fed.setup_for(federation, name), federation)[1]
        for name in ("mfairfl", "mfairfl-rev", "mfairfl-rnd")
    }
    for name, watch in runs.items():
        for r, losses in enumerate(losses_before(watch)):
            ascending, log = sorted(losses, key=losses.__getitem__), watch.records[r + 1].log
            names = sorted(losses)
            expected = {
                "mfairfl": ascending,
                "mfairfl-rev": ascending[::-1],
                "mfairfl-rnd": [names[i] for i in stream(0, "server", r).permutation(4)],
            }[name]
            assert log["order"] == expected
            assert log["adjusted"] == sorted(ascending[:3])  # who keeps: by loss in all three
    assert create("mfairfl-rev") == create("mfairfl", order="reversed")
    assert create("mfairfl-rnd") == create("mfairfl", order="random")


LITERAL = {"gamma": 2.0, "eta": 0.5}


def literal(federation, notion, **recipe):
    goal = Goal(notions=(notion,), attributes=("sex", "age"), dead_zone=0.01)
    strategy = create("mfairfl-paper", **LITERAL, **recipe.pop("strategy", {}))
    setup = fed.setup_for(federation, strategy, rounds=3, **recipe)
    return replace(setup, summary=summarize(federation, goal))


@pytest.mark.parametrize("notion", ["dp", "eo", "ap", "ap-loss"])
def test_the_literal_reading_is_algorithm_1_and_2(notion, federation):
    setup = literal(federation, notion)
    _, watch = fed.run(setup, federation)
    path, adjustments = naive.algorithm_1(
        watch.weights[0],
        naive.rows_of(federation),
        setup.summary.goal.constraints(federation.attributes).labels,
        steps=3,
        beta=0.8,
        delta=0.1,
        alpha=0.01,
        **LITERAL,
    )
    assert adjustments > 3
    assert sum(record.log["adjustments"] for record in watch.records[1:]) == adjustments
    for found, expected in zip(watch.weights[1:], path, strict=True):
        close(found, expected, 1e-5)
    assert np.abs(path[-1] - watch.weights[0]).max() > 0.1


def test_one_local_epoch_of_plain_descent_is_the_literal_step(federation):
    """Full batches, one epoch, rate η: w_t − w_k = η ∇J_k, so both modes walk the same path."""
    plain = {"optimizer": "sgd", "lr": 0.5, "schedule": "constant", "weight_decay": 0.0}
    plain |= {"local_epochs": 1, "batch_size": 1000}
    local = literal(federation, "dp", strategy={"update": "local"}, **plain)
    _, one = fed.run(local, federation)
    _, two = fed.run(literal(federation, "dp"), federation)
    close(one.weights, two.weights, 1e-5)


def test_the_literal_reading_takes_a_server_step_for_every_local_epoch():
    options = {"rounds": 2, "local_epochs": 3, "hidden": (4,)}
    for name, steps in {"mfairfl-paper": 6, "mfairfl": 2}.items():
        run = mfairfl.train(fed.people_table(), strategy=name, **options)
        assert run.record.rounds == steps


def test_the_literal_reading_takes_the_paper_s_steps_and_serves_the_last():
    for name in ("mfairfl-paper", "fpfl-paper"):
        assert create(name).card.server_steps == 10 * 20
        assert create(name).card.usual_rule == "last"
        for other in (create(name, update="local"), create(name, multiplier="signed")):
            assert other.card.server_steps is None
            assert other.card.usual_rule == "select"
    small = {"strategy": "mfairfl-paper", "hidden": (4,)}
    run = mfairfl.train(fed.people_table(), **small)
    assert run.record.rounds == 200
    assert run.record.served.names == ("round 200",)
    # What the record states gives the same run again, and so does a strategy object.
    again = make_config(run.record.config)
    assert (again.training.rounds, again.server_rounds()) == (100, 200)
    one = mfairfl.train(fed.people_table(), **small | {"strategy": create("mfairfl-paper")})
    assert one.record.metrics == run.record.metrics


def test_ten_rounds_of_twenty_epochs_have_multiplier_steps_inside(federation):
    setup = fed.setup_for(federation, create("mfairfl", every=5), rounds=2, local_epochs=20)
    _, watch = fed.run(setup, federation)
    # Round 1 starts at μ = d; round 2 at μ after the clients' four steps, plus the new d.
    constraints = setup.summary.goal.constraints(federation.attributes)
    gaps = [constraints.gaps(Statistics.pooled(r.measured["train"])) for r in watch.records]
    close(watch.records[1].log["multipliers"], gaps[0])
    inside = np.array(watch.records[2].log["multipliers"]) - gaps[0] - gaps[1]
    assert np.abs(inside).max() > 0.01


def test_one_client_alone_tracks_its_gap_exactly():
    """Nothing is averaged, so nothing shifts; the last step of a round sees its final weights."""
    federation = fed.people_federation(fed.people(sites={"all": 120}))
    strategy = create("mfairfl", every=1, prices={"driven_by": "smooth"})
    setup = fed.setup_for(federation, strategy, rounds=3, local_epochs=2)
    state = fed.first(setup)
    _, watch = fed.run(setup, federation, state=state)
    constraints = setup.summary.goal.constraints(federation.attributes)
    final = constraints.gaps(watch.records[-1].measured["train"]["all"], "smooth")
    assert np.abs(final).max() > 0.005
    # w − (w − w_k) is w_k up to a rounding in float32.
    close(state.strategy["tracked"], final, 1e-6)
    np.testing.assert_allclose(state.strategy["shift"], 0.0, atol=1e-6)


# ------------------------------------------------------------------ it does what it is for


@pytest.mark.parametrize("notion", ["dp", "eo", "ap"])
def test_it_lowers_the_violation_of_fedavg(notion):
    plain, own = violations(notion, "fedavg", "mfairfl")
    assert plain > 0.08
    assert own < plain / 3


def test_tables_of_pairs_are_left_out_where_they_would_be_megabytes():
    rng = np.random.default_rng(0)
    for count, shown in ((50, True), (51, False)):
        updates = rng.normal(size=(count, 60))
        gram, goals = updates @ updates.T, np.zeros((count, count))
        found = diminish_conflicts(gram, np.arange(count), goals, beta=0.8, delta=0.1)
        log = found.log(gram, goals, [f"c{k}" for k in range(count)])
        assert log["conflicts"] == (np.triu(gram, 1) < 0).sum()
        for name in ("cosines", "cosines_after", "goals"):
            assert (log[name] is not None) == shown
