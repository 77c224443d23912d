"""What rules make of updates: against the same on the vectors themselves, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from mfairfl.engine.defence import (
    ROBUST,
    SPREAD,
    Updates,
    check_robust,
    defend,
    doubted_losses,
)
from mfairfl.errors import ConfigError
from mfairfl.strategies import Step, create
from rounds import NAMES, close

SIZES = [3, 5, 10]


def sent(G, weights=None, favourable=None):
    """What a rule sees of updates, by default of clients of one size and alike labels."""
    G = np.asarray(G, dtype=float)
    same = np.full(len(G), 1 / len(G))
    shares = np.full(len(G), 0.4) if favourable is None else favourable
    return Updates(
        clients=list(NAMES[: len(G)]),
        gram=G @ G.T,
        weights=same if weights is None else np.asarray(weights),
        counts=[np.array([[1 - share, share]]) for share in shares],
    )


def agreeing(count, seed=0, spread=0.5, width=30):
    """Updates of like length with much in common."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=width)
    return common + spread * rng.normal(size=(count, width))


def strangers(count, seed=0, width=3000):
    """Updates with nothing in common: nearly orthogonal, of like length."""
    return np.random.default_rng(seed).normal(size=(count, width))


def rows_of(found):
    """R; a rule that leaves the updates as they are has none."""
    return np.eye(len(found.seen)) if found.rows is None else found.rows


def averaged(found, G, weights=None):
    """Return FedAvg's step with what a rule made of the updates, in m dimensions."""
    shares = np.full(len(G), 1 / len(G)) if weights is None else weights
    return found.on_originals(Step(shares[found.seen])).coefficients @ G


# ------------------------------------------------------------------ mixtures of updates


@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize("count", [1, 2, *SIZES])
def test_the_strategy_sees_the_gram_matrix_of_the_mixtures(rule, count):
    """Gram matrices and coefficients are those of the vectors R g, computed one by one."""
    rng = np.random.default_rng(count)
    G = agreeing(count, seed=count) * rng.uniform(0.2, 5, size=(count, 1))
    shares = rng.dirichlet(np.full(count, 5.0))
    found = defend(rule, sent(G, weights=shares))
    rows = rows_of(found)
    mixtures = [sum(rows[k, j] * G[j] for j in range(count)) for k in found.seen]
    expected = np.array([[a @ b for b in mixtures] for a in mixtures])
    close(found.gram, expected, atol=1e-10 * np.trace(expected))
    coefficients = rng.normal(size=len(found.seen))
    move = sum(c * vector for c, vector in zip(coefficients, mixtures, strict=True))
    close(found.on_originals(Step(coefficients)).coefficients @ G, move, atol=1e-10)
    assert set(found.reasons) == {NAMES[k] for k in range(count)} - {NAMES[k] for k in found.seen}
    told = {"rule": rule, "set_aside": found.reasons, "clipped": found.clipped}
    assert found.log(rule) == ({} if rule == "none" else {"robust": told})


@pytest.mark.parametrize("rule", ROBUST)
def test_updates_of_no_length_are_no_problem(rule):
    for G in (np.zeros((4, 3)), np.array([[1.0, 0], [0, 0], [0, 0], [2, 0]])):
        found = defend(rule, sent(G))
        assert np.isfinite(rows_of(found)).all()
        assert np.isfinite(averaged(found, G)).all()


@pytest.mark.parametrize("rule", ROBUST)
def test_the_order_of_clients_does_not_matter(rule):
    rng = np.random.default_rng(3)
    G = agreeing(7, seed=3) * rng.uniform(0.5, 4, size=(7, 1))
    G[2] *= -1
    shares, labels, order = rng.dirichlet(np.ones(7)), rng.random(7), rng.permutation(7)
    one = defend(rule, sent(G, shares, labels))
    other = defend(rule, sent(G[order], shares[order], labels[order]))
    assert sorted(order[other.seen]) == one.seen
    close(rows_of(other), rows_of(one)[np.ix_(order, order)], atol=1e-9)
    named = {NAMES[order[NAMES.index(name)]]: why for name, why in other.reasons.items()}
    assert named == one.reasons
    factors = {NAMES[order[NAMES.index(name)]]: x for name, x in other.clipped.items()}
    assert factors == pytest.approx(one.clipped)


# ------------------------------------------------------------------ rules of the literature


