"""What a silo may not answer for an audit: whatever no honest silo can count."""

from __future__ import annotations

import json

import numpy as np
import pytest

from answers import one_line
from audit_silos import COLUMNS, Silos, policy, predictions, write_silos
from mfairfl.coordinator.audit import AuditTerms, gather_counts
from mfairfl.data import Attribute
from mfairfl.errors import MessageError
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.wire.audit_messages import AuditQuestion, read_audit, read_groups
from mfairfl.wire.packing import Packet, make_packet, pack, unpack

ASK = AuditQuestion(
    columns=COLUMNS,
    attributes=(Attribute("sex", ("F", "M", "?")), Attribute("race", ("Black", "White", "?"))),
    grid=ScoreGrid(),
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """East's answer, of which something is withheld."""
    folder, frame = tmp_path_factory.mktemp("silos"), predictions()
    few = (frame["silo"] == "east") & (frame["sex"] == "F") & (frame["race"] == "Black")
    silos = Silos(write_silos(folder, frame[~few | (few.cumsum() <= 15)]), policy())
    gather_counts(silos, ["east", "north", "west"], AuditTerms(subject=COLUMNS))
    return silos.kept[-1]["east"]


def read(packet, **options):
    return read_audit(packet, "east", ASK, **options)


def with_arrays(packet, **changes):
    return Packet(packet.text, {**packet.arrays, **changes})


def test_an_honest_answer_is_read(honest):
    counts, facts = read(honest)
    assert counts.clients == ("east",)
    assert counts.hidden.sum() >= 2
    assert facts.floor == 10
    rows = int(counts.rows.sum() + counts.withheld[0])
    assert read(honest, most_rows=rows)[1] == facts
    with pytest.raises(MessageError, match=f"it claims more than {rows - 1:,} rows"):
        read(honest, most_rows=rows - 1)


def cell_of(counts, place, value):
    changed = counts.copy()
    changed[place] = value
    return changed


def shown(honest):
    """A group and label whose rows are told."""
    return tuple(int(axis[0]) for axis in np.nonzero(honest.arrays["decided"].sum(axis=2)))


def lies(honest):
    """Each way to lie, and what it is answered with."""
    a, at = honest.arrays, shown(honest)
    decided, scored, hidden = a["decided"], a["scored"], a["hidden"]
    one_more = cell_of(decided, (*at, 0), decided[(*at, 0)] + 1)
    unseen = tuple(int(axis[0]) for axis in np.nonzero(hidden))
    yield {"decided": one_more}, "scores are counted on other rows"
    yield {"decided": cell_of(decided, (*at, 0), -1)}, "decided: holds a number below 0"
    yield {"decided": cell_of(decided, (*at, 0), 2**60)}, "decided: holds a number above"
    yield {"decided": decided.astype(np.float64)}, "decided: float64"
    yield {"decided": decided[:-1]}, "decided: int64"
    yield {"decided": cell_of(decided, (*unseen, 0), 30)}, "rows are counted in entries that"
    yield {"scored": np.roll(scored, 1, axis=0)}, "on other rows than decisions"
    yield {"hidden": np.zeros_like(hidden)}, "it withholds its rows, and says of no group"
    yield {"hidden": hidden.astype(bool)}, "hidden: bool"
    yield {"hidden": 2 * hidden}, "hidden: holds a number above 1"
    yield {"withheld": np.array([1])}, "it withholds 1 rows of"
    yield {"withheld": np.array([-1])}, "withheld: holds a number below 0"
    yield {"withheld": np.array([3, 4])}, r"withheld: int64 \(2,\)"
    yield {"scores/losses": a["scores/losses"] * 1e6}, "its mean loss is above 40"
    yield (
        {"scores/losses": a["scores/losses"] * np.nan},
        "losses hold a negative number or one that is not",
    )
    yield {"scores/losses": -a["scores/losses"]}, "losses hold a negative number"
    yield {"scores/sums": a["scores/sums"] * 2}, "sums of probabilities that no rows of their bins"
    yield {"scores/histogram": np.roll(a["scores/histogram"], 1, axis=0)}, "hold different rows"
    yield {"scores/rows": a["scores/rows"] * 2}, "hold different rows"
    yield {"extra": np.zeros(2)}, "extra: Extra inputs are not permitted"


def test_numbers_that_cannot_be_true_are_refused(honest):
    seen = 0
    for changes, message in lies(honest):
        with pytest.raises(MessageError, match=message) as caught:
            read(with_arrays(honest, **changes))
        one_line(caught)
        seen += 1
    assert seen == 20


def test_fewer_rows_than_the_floor_are_refused(honest):
    said = json.loads(honest.text)
    high = json.dumps(said | {"facts": said["facts"] | {"floor": 1000}})
    with pytest.raises(MessageError, match="it counts fewer than 1000 rows"):
        read(Packet(high, honest.arrays))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"floor": 0}, "floor: Input should be greater than or equal to 1"),
        ({"floor": "10"}, "floor: Input should be a valid integer"),
        ({"sha256": "x"}, "sha256"),
        ({"left_out": {"no taste": 3}}, "left_out.no taste"),
        ({"left_out": {"no decision": -3}}, "left_out"),
        ({"more": 1}, "more"),
        ({"kind": "counts"}, "it answered with 'counts'; 'audit' was asked for"),
    ],
)
def test_a_text_that_no_silo_writes_is_refused(honest, changes, message):
    said = json.loads(honest.text)
    text = json.dumps(
        said | {"kind": changes.pop("kind", "audit"), "facts": said["facts"] | changes}
    )
    with pytest.raises(MessageError, match=message) as caught:
        read(Packet(text, honest.arrays))
    one_line(caught)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"sex": ["F"]}, "groups of other columns"),
        ({"sex": ["F"], "race": ["W"], "age": []}, "groups of other columns"),
        ({"sex": ["F", "F"], "race": []}, "names a group of 'sex' twice"),
        ({"sex": ["?"], "race": []}, "a group '\\?' of 'sex' cannot be one"),
        ({"sex": [" F"], "race": []}, "a group ' F' of 'sex' cannot be one"),
        ({"sex": ["1.0"], "race": []}, "cannot be one"),
        ({"sex": ["a\nb"], "race": []}, "cannot be one"),
        ({"sex": ["\u202eevil"], "race": []}, "cannot be one"),
        ({"sex": ["x" * 201], "race": []}, "should have at most 200 characters"),
        ({"sex": [f"g{i}" for i in range(51)], "race": []}, "at most 50 items"),
        ({"sex": [3], "race": []}, "valid string"),
        ({"sex": [""], "race": []}, "at least 1 character"),
    ],
)
def test_names_that_are_no_groups_are_refused(groups, message):
    with pytest.raises(MessageError, match=message) as caught:
        read_groups(make_packet("groups", {"groups": groups}), ("sex", "race"))
    one_line(caught)


