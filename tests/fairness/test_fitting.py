"""Thresholds of clients and groups against brute force and programmes over all thresholds."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy.optimize import linprog

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import (
    Cells,
    Constraints,
    Demand,
    ScoreHistogram,
    Thresholds,
    fit_thresholds,
    notion,
)

SEX = (Attribute("sex", ("F", "M")),)
EVENTS = {"demographic_parity": [(0, 1)], "equalized_odds": [(0,), (1,)]}


class Rows:
    """People of some clients, in arrays; their scores lie in the middle of 16 bins."""

    def __init__(self, seed, *, clients=3, n=240, shift=1.0):
        rng = np.random.default_rng(seed)
        self.owner = rng.integers(0, clients, n)
        self.cell = (rng.random(n) < 0.4 + 0.1 * self.owner).astype(int)
        own = rng.normal(0, shift, clients)[self.owner]
        self.y = (rng.random(n) < 1 / (1 + np.exp(-own - self.cell + 0.5))).astype(int)
        z = rng.normal(1.5 * self.y - 0.8 + 0.6 * self.cell, 1.2)
        self.z = np.clip(np.floor(z), -7, 6) + 0.5
        self.names = [f"client-{k}" for k in range(clients)]

    def histograms(self):
        parts = {}
        for k, name in enumerate(self.names):
            rows = self.owner == k
            columns = self.z[rows], self.cell[rows], self.y[rows]
            parts[name] = ScoreHistogram.from_logits(*columns, size=2, bins=16)
        return parts

    def chances(self, rule):
        owners = [self.names[k] for k in self.owner]
        return rule.positive_probability(self.z, self.cell, owners)

    def accuracy(self, chance, rows=slice(None)):
        return float(np.where(self.y == 1, chance, 1 - chance)[rows].mean())

    def violation(self, chance, name, rows=None):
        rows = np.ones(len(self.y), bool) if rows is None else rows
        gaps = [0.0]
        for labels in EVENTS[name]:
            event = rows & np.isin(self.y, labels)
            for group in (0, 1):
                member = event & (self.cell == group)
                if member.any():
                    gaps.append(abs(chance[event].mean() - chance[member].mean()))
        return max(gaps)

    def worst_client(self, chance):
        return min(self.accuracy(chance, self.owner == k) for k in range(len(self.names)))


def constraints(name):
    return Constraints(Cells(SEX), notion(name))


class Oracle:
    """The same question as a dense programme over every threshold of every block, from rows."""

    def __init__(self, rows, by):
        self.rows = rows
        grid = np.concatenate([[-np.inf], np.arange(-7.0, 8.0), [np.inf]])
        group = rows.cell if by in ("group", "both") else np.zeros_like(rows.cell)
        client = rows.owner if by in ("client", "both") else np.zeros_like(rows.owner)
        self.blocks = np.unique(np.stack([client, group]), axis=1).T
        # What each variable selects: (n, blocks · thresholds).
        self.chosen = np.hstack(
            [
                ((client == k) & (group == g))[:, None] & (rows.z[:, None] >= grid)
                for k, g in self.blocks
            ]
        ).astype(float)
        self.sums = np.kron(np.eye(len(self.blocks)), np.ones(len(grid)))
        self.left, self.right = [], []  # left · x ≤ right

    def bound_gaps(self, name, tolerance, rows=None):
        rows = np.ones(len(self.rows.y), bool) if rows is None else rows
        for labels in EVENTS[name]:
            event = rows & np.isin(self.rows.y, labels)
            for group in (0, 1):
                member = event & (self.rows.cell == group)
                if member.any():
                    gap = self.chosen[event].mean(axis=0) - self.chosen[member].mean(axis=0)
                    self.left += [gap, -gap]
                    self.right += [tolerance, tolerance]

    def right_share(self, rows):
        """Accuracy is share · x + the negatives' share."""
        sign = np.where(self.rows.y == 1, 1.0, -1.0)[rows]
        return (sign[:, None] * self.chosen[rows]).mean(axis=0), np.mean(self.rows.y[rows] == 0)

    def at_least(self, table, constant, least):
        self.left.append(-table)
        self.right.append(constant - least)

    def best(self, extra=None, sign=1.0):
        """The best accuracy; or with a column `extra` for v ≥ 0, the best sign · v."""
        share, constant = self.right_share(slice(None))
        left, cost = np.array(self.left), -share
        one = self.sums
        if extra is not None:
            left = np.column_stack([left, extra])
            cost = np.append(np.zeros_like(share), -sign)
            one = np.column_stack([one, np.zeros(len(one))])
            constant = 0.0
        result = linprog(cost, left, self.right, one, np.ones(len(one)))
        assert result.status == 0, result.message
        return constant - result.fun


