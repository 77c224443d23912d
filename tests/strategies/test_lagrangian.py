"""Multiplier steps and prices by hand; Σ p_k g_k against the gradient of the pooled Lagrangian.

The table of the hand-made numbers (n = 100, n_F = 40, n_M = 60; 70 rows with y = 0):

              y = 0   y = 1      all        error       smooth    loss
    F         3/30    5/10       8/40       8/40        15/40     20/40
    M        18/40   16/20      34/60      22/60        27/60     40/60
    both     21/70   21/30      42/100     30/100       42/100    60/100
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import hypothesis.strategies as st
import mfairfl_naive as naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import federations as fed
import rounds
from mfairfl.data import Attribute, partition
from mfairfl.engine.embedded import summarize
from mfairfl.engine.state import Measure, Train
from mfairfl.fairness import NOTIONS, Statistics
from mfairfl.fairness.constraints import Constraints, Goal
from mfairfl.geometry.gram import gram_matrix
from mfairfl.randomness import stream
from mfairfl.strategies import Measurement, create
from mfairfl.strategies.lagrangian import Lagrangian
from mfairfl.training.plan import Prices, as_table
from rounds import SEX, a_round, statistics

COUNTS = np.array([[30.0, 10.0], [40.0, 20.0]])
HAND = statistics(
    COUNTS, [[3, 5], [18, 16]], losses=[[12, 8], [20, 20]], scores=[[9, 6], [12, 15]]
)
GAPS = {  # both − F, both − M; equalized odds: y = 0 first
    "dp": [0.22, 0.42 - 34 / 60],
    "eo": [0.2, -0.15, 0.2, -0.1],
    "eopp": [0.2, -0.1],
    "ap": [0.1, 0.3 - 22 / 60],
    "ap-loss": [0.1, 0.6 - 40 / 60],
}
SHARES = {"dp": [1, 1], "eo": [0.7, 0.7, 0.3, 0.3], "eopp": [0.3, 0.3]}
SHARES |= {"ap": [1, 1], "ap-loss": [1, 1]}
PRICES = ("driven_by", "one_sided", "cap", "counter_cap", "shared_cap")
close = partial(rounds.close, atol=1e-14)
every = pytest.mark.parametrize("notion", list(GAPS))


def law(notion="dp", **changes):
    goal = Goal(notions=(notion,))
    pricing = Prices(**{k: changes.pop(k) for k in PRICES if k in changes})
    rule = {"alpha": 0.0, **changes}
    return Lagrangian(constraints=goal.constraints(SEX), pricing=pricing, **rule)


# ------------------------------------------------------------------ multipliers


@every
def test_a_signed_step_is_the_gap_times_the_events_share(notion):
    rule, start = law(notion, gamma=2.0), np.linspace(-0.3, 0.4, len(GAPS[notion]))
    close(rule.steps(COUNTS), 2.0 * np.array(SHARES[notion]))
    expected = start + 2.0 * np.array(SHARES[notion]) * GAPS[notion]
    close(rule.moved(start, HAND), expected)


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.1, [0.12, 0.1 - 8.8 / 60]), (0.2, [0.02, 0.0]), (0.22, [0.0, 0.0]), (0.5, [0.0, 0.0])],
)
def test_the_dead_zone_is_taken_off_both_sides(alpha, expected):
    close(law(alpha=alpha).moved(np.zeros(2), HAND), expected)


def test_smooth_rates_drive_where_asked():
    close(law(driven_by="smooth").moved(np.zeros(2), HAND), [0.42 - 0.375, 0.42 - 0.45])
    close(law(driven_by="smooth").gaps(HAND), [0.045, -0.03])


@every
def test_the_papers_step_is_on_the_size_of_the_gap_without_a_share(notion):
    gaps = np.array(GAPS[notion])
    rule = law(notion, multiplier="paper", alpha=0.05, gamma=3.0)
    start = np.full(len(gaps), 0.25)
    expected = 0.25 + 3.0 * (np.abs(gaps) - 0.05)
    close(rule.moved(start, HAND), expected)
    close(rule.signed(expected, HAND), expected * [1 if d > 0 else -1 for d in gaps])


def test_the_papers_multipliers_do_not_fall_below_zero():
    rule = law(multiplier="paper", alpha=0.5)  # h = (.22 − .5, .1467 − .5)
    close(rule.moved(np.array([0.3, 0.3]), HAND), [0.02, 0.0])


def test_damping_of_signed_multipliers_adds_the_gap():
    close(law(damping=0.5).signed(np.array([0.1, 0.2]), HAND), [0.21, 0.2 - 0.5 * 8.8 / 60])


def test_damping_of_the_papers_multipliers_never_rewards_a_gap_within_the_tolerance():
    rule = law(multiplier="paper", damping=2.0, alpha=0.17)  # h = (.05, −.0233)
    close(rule.signed(np.array([0.1, 0.1]), HAND), [0.2, -(0.1 - 2 * (0.17 - 8.8 / 60))])
    # λ + c·h = −.0467 for M: as a price it would widen the gap.
    close(rule.signed(np.zeros(2), HAND), [0.1, 0.0])


@pytest.mark.parametrize("multiplier", ["signed", "paper"])
@pytest.mark.parametrize("notion", ["dp", "eo", "ap", "ap-loss"])
def test_a_gap_that_is_undefined_moves_nothing_and_costs_nothing(multiplier, notion):
    only_men = [[0, 0], [1, 1]]
    lonely = Statistics(
        counts=COUNTS * only_men,
        positives=HAND.positives * only_men,
        scores=HAND.scores * only_men,
        losses=HAND.losses * only_men,
    )
    rule = law(notion, multiplier=multiplier, alpha=0.1, damping=1.0, gamma=1.0)
    start = np.full(len(GAPS[notion]), 0.7)
    women = [label[3] == "F" for label in rule.constraints.labels]
    moved = rule.moved(start, lonely)
    assert (moved[women] == 0.7).all()
    # The only group there is has no gap: nothing to price either.
    score, loss = rule.prices(rule.signed(moved, lonely), lonely.counts)
    assert not score.any()
    assert not loss.any()


def test_a_multiplier_does_not_grow_beyond_what_its_price_may_show():
    """Of 10 rows 4 are women's: |μ_F| · 10/4 ≤ 2 and |μ_M| · 10/6 ≤ 2."""
    counts = np.array([[2.0, 2.0], [3.0, 3.0]])
    none, all_ = np.zeros((2, 2)), counts.copy()
    only_men = Statistics(
        counts=counts, positives=np.stack([none[0], all_[1]]), scores=none, losses=none
    )
    rule, mu = law(cap=2.0), np.zeros(2)
    for _ in range(5):
        mu = rule.moved(mu, only_men)  # d = (.6, −.4)
    close(mu, [0.8, -1.2])
    score, _ = rule.prices(np.array([0.8, 0.0]), counts)
    close(score[0], 0.8 - 2.0)  # Σ μ − μ_F n/n_F
    only_women = Statistics(
        counts=counts, positives=np.stack([all_[0], none[1]]), scores=none, losses=none
    )
    close(rule.moved(mu, only_women), [0.2, -0.8])  # and it comes back at once


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), notion=st.sampled_from(NOTIONS))
def test_signed_steps_without_tolerance_keep_their_balance(seed, notion):
    """Σ_s n_{e,s} μ_{e,s} = 0 for every event and grouping, whatever was measured."""
    rng = np.random.default_rng(seed)
    attributes = (Attribute("sex", ("F", "M")), Attribute("age", ("a", "b", "c")))
    goal = Goal(notions=(notion,), attributes=("sex", "age"), intersections=True)
    rule = Lagrangian(
        constraints=goal.constraints(attributes), alpha=0.0, gamma=0.7, pricing=Prices(cap=1e9)
    )
    codes, y = rng.integers(0, [2, 3], size=(80, 2)), rng.integers(0, 2, size=80)
    mu = np.zeros(len(rule.constraints))
    for _ in range(3):
        z = rng.normal(size=80)
        sums = Statistics.from_rows(
            size=6,
            cells=codes @ [3, 1],
            y=y,
            decisions=z > 0,
            scores=1 / (1 + np.exp(-z)),
            losses=rng.exponential(size=80),
        )
        mu = rule.moved(mu, sums)
    totals: dict[tuple[str, str], float] = {}
    for m, (_, event, grouping, group) in zip(mu, rule.constraints.labels, strict=True):
        member = np.ones(80, dtype=bool) if event == "all" else y == int(event[-1])
        for name, value in zip(grouping.split(" × "), group.split(" × "), strict=True):
            column = [a.name for a in attributes].index(name)
            member &= codes[:, column] == attributes[column].groups.index(value)
        totals[event, grouping] = totals.get((event, grouping), 0.0) + member.sum() * m
    assert mu.any()
    np.testing.assert_allclose(list(totals.values()), 0.0, atol=1e-12)


