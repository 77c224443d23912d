from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import one_line
from mfairfl.data import read_frame
from mfairfl.errors import DataError


def read(folder, text, name="people.json"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_frame(path)


def refused(folder, text):
    with pytest.raises(DataError) as caught:
        read(folder, text)
    return one_line(caught).removeprefix(f"{folder}/")


def test_values_are_what_a_csv_file_would_hold(tmp_path):
    text = (
        '[{"zip": "007", "n": 1.50, "big": 12345678901234567890, "ok": true, "gap": null},'
        ' {"zip": "é", "n": 1e3, "big": 7, "ok": false, "gap": NaN}]'
    )
    frame = read(tmp_path, text)
    assert frame.to_dict("list") == {
        "zip": ["007", "é"],
        "n": ["1.50", "1e3"],
        "big": ["12345678901234567890", "7"],
        "ok": ["True", "False"],
        "gap": ["", ""],
    }
    assert (frame.index.name, frame.index.tolist()) == ("record", [1, 2])


def test_one_object_a_line(tmp_path):
    frame = read(tmp_path, '\ufeff{"a": 1, "b": "x"}\r\n\n{"b": "y", "c": 3}\n', "people.ndjson")
    assert frame.to_dict("list") == {"a": ["1", ""], "b": ["x", "y"], "c": ["", "3"]}
    assert (frame.index.name, frame.index.tolist()) == ("line", [1, 3])


def test_one_object_over_several_lines_is_one_row(tmp_path):
    frame = read(tmp_path, json.dumps({"age": 31, "sex": "f"}, indent=2))
    assert frame.to_dict("list") == {"age": ["31"], "sex": ["f"]}


def test_what_pandas_writes_is_read(tmp_path):
    rows = pd.DataFrame({"age": [31, 45], "sex": ["f", None], "x": [0.1, 2.0]})
    for name, lines in (("a.json", False), ("b.jsonl", True)):
        rows.to_json(tmp_path / name, orient="records", lines=lines)
        assert read_frame(tmp_path / name).to_dict("list") == {
            "age": ["31", "45"],
            "sex": ["f", ""],
            "x": ["0.1", "2.0"],
        }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "people.json has no records"),
        ("[{}, {}]", "people.json: the objects are empty"),
        ("[1, 2]", "people.json, record 1: a single value in place of an object"),
        ('[{"a": 1}, [2]]', "people.json, record 2: an array in place of an object"),
        (
            '[{"a": 1}, {"a": {"b": 2}}]',
            "people.json, record 2, key 'a': holds an object, not one value",
        ),
        ('{"a": 1}\n\n{"a": [2]}\n', "people.json, line 3, key 'a': holds an array"),
        ('{"a": {"0": 1}, "b": {"0": 2}}', "people.json, line 1, key 'a': holds an object"),
        ('[{"a": 1, "a": 2}]', "people.json, record 1: the key 'a' occurs twice: rename one"),
        ('[{"a": 1, " a": 2}]', "people.json: column name 'a' occurs twice: rename one"),
        ('[{"": 1}]', "people.json: column 1 has no name"),
        ('[{"a": 1},\n {"a" 2}]', "people.json, line 2: not JSON (Expecting ':' delimiter"),
        ('{"a": 1}\n{"a": 2\n', "people.json, line 2: not JSON ("),
        ('{"a" 1}\n{"a": 2}\n', "people.json, line 1: not JSON (Expecting ':' delimiter"),
        ('{\n"a": 1,\n"b"}', "people.json, line 3: not JSON ("),
        ('[{"a": 1}] trailing', "people.json, line 1: not JSON (Extra data"),
        ("[" * 100_000, "people.json is nested too deeply"),
        ('{"a": ' + "[" * 100_000 + "\n", "people.json is nested too deeply"),
    ],
)
def test_other_json_is_refused_in_one_line(tmp_path, text, words):
    assert refused(tmp_path, text).startswith(words)


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
CELL = TEXT | st.integers() | st.booleans() | st.none()
RECORDS = st.lists(st.fixed_dictionaries({"a": CELL, "b": CELL}), min_size=1, max_size=8)


@given(RECORDS, st.booleans())
def test_any_flat_records_are_read_back(tmp_path_factory, records, lines):
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    frame = read(tmp_path_factory.mktemp("json"), text)
    for key in ("a", "b"):
        expected = ["" if record[key] is None else str(record[key]) for record in records]
        assert frame[key].tolist() == expected