BYS = ("none", "group", "client", "both")


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize("local", [None, 0.05])
def test_randomised_thresholds_are_the_optimum_over_all(name, by, local):
    for seed in range(3):
        rows, oracle = Rows(seed), None
        oracle = Oracle(rows, by)
        oracle.bound_gaps(name, 0.02)
        for k in range(3) if local is not None else ():
            oracle.bound_gaps(name, local, rows.owner == k)
        demand = Demand(
            by=by, tolerance=0.02, local_tolerance=local, randomise=True, shrinkage=0.0
        )
        fitted = fit_thresholds(rows.histograms(), constraints(name), demand)
        chance = rows.chances(fitted.thresholds)
        assert rows.accuracy(chance) == pytest.approx(oracle.best(), abs=1e-6)
        assert rows.violation(chance, name) <= 0.02 + 1e-8
        for k in range(3) if local is not None else ():
            assert rows.violation(chance, name, rows.owner == k) <= local + 1e-8
        assert fitted.excess == 0.0
        assert fitted.drawn == pytest.approx(np.mean((chance > 0) & (chance < 1)))


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("seed", range(4))
def test_one_threshold_for_each_of_two_groups_is_the_best_pair(seed, name, tolerance):
    rows = Rows(seed)
    demand = Demand(by="group", tolerance=tolerance)
    fitted = fit_thresholds(rows.histograms(), constraints(name), demand)
    chance = rows.chances(fitted.thresholds)
    assert set(chance.tolist()) <= {0.0, 1.0}
    assert fitted.drawn == 0.0

    def worth(decisions):
        """Accuracy less ten times the excess of every group's gap, over both of its sides."""
        excess = 0.0
        for labels in EVENTS[name]:
            event = np.isin(rows.y, labels)
            for group in (0, 1):
                member = event & (rows.cell == group)
                gap = abs(decisions[event].mean() - decisions[member].mean())
                excess += max(0.0, gap - tolerance)
        return rows.accuracy(decisions) - 10.0 * excess

    grid = np.concatenate([[-np.inf], np.arange(-7.0, 8.0), [np.inf]])
    best = max(
        worth((rows.z >= np.where(rows.cell == 1, second, first)).astype(float))
        for first, second in itertools.product(grid, grid)
    )
    assert worth(chance) == pytest.approx(best, abs=1e-6)
    assert fitted.excess == pytest.approx(
        max(0.0, rows.violation(chance, name) - tolerance), abs=1e-9
    )


@pytest.mark.parametrize("by", ["client", "both"])
@pytest.mark.parametrize("seed", range(4))
def test_rounded_thresholds_of_clients_state_their_excess(by, seed):
    rows = Rows(seed, clients=5, n=600)
    demand = Demand(by=by, tolerance=0.01, local_tolerance=0.05, shrinkage=0.0)
    fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
    chance = rows.chances(fitted.thresholds)
    assert set(chance.tolist()) <= {0.0, 1.0}
    over = [rows.violation(chance, "demographic_parity") - 0.01] + [
        rows.violation(chance, "demographic_parity", rows.owner == k) - 0.05 for k in range(5)
    ]
    assert fitted.excess == pytest.approx(max(0.0, *over), abs=1e-9)
    assert fitted.excess < 0.05


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
def test_rounded_thresholds_of_two_clients_are_the_best_of_all_choices(name):
    for seed in range(6):
        rows = Rows(seed, clients=2)
        demand = Demand(by="both", tolerance=0.02, local_tolerance=0.03, shrinkage=0.0)
        fitted = fit_thresholds(rows.histograms(), constraints(name), demand)
        grid = np.concatenate([[-np.inf], np.arange(-7.0, 8.0), [np.inf]])
        blocks = [(rows.owner == k) & (rows.cell == g) for k in (0, 1) for g in (0, 1)]
        bounds = []  # what each block adds to a gap with each threshold; tolerance; price
        for client, tolerance in ((None, 0.02), (0, 0.03), (1, 0.03)):
            there = np.ones(len(rows.y), bool) if client is None else rows.owner == client
            for labels, group in itertools.product(EVENTS[name], (0, 1)):
                event = there & np.isin(rows.y, labels)
                member = event & (rows.cell == group)
                weight = event / event.sum() - member / member.sum()
                passed = rows.z[:, None] >= grid
                parts = [(weight[b, None] * passed[b]).sum(axis=0) for b in blocks]
                bounds.append((parts, tolerance, 10.0 * there.mean()))
        sign = np.where(rows.y == 1, 1.0, -1.0) / len(rows.y)
        gain = [(sign[b, None] * (rows.z[b, None] >= grid)).sum(axis=0) for b in blocks]

        def total(parts):
            """Sum over all choices of a threshold for each of the four blocks."""
            return sum(
                np.moveaxis(part[:, None, None, None], 0, i) for i, part in enumerate(parts)
            )

        worth = total(gain)
        for parts, tolerance, price in bounds:
            worth = worth - price * np.maximum(np.abs(total(parts)) - tolerance, 0.0)
        own = [fitted.thresholds.of(f"client-{k}").values[g, 0] for k in (0, 1) for g in (0, 1)]
        chosen = tuple(int(np.flatnonzero(grid == value)[0]) for value in own)
        assert worth[chosen] == pytest.approx(worth.max(), abs=1e-6)


