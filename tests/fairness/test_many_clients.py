"""All clients at once give what each gives alone; many clients, what they give one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, chisquare, ks_2samp

from metric_tables import floors, limits, quick_table
from mfairfl.data import Attribute
from mfairfl.fairness import Interval, MetricTable, Tally, notion, resampling
from mfairfl.fairness.rates import decision_notions, why_each_undefined
from mfairfl.fairness.resampling import (
    OWN_STRATA,
    accuracy_spreads,
    each_resampled,
    resampled,
    resampled_together,
    smoothed,
)
from mfairfl.fairness.uncertainty import Resampling, wilson

SEX, AGE = Attribute("sex", ("F", "M")), Attribute("age", ("young", "mid", "old"))
DP = "demographic_parity_violation"
DRAWS, LEVEL = 200, 0.95


def drawn_tally(clients, rows, attributes=(SEX,), seed=0, expected=False):
    rng = np.random.default_rng(seed)
    size = math.prod(one.size for one in attributes)
    chance = rng.dirichlet(np.ones(4 * size))
    counts = rng.multinomial(rows, chance, size=clients).reshape(clients, size, 2, 2)
    if expected:
        chances = rng.random((clients, size, 2, 1))
        counts = counts.sum(axis=3, keepdims=True) * np.concatenate([1 - chances, chances], axis=3)
    return Tally(counts, tuple(f"c{k}" for k in range(clients)), attributes)


# ------------------------------------------------------------------ client by client


def naive_rates(table, members, labels, wrong):
    """The share of hits among rows of these cells and labels of one (C, 2, 2) table."""
    hits = rows = 0.0
    for cell in np.flatnonzero(members):
        for y in labels:
            hits += table[cell, y, 1 - y if wrong else 1]
            rows += table[cell, y].sum()
    return hits / rows if rows else math.nan


def naive_deviations(item, groupings, table):
    wrong = item.statistic == "error"
    return [
        naive_rates(table, members, event.labels, wrong)
        - naive_rates(table, grouping.compared, event.labels, wrong)
        for grouping in groupings
        for members in grouping.membership
        for event in item.events
    ]


def naive_smoothed(counts, groupings):
    """Add z² pseudo-rows to the smallest group of each cell; `counts` of some clients."""
    pseudo, smooth = float(ndtri(0.5 + LEVEL / 2)) ** 2, counts.astype(float)
    rows = counts.sum(axis=(0, 3)).astype(float)
    for cell, y in np.ndindex(rows.shape):
        groups = [m for g in groupings for m in g.membership if m[cell]]
        size = min([rows[members, y].sum() for members in groups], default=rows.sum())
        held = smooth[:, cell, y].sum(axis=1, keepdims=True)
        smooth[:, cell, y] = (smooth[:, cell, y] * size + 0.5 * pseudo * held) / (size + pseudo)
    return smooth


def naive_violation(item, groupings, counts, smooth, drawn):
    """The limits of one violation, from tables (C, 2, 2) drawn one after another."""
    known = np.abs(naive_deviations(item, groupings, counts))
    if np.isnan(known).any():
        return None
    centre = np.array(naive_deviations(item, groupings, smooth))
    away = np.abs([naive_deviations(item, groupings, one) - centre for one in drawn])
    told = np.isnan(away).mean(axis=0) <= (1 - LEVEL) / (2 * len(known))
    if not told.any():
        return Interval(0.0, 1.0)
    error = np.array([math.sqrt(np.nanmean(np.square(one))) for one in away.T[told]])
    scaled = np.where(error > 0, away[:, told] / np.where(error > 0, error, 1), 0)
    far = np.where(np.isnan(scaled), np.inf, scaled).max(axis=1)
    q = sorted(far)[math.ceil(LEVEL * (len(far) - 1))]
    lower = (known[told] - q * error).max()
    upper = (known[told] + q * error).max() if told.all() else 1.0
    return Interval(max(0.0, lower), min(1.0, upper))


def naive_draws(smooth, draws, rng):
    flat = smooth.reshape(len(smooth), -1)
    totals = flat.sum(axis=1)
    shares = [
        f / t if t else np.full(len(f), 1 / len(f)) for f, t in zip(flat, totals, strict=True)
    ]
    rows = np.rint(totals).astype(int)
    tables = [
        [rng.multinomial(n, p) for n, p in zip(rows, shares, strict=True)] for _ in range(draws)
    ]
    return np.array(tables).reshape(draws, *smooth.shape)


def assert_close(found, expected):
    if expected is None or found is None:
        assert found is expected
    else:
        assert tuple(found) == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("clients", "rows", "attributes", "expected"),
    [
        (5, 300, (SEX,), False),
        (7, 40, (SEX, AGE), False),
        (4, 60, (SEX, AGE), True),
        (12, 9, (Attribute("sex", ("F", "M", "?")),), False),
    ],
)
def test_intervals_equal_a_loop_over_clients_and_draws(clients, rows, attributes, expected):
    tally = drawn_tally(clients, rows, attributes, expected=expected)
    table = MetricTable.from_tally(tally, draws=DRAWS, level=LEVEL, seed=3)
    rng, groupings = np.random.default_rng(3), tally.cells.groupings()
    merged = tally.counts.sum(axis=1, keepdims=True).astype(float)
    smooth = smoothed(merged, merged.sum(axis=(2, 3))[..., None], ndtri(0.975) ** 2)
    naive_draws(smooth, DRAWS, rng)  # of the spreads between clients
    apart = [*groupings, tally.cells.grouping(*(a.name for a in attributes))]
    for compared in [groupings, *([one] for one in apart if len(attributes) > 1)]:
        held = np.any([one.compared for one in compared], axis=0)[:, None, None] * tally.counts
        smooth = naive_smoothed(held, compared)
        drawn = naive_draws(smooth, DRAWS, rng).sum(axis=1)
        numbers = table.overall if compared is groupings else table.measures(compared[0].name)
        for item in decision_notions():
            naive = naive_violation(item, compared, held.sum(axis=0), smooth.sum(axis=0), drawn)
            assert_close(numbers[f"{item.name}_violation"].interval, naive)
    for client, counts in zip(table.clients, tally.counts, strict=True):
        held = np.any([one.compared for one in groupings], axis=0)[:, None, None] * counts
        smooth = naive_smoothed(held[None], groupings)
        drawn = naive_draws(smooth, DRAWS // 4, rng)[:, 0]
        for item in decision_notions():
            naive = naive_violation(item, groupings, held, smooth[0], drawn)
            assert_close(client[f"{item.name}_violation"].interval, naive)
        hits = counts[:, [0, 1], [0, 1]].sum()
        low, high = wilson(hits, counts.sum(), LEVEL)
        assert client["accuracy"].interval == (float(low), float(high))


def alone(tally, client):
    place = tally.clients.index(client)
    return Tally(tally.counts[place : place + 1], (client,), tally.attributes)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [6, 150])
@pytest.mark.parametrize("expected", [False, True])
def test_a_client_has_the_same_numbers_alone(clients, expected):
    tally = drawn_tally(clients, 7, (SEX, AGE), expected=expected)
    for client in quick_table(tally).clients:
        (own,) = quick_table(alone(tally, client.name)).clients
        for name, number in client.numbers.items():
            drawn = {"interval": None} if name.endswith("_violation") else {}
            assert number.model_copy(update=drawn) == own[name].model_copy(update=drawn)


def test_the_first_group_without_rows_is_named():
    tally = drawn_tally(40, 6, (SEX, AGE))
    groupings, item = tally.cells.groupings(), notion("eo")
    for counts, why in zip(
        tally.counts, why_each_undefined(item, tally.counts[:, None], groupings), strict=True
    ):
        naive = [
            f"group '{group}' of '{one.name}' has no rows with {event.name}"
            for one in groupings
            for event in item.events
            for group, members in zip(one.groups, one.membership, strict=True)
            if not counts[members][:, list(event.labels)].sum()
        ]
        assert why == (naive[0] if naive else "")


# ------------------------------------------------------------------ few at a time


def test_nothing_depends_on_how_many_are_drawn_at_a_time(monkeypatch):
    tallies = [drawn_tally(9, 30, (SEX, AGE)), drawn_tally(OWN_STRATA + 20, 30)]
    before = [MetricTable.from_tally(tally, draws=60) for tally in tallies]
    monkeypatch.setattr(resampling, "_AT_ONCE", 1)
    assert [MetricTable.from_tally(tally, draws=60) for tally in tallies] == before


@pytest.mark.parametrize("rows", [0, 1, 17, 128])
def test_each_row_of_a_small_client_is_where_its_number_falls(rows):
    tables = drawn_tally(30, rows, (SEX, AGE)).counts
    numbers = np.random.default_rng(0).random((rows, 40))
    for table, drawn in zip(tables, drawn_for(tables, 40, alike=True), strict=True):
        ends = np.cumsum(table) / max(1, rows)
        for draw in range(40):
            entry = np.searchsorted(ends[:-1], numbers[:, draw], side="right")
            expected = np.bincount(entry, minlength=table.size).reshape(table.shape)
            assert np.array_equal(drawn[..., draw], expected)


def test_sums_over_clients_are_those_of_the_clients_draws():
    smooth = drawn_tally(4, 50).counts + 0.5
    drawn = resampled(smooth, 30, np.random.default_rng(1)).sum(axis=1)
    together = resampled_together(smooth, 30, np.random.default_rng(1))
    assert np.array_equal(np.moveaxis(together, -1, 0), drawn)


# ------------------------------------------------------------------ many clients


def test_groups_of_many_clients_are_resampled_as_one_table():
    tally = drawn_tally(OWN_STRATA + 1, 12)
    groupings, notions = tally.cells.groupings(), decision_notions()
    pooled = tally.counts.sum(axis=0, keepdims=True)
    one, other = (Resampling(np.random.default_rng(5), LEVEL, 300) for _ in range(2))
    assert one.violations(notions, groupings, tally.counts) == other.violations(
        notions, groupings, pooled
    )


def drawn_for(counts, draws, seed=0, **options):
    found = {}
    rng = np.random.default_rng(seed)
    for some, tables in each_resampled(counts.astype(float), draws, rng, **options):
        found |= dict(zip(some.tolist(), tables, strict=True))
    return [found[k] for k in range(len(counts))]


def test_rows_drawn_by_shared_numbers_have_the_right_distribution():
    # Three entries with shares .5, .3 and .2 of four rows; the other five have none.
    counts = np.zeros((1, 2, 2, 2))
    counts.reshape(-1)[[0, 3, 6]] = 2.0, 1.2, 0.8
    (drawn,) = drawn_for(counts, 40_000, alike=True)
    flat = drawn.reshape(8, -1)
    assert (flat.sum(axis=0) == 4).all()
    assert not flat[[1, 2, 4, 5, 7]].any()
    for entry, share in ((0, 0.5), (3, 0.3), (6, 0.2)):
        seen = np.bincount(flat[entry], minlength=5)
        assert chisquare(seen, 40_000 * binom.pmf(range(5), 4, share)).pvalue > 1e-3
    # Cov = −n p q.
    assert np.cov(flat[0], flat[3])[0, 1] == pytest.approx(-4 * 0.5 * 0.3, abs=0.02)


def test_what_is_drawn_for_a_small_client_depends_on_its_own_table_only():
    tables = np.concatenate([drawn_tally(3, n, seed=n).counts for n in (3, 300, 0, 20, 128)])
    together = drawn_for(tables, 50, alike=True)
    for table, drawn in zip(tables, together, strict=True):
        assert (drawn.sum(axis=(0, 1, 2)) == table.sum()).all()
        if table.sum() <= 128:
            (own,) = drawn_for(table[None], 50, alike=True)
            assert np.array_equal(own, drawn)


def test_clients_with_the_same_counts_have_the_same_interval():
    tally = drawn_tally(80, 9)
    twice = Tally(np.concatenate([tally.counts] * 2), tuple(map(str, range(160))), (SEX,))
    found = MetricTable.from_tally(twice, draws=100).clients
    assert all(found[k].numbers == found[k + 80].numbers for k in range(80))


def test_shared_numbers_give_the_limits_of_own_numbers():
    tally = drawn_tally(6, 60)
    groupings, notions = tally.cells.groupings(), decision_notions()
    many = np.concatenate([tally.counts] * (OWN_STRATA // 6 + 1))
    own, shared = (
        Resampling(np.random.default_rng(1), LEVEL, 20_000).client_violations(
            notions, groupings, counts
        )
        for counts in (tally.counts, many)
    )
    for one, other in zip(own, shared[:6], strict=True):
        for name, interval in one.items():
            if interval is None or interval.upper == 1.0:
                assert other[name] == interval
            else:
                assert tuple(other[name]) == pytest.approx(tuple(interval), abs=0.015)


@pytest.mark.parametrize("rows", [2, 9, 400])
def test_spreads_of_many_accuracies_are_distributed_as_one_by_one(rows):
    rng = np.random.default_rng(0)
    sizes = rng.integers(max(1, rows - 2), rows + 2, 120)
    chances = np.round(rng.uniform(0.6, 0.9, 120), 1)
    found = accuracy_spreads(sizes, chances, 3000, np.random.default_rng(1))
    away = rng.binomial(sizes, chances, size=(3000, 120)) / sizes - chances
    naive = {"client_accuracy_std": away.std(axis=1), "client_accuracy_gap": np.ptp(away, axis=1)}
    for name, values in naive.items():
        assert ks_2samp(found[name].round(12), values.round(12), method="asymp").pvalue > 1e-3


def test_spread_of_certain_accuracies_is_none():
    found = accuracy_spreads(np.full(200, 3), np.ones(200), 10, np.random.default_rng(0))
    assert not any(values.any() for values in found.values())


@pytest.mark.slow
def test_many_clients_have_nearly_the_intervals_and_floors_of_few():
    """100 clients of 200 rows are drawn one by one, 101 are not: that changes little."""
    tally = drawn_tally(OWN_STRATA + 1, 200, (SEX, AGE), seed=4)
    fewer = Tally(tally.counts[:-1], tally.clients[:-1], tally.attributes)
    table, before = MetricTable.from_tally(tally), MetricTable.from_tally(fewer)
    for name, interval in limits(before).items():
        assert table[name].interval == pytest.approx(tuple(interval), abs=0.02)
    for name, floor in floors(before).items():
        assert table[name].noise_floor == pytest.approx(floor, rel=0.05)


def test_many_clients_of_which_one_has_no_rows():
    tally = drawn_tally(OWN_STRATA + 5, 20)
    counts = tally.counts.copy()
    counts[3] = 0
    holed = Tally(counts, tally.clients, tally.attributes)
    table = MetricTable.from_tally(holed, draws=50)
    assert table["client_accuracy_gap"].interval is None
    assert set(limits(table.by_client["c3"]).values()) == {None}
    assert table[DP].interval is not None
    assert table["client_accuracy_std"].noise_floor is None


def test_many_clients_of_one_row_do_not_narrow_the_interval():
    """Drawn from itself a client of one row is the same row again: no variation at all."""
    rng = np.random.default_rng(2)
    sex, decision = rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    rows = {"y_true": [0] * 400, "y_pred": decision}
    groups = np.array(SEX.groups)[sex]
    apart = Tally.from_predictions(**rows, sensitive_features=groups, clients=np.arange(400))
    pooled = Tally.from_predictions(**rows, sensitive_features=groups)
    found, whole = (
        MetricTable.from_tally(one, notions=[notion("dp")])[DP].interval for one in (apart, pooled)
    )
    assert found == pytest.approx(whole, abs=0.01)
