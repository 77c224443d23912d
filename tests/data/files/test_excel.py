from __future__ import annotations

import datetime
import zipfile

import openpyxl
import pandas as pd
import pytest

from answers import one_line
from mfairfl.data import FileFormat, read_frame
from mfairfl.data.files import read_file
from mfairfl.errors import DataError

ROWS = [["age", "sex"], [31, "f"], [45, "m"]]


@pytest.fixture
def write(tmp_path):
    """Write sheets by name; `change` may do more to the book."""

    def call(change=lambda book: None, **sheets):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        change(book)
        book.save(tmp_path / "people.xlsx")
        return tmp_path / "people.xlsx"

    return call


def refused(path, **options):
    with pytest.raises(DataError) as caught:
        read_frame(path, **options)
    return one_line(caught).removeprefix(f"{path.parent}/")


def test_cells_are_what_a_csv_file_of_them_would_hold(write):
    born = datetime.datetime(2024, 1, 31)
    path = write(
        people=[
            ["n", "x", "ok", "born", "seen", "at", "zip", "error"],
            [31, 0.1, True, born, born.replace(hour=13, minute=5), datetime.time(8, 30), "007", 1],
            [-7, 2.5e-9, False, datetime.date(1999, 12, 1), None, None, " x ", "#DIV/0!"],
        ]
    )
    content = read_file(path)
    assert content.frame.to_numpy().tolist() == [
        ["31", "0.1", "True", "2024-01-31", "2024-01-31 13:05:00", "08:30:00", "007", "1"],
        ["-7", "2.5e-09", "False", "1999-12-01", "", "", " x ", "#DIV/0!"],
    ]
    assert (content.frame.index.name, content.frame.index.tolist()) == ("line", [2, 3])
    assert content.format == FileFormat(sheet="people")
    assert content.notes == ()


def test_what_pandas_writes_is_read_like_its_csv(tmp_path):
    rows = pd.DataFrame(
        {
            "age": [31.5, None, 45.25],
            "sex": ["f", "m", None],
            "ok": [True, False, True],
            "born": pd.to_datetime(["2024-01-31", "1999-12-01", None]),
        }
    )
    rows.to_excel(tmp_path / "people.xlsx", index=False)
    rows.to_csv(tmp_path / "people.csv", index=False)
    found, expected = read_frame(tmp_path / "people.xlsx"), read_frame(tmp_path / "people.csv")
    pd.testing.assert_frame_equal(found, expected)


def test_blank_rows_and_columns_around_the_table_do_not_count(write):
    def bold(book):  # formatted, but empty
        book["people"].cell(30, 9).font = openpyxl.styles.Font(bold=True)

    path = write(bold, people=[[], [], *ROWS[:2], [], ROWS[2]], Sheet2=[], Sheet3=[[None]])
    frame = read_frame(path)
    assert frame.to_dict("list") == {"age": ["31", "45"], "sex": ["f", "m"]}
    assert frame.index.tolist() == [4, 6]


def test_the_size_that_the_file_claims_is_not_believed(write, tmp_path):
    source = write(people=ROWS)
    target = tmp_path / "claims.xlsx"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b'<dimension ref="A1:B3"', b'<dimension ref="A1"'))
            assert (b'"A1:B3"' in data) == (name == "xl/worksheets/sheet1.xml")
    pd.testing.assert_frame_equal(read_frame(target), read_frame(source))


def test_a_sheet_is_chosen_by_name(write):
    path = write(**{"2023": ROWS, "2024": [*ROWS, [50, "f"]], "notes": [["by Ann"]]})
    assert refused(path) == (
        "people.xlsx has 3 sheets (2023, 2024, notes): choose one with sheet= (--sheet, or "
        'sheet = "2023" in TOML)'
    )
    assert len(read_frame(path, sheet="2024")) == 3
    assert refused(path, sheet="204").startswith(
        "people.xlsx: unknown sheet '204': did you mean '2024'?"
    )
    assert "is not an Excel file; remove sheet='x' (--sheet)" in refused_csv(path.parent)


def refused_csv(folder):
    (folder / "people.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    return refused(folder / "people.csv", sheet="x")


def test_a_sheet_without_names(write):
    path = write(people=ROWS[1:])
    frame = read_frame(path, header=False)
    assert frame.to_dict("list") == {"column-1": ["31", "45"], "column-2": ["f", "m"]}
    assert frame.index.tolist() == [1, 2]


def test_formulas_count_by_their_stored_value(write, tmp_path):
    source = write(people=[["age", "double"], [31, "=2*A2"], [None, 4]])
    assert refused(source) == (
        "people.xlsx, sheet 'people': the formula in cell B2 has no stored value: open the file "
        "in a spreadsheet program and save it"
    )
    target = tmp_path / "computed.xlsx"  # as a spreadsheet program would save it
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            stored = data.replace(b"<v />", b"<v>62</v>").replace(b"<v></v>", b"<v>62</v>")
            new.writestr(name, stored)
    assert read_frame(target)["double"].tolist() == ["62", "4"]


def test_merged_cells_are_refused_on_the_sheet_that_is_read(write):
    path = write(lambda book: book["b"].merge_cells("A2:A3"), a=ROWS, b=ROWS)
    assert refused(path, sheet="b") == (
        "people.xlsx, sheet 'b': the cells A2:A3 are merged: split them"
    )
    assert len(read_frame(path, sheet="a")) == 2


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "people.xlsx is empty"),
        ([["age", "sex"]], "people.xlsx has a header but no rows"),
        ([["People of 2024"], *ROWS], "people.xlsx: column 2 has no name"),
        ([["age", "age"], [1, 2]], "people.xlsx: column name 'age' occurs twice"),
    ],
)
def test_sheets_that_are_no_table(write, rows, words):
    assert refused(write(people=rows)).startswith(words)
    assert refused(write(people=rows, other=ROWS), sheet="people").startswith("people.xlsx")


@pytest.mark.parametrize(
    "part",
    [
        "[Content_Types].xml",
        "xl/workbook.xml",
        "xl/worksheets/sheet1.xml",
        "xl/styles.xml",
    ],
)
def test_a_damaged_workbook_is_refused_in_one_line(write, tmp_path, part):
    source, target = write(people=ROWS), tmp_path / "damaged.xlsx"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        assert part in old.namelist()
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data[: len(data) // 2] if name == part else data)
    assert refused(target).startswith("damaged.xlsx is not a readable Excel file (")


def test_without_the_extra_it_is_named(write, monkeypatch):
    path = write(people=ROWS)
    monkeypatch.setattr("mfairfl.data.files.excel.find_spec", lambda name: None)
    assert refused(path) == (
        "people.xlsx is an Excel file, which openpyxl reads: pip install 'mfairfl[excel]', or "
        "save it as CSV"
    )
