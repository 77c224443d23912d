from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from answers import one_line
from mfairfl.data import (
    Bin,
    ColumnRules,
    Sensitive,
    Task,
    cells_of,
    features_frame,
    partition,
    read_table,
    table_from_frame,
    task_from_roles,
)
from mfairfl.errors import ConfigError, DataError, MfairflError

PEOPLE = """age,job,zip,sex,site,hired
31,clerk,007,f,north,yes
45,,010,m,south,no
?,smith,007,f,north,no
52,clerk,123,m,south,yes
27,smith,010,f,south,yes
60,smith,123,m,north,no
"""
AGES = (Bin(name="to 40", max=40), Bin(name="41-59", min=41, max=59))


def task(**changes: object) -> Task:
    return Task(**({"label": "hired", "favourable": "yes", "sensitive": ("sex",)} | changes))


def write(folder: Path, text: str = PEOPLE) -> Path:
    path = folder / "people.csv"
    path.write_text(text, encoding="utf-8")
    return path


def error(folder: Path, text: str, **changes: object) -> str:
    with pytest.raises(DataError) as caught:
        read_table(write(folder, text), task(**changes))
    message = one_line(caught)
    assert message.startswith("people.csv")
    return message


def test_a_table_holds_what_the_file_says(tmp_path):
    table = read_table(write(tmp_path), task(client="site"))
    assert len(table) == 6
    assert table.y.tolist() == [1, 0, 0, 1, 1, 0]
    assert table.y.dtype == np.int8
    assert table.groups.tolist() == [[0], [1], [0], [1], [0], [1]]
    assert table.groups.dtype == np.int16
    assert [(a.name, a.groups) for a in table.attributes] == [("sex", ("f", "m"))]
    assert table.clients.tolist() == ["north", "south", "north", "south", "south", "north"]
    assert list(table.X.columns) == ["age", "job", "zip", "sex"]
    np.testing.assert_array_equal(table.X["age"], [31, 45, np.nan, 52, 27, 60])
    assert table.X["age"].dtype == np.float64
    assert table.X["job"].tolist() == ["clerk", "?", "smith", "clerk", "smith", "smith"]
    assert table.X["zip"].tolist() == ["007", "010", "007", "123", "010", "123"]
    assert table.name == "people.csv"
    assert any("'job': 1 of 6 values missing" in note for note in table.notes)
    assert any("'age': 1 of 6 values missing" in note for note in table.notes)


def test_the_task_comes_back_resolved_and_reads_the_same_table(tmp_path):
    first = read_table(write(tmp_path), task(client="site"))
    assert first.task.resolved
    assert first.task.numeric == ("age",)
    assert first.task.categorical == ("job", "zip", "sex")
    assert first.task.unfavourable == "no"
    assert first.task.sensitive[0].groups == ("f", "m")
    assert not task().resolved
    again = read_table(tmp_path / "people.csv", first.task)
    pd.testing.assert_frame_equal(again.X, first.X)
    assert again.task == first.task


def test_a_resolved_task_accepts_a_file_that_lacks_values(tmp_path):
    whole = read_table(write(tmp_path), task(ignore=("site",)))
    part = read_table(write(tmp_path, "age,job,zip,sex,hired\n,clerk,007,m,no\n"), whole.task)
    assert part.y.tolist() == [0]
    assert part.groups.tolist() == [[1]]
    assert part.attributes == whole.attributes
    assert any("'f' (0), 'm' (1)" in note for note in part.notes)
    assert any("holds only 'no'" in note for note in part.notes)
    assert any("'age': 1 of 1 values missing" in note for note in part.notes)


def test_a_resolved_task_refuses_new_labels_and_groups(tmp_path):
    whole = read_table(write(tmp_path), task(ignore=("site",)))
    for row, words in [
        ("40,clerk,007,x,no", "line 2, column 'sex': unknown group 'x'"),
        ("40,clerk,007,f,maybe", "line 2, column 'hired': label 'maybe' is neither favourable"),
    ]:
        with pytest.raises(DataError, match=words):
            read_table(write(tmp_path, f"age,job,zip,sex,hired\n{row}\n"), whole.task)