# ------------------------------------------------------------------ prices


def test_prices_by_hand():
    # u_g = Σ μ − μ_g n/n_g with μ = (.3, −.1): .2 − .75 and .2 + 1/6.
    score, loss = law().prices(np.array([0.3, -0.1]), COUNTS)
    close(score, [[-0.55, -0.55], [0.2 + 1 / 6, 0.2 + 1 / 6]])
    assert not loss.any()
    # y = 1 alone: n/n_1 Σ μ − μ_g n/n_{g,1} = 2/3 − 3 and 2/3 + 1/2.
    score, _ = law("eopp").prices(np.array([0.3, -0.1]), COUNTS)
    close(score, [[0, 2 / 3 - 3], [0, 2 / 3 + 0.5]])


def test_prices_are_scaled_and_then_capped():
    score, _ = law(cap=0.5, counter_cap=0.5).prices(np.array([0.3, -0.1]), COUNTS, 0.8)
    close(score, [[-0.44, -0.44], [0.8 * 11 / 30, 0.8 * 11 / 30]])
    score, _ = law(cap=0.5, counter_cap=0.5).prices(np.array([0.3, -0.1]), COUNTS, 1.2)
    close(score, [[-0.5, -0.5], [0.44, 0.44]])
    _, loss = law("ap-loss", counter_cap=0.5, one_sided=False).prices(
        np.array([0.3, -0.1]), COUNTS
    )
    close(loss, [[-0.5, -0.5], [11 / 30, 11 / 30]])