def test_none_leaves_everything_as_it_is():
    G = 1e6 * strangers(5, width=3)
    found = defend("none", sent(G))
    assert found.rows is None
    assert (found.seen, found.reasons, found.clipped) == ([0, 1, 2, 3, 4], {}, {})


def test_clip_shortens_to_the_median():
    found = defend("clip", sent([[1.0, 0], [0, 2], [-8, 0], [3, 4]]))
    close(np.diag(found.rows), [1, 1, 0.25, 0.4])  # of norms 1, 2, 5, 8 the lower middle one is 2
    assert found.clipped == {"c": 0.25, "d": 0.4}
    assert found.seen == [0, 1, 2, 3]


def test_clip_changes_nothing_where_norms_are_alike():
    G = strangers(5)
    unit = G / np.linalg.norm(G, axis=1, keepdims=True)
    close(defend("clip", sent(unit)).rows, np.eye(5), atol=1e-9)


def test_nnm_gm_is_the_geometric_median_of_neighbours():
    """The point with the least weighted sum of distances, by a general minimiser."""
    rng = np.random.default_rng(0)
    G = agreeing(10, width=4)
    G[3] *= -4
    shares = rng.dirichlet(np.full(10, 8.0))
    nearest = [sorted(G, key=lambda other, g=g: np.linalg.norm(g - other))[:8] for g in G]
    mixed = np.array([np.mean(few, axis=0) for few in nearest])  # two of ten may lie

    def total(point):
        return shares @ np.linalg.norm(mixed - point, axis=1)

    best = minimize(total, mixed.mean(axis=0), method="BFGS", options={"gtol": 1e-9})
    found = defend("nnm-gm", sent(G, weights=shares))
    point = averaged(found, G, shares)
    assert total(point) <= best.fun * (1 + 1e-4)
    assert np.linalg.norm(point - best.x) < 0.01 * np.linalg.norm(best.x)


@pytest.mark.parametrize(("count", "liars"), [(3, 1), (5, 1), (8, 2), (10, 2)])
def test_multi_krum_leaves_out_a_fifth(count, liars):
    G = agreeing(count, spread=0.1)
    G[:liars] *= -1
    found = defend("multi-krum", sent(G))
    assert found.seen == list(range(liars, count))
    assert found.reasons == {
        NAMES[k]: "the robust rule gives its update no weight" for k in range(liars)
    }
    assert found.clipped == {}
    step = found.on_originals(Step(np.ones(len(found.seen))))
    close(step.coefficients, [0] * liars + [1] * (count - liars))


def test_centred_clipping_is_the_centre_in_m_dimensions():
    G = agreeing(5)
    G[1] *= 30
    tau, v = sorted(np.linalg.norm(G, axis=1))[2], np.zeros(30)
    for _ in range(3):
        v = v + np.mean([d * min(1, tau / np.linalg.norm(d)) for d in G - v], axis=0)
    close(averaged(defend("centred-clip", sent(G)), G), v, atol=1e-9)


@pytest.mark.parametrize("rule", ["clip", "nnm-gm", "multi-krum", "centred-clip", "auto"])
@pytest.mark.parametrize("count", SIZES)
def test_every_rule_stops_a_reversed_and_scaled_update(rule, count):
    """The step stays nearer to the honest mean than to the lie; the plain mean does not."""
    G = agreeing(count, spread=0.3)
    honest = G[1:].mean(axis=0)
    G[0] = -10 * honest

    def off(step):
        return np.linalg.norm(step - honest) / np.linalg.norm(honest)

    assert off(G.mean(axis=0)) > 1
    assert off(averaged(defend(rule, sent(G)), G)) < 0.75


# ------------------------------------------------------------------ auto


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_auto_sets_aside_one_that_is_reversed(count, seed):
    G = agreeing(count, seed)
    assert defend("auto", sent(G)).reasons == {}
    G[1] *= -1
    found = defend("auto", sent(G))
    assert list(found.reasons) == ["b"]
    assert found.seen == [k for k in range(count) if k != 1]
    unit = G / np.linalg.norm(G, axis=1, keepdims=True)
    others = np.delete(unit, 1, axis=0).sum(axis=0)
    cosine = unit[1] @ others / np.linalg.norm(others)
    assert f"(cosine {cosine:.2f}, they agree by " in found.reasons["b"]


