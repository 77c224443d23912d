"""What docs/data.md says about rows to predict, line by line."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

import mfairfl
from hired_people import GIVEN, TASK
from mfairfl import fairness
from mfairfl.data import partition, read_table
from mfairfl.errors import DataError

TRAINED = (
    *("--rounds", "6", "--local-epochs", "2", "--batch-size", "20", "--hidden", "4"),
    *("--weight-decay", "3", "--set", "encoder.numeric=standard"),
)


class Model:
    """A trained model and its user, who predicts rows of a changed table."""

    def __init__(self, cli, people, folder, trained):
        self.cli, self.people, self.folder, self.trained = cli, people, folder, trained

    def train(self, *flags, **changes):
        """Train on the table, changed; without flags and changes, one model serves all cases."""
        # With another delimiter: the same rows in another file are not known again.
        self.people.assign(**changes).to_csv(self.folder / "train.csv", sep=";", index=False)
        plain = not flags and not changes
        if plain and self.trained.exists():
            shutil.copytree(self.trained, self.folder / "run")
            return
        flags = (*TRAINED, "--lr", "0.05", *flags, "--seed", "4", "--out", "run")
        answer = self.cli("train", "--csv", "train.csv", *GIVEN, *flags)
        assert answer.code == 0, answer.err
        if plain:
            shutil.copytree(self.folder / "run", self.trained)

    def predict(self, rows, *flags, out="scores.csv"):
        rows.to_csv(self.folder / "new.csv", index=False)
        return self.cli("predict", "run", "--csv", "new.csv", "--out", out, "--force", *flags)

    def scores(self, rows, *flags):
        """Return what is written and what is said, in JSON and in words."""
        told = self.predict(rows, *flags)
        assert (told.code, told.err) == (0, "")
        answer = self.predict(rows, *flags, "--json")
        assert (answer.code, answer.err) == (0, "")
        # By Python: not every pandas reads a number to its last bit.
        written = pd.read_csv(self.folder / "scores.csv", converters={"score": float})
        assert written["row"].tolist() == list(range(len(rows)))
        found = json.loads(answer.out)
        said = [line for line in told.out.splitlines() if line.startswith("note: ")]
        assert said == [f"note: {note}" for note in found["notes"]]
        return written, found

    def refuses(self, rows, message, *flags, out="scores.csv"):
        answer = self.predict(rows, *flags, out=out)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        assert message in answer.err
        assert not (self.folder / out).exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Where the run of the plain table is kept once a case has trained it."""
    return tmp_path_factory.mktemp("trained") / "run"


@pytest.fixture
def model(cli, people, tmp_path, trained):
    return Model(cli, people, tmp_path, trained)


def train_mean(m, column):
    """The mean over the rows the run trained on."""
    table = read_table(m.folder / "train.csv", TASK)
    rows = partition(table, "column", seed=4).pooled("train").rows
    return m.people[column].to_numpy()[rows].mean()


def missing_number(m):
    m.train()
    mean = train_mean(m, "Age")
    rows = m.people.astype({"Age": float})
    rows.loc[[0, 7, 9], "Age"] = None
    written, found = m.scores(rows)
    assert found["missing"] == {"Age": 3}
    assert found["notes"] == [
        f"Age: 3 of 240 values missing, filled with the mean of training ({mean:.6g})"
    ]
    filled, none = m.scores(rows.fillna({"Age": mean}))
    assert (none["missing"], none["unseen"], none["notes"]) == ({}, {}, [])
    pd.testing.assert_frame_equal(written, filled)


def missing_level(m):
    jobs = m.people["Job"].where(m.people.index % 5 > 0)
    m.train(Job=jobs)
    rows = m.people.assign(Job=jobs)
    written, found = m.scores(rows)
    assert (found["missing"], found["unseen"]) == ({"Job": 48}, {})
    assert found["notes"] == ["Job: 48 of 240 values missing, the level '?', as in training"]
    pd.testing.assert_frame_equal(written, m.scores(rows.fillna({"Job": "?"}))[0])
    assert (written["score"] != m.scores(rows.fillna({"Job": "cook"}))[0]["score"]).any()