def test_cells_are_the_c_order_ravel(tmp_path):
    sensitive = ("sex", Sensitive(column="age", bins=AGES, rest="60+", name="age3"))
    text = PEOPLE.replace("?", "40") + "61,smith,123,m,north,no\n"
    table = read_table(write(tmp_path, text), task(sensitive=sensitive))
    # ages 31 45 40 52 27 60 61; cell = 3 · sex + age group
    assert table.groups[:, 1].tolist() == [0, 1, 0, 1, 0, 2, 2]
    assert table.cells.tolist() == [0, 4, 0, 4, 0, 5, 5]
    assert table.attributes[1].groups == ("to 40", "41-59", "60+")


def frame(**columns: object) -> pd.DataFrame:
    base = {"age": [31, 45, 27, 52], "sex": list("fmfm"), "hired": [1, 0, 0, 1]}
    return pd.DataFrame(base | columns)


@pytest.mark.parametrize(
    ("sensitive", "values", "codes", "groups"),
    [
        ({}, ["b", "a", "b", "a"], [1, 0, 1, 0], ("a", "b")),
        ({}, [10, 9, 10, 9], [0, 1, 0, 1], ("10", "9")),
        ({}, [1.0, 0.0, 1.0, 0.0], [1, 0, 1, 0], ("0", "1")),
        ({}, [True, False, True, False], [1, 0, 1, 0], ("False", "True")),
        ({"groups": ("b", "a", "c")}, list("abab"), [1, 0, 1, 0], ("b", "a", "c")),
        ({"groups": ("b",), "rest": "other"}, list("bcbd"), [0, 1, 0, 1], ("b", "other")),
        ({"groups": ("b", "?")}, ["b", None, "b", ""], [0, 1, 0, 1], ("b", "?")),
        (
            {"bins": (Bin(name="w", values=("a", 2)),), "rest": "r"},
            ["a", "2.0", "b", "c"],
            [0, 0, 1, 1],
            ("w", "r"),
        ),
        (
            {"bins": (Bin(name="25-60", min=25, max=60),), "rest": "r"},
            [24.5, 25, 60, 61],
            [1, 0, 0, 1],
            ("25-60", "r"),
        ),
        (
            {"bins": (Bin(name="old", min=40), Bin(name="not told", values=("?", "secret")))},
            ["40", "?", "99", "secret"],
            [0, 1, 0, 1],
            ("old", "not told"),
        ),
        (
            {"bins": (Bin(name="o", min=40),), "rest": "y", "groups": ("y", "o")},
            [40, 39, 41, 1],
            [1, 0, 1, 0],
            ("y", "o"),
        ),
    ],
)
def test_groups(sensitive, values, codes, groups):
    table = table_from_frame(
        frame(s=pd.Series(values, dtype=object)),
        task(favourable=1, sensitive=(Sensitive(column="s", **sensitive),)),
        name="t",
    )
    assert table.groups[:, 0].tolist() == codes
    assert table.attributes[0].groups == groups


@pytest.mark.parametrize("favourable", [1, 1.0, "1", "1.0"])
@pytest.mark.parametrize(
    "hired", [[1, 0, 0, 1], [1.0, 0.0, 0.0, 1.0], list("1001"), ["1.0", "0"] * 2]
)
def test_the_favourable_value_is_found_however_it_is_stored(favourable, hired):
    table = table_from_frame(frame(hired=hired), task(favourable=favourable), name="t")
    assert table.y.tolist() == [int(float(h)) for h in hired]


def test_frames_of_pandas_and_polars_give_one_table():
    data = {"age": [31, None, 27, 52], "sex": list("fmfm"), "hired": [1, 0, 0, 1]}
    frames = [
        pd.DataFrame(data),
        pd.DataFrame(data).astype({"sex": object}),
        pd.DataFrame(data).astype({"sex": "string", "age": "Int64"}),
        pd.DataFrame(data).astype({"sex": "category"}),
        pl.DataFrame(data),
        pl.DataFrame(data).with_columns(pl.col("sex").cast(pl.Categorical)),
        pd.DataFrame({k: ["" if v is None else str(v) for v in vs] for k, vs in data.items()}),
    ]
    tables = [table_from_frame(f, task(favourable=1), name="t") for f in frames]
    for table in tables:
        np.testing.assert_array_equal(table.X["age"], [31, np.nan, 27, 52])
        assert table.X["sex"].tolist() == list("fmfm")
        assert table.y.tolist() == [1, 0, 0, 1]
        assert table.task.numeric == ("age",)
    assert len({table.sha256 for table in tables}) == 1


