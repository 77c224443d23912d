"""The fast way through a CSV file gives what the careful one gives, cell by cell and in errors."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mfairfl.data.files import records
from mfairfl.data.files.contents import Decoded, decode
from mfairfl.data.files.records import read_delimited
from mfairfl.errors import DataError

PATH = Path("people.csv")
PLAIN = st.text("ab 1é木\t\x0b\u2028\x85'\ufeff", max_size=3)
INNER = st.text('ab ,;"\n\ré木\ufeff', max_size=5)
QUOTED = INNER.map(lambda text: '"' + text.replace('"', '""') + '"')
STRAY = st.sampled_from(
    ['"', '""', 'a"b', '"a"b', ' "a"', '"a" ', '"a', '" a"', '""a', '"\ufeffa"']
)
CELL = PLAIN | QUOTED
END = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", " \n", ""])
HEADER = st.sampled_from([None, False])
DELIMITER = st.sampled_from([",", ";", " ", "é", "a", "\\"])


def lines_of(cell, least=2):
    line = st.tuples(st.lists(cell, min_size=least, max_size=3), END)
    return st.lists(line, min_size=1, max_size=6)


def outcome(text, delimiter, header, codec="utf-8"):
    mark = "\ufeff" * text.startswith("\ufeff")  # what is left of two marks
    source = decode(PATH, (mark + text).encode(codec), None)
    assert source.text == text
    try:
        frame, detected = read_delimited(PATH, source, delimiter, header=header)
    except DataError as error:
        return str(error)
    assert frame.index.name == "line"
    return detected, list(frame.columns), frame.index.tolist(), frame.to_numpy().tolist()


def careful(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_read_plain", lambda *_, **__: None)
        return outcome(*arguments)


def fast(*arguments):
    """Read by Arrow alone; a careful reader would fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "frame_of_records", None)
        return outcome(*arguments)


def alike(text, delimiter, header):
    expected = careful(text, delimiter, header)
    assert outcome(text, delimiter, header) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_BLOCK", 16)  # longer than most lines, shorter than most texts
        assert outcome(text, delimiter, header) == expected


@settings(max_examples=200)
@given(lines_of(CELL) | lines_of(CELL | STRAY), DELIMITER, HEADER)
@example([(["a", "b"], "\n"), (["1", " 2"], "\n"), (["", ""], "\n")], ",", None)
@example([(["a", "b"], "\r"), (["1", "2"], "\r"), (["3", "4"], "")], ",", None)
@example([(["a", "b"], "\n"), (['"1"', '" 2"'], "\n")], ",", None)
@example([(['" a"', "b"], "\n"), (["1", "2"], "\n")], ",", False)
@example([(["\ufeffa", "b"], "\n"), (["1", "2"], "\n")], ",", False)
@example([(["a", "b"], "\n"), (["\ufeff1", "2"], "\n")], ",", None)
@example([(['"a\r"', "b"], "\r\n"), (['"1\n\r\n"', '"2"""'], "\r")], ",", None)
def test_any_lines_are_read_alike(lines, delimiter, header):
    alike("".join(delimiter.join(cells) + end for cells, end in lines), delimiter, header)


@settings(max_examples=200)
@given(st.text('a,"" \n\r', min_size=1, max_size=25), HEADER)
@example('a,b\n1,"', None)
@example('"a,b\n1,2', None)
@example('a,b\n"1""",2', None)
@example('a,b\n"1"",2', None)
@example('a\n""\n"a"', None)
def test_any_text_is_read_alike(text, header):
    alike(text, ",", header)
    alike(text, None, header)


@settings(max_examples=200)
@given(lines_of(CELL, least=1).filter(lambda lines: len(lines) > 1), HEADER)
def test_one_column_is_read_alike(lines, header):
    alike("".join(cells[0] + end for cells, end in lines), ":", header)


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.text("ab é木", max_size=4), min_size=2, max_size=2), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-16", "utf-32"]),
)
def test_what_a_program_writes_without_quotes_is_read_back_fast(rows, end, codec):
    rows = [[cell.lstrip(" ") for cell in row] for row in rows]  # as `skipinitialspace` has it
    text = end.join(",".join(row) for row in [["x", "y"], *rows])
    for whole in (text, text + end, text + end + end):
        assert fast(whole, ",", None, codec) == (
            ",",
            ["x", "y"],
            [*range(2, len(rows) + 2)],
            rows,
        )


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", [None, False])
def test_plain_files_take_the_fast_way(end, header):
    text = end.join(["", "name, age", "Ann,31", " Bob , 45 ", ",", "Zoë,"])
    expected = fast(text, ",", header)
    assert expected == careful(text, ",", header)
    assert fast(text + end, ",", header) == expected
    assert expected[3][-3:] == [["Bob ", "45 "], ["", ""], ["Zoë", ""]]
    assert expected[2][-4:] == [3, 4, 5, 6]


def test_lines_are_counted_through_line_breaks_in_quotes():
    text = '"a\nname",b\n\n1,"x\r\ny\n"\r\n2,z\n\n\n3,"\r"\n4,\n'
    _, names, lines, cells = outcome(text, ",", None)
    assert names == ["a\nname", "b"]
    assert cells == [["1", "x\r\ny\n"], ["2", "z"], ["3", "\r"], ["4", ""]]
    assert lines == [4, 7, 10, 12]


@pytest.mark.parametrize(("form", "cell"), [("{}", "x"), ('"{}"', "x,"), ("{}", "é")])
def test_long_cells_are_refused_whatever_is_around_them(form, cell):
    limit = csv.field_size_limit()
    whole = (cell * limit)[:limit]
    text = "a,b\n1,{}\n2,3\n"
    half = whole[: limit // 2]
    assert outcome(text.format(form.format(half)), ",", None)[3] == [["1", half], ["2", "3"]]
    assert outcome(text.format(form.format(whole)), ",", None)[3] == [["1", whole], ["2", "3"]]
    message = outcome(text.format(form.format(whole + "x")), ",", None)
    assert message == careful(text.format(form.format(whole + "x")), ",", None)
    assert "people.csv, line 2: field larger than field limit" in message


@pytest.mark.slow
def test_long_lines_are_read():
    wide = [f"{i:0100}" for i in range(15_000)]  # 1.5 MB in one line
    text = ",".join(f"c{i}" for i in range(15_000)) + "\n" + ",".join(wide) + "\n"
    assert outcome(text, ",", None)[3] == [wide]


@pytest.mark.slow
def test_large_files_keep_every_line():
    rows = 400_000  # more than one block of the fast reader, with and without quotes
    numbers = np.arange(2, rows + 2)
    for form in ("{},x{:08}\n", '"{}","x{:08}"\n'):
        text = "line,text\n" + "".join(form.format(i, i) for i in numbers.tolist())
        frame, _ = read_delimited(PATH, Decoded(text, text.encode()), None, header=None)
        assert (frame["line"].astype(int) == frame.index).all()
        assert frame["text"].iloc[-1] == f"x{rows + 1:08}"
        assert frame.dtypes.eq(pd.Series(["a"], dtype="str").dtype).all()