def missing_category(m):
    m.train()
    rows = m.people.copy()
    rows.loc[:3, "Job"] = None
    written, found = m.scores(rows)
    assert (found["missing"], found["unseen"]) == ({"Job": 4}, {})
    assert found["notes"] == ["Job: 4 of 240 values missing, taken for no level"]
    assert len(written) == 240


def unseen_category(m):
    m.train()
    rows = m.people.copy()
    rows.loc[:5, "Job"] = ["pilot", "chef", "pilot", "judge", "baker", "pilot"]
    rows.loc[9, "Gender"] = "x"
    written, found = m.scores(rows.drop(columns="Hired"))
    assert found["missing"] == {}
    assert found["unseen"] == {
        "Job": {"pilot": 3, "chef": 1, "judge": 1, "baker": 1},
        "Gender": {"x": 1},
    }
    assert found["notes"] == [
        "Job: 6 of 240 values not seen in training ('pilot' 3, 'chef' 1, 'judge' 1, ...), taken "
        "for no level",
        "Gender: 1 of 240 values not seen in training ('x' 1), taken for no level",
    ]
    unknown = rows.assign(Job=rows["Job"].replace("pilot", "juggler"))
    pd.testing.assert_frame_equal(written, m.scores(unknown.drop(columns="Hired"))[0])


def text_for_number(m):
    m.train()
    rows = m.people.astype({"Age": object})
    rows.loc[3, "Age"] = "old"
    _, found = m.scores(rows)
    assert found["missing"] == {"Age": 1}
    assert found["notes"][0] == (
        "new.csv: column 'Age': 239 of 240 values are numbers; line 5 holds 'old': read as missing"
    )


def texts_for_numbers(m):
    m.train()
    rows = m.people.astype({"Age": object})
    rows.loc[3:100, "Age"] = [f"about {age}" for age in rows.loc[3:100, "Age"]]
    m.refuses(rows, "new.csv, line 5, column 'Age': 'about")


def missing_column(m):
    m.train()
    m.refuses(m.people.drop(columns="Age"), "error: new.csv lacks the column 'Age': add it (there "
              "are Score, Job, Gender, Site, Hired)\n")  # fmt: skip
    m.refuses(m.people.rename(columns={"Age": "age", "Job": "work"}),
              "error: new.csv lacks the columns 'Age', 'Job': rename 'age' if it is "
              "meant\n")  # fmt: skip


def unused_columns(m):
    m.train()
    plain, _ = m.scores(m.people)
    rows = m.people.assign(id=[f"{i:03}" for i in range(240)], **{"full, name": "=1+1"})
    assert m.scores(rows)[0].columns.tolist() == ["row", "score", "decision", "favourable"]
    for flags in (["--keep", "id,Job"], ["--keep", "id", "--keep", "Job"]):
        written, found = m.scores(rows, *flags)
        assert written.columns.tolist() == [
            "row", "id", "Job", "score", "decision", "favourable"
        ]  # fmt: skip
        assert found["kept"] == ["id", "Job"]
        assert written["Job"].tolist() == rows["Job"].tolist()
        text = (m.folder / "scores.csv").read_text(encoding="utf-8")
        assert text.splitlines()[8].startswith("7,007,")
        pd.testing.assert_frame_equal(written.drop(columns=["id", "Job"]), plain)
    written, _ = m.scores(rows, "--keep", "full, name")
    # A spreadsheet would run it.
    assert written["full, name"].tolist() == ["'=1+1"] * 240
    (m.folder / "scores.csv").unlink()
    m.refuses(rows, "new.csv lacks the column 'ids': rename 'id' if it is meant", "--keep", "ids")
    m.refuses(rows.assign(score=1), "new.csv: the column 'score' cannot be kept: the scores have "
              "one of that name; rename it", "--keep", "score")  # fmt: skip


def labels(m):
    m.train()
    written, found = m.scores(m.people)
    assert set(written["decision"]) == {"yes", "no"}
    assert found["measured_rows"] == 240
    assert found["metrics"]["accuracy"] == (written["decision"] == m.people["Hired"]).mean()