def test_the_worst_client_is_as_good_as_it_can_be():
    for seed in range(3):
        rows = Rows(seed)
        oracle = Oracle(rows, "both")
        oracle.bound_gaps("demographic_parity", 0.05)
        slack = [0.0] * len(oracle.left)
        for k in range(3):
            oracle.at_least(*oracle.right_share(rows.owner == k), 0.0)
            slack.append(1.0)
        demand = Demand(
            by="both",
            tolerance=0.05,
            maximise="worst_client_accuracy",
            randomise=True,
            shrinkage=0.0,
        )
        fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
        chance = rows.chances(fitted.thresholds)
        best = oracle.best(np.array(slack))
        assert best - 1e-3 - 1e-6 <= rows.worst_client(chance) <= best + 1e-6
        oracle.right[-3:] = [right - best + 1e-3 for right in oracle.right[-3:]]
        assert rows.accuracy(chance) == pytest.approx(oracle.best(), abs=1e-6)


def test_groups_are_levelled_up():
    rows = Rows(1)
    rates = {"least_selection_rate": (0, 1), "least_true_positive_rate": (1,)}
    for name, labels in rates.items():
        demand = Demand(by="group", tolerance=1.0, randomise=True, **{name: 0.9})
        fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
        chance = rows.chances(fitted.thresholds)
        oracle = Oracle(rows, "group")
        for group in (0, 1):
            member = (rows.cell == group) & np.isin(rows.y, labels)
            assert chance[member].mean() >= 0.9 - 1e-8
            oracle.at_least(oracle.chosen[member].mean(axis=0), 0.0, 0.9)
        assert rows.accuracy(chance) == pytest.approx(oracle.best(), abs=1e-6)


def test_what_cannot_be_met_is_refused_with_the_least_enlargement():
    rows = Rows(2)
    asked = {"by": "group", "tolerance": 0.0, "least_client_accuracy": 0.8, "randomise": True}
    oracle = Oracle(rows, "group")
    oracle.bound_gaps("demographic_parity", 0.0)
    for k in range(3):
        oracle.at_least(*oracle.right_share(rows.owner == k), 0.8)
    least = -oracle.best(-np.ones(len(oracle.left)), sign=-1.0)
    assert least > 0.01
    dp = constraints("demographic_parity")
    with pytest.raises(ConfigError, match=rf"enlarged by {least:.4f}: relax = true"):
        fit_thresholds(rows.histograms(), dp, Demand(**asked))
    fitted = fit_thresholds(rows.histograms(), dp, Demand(**asked, relax=True))
    assert fitted.enlargement == pytest.approx(least, abs=1e-6)
    chance = rows.chances(fitted.thresholds)
    assert rows.violation(chance, "demographic_parity") <= least + 1e-6
    assert rows.worst_client(chance) >= 0.8 - least - 1e-6


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ({"maximise": "balanced_accuracy"}, lambda y, d: d[y == 1].mean() + 1 - d[y == 0].mean()),
        ({"costs": (5.0, 1.0)}, lambda y, d: -(5.0 * d[y == 0].sum() + (1 - d[y == 1]).sum())),
    ],
)
def test_other_objectives_for_everyone(asked, value):
    rows = Rows(3)
    demand = Demand(tolerance=1.0, **asked)
    fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
    assert not fitted.thresholds.reads_group
    decided = fitted.thresholds.positive_probability(rows.z)
    grid = np.concatenate([[-np.inf], np.arange(-7.0, 8.0), [np.inf]])
    best = max(value(rows.y, (rows.z >= t).astype(float)) for t in grid)
    assert value(rows.y, decided) == pytest.approx(best)


