from __future__ import annotations

import gzip
import logging
import lzma
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import one_line
from mfairfl.data import FileFormat, read_frame
from mfairfl.data.files import read_file
from mfairfl.errors import DataError

ROWS = [["Ann", "31", "007"], ["Bob", "45", "010"]]
HEADER = ["name", "age", "zip"]


def write(folder: Path, text: str, *, encoding: str = "utf-8", name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def table(delimiter: str = ",", end: str = "\n") -> str:
    return "".join(delimiter.join(row) + end for row in [HEADER, *ROWS])


def error(path: object, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read_frame(path, **options)
    return one_line(caught)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_delimiter_is_found_and_cells_stay_text(tmp_path, delimiter, end):
    frame = read_frame(write(tmp_path, table(delimiter, end)))
    assert list(frame.columns) == HEADER
    assert frame.to_numpy().tolist() == ROWS
    assert frame.index.name == "line"
    assert frame.index.tolist() == [2, 3]


@pytest.mark.parametrize("delimiter", [" ", ":", "~"])
def test_any_delimiter_can_be_told(tmp_path, delimiter):
    frame = read_frame(write(tmp_path, table(delimiter)), delimiter=delimiter)
    assert frame.to_numpy().tolist() == ROWS


def test_a_decimal_comma_does_not_look_like_a_delimiter(tmp_path):
    frame = read_frame(write(tmp_path, "a;b\n1,5;2,5\n3,25;4,0\n"))
    assert frame.to_numpy().tolist() == [["1,5", "2,5"], ["3,25", "4,0"]]


def test_nor_does_it_in_a_file_without_a_header(tmp_path):
    frame = read_frame(write(tmp_path, "1,5;2,5;x\n3,25;4,0;y\n"), header=False)
    assert frame.to_numpy().tolist() == [["1,5", "2,5", "x"], ["3,25", "4,0", "y"]]
    frame = read_frame(write(tmp_path, "1,5,a;b\n3,25,c;d\n"), header=False)
    assert frame.to_numpy().tolist() == [["1", "5", "a;b"], ["3", "25", "c;d"]]


def test_commas_inside_quotes_do_not_count(tmp_path):
    frame = read_frame(write(tmp_path, 'a;b\n"x, y, z";1\n"u, v, w";2\n'))
    assert frame["a"].tolist() == ["x, y, z", "u, v, w"]


def test_one_damaged_line_does_not_hide_the_delimiter(tmp_path):
    text = "a;b;c\n" + "1;2;3\n" * 30 + "1;2\n"
    assert "line 32: 2 fields where the header has 3" in error(write(tmp_path, text))


def test_lines_are_those_of_the_file_despite_quoted_newlines_and_blanks(tmp_path):
    text = 'name,note\n"Ann","two\nlines"\n\nBob,plain\n"C ""the"" D","x,y"\n'
    frame = read_frame(write(tmp_path, text))
    assert frame.index.tolist() == [2, 5, 6]
    assert frame["note"].tolist() == ["two\nlines", "plain", "x,y"]
    assert frame["name"].tolist() == ["Ann", "Bob", 'C "the" D']


def test_blank_lines_may_come_first(tmp_path):
    frame = read_frame(write(tmp_path, "\n" * 150 + table()))
    assert frame.to_numpy().tolist() == ROWS
    assert frame.index.tolist() == [152, 153]


def test_space_after_the_delimiter_is_dropped(tmp_path):
    frame = read_frame(write(tmp_path, 'a, b\n1, "x, y"\n2, z\n'))
    assert list(frame.columns) == ["a", "b"]
    assert frame["b"].tolist() == ["x, y", "z"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_decide(tmp_path, encoding):
    path = write(tmp_path, "näme;größe\nZoë;1\n木;2\n", encoding=encoding)
    frame = read_frame(path)
    assert list(frame.columns) == ["näme", "größe"]
    assert frame["näme"].tolist() == ["Zoë", "木"]
    assert read_file(path).notes == ()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_western_bytes_are_guessed_and_the_guess_is_told(tmp_path, caplog, encoding):
    path = write(tmp_path, "name,city\nMüller,Zürich\nJosé,São Paulo\n", encoding=encoding)
    with caplog.at_level(logging.WARNING):
        content = read_file(path)
    assert content.frame["city"].tolist() == ["Zürich", "São Paulo"]
    (note,) = content.notes
    # "name,city\n" has 10 bytes, M one more: the first ü is byte 11.
    assert "byte 0xfc at offset 11" in note
    assert "cp1252" in note
    assert note in caplog.text


def test_cyrillic_bytes_are_guessed(tmp_path):
    text = "имя,город\n" + "Иван,Москва\nМария,Новосибирск\n" * 5
    frame = read_frame(write(tmp_path, text, encoding="cp1251"))
    assert frame["город"].tolist()[:2] == ["Москва", "Новосибирск"]


def test_a_told_encoding_is_used(tmp_path):
    path = write(tmp_path, "a,b\nŁódź,1\n", encoding="cp1250")
    assert read_frame(path, encoding="cp1250")["a"].tolist() == ["Łódź"]


def test_utf_16_without_a_mark_must_be_told(tmp_path):
    path = write(tmp_path, table(), encoding="utf-16-le")
    assert "encoding='utf-16-le'" in error(path)
    assert read_frame(path, encoding="utf-16-le").to_numpy().tolist() == ROWS


def test_half_a_character_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(b"a,b\n1,+2AA-\n")
    with pytest.raises(DataError, match=r"people.csv: character 6 is half of one \(U\+D800\)"):
        read_frame(path, encoding="utf-7")


def test_undecodable_bytes_name_the_offset(tmp_path):
    path = write(tmp_path, "a,b\nMüller,1\n", encoding="latin-1")
    message = error(path, encoding="utf-8")
    assert str(path) in message
    assert "byte 0xfc at offset 5" in message
    assert "encoding='cp1252'" in message
    assert "unknown encoding 'utf-9'" in error(path, encoding="utf-9")


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, "gz"), (lzma.compress, "xz")])
def test_compressed_files_have_the_hash_of_their_content(tmp_path, pack, suffix):
    plain = write(tmp_path, "a,b\n1,2\n")
    packed = tmp_path / f"people.csv.{suffix}"
    packed.write_bytes(pack(plain.read_bytes()))
    assert read_frame(packed).equals(read_frame(plain))
    # sha256sum of the eight bytes "a,b\n1,2\n", computed by coreutils
    expected = "492d5ea496056f1a6a6592241032fab764c321596317930b4fa0e1e8bc3b7470"
    assert read_file(plain).sha256 == read_file(packed).sha256 == expected
    packed.write_bytes(packed.read_bytes()[:-9])
    assert "damaged" in error(packed)
    assert str(packed) in error(packed)


