"""`mfairfl audit` as a user meets it: files, refusals, hostile names, and what predict wrote."""

from __future__ import annotations

import csv as csv_files
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import mfairfl
from mfairfl.errors import ConfigError, DataError
from mfairfl.report.document import Document

GIVEN = ("--label", "Y", "--prediction", "D", "--sensitive", "sex", "--sensitive", "race")
TABLES = ("--sex", "sex", "--race", "race")


@pytest.fixture
def predictions(tmp_path):
    """Decisions of a tool; some groups and labels are not known."""
    rng = np.random.default_rng(5)
    n = 600
    sex = rng.choice(["F", "M", ""], n, p=[0.4, 0.55, 0.05])
    score = np.clip(rng.random(n) * 0.8 + 0.15 * (sex == "M"), 0, 1).round(3)
    frame = pd.DataFrame(
        {
            "sex": sex,
            "race": rng.choice(["A", "B"], n, p=[0.7, 0.3]),
            "age": rng.integers(18, 80, n),
            "S": score,
            "D": (score > 0.5).astype(int),
            "Y": np.where(rng.random(n) < 0.1, "", (score + rng.normal(0, 0.3, n) > 0.5) * 1),
            "C": rng.choice(["north", "south"], n),
        }
    )
    frame.to_csv(tmp_path / "P.csv", index=False)
    return frame


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv_files.DictReader(file))


def test_the_fixed_call(cli, predictions, tmp_path):
    answer = cli("audit", "P.csv", *GIVEN, "--score", "S", "--client", "C", "--out", "A")
    assert (answer.code, answer.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "A").iterdir()) == [
        "audit.html", "audit.json", "clients.csv", "groups.csv", "measures.csv", "sweep.csv",
    ]  # fmt: skip
    assert "not an independent bias audit, and not legal advice" in answer.out
    assert "There is no verdict on demographic parity, because no tolerance was set" in answer.out
    assert "Not known: the sex of" in answer.out
    assert "favourable label: Y = 1" in answer.out
    assert answer.out.splitlines()[-1].startswith("files: A/ (")
    found = Document.read(tmp_path / "A")
    assert found.rows.counted == 600
    assert found.rows.labelled == (predictions["Y"] != "").sum()


def test_json_is_the_file(cli, predictions, tmp_path):
    answer = cli("audit", "P.csv", *GIVEN, "--out", "A", "--json")
    assert answer.out == (tmp_path / "A" / "audit.json").read_text(encoding="utf-8")
    assert json.loads(answer.out)["headline"]["title"] == "Audit of decisions"


def test_without_a_folder_nothing_is_written(cli, predictions, tmp_path):
    answer = cli("audit", "P.csv", *GIVEN)
    assert answer.code == 0
    assert "--out FOLDER" in answer.out
    assert [path.name for path in tmp_path.iterdir()] == ["P.csv"]


def test_tables_hold_the_documents_numbers(cli, predictions, tmp_path):
    flags = ("--tolerance", "0.05", "--tool", "ranker", "--data-kind", "test")
    assert cli("audit", "P.csv", *GIVEN, "--score", "S", *TABLES, *flags, "--out", "A").code == 0
    document = Document.read(tmp_path / "A")
    selection = table(tmp_path / "A" / "bias_sex_selection.csv")
    known = predictions[predictions.sex != ""]
    for row in selection[:2]:
        own = known[known.sex == row["category"]]
        assert int(row["applicants"]) == len(own)
        assert int(row["selected"]) == own.D.sum()
        assert float(row["selection_rate"]) == pytest.approx(own.D.mean(), abs=1e-15)
    assert selection[2]["category"] == "unknown category"
    assert int(selection[2]["applicants"]) == (predictions.sex == "").sum()
    scoring = table(tmp_path / "A" / "bias_race_scoring.csv")
    above = predictions.S.median() < predictions.S
    assert [int(row["above_median"]) for row in scoring[:2]] == [
        above[predictions.race == race].sum() for race in "AB"
    ]
    measures = {(r["attribute"], r["number"]): r for r in table(tmp_path / "A" / "measures.csv")}
    for one in document.overall:
        row = measures["", one.name]
        assert row["value"] == ("" if one.value is None else repr(one.value))
    assert ("sex × race", "demographic_parity_ratio") in measures
    groups = table(tmp_path / "A" / "groups.csv")
    assert [row["group"] for row in groups if row["attribute"] == "sex"] == ["F", "M"]
    assert document.headline.title == "Audit of ranker"
    assert document.settings.facts.data_kind == "test"
    sweep = table(tmp_path / "A" / "sweep.csv")
    assert len(sweep) == 101
    assert float(sweep[50]["selection_rate"]) == predictions.D.mean()


