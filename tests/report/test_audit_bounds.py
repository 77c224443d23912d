"""Bounds contain the number under every possible truth: by brute force, and after suppression."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mfairfl.data import Attribute
from mfairfl.fairness import NOTIONS, notion
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.audit_numbers import (
    Outcomes,
    RateBounds,
    audit_table,
    bounds_by_place,
    measure_bound,
    needs_label,
)
from mfairfl.fairness.rates import (
    PROPORTIONS,
    TABLE_NUMBERS,
    client_violations,
    group_numbers,
    overall_numbers,
    reported_groupings,
    tables_by_place,
)

DECIDED = [notion(name) for name in NOTIONS if notion(name).statistic != "loss"]
FREE = {
    "selection_rate",
    *(f"demographic_parity_{k}" for k in ("violation", "difference", "ratio")),
}
SLACK = 1e-12
MOST = 81  # completions of one table


def numbers(counts):
    """Every number by its path: what needs no label from all rows, the rest from labelled ones."""
    found = {}
    for tally, wanted in ((counts.selections(), True), (counts.tally(), False)):
        groupings = reported_groupings(tally.cells)
        parts = {("overall",): overall_numbers(tally)}
        parts |= {
            ("attribute", grouping.name): group_numbers(tally, None, grouping)
            for grouping in groupings
            if len(groupings) > 1
        }
        parts |= {place: rates(table) for place, table in tables_by_place(tally).items()}
        violations = client_violations(tally, DECIDED)
        for name, of_client in zip(tally.clients, violations, strict=True):
            parts["client", name] |= of_client
        found |= {
            (*path, name): None if math.isnan(value) else value
            for path, part in parts.items()
            for name, (value, _) in part.items()
            if (name in FREE) == wanted
        }
    return found


def rates(table):
    return {name: (float(PROPORTIONS[name].value(table)), "") for name in TABLE_NUMBERS}


def bounds(counts):
    several = len(reported_groupings(counts.cells)) > 1
    return {
        (*place, name): limits
        for place, part in bounds_by_place(counts, DECIDED).items()
        for name, limits in part.items()
        if place[0] != "attribute" or several  # else they are those of all rows
    }


def check(counts, *truths):
    """Each number of a truth is within its bounds; where there are none, it is the number."""
    known, limits = numbers(counts), bounds(counts)
    for truth in truths:
        for path, value in numbers(truth).items():
            if value is None:
                continue
            interval = limits.get(path)
            if interval is None:
                assert known[path] == pytest.approx(value, abs=SLACK), path
            else:
                assert interval.lower - SLACK <= value <= interval.upper + SLACK, (path, interval)


SEX = Attribute("sex", ("F", "M", "?"))
RACE = Attribute("race", ("B", "W", "?"))


def counted(rows, attributes, clients=None):
    columns = {a.name: [row[0][i] for row in rows] for i, a in enumerate(attributes)}
    return AuditCounts.from_rows(
        [row[1] for row in rows],
        [row[2] for row in rows],
        sensitive_features=columns,
        attributes=attributes,
        clients=clients,
    )


def truths(rows, attributes):
    """Completions: unknown groups and labels become known, or stay unknown; some of many."""
    options = []
    for groups, label, decision in rows:
        places = [[g] if g != "?" else a.groups for g, a in zip(groups, attributes, strict=True)]
        labels = (0, 1, None) if label is None else (label,)
        options.append([(g, y, decision) for g in product(*places) for y in labels])
    every = list(product(*options))
    return every if len(every) <= MOST else random.Random(0).sample(every, MOST)


def row(attributes):
    return st.tuples(
        st.tuples(*(st.sampled_from(a.groups) for a in attributes)),
        st.sampled_from((0, 1, None)),
        st.integers(0, 1),
    )


@pytest.mark.slow
@given(st.lists(row((SEX,)), min_size=1, max_size=3), st.data())
@settings(max_examples=40)
def test_every_completion_of_one_attribute(known, data):
    full = st.tuples(st.tuples(st.sampled_from("FM")), st.integers(0, 1), st.integers(0, 1))
    rows = known + data.draw(st.lists(full, max_size=6))
    check(counted(rows, (SEX,)), *(counted(truth, (SEX,)) for truth in truths(rows, (SEX,))))


@pytest.mark.slow
@given(st.lists(row((SEX, RACE)), min_size=1, max_size=2), st.data())
@settings(max_examples=20)
def test_every_completion_of_two_attributes(known, data):
    groups = st.tuples(st.sampled_from("FM"), st.sampled_from("BW"))
    full = st.tuples(groups, st.integers(0, 1), st.integers(0, 1))
    rows = known + data.draw(st.lists(full, max_size=7))
    check(
        counted(rows, (SEX, RACE)),
        *(counted(truth, (SEX, RACE)) for truth in truths(rows, (SEX, RACE))),
    )


@given(st.lists(st.tuples(st.sampled_from("FM?"), st.integers(0, 1)), min_size=2, max_size=9))
@example([("F", 1), ("M", 0), ("?", 1), ("?", 0)])
@example([("F", 1), ("M", 1), ("?", 1)])
def test_the_largest_difference_of_two_groups_is_attained(people):
    """Nothing but the group is unknown: some completion has the upper bound as its difference."""
    rows = [((group,), None, decision) for group, decision in people]
    groups = {g for (g,), _, _ in rows} - {"?"}
    counts = counted(rows, (SEX,))
    found = measure_bound("difference", notion("dp"), counts, counts.cells.groupings())
    if len(groups) < 2 or len(groups) == len({g for (g,), _, _ in rows}):
        return
    reached = []
    for truth in product(*(["F", "M"] if group == "?" else [group] for group, _ in people)):
        rates = [
            np.mean([d for g, (_, d) in zip(truth, people, strict=True) if g == group])
            for group in "FM"
        ]
        reached.append(abs(rates[0] - rates[1]))
    assert max(reached) == pytest.approx(found.upper, abs=SLACK)


def silos(rng, *, rows, clients, unknown):
    sex = rng.choice(["F", "M", "?"], rows, p=[0.4, 0.6 - unknown, unknown])
    race = rng.choice(["B", "W", "?"], rows, p=[0.2, 0.8 - unknown, unknown])
    label = np.where(rng.random(rows) < unknown, None, rng.integers(0, 2, rows))
    decision = (rng.random(rows) < 0.4 + 0.3 * (sex == "M")).astype(int)
    client = rng.choice([f"silo {k}" for k in range(clients)], rows)
    rows = [((s, r), y, d) for s, r, y, d in zip(sex, race, label, decision, strict=True)]
    return counted(rows, (SEX, RACE), client.tolist())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("unknown", [0.0, 0.08])
def test_what_silos_withhold_is_within_the_bounds(seed, unknown):
    rng = np.random.default_rng(seed)
    whole = silos(rng, rows=int(rng.integers(20, 400)), clients=3, unknown=unknown)
    told = whole.suppress(10)
    assert told.hidden.any()
    check(told, whole)


def test_nothing_unknown_needs_no_bounds():
    whole = silos(np.random.default_rng(1), rows=300, clients=2, unknown=0.0)
    assert set(bounds(whole).values()) == {None}


def test_rates_by_hand():
    """Three women, two selected; a selected and a refused person of unknown sex.

    At most (2 + 1) of (3 + 1) women are selected, at least 2 of (3 + 1).
    """
    people = [("F", 1), ("F", 1), ("F", 0), ("M", 1), ("?", 1), ("?", 0)]
    counts = counted([((group,), None, decision) for group, decision in people], (SEX,))
    limits = bounds_by_place(counts, [])
    assert limits["group", "sex", "F"]["selection_rate"] == (2 / 4, 3 / 4)
    assert limits["group", "sex", "M"]["selection_rate"] == (1 / 2, 1.0)
    # 4 of 6 are selected, whatever their sex.
    assert limits["overall",]["selection_rate"] is None


def test_unknown_labels_by_hand():
    """Of 4 labelled rows 3 are right; 2 rows have no label: 3/6 to 5/6.

    One of these is selected: true positives are 1 of 2, at most 2 of 3; the other may only be
    missed: at least 1 of 3.
    """
    rows = [(1, 1), (1, 0), (0, 0), (0, 0), (None, 1), (None, 0)]
    counts = counted([(("F",), y, d) for y, d in rows], (SEX,))
    found = bounds_by_place(counts, [])["overall",]
    assert found["accuracy"] == (3 / 6, 5 / 6)
    assert found["true_positive_rate"] == (1 / 3, 2 / 3)
    assert found["false_positive_rate"] == (0 / 3, 1 / 3)
    assert found["base_rate"] == (2 / 6, 4 / 6)


def test_a_group_that_only_unknown_rows_can_be_in():
    """No man is known; two selected people may be men: a rate of men would be 1."""
    counts = counted([(("F",), None, 1), (("?",), None, 1), (("?",), None, 1)], (SEX,))
    men = "group", "sex", "M"
    assert bounds_by_place(counts, [])[men]["selection_rate"] == (1.0, 1.0)
    refused = counted([(("F",), None, 1), (("?",), None, 0)], (SEX,))
    assert bounds_by_place(refused, [])[men]["selection_rate"] == (0.0, 0.0)


def test_the_table_of_an_audit_has_numbers_and_bounds():
    counts = silos(np.random.default_rng(2), rows=300, clients=2, unknown=0.1)
    table, expected, limits = audit_table(counts), numbers(counts), bounds(counts)
    assert all("labelled_rows" in client.numbers for client in table.clients)
    found = {(*place, name): m for place, _, part in table.places() for name, m in part.items()}
    assert {path for path in found if path[-1] != "labelled_rows"} == set(expected)
    for path, value in expected.items():
        assert found[path].value == value
        assert found[path].bounds == limits.get(path)
    assert sum(one.bounds is not None for one in found.values()) > 50


def test_label_free_notions_are_told_apart():
    assert [needs_label(one) for one in DECIDED] == [False, True, True, True]


def test_bounds_of_no_rows_are_undefined():
    nothing = np.zeros((1, 3), dtype=bool)
    counts = counted([(("F",), 1, 1)], (SEX,))
    found = RateBounds.of(counts, Outcomes.of(PROPORTIONS["accuracy"]), nothing, nothing)
    assert np.isnan(found.lower[0])
    assert found.interval() is None
