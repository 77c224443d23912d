"""The fast way through a CSV file gives what the careful one gives, cell by cell and in errors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mfairfl.data import delimited
from mfairfl.data.delimited import read_delimited
from mfairfl.errors import DataError

PATH = Path("people.csv")
CELL = st.text("ab 1é木\t\x0b\u2028\x85'", max_size=3)
END = st.sampled_from(["\n", "\r\n", "\r", "\n\n", " \n", ""])


def outcome(text, delimiter, header):
    try:
        frame, found = read_delimited(PATH, text, delimiter, header=header)
    except DataError as error:
        return str(error)
    return found, list(frame.columns), frame.index.tolist(), frame.to_numpy().tolist()


def careful(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_plain_frame", lambda *_, **__: None)
        return outcome(*arguments)


@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.lists(CELL, min_size=2, max_size=3), END), min_size=1, max_size=6),
    st.sampled_from([",", ";", " ", "é"]),
    st.sampled_from([None, False]),
)
@example([(["a", "b"], "\n"), (["1", " 2"], "\n"), (["", ""], "\n")], ",", None)
@example([(["a", "b"], "\r"), (["1", "2"], "\r"), (["3", "4"], "")], ",", None)
def test_any_text_is_read_alike(lines, delimiter, header):
    text = "".join(delimiter.join(cells) + end for cells, end in lines)
    assert outcome(text, delimiter, header) == careful(text, delimiter, header)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("header", [None, False])
def test_plain_files_take_the_fast_way(end, header, monkeypatch):
    text = end.join(["name, age", "Ann,31", " Bob , 45 ", ",", "Zoë,"])
    expected = outcome(text, ",", header)
    assert expected == careful(text, ",", header)
    monkeypatch.setattr(delimited, "frame_of_records", None)
    assert outcome(text, ",", header) == outcome(text + end, ",", header) == expected
    assert expected[3][-3:] == [["Bob ", "45 "], ["", ""], ["Zoë", ""]]
    assert expected[2][-1] == 5


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n1,"2"\n',
        "a,b\n\n1,2\n",
        "\na,b\n1,2\n",
        "a,b\n1,2\n3\n",
        "a,b\n1,2\n3,4,5\n",
        "a,b\n",
    ],
)
def test_others_are_read_with_care(text, monkeypatch):
    used = []
    real = delimited.frame_of_records

    def watched(*arguments, **options):
        used.append(True)
        return real(*arguments, **options)

    monkeypatch.setattr(delimited, "frame_of_records", watched)
    assert outcome(text, ",", None) == careful(text, ",", None)
    assert len(used) == 2


def test_large_files_keep_every_line():
    rows = 200_000  # more than one block of the fast reader
    text = "line,text\n" + "".join(f"{i},x{i:08}\n" for i in range(2, rows + 2))
    frame, _ = read_delimited(PATH, text, None, header=None)
    assert (frame["line"].astype(int) == frame.index).all()
    assert frame["text"].iloc[-1] == f"x{rows + 1:08}"
    assert frame.dtypes.eq(pd.Series(["a"], dtype="str").dtype).all()