def test_a_price_that_both_labels_share_stays_within_its_cap():
    mu = np.array([0.3, -0.1])  # M: +11/30 on the errors of both labels
    close(law("ap", shared_cap=0.25).prices(mu, COUNTS)[0], [[-0.55, 0], [0.25, -0.25]])
    close(law("ap", shared_cap=0.0).prices(mu, COUNTS)[0], [[-0.55, 0], [0, 0]])
    close(law("ap", shared_cap=0.4).prices(mu, COUNTS, 1.2)[0], [[-0.66, 0], [0.4, -0.4]])
    # What one label has beyond the other moves a threshold: it stays.
    score, loss = np.array([[0.5, -0.2], [0.5, 0.2], [-0.5, 0.2], [-0.5, -0.2]]), np.zeros((4, 2))
    found, _ = Constraints.capped(score, loss, 20.0, 5.0, 0.1)
    close(found, [[0.4, -0.1], [0.5, 0.2], [-0.5, 0.2], [-0.5, -0.2]])
    # A selection's price pushes one label towards it and the other away: nothing is shared.
    free = law("dp", shared_cap=0.0).prices(mu, COUNTS)[0]
    close(free, law("dp").prices(mu, COUNTS)[0])


def test_where_errors_must_rise_false_positives_alone_are_priced():
    mu, u = np.array([0.3, -0.1]), 11 / 30  # F: −.55, M: +11/30
    close(law("ap").prices(mu, COUNTS)[0], [[-0.55, 0], [u, -u]])
    close(law("ap", one_sided=False).prices(mu, COUNTS)[0], [[-0.55, 0.55], [u, -u]])
    score, loss = law("ap-loss").prices(mu, COUNTS)
    close(score, [[-0.55, 0], [0, 0]])
    close(loss, [[0, 0], [u, u]])


