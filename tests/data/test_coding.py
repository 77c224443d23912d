"""Label values: exact where that tells two apart, else by what they say."""

from __future__ import annotations

import pytest

from mfairfl.data import Task
from mfairfl.data.coding import label_codes


def codes(favourable, *found, **changes):
    task = Task(label="y", favourable=favourable, sensitive=("s",), **changes)
    return label_codes(found, task)


@pytest.mark.parametrize("favourable", ["true", "True", "1", "1.0", 1, True, "yes", "Y"])
@pytest.mark.parametrize("found", [("True", "False"), ("yes", "no"), ("1", "0"), ("TRUE", "0")])
def test_spellings_of_one_answer_are_one_value(favourable, found):
    assert codes(favourable, *found) == {found[0]: 1, found[1]: 0}


def test_spellings_that_differ_in_a_file_are_two_values():
    assert codes("yes", "yes", "1") == {"yes": 1, "1": 0}
    assert codes("Yes", "yes", "Yes") == {"Yes": 1, "yes": 0}


def test_several_spellings_in_one_file_are_taken_together():
    found = codes("yes", "Yes", "yes", "true", "No", "0")
    assert found == {"Yes": 1, "yes": 1, "true": 1, "No": 0, "0": 0}


def test_others_are_unfavourable_only_if_that_is_said():
    assert codes("0", "0", "1", "2", "3", "4", others_unfavourable=True) == {
        "0": 1, "1": 0, "2": 0, "3": 0, "4": 0
    }  # fmt: skip
    assert codes("0", "0", "1", "2") == {"0": 1}


def test_a_value_that_is_neither_has_no_code():
    assert codes("yes", "yes", "no", "maybe", unfavourable="no") == {"yes": 1, "no": 0}
    assert codes("ja", "yes", "no") == {}