@pytest.mark.parametrize(("count", "liars"), [(3, 1), (4, 1), (5, 2), (10, 2), (10, 4)])
def test_auto_sets_aside_fewer_than_half(count, liars):
    G = agreeing(count, spread=0.2)
    G[:liars] *= -1
    assert list(defend("auto", sent(G)).reasons) == list(NAMES[:liars])
    G = agreeing(count, spread=0.2)
    G[: count // 2] *= -1  # half against half: nobody knows who lies
    assert 2 * len(defend("auto", sent(G)).reasons) < count


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_or_two_clients_auto_sets_nobody_aside(count):
    assert defend("auto", sent([[1.0, 0.0], [-1.0, 0.0]][:count])).reasons == {}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10])
def test_auto_does_nothing_where_there_is_no_agreement(count):
    """Honest clients that have nothing in common lose nothing: every update as it was sent."""
    for seed in range(20):
        found = defend("auto", sent(strangers(count, seed)))
        assert found.rows.tolist() == np.eye(count).tolist()
        assert found.seen == list(range(count))
        assert found.reasons == found.clipped == {}
    assert defend("auto", sent(np.eye(count))).reasons == {}


def test_one_against_the_common_direction_of_strangers_is_not_a_liar():
    """The others do not agree among themselves, so there is nothing to work against."""
    G = strangers(5)
    G[4] = -G[:4].sum(axis=0)
    assert defend("auto", sent(G)).reasons == {}


def test_auto_clips_at_twice_the_median_of_those_it_keeps():
    lengths = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    found = defend("auto", sent(lengths[:, None] * np.ones(4) / 2))
    assert SPREAD == 2
    close(np.diag(found.rows), [1, 1, 1, 1, 6 / 8])
    assert found.clipped == {"e": pytest.approx(0.75)}
    # A liar's length has no say: without the third the lower median is 2.
    signs = np.array([1.0, 1, -1, 1, 1])
    found = defend("auto", sent((signs * lengths)[:, None] * np.ones(4) / 2))
    assert list(found.reasons) == ["c"]
    assert found.clipped == pytest.approx({"d": 0.8, "e": 0.5})


def test_mostly_unfavourable_cases_are_a_reason_to_pull_the_other_way():
    """Whose cases nearly all have the other label may disagree; a liar has no such excuse."""
    G = agreeing(5, spread=0.3)
    G[2] *= -1
    assert list(defend("auto", sent(G, favourable=[0.4, 0.4, 0.4, 0.4, 0.4])).reasons) == ["c"]
    assert list(defend("auto", sent(G, favourable=[0.4, 0.45, 0.4, 0.42, 0.38])).reasons) == ["c"]
    assert defend("auto", sent(G, favourable=[0.4, 0.4, 0.95, 0.4, 0.4])).reasons == {}
    # The excuse is one client's; it is not another's.
    assert list(defend("auto", sent(G, favourable=[0.95, 0.4, 0.4, 0.4, 0.4])).reasons) == ["c"]


# ------------------------------------------------------------------ what may be asked for


def test_rules_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"robust.*'atuo'.*did you mean 'auto'"):
        check_robust("atuo", create("fedavg").card)


@pytest.mark.parametrize(
    ("strategy", "why"),
    [("indfair", "every client's update moves a model of its own"), ("cenfair", "one trainer")],
)
def test_rules_are_for_methods_that_average_updates(strategy, why):
    check_robust("none", create(strategy).card)
    with pytest.raises(ConfigError, match=rf"^robust = 'auto': {why}.*use robust = 'none'$"):
        check_robust("auto", create(strategy).card)


# ------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    ("losses", "doubted"),
    [
        ({}, {}),
        ({"a": 0.1, "b": 1e9}, {}),  # of two, which one?
        ({"a": 0.5, "b": 0.6, "c": 0.7}, {}),
        ({"a": 0.5, "b": 0.6, "c": 0.0}, {"c": 0.5}),
        ({"a": 0.5, "b": 0.6, "c": 1e9}, {"c": 0.6}),
        # Five times the median, at least ln 2, or a fifth of it are still typical.
        ({"a": 0.1, "b": 0.1, "c": 3.46, "d": 3.47}, {"d": 0.1}),
        ({"a": 1.0, "b": 1.0, "c": 5.0, "d": 5.01, "e": 0.2}, {"d": 1.0}),
        ({"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.19}, {"d": 1.0}),
        ({"a": 0.0, "b": 0.0, "c": 0.5}, {}),
    ],
)
def test_a_loss_unlike_the_others_does_not_order_clients(losses, doubted):
    assert doubted_losses(losses) == doubted
