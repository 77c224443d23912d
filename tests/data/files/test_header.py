"""Names of the columns: from the first line, or numbered where it is data."""

from __future__ import annotations

import logging

import pytest

from answers import one_line
from mfairfl.data import read_frame, read_table
from mfairfl.data.files import FileFormat, read_file
from mfairfl.data.task import Task
from mfairfl.errors import DataError

ADULT = (
    "39, State-gov, 77516, Bachelors, Male, <=50K\n"
    "50, Self-emp, 83311, Bachelors, Male, <=50K\n"
    "38, Private, 215646, HS-grad, Female, >50K\n"
    "53, State-gov, 234721, 11th, Male, <=50K\n"
    "28, Private, 338409, Bachelors, Female, >50K\n"
)


def write(folder, text):
    path = folder / "people.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_header_columns_are_numbered(tmp_path):
    path = write(tmp_path, ADULT)
    content = read_file(path, FileFormat(header=False))
    assert list(content.frame.columns) == [f"column-{i}" for i in range(1, 7)]
    assert content.frame.index.tolist() == [1, 2, 3, 4, 5]
    assert content.frame.iloc[0].tolist()[:2] == ["39", "State-gov"]
    assert (content.notes, content.format.header) == ((), False)
    task = Task(label="column-6", favourable=">50K", sensitive=("column-5",))
    table = read_table(path, task, header=False)
    assert table.y.tolist() == [0, 0, 1, 0, 1]
    assert table.task.numeric == ("column-1", "column-3")


def test_a_first_line_that_looks_like_data_is_said(tmp_path, caplog):
    path = write(tmp_path, ADULT)
    with caplog.at_level(logging.WARNING):
        content = read_file(path)
    assert len(content.frame) == 4
    (note,) = content.notes
    assert note == (
        f"{path}: the first line looks like data (39, State-gov, 77516, ...): give header=False "
        "(--no-header)"
    )
    assert note in caplog.text
    assert read_file(path, FileFormat(header=True)).notes == ()  # the user knows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5.1,3.5,0\n4.9,3.0,1\n", True),
        ("1,5;3,2\n2,5;4,1\n", True),
        ("Ann,f,yes\nBob,m,no\nEve,f,yes\n", True),  # the name is nobody else's
        ("age,sex\n31,f\n45,m\n", False),
        ("country,2019,2020\nx,1,2\n", False),
        ("0,1,2\n7,8,9\n", False),  # as pandas names columns
        ("1,2,3\n7,8,9\n", False),
        ("a,b\n1,x\na,b\n2,y\n", False),  # two files joined with their headers
        ("yes,no\nno,yes\n1,2\n", False),
        ("sex,hired,sex_code\nf,yes,1\nsex,no,2\nm,no,1\n", False),
    ],
)
def test_which_first_lines_look_like_data(tmp_path, text, said):
    assert bool(read_file(write(tmp_path, text)).notes) == said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5,5\n1,2\n", "column name '5' occurs twice: rename one, or give header=False"),
        ("5,,2\n1,2,3\n", "column 2 has no name: name it in the header, or leave it out"),
    ],
)
def test_names_that_cannot_be_are_refused_with_both_ways_out(tmp_path, text, words):
    with pytest.raises(DataError) as caught:
        read_frame(write(tmp_path, text))
    message = one_line(caught)
    assert words in message
    assert message.endswith("or give header=False (--no-header) if the first line is data")
    assert len(read_frame(tmp_path / "people.csv", header=False)) == 2


def test_ragged_lines_are_compared_with_the_first(tmp_path):
    with pytest.raises(DataError, match="line 3: 1 fields where the first line has 2"):
        read_frame(write(tmp_path, "1,2\n3,4\n5\n"), header=False)


def test_files_that_name_their_columns(tmp_path):
    path = write(tmp_path, '[{"a": 1}]')
    with pytest.raises(DataError, match=r"names its columns; remove header=False \(--no-header\)"):
        read_frame(path, header=False)
