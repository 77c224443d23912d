"""What docs/data.md says about one of several files, line by line."""

from __future__ import annotations

import pandas as pd
import pytest

from enrolments import TERMS, Fresh
from mfairfl.coordinator.enrolment import enrol
from mfairfl.errors import FederationError


class Silos:
    """Four silos of which one, or all, write their file otherwise."""

    def __init__(self, settings):
        self.settings = settings

    def enrol(self):
        return enrol(Fresh(self.settings), list(self.settings), TERMS, minimum=2)

    def rewrite(self, name, **changes):
        path = self.settings[name].csv
        frame = pd.read_csv(path)
        made = {column: change(frame[column]) for column, change in changes.items()}
        frame.assign(**made).to_csv(path, index=False)
        return frame

    def read_as(self, name, **rules):
        self.settings[name] = self.settings[name].model_copy(update=rules)


@pytest.fixture
def silos(settings):
    return Silos(settings)


def notation(s):
    before = s.enrol()
    for name in s.settings:
        s.rewrite(name, skill=lambda x: x + 1000)
    plain = s.enrol()
    assert plain.encoder != before.encoder
    german = {"skill": lambda x: [f"{v:,}".translate(str.maketrans(",.", ".,")) for v in x]}
    s.rewrite("west", **german)
    found = s.enrol()
    assert found.refused == {}
    assert found.encoder == plain.encoder
    assert found.task == plain.task


def few_words(s):
    n = len(s.rewrite("west", skill=lambda x: x.astype(object).where(x.index != 3, "n/k")))
    found = s.enrol()
    assert found.refused == {}
    assert f"west: column 'skill': 1 of {n} values are not numbers, read as missing" in found.notes
    assert "skill=?" in found.encoder.feature_names


def words(s):
    s.rewrite("west", skill=lambda x: [f"about {v}" for v in x])
    assert "column 'skill'" in s.enrol().refused["west"]
    assert "the other files hold numbers" in s.enrol().refused["west"]


def dates(s):
    s.rewrite("west", skill=lambda x: pd.date_range("2024-01-01", periods=len(x)))
    why = "column 'skill' holds dates; the other files hold numbers"
    assert s.enrol().refused["west"] == why


def spelling(s):
    plain = s.enrol()
    s.rewrite("west", hired=lambda y: y.map({"yes": "True", "no": "False"}))
    found = s.enrol()
    assert found.refused == {}
    assert all((found.counts[k]["west"] == plain.counts[k]["west"]).all() for k in found.counts)


def missing_code(s):
    s.rewrite("west", skill=lambda x: x.where(x.index % 5 != 0, -9))
    s.read_as("west", missing_codes=("-9",))
    found = s.enrol()
    assert "skill=?" in found.encoder.feature_names


def no_group(s):
    frame = s.rewrite("west", sex=lambda x: [None] * len(x))
    found = s.enrol()
    assert found.attributes[0].groups == ("F", "M", "?")
    assert any("west" in n and f"{len(frame)}" in n for n in found.notes), found.notes


def one_label(s):
    for name in s.settings:
        s.rewrite(name, hired=lambda y: ["no"] * len(y))
    fixed = TERMS.task.model_copy(update={"unfavourable": "no"})
    terms = type(TERMS)(task=fixed, seed=TERMS.seed, model=TERMS.model)
    with pytest.raises(FederationError, match="hold one value"):
        enrol(Fresh(s.settings), list(s.settings), terms, minimum=2)


FILES = {
    "another notation of numbers": notation,
    "words in a few cells of a column of numbers": few_words,
    "words where the others hold numbers": words,
    "dates where the others hold numbers": dates,
    "another spelling of the label": spelling,
    "another code for missing values": missing_code,
    "no value of a sensitive attribute": no_group,
    "one label value in all files": one_label,
}


@pytest.mark.parametrize("line", FILES)
def test_one_of_several_files(silos, line):
    FILES[line](silos)
