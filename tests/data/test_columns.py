"""Columns work on distinct cells; rows must not notice: each is compared with a plain loop."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data.columns import Column
from mfairfl.data.values import MISSING, ColumnRules, canonical_text

CELLS = st.lists(
    st.sampled_from(["", " ", "a", " a", "?", "1", "1.0", "-9", "é", None]), min_size=1
)
RULES = ColumnRules(missing_codes=("-9",))


def by_hand(cells):
    texts = [canonical_text(cell) for cell in cells]
    return [MISSING if text == "-9" else text for text in texts]


@pytest.mark.parametrize("dtype", ["str", object])
@given(cells=CELLS)
def test_every_row_has_its_own_text(cells, dtype):
    expected = by_hand(cells)
    column = Column("people", pd.Series(cells, dtype=dtype, name="x"), RULES)
    assert column.texts.tolist() == expected
    assert [column.text(i) for i in range(len(cells))] == expected
    assert column.strings.tolist() == expected
    assert column.strings.dtype == pd.Series(["a"], dtype="str").dtype
    assert column.strings.index.equals(pd.RangeIndex(len(cells)))
    assert column.each(len, np.int8).tolist() == [len(text) for text in expected]
    assert column.missing.tolist() == [text == MISSING for text in expected]
    assert dict(column.counts) == {text: expected.count(text) for text in expected}


@given(cells=CELLS)
def test_other_rules_of_the_same_cells_are_read_anew(cells):
    column = Column("people", pd.Series(cells, dtype="str", name="x"))
    assert column.counts.total() == len(cells)  # the cells are known from here on
    other = column.but(rules=RULES, table="others")
    assert other.texts.tolist() == by_hand(cells)
    assert other.place(0).startswith("others, row 0")
    assert column.texts.tolist() == [canonical_text(cell) for cell in cells]
