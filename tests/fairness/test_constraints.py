"""Gaps and prices against row-by-row means and the price identity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import NOTIONS, Cells, Constraints, Statistics, notion

SEX = Attribute("sex", ("F", "M"))


def random_rows(rng):
    """Rows with one to three attributes, some groups never drawn."""
    attributes = tuple(
        Attribute(f"a{i}", tuple(f"g{g}" for g in range(rng.integers(2, 5))))
        for i in range(rng.integers(1, 4))
    )
    n = int(rng.integers(20, 200))
    codes = np.column_stack(
        [rng.integers(0, a.size - int(rng.random() < 0.3), size=n) for a in attributes]
    )
    y = rng.integers(0, 2, size=n)
    score = rng.random(n)
    rows = {
        "codes": codes,
        "y": y,
        "score": score,
        "decision": (score > 0.5).astype(int),
        "loss": -np.log(np.where(y == 1, score, 1 - score)),
    }
    return attributes, rows


def row_value(statistic, smooth, rows):
    p = rows["score"] if smooth else rows["decision"].astype(float)
    return {"selection": p, "error": np.abs(p - rows["y"]), "loss": rows["loss"]}[statistic]


def naive_gaps(constraints, attributes, rows, smooth):
    """Means over boolean masks of rows, one constraint at a time."""
    names = [a.name for a in attributes]
    gaps = []
    for name, event_name, grouping, group in constraints.labels:
        chosen = notion(name)
        event = next(e for e in chosen.events if e.name == event_name)
        inside = np.isin(rows["y"], event.labels)
        member = inside.copy()
        for attribute, value in zip(grouping.split(" × "), group.split(" × "), strict=True):
            index = names.index(attribute)
            member &= rows["codes"][:, index] == attributes[index].groups.index(value)
        f = row_value(chosen.statistic, smooth, rows)
        gaps.append(f[inside].mean() - f[member].mean() if member.any() else np.nan)
    return np.array(gaps)


def statistics_of(cells, rows):
    return Statistics.from_rows(
        size=cells.size,
        cells=cells.encode(rows["codes"]),
        y=rows["y"],
        decisions=rows["decision"],
        scores=rows["score"],
        losses=rows["loss"],
    )


def instance(seed):
    rng = np.random.default_rng(seed)
    attributes, rows = random_rows(rng)
    cells = Cells(attributes)
    chosen = rng.choice(NOTIONS, size=int(rng.integers(1, 4)), replace=False)
    groupings = cells.groupings(intersections=bool(rng.integers(2)))
    constraints = Constraints(cells, [notion(name) for name in chosen], groupings)
    return rng, attributes, rows, cells, constraints


@pytest.mark.parametrize("kind", ["hard", "smooth"])
@pytest.mark.parametrize("seed", range(30))
def test_gaps_equal_row_means(seed, kind):
    _, attributes, rows, cells, constraints = instance(seed)
    expected = naive_gaps(constraints, attributes, rows, smooth=kind == "smooth")
    statistics = statistics_of(cells, rows)
    np.testing.assert_allclose(constraints.gaps(statistics, kind), expected, rtol=0, atol=1e-12)
    worst = np.nanmax(np.abs(expected))
    assert constraints.violation(statistics, kind) == pytest.approx(worst, abs=1e-12)


def test_some_instances_miss_a_group():
    # The random instances above must include undefined constraints, else they test too little.
    missing = [np.isnan(naive_gaps(c, a, r, smooth=True)).any() for _, a, r, _, c in
               (instance(seed) for seed in range(30))]  # fmt: skip
    assert 5 < sum(missing) < 30


@pytest.mark.parametrize("seed", range(60))
def test_price_identity(seed):
    rng, attributes, rows, cells, constraints = instance(seed)
    statistics = statistics_of(cells, rows)
    mu = rng.normal(size=len(constraints))
    gaps = naive_gaps(constraints, attributes, rows, smooth=True)
    lagrangian = np.nansum(mu * gaps)
    score_price, loss_price = constraints.prices(mu, statistics.counts)
    cell, y, n = cells.encode(rows["codes"]), rows["y"], len(rows["y"])
    priced = score_price[cell, y] @ rows["score"] + loss_price[cell, y] @ rows["loss"]
    # The error of a row is 1 − σ if y = 1: what Σ μ d is at σ = 0 is the constant left out.
    at_zero = rows | {"score": np.zeros(n), "loss": np.zeros(n)}
    constant = np.nansum(mu * naive_gaps(constraints, attributes, at_zero, smooth=True))
    assert priced / n + constant == pytest.approx(lagrangian, abs=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_a_constant_violates_nothing_so_mean_prices_are_zero(seed):
    rng, _, rows, cells, constraints = instance(seed)
    counts = statistics_of(cells, rows).counts
    mu = rng.normal(size=len(constraints))
    score_price, loss_price = constraints.prices(mu, counts)
    n = counts.sum()
    if not any(item.statistic == "error" for item in constraints.notions):
        assert (score_price * counts).sum() / n == pytest.approx(0.0, abs=1e-12)
    assert (loss_price * counts).sum() / n == pytest.approx(0.0, abs=1e-12)


def test_prices_of_two_groups_by_hand():
    # Closed form: mu_0 = m, mu_1 = −m n_0/n_1 gives
    # u_0 = −m (n_0² + n_1²)/(n_0 n_1) and u_1 = m (n_0² + n_1²)/n_1²; Adult: −1.2, +.6.
    n0, n1, m = 16192.0, 32650.0, 0.47
    constraints = Constraints(Cells((SEX,)), notion("dp"))
    counts = np.array([[n0 - 1769, 1769], [n1 - 9918, 9918]])
    price, loss_price = constraints.prices([m, -m * n0 / n1], counts)
    assert price[0].tolist() == pytest.approx([-m * (n0**2 + n1**2) / (n0 * n1)] * 2)
    assert price[1].tolist() == pytest.approx([m * (n0**2 + n1**2) / n1**2] * 2)
    assert price.round(1).tolist() == [[-1.2, -1.2], [0.6, 0.6]]
    assert not loss_price.any()


def test_error_price_has_opposite_signs_and_loss_goes_to_the_loss():
    counts, mu = [[1, 2], [3, 4]], [0.5, -0.25]
    cells = Cells((SEX,))
    selection, _ = Constraints(cells, notion("dp")).prices(mu, counts)
    error, none = Constraints(cells, notion("ap")).prices(mu, counts)
    nothing, loss = Constraints(cells, notion("ap-loss")).prices(mu, counts)
    # u_g = Σ μ − μ_g n/n_g: .25 − .5·10/3 and .25 + .25·10/7
    u = [0.25 - 5 / 3, 0.25 + 2.5 / 7]
    assert selection == pytest.approx(np.array([[u[0], u[0]], [u[1], u[1]]]))
    assert error == pytest.approx(np.array([[u[0], -u[0]], [u[1], -u[1]]]))
    assert loss == pytest.approx(selection)
    assert not none.any()
    assert not nothing.any()


def test_one_sided_prices_by_hand():
    # U_F < 0 (errors must rise) prices y = 0 only; U_M > 0 is symmetric.
    counts, mu = [[1, 2], [3, 4]], [0.5, -0.25]
    cells = Cells((SEX,))
    u = [0.25 - 5 / 3, 0.25 + 2.5 / 7]
    error, none = Constraints(cells, notion("ap")).prices(mu, counts, one_sided=True)
    assert error == pytest.approx(np.array([[u[0], 0.0], [u[1], -u[1]]]))
    assert not none.any()
    # Loss: U_F < 0 becomes U·σ on y = 0; U_M > 0 weights the loss.
    score, loss = Constraints(cells, notion("ap-loss")).prices(mu, counts, one_sided=True)
    assert score == pytest.approx(np.array([[u[0], 0.0], [0.0, 0.0]]))
    assert loss == pytest.approx(np.array([[0.0, 0.0], [u[1], u[1]]]))
    # A selection price has no cliff and stays as it is.
    both = [Constraints(cells, notion("dp")).prices(mu, counts, one_sided=s)[0] for s in (0, 1)]
    assert both[0].tolist() == both[1].tolist()


def test_multipliers_of_group_size_cost_nothing():
    # A shift μ_{e,s} + t n_{e,s} changes no price (section 3).
    counts = np.array([[5, 2], [3, 9], [1, 1]])
    cells = Cells((Attribute("race", ("a", "b", "c")),))
    constraints = Constraints(cells, notion("eo"))
    _, n_group = constraints.counts(counts)
    price, _ = constraints.prices(n_group, counts)
    assert price == pytest.approx(np.zeros((3, 2)), abs=1e-12)


def test_empty_group_is_nan_and_priced_zero():
    cells = Cells((Attribute("race", ("a", "b", "never")),))
    constraints = Constraints(cells, notion("eo"))
    counts = np.array([[4.0, 0.0], [4.0, 6.0], [0.0, 0.0]])
    positives = np.array([[1.0, 0.0], [3.0, 3.0], [0.0, 0.0]])
    statistics = Statistics(counts=counts, positives=positives, scores=positives, losses=counts)
    gaps = constraints.gaps(statistics)
    assert gaps[:2].tolist() == [0.25, -0.25]  # y = 0: overall 4/8, groups 1/4 and 3/4
    assert np.isnan(gaps).tolist() == [False, False, True, True, False, True]
    assert constraints.violation(statistics) == 0.25
    n_event, n_group = constraints.counts(counts)
    assert n_event.tolist() == [8, 8, 8, 6, 6, 6]
    assert n_group.tolist() == [4, 4, 0, 0, 6, 0]
    price, _ = constraints.prices([0, 0, 7.0, 7.0, 0, 7.0], counts)
    assert not price.any()


def test_violation_is_nan_without_any_row():
    zero = np.zeros((2, 2))
    statistics = Statistics(counts=zero, positives=zero, scores=zero, losses=zero)
    assert np.isnan(Constraints(Cells((SEX,)), notion("dp")).violation(statistics))


def test_errors_name_the_fix():
    cells = Cells((SEX,))
    constraints = Constraints(cells, notion("dp"))
    with pytest.raises(ConfigError, match="give 2 finite numbers"):
        constraints.prices([1.0], np.ones((2, 2)))
    with pytest.raises(ConfigError, match="give 2 finite numbers"):
        constraints.prices([1.0, np.nan], np.ones((2, 2)))
    with pytest.raises(DataError, match=r"expected \(2, 2\)"):
        constraints.prices([1.0, 1.0], np.ones((3, 2)))
    with pytest.raises(DataError, match="negative or missing"):
        constraints.prices([1.0, 1.0], [[1, -1], [1, 1]])
    for notions, groupings in ([], None), ([notion("dp")], []):
        with pytest.raises(ConfigError, match="need a notion and a sensitive attribute"):
            Constraints(cells, notions, groupings)
    zero = np.zeros((2, 2))
    statistics = Statistics(counts=zero, positives=zero, scores=zero, losses=zero)
    with pytest.raises(ConfigError, match="unknown kind of rate 'soft'"):
        constraints.rates(statistics, "soft")


def test_nobody_is_compared_without_attributes():
    constraints = Constraints(Cells(()), [notion("dp"), notion("eo"), notion("ap-loss")])
    table = np.array([[3.0, 4.0]])
    statistics = Statistics(counts=table, positives=table / 2, scores=table / 3, losses=table)
    assert len(constraints) == 0
    assert constraints.gaps(statistics).shape == (0,)
    assert np.isnan(constraints.violation(statistics))
    for price in constraints.prices([], table):
        assert price.tolist() == [[0.0, 0.0]]


# ------------------------------------------------------------------ how far a multiplier may go


@pytest.mark.parametrize("name", ["dp", "eo", "ap"])
def test_limits_by_hand(name):
    # n = 100; F has 30 + 10 rows, M has 20 + 40: cap · n_{e,g}/n.
    n = [[30, 10], [20, 40]]
    # Errors have no limit: parity may need the other group's to rise.
    expected = {"dp": [0.8, 1.2], "ap": [np.inf] * 2, "eo": [0.6, 0.4, 0.2, 0.8]}[name]
    constraints = Constraints(Cells((Attribute("sex", ("F", "M")),)), notion(name))
    np.testing.assert_allclose(constraints.limits(n, 2.0), expected, rtol=1e-15)


def test_an_empty_group_has_no_limit():
    constraints = Constraints(Cells((Attribute("sex", ("F", "M")),)), notion("eo"))
    found = dict(zip(constraints.labels, constraints.limits([[0, 5], [3, 2]], 1.0), strict=True))
    by_group = {(event, group): limit for (_, event, _, group), limit in found.items()}
    assert sorted(map(float, by_group.values())) == [0.2, 0.3, 0.5, np.inf]
    empty = [place for place, limit in by_group.items() if limit == np.inf]
    assert [group for _, group in empty] == ["F"]
    assert constraints.limits(np.zeros((2, 2)), 1.0).tolist() == [np.inf] * 4


@given(
    st.lists(st.integers(0, 30), min_size=8, max_size=8),
    st.lists(st.lists(st.floats(-3, 3), min_size=8, max_size=8), min_size=1, max_size=12),
    st.sampled_from([0.1, 1.0, 20.0]),
    st.sampled_from(["dp", "eo"]),
)
def test_no_move_prices_a_group_over_the_cap_and_no_empty_group_forgets(rows, moves, cap, name):
    attributes = (Attribute("sex", ("F", "M")), Attribute("age", ("old", "young")))
    constraints = Constraints(Cells(attributes), notion(name))
    n = np.reshape(rows, (4, 2)).astype(float)
    most = constraints.limits(n, cap)
    mu, free = np.zeros(len(constraints)), np.zeros(len(constraints))
    for move in moves:
        step = np.array(move[: len(constraints)])
        mu, free = np.clip(mu + step, -most, most), free + step
    for j, (_, event, attribute, group) in enumerate(constraints.labels):
        axis = [a.name for a in attributes].index(attribute)
        code = attributes[axis].groups.index(group)
        inside = np.take(n.reshape(2, 2, 2), code, axis=axis)
        members = inside.sum() if event == "all" else inside[..., int(event[-1])].sum()
        if members:
            assert abs(mu[j]) * n.sum() / members <= cap * (1 + 1e-12)
        else:
            assert mu[j] == free[j]


@pytest.mark.parametrize(
    ("name", "rate"),
    [("demographic_parity", 0.3), ("equal_opportunity", 0.5)],
)
def test_the_margin_is_that_of_drawn_decisions(name, rate):
    """Fair decisions of 2,000 people, women 400 of them, drawn 20,000 times."""
    n = np.array([[280.0, 120.0], [1120.0, 480.0]])  # 30 % favourable labels
    rng, events = np.random.default_rng(0), {"demographic_parity": slice(None)}
    women, men = (n[group, events.get(name, slice(1, 2))].sum() for group in (0, 1))
    selected = rng.binomial([int(women), int(men)], rate, size=(20_000, 2))
    gaps = selected.sum(axis=1) / (women + men) - selected[:, 0] / women
    margin = Constraints(Cells((SEX,)), notion(name)).margin(n)
    assert margin == pytest.approx((1.96 + 1.28) * gaps.std(), rel=0.02)


def test_groups_without_rows_demand_no_margin():
    constraints = Constraints(Cells((SEX,)), notion("dp"))
    assert constraints.margin([[0, 0], [30, 10]]) == 0.0
    assert constraints.margin(np.zeros((2, 2))) == 0.0