def some_labels(m):
    m.train()
    rows = m.people.copy()
    rows.loc[:99, "Hired"] = None
    assert m.scores(rows)[1]["measured_rows"] == 140


def third_label(m):
    m.train()
    rows = m.people.copy()
    rows.loc[5, "Hired"] = "perhaps"
    answer = m.predict(rows)
    assert answer.code == 0
    assert answer.err.startswith("warning: scores are written but not measured: new.csv, line 7")
    assert len(pd.read_csv(m.folder / "scores.csv")) == 240


def missing_group(m):
    m.train("--strategy", "fedavg-threshold")
    rows = m.people.copy()
    rows.loc[4, "Gender"] = None
    m.refuses(rows, "error: new.csv, line 6, column 'Gender': value missing, in 1 of 240 rows: "
              "fill it in: decisions depend on the group\n")  # fmt: skip


def parquet_out(m):
    m.train()
    rows = m.people.assign(id=[f"{i:03}" for i in range(240)])
    expected, _ = m.scores(rows)
    assert m.predict(rows, "--keep", "id", out="scores.parquet").code == 0
    found = pd.read_parquet(m.folder / "scores.parquet")
    assert found["id"].tolist() == rows["id"].tolist()
    assert found["score"].tolist() == expected["score"].tolist()
    assert found["decision"].tolist() == expected["decision"].tolist()
    assert found["favourable"].tolist() == expected["favourable"].tolist()
    m.refuses(rows, "error: scores.xlsx: cannot write '.xlsx'; let --out end in .csv or .parquet",
              out="scores.xlsx")  # fmt: skip
    rows.to_parquet(m.folder / "new.parquet")
    answer = m.cli("predict", "run", "--csv", "new.parquet", "--out", "again.pq", "--keep", "id")
    assert answer.code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(m.folder / "again.pq"), found)


def threshold(m):
    m.train()
    plain, _ = m.scores(m.people)
    assert plain["score"].between(0.3, 0.5).any()
    for share in (0.0, 0.3, 0.5, 0.8, 1.0):
        written, found = m.scores(m.people, "--threshold", str(share))
        assert written["score"].tolist() == plain["score"].tolist()
        assert written["favourable"].tolist() == (plain["score"] > share).astype(int).tolist()
        assert (written["decision"] == "yes").tolist() == (written["favourable"] == 1).tolist()
        right = (written["decision"] == m.people["Hired"]).mean()
        assert (found["metrics"]["accuracy"], found["threshold"]) == (right, share)
    said = m.predict(m.people, "--threshold", "0.3").out
    assert "decided above 0.3; the run measured decisions above 0.5" in said.splitlines()
    (m.folder / "scores.csv").unlink()
    for odd in ("1.5", "-0.1", "nan"):
        m.refuses(m.people, f"threshold {odd}: give a number from 0 to 1", "--threshold", odd)


def no_threshold(m):
    m.train("--strategy", "fedavg-threshold")
    message = "error: threshold 0.3: this model decides {}; remove threshold= (--threshold)"
    m.refuses(m.people, message.format("by fitted thresholds"), "--threshold", "0.3")
    m.folder.joinpath("run").rename(m.folder / "first")
    mixed = ("--output-rule", "mixture", "--tolerance", "0.02", "--rounds", "8")
    m.train("--strategy", "fedavg", *mixed, "--local-epochs", "1", "--batch-size", "512")
    m.refuses(m.people, message.format("at random"), "--threshold", "0.3")


def decisions(m):
    m.train()
    written, _ = m.scores(m.people)
    assert set(written["decision"]) == {"yes", "no"}
    for how, values in (("labels", {"yes": 1, "no": 0}), ("binary", {1: 1, 0: 0})):
        written, _ = m.scores(m.people, "--decisions", how)
        assert written["decision"].map(values).tolist() == written["favourable"].tolist()
    answer = m.predict(m.people, "--decisions", "perhaps")
    assert answer.code == 2
    assert "'perhaps' is not one of 'labels', 'binary'" in answer.err
    for name in ("run", "scores.csv"):
        (m.folder / name).rename(m.folder / f"first-{name}")
    m.train("--favourable", "no")
    message = "decision 1 would stand for 'no', but reads as 'yes'"
    m.refuses(m.people, message, "--decisions", "binary")


