from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mfairfl.data.sums import (
    MOST_CUTS,
    Bins,
    Histogram,
    NumericStatistics,
    agree_bins,
    bins_of,
    finer_cuts,
    first_cuts,
)

VALUES = st.one_of(
    st.integers(0, 20).map(float),
    st.floats(-1e99, 1e99),
    st.sampled_from([0.0, -0.0, 1e16, 0.1, 1e-300, float("nan")]),
)
SHARDS = st.lists(st.lists(VALUES, max_size=60), min_size=1, max_size=5)


def agreed(*shards, bins=4, min_rows=3):
    """Agree on the bins of one column, and return them with what was asked and answered."""
    said = []
    sums = functools.reduce(operator.add, [NumericStatistics.of(shard) for shard in shards])

    def count(cuts):
        parts = [Histogram.of(shard, cuts["x"]) for shard in shards]
        said.append(functools.reduce(operator.add, parts))
        return {"x": said[-1]}

    found = agree_bins({"x": sums}, count, bins=bins, min_rows=min_rows)
    return found.get("x", Bins()), said


def naive(rows, bins, min_rows):
    """Do with sorted rows what the module does with counts."""
    rows, counts = sorted(rows), Counter(rows)
    if len(counts) < 3:
        return Bins()
    atoms, rest = [], len(rows)
    for value, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if n < min_rows or n <= rest / bins or len(atoms) == bins:
            break
        atoms.append(value)
        rest -= n
    others = [x for x in rows if x not in atoms]
    distinct = sorted(set(others))
    if len(distinct) > bins:
        distinct = [others[k * len(others) // bins] for k in range(1, bins)]
    low, high = rows[min_rows - 1 :][:1], rows[: len(rows) - min_rows + 1][-1:]
    if not low or not high or sum(low[0] <= x < high[0] for x in rows) < min_rows:
        return Bins()
    edges = [low[0], high[0]]
    for value in [*atoms, *distinct]:
        tried = sorted({*edges, value})
        if tried[0] == edges[0] and tried[-1] == edges[-1]:
            sizes = [sum(a <= x < b for x in rows) for a, b in itertools.pairwise(tried)]
            edges = tried if min(sizes) >= min_rows else edges
    return Bins(tuple(edges), tuple(dominant(counts, min_rows)))


def dominant(counts, min_rows):
    """Yield the values that hold 35 % of the rows of themselves and two on either side."""
    values = sorted(counts)
    for i, value in enumerate(values):
        around = sum(counts[other] for other in values[max(i - 2, 0) : i + 3])
        if counts[value] >= max(min_rows, 0.35 * around):
            yield value


# ------------------------------------------------------------------ histograms


@given(SHARDS, st.lists(st.floats(-50, 50), unique=True, max_size=9))
def test_a_histogram_is_that_of_a_loop_over_the_rows(shards, cuts):
    rows = [x for shard in shards for x in shard]
    cuts = sorted(cuts)
    found = Histogram.of(np.array(rows, dtype=float), np.array(cuts, dtype=float))
    for i, (low, high) in enumerate(itertools.pairwise([-np.inf, *cuts, np.inf])):
        held = [x for x in rows if low <= x < high]
        assert found.counts[i] == len(held)
        only = held[0] if len(set(held)) == 1 else None
        assert found.values[i] == only or (only is None and np.isnan(found.values[i]))


@given(SHARDS, st.randoms())
def test_histograms_add_up_in_any_order(shards, random):
    cuts = np.array([-3.0, 0.0, 1.0, 5.5, 1e16])
    pooled = Histogram.of(np.array([x for shard in shards for x in shard], dtype=float), cuts)
    parts = [Histogram.of(np.array(shard, dtype=float), cuts) for shard in shards]
    random.shuffle(parts)
    while len(parts) > 1:  # in any grouping
        at = random.randrange(len(parts) - 1)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    assert parts[0].counts.tobytes() == pooled.counts.tobytes()
    assert parts[0].values.tobytes() == pooled.values.tobytes()


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 6))
def test_with_a_floor_no_interval_and_no_value_is_below_it(rows, least):
    whole = Histogram.of(np.array(rows, dtype=float), np.arange(1.0, 8.0))
    found = whole.with_floor(least)
    assert found.total == len(rows)
    if len(rows) >= least:
        assert all(n == 0 or n >= least for n in found.counts)
    told = found.values[~np.isnan(found.values)]
    assert all(rows.count(int(value)) >= least for value in told)
    # Rows move upwards only, except the last few: never more than a floor's worth is missing.
    assert (np.cumsum(whole.counts) - np.cumsum(found.counts) < least).all()