def test_an_audit_is_not_replaced_by_accident(cli, predictions, tmp_path):
    assert cli("audit", "P.csv", *GIVEN, "--score", "S", "--out", "A").code == 0
    again = cli("audit", "P.csv", *GIVEN, "--out", "A")
    assert again.code == 2
    assert "holds an audit" in again.err
    assert cli("audit", "P.csv", *GIVEN, "--out", "A", "--force").code == 0
    assert not (tmp_path / "A" / "sweep.csv").exists()  # it was the other audit's


def test_a_baseline(cli, predictions, tmp_path):
    assert cli("audit", "P.csv", *GIVEN, "--out", "A").code == 0
    predictions.assign(D=predictions.D.where(predictions.sex != "F", 0)).to_csv(
        tmp_path / "Q.csv", index=False
    )
    answer = cli("audit", "Q.csv", *GIVEN, "--baseline", "A", "--out", "B")
    assert answer.code == 0
    assert "changed by more than chance explains" in " ".join(answer.out.split())
    rows = table(tmp_path / "B" / "drift.csv")
    women = next(
        r
        for r in rows
        if (r["whom"], r["number"]) == ("F", "selection_rate") and r["part"] == "group"
    )
    assert float(women["after"]) == 0.0
    assert women["beyond_chance"] == "True"


REFUSED = [
    (("--prediction", "DD"), "unknown column 'DD': did you mean 'D'"),
    (("--sensitive", "sx"), "did you mean 'sex'"),
    (("--favourable", "good"), "'Y' holds 0, 1: a label has two values"),
    (("--selected", "hire"), "never holds 'hire'"),
    (("--sensitive", "age"), "62 values"),
    (("--sensitive", "age", "--bins", "age=60,40"), "ascending"),
    (("--sensitive", "age", "--bins", "age"), "write NAME=A,B"),
    (("--sensitive", "age", "--bins", "age=young"), "write NAME=A,B"),
    (("--score", "age"), "outside 0 to 1; say which scores are possible"),
    (("--score", "S", "--score-range", "1"), "write LOW,HIGH"),
    (("--threshold", "0.5"), "prediction and threshold"),
    (("--notion", "eqodds"), "unknown notion 'eqodds'"),
    (("--notion", "ap-loss"), "compares losses"),
    (("--tolerance", "2"), "tolerance"),
    (("--sex", "sex", "--race", "sex"), "as sex and as race"),
    (("--baseline", "P.csv"), "not readable JSON"),
    (("--baseline", "nowhere"), "not found; give the --out folder"),
    (("--out", "P.csv"), "is a file; give a folder"),
    (("--client", "race"), "'race' is named for two things"),
    (("--data-kind", "old"), "historical"),
    (("--delimiter", ";;"), "delimiter"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED, ids=[" ".join(f) for f, _ in REFUSED])
def test_refusals_are_one_line(cli, predictions, flags, message):
    given = dict(zip(GIVEN[::2], GIVEN[1::2], strict=True)) | {"--sensitive": "race"}
    repeated = {flag: value for flag, value in given.items() if flag not in flags}
    words = [word for pair in repeated.items() for word in pair]
    answer = cli("audit", "P.csv", *words, *flags)
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert answer.err.count("\n") == 1
    assert message in answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("sex,D\n", "has a header but no rows"),
        ("sex,D,D\nF,1,1\n", "column name 'D' occurs twice"),
        ("sex,D\nF,\nM,\n", "no row can be counted (no decision)"),
        ("sex,D\n,1\n,0\n", "sensitive column 'sex' has no value"),
    ],
)
def test_files_that_cannot_be_audited(cli, tmp_path, text, message):
    (tmp_path / "P.csv").write_text(text)
    answer = cli("audit", "P.csv", "--prediction", "D", "--sensitive", "sex")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert message in answer.err