def training_file(m):
    m.train()
    answer = m.cli("predict", "run", "--csv", "train.csv", "--out", "scores.csv")
    assert answer.out.startswith("warning: train.csv is the file that the run was trained on")
    written = pd.read_csv(m.folder / "scores.csv")
    rows = (
        partition(read_table(m.folder / "train.csv", TASK), "column", seed=4).pooled("test").rows
    )
    assert written.index[written["split"] == "test"].tolist() == sorted(rows)
    assert f"measured on {len(rows)} test rows" in answer.out
    assert "split" not in m.scores(m.people)[0]


def split_test(m):
    m.train()
    flags = ("--csv", "train.csv", "--split", "test", "--out", "scores.csv", "--json")
    found = json.loads(m.cli("predict", "run", *flags).out)
    written = pd.read_csv(m.folder / "scores.csv")
    record = json.loads((m.folder / "run" / "run.json").read_text())
    assert set(written["split"]) == {"test"}
    assert found["rows"] == found["measured_rows"] == len(written)
    assert found["metrics"]["accuracy"] == record["metrics"]["test"]["accuracy"]
    (m.folder / "scores.csv").unlink()
    m.refuses(m.people, "new.csv: not the file that the run was trained on", "--split", "test")


PREDICTED = {
    "a missing number": missing_number,
    "a missing category, and training had some": missing_level,
    "a missing category, and training had none": missing_category,
    "a category that training did not see": unseen_category,
    "text in a few cells of a column of numbers": text_for_number,
    "text in many cells of a column of numbers": texts_for_numbers,
    "a column is missing": missing_column,
    "columns that the model does not use": unused_columns,
    "labels": labels,
    "the file that the run was trained on": training_file,
    "rows without a label": some_labels,
    "a label of a third value": third_label,
    "a missing group, and decisions depend on it": missing_group,
}
OPTIONS = {
    "`--out scores.parquet`": parquet_out,
    "`--split test`": split_test,
    "`--threshold 0.3`": threshold,
    "`--threshold`, and decisions are random or depend on the group": no_threshold,
    "`--decisions binary`": decisions,
}


@pytest.mark.parametrize("line", [*PREDICTED, *OPTIONS])
def test_rows_to_predict(model, line):
    (PREDICTED | OPTIONS)[line](model)


def test_python_predicts_as_the_command_does(model):
    model.train()
    rows = model.people.assign(id=range(240))
    rows.loc[3, "Job"] = None
    loaded = mfairfl.load(model.folder / "run")
    read = loaded.read(rows, name="new.csv")
    flags = ["--keep", "id", "--threshold", "0.4"]
    for labels in (True, False):
        told = ["--decisions", "labels" if labels else "binary"]
        written, found = model.scores(rows, *flags, *told)
        for source in (rows, read, model.folder / "new.csv"):
            frame = loaded.predict_frame(source, keep=["id"], threshold=0.4, labels=labels)
            pd.testing.assert_frame_equal(
                frame.astype({"id": int}), written, check_dtype=False, rtol=0, atol=1e-15
            )
            decided = loaded.predict(source, threshold=0.4, labels=labels)
            assert decided.tolist() == written["decision"].tolist()
            assert (
                fairness.accuracy(loaded.evaluate(source, threshold=0.4))
                == found["metrics"]["accuracy"]
            )
        assert list(read.notes) == found["notes"]
        assert (read.missing, read.unseen) == (found["missing"], found["unseen"])
    assert loaded.predict_frame(rows, keep="id")["id"].tolist() == list(range(240))
    path = model.folder / "few.csv"
    rows.drop(columns="Age").to_csv(path, index=False)
    for source, name in ((path, path), (rows.drop(columns="Age"), "the frame")):
        with pytest.raises(DataError, match=f"^{name} lacks the column 'Age'"):
            loaded.predict_frame(source)
