"""AuditCounts: they add up, keep what has no label, and hide what is small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.audit_counts import UNKNOWN, AuditCounts, ScoreGrid

SEX = (Attribute("sex", ("F", "M", "?")),)


def rows_of(rng, n=200):
    return {
        "y_true": np.where(rng.random(n) < 0.2, None, rng.integers(0, 2, n)),
        "y_pred": rng.integers(0, 2, n),
        "sensitive_features": {"sex": rng.choice(["F", "M", None], n)},
        "clients": rng.choice(["a", "b"], n),
        "scores": rng.random(n).round(2),
    }


def part(rows, keep):
    cut = {name: np.asarray(v)[keep] for name, v in rows.items() if name != "sensitive_features"}
    return cut | {"sensitive_features": {"sex": rows["sensitive_features"]["sex"][keep]}}


def count(rows):
    return AuditCounts.from_rows(**rows, attributes=SEX)


def test_counts_are_those_of_a_loop():
    rows = rows_of(np.random.default_rng(0))
    found = count(rows)
    expected = np.zeros(found.decided.shape, dtype=int)
    scored = np.zeros(found.scored.shape, dtype=int)
    place = {"F": 0, "M": 1, None: 2}
    edges = [step / 100 for step in range(101)]
    for y, d, sex, client, score in zip(
        rows["y_true"], rows["y_pred"], rows["sensitive_features"]["sex"], rows["clients"],
        rows["scores"], strict=True,
    ):  # fmt: skip
        at = "ab".index(client), place[sex], UNKNOWN if y is None else y
        expected[(*at, d)] += 1
        scored[(*at, sum(edge < score for edge in edges))] += 1
    np.testing.assert_array_equal(found.decided, expected)
    np.testing.assert_array_equal(found.scored, scored)


def test_silos_add_up_to_the_whole():
    rows = rows_of(np.random.default_rng(1))
    whole, a, b = (
        count(rows),
        count(part(rows, rows["clients"] == "a")),
        count(part(rows, rows["clients"] == "b")),
    )
    both = a + b
    assert both.clients == whole.clients
    np.testing.assert_array_equal(both.decided, whole.decided)
    np.testing.assert_array_equal(both.scored, whole.scored)
    for one, other in zip(both.sums, whole.sums, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-12)


def test_labelled_rows_are_a_tally():
    rows = rows_of(np.random.default_rng(2))
    known = rows["y_true"] != None  # noqa: E711 - elementwise
    cut = part(rows, known)
    del cut["scores"]
    assert count(rows).tally() == Tally.from_predictions(**cut, attributes=SEX)


def test_selections_hold_every_row():
    rows = rows_of(np.random.default_rng(3))
    found = count(rows).selections()
    assert found.n == 200
    assert found.counts[..., 1].sum() == rows["y_pred"].sum()


@given(st.integers(0, 100), st.integers(0, 2**31))
def test_decisions_at_an_edge_are_scores_above_it(edge, seed):
    rows = rows_of(np.random.default_rng(seed), n=40)
    above = (np.asarray(rows["scores"]) > edge / 100).astype(int)
    expected = count({**rows, "y_pred": above})
    np.testing.assert_array_equal(count(rows).at_edge(edge).decided, expected.decided)


def test_scores_on_other_ranges():
    grid = ScoreGrid(300, 850)
    assert grid.bins([300, 300.1, 850]).tolist() == [0, 1, 100]
    assert not grid.probabilities
    rows = AuditCounts.from_rows(None, [1], sensitive_features=["F"], scores=[700], grid=grid)
    assert rows.sums is None


@pytest.mark.parametrize("ends", [(1, 0), (0, 0), (0, float("inf")), (float("nan"), 1)])
def test_a_range_that_is_none_is_refused(ends):
    with pytest.raises(ConfigError, match="score range"):
        ScoreGrid(*ends)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_score_outside_the_range_is_named(score):
    with pytest.raises(DataError, match=r"row 1 holds .* outside 0 to 1.*--score-range"):
        AuditCounts.from_rows(None, [1, 0], sensitive_features=["F", "M"], scores=[0.5, score])


def test_hidden_entries_are_zero_and_counted():
    """F: 20 with y = 1, 4 with y = 0; M: 30. The four hide with the next smallest, the twenty."""
    sex = ["F"] * 24 + ["M"] * 30
    rows = AuditCounts.from_rows(
        [1] * 20 + [0] * 4 + [1] * 30,
        [1] * 54,
        sensitive_features={"sex": sex},
        scores=[0.7] * 54,
        attributes=SEX,
    )
    small = rows.suppress(10)
    assert small.hidden[0].tolist() == [[True, True, False], [False] * 3, [False] * 3]
    assert small.withheld.tolist() == [24]
    assert small.rows.sum() == 30
    assert small.scored.sum() == 30
    assert small.sums[0].rows.sum() == 30


def test_a_silo_below_the_floor_tells_not_even_how_many():
    rows = AuditCounts.from_rows([1] * 3, [1] * 3, sensitive_features={"sex": ["F"] * 3})
    small = rows.suppress(10)
    assert small.hidden.all()
    assert small.withheld.tolist() == [9]


def test_a_floor_of_one_hides_nothing():
    whole = count(rows_of(np.random.default_rng(4)))
    assert not whole.suppress(1).hidden.any()


def changed(**changes):
    rows = AuditCounts.from_rows([1], [1], sensitive_features={"sex": ["F"]}, scores=[0.5])
    given = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    return AuditCounts(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": None}, "belong together"),
        ({"decided": np.ones((1, 1, 3, 2), dtype=int)}, "scores are counted on other rows"),
        ({"hidden": np.ones((1, 1, 3), dtype=bool)}, "counted in entries that were withheld"),
    ],
)
def test_counts_that_contradict_themselves_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        changed(**changes)


def test_other_groups_cannot_be_added():
    one = AuditCounts.from_rows([1], [1], sensitive_features=["F"], clients=["a"])
    other = AuditCounts.from_rows([1], [1], sensitive_features=["M"], clients=["b"])
    with pytest.raises(DataError, match="cannot be added"):
        one + other
    with pytest.raises(DataError, match="name twice"):
        one + one
    with pytest.raises(ConfigError, match="needs scores"):
        one.at_edge(3)