def test_the_hash_sees_values_names_and_borders():
    frames = [
        frame(),
        frame(age=[31, 45, 27, 53]),
        frame().rename(columns={"age": "years"}),
        frame(a=["x,y", "z", "p", "q"]),
        frame(a=["x", "y,z", "p", "q"]),
    ]
    hashes = {table_from_frame(f, task(favourable=1), name="t").sha256 for f in frames}
    assert len(hashes) == len(frames)
    assert table_from_frame(frame(), task(favourable=1), name="t", sha256="ab").sha256 == "ab"


@pytest.mark.parametrize(
    ("changes", "numeric", "categorical"),
    [
        ({}, ("age", "size"), ("sex", "zip")),
        ({"categorical": ("size",)}, ("age",), ("size", "sex", "zip")),
        ({"numeric": ("size",)}, ("size", "age"), ("sex", "zip")),
        ({"numeric": ("size",), "categorical": ()}, ("size",), ()),
        ({"ignore": ("age", "zip")}, ("size",), ("sex",)),
        ({"client": "size"}, ("age",), ("sex", "zip")),
        ({"sensitive_as_features": False}, ("age", "size"), ("zip",)),
        (
            {"numeric": ("age",), "categorical": ("sex",), "sensitive_as_features": False},
            ("age",),
            (),
        ),
        ({"numeric": ("zip",), "categorical": ("sex",)}, ("zip",), ("sex",)),
    ],
)
def test_roles(changes, numeric, categorical):
    given = frame(size=["1.5", "-2", "3e1", "NA"], zip=["007", "010", "100", "007"])
    resolved = table_from_frame(given, task(favourable=1, **changes), name="t").task
    assert (resolved.numeric, resolved.categorical) == (numeric, categorical)


def test_columns_without_a_role_are_noted():
    closed = task(favourable=1, numeric=("age",), categorical=())
    table = table_from_frame(frame(a=1, b=2), closed, name="t")
    assert any("left out: a, b" in note for note in table.notes)