def test_strangers_and_absent_groups_get_the_rule_for_everyone():
    rows = Rows(0)
    rows.cell[rows.owner == 2] = 0  # client-2 has no men
    demand = Demand(by="both", tolerance=0.02)
    fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
    everyone = fit_thresholds(
        rows.histograms(), constraints("demographic_parity"), Demand(by="group", tolerance=0.02)
    )
    rule, pooled = fitted.thresholds, everyone.thresholds
    z, men, women = np.arange(-7, 7) + 0.5, np.ones(14, int), np.zeros(14, int)
    for cells in (men, women):
        assert np.array_equal(
            rule.positive_probability(z, cells, "new client"),
            pooled.positive_probability(z, cells),
        )
    assert np.array_equal(
        rule.positive_probability(z, men, "client-2"), pooled.positive_probability(z, men)
    )
    with pytest.raises(DataError, match="the rows' clients are needed"):
        rule.positive_probability(z, men)


def test_clients_that_are_alike_decide_alike():
    rows = Rows(4, clients=1, n=300)
    one = rows.histograms()["client-0"]
    demand = Demand(by="client", tolerance=1.0)
    copies = {f"copy-{k}": one for k in range(4)}
    fitted = fit_thresholds(copies, constraints("demographic_parity"), demand)
    assert fitted.otherwise == 0.0


def test_small_clients_are_drawn_to_the_rule_for_everyone():
    # Clients that differ by chance alone: their own thresholds overfit, and the shrunk ones less.
    gains = []
    for seed in range(5):
        train, test = (Rows(100 * part + seed, clients=20, n=600, shift=0.0) for part in (1, 2))
        for strength in (0.0, 4.0):
            demand = Demand(by="both", tolerance=1.0, shrinkage=strength)
            fitted = fit_thresholds(train.histograms(), constraints("demographic_parity"), demand)
            gains.append(test.accuracy(test.chances(fitted.thresholds)))
    own, shrunk = np.reshape(gains, (5, 2)).T
    assert (shrunk > own).sum() >= 4
    assert (shrunk - own).mean() > 0.01


def test_a_group_with_one_label_that_a_client_lacks():
    rows = Rows(2)
    rows.y[rows.cell == 1] = 1
    rows.cell[rows.owner == 0] = 0
    demand = Demand(by="both", tolerance=0.3, local_tolerance=0.5)
    fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
    chance = rows.chances(fitted.thresholds)
    assert rows.violation(chance, "demographic_parity") - 0.3 <= fitted.excess + 1e-9
    assert rows.accuracy(chance) > 0.6


def test_how_many_another_client_would_decide_otherwise():
    rows = Rows(5, shift=2.0)
    demand = Demand(by="both", tolerance=0.1, shrinkage=0.0)
    fitted = fit_thresholds(rows.histograms(), constraints("demographic_parity"), demand)
    decided = rows.chances(fitted.thresholds)
    differs = []
    for i in range(len(rows.y)):
        others = [
            fitted.thresholds.positive_probability(rows.z[[i]], rows.cell[[i]], name)[0]
            for k, name in enumerate(rows.names)
            if k != rows.owner[i]
        ]
        differs.append(np.mean(np.array(others) != decided[i]))
    assert fitted.otherwise == pytest.approx(np.mean(differs))
    assert fitted.otherwise > 0.05


def test_the_order_of_clients_changes_nothing():
    rows = Rows(6)
    demand = Demand(by="both", tolerance=0.02, local_tolerance=0.1)
    histograms = rows.histograms()
    backwards = dict(reversed(histograms.items()))
    rules = [
        fit_thresholds(parts, constraints("equalized_odds"), demand).thresholds.to_json()
        for parts in (histograms, backwards)
    ]
    assert {**rules[0]["clients"]} == {**rules[1]["clients"]}
    back = Thresholds.from_json(json.loads(json.dumps(rules[0])))
    assert back.to_json() == rules[0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"by": "groups"}, "unknown output.by 'groups': did you mean 'group'"),
        ({"tolerance": 1.5}, r"output.tolerance must lie in \[0, 1\], not 1.5"),
        ({"local_tolerance": -0.1}, "output.local_tolerance must lie"),
        ({"costs": (0.0, 1.0)}, "give two numbers above 0"),
        ({"costs": (2.0, 1.0), "maximise": "balanced_accuracy"}, "knows none; remove one"),
    ],
)
def test_demands_that_make_no_sense_are_refused(asked, message):
    with pytest.raises(ConfigError, match=message):
        Demand(**asked)


def test_rules_of_clients_must_be_for_the_same_cells():
    one, two = Thresholds([[0.0]], [[1.0]]), Thresholds([[0.0], [1.0]], [[1.0], [1.0]])
    with pytest.raises(DataError, match="those of client 'north' are for 1 cells; expected 2"):
        Thresholds(two.values, two.probabilities, {"north": one})
