"""What docs/data.md says about files, line by line: what is in the file, and what happens."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import sqlite3
import zipfile
from datetime import datetime

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from hired_people import GIVEN, TASK
from mfairfl.data import read_table


class Reader:
    """A user with a table who tries `mfairfl init` on the file made of it."""

    def __init__(self, cli, people, folder, monkeypatch):
        self.cli, self.people, self.folder = cli, people, folder
        self.monkeypatch = monkeypatch
        self.csv = people.to_csv(index=False)

    def write(self, name, data):
        content = data.encode() if isinstance(data, str) else data
        (self.folder / name).write_bytes(content)
        return name

    def init(self, name, *flags):
        (self.folder / "my.toml").unlink(missing_ok=True)
        return self.cli("init", "--csv", name, *GIVEN, "--out", "my.toml", *flags)

    def reads(self, name, *flags, warning=""):
        """The rows are those of the table, and the settings written are enough to find them."""
        answer = self.init(name, *flags)
        assert answer.code == 0, answer.err
        assert answer.err == (f"warning: {warning}\n" if warning else "")
        checked = self.cli("doctor", "my.toml")
        assert checked.code == 0, checked.err
        assert "240 rows" in checked.out
        said = dict(zip(flags[::2], flags[1::2], strict=True))
        found = read_table(
            self.folder / name, TASK, **{key.strip("-"): value for key, value in said.items()}
        )
        (self.folder / "expected.csv").write_text(self.csv, encoding="utf-8")
        expected = read_table(self.folder / "expected.csv", TASK)
        pd.testing.assert_frame_equal(found.X, expected.X)
        assert found.y.tolist() == expected.y.tolist()
        assert found.groups.tolist() == expected.groups.tolist()
        assert found.clients.tolist() == expected.clients.tolist()

    def refuses(self, name, message, *flags):
        """In one line, whichever command reads the file, and without leaving anything behind."""
        answer = self.init(name, *flags)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        assert answer.err.startswith("error: ")
        assert message in answer.err
        assert not (self.folder / "my.toml").exists()
        trained = self.cli("train", "--csv", name, *GIVEN, *flags, "--out", "run")
        assert trained == answer
        assert not (self.folder / "run").exists()

    def excel(self, name, **sheets):
        with pd.ExcelWriter(self.folder / name) as writer:
            for sheet, frame in sheets.items():
                frame.to_excel(writer, sheet_name=sheet, index=False)
        return name

    def cells(self, name, *rows):
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(self.folder / name)
        return book


@pytest.fixture
def reader(cli, people, tmp_path, monkeypatch):
    return Reader(cli, people, tmp_path, monkeypatch)


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"{name}.csv", data)
    return packed.getvalue()


def usual_delimiters(r):
    for delimiter in ",;\t|":
        r.reads(r.write("people.csv", r.people.to_csv(sep=delimiter, index=False)))


def another_delimiter(r):
    name = r.write("people.csv", r.people.to_csv(sep="~", index=False))
    r.refuses(
        name, "people.csv: found one column ('Score~Age~Job~Gender~Site~Hired') and no usual"
    )
    r.reads(name, "--delimiter", "~")


def unicode(r):
    r.people["Job"] = r.people["Job"].replace({"cook": "Küche 木"})
    r.csv = r.people.to_csv(index=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        r.reads(r.write("people.csv", r.csv.encode(encoding)))


def another_encoding(r):
    r.people["Job"] = r.people["Job"].replace({"cook": "Köchin"})
    r.csv = r.people.to_csv(index=False)
    data = r.csv.encode("cp1252")
    place = f"people.csv: byte 0xf6 at offset {data.index(0xF6)} is not utf-8"
    guess = f"{place}; read as cp1252, a guess: give encoding= to be sure"
    r.reads(r.write("people.csv", data), warning=guess)
    r.reads("people.csv", "--encoding", "cp1252")
    r.refuses("people.csv", f"{place}: try encoding='cp1252'", "--encoding", "utf-8")


def packed(r):
    text = r.csv.encode()
    zstd = pa.Codec("zstd").compress(text, asbytes=True)
    for data in (gzip.compress(text), lzma.compress(text), bz2.compress(text), zstd):
        r.reads(r.write("people.csv.gz", data))
    r.refuses(r.write("people.csv.gz", gzip.compress(text)[:-9]), "people.csv.gz is damaged (")


def archive_of_one(r):
    r.reads(r.write("people.zip", zipped(people=r.csv)))


def archive_of_several(r):
    name = r.write("people.zip", zipped(a=r.csv, b=r.csv))
    r.refuses(name, "people.zip is an archive of 2 files (a.csv, b.csv): unpack it and give the")


def parquet(r):
    r.people.to_parquet(r.folder / "people.parquet")
    r.reads("people.parquet")


def arrow(r):
    r.people.to_feather(r.folder / "people.feather")
    r.reads("people.feather")


def with_gaps(r):
    r.people.loc[3, "Job"] = None
    r.csv = r.people.to_csv(index=False)
    return [
        {key: value for key, value in record.items() if i % 2 or value is not None}
        for i, record in enumerate(r.people.astype(object).to_dict("records"))
    ]


def json_array(r):
    r.reads(r.write("people.json", json.dumps(with_gaps(r), indent=1)))


def json_lines(r):
    r.reads(r.write("people.jsonl", "\n".join(map(json.dumps, with_gaps(r)))))


def nested_json(r):
    records = r.people.to_dict("records")
    records[4]["Job"] = {"title": "cook"}
    message = "key 'Job': holds an object, not one value: write one flat object a row"
    r.refuses(r.write("people.json", json.dumps(records)), f"people.json, record 5, {message}")
    lines = "\n".join(map(json.dumps, records))
    r.refuses(r.write("people.jsonl", lines), f"people.jsonl, line 5, {message}")


def excel(r):
    r.reads(r.excel("people.xlsx", people=r.people, empty=pd.DataFrame()))


def excel_without_extra(r):
    name = r.excel("people.xlsx", people=r.people)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mfairfl.data.files.excel.find_spec", lambda name: None)
        r.refuses(name, "people.xlsx is an Excel file, which openpyxl reads: pip install "
                  "'mfairfl[excel]', or save it as CSV")  # fmt: skip


def excel_with_sheets(r):
    name = r.excel("people.xlsx", **{"2023": r.people[:9], "2024": r.people})
    r.refuses(name, "people.xlsx has 2 sheets (2023, 2024): choose one with sheet= (--sheet, or")
    r.reads(name, "--sheet", "2024")


def excel_values(r):
    r.people["Born"] = [datetime(2024, 1, 31, 13, 5), datetime(1999, 12, 1)] * 120
    r.people["Member"] = [True, False] * 120
    name = r.excel("people.xlsx", people=r.people)
    r.people["Born"] = ["2024-01-31 13:05:00", "1999-12-01"] * 120
    r.csv = r.people.to_csv(index=False)
    assert "2024-01-31 13:05:00,True\n" in r.csv
    r.reads(name)


def excel_formulas(r):
    rows = [list(r.people.columns), *r.people.to_numpy().tolist()]
    rows[7][1] = "=40+2"
    r.cells("people.xlsx", *rows)
    r.refuses("people.xlsx", "the formula in cell B8 has no stored value: open the file")
    source, target = r.folder / "people.xlsx", r.folder / "stored.xlsx"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for part in old.namelist():
            formula = b"<f>40+2</f>"
            data = old.read(part)
            assert (formula in data) == (part == "xl/worksheets/sheet1.xml")
            stored = re.sub(re.escape(formula) + rb"<v\s*(/>|></v>)", formula + b"<v>42</v>", data)
            new.writestr(part, stored)
    r.people.loc[6, "Age"] = 42
    r.csv = r.people.to_csv(index=False)
    r.reads("stored.xlsx")


def excel_merged(r):
    book = r.cells("people.xlsx", list(r.people.columns), *r.people.to_numpy().tolist())
    book.active.merge_cells("C2:C4")
    book.save(r.folder / "people.xlsx")
    r.refuses("people.xlsx", "sheet 'Sheet': the cells C2:C4 are merged: split them")


def old_spreadsheets(r):
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
    r.refuses(r.write("people.xls", ole), "people.xls is an old (.xls) or a protected Excel file")
    with zipfile.ZipFile(r.folder / "people.ods", "w") as document:
        document.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        document.writestr("content.xml", "<x/>")
    r.refuses("people.ods", "people.ods is an OpenDocument file (.ods): save the table as CSV")


def folder(r):
    (r.folder / "parts").mkdir()
    for i in range(2):
        (r.folder / "parts" / f"part-{i}.csv").write_text(r.csv, encoding="utf-8")
    r.refuses("parts", "parts is a folder: give one file of it (part-0.csv, part-1.csv); parts of "
              "one table have to be joined into one file")  # fmt: skip


def other_files(r):
    connection = sqlite3.connect(r.folder / "people.db")
    connection.execute("create table people (age int)")
    connection.commit()
    connection.close()
    r.refuses("people.db", "people.db is an SQLite database: export the table as CSV")
    r.refuses(r.write("people.html", "<!doctype html>"), "people.html is a web page: save the")
    r.refuses(r.write("people.pdf", "%PDF-1.7"), "people.pdf is a PDF document: give the table")


def binary(r):
    r.refuses(r.write("people.csv", bytes(range(256)) * 9), "people.csv is not text (binary data)")
    r.refuses(
        r.write("people.csv", b"a,b\n1,\0\n"), "people.csv: not plain text (NUL at character"
    )


def nothing(r):
    for data in ("", "\n \n", gzip.compress(b"")):
        r.refuses(r.write("people.csv", data), "people.csv is empty: expected a header line and")


def only_a_header(r):
    head = r.csv.partition("\n")[0]
    r.refuses(r.write("people.csv", f"{head}\n"), "people.csv has a header but no rows")


def headless(r):
    """Return a file without names, and the flags that name columns by their numbers."""
    r.write("people.csv", r.people.to_csv(index=False, header=False))
    numbers = {column: f"column-{i}" for i, column in enumerate(r.people, 1)}
    return [numbers.get(word, word) for word in GIVEN]


def no_header(r):
    given = headless(r)
    made = r.cli("init", "--csv", "people.csv", *given, "--no-header", "--out", "my.toml")
    assert (made.code, made.err) == (0, "")
    assert "header = false" in (r.folder / "my.toml").read_text(encoding="utf-8")
    quick = ("--rounds", "1", "--hidden", "4", "--json")
    for out, source in {
        "a": ["my.toml"],
        "b": ["--csv", "people.csv", *given, "--no-header"],
    }.items():
        trained = r.cli("train", *source, *quick, "--out", out)
        assert (trained.code, trained.err) == (0, "")
        scored = r.cli("predict", out, "--csv", "people.csv", "--no-header", "--out", f"{out}.csv")
        assert (scored.code, scored.err) == (0, "")
        assert "measured on 48 test rows" in scored.out


def no_header_unsaid(r):
    headless(r)
    answer = r.init("people.csv")
    assert answer.code == 2
    warned, refused = answer.err.splitlines()
    assert warned.startswith("warning: people.csv: the first line looks like data (")
    assert warned.endswith("): give header=False (--no-header)")
    assert refused.startswith("error: people.csv: unknown column 'Hired'")


def odd_names(r):
    r.refuses(r.write("people.csv", r.csv.replace("Age", "Job", 1)),
              "people.csv: column name 'Job' occurs twice: rename one, or")  # fmt: skip
    r.refuses(r.write("people.csv", r.csv.replace("Age", "", 1)),
              "people.csv: column 2 has no name: name it in the header, or")  # fmt: skip


def blank_lines(r):
    r.reads(r.write("people.csv", "\n\n" + r.csv.replace("\n", "\n\n")))


def ragged(r):
    lines = r.csv.splitlines()
    lines[5] += ",more"
    r.refuses(r.write("people.csv", "\n".join(lines)),
              "people.csv, line 6: 7 fields where the header has 6: quote values")  # fmt: skip


def open_quote(r):
    lines = r.csv.splitlines()
    lines[5] = '"' + lines[5]
    r.refuses(r.write("people.csv", "\n".join(lines)), "people.csv, line 6: ")


def other_content(r):
    r.reads(r.write("people.parquet", r.csv))
    r.people.to_parquet(r.folder / "people.json")
    r.reads("people.json")
    r.reads(r.write("people.csv", r.people.to_json(orient="records")))
    r.reads(r.write("people.xlsx", r.people.to_csv(sep="\t", index=False)))


def data_as_settings(r):
    r.write("people.csv", r.csv)
    message = (
        "people.csv is data, not settings: mfairfl init --csv people.csv, or mfairfl train "
        "--csv people.csv --label … --favourable … --sensitive …\n"
    )
    for command in ("train", "tune"):
        assert r.cli(command, "people.csv") == (2, "", f"error: {message}")
    checked = r.cli("doctor", "people.csv")
    assert (checked.code, checked.out) == (2, f"fail  input: {message}")


def sheet_of(r, name, rows):
    """Write an Excel file with the XML of these rows, which says that it holds one cell."""
    book, sheet = r.folder / "one-cell.xlsx", "xl/worksheets/sheet1.xml"
    openpyxl.Workbook().save(book)
    names = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    around = (
        f'<worksheet xmlns="{names}"><dimension ref="A1"/><sheetData>%s</sheetData></worksheet>'
    )
    target = zipfile.ZipFile(r.folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with zipfile.ZipFile(book) as old, target as new:
        for part in old.namelist():
            new.writestr(part, around % rows if part == sheet else old.read(part))
    return name


def too_wide(r):
    names = [f"c{i}" for i in range(40_000)]
    refusal = "columns, more than the 16,384 that are read: leave columns out"
    r.refuses(r.write("wide.csv", ",".join(names) + "\n"), f"wide.csv has 40,000 {refusal}")
    record = json.dumps(dict.fromkeys(names, 1))
    r.refuses(r.write("wide.json", f"[{record}]"), f"wide.json has 40,000 {refusal}")
    one_each = "\n".join(json.dumps({name: 1}) for name in names)
    r.refuses(r.write("keys.json", one_each), f"keys.json has 16,385 {refusal}")
    table = pa.table({name: [1] for name in names[:16_385]})
    pyarrow.parquet.write_table(table, r.folder / "wide.parquet")
    r.refuses("wide.parquet", f"wide.parquet has 16,385 {refusal}")
    pyarrow.feather.write_feather(table, str(r.folder / "wide.feather"))
    r.refuses("wide.feather", f"wide.feather has 16,385 {refusal}")
    outside = '<row r="1"><c r="XFE1"><v>1</v></c></row>'
    r.refuses(sheet_of(r, "wide.xlsx", outside), f"wide.xlsx has 16,385 {refusal}")


def claimed_cells(r):
    refusal = "cells (rows × columns), more than the 1,073,741,824 that are read"
    first = json.dumps({f"c{i}": 1 for i in range(16_000)})
    name = r.write("gaps.json", first + '\n{"c1": 1}' * 100_000)
    r.refuses(name, f"gaps.json has 67,109 × 16,000 {refusal}")
    nulls = pa.table({"a": pa.nulls(2**30 + 1)})
    pyarrow.feather.write_feather(
        nulls, str(r.folder / "nulls.feather"), compression="uncompressed", chunksize=2**31 - 1
    )
    assert (r.folder / "nulls.feather").stat().st_size < 1000
    r.refuses("nulls.feather", f"nulls.feather has 1,073,741,825 × 1 {refusal}")
    constant = pa.table({f"c{i}": pa.nulls(2**20) for i in range(20)})
    pyarrow.parquet.write_table(constant, r.folder / "nulls.parquet")
    r.monkeypatch.setattr("mfairfl.data.files.records.MOST_CELLS", 20 * 2**20 - 1)
    r.refuses("nulls.parquet", "nulls.parquet has 1,048,576 × 20 cells")


def claimed_sheets(r):
    refusal = "sheet 'Sheet' has more than 1,048,576 rows or 67,108,864 cells: save the table as"
    far = '<row r="1"><c r="A1"><v>1</v></c></row><row r="{0}"><c r="A{0}"><v>1</v></c></row>'
    r.refuses(sheet_of(r, "far.xlsx", far.format(24_000_000)), f"far.xlsx, {refusal}")
    aside = "".join(f'<row r="{i}"><c r="XFD{i}"><v>1</v></c></row>' for i in range(1, 5000))
    r.refuses(sheet_of(r, "aside.xlsx", aside), f"aside.xlsx, {refusal}")
    name = sheet_of(r, "bomb.xlsx", "<row><c><v>1</v></c></row>" * 4_500_000)
    assert (r.folder / name).stat().st_size < 2_000_000
    r.refuses(name, "bomb.xlsx unpacks to 112 MiB, more than 100 times its size: save the table")


def larger_than_memory(r):
    with (r.folder / "huge.csv").open("wb") as file:
        file.truncate(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + 1
        )  # takes no room on the disk
    r.refuses("huge.csv", "huge.csv is larger than the memory of this machine (")


def no_file(r):
    os.mkfifo(r.folder / "pipe.csv")
    r.refuses("pipe.csv", "cannot read pipe.csv: not a regular file: give")
    r.refuses("/dev/zero", "cannot read /dev/zero: not a regular file: give")
    settings = (
        '[task]\nlabel = "y"\nfavourable = "1"\nsensitive = ["s"]\n[data]\ncsv = "pipe.csv"\n'
    )
    checked = r.cli("doctor", r.write("pipe.toml", settings))
    assert checked.code == 2
    assert "cannot read pipe.csv: not a regular file" in checked.err
    counted = r.cli("audit", "/dev/zero", "--label", "y", "--prediction", "d", "--sensitive", "s")
    assert counted.code == 2
    assert "cannot read /dev/zero: not a regular file" in counted.err


def no_settings(r):
    os.mkfifo(r.folder / "pipe.toml")
    with (r.folder / "huge.toml").open("wb") as file:
        file.truncate(5 << 20)
    for name, why in {
        "/dev/zero": "not a regular file",
        "pipe.toml": "not a regular file",
        "huge.toml": "File too large",
    }.items():
        message = f"{name}: cannot be read ({why}); give a TOML file of at most 4 MiB\n"
        assert r.cli("train", name) == (2, "", f"error: {message}")
        assert r.cli("doctor", name).out == f"fail  input: {message}"
    deep = r.write("deep.toml", "x = " + "[" * 100_000)
    assert "deep.toml: nested too deeply" in r.cli("train", deep).err


FILES = {
    "cells between commas, semicolons, tabs or pipes": usual_delimiters,
    "another delimiter": another_delimiter,
    "UTF-8, or UTF-16 and UTF-32 with a byte order mark": unicode,
    "another encoding": another_encoding,
    "gzip, xz, bzip2 or Zstandard": packed,
    "a zip archive of one file": archive_of_one,
    "a zip archive of several files": archive_of_several,
    "Parquet": parquet,
    "Arrow (Feather)": arrow,
    "JSON: an array of flat objects": json_array,
    "JSON: one flat object a line": json_lines,
    "JSON with an object or array inside a record": nested_json,
    "Excel (.xlsx) with one sheet that is not empty": excel,
    "Excel without the extra": excel_without_extra,
    "Excel with several sheets": excel_with_sheets,
    "Excel: dates, times, booleans": excel_values,
    "Excel: formulas": excel_formulas,
    "Excel: merged cells": excel_merged,
    "old Excel (.xls), OpenDocument (.ods)": old_spreadsheets,
    "a folder": folder,
    "a database, a web page, a PDF or the like": other_files,
    "binary data": binary,
    "nothing": nothing,
    "a header and no rows": only_a_header,
    "no header, and `--no-header` is given": no_header,
    "no header, but nothing is said": no_header_unsaid,
    "an empty or a repeated column name": odd_names,
    "blank lines": blank_lines,
    "a line with more or fewer cells than the header": ragged,
    "a quote that is never closed": open_quote,
    "something else than its name says": other_content,
    "data where settings belong: `mfairfl train people.csv`": data_as_settings,
    "more than 16,384 columns": too_wide,
    "JSON, Parquet or Arrow of more than 2³⁰ cells, absent keys included": claimed_cells,
    "Excel of more rows or cells than a sheet can well have": claimed_sheets,
    "more bytes than the machine has memory": larger_than_memory,
    "no file: a device, a pipe": no_file,
    "settings that are no file, or larger than 4 MiB": no_settings,
}


@pytest.mark.parametrize("line", FILES)
def test_what_a_file_may_be(reader, line):
    FILES[line](reader)