def test_notes_for_the_auditor():
    n = 40
    given = pd.DataFrame(
        {
            "sex": [" f", "m"] * (n // 2),
            "hired": ["1.0", "1", "0", "0"] * (n // 4),
            "almost": [*map(str, range(n - 1)), "many"],
        }
    )
    table = table_from_frame(given, task(favourable=1), name="t")
    notes = "\n".join(table.notes)
    assert table.warnings == (
        "t: column 'almost': 39 of 40 values are numbers; row 39 holds 'many': read as missing",
    )
    assert "column 'sex': 20 values trimmed" in notes
    assert "column 'hired': 10 values trimmed" in notes


def test_dropped_rows_are_noted_and_everything_stays_aligned(tmp_path):
    table = read_table(write(tmp_path), task(missing="drop", client="site"))
    assert table.X["age"].tolist() == [31, 52, 27, 60]
    assert table.X.index.tolist() == [0, 1, 2, 3]
    assert table.y.tolist() == [1, 1, 1, 0]
    assert table.groups[:, 0].tolist() == [0, 1, 0, 1]
    assert table.clients.tolist() == ["north", "south", "south", "north"]
    # A third of the rows, and the base rate moves: more than a note.
    assert table.warnings == (
        "people.csv: 2 of 6 rows left out, missing values (age 1, job 1); hired = yes in 50.0% of "
        "the rows before, 75.0% now; rows left out by sex: f 1 of 3, m 1 of 3",
    )


def test_lines_stay_those_of_the_file_after_dropping_rows(tmp_path):
    text = PEOPLE.replace("52,clerk", "x,clerk")
    message = error(tmp_path, text, missing="drop", numeric=("age",))
    assert "line 5, column 'age': 'x' is not a number" in message


CASES = {
    "missing label column": (PEOPLE, {"label": "hire"}, ["'hire'", "did you mean 'hired'"]),
    "missing sensitive column": (PEOPLE, {"sensitive": ("sexx",)}, ["'sexx'", "'sex'"]),
    "missing feature column": (PEOPLE, {"numeric": ("agee",)}, ["'agee'", "'age'"]),
    "missing client column": (PEOPLE, {"client": "sit"}, ["'sit'", "'site'"]),
    "misspelt ignored column": (PEOPLE, {"ignore": ("jobb",)}, ["'jobb'", "'job'"]),
    "label with one value": (
        PEOPLE.replace(",no\n", ",yes\n"),
        {},
        ["label column 'hired'", "only 'yes'", "both values"],
    ),
    "label with many values": (
        PEOPLE,
        {"label": "age", "missing": "drop", "favourable": 31},
        ["label column 'age'", "'27', '31', '52', '60'", "exactly two"],
    ),
    "favourable value absent": (
        PEOPLE,
        {"favourable": "sure"},
        ["'hired'", "'sure'", "'no', 'yes'"],
    ),
    "constant sensitive column": (
        PEOPLE.replace(",m,", ",f,"),
        {},
        ["'sex' is constant", "'f'"],
    ),
    "group with one member": (
        PEOPLE.replace("60,smith,123,m", "60,smith,123,x"),
        {},
        ["'sex'", "group 'x' has one member", "bins"],
    ),
    "bin without a member": (
        PEOPLE.replace("?", "33"),
        {"sensitive": (Sensitive(column="age", bins=(*AGES, Bin(name="old", min=90)), rest="r"),)},
        ["'age'", "'old' has no member"],
    ),
    "value outside the bins": (
        PEOPLE.replace("?", "33"),
        {"sensitive": (Sensitive(column="age", bins=AGES),)},
        ["line 7, column 'age'", "'60'", "rest="],
    ),
    "text in a binned column": (
        PEOPLE.replace("?", "young"),
        {"sensitive": (Sensitive(column="age", bins=AGES, rest="r"),)},
        ["line 4, column 'age'", "'young' is not a number"],
    ),
    "missing label": (
        PEOPLE.replace("south,no", "south,"),
        {"missing": "error"},
        ["line 3, column 'hired'", "1 of 6 rows", "drop"],
    ),
    "missing sensitive value": (
        PEOPLE.replace(",m,", ",,"),
        {"missing": "error"},
        ["line 3, column 'sex'", "3 of 6 rows"],
    ),
    "missing value never falls into rest": (
        PEOPLE.replace("?", "NA"),
        {"sensitive": (Sensitive(column="age", bins=AGES, rest="r"),), "missing": "error"},
        ["line 4, column 'age'", "1 of 6 rows"],
    ),
    "missing client": (
        PEOPLE.replace("north", ""),
        {"client": "site", "missing": "error"},
        ["line 2, column 'site'", "3 of 6 rows"],
    ),
    "missing feature refused": (
        PEOPLE,
        {"missing": "error"},
        ["line 4, column 'age'", "1 of 6 rows", "'level'"],
    ),
    "text in a numeric column": (
        PEOPLE.replace("52", "fifty"),
        {"numeric": ("age",)},
        ["line 5, column 'age'", "'fifty' is not a number", "categorical"],
    ),
    "too large a number": (
        PEOPLE.replace("52", "1e101"),
        {"numeric": ("age",)},
        ["line 5, column 'age'", "1e101", "too large"],
    ),
    "infinity": (PEOPLE.replace("52", "-inf"), {"numeric": ("age",)}, ["line 5", "-inf", "large"]),
    "column without any value": (
        "a,sex,hired\n,f,yes\n?,m,no\n,f,no\n,m,yes\n",
        {},
        ["column 'a' has no value", "ignore"],
    ),
    "column without any value, rows dropped": (
        "a,sex,hired\n,f,yes\n,m,no\n,f,no\n,m,yes\n",
        {"missing": "drop"},
        ["column 'a' has no value", "ignore"],
    ),
    "every row dropped": (
        "a,sex,hired\n,f,yes\n1,,no\n2,m,\n,m,yes\n",
        {"missing": "drop"},
        ["every row", "'level'"],
    ),
    "no features": (
        PEOPLE,
        {"ignore": ("age", "job", "zip", "site"), "sensitive_as_features": False},
        ["no feature columns"],
    ),
    "too many groups": (
        "age,x,hired\n" + "".join(f"{i % 60},1,{i % 2}\n" for i in range(120)),
        {"sensitive": ("age",), "favourable": 1},
        ["'age' has 60 distinct values", "bins"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_tables(tmp_path, case):
    text, changes, words = CASES[case]
    message = error(tmp_path, text, **changes)
    assert all(word in message for word in words), message


def test_line_numbers_count_quoted_newlines(tmp_path):
    text = PEOPLE.replace("clerk,007", '"clerk\nand more",007').replace("60,", "old,")
    # One record before the bad one spans two lines: line 7 of the plain file is now line 8.
    assert "line 8, column 'age': 'old'" in error(tmp_path, text, numeric=("age",))


def test_nested_values_are_refused():
    with pytest.raises(DataError, match="column 'a' holds nested values"):
        table_from_frame(frame(a=[[1], [2], [3], [4]]), task(favourable=1), name="t")


def test_features_for_prediction_need_neither_label_nor_group():
    table = table_from_frame(
        frame(job=["clerk", "smith", None, "clerk"]),
        task(favourable=1, sensitive_as_features=False),
        name="t",
    )
    new = pl.DataFrame({"extra": [1, 2], "job": ["baker", None], "age": ["33", "NA"]})
    X = features_frame(new, table.task)
    assert list(X.columns) == ["age", "job"]
    np.testing.assert_array_equal(X["age"], [33, np.nan])
    assert X["job"].tolist() == ["baker", "?"]
    with pytest.raises(DataError, match=r"^new.csv lacks the column 'job': add it"):
        features_frame(new.drop("job"), table.task, name="new.csv")
    with pytest.raises(DataError, match=r"lacks the columns 'age', 'job': rename 'Aeg' if"):
        features_frame(new.drop("job").rename({"age": "Aeg"}), table.task, name="new.csv")
    with pytest.raises(ConfigError, match="no roles"):
        features_frame(new, task())


@pytest.mark.parametrize("policy", ["drop", "level", "error"])
def test_prediction_never_drops_rows(policy):
    resolved = table_from_frame(frame(), task(favourable=1, missing=policy), name="t").task
    new = pd.DataFrame({"age": [3, None], "sex": ["f", "m"]})
    if policy == "error":
        with pytest.raises(DataError, match=r"new\.csv, row 1, column 'age': value missing"):
            features_frame(new, resolved, name="new.csv")
    else:
        found = features_frame(new, resolved, name="new.csv")
        np.testing.assert_array_equal(found["age"], [3, np.nan])


# ------------------------------------------------------------------ not recorded


def with_gaps() -> Task:
    """A resolved task in which sex and age may be not recorded."""
    old = (Bin(name="old", min=40), Bin(name="?", values=("?",)))
    sensitive = (
        {"column": "sex", "groups": ("f", "m", "?")},
        {"column": "age", "bins": old, "rest": "young"},
    )
    rows = pd.DataFrame(
        {
            "job": list("ababa"),
            "sex": ["f", "m", None, "", "m"],
            "age": ["31", "?", "45", "20", "50"],
            "hired": [1, 0, 0, 1, 1],
        }
    )
    table = table_from_frame(rows, task(favourable=1, sensitive=sensitive), name="t")
    assert table.groups.tolist() == [[0, 2], [1, 1], [2, 0], [2, 2], [1, 0]]
    for column, gaps in (("sex", 2), ("age", 1)):  # one member is no small group
        note = f"t: sensitive column '{column}': not recorded in {gaps} of 5 rows"
        assert note in table.notes
    assert table.attributes == table.task.attributes
    assert table.attributes[1].recorded == ("old", "young")
    return table.task


def test_a_file_without_a_sensitive_column_has_it_missing_in_every_row():
    bare = pd.DataFrame({"job": ["a", "b"], "hired": [1, 0]})
    table = table_from_frame(bare, with_gaps(), name="bare")
    assert table.task == with_gaps()
    assert table.groups.tolist() == [[2, 1], [2, 1]]
    assert table.X["sex"].tolist() == ["?", "?"]
    assert np.isnan(table.X["age"]).all()
    assert "bare: sensitive column 'sex': not recorded in 2 of 2 rows" in table.notes
    pd.testing.assert_frame_equal(features_frame(bare, with_gaps()), table.X)
    assert cells_of(bare, with_gaps()).tolist() == table.cells.tolist() == [7, 7]


def test_a_column_of_nearly_the_name_is_taken_for_a_misspelt_one():
    odd = pd.DataFrame({"job": ["a"], "hired": [1], "Sex ": ["f"], "age": [3]})
    with pytest.raises(DataError, match=r"^odd: unknown column 'sex': did you mean 'Sex'"):
        table_from_frame(odd, with_gaps(), name="odd")
    for read in (features_frame, cells_of):
        with pytest.raises(DataError, match=r"^odd lacks the column 'sex': rename 'Sex' if"):
            read(odd, with_gaps(), name="odd")


def test_an_unresolved_task_needs_its_columns():
    sensitive = ({"column": "sex", "groups": ("f", "m", "?")},)
    with pytest.raises(DataError, match="unknown column 'sex'"):
        table_from_frame(frame().drop(columns="sex"), task(sensitive=sensitive), name="t")


def test_only_recorded_groups_are_missed_by_a_client():
    rows = frame(site=list("aabb"), sex=["f", "m", None, None])
    sensitive = ({"column": "sex", "groups": ("f", "?", "m")},)
    made = task(favourable=1, sensitive=sensitive, client="site")
    federation = partition(table_from_frame(rows, made, name="t"), "column", test=0.0)
    missed = [warning for warning in federation.warnings if "no train row" in warning]
    assert missed == ["b: no train row of sex f, m"]


ROLES = {"age": [31, 45, 27, 52], "sex": list("fmfm"), "site": list("aabb")}


@pytest.mark.parametrize(
    ("labels", "favourable"),
    [
        ([1, 0, 0, 1], "1"),
        ([1.0, -1.0, -1.0, 1.0], "1"),
        ([True, False, False, True], "True"),
        (["true", "false", "false", "true"], "true"),
    ],
)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_an_obvious_favourable_value_is_detected(frame, labels, favourable):
    rows = frame(ROLES | {"hired": labels})
    task = task_from_roles(rows, label="hired", sensitive="sex", client="site")
    assert task == Task(label="hired", favourable=favourable, sensitive=("sex",), client="site")
    table = table_from_frame(rows, task)
    assert table.y.tolist() == [1, 0, 0, 1]
    assert table.name == "frame"


def test_other_roles_are_those_of_the_task():
    rows = pd.DataFrame(ROLES | {"hired": ["yes", "no", "no", "yes"], "id": list("wxyz")})
    sex = Sensitive(column="sex", groups=("m", "f"))
    task = task_from_roles(
        rows, label="hired", favourable="yes", sensitive=[sex, "site"], ignore=("id",)
    )
    assert task == Task(label="hired", favourable="yes", sensitive=(sex, "site"), ignore=("id",))


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"sensitive": "sex"}, r"which column is predicted\? Pass label= \(columns: age, sex"),
        ({"label": "hired"}, r"fair for whom\? Pass sensitive= \(columns: age, sex"),
        (
            {"label": "hired", "sensitive": "sex"},
            r"which value of 'hired' .* Pass favourable= \(values: 'no', 'yes'\)",
        ),
        ({"label": "hire", "sensitive": "sex"}, "did you mean 'hired'"),
        ({"label": "hired", "favourable": "yes", "sensitive": "sexx"}, "did you mean 'sex'"),
        (
            {"label": "hired", "favourable": "yes", "sensitive": "sex", "client": "sit"},
            "did you mean 'site'",
        ),
        (
            {"label": "hired", "favourable": "yes", "sensitive": "sex", "ignored": ("id",)},
            "unknown key 'ignored': did you mean 'ignore'",
        ),
    ],
)
def test_roles_that_are_not_given_are_asked_for(roles, message):
    rows = pd.DataFrame(ROLES | {"hired": ["yes", "no", "no", "yes"]})
    with pytest.raises(MfairflError, match=message) as caught:
        task_from_roles(rows, **roles)
    assert "\n" not in str(caught.value)


def column_of(values: list[str], **more: list[str]) -> str:
    """Write a file with enough rows for every reading to be judged."""
    n = len(values)
    columns = {"x": values, "sex": ["f", "m"] * (n // 2), "hired": ["yes", "no", "no", "yes"]}
    columns["hired"] = (columns["hired"] * n)[:n]
    columns |= more
    rows = zip(*columns.values(), strict=True)
    return "\n".join([";".join(columns), *(";".join(row) for row in rows)]) + "\n"


def test_a_number_with_two_words_among_400_stays_the_feature_it_is(tmp_path):
    values = [f"{i * 1000:,}.00" for i in range(1, 401)]
    values[3], values[9] = "inf", "n/k"
    table = read_table(write(tmp_path, column_of(values)), task())
    assert table.task.numeric == ("x",)
    assert table.X["x"].iloc[0] == 1000.0
    assert table.X["x"].isna().tolist() == [i in (3, 9) for i in range(400)]
    assert table.warnings == (
        "people.csv: column 'x': 398 of 400 values are numbers; line 5 holds 'inf', line 11 holds "
        "'n/k': read as missing",
    )
    again = read_table(write(tmp_path, column_of(values)), table.task)
    assert again.task == table.task
    pd.testing.assert_frame_equal(again.X, table.X)


def test_the_same_numbers_are_read_from_every_notation(tmp_path):
    numbers = [round(1000.5 + 37.25 * i, 2) for i in range(40)]
    written = {
        "plain": [f"{x}" for x in numbers],
        "thousands": [f"{x:,}" for x in numbers],
        "german": [f"{x:,}".translate(str.maketrans(",.", ".,")) for x in numbers],
        "dollars": [f"${x:,.2f}" for x in numbers],
        "per cent": [f"{x} %" for x in numbers],
    }
    for texts in written.values():
        table = read_table(write(tmp_path, column_of(texts)), task())
        assert table.X["x"].tolist() == numbers
        assert table.warnings == ()


def test_missing_codes_of_the_file_and_of_a_column(tmp_path):
    text = column_of(["5", "-9", "7", "999"], job=["a", "-9", "none", "b"])
    rules = {"x": ColumnRules(missing_codes=("999",)), "job": ColumnRules(missing_codes=("none",))}
    table = read_table(write(tmp_path, text), task(missing_codes=(-9,), columns=rules))
    assert table.X["x"].isna().tolist() == [False, True, False, True]
    assert table.X["job"].tolist() == ["a", "?", "?", "b"]
    typed = pd.DataFrame({"x": [5, -9, 7, 8], "sex": list("fmfm"), "hired": [1, 0, 0, 1]})
    frame = table_from_frame(typed, task(favourable=1, missing_codes=("-9",)))
    assert frame.X["x"].isna().tolist() == [False, True, False, False]


def test_rows_are_left_out_for_a_missing_label_or_client_only(tmp_path):
    text = PEOPLE.replace("27,smith,010,f,south,yes", "27,smith,010,f,south,")
    text = text.replace("52,clerk,123,m,south", "52,clerk,123,m,")
    table = read_table(write(tmp_path, text), task(client="site"))
    assert table.y.tolist() == [1, 0, 0, 0]
    assert table.X["age"].isna().tolist() == [False, False, True, False]
    assert "2 of 6 rows left out, missing values (hired 1, site 1)" in table.warnings[0]


def test_a_few_rows_left_out_are_a_note_and_not_a_warning(tmp_path):
    values = [str(i) for i in range(200)]
    text = column_of(values).replace("\n17;m;no", "\n17;m;")
    table = read_table(write(tmp_path, text), task())
    assert not table.warnings
    assert "people.csv: 1 of 200 rows left out, missing values (hired 1)" in table.notes


def test_rows_whose_group_is_missing_are_not_recorded(tmp_path):
    ages = (Bin(name="to 40", max=40), Bin(name="older", min=41))
    both = (Sensitive(column="sex"), Sensitive(column="age", bins=ages))
    text = PEOPLE.replace("27,smith,010,f", "27,smith,010,")
    table = read_table(write(tmp_path, text), task(sensitive=both))
    assert [a.groups for a in table.attributes] == [("f", "m", "?"), ("to 40", "older", "?")]
    assert table.groups.tolist() == [[0, 0], [1, 1], [0, 2], [1, 1], [2, 0], [1, 1]]
    with pytest.raises(DataError, match="value missing, in 1 of 6 rows"):
        read_table(tmp_path / "people.csv", task(missing="error"))


def test_a_column_may_have_its_own_policy(tmp_path):
    rules = {"age": ColumnRules(missing="drop")}
    table = read_table(write(tmp_path), task(columns=rules))
    assert len(table) == 5
    assert table.X["job"].tolist()[1] == "?"


def test_dates_of_a_frame_and_of_a_file_are_the_same_numbers(tmp_path):
    days = pd.date_range("2024-01-30", periods=4)
    frame = pd.DataFrame({"x": days, "sex": list("fmfm"), "hired": [1, 0, 0, 1]})
    typed = table_from_frame(frame, task(favourable=1))
    text = column_of([f"{day:%Y-%m-%d}" for day in days])
    assert typed.X["x"].tolist() == read_table(write(tmp_path, text), task()).X["x"].tolist()
    assert typed.X["x"].tolist() == [19752, 19753, 19754, 19755]


def test_a_label_of_many_values_against_one(tmp_path):
    text = "num;sex;x\n" + "".join(f"{i % 5};{'fm'[i % 2]};{i}\n" for i in range(20))
    heart = task(label="num", favourable=0, others_unfavourable=True)
    table = read_table(write(tmp_path, text), heart)
    assert table.y.tolist() == [int(i % 5 == 0) for i in range(20)]
    assert table.task.unfavourable == "not 0"
    with pytest.raises(DataError, match=r"5 distinct values .*--others-unfavourable"):
        read_table(tmp_path / "people.csv", task(label="num", favourable=0))


def test_a_label_in_another_spelling_is_found_and_said(tmp_path):
    table = read_table(write(tmp_path), task(favourable="True"))
    assert table.y.tolist() == [1, 0, 0, 1, 1, 0]
    assert "people.csv: label column 'hired': 'yes' means 'True' (case and spelling aside)" in (
        table.notes
    )


def test_a_table_without_groups_has_one_cell(tmp_path):
    table = read_table(write(tmp_path), task(sensitive=()))
    assert table.attributes == ()
    assert table.groups.shape == (6, 0)
    assert table.cells.tolist() == [0] * 6
    assert table.task.resolved
    assert "sex" in table.task.categorical
    assert cells_of(pd.DataFrame({"sex": ["f", "m"]}), table.task).tolist() == [0, 0]


def test_the_hash_of_values_is_that_of_their_json():
    """Canonical texts of each column as JSON, column after column."""
    frame = pd.DataFrame(
        {
            "x": [1.0, None, 2.5, 1.0],
            "sex": ["f", " m ", "m", "f"],
            'odd "name"': ['a "b"\n', "é木", "", "?"],
            "hired": [True, False, True, False],
        }
    )
    written = [
        ["x", ["1", "?", "2.5", "1"]],
        ["sex", ["f", "m", "m", "f"]],
        ['odd "name"', ['a "b"', "é木", "?", "?"]],
        ["hired", ["True", "False", "True", "False"]],
    ]
    expected = hashlib.sha256("".join(map(json.dumps, written)).encode()).hexdigest()
    task = Task(label="hired", favourable=True, sensitive=("sex",))
    assert table_from_frame(frame, task).sha256 == expected