def test_a_floor_by_hand():
    whole = Histogram(np.arange(5.0), np.array([1, 2, 9, 0, 4, 1]), np.arange(6.0))
    found = whole.with_floor(3)
    assert found.counts.tolist() == [0, 3, 9, 0, 5, 0]
    np.testing.assert_array_equal(found.values, [np.nan, np.nan, 2, np.nan, 4, np.nan])
    assert whole.with_floor(100).counts.tolist() == [0, 0, 0, 17, 0, 0]
    assert whole.with_floor(1).counts.tolist() == whole.counts.tolist()


# ------------------------------------------------------------------ cuts


@given(st.lists(st.floats(-1e99, 1e99), min_size=2))
@example([1e15, 1e15 + 2])
@example([0.0] * 999 + [1e99])
def test_the_first_cuts_surround_every_row(rows):
    sums = NumericStatistics.of(np.array(rows))
    if sums.deviation == 0:
        return
    cuts = first_cuts(sums)
    assert np.isfinite(cuts).all()
    assert (np.diff(cuts) > 0).all()
    assert cuts[0] <= min(rows)
    assert max(rows) <= cuts[-1]
    assert len(cuts) < 160


def test_crowded_intervals_alone_are_cut():
    rows = np.array([0.5] * 50 + [2.25, 2.5] * 20 + [4.25, 4.5] * 2)
    found = Histogram.of(rows, np.array([0.0, 2.0, 4.0, 8.0]))
    finer = finer_cuts(found, bins=4, min_rows=10)
    assert set(finer) - set(found.cuts) == set(2 + np.arange(1, 64) / 32)
    # Now 2.25 and 2.5 are apart, and the last four rows are too few.
    assert finer_cuts(Histogram.of(rows, finer), bins=4, min_rows=10) is None


def test_what_cannot_be_cut_ends_the_search():
    low = 1.0
    high = np.nextafter(low, 2)
    rows = np.array([low, high] * 500)
    cuts = np.array([0.5, low, np.nextafter(high, 2)])
    finer = finer_cuts(Histogram.of(rows, cuts), bins=4, min_rows=10)
    assert finer.tolist() == [0.5, low, high, np.nextafter(high, 2)]
    assert finer_cuts(Histogram.of(rows, finer), bins=4, min_rows=10) is None


def test_a_few_exchanges_and_a_bounded_grid_always_suffice():
    rng = np.random.default_rng(0)
    heavy = np.concatenate([rng.normal(0, 1, 5000), rng.normal(1e6, 1e-3, 5000), [1e12]])
    for rows in (heavy, rng.lognormal(0, 4, 10_000), rng.normal(1e9, 1, 10_000)):
        _, said = agreed(rows, bins=64, min_rows=1)
        assert len(said) <= 4
        assert max(len(one.cuts) for one in said) <= MOST_CUTS


# ------------------------------------------------------------------ edges


@given(SHARDS, st.randoms(), st.integers(2, 8), st.integers(1, 9))
def test_edges_do_not_depend_on_who_holds_which_rows(shards, random, bins, min_rows):
    rows = [x for shard in shards for x in shard]
    pooled, _ = agreed(np.array(rows, dtype=float), bins=bins, min_rows=min_rows)
    random.shuffle(rows)
    count = random.randrange(1, 7)
    parts = [np.array(rows[i::count], dtype=float) for i in range(count)]
    sharded, _ = agreed(*parts, bins=bins, min_rows=min_rows)
    assert repr(sharded) == repr(pooled)  # to the last bit, and the sign of zero


@given(
    st.lists(st.one_of(st.integers(0, 30), st.sampled_from([3, 4])), max_size=200),
    st.integers(2, 8),
    st.integers(1, 12),
)
def test_edges_are_those_of_a_naive_method_on_sorted_rows(rows, bins, min_rows):
    found = Histogram.of(np.array(rows, dtype=float), np.arange(0.0, 31.0))
    assert bins_of(found, bins=bins, min_rows=min_rows) == naive(rows, bins, min_rows)