def test_pooling_adds_sums_and_tables_are_plain_numbers():
    half = Statistics(counts=COUNTS / 2, positives=COUNTS, scores=COUNTS, losses=COUNTS)
    whole = a_round([Measurement("a", HAND), Measurement("b", half)]).pooled
    close(whole.counts, [[45, 15], [60, 30]])
    close(whole.losses, [[42, 18], [60, 40]])
    assert as_table(COUNTS) == ((30.0, 10.0), (40.0, 20.0))
    assert {type(x) for pair in as_table(COUNTS) for x in pair} == {float}


# ------------------------------------------------------------------ Σ p_k g_k

SINGLE = Goal(attributes=("sex",))
BOTH = Goal(attributes=("sex", "age"))
CROSSED = Goal(attributes=("sex", "age"), intersections=True)


@pytest.fixture(scope="module", params=["recorded", "partly recorded"])
def federation(request):
    """North has no women, south no favourable label; perhaps sites without an attribute."""
    if request.param == "recorded":
        return fed.people_federation()
    return partition(fed.partly_recorded(), "column", seed=0)


def federated_gradient(federation, goal, options, weights, **state):
    """Σ p_k g_k of one round at `weights`, through the trainer, with given multipliers."""
    strategy = create(
        "mfairfl",
        **{
            "update": "gradient",
            "conflict": False,
            "gamma": 0.0,
            "prices": {
                "one_sided": False,
                "cap": 1e9,
                "counter_cap": 1e9,
                "shared_cap": 1e9,
                "driven_by": "smooth",
            },
            **options,
        },
    )
    setup = replace(fed.setup_for(federation, strategy), summary=summarize(federation, goal))
    clients, _ = fed.clients_and_state(setup, federation)
    measured = clients.answer({0: Measure((weights,), ("train",))})[0]
    known = [Measurement(name, sums["train"]) for name, (sums,) in sorted(measured.items())]
    place = replace(a_round(known, recipe=setup.recipe), summary=setup.summary)
    begun = {**strategy.start(setup.summary), **state}
    planned, jobs = strategy.plan(begun, place)
    ask = Train(0, {job.client: weights for job in jobs}, tuple(jobs))
    reports = fed.reports_in(clients.answer({0: ask})[0])
    gram = gram_matrix([report.update for report in reports])
    step = strategy.combine(planned, place, reports, gram)
    return step.coefficients @ np.array([r.update for r in reports], dtype=np.float64)


def some_weights(federation, seed=5):
    model = fed.model_of(fed.setup_for(federation))
    return (2 * model.init(stream(seed, "init"))).astype(np.float32)


def lagrangian_of(parts, weights, labels, mu):
    """L(w) + Σ μ_j d_j over the pooled rows, as a function of the weights."""
    rows = naive.together(parts)

    def lagrangian(w):
        terms = [m * naive.gap(label, w, rows) for m, label in zip(mu, labels, strict=True)]
        return naive.mean_loss(w, parts, weights) + sum(terms)

    return lagrangian


def drawn(federation, goal, seed=2):
    """The goal's labels, and a multiplier for each."""
    labels = goal.constraints(federation.attributes).labels
    return labels, 3 * np.random.default_rng(seed).normal(size=len(labels))


