"""What silos withheld, in the record of a run: its place, its form, and from what it is made."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

import mfairfl
from federations import people_table
from mfairfl.data import Attribute
from mfairfl.errors import DataError, RunDirectoryError
from mfairfl.runs.disclosure import disclosure_facts
from mfairfl.runs.record import DisclosureFacts, RunRecord, read_record
from records import make_record

SEX = Attribute("sex", ("F", "M"))
AGE = Attribute("age", ("young", "middle", "old"))
KNOWN = {"policy_sha256": "a" * 64, "min_rows": 10}


def test_sets_are_named_by_their_groups_in_the_order_of_splits_cells_and_labels():
    # Cells: F young, F middle, F old, M young, M middle, M old.
    train = [[0, 0], [0, 1], [0, 0], [1, 1], [0, 0], [0, 0]]
    test = [[0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [1, 0]]
    found = disclosure_facts(
        **KNOWN,
        attributes=[SEX, AGE],
        withheld={"test": test, "train": train},
        rows={"train": 17, "test": 3},
    )
    named = [(one.split, one.cell["sex"], one.cell["age"], one.label) for one in found.withheld]
    assert named == [
        ("train", "F", "middle", 1),
        ("train", "M", "young", 0),
        ("train", "M", "young", 1),
        ("test", "M", "old", 0),
    ]
    assert found.rows_withheld == {"train": 17, "test": 3}
    assert (found.policy_sha256, found.min_rows) == ("a" * 64, 10)


def test_a_silo_that_withheld_nothing_has_its_floor_all_the_same():
    found = disclosure_facts(**KNOWN, attributes=[SEX], withheld={}, rows={})
    assert found == DisclosureFacts(**KNOWN)


def test_an_array_of_other_cells_is_refused():
    with pytest.raises(DataError, match=r"withheld sets of test rows: \(3, 2\) is not"):
        disclosure_facts(**KNOWN, attributes=[SEX], withheld={"test": [[0, 1]] * 3}, rows={})


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy_sha256": "abc"},
        {"min_rows": 0},
        {"rows_withheld": {"train": -1}},
        {"rows_withheld": {"others": 1}},
        {"withheld": [{"split": "train", "cell": {"sex": "F"}, "label": 2}]},
        {"withheld": [{"split": "train", "cell": {"sex": "F"}}]},
        {"rows": {"train": 1}},
    ],
)
def test_what_cannot_be_is_refused(wrong, tmp_path):
    with pytest.raises(ValidationError):
        DisclosureFacts.model_validate(KNOWN | wrong)
    plain = json.loads(make_record().to_json())
    plain["federation"]["disclosure"] = {"west": KNOWN | wrong}
    (tmp_path / "run.json").write_text(json.dumps(plain))
    with pytest.raises(RunDirectoryError, match=r"federation\.disclosure\.west"):
        read_record(tmp_path)


@pytest.mark.parametrize("status", ["running", "complete"])
def test_it_is_written_and_read_under_the_silo_s_name(tmp_path, status):
    facts = disclosure_facts(
        **KNOWN, attributes=[SEX], withheld={"train": [[0, 0], [0, 1]]}, rows={"train": 4}
    )
    record = make_record(status=status, federation={"disclosure": {"west": facts}})
    record.write(tmp_path)
    plain = json.loads((tmp_path / "run.json").read_text())
    assert plain["federation"]["disclosure"] == {
        "west": {
            "policy_sha256": "a" * 64,
            "min_rows": 10,
            "withheld": [{"split": "train", "cell": {"sex": "M"}, "label": 1}],
            "rows_withheld": {"train": 4},
        }
    }
    assert read_record(tmp_path).federation.disclosure == {"west": facts}


def test_it_is_empty_for_rows_in_one_place_and_absent_in_earlier_records(tmp_path):
    run = mfairfl.train(people_table(), strategy="constant", rounds=0, out=tmp_path / "run")
    plain = json.loads((tmp_path / "run" / "run.json").read_text())
    assert plain["federation"].pop("disclosure") == {}
    (tmp_path / "run" / "run.json").write_text(json.dumps(plain))
    assert RunRecord.read(tmp_path / "run") == run.record