@given(
    st.lists(st.one_of(st.integers(0, 30), st.floats(0, 30)), max_size=150),
    st.integers(2, 8),
    st.integers(1, 12),
)
def test_every_bin_and_both_ends_hold_the_minimum(rows, bins, min_rows):
    found, _ = agreed(np.array(rows, dtype=float), bins=bins, min_rows=min_rows)
    edges = found.edges
    assert len(edges) != 1
    assert len(edges) <= 2 * bins + 2
    for low, high in itertools.pairwise(edges):
        assert sum(low <= x < high for x in rows) >= min_rows
    if edges:
        assert sum(x <= edges[0] for x in rows) >= min_rows
        assert sum(x >= edges[-1] for x in rows) >= min_rows
    assert all(rows.count(atom) >= min_rows for atom in found.atoms)


@pytest.mark.parametrize("shape", ["normal", "lognormal", "uniform", "outlier"])
def test_bins_of_a_continuous_column_are_nearly_equal(shape):
    rng = np.random.default_rng(5)
    rows = {
        "normal": rng.normal(1000, 3, 20_000),
        "lognormal": rng.lognormal(0, 2, 20_000),
        "uniform": rng.uniform(-1, 1, 20_000),
        "outlier": np.array([*rng.normal(5e4, 2e4, 20_000), 1e9]),
    }[shape]
    found, _ = agreed(rows, bins=16, min_rows=50)
    assert found.atoms == ()
    assert len(found.edges) == 17
    inner = np.quantile(rows, np.arange(1, 16) / 16)
    ranks = np.searchsorted(np.sort(rows), found.edges[1:-1]) / len(rows)
    # An interval holds at most a quarter of a bin: no edge is further from its quantile.
    np.testing.assert_allclose(ranks, np.arange(1, 16) / 16, rtol=0, atol=1 / 64)
    assert np.abs(np.searchsorted(inner, found.edges[1:-1]) - np.arange(15)).max() <= 1


def test_each_of_a_few_values_has_an_edge():
    rng = np.random.default_rng(1)
    rows = rng.choice(np.arange(1.0, 17.0), 5000, p=np.arange(1, 17) / 136)
    found, said = agreed(rows, bins=16, min_rows=20)
    assert found.edges == tuple(np.arange(1.0, 17.0))
    assert len(said) == 1
    hours = np.arange(12.0).repeat(100)
    assert agreed(hours, bins=16, min_rows=20)[0].edges == tuple(np.arange(12.0))


def test_frequent_values_of_the_rest_are_found_beside_a_dominant_one():
    # 9,000 zeros; of the other 1,000 rows 200 hold 7,298 and 200 hold 15,024
    rng = np.random.default_rng(2)
    rows = [np.zeros(9000), np.full(200, 7298.0), np.full(200, 15024.0)]
    rows.append(rng.integers(100, 50_000, 600).astype(float))
    found, _ = agreed(np.concatenate(rows), bins=16, min_rows=50)
    assert found.atoms == (0.0, 7298.0, 15024.0)
    assert set(found.atoms) < set(found.edges)
    assert sum(edge > 15024 for edge in found.edges) > 3  # and what is left has bins, too


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [3.0] * 100,
        [0.0, 1.0] * 100,
        [1.0, 2.0, 3.0],
        [float("nan")] * 10,
        [*range(100), 1e90],  # nothing can be told apart beside such a number
    ],
)
def test_columns_without_bins(rows):
    assert agreed(np.array(rows, dtype=float), min_rows=5)[0] == Bins()


def test_edges_are_values_or_short_fractions():
    """An edge between values is a multiple of a power of two, not a long number."""
    rng = np.random.default_rng(3)
    found, _ = agreed(rng.normal(0, 1, 5000), bins=8, min_rows=50)
    assert all((edge * 2**20).is_integer() for edge in found.edges)
    ages = rng.integers(17, 90, 5000).astype(float)
    assert all(edge in ages for edge in agreed(ages, bins=8, min_rows=50)[0].edges)
