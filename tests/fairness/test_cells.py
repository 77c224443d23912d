"""Cells against numpy's ravel, and hand-written memberships."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import Cells, Statistics
from rounds import statistics

SEX = Attribute("sex", ("F", "M"))
AGE = Attribute("age", ("young", "mid", "old"))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_encode_is_numpys_ravel(shape, data):
    attributes = tuple(
        Attribute(f"a{i}", tuple(str(g) for g in range(size))) for i, size in enumerate(shape)
    )
    cells = Cells(attributes)
    rows = data.draw(st.lists(st.tuples(*(st.integers(0, s - 1) for s in shape)), min_size=1))
    codes = np.array(rows)
    expected = np.ravel_multi_index(tuple(codes.T), shape)
    assert cells.encode(codes).tolist() == expected.tolist()
    names = [tuple(str(code) for code in row) for row in rows]
    assert [cells.names[cell] for cell in expected] == names


def test_without_attributes_there_is_one_cell():
    cells = Cells(())
    assert cells.size == 1
    assert cells.encode(np.zeros((3, 0))).tolist() == [0, 0, 0]
    assert cells.groupings() == []


def test_marginals_and_intersection_by_hand():
    sex, age, both = Cells((SEX, AGE)).groupings(intersections=True)
    assert (sex.name, sex.groups) == ("sex", ("F", "M"))
    assert sex.membership.astype(int).tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    assert age.membership.astype(int).tolist() == [
        [1, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 1, 0],
        [0, 0, 1, 0, 0, 1],
    ]
    assert both.name == "sex × age"
    assert both.groups[4] == "M × mid"
    assert both.membership.tolist() == np.eye(6, dtype=bool).tolist()


def test_selection_of_attributes_and_their_order():
    cells = Cells((SEX, AGE, Attribute("race", ("a", "b"))))
    names = [g.name for g in cells.groupings(("race", "sex"), intersections=True)]
    assert names == ["race", "sex", "race × sex"]
    assert len(cells.groupings(intersections=True)) == 7  # 3 marginals + 3 pairs + 1 triple
    crossed = cells.grouping("race", "sex")
    # cell 7 = (M, young, b): group "b × M" of (race, sex) is code 1·2 + 1 = 3
    assert cells.names[7] == ("M", "young", "b")
    assert crossed.membership[:, 7].tolist() == [False, False, False, True]
    assert crossed.groups[3] == "b × M"


def test_unknown_attribute():
    with pytest.raises(
        ConfigError, match="unknown sensitive attribute 'sexx': did you mean 'sex'"
    ):
        Cells((SEX,)).groupings(("sexx",))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ((SEX, SEX), "a name occurs twice"),
        ((Attribute("sex", ()),), "'sex' has no groups"),
        ((Attribute("sex", ("F", "F")),), "'sex': a group occurs twice"),
    ],
)
def test_bad_attributes(attributes, message):
    with pytest.raises(DataError, match=message):
        Cells(attributes)


@pytest.mark.parametrize("codes", [[[2]], [[-1]], [0, 1]])
def test_bad_codes(codes):
    with pytest.raises(ValueError, match=r"invalid entry|multi_index"):
        Cells((SEX,)).encode(codes)


def test_statistics_by_hand_and_addition_is_union():
    first = {"cells": [0, 1, 1], "y": [1, 0, 0], "decisions": [1, 0, 1]}
    second = {"cells": [1], "y": [1], "decisions": [0]}
    a = Statistics.from_rows(size=2, scores=[0.75, 0.25, 0.5], losses=[1.0, 2.0, 4.0], **first)
    b = Statistics.from_rows(size=2, scores=[0.125], losses=[8.0], **second)
    total = a + b
    assert total.counts.tolist() == [[0, 1], [2, 1]]
    assert total.positives.tolist() == [[0, 1], [1, 0]]
    assert total.scores.tolist() == [[0, 0.75], [0.75, 0.125]]
    assert total.losses.tolist() == [[0, 1], [6, 8]]


def test_statistics_reject_other_shapes():
    two, three = np.zeros((2, 2)), np.zeros((3, 2))
    small = Statistics(counts=two, positives=two, scores=two, losses=two)
    large = Statistics(counts=three, positives=three, scores=three, losses=three)
    with pytest.raises(DataError, match="2 and 3 cells"):
        small + large
    with pytest.raises(DataError, match="scores has shape"):
        Statistics(counts=two, positives=two, scores=three, losses=two)


A = statistics([[4, 6], [3, 7]], [[1, 5], [0, 7]], [[1, 2], [3, 4]])
B = statistics([[2, 0], [0, 1]], [[2, 0], [0, 0]], [[5, 0], [0, 1]])


def test_the_pooled_loss_is_a_mean_over_rows_not_over_clients():
    assert Statistics.pooled({"a": A, "b": B}).mean_loss == pytest.approx(16 / 23)
    none = statistics(np.zeros((2, 2)), np.zeros((2, 2)))
    assert np.isnan(Statistics.pooled({"a": none}).mean_loss)


def test_the_pooled_loss_has_the_same_bits_however_clients_are_listed():
    """.1 + .2 + .3 is not .3 + .2 + .1 in floating point."""
    losses = {"a": 0.1, "b": 0.2, "c": 0.3}
    one = np.array([[1.0, 0.0], [0.0, 0.0]])
    parts = {n: statistics(one, 0 * one, one * loss) for n, loss in losses.items()}
    turned = dict(reversed(parts.items()))
    for order in (parts, turned):
        assert Statistics.pooled(order).mean_loss == (0.1 + 0.2 + 0.3) / 3
