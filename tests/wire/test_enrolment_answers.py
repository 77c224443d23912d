"""Profiles, sums and counts of a client that lies: it stays out, the others agree as before."""

from __future__ import annotations

import json
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import federations as fed
from enrolments import TASK, TERMS, Fresh
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import SPLITS, EncoderConfig
from mfairfl.errors import FederationError
from mfairfl.wire.enrolment_messages import ModelTerms, read_profile
from mfairfl.wire.packing import ANSWER, VERSION, Packet

HONEST = sorted(set(fed.SITES) - {"west"})
ONE_COLUMN = {"name": "x", "values": 60, "texts": 0, "missing": 0, "levels": {}}


class Lying(Fresh):
    """Changes the answer of west to one kind of request: the parsed text, or the arrays."""

    def __init__(self, settings, kind, change):
        super().__init__(settings)
        self.kind, self.change = kind, change

    def exchange(self, asks):
        found = super().exchange(asks)
        asked = json.loads(next(iter(asks.values())).text)["kind"]
        reply = found.get("west")
        if asked == self.kind and isinstance(reply, Packet):
            found["west"] = self.changed(reply)
        return found

    def changed(self, reply):
        said, arrays = json.loads(reply.text), {n: a.copy() for n, a in reply.arrays.items()}
        other = self.change(said, arrays)
        return Packet(other if isinstance(other, str) else json.dumps(said), arrays)


def reason(settings, kind, change):
    """Return why west stays out; the others must take part."""
    terms = EnrolmentTerms(
        task=TASK,
        seed=3,
        model=ModelTerms(hidden=(4,)),
        encoder=EncoderConfig(bins=4, min_rows=8, min_level_rows=5),
    )
    began = time.process_time()
    found = enrol(Lying(settings, kind, change), list(settings), terms, minimum=3)
    assert time.process_time() - began < 5  # an honest enrolment takes less than one
    assert sorted(found.counts["train"]) == HONEST
    assert list(found.refused) == ["west"]
    assert found.refused["west"].isprintable()
    assert len(found.refused["west"]) <= 500
    return found.refused["west"]


def put(*path, value):
    """Return a change that sets the value at a path of the parsed text."""

    def change(said, arrays):
        for key in path[:-1]:
            said = said[key]
        said[path[-1]] = value

    return change


def columns(said):
    return {column["name"]: column for column in said["profile"]["columns"]}


def many_groups(said, arrays):
    column = columns(said)["sex"]
    column["levels"] = {f"g{i}": 1 for i in range(60)}


def many_columns(said, arrays):
    said["profile"]["columns"] += [ONE_COLUMN | {"name": f"x{i}"} for i in range(5000)]


def column_twice(said, arrays):
    said["profile"]["columns"].append(columns(said)["job"])


def other_spelling(said, arrays):
    levels = columns(said)["sex"]["levels"]
    levels[" F"] = levels.pop("F")


def odd_label(said, arrays):
    columns(said)["hired"]["levels"] = {"AAA": 60}


PROFILES = {
    "groups": (many_groups, "sensitive column 'sex' has 60 distinct values"),
    "columns": (many_columns, "at most 32768 fit"),
    "a column twice": (column_twice, "a column occurs twice"),
    "two spellings": (other_spelling, "level ' F' is not written as"),
    "another label": (odd_label, "label column 'hired' holds 'AAA'"),
    "negative": (put("profile", "rows", value=-1), "profile.rows: Input should be greater"),
    "a float": (put("profile", "rows", value=60.0), "profile.rows: Input should be a valid int"),
    "a text": (put("profile", "rows", value="60"), "profile.rows: Input should be a valid int"),
    "2^62": (put("profile", "rows", value=2**62), "profile.rows: Input should be less"),
    "other rows": (put("profile", "rows", value=61), "does not have 61 rows"),
    "an extra key": (put("profile", "more", value=1), "profile.more: Extra inputs"),
    "a half character": (put("profile", "client", value="\ud800"), "profile.client: Input should"),
    "a long name": (put("profile", "client", value="w" * 5000), "profile.client: String should"),
    "another name": (put("profile", "client", value="e\x1b[2J"), "it describes itself as 'e?[2J'"),
    "no profile": (put("profile", value=None), "profile: Input should"),
    "a list": (lambda said, arrays: "[]", "a message of format None"),
    "a deep text": (lambda said, arrays: "[" * 10**4, "nested more than 32 deep"),
    "a long text": (lambda said, arrays: " " * 10**7, "a text of 10000000 characters"),
    "many values": (
        lambda said, arrays: '{"a": [' + "0," * 10**5 + "0]}",
        "a text of 100002 values; at most 32768 fit",
    ),
    "an array": (
        lambda said, arrays: arrays.update(x=np.zeros(10**6)),
        "x: Extra inputs are not permitted",
    ),
}