def test_frames_of_three_libraries_read_alike(tmp_path):
    pandas = pd.DataFrame({"age": [31, 45], "sex": ["f", None]}, index=[7, 7])
    path = tmp_path / "people.parquet"
    pandas.to_parquet(path)
    frames = [
        read_frame(pandas),
        read_frame(pl.DataFrame({"age": [31, 45], "sex": ["f", None]})),
        read_frame(pa.table({"age": [31, 45], "sex": ["f", None]})),
        read_frame(path),
    ]
    for frame in frames:
        assert frame["age"].tolist() == [31, 45]
        assert frame["sex"].isna().tolist() == [False, True]
        assert frame.index.name == "row"
        assert frame.index.tolist() == [0, 1]
    assert pandas.index.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, ["is empty"]),
        ("\n \n", {}, ["is empty"]),
        ("a,b\n", {}, ["header but no rows"]),
        ("a,b\n\n\n", {}, ["header but no rows"]),
        ("a;b\n1;2\n", {"delimiter": ","}, ["one column ('a;b')", "','", "semicolon", "=';'"]),
        ("a b\n1 2\n", {}, ["one column ('a b')", "delimiter="]),
        ("a,b\n1,2\n", {"delimiter": ",,"}, ["',,'", "one character"]),
        ("a,b,a\n1,2,3\n", {}, ["'a' occurs twice"]),
        (",a\n0,1\n1,2\n", {}, ["column 1 has no name", "index=False"]),
        ("a,b\n1,2\n1,2,3\n", {}, ["line 3", "3 fields", "header has 2", "','"]),
        ('a,b\n1,"2\n3,4\n', {}, ["line 2", "quotes"]),
        ('a,b\n1,2\n3,"4"x\n', {}, ["line 3", "quotes"]),
        ('a,b\n1,2\n3,"' + "x" * 200_000, {"delimiter": ","}, ["line 3", "quotes"]),
    ],
)
def test_bad_csv_files(tmp_path, text, options, words):
    path = write(tmp_path, text)
    message = error(path, **options)
    assert message.startswith(str(path))
    assert all(word in message for word in words), message


def test_a_file_of_one_column_is_read_when_the_delimiter_is_told(tmp_path):
    assert read_frame(write(tmp_path, "age\n31\n45\n"), delimiter=",")["age"].tolist() == [
        "31",
        "45",
    ]


def test_files_that_cannot_be_read(tmp_path):
    write(tmp_path, table())
    message = error(tmp_path / "poeple.csv")
    assert "no such file" in message
    assert "'people.csv'" in message
    assert "check the path" in error(tmp_path / "nowhere" / "x.csv")
    assert "is a folder: give one file of it (people.csv)" in error(tmp_path)
    sheet = tmp_path / "people.xlsx"
    sheet.write_bytes(b"PK\x03\x04 and more")
    assert "people.xlsx is damaged (File is not a zip file)" in error(sheet)
    broken = tmp_path / "people.parquet"
    broken.write_bytes(b"PAR1 and more")
    assert "is not a readable Parquet file" in error(broken)


def test_frames_that_cannot_be_read():
    assert "collect" in error(pl.LazyFrame({"a": [1]}))
    assert "cannot read a list" in error([1, 2])
    assert "'a' occurs twice" in error(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    assert "no rows" in error(pd.DataFrame({"a": []}))


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=8), st.sampled_from(",;\t|"))
def test_any_written_text_is_read_back(tmp_path_factory, rows, delimiter):
    quoted = [["a", "b", "c"], *rows]
    text = "\n".join(
        delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in quoted
    )
    path = write(tmp_path_factory.mktemp("csv"), text)
    frame = read_frame(path, delimiter=delimiter, encoding="utf-8")
    assert frame.to_numpy().tolist() == [list(row) for row in rows]


def test_what_was_detected_is_kept(tmp_path):
    content = read_file(write(tmp_path, "name;age\nJürgen;31\nBjörn;45\n", encoding="cp1252"))
    assert content.format == FileFormat(";", "cp1252")
    content = read_file(write(tmp_path, table("~")), FileFormat("~", "utf-8"))
    assert content.format == FileFormat("~", "utf-8")
    content = read_file(write(tmp_path, table("\t"), encoding="utf-16"))
    assert content.format == FileFormat("\t")
