"""Plain-text tables."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.text import (
    aligned,
    csv_text,
    formula_safe,
    formula_safe_frame,
    formula_unsafe,
    one_line,
)


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


STARTS = ("=", "+", "-", "@", "\t", "\r")


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "=cmd|'/c calc'!A1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "-x",
        "+49 171 1",
        "=-",
    ],
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text):
    assert formula_safe(text) == "'" + text


@pytest.mark.parametrize(
    "text",
    ["", "a", "a=b", "-3", "+4.5", "-1e-5", "-1,5", "-12 %", "-", "+", "@", "<=50K", ">50K", "'"],
)
def test_numbers_and_plain_text_stay(text):
    assert formula_safe(text) == text


@given(st.text(alphabet="'=+-@\t\r\n1a ", max_size=6))
def test_what_was_made_safe_is_found_again(text):
    safe = formula_safe(text)
    assert formula_unsafe(safe) == text
    if safe.startswith(STARTS) and len(safe) > 1:
        float(safe)  # it is a number


def test_tables_for_people_hold_no_formula():
    text = csv_text(["=a", "n"], [["@b,c", -1.5], ['"=d', None], ["-7", True]])
    assert list(csv.reader(io.StringIO(text))) == [
        ["'=a", "n"], ["'@b,c", "-1.5"], ['"=d', ""], ["-7", "True"],
    ]  # fmt: skip


def test_frames_keep_numbers_and_gaps():
    frame = pd.DataFrame(
        {"=t": ["=1", None, "-2"], "n": [-1, 2, 3], "f": [-0.5, None, 1.0]}
    ).astype({"=t": "string"})
    safe = formula_safe_frame(frame)
    assert safe.to_csv(index=False) == "'=t,n,f\n'=1,-1,-0.5\n,2,\n-2,3,1.0\n"
    assert frame.columns[0] == "=t"  # the given one is not changed
