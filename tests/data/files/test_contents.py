"""Files are what their bytes say: packed tables, archives, and what is no table."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile

import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from answers import one_line
from mfairfl.data import read_frame
from mfairfl.data.files import contents, read_file
from mfairfl.errors import DataError

TEXT = b"name,age\nAnn,31\nBob,45\n"


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "."), data)
    return packed.getvalue()


def sheet() -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in (["name", "age"], ["Ann", 31], ["Bob", 45]):
        book.active.append(row)
    book.save(file)
    return file.getvalue()


def refused(path: object) -> str:
    with pytest.raises(DataError) as caught:
        read_frame(path)
    return one_line(caught)


PACKED = {
    "gz": gzip.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "bz2": bz2.compress(TEXT),
    "zst": pa.Codec("zstd").compress(TEXT, asbytes=True),
    "zip": zipped(people__csv=TEXT),
}


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_file_is_read_and_has_the_hash_of_its_content(tmp_path, suffix):
    (tmp_path / "people.csv").write_bytes(TEXT)
    plain = read_file(tmp_path / "people.csv")
    packed = tmp_path / f"people.csv.{suffix}"
    packed.write_bytes(PACKED[suffix])
    found = read_file(packed)
    assert found.sha256 == plain.sha256
    pd.testing.assert_frame_equal(found.frame, plain.frame)


@pytest.mark.parametrize("suffix", PACKED)
def test_half_a_packed_file_is_damaged(tmp_path, suffix):
    packed = tmp_path / f"people.csv.{suffix}"
    packed.write_bytes(PACKED[suffix][:-6])
    assert refused(packed).startswith(f"{packed} is damaged (")


def test_a_changed_byte_in_an_archive_is_noticed(tmp_path):
    data = bytearray(zipped(people__csv=TEXT * 99))
    data[60] ^= 0xFF
    (tmp_path / "people.zip").write_bytes(data)
    assert "people.zip is damaged (" in refused(tmp_path / "people.zip")


@pytest.mark.parametrize("suffix", PACKED)
def test_a_bomb_is_not_unpacked(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(contents, "_LARGEST", len(TEXT) - 1)
    (tmp_path / f"people.{suffix}").write_bytes(PACKED[suffix])
    assert "unpacks to more than" in refused(tmp_path / f"people.{suffix}")
    monkeypatch.setattr(contents, "_LARGEST", len(TEXT))
    assert len(read_frame(tmp_path / f"people.{suffix}")) == 2


def test_a_workbook_may_be_a_bomb_too(tmp_path, monkeypatch):
    (tmp_path / "people.xlsx").write_bytes(sheet())
    monkeypatch.setattr(contents, "_LARGEST", 1000)
    assert "people.xlsx unpacks to more than" in refused(tmp_path / "people.xlsx")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "is an empty archive"),
        ({"a__csv": TEXT, "b__csv": TEXT}, "archive of 2 files (a.csv, b.csv): unpack it"),
        ({"x__zip": zipped(y__zip=zipped(a__csv=TEXT))}, "is an archive: unpack it"),
        ({"xl/workbook__bin": b""}, "is a binary Excel file (.xlsb): save the table as CSV"),
        ({"mimetype": b"", "content__xml": b""}, "is an OpenDocument file (.ods): save the"),
        ({"word/document__xml": b""}, "is a Word document"),
    ],
)
def test_archives_that_hold_no_single_table(tmp_path, files, words):
    path = tmp_path / "people.zip"
    path.write_bytes(zipped(**files))
    assert words in refused(path)


def test_what_macos_adds_to_an_archive_does_not_count(tmp_path):
    path = tmp_path / "people.zip"
    path.write_bytes(zipped(**{"__MACOSX/._people": b"x"}))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.mkdir("data")
        archive.writestr("data/people.csv", TEXT)
        archive.writestr("__MACOSX/data/._people.csv", b"\0")
    path.write_bytes(packed.getvalue())
    assert read_frame(path)["age"].tolist() == ["31", "45"]


def test_an_archive_may_hold_any_table(tmp_path):
    parquet = io.BytesIO()
    pd.DataFrame({"name": ["Ann", "Bob"], "age": [31, 45]}).to_parquet(parquet)
    for inner in (sheet(), parquet.getvalue(), b'[{"name": "Ann", "age": 31}, {"age": 45}]'):
        (tmp_path / "people.zip").write_bytes(zipped(people=inner))
        assert read_frame(tmp_path / "people.zip")["age"].astype(int).tolist() == [31, 45]


def test_a_password_is_not_asked_for(tmp_path):
    data = bytearray(zipped(people__csv=TEXT))
    data[6] |= 1  # "encrypted", in the file's header and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "people.zip").write_bytes(data)
    assert "is an archive with a password" in refused(tmp_path / "people.zip")


def test_a_packed_tar_is_an_archive(tmp_path):
    with tarfile.open(tmp_path / "people.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("people.csv")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))
    assert "people.tar.gz is an archive: unpack it" in refused(tmp_path / "people.tar.gz")


def test_databases_are_named(tmp_path):
    connection = sqlite3.connect(tmp_path / "people.csv")
    connection.execute("create table people (age int)")
    connection.commit()
    connection.close()
    assert "is an SQLite database: export the table as CSV" in refused(tmp_path / "people.csv")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
            "is an old (.xls) or a protected",
        ),
        (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
        (b"\x80\x04\x95\x10\0\0\0", "is a pickle, which may hold code"),
        (b"%PDF-1.7\n", "is a PDF document"),
        (b"\xef\xbb\xbf\n<!DOCTYPE HTML><table>", "is a web page: save the table as CSV"),
        (b'<?xml version="1.0"?>', "is an XML file"),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06",
            "is not text (binary data)",
        ),
        (bytes(range(256)) * 8, "is not text (binary data)"),
    ],
)
def test_what_is_no_table_is_named(tmp_path, data, words):
    path = tmp_path / "people.csv"
    path.write_bytes(data)
    message = refused(path)
    assert message.startswith(f"{path} {words}")


def test_a_folder_names_what_is_in_it(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    assert refused(folder) == f"{folder} is a folder: it is empty; give a file with a table"
    for name in (*(f"part-{i}.parquet" for i in range(7)), ".hidden"):
        (folder / name).touch()
    assert refused(folder) == (
        f"{folder} is a folder: give one file of it (part-0.parquet, part-1.parquet, "
        "part-2.parquet, part-3.parquet, part-4.parquet and 2 more); parts of one table have to "
        "be joined into one file"
    )
