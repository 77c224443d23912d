"""Cuts and counts as they cross: exact, and nothing that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.data import Task
from mfairfl.data.sums import MOST_CUTS, Histogram
from mfairfl.errors import MessageError
from mfairfl.silo.responder import Responder
from mfairfl.wire.enrolment_messages import CutsQuestion, HistogramsAnswer, read_histograms
from mfairfl.wire.packing import make_packet, pack, unpack

CUTS = {"age": np.array([0.0, 0.1, 5.0]), "pay": np.array([7.0])}
ROWS = {"age": 4, "pay": 3}
FOUND = [
    Histogram.of(np.array([0.05, 0.05, 3.0, 4.0]), CUTS["age"]),
    Histogram.of(np.array([8.0, 8.0, 9.0, np.nan]), CUTS["pay"]),
]


TASK = Task(
    label="hired",
    favourable="yes",
    unfavourable="no",
    sensitive=({"column": "sex", "groups": ("F", "M")},),
    numeric=("skill",),
    categorical=("job",),
)
SPLIT = {"task": TASK.model_dump(mode="json"), "seed": 3, "test": 0.2, "validation": 0.0}


def question(cuts):
    return pack(
        CutsQuestion(
            task=TASK,
            seed=3,
            test=0.2,
            validation=0.0,
            columns=tuple(cuts),
            cuts=tuple(cuts.values()),
        )
    )


def asked(packet, numeric):
    return unpack(CutsQuestion, packet).by_column(numeric)


def test_nothing_is_lost_on_the_way():
    again = asked(question(CUTS), ["pay", "age", "other"])
    assert list(again) == ["age", "pay"]
    assert all(again[name].tobytes() == CUTS[name].tobytes() for name in CUTS)
    answer = HistogramsAnswer(
        counts=tuple(h.counts for h in FOUND), values=tuple(h.values for h in FOUND)
    )
    told = read_histograms(pack(answer), CUTS, ROWS)
    for one, name in zip(FOUND, CUTS, strict=True):
        assert told[name].counts.tolist() == one.counts.tolist()
        assert told[name].values.tobytes() == one.values.tobytes()


def request(columns=("age",), **arrays):
    named = {name.replace("_", "/"): np.array(array) for name, array in arrays.items()}
    return make_packet("cuts", SPLIT | {"columns": columns}, named)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (make_packet("cuts", SPLIT), "columns: Field required"),
        (request(()), "columns: "),
        (request("age"), "columns: "),
        (request(["agee"]), "unknown numeric column 'agee': did you mean 'age'"),
        (request(["age", "age"]), "twice"),
        (request(), "cuts of 0 columns; 1 are named"),
        (request(cuts_0=[[1.0]]), r"cuts.0: float64 \(1, 1\)"),
        (request(cuts_0=[1]), r"cuts.0: int64 \(1,\); expected float64"),
        (request(cuts_0=np.zeros(0)), rf"float64 \(0,\); expected float64 \(1…{MOST_CUTS}\)"),
        (request(cuts_0=np.arange(MOST_CUTS + 1.0)), rf"float64 \({MOST_CUTS + 1},\)"),
        (request(cuts_0=[0.0, np.inf]), "not finite"),
        (request(cuts_0=[np.nan]), "not finite"),
        (request(cuts_0=[1.0, 1.0]), "ascending"),
        (request(cuts_0=[2.0, 1.0]), "ascending"),
        (request(["age", "pay"], cuts_0=[1.0]), "cuts of 1 columns; 2 are named"),
    ],
)
def test_absurd_cuts_are_refused(packet, message):
    with pytest.raises(MessageError, match=message) as caught:
        asked(packet, ["age", "pay"])
    assert "\n" not in str(caught.value)


def answer(kind="histograms", **arrays):
    given = {"counts_0": [0, 2, 2, 0], "values_0": [np.nan, 0.05, np.nan, np.nan]} | arrays
    named = {k.replace("_", "/"): np.array(v) for k, v in given.items() if v is not None}
    return make_packet(kind, {}, named)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (answer(kind="sums"), "it answered with 'sums'"),
        (answer(counts_0=None), "counts: Field required"),
        (answer(counts_0=[4, 0, 0]), "3 counts of 'age'; expected 4"),
        (answer(counts_0=[0.0, 2, 2, 0]), "counts.0: float64"),
        (answer(counts_0=[-1, 3, 2, 0]), "counts.0: holds a number below 0"),
        (answer(counts_0=[0, 2, 1, 0]), "not those of 4 rows"),
        (answer(counts_0=[2**62, 2**62, 2**62, 2**62 + 4]), "counts.0: holds a number above"),
        (answer(counts_0=[2**40, 0, 0, 0]), "not those of 4 rows"),
        (answer(values_0=None), "values: Field required"),
        (answer(counts_1=[1]), "histograms of 2 columns; expected 1"),
        (answer(more=[1]), "more: Extra inputs are not permitted"),
        (answer(values_0=[0.0]), "4 counts of 'age'; expected 4|1 values"),
        (answer(values_0=[np.nan, 0.1, np.nan, np.nan]), "between their cuts"),
        (answer(values_0=[np.nan, 0.05, np.nan, 9.0]), "between their cuts"),  # of no row
        (answer(counts_0=[2, 2, 0, 0], values_0=[-np.inf, 0.05, np.nan, np.nan]), "between"),
    ],
)
def test_impossible_counts_are_refused(packet, message):
    with pytest.raises(MessageError, match=message):
        read_histograms(packet, {"age": CUTS["age"]}, ROWS)


def test_the_good_answer_is_good():
    found = read_histograms(answer(), {"age": CUTS["age"]}, ROWS)["age"]
    assert found.counts.tolist() == FOUND[0].counts.tolist()


def test_a_silo_counts_its_train_rows_of_agreed_columns_only(settings):
    responder = Responder(settings["east"])
    reply = responder.handle("r", question({"skill": np.array([0.0])}))
    assert reply.arrays["counts/0"].sum() == 72  # 80 % of 90
    with pytest.raises(MessageError, match="unknown numeric column 'years'"):
        responder.handle("r", question({"years": np.array([0.0])}))
    with pytest.raises(MessageError, match="a 'cuts' message: task: Field required"):
        responder.handle("r", make_packet("cuts", {"columns": ["skill"]}))
