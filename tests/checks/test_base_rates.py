"""Base rates of groups and the price of parity, against a linear programme and by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from mfairfl.checks.base_rates import base_rate_lines, price_of_parity
from mfairfl.data import Bin, Sensitive, Task, table_from_frame
from mfairfl.fairness import Event, Notion
from mfairfl.fairness.notions import REGISTRY, register_notion

counted = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(groups=st.lists(counted, min_size=2, max_size=5))
def test_the_price_is_the_least_error_of_randomised_decisions_with_equal_shares(groups):
    # Variables: share of favourable decisions by group and label. Errors: those refused wrongly
    # and those favoured wrongly; the constant part is all rows with the favourable label.
    rows, favourable = np.array(groups).T
    by_label = np.stack([rows - favourable, favourable], axis=1)
    cost = (by_label * [1, -1]).ravel()
    equal = np.zeros((len(rows) - 1, cost.size))
    for g in range(1, len(rows)):
        equal[g - 1, :2] = by_label[0] / rows[0]
        equal[g - 1, 2 * g : 2 * g + 2] = -by_label[g] / rows[g]
    best = linprog(cost, A_eq=equal, b_eq=np.zeros(len(rows) - 1), bounds=(0, 1))
    least = (best.fun + favourable.sum()) / rows.sum()
    assert price_of_parity(rows, favourable) == pytest.approx(least, abs=1e-9)


def test_only_coin_tosses_meet_all_three_where_base_rates_differ():
    # Selection and accuracy of two groups are linear in P(ŷ=1 | y=1) and P(ŷ=1 | y=0).
    b, d = 0.74, 0.37
    selection = [b - d, (1 - b) - (1 - d)]
    accuracy = [b - d, (1 - d) - (1 - b)]  # of b a + (1 − b)(1 − c), and a constant
    constant = (1 - b) - (1 - d)
    assert np.linalg.solve([selection, accuracy], [0, -constant]) == pytest.approx([0.5, 0.5])


def people(counts, **task):
    """Rows by group: so many hired of so many."""
    frame = pd.DataFrame(
        [
            {"sex": sex, "hired": "yes" if i < hired else "no", "skill": i}
            for sex, (hired, rows) in counts.items()
            for i in range(rows)
        ]
    )
    fields = {"label": "hired", "favourable": "yes", "sensitive": ("sex",), "numeric": ("skill",)}
    return table_from_frame(frame, Task(**fields | task))


def lines(table, *notions):
    return [*base_rate_lines(table, notions)]


def test_what_unequal_base_rates_mean_for_demographic_parity():
    # As in the heart disease data of Cleveland: 72 of 97 women, 92 of 206 men.
    ((price, line),) = lines(people({"f": (72, 97), "m": (92, 206)}), "demographic_parity")
    assert price == pytest.approx(97 * (72 / 97 - 92 / 206) / 303)
    assert line == (
        "sex: hired = yes in 74.2 % of 97 rows (f), 44.7 % of 206 rows (m); exact demographic "
        "parity means that at least 9.5 % of them are decided wrongly. Equalized odds, equal "
        "opportunity and accuracy parity do not rule out perfect decisions; only coin tosses meet "
        "these and demographic parity at once"
    )


def test_for_other_goals_it_is_said_that_shares_will_differ():
    table = people({"f": (3, 10), "m": (5, 10)})
    for name in ("equalized_odds", "accuracy_parity"):
        ((price, line),) = lines(table, name)
        assert price == 0
        assert line.startswith(
            "sex: hired = yes in 30.0 % of 10 rows (f), 50.0 % of 10 rows (m). "
        )
        assert line.endswith("which this goal allows and demographic parity does not")
    both = lines(table, "equalized_odds", "demographic_parity")
    assert both == lines(table, "demographic_parity")


def test_a_notion_of_ones_own_is_judged_by_what_it_compares():
    register_notion(Notion("same_shares", (Event("everyone", (0, 1)),), "selection"))
    try:
        ((price, line),) = lines(people({"f": (3, 10), "m": (5, 10)}), "same_shares")
    finally:
        REGISTRY.remove("same_shares")
    assert price == pytest.approx(0.1)
    assert "; exact same shares means that at least 10.0 %" in line


def test_equal_rates_single_groups_and_unknown_groups():
    ((price, line),) = lines(people({"f": (2, 4), "m": (5, 10)}), "demographic_parity")
    assert (price, line) == (0, "sex: hired = yes in 50.0 % of 4 rows (f), 50.0 % of 10 rows (m)")
    assert lines(people({"f": (2, 4), None: (1, 9)}), "demographic_parity") == []


def test_the_meaning_is_said_once():
    table = people(
        {"f": (1, 4), "m": (5, 10)},
        sensitive=("sex", Sensitive(column="skill", bins=(Bin(name="low", max=3),), rest="high")),
    )
    first, second = (line for _, line in lines(table, "demographic_parity"))
    assert "coin tosses" in first
    assert "are decided wrongly" in second
    assert "coin tosses" not in second