def test_markup_in_a_name_is_a_name(honest):
    groups = {"sex": ["<script>alert(1)</script>", "=cmd()"], "race": []}
    found = read_groups(make_packet("groups", {"groups": groups}), ("sex", "race"))
    assert found["sex"] == ("<script>alert(1)</script>", "=cmd()")


# ------------------------------------------------------------------ questions that are refused


def test_a_question_comes_back_as_it_was_sent():
    found = unpack(AuditQuestion, pack(ASK))
    assert found == ASK


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ((Attribute("sex", ("F", "?")),), "not those of the sensitive columns"),
        ((Attribute("race", ("W", "?")), Attribute("sex", ("F", "?"))), "not those of the"),
        ((Attribute("sex", ("F", "M")), Attribute("race", ("?",))), "do not end with '\\?'"),
        ((Attribute("sex", ("F", "F", "?")), Attribute("race", ("?",))), "or repeat"),
        (
            tuple(Attribute(name, (*map(str, range(40)), "?")) for name in ("sex", "race")),
            "1,681 combinations of groups",
        ),
    ],
)
def test_groups_that_cannot_be_counted_are_refused(attributes, message):
    with pytest.raises(MessageError, match=message):
        unpack(AuditQuestion, pack(ASK.model_copy(update={"attributes": attributes})))


def test_scores_without_a_range_are_refused():
    with pytest.raises(MessageError, match="belong together"):
        unpack(AuditQuestion, pack(ASK.model_copy(update={"grid": None})))
