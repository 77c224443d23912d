"""Plain-text tables."""

from __future__ import annotations

import pytest

from mfairfl.text import aligned, one_line


def test_columns_are_padded_and_empty_ones_left_out():
    rows = [["", "a", "", "1"], ["", "bcd", "", "1,000"]]
    assert aligned(rows, right=[3]) == ["a        1", "bcd  1,000"]
    assert aligned(rows) == ["a    1", "bcd  1,000"]


def test_lines_have_no_trailing_spaces():
    assert aligned([["a", "long"], ["b", ""]]) == ["a  long", "b"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain, as it is: αβ 😀", "plain, as it is: αβ 😀"),
        ("two\r\nlines\u2028three", "two lines three"),
        ("\x1b[2Jclear\x00", "?[2Jclear?"),
        ("\u202eturned", "?turned"),
        ("half \ud800", "half ?"),
        ("", ""),
    ],
)
def test_what_others_write_is_one_printable_line(text, line):
    assert one_line(text) == line
    assert line.isprintable()
    line.encode()


def test_a_long_text_is_cut():
    assert one_line("ab " * 10**6, longest=7) == "ab ab …"
    assert one_line(" " * 10**6 + "x") == "…"
    assert len(one_line("x" * 241)) == 240