def agree(found, expected):
    assert np.abs(expected).max() > 0.05
    rounds.close(found, expected, 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("weights", ["size", "uniform"])
@pytest.mark.parametrize("goal", [SINGLE, BOTH, CROSSED], ids=["sex", "sex+age", "crossed"])
@pytest.mark.parametrize("notion", NOTIONS)
def test_the_average_update_is_the_pooled_lagrangians_gradient(notion, goal, weights, federation):
    goal = replace(goal, notions=(notion,))
    labels, mu = drawn(federation, goal)
    w, parts = some_weights(federation), naive.rows_of(federation)
    expected = naive.gradient(lagrangian_of(parts, weights, labels, mu), w)
    found = federated_gradient(federation, goal, {"weights": weights}, w, multipliers=mu)
    agree(found, expected)
    # The multipliers matter: without them the gradient is another one.
    plain = naive.gradient(lambda w: naive.mean_loss(w, parts, weights), w)
    assert np.abs(plain - expected).max() > 0.01


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_several_notions_at_once(weights, federation):
    goal = replace(BOTH, notions=("dp", "eo", "ap", "ap-loss"))
    labels, mu = drawn(federation, goal)
    w, parts = some_weights(federation), naive.rows_of(federation)
    found = federated_gradient(federation, goal, {"weights": weights}, w, multipliers=mu)
    agree(found, naive.gradient(lagrangian_of(parts, weights, labels, mu), w))


@pytest.mark.parametrize("notion", ["dp", "eo", "ap", "ap-loss"])
def test_signed_damping_is_a_quadratic_penalty(notion, federation):
    goal = replace(BOTH, notions=(notion,))
    labels, mu = drawn(federation, goal)
    w, parts = some_weights(federation), naive.rows_of(federation)
    rows = naive.together(parts)
    shares = [float(naive.masks(label, rows)[0].mean()) for label in labels]

    def penalised(w):
        gaps = torch.stack([naive.gap(label, w, rows) for label in labels])
        squares = torch.tensor(shares, dtype=torch.float64) @ (gaps * gaps)
        return naive.mean_loss(w, parts, "size") + torch.from_numpy(mu) @ gaps + 1.5 * squares

    found = federated_gradient(federation, goal, {"damping": 3.0}, w, multipliers=mu)
    agree(found, naive.gradient(penalised, w))


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_the_papers_form_prices_the_absolute_gaps(weights, federation):
    labels, mu = drawn(federation, CROSSED)
    lam, w, parts = np.abs(mu), some_weights(federation), naive.rows_of(federation)
    rows = naive.together(parts)

    def lagrangian(w):
        gaps = torch.stack([naive.gap(label, w, rows) for label in labels])
        return naive.mean_loss(w, parts, weights) + torch.from_numpy(lam) @ gaps.abs()

    options = {"multiplier": "paper", "weights": weights}
    agree(
        federated_gradient(federation, CROSSED, options, w, multipliers=lam),
        naive.gradient(lagrangian, w),
    )


def test_the_papers_form_with_damping_is_the_augmented_lagrangian(federation):
    goal, c = replace(CROSSED, dead_zone=0.03), 4.0
    labels, mu = drawn(federation, goal)
    lam = np.where(mu > 0, 0.3 * mu, 0.0)
    w, parts = some_weights(federation), naive.rows_of(federation)
    rows = naive.together(parts)

    def augmented(w):
        gaps = torch.stack([naive.gap(label, w, rows) for label in labels])
        excess = torch.relu(torch.from_numpy(lam) + c * (gaps.abs() - 0.03))
        return naive.mean_loss(w, parts, "size") + excess @ excess / (2 * c)

    options = {"multiplier": "paper", "damping": c}
    agree(
        federated_gradient(federation, goal, options, w, multipliers=lam),
        naive.gradient(augmented, w),
    )


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_client_parity_is_one_more_constraint(weights, federation):
    w, parts = some_weights(federation), naive.rows_of(federation)
    rows = naive.together(parts)
    mu = np.array([0.4, -0.7, 0.2, 0.5])  # east, north, south, west

    def lagrangian(w):
        overall = naive.value("error", w, rows).mean()
        apart = [overall - naive.value("error", w, part).mean() for part in parts.values()]
        return naive.mean_loss(w, parts, weights) + torch.from_numpy(mu) @ torch.stack(apart)

    # A step of 1e-300 leaves the multipliers as they are given.
    options = {"client_parity": 1e-300, "constraint": False, "weights": weights}
    found = federated_gradient(federation, SINGLE, options, w, client_multipliers=mu)
    agree(found, naive.gradient(lagrangian, w))