@pytest.mark.parametrize("lie", PROFILES)
def test_a_false_profile_is_refused(settings, lie):
    change, message = PROFILES[lie]
    assert message in reason(settings, "profile", change)


def numbers(**values):
    def change(said, arrays):
        said["train"]["numeric"]["skill"] |= values

    return change


def raw(token):
    """Return a change that writes a number as no honest JSON does."""

    def change(said, arrays):
        said["train"]["numeric"]["skill"]["total"] = ["@"]
        return json.dumps(said).replace('"@"', token)

    return change


def another_order(said, arrays):
    numeric = said["train"]["numeric"]
    said["train"]["numeric"] = dict(reversed(numeric.items()))


def shifted_rows(said, arrays):
    for column in said["train"]["numeric"].values():
        column["missing"] += 1


SUMS = {
    "nan": (raw("NaN"), "NaN, which is not a number"),
    "infinity": (raw("Infinity"), "Infinity, which is not a number"),
    "1e400": (raw("1e400"), "a number that is too large"),
    "5,000 digits": (raw("9" * 5000), "a number of 5000 digits"),
    "1e308": (numbers(total=[1e308]), "total.0: Input should be less"),
    "1e290": (numbers(total=[1e290]), "no numbers have its sums of 'skill'"),
    "far away": (numbers(total=[1e80], squares=[1e200]), "mean or deviation of 'skill' is"),
    "too close": (numbers(total=[1e-90], squares=[1e-170]), "mean or deviation of 'skill' is"),
    "impossible": (numbers(squares=[-1.0]), "no numbers have its sums of 'skill'"),
    "many parts": (numbers(total=[1.0] * 1000), "total: Tuple should have at most 64"),
    "a text": (numbers(count="48"), "count: Input should be a valid integer"),
    "negative": (numbers(count=-1), "count: Input should be greater"),
    "other rows": (numbers(count=1), "its columns have different numbers of rows"),
    "more rows": (shifted_rows, "its sums are not those of 60 rows"),
    "a missing column": (
        lambda said, arrays: said["train"]["numeric"].pop("skill") and None,
        "not those of the agreed columns ('skill')",
    ),
    "an extra column": (
        put("others", "categorical", "more", value={"a": 1}),
        "not those of the agreed columns ('more')",
    ),
    "another order": (another_order, "in another order"),
    "many in a level": (
        put("train", "categorical", "job", value={"clerk": 1000}),
        "it counts more rows of 'job' than it has",
    ),
    "two spellings": (
        put("train", "categorical", "job", value={"clerk": 1, "clerk ": 1}),
        "level 'clerk ' of 'job' is not written",
    ),
    "rows of another file": (put("rows", value=100), "it counts 100 rows; its file has 60"),
    "no hash": (put("sha256", value="../../etc"), "sha256: String should match"),
    "an extra key": (put("more", value=0), "more: Extra inputs"),
}


@pytest.mark.parametrize("lie", SUMS)
def test_false_sums_are_refused(settings, lie):
    change, message = SUMS[lie]
    assert message in reason(settings, "sums", change)


def counts(change):
    def changed(said, arrays):
        change(arrays)

    return changed