def test_no_file(cli):
    answer = cli("audit", "nofile.csv", "--prediction", "D", "--sensitive", "sex")
    assert answer.code == 2
    assert "nofile.csv" in answer.err


def test_one_row_and_one_group_are_a_document(cli, tmp_path):
    (tmp_path / "P.csv").write_text("sex,D\nF,1\n")
    answer = cli("audit", "P.csv", "--prediction", "D", "--sensitive", "sex", "--tolerance", "0.1")
    assert answer.code == 0
    assert "there is only one group" in answer.out


HOSTILE = ["<script>alert(1)</script>", "=cmd|'/c calc'!A1", "line\nbreak", "\x1b[31mred", "a × b"]


def test_hostile_names(cli, tmp_path):
    """Names of columns, groups and clients that a page, a spreadsheet or a terminal would run."""
    rng = np.random.default_rng(0)
    column, client = "<img src=x onerror=alert(1)>", "@SUM(A1)"
    pd.DataFrame(
        {
            column: rng.choice(HOSTILE, 300),
            "D": rng.integers(0, 2, 300),
            client: rng.choice(["=1+1", "b"], 300),
        }
    ).to_csv(tmp_path / "P.csv", index=False)
    answer = cli(
        "audit", "P.csv", "--prediction", "D", "--sensitive", column, "--client", client,
        "--sex", column, "--tool", "<b>tool</b>", "--out", "A",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "\x1b" not in answer.out
    document = Document.read(tmp_path / "A")
    assert {g.name for g in document.sections[0].groups} == {
        h.replace("\n", "\n") for h in HOSTILE
    }
    page = (tmp_path / "A" / "audit.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "<b>tool" not in page
    for path in (tmp_path / "A").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv_files.reader(file):
                for cell in row:
                    assert not cell.startswith(("=", "+", "@", "\t", "\r")), (path.name, cell)


LABELS = [  # the favourable value as given and as files hold it, and the other one
    ("yes", "yes", "no"),
    ("No", "No", "Yes"),
    ("no", "No", "Yes"),
    (">50K", ">50K", "<=50K"),
    ("<=50K", "<=50K", ">50K"),
    ("0", 0, 1),
    ("1.0", 1.0, 0.0),
    ("0.0", 0.0, 1.0),
    ("-1", -1, 1),
    ("True", True, False),
    ("False", False, True),
    ("false", False, True),
    ("2", 2, 1),
]
DECIDES = ("--strategy", "fedavg", "--rounds", "4", "--seed", "4")
BY_FLAG = {"Hired": "label", "score": "score", "Gender": "sensitive", "Site": "client"}


def check_binary(cli, favourable, bad, told):
    """Of 0 and 1, predict refuses to write them, or the audit knows, or asks, what they mean."""
    written = ("--csv", "new.csv", "--out", "b.csv", "--keep", "Gender,Hired")
    answer = cli("predict", "run", *written, "--decisions", "binary")
    if str(bad) in ("Yes", "1", "1.0", "True"):
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "decision 1 would stand for" in answer.err
        return
    columns = ("--label", "Hired", "--prediction", "decision", "--sensitive", "Gender")
    answer = cli("audit", "b.csv", *columns, "--json")
    if answer.code:
        assert "which value of 'Hired' is good for a person" in answer.err
        answer = cli("audit", "b.csv", *columns, "--favourable", favourable, "--json")
    found = {one["name"]: one["value"] for one in json.loads(answer.out)["overall"]}
    assert found["accuracy"] == told["accuracy"]


@pytest.mark.parametrize(("favourable", "good", "bad"), LABELS, ids=[one[0] for one in LABELS])
def test_what_predict_wrote(cli, people, flags, favourable, good, bad):
    """Kept columns beside score, decision and favourable: nothing has to be explained."""
    was_hired = people["Hired"] == "yes"
    people["Hired"] = [good if hired else bad for hired in was_hired]
    people.to_csv("people.csv", index=False)
    new = people.sample(200, random_state=3)
    new.to_csv("new.csv", index=False)
    given = ("--favourable", favourable, *DECIDES, "--out", "run")
    assert cli("train", "--csv", "people.csv", *flags, *given).code == 0
    keep = ("--keep", "Gender,Site,Hired")
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "p.csv", *keep, "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)["metrics"]
    decided = pd.read_csv("p.csv", dtype=str)["decision"]
    selected = pd.read_csv("p.csv")["favourable"].to_numpy() == 1
    right = selected == was_hired[new.index].to_numpy()
    assert 0 < selected.mean() < 1
    for column in ("decision", "favourable"):
        roles = {role: name for name, role in BY_FLAG.items()}
        numbers = ["demographic_parity_violation", "equalized_odds_ratio", "loss"]
        if column == "favourable":  # once is enough for what needs scores: they take longest
            del roles["score"]
            numbers.remove("loss")
        named = [word for role, name in roles.items() for word in (f"--{role}", name)]
        answer = cli("audit", "p.csv", *named, "--prediction", column, "--json")
        assert answer.code == 0, answer.err
        document = json.loads(answer.out)
        found = {one["name"]: one["value"] for one in document["overall"]}
        assert found["accuracy"] == right.mean()
        for name in numbers:
            assert found[name] == pytest.approx(told[name], abs=1e-6), name  # scores are short
        meaning = document["settings"]["meaning"]
        assert {meaning["favourable"]} == set(decided[selected])
        assert meaning["selected"] == (meaning["favourable"] if column == "decision" else "1")
        in_python = mfairfl.audit(pd.read_csv("p.csv"), prediction=column, **roles)
        assert in_python.counts == Document.model_validate(document).counts
    check_binary(cli, favourable, bad, told)


def test_decisions_that_contradict_the_favourable_label_are_refused(cli, tmp_path):
    (tmp_path / "p.csv").write_text("sex,left,decision,favourable\nF,No,No,1\nM,Yes,Yes,0\n")
    given = ("--label", "left", "--prediction", "decision", "--sensitive", "sex")
    assert cli("audit", "p.csv", *given, "--favourable", "no").code == 0
    answer = cli("audit", "p.csv", *given, "--favourable", "yes")
    assert answer.code == 2
    assert answer.err == (
        "error: p.csv: favourable is 'yes', but the column 'favourable' says that deciding 'yes' "
        "is not; leave favourable (--favourable) out, or say which decision is (--selected)\n"
    )


# ------------------------------------------------------------------ rows that were trained on

OF_PEOPLE = ("--label", "Hired", "--prediction", "decision", "--sensitive", "Gender")


@pytest.fixture
def scores(cli, csv, flags, tmp_path):
    """What predict wrote of the file that the run was trained on; and the run's record."""
    given = (*flags, *DECIDES, "--set", "clients.validation=0.1")
    assert cli("train", "--csv", csv, *given, "--out", "run").code == 0
    keep = ("--keep", "Gender,Site,Hired")
    assert cli("predict", "run", "--csv", csv, "--out", "p.csv", *keep).code == 0
    return json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_train_rows_are_refused_unless_they_are_accepted(cli, scores, tmp_path):
    trained = sum(client["train"] for client in scores["federation"]["clients"])
    answer = cli("audit", "p.csv", *OF_PEOPLE, "--tolerance", "0.05", "--out", "A")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        f"error: p.csv: {trained} of 240 rows are train rows (column 'split'), on which a model "
        "looks better than on new ones: audit only test rows, split='test' (--split test), or "
        "accept train rows, split='all' (--split all)\n"
    )
    assert not (tmp_path / "A").exists()
    columns = {"label": "Hired", "prediction": "decision", "sensitive": "Gender"}
    with pytest.raises(DataError, match=f"{trained} of 240 rows are train rows"):
        mfairfl.audit("p.csv", **columns)
    for split in ("test", "validation", "train"):
        answer = cli("audit", "p.csv", *OF_PEOPLE, "--score", "score", "--split", split, "--json")
        assert answer.code == 0, answer.err
        document = Document.model_validate_json(answer.out)
        found = {one.name: one.value for one in document.overall}
        for name in ("accuracy", "demographic_parity_violation", "loss"):
            expected = scores["metrics"][split][name]
            assert found[name] == pytest.approx(expected, abs=1e-6), (split, name)
        count = document.rows.counted
        note = f"only rows of split '{split}' are counted: {count} of 240"
        assert note in document.sources[0].notes
        warned = [
            f"{count} of {count} rows are train rows" in w for w in document.headline.warnings
        ]
        assert any(warned) == (split == "train")
        in_python = mfairfl.audit("p.csv", **columns, score="score", split=split)
        assert in_python.to_json() == answer.out
    answer = cli("audit", "p.csv", *OF_PEOPLE, "--split", "all")
    assert answer.code == 0
    said = " ".join(answer.out.split())
    warning = f"{trained} of 240 rows are train rows: a model looks better on them than on new"
    assert warning in said
    assert said.index(warning) < said.index("accuracy")


def test_predict_and_audit_of_test_rows_need_no_flag_twice(cli, scores, csv):
    keep = ("--keep", "Gender,Hired", "--split", "test")
    assert cli("predict", "run", "--csv", csv, "--out", "t.csv", *keep).code == 0
    answer = cli("audit", "t.csv", *OF_PEOPLE, "--json")
    assert answer.code == 0, answer.err
    found = {one["name"]: one["value"] for one in json.loads(answer.out)["overall"]}
    assert found["accuracy"] == scores["metrics"]["test"]["accuracy"]


def test_unrelated_column_split_is_not_misread(cli, predictions, tmp_path):
    plain = cli("audit", "P.csv", *GIVEN, "--json")
    predictions["split"] = ["train", "A/B"] * 300
    predictions.to_csv(tmp_path / "P.csv", index=False)
    same = cli("audit", "P.csv", *GIVEN, "--json")
    assert json.loads(same.out)["counts"] == json.loads(plain.out)["counts"]
    answer = cli("audit", "P.csv", *GIVEN, "--split", "test")
    assert answer.code == 2
    assert "no column 'split' that holds train, validation, test and nothing else" in answer.err
    predictions["split"] = ["train", "test"] * 300
    predictions.to_csv(tmp_path / "P.csv", index=False)
    assert cli("audit", "P.csv", *GIVEN).code == 2
    assert cli("audit", "P.csv", *GIVEN, "--split", "validation").code == 2
    named = cli("audit", "P.csv", "--prediction", "D", "--sensitive", "split")
    assert named.code == 0, named.err
    with pytest.raises(ConfigError, match="unknown split 'tset': did you mean 'test'"):
        mfairfl.audit("P.csv", prediction="D", sensitive="sex", split="tset")


def test_excel(cli, predictions, tmp_path):
    predictions.to_excel(tmp_path / "P.xlsx", index=False)
    answer = cli("audit", "P.xlsx", *GIVEN, "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["rows"]["counted"] == 600


@pytest.mark.slow
def test_an_audit_does_not_wait_for_torch(predictions, tmp_path):
    code = (
        "import sys; from mfairfl.cli import main\n"
        f"assert main({['audit', 'P.csv', *GIVEN, '--score', 'S', *TABLES, '--out', 'A']}) == 0\n"
        "slow = {'torch', 'matplotlib', 'flwr', 'optuna', 'sklearn'}\n"
        "assert not slow & sys.modules.keys(), slow & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_python_prints_and_writes_the_same(cli, predictions, tmp_path):
    answer = cli("audit", "P.csv", *GIVEN, "--out", "A")
    document = mfairfl.audit(
        tmp_path / "P.csv", label="Y", prediction="D", sensitive=["sex", "race"]
    )
    assert answer.out.startswith(str(document))
    document.write(tmp_path / "B")
    names = sorted(path.name for path in (tmp_path / "A").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "B").iterdir())
    for name in names:
        assert (tmp_path / "A" / name).read_bytes() == (tmp_path / "B" / name).read_bytes()
