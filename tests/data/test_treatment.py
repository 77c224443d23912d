"""What was done to the rows is kept by kind, counted by hand here."""

from __future__ import annotations

import pandas as pd

import mfairfl
from mfairfl.data import (
    Task,
    federation_from_tables,
    partition,
    read_table,
    table_from_frame,
)

# Two rows lack a label, one an age, one has an age that is no number; "Yes" is another spelling.
ROWS = """age,job,fax,sex,hired
31,clerk,1,f,yes
45,smith,2,m,no
?,smith,3,f,no
x,clerk,4,m,Yes
27,clerk,5,f,
60,smith,6,m,
33,smith,7,f,no
39,smith,8,m,no
""" + "".join(f"{20 + i},smith,{i},{'fm'[i % 2]},no\n" for i in range(40))
TASK = Task(
    label="hired",
    favourable="yes",
    sensitive=("sex",),
    numeric=("age",),
    categorical=("job",),
)


def by_kind(treatment):
    found = {}
    for kind, line in treatment:
        found.setdefault(kind, []).append(line)
    return found


def test_a_file_s_lines_are_kept_by_what_was_done(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(ROWS, encoding="utf-8")
    table = read_table(path, TASK)
    found = by_kind(table.treatment)
    left_out, rows = found["dropped"]
    assert left_out == "people.csv: columns without a role, left out: fax"
    assert rows.startswith("people.csv: 2 of 48 rows left out, missing values (hired 2)")
    unread, filled = found["filled"]
    assert unread.endswith("46 of 47 values are numbers; line 5 holds 'x': read as missing")
    assert filled == (
        "people.csv: column 'age': 2 of 48 values missing, filled with the mean and marked"
    )
    assert found["merged"] == [
        "people.csv: label column 'hired': 'Yes' means 'yes' (case and spelling aside)",
    ]
    everything = {*table.notes, *table.warnings}
    assert {one.line for one in table.treatment} <= everything


def test_values_of_the_label_that_count_as_one_are_named():
    frame = pd.DataFrame({"x": range(6), "sex": list("fmfmfm"), "ill": [0, 1, 2, 0, 3, 0]})
    task = Task(label="ill", favourable=0, sensitive=("sex",), others_unfavourable=True)
    (line,) = by_kind(table_from_frame(frame, task).treatment)["merged"]
    assert line == "frame: label column 'ill': '1', '2', '3' all count as unfavourable"


def test_rows_of_no_client_are_dropped_and_tables_are_named():
    frame = pd.DataFrame({"x": range(300), "sex": list("fmm") * 100, "hired": [0, 1] * 150})
    task = Task(label="hired", favourable=1, sensitive=("sex",))
    table = table_from_frame(frame, task)
    # 50 and 10 of 100 women, 20, 40 and 20 of 200 men.
    (line,) = by_kind(partition(table, "cf-literal").treatment)["dropped"]
    assert line == "160 of 300 rows belong to no client"
    torn = pd.concat([frame, frame.assign(x=None).head(3)], ignore_index=True)
    both = {"north": table_from_frame(torn, table.task), "south": table}
    (filled,) = by_kind(federation_from_tables(both).treatment)["filled"]
    assert filled.startswith("north: frame: column 'x': 3 of 303 values missing")


def test_a_run_records_what_was_done_and_which_feature_tells_the_group(tmp_path):
    frame = pd.DataFrame({"x": range(200), "sex": list("fm") * 100})
    frame["title"] = frame["sex"].map({"f": "Ms", "m": "Mr"})
    frame["hired"] = (frame["x"] % 7 > 3).astype(int)
    frame.loc[:4, "hired"] = None
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    task = {"label": "hired", "favourable": 1, "sensitive": ["sex"]}
    config = {"data": {"csv": str(path)}, "task": {**task, "sensitive_as_features": False}}
    run = mfairfl.train(config=config, strategy="constant", rounds=0)
    found = by_kind((one.kind, one.line) for one in run.record.federation.treatment)
    assert found["dropped"] == ["people.csv: 5 of 200 rows left out, missing values (hired 5)"]
    (proxy,) = found["proxy"]
    assert proxy.startswith("column 'title' repeats a sensitive column that is kept out")