COUNTS = {
    "times a million": (counts(lambda a: a["train"].__imul__(10**6)), "not those of 60 rows"),
    "nothing": (counts(lambda a: a["train"].fill(0)), "rows; its sums had 60"),
    "negative": (counts(lambda a: a["train"].__isub__(9)), "train: holds a number below 0"),
    "2^62": (counts(lambda a: a["test"].fill(2**62)), "test: holds a number above"),
    "other splits": (
        counts(lambda a: a.update(train=a["test"], test=a["train"])),
        "train rows; its sums had 48",
    ),
    "floats": (counts(lambda a: a.update(train=a["train"] * 1.0)), "train: float64"),
    "another shape": (counts(lambda a: a.update(train=a["train"][:1])), "train: int64 (1, 2)"),
    "no train rows": (counts(lambda a: a.pop("train")), "train: Field required"),
    "more": (counts(lambda a: a.update(x=a["train"])), "x: Extra inputs are not permitted"),
    "a text": (put("counts", value=1), "counts: Extra inputs are not permitted"),
    "no floor": (lambda said, arrays: said.pop("floor") and None, "floor: Field required"),
    "a floor of 0": (put("floor", value=0), "floor: Input should be greater than or equal to 1"),
    "a floor of text": (put("floor", value="1"), "floor: Input should be a valid integer"),
    "no fingerprint": (put("policy", value="../x"), "policy: String should match"),
    "below its floor": (put("floor", value=30), "it counts fewer than 30 rows, as it never does"),
    "neither yes nor no": (
        counts(lambda a: a["hidden/test"].__iadd__(2)),
        "hidden.test: holds a number above 1",
    ),
    "counts of what it hides": (
        counts(lambda a: (a["hidden/train"].fill(1), hide(a, "train", 20))),
        "it counts train rows that it withholds",
    ),
    "hides pairs, and says that they have no rows": (
        counts(lambda a: (a["test"].fill(0), a["hidden/test"].fill(1))),
        "it counts 48 rows; its sums had 60",
    ),
    "hides rows of no pairs": (
        counts(lambda a: a["withheld"].__iadd__(10)),
        "it withholds train rows, and says of no group that it does",
    ),
    "hides fewer rows than its floor": (
        lambda said, a: (
            said.update(floor=8),
            a["train"].fill(0),
            a["train"].__setitem__((0, 0), 48),
            a["test"].fill(0),
            a["hidden/test"].fill(1),
            hide(a, "test", 7),
        ),
        "it withholds 7 test rows; its floor is 8",
    ),
    "hides less than nothing": (
        counts(lambda a: a["withheld"].__isub__(1)),
        "withheld: holds a number below 0",
    ),
    "hides more than it has": (
        counts(lambda a: (hide(a, "train", 61), a["hidden/train"].fill(1))),
        "it counts train rows that it withholds",
    ),
    "hides all": (
        counts(lambda a: (a["train"].fill(0), a["hidden/train"].fill(1), hide(a, "train", 48))),
        "every group and label of its 48 train rows is withheld",
    ),
    "hides more than is left": (
        counts(lambda a: (a["test"].fill(0), a["hidden/test"].fill(1), hide(a, "test", 13))),
        "61 rows; its sums had 60",
    ),
}


def hide(arrays, part, rows):
    arrays["withheld"][SPLITS.index(part)] = rows


@pytest.mark.parametrize("lie", COUNTS)
def test_false_counts_are_refused(settings, lie):
    change, message = COUNTS[lie]
    assert message in reason(settings, "encode", change)


def test_one_file_cannot_keep_the_others_from_agreeing(settings):
    """Honest files spell the label in three ways; one value more would tell them apart."""
    for site, words in {"north": ("True", "False"), "south": ("1", "0")}.items():
        path = settings[site].csv
        spelt = pd.read_csv(path)
        spelt["hired"] = spelt["hired"].map(dict(zip(("yes", "no"), words, strict=True)))
        spelt.to_csv(path, index=False)

    def change(said, arrays):
        columns(said)["hired"]["levels"] = {"!": 30, "yes": 30}

    assert "without it 3 of the other files fit together" in reason(settings, "profile", change)


def test_too_few_honest_clients_end_an_enrolment_in_one_line(settings):
    lying = Lying(settings, "profile", put("profile", "rows", value="x\n" * 10**5))
    with pytest.raises(FederationError, match="3 of 4 clients take part, at least 4") as caught:
        enrol(lying, list(settings), TERMS, minimum=4)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def largest_profile():
    """The longest text that is read, with as many values as it may hold."""
    many = ANSWER.values - 100
    size = (ANSWER.characters - 2000) // many - 8
    levels = {f"{i:06d}" + "x" * (size - 6): 1 for i in range(many)}
    column = ONE_COLUMN | {"values": many, "texts": many, "levels": levels}
    said = {"client": "west", "rows": many, "columns": [column]}
    return json.dumps({"version": VERSION, "kind": "profile", "profile": said})


def test_the_largest_profile_takes_little_time_and_twice_its_memory():
    packet = Packet(largest_profile(), {})
    assert 0.95 * ANSWER.characters < len(packet.text) <= ANSWER.characters
    began = time.process_time()
    tracemalloc.start()
    found = read_profile("west", packet, TASK)
    growth = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.columns[0].levels) == ANSWER.values - 100
    assert growth <= 2 * ANSWER.characters
    assert time.process_time() - began < 10  # tracing makes it many times slower
