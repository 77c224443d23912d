"""Violations between any groups, against the naive definition and the usual functions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mfairfl.data import Attribute
from mfairfl.fairness import MetricTable, Tally, notion
from mfairfl.fairness.measuring import measured_violation

SEX, AGE = Attribute("sex", ("F", "M")), Attribute("age", ("old", "young", "?"))


@pytest.fixture
def tally():
    rng = np.random.default_rng(7)
    return Tally(rng.integers(5, 60, size=(3, 6, 2, 2)), ("a", "b", "c"), (SEX, AGE))


def naive(tally, name, crossed):
    """Compare each group with everyone of whom the attributes are recorded, by loops."""
    cells = tally.counts.sum(axis=0).reshape(2, 3, 2, 2)
    sets = {"sex": [[(s, a) for a in range(3)] for s in range(2)]}
    sets["age"] = [[(s, a) for s in range(2)] for a in range(2)]  # "?" is compared with nobody
    if crossed:
        sets["both"] = [[(s, a)] for s, a in product(range(2), range(2))]
    gaps = []
    for groups in sets.values():
        everyone = [cell for group in groups for cell in group]
        for event in notion(name).events:
            rates = []
            for members in (everyone, *groups):
                tables = [cells[cell][list(event.labels)] for cell in members]
                rows = sum(table.sum() for table in tables)
                rates.append(sum(table[:, 1].sum() for table in tables) / rows)
            gaps += [abs(rate - rates[0]) for rate in rates[1:]]
    return max(gaps)


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("crossed", [False, True])
def test_the_value_is_the_largest_gap(tally, name, crossed):
    groupings = tally.cells.groupings(intersections=crossed)
    found = measured_violation(tally, notion(name), groupings)
    assert found.value == pytest.approx(naive(tally, name, crossed), abs=1e-12)
    assert found.interval[0] <= found.value <= found.interval[1]


def test_between_the_usual_groups_it_is_what_a_run_records(tally):
    found = measured_violation(tally, notion("dp"), tally.cells.groupings(), draws=4000)
    name = "demographic_parity_violation"
    recorded = MetricTable.from_tally(tally)[name]
    assert found.value == recorded.value
    assert found.interval == pytest.approx(recorded.interval, abs=0.005)
    assert found.noise_floor == pytest.approx(recorded.noise_floor, abs=0.002)


def test_the_same_seed_gives_the_same_numbers_and_an_empty_group_the_reason(tally):
    groupings = tally.cells.groupings(["sex"])
    assert measured_violation(tally, notion("dp"), groupings, draws=50) == measured_violation(
        tally, notion("dp"), groupings, draws=50
    )
    counts = tally.counts.copy()
    counts[:, :3] = 0
    lacking = Tally(counts, tally.clients, tally.attributes)
    found = measured_violation(lacking, notion("dp"), groupings)
    assert (found.value, found.interval, found.noise_floor) == (None, None, None)
    assert found.undefined == "group 'F' of 'sex' has no rows"
