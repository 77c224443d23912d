"""What silos withheld, in the record of a run: its place, its form, and from what it is made."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

import mfairfl
from federations import people_table
from mfairfl.errors import RunDirectoryError
from mfairfl.runs.record import DisclosureFacts, RunRecord, WithheldCell, read_record
from records import make_record

KNOWN = {"policy_sha256": "a" * 64, "min_rows": 10}


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
    cell = WithheldCell(split="train", cell={"sex": "M"}, label=1)
    facts = DisclosureFacts(**KNOWN, withheld=[cell], rows_withheld={"train": 4})
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
