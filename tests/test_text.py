"""Plain-text tables."""

from __future__ import annotations

from mfairfl.text import aligned


def test_columns_are_padded_and_empty_ones_left_out():
    rows = [["", "a", "", "1"], ["", "bcd", "", "1,000"]]
    assert aligned(rows, right=[3]) == ["a        1", "bcd  1,000"]
    assert aligned(rows) == ["a    1", "bcd  1,000"]


def test_lines_have_no_trailing_spaces():
    assert aligned([["a", "long"], ["b", ""]]) == ["a  long", "b"]
