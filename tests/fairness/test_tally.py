"""Tallies: counting by hand, the addition law, input errors, small cells, JSON."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.tally import hidden_cells
from rounds import statistics

SEX = Attribute("sex", ("F", "M"))
AGE = Attribute("age", ("old", "young"))
ROW = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(SEX.groups),
    st.sampled_from(AGE.groups),
    st.integers(0, 1),
    st.integers(0, 1),
)


def tally_of(rows):
    client, sex, age, y, decision = zip(*rows, strict=True) if rows else ((),) * 5
    return Tally.from_predictions(
        y,
        decision,
        sensitive_features={"sex": sex, "age": age},
        clients=client,
        attributes=(SEX, AGE),
    )


def as_dict(tally):
    """Non-zero counts by name, whatever the order of clients."""
    return {
        (tally.clients[k], *tally.cells.names[c], int(y), int(p)): tally.counts[k, c, y, p]
        for k, c, y, p in zip(*np.nonzero(tally.counts), strict=True)
    }


@given(st.lists(ROW))
def test_counts_equal_a_counter(rows):
    assert as_dict(tally_of(rows)) == Counter(rows)


@given(st.lists(ROW), st.lists(ROW))
def test_addition_is_concatenation(first, second):
    total = tally_of(first) + tally_of(second)
    assert as_dict(total) == Counter(first + second)
    assert set(total.clients) == {row[0] for row in first + second}


@given(st.lists(ROW))
def test_pooled(rows):
    tally = tally_of(rows)
    assert as_dict(tally.pooled()) == Counter(("all", *row[1:]) for row in rows)
    assert tally.n == len(rows)


def test_addition_keeps_order_and_expected_counts():
    ones = np.ones((1, 2, 2, 2))
    a = Tally(ones.astype(int), ("a",), (SEX,))
    b = Tally(ones / 2, ("b",), (SEX,))
    total = b + a + b
    assert total.clients == ("b", "a")
    assert total.counts.dtype == np.float64
    assert total.counts[:, 0, 0, 0].tolist() == [1.0, 1.0]
    assert (a + a).counts.dtype == np.int64


def test_addition_needs_the_same_groups():
    one = Tally.from_predictions([1], [1], sensitive_features=["F"])
    other = Tally.from_predictions([1], [1], sensitive_features=["M"])
    with pytest.raises(DataError, match="state the same attributes"):
        one + other


Y, P, S = [1, 0, 1, 0], [1, 1, 0, 0], ["F", "M", "M", "F"]


@pytest.mark.parametrize(
    "features",
    [
        S,
        tuple(S),
        np.array(S),
        pd.Series(S, index=[9, 8, 7, 6]),
        pd.Series(S, dtype="category"),
        pl.Series(S),
        np.array(S)[:, None],
    ],
)
@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series])
def test_every_kind_of_column(features, kind):
    tally = Tally.from_predictions(kind(Y), kind(P), sensitive_features=features)
    # F: (y, ŷ) = (1, 1), (0, 0); M: (0, 1), (1, 0)
    assert tally.counts.tolist() == [[[[1, 0], [0, 1]], [[0, 1], [1, 0]]]]
    assert tally.clients == ("all",)
    assert tally.attributes[0].groups == ("F", "M")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_frames_and_dicts(frame):
    columns = frame({"sex": S, "age": [30, 30, 9, 9]})
    tally = Tally.from_predictions(Y, P, sensitive_features=columns, clients=[2, 10, 2, 10])
    assert tally.attributes == (Attribute("sex", ("F", "M")), Attribute("age", ("9", "30")))
    assert tally.clients == ("2", "10")
    assert as_dict(tally) == {
        ("2", "F", "30", 1, 1): 1,
        ("10", "M", "30", 0, 1): 1,
        ("2", "M", "9", 1, 0): 1,
        ("10", "F", "9", 0, 0): 1,
    }


def test_names_of_attributes():
    def names(features, **more):
        tally = Tally.from_predictions(Y, P, sensitive_features=features, **more)
        return [attribute.name for attribute in tally.attributes]

    assert names(S) == ["sensitive_feature"]
    assert names(pd.Series(S, name="sex")) == ["sex"]
    assert names(S, attributes=(SEX,)) == ["sex"]
    table = np.column_stack([S, ["old"] * 4])
    assert names(table) == ["sensitive_feature_0", "sensitive_feature_1"]
    assert names(table, attributes=(SEX, AGE)) == ["sex", "age"]


def test_booleans_floats_and_nullable_integers_are_labels():
    expected = Tally.from_predictions(Y, P, sensitive_features=S)
    for labels in (np.array(Y, bool), np.array(Y, float), pd.Series(Y, dtype="Int64")):
        assert Tally.from_predictions(labels, P, sensitive_features=S) == expected


def test_a_silo_without_rows_or_without_a_group():
    empty = Tally.from_predictions([], [], sensitive_features=[], attributes=(SEX,))
    assert empty.counts.shape == (1, 2, 2, 2)
    assert empty.n == 0
    one = Tally.from_predictions([1], [1], sensitive_features=["M"], attributes=(SEX,))
    assert as_dict(empty + one) == {("all", "M", 1, 1): 1}


@pytest.mark.parametrize(
    ("y", "p", "s", "more", "message"),
    [
        ([1, 2], [1, 0], ["F", "M"], {}, "y_true: row 1 holds 2; use 0 and 1"),
        ([1, 0], [1, 0.5], ["F", "M"], {}, "y_pred: row 1 holds 0.5"),
        (["1", "0"], [1, 0], ["F", "M"], {}, "y_true: row 0 holds '1'"),
        ([1, None], [1, 0], ["F", "M"], {}, r"y_true: row 1 is missing \(1 in all\)"),
        ([1, 0], [1, np.nan], ["F", "M"], {}, "y_pred: row 1 is missing"),
        ([1, 0], [1, 0], ["F", None], {"attributes": (SEX,)}, "sex: row 1 is missing"),
        ([1, 0], [1, 0], [None, np.nan], {}, "'sensitive_feature' has no groups"),
        ([1, 0], [1, 0], ["F", "M"], {"clients": ["a", None]}, "clients: row 1 is missing"),
        ([1, 0], [1], ["F", "M"], {}, "differ in length: y_true 2, y_pred 1"),
        ([1, 0], [1, 0], {"sex": ["F"]}, {}, "differ in length: .* sex 1"),
        ([1, 0], [1, 0], ["F", "M"], {"clients": ["a"]}, "differ in length: .* clients 1"),
        ([[1], [0]], [1, 0], ["F", "M"], {}, r"y_true: has shape \(2, 1\)"),
        ([1, 0], [1, 0], pd.Series([1, "1"]), {}, "'1' occurs as text and as a number"),
        ([1], [1], ["X"], {"attributes": (SEX,)}, "sex: unknown group 'X'"),
        ([1], [1], {"age": ["old"]}, {"attributes": (SEX,)}, "expected \\['sex'\\]"),
        ([], [], [], {}, "'sensitive_feature' has no groups"),
    ],
)
def test_input_errors_are_one_line(y, p, s, more, message):
    with pytest.raises(DataError, match=message) as caught:
        Tally.from_predictions(y, p, sensitive_features=s, **more)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "clients", "message"),
    [
        (np.ones((1, 3, 2, 2)), ("a",), r"expected \(1, 2, 2, 2\)"),
        (-np.ones((1, 2, 2, 2)), ("a",), "negative or missing"),
        (np.full((1, 2, 2, 2), np.nan), ("a",), "negative or missing"),
        (np.full((1, 2, 2, 2), "x"), ("a",), "dtype kind 'U'"),
        (np.ones((2, 2, 2, 2)), ("a", "a"), "a name twice"),
    ],
)
def test_bad_counts(counts, clients, message):
    with pytest.raises(DataError, match=message):
        Tally(counts, clients, (SEX,))


def test_a_tally_is_not_changed_through_its_source():
    source = np.ones((1, 2, 2, 2))
    tally = Tally(source, ("a",), (SEX,))
    source[:] = 7
    assert tally.counts.max() == 1
    with pytest.raises(ValueError, match="read-only"):
        tally.counts[:] = 7


@given(st.lists(ROW))
def test_json_round_trip(rows):
    tally = tally_of(rows)
    again = Tally.from_json(json.loads(json.dumps(tally.to_json())))
    assert again == tally
    assert again.counts.dtype == np.int64 or tally.counts.size == 0


def test_json_keeps_expected_counts_and_says_what_is_missing():
    tally = Tally(np.full((1, 2, 2, 2), 0.5), ("a",), (SEX,))
    document = tally.to_json()
    assert Tally.from_json(document).counts.tolist() == tally.counts.tolist()
    del document["clients"]
    with pytest.raises(DataError, match="key 'clients' is missing"):
        Tally.from_json(document)


def test_equality():
    tally = Tally.from_predictions(Y, P, sensitive_features=S)
    assert tally != Tally.from_predictions(Y, Y, sensitive_features=S)
    assert tally != Tally.from_predictions(Y, P, sensitive_features=S, clients=["b"] * 4)


# Small cells: at least 10 rows, with complementary suppression


def hidden_of(sizes, minimum=10):
    """What is hidden of these rows per (cell, label); groups named so that order ≠ name."""
    table = np.array(sizes).reshape(-1, 2)
    groups = [(f"g{len(table) - index}",) for index in range(len(table))]
    return hidden_cells(table, groups, minimum).ravel().astype(int).tolist()


@pytest.mark.parametrize(
    ("sizes", "hidden"),
    [
        ([40, 10, 12, 30], [0, 0, 0, 0]),  # nothing is small
        ([40, 3, 12, 30], [0, 1, 1, 0]),  # one small: the next smallest joins it
        ([40, 3, 4, 30], [0, 1, 1, 1]),  # two small make 7 < 10: a third joins
        ([40, 6, 5, 30], [0, 1, 1, 0]),  # two small make 11: enough
        ([40, 3, 0, 30], [0, 1, 0, 1]),  # an empty cell is not hidden
        ([20, 9, 0, 0], [1, 1, 0, 0]),  # two groups, one small: neither is sent
        ([3, 4, 1, 1], [1, 1, 1, 1]),  # total 9 < 10: nothing is sent
        ([50, 5, 20, 20], [0, 1, 1, 0]),  # ties by name: groups are g2, g1 ...
    ],
)
def test_suppression_by_hand(sizes, hidden):
    assert hidden_of(sizes) == hidden


def test_ties_go_by_name_not_by_place():
    # Cells are g3, g2, g1; the label-0 cells of g3 and g1 tie at 20, and g1 is hidden.
    assert hidden_of([20, 40, 5, 30, 20, 50]) == [0, 0, 1, 0, 1, 0]


def test_a_minimum_below_one_is_refused():
    with pytest.raises(ConfigError, match="minimum = 0"):
        hidden_of([40, 3, 12, 30], minimum=0)


@given(st.lists(st.integers(0, 25), min_size=4, max_size=8).filter(lambda x: len(x) % 2 == 0))
def test_no_small_set_can_be_isolated(sizes):
    """What is sent is each visible cell and the total: its row space isolates no small set."""
    hidden = np.array(hidden_of(sizes), dtype=bool)
    if sum(sizes) < 10:
        assert hidden.all()
        return
    sent = np.vstack([np.eye(len(sizes))[~hidden], np.ones(len(sizes))])
    rank = np.linalg.matrix_rank(sent)
    for count in range(1, len(sizes) + 1):
        for cells in combinations(range(len(sizes)), count):
            total = sum(sizes[cell] for cell in cells)
            target = np.isin(np.arange(len(sizes)), cells).astype(float)
            known = np.linalg.matrix_rank(np.vstack([sent, target])) == rank
            assert not (known and 0 < total < 10)


def test_equal_tallies_have_equal_hashes():
    whole = np.ones((1, 2, 2, 2), int)
    assert hash(Tally(whole, ("a",), (SEX,))) == hash(Tally(whole / 1.0, ("a",), (SEX,)))


A = statistics([[4, 6], [3, 7]], [[1, 5], [0, 7]], [[1, 2], [3, 4]])
B = statistics([[2, 0], [0, 1]], [[2, 0], [0, 0]], [[5, 0], [0, 1]])


def test_a_tally_counts_decisions_by_client_in_name_order():
    tally = Tally.from_statistics({"b": B, "a": A}, (SEX,))
    assert tally.clients == ("a", "b")
    assert tally.counts.dtype == np.int64
    # counts[client][group][label] = [refused, favoured]
    assert tally.counts.tolist() == [
        [[[3, 1], [1, 5]], [[3, 0], [0, 7]]],
        [[[0, 2], [0, 0]], [[0, 0], [1, 0]]],
    ]
