"""Messages: every strategy's run is the same when all that is said crosses as text and arrays."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.loop import federate
from mfairfl.engine.output import Output
from mfairfl.engine.state import Measure, Score, Train
from mfairfl.errors import MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.strategies import available, create
from mfairfl.training.plan import Controller, Job, Optimizer, Plan, Report
from mfairfl.wire.packing import Packet, pack
from mfairfl.wire.run_messages import Shape, answer_message, pack_ask, unpack_answer, unpack_ask

PEOPLE = fed.people_federation()


def through_messages(member):
    """Run a member as the embedded engine does, but let every word cross as a packet."""
    clients, state = fed.clients_and_state(member.setup, member.federation)
    loop = federate(member.setup, state)
    shape = Shape(member.setup.size, Cells(member.federation.attributes).size)
    names = sorted(member.setup.summary.counts)
    ask = next(loop)
    while True:
        asked = {name: unpack_ask(pack_ask(ask, name), name, shape) for name in names}
        try:
            ask = loop.send(answered(clients, ask, asked, shape))
        except StopIteration as stop:
            return stop.value


def answered(clients, ask, asked, shape):
    """Answer what each client understood, and read its answer as the server would."""
    answers = {}
    for name, understood in asked.items():
        (said,) = clients.answer({0: understood}).values()
        answers[name] = unpack_answer(pack(answer_message(said.get(name, []))), ask, name, shape)
    return answers


def member(name, rule=None):
    setup = fed.setup_for(PEOPLE, name, rounds=8 if rule else 2)
    output = Output(rule=rule or create(name).card.output or "last", tolerance=0.02)
    return fed.member_of(replace(setup, output=output), PEOPLE)


@pytest.mark.parametrize("name", [n for n in available() if create(n).card.trains_on == "clients"])
def test_a_run_through_messages_has_the_bits_of_a_run_without(name):
    one = member(name)
    plain, _ = fed.run(one.setup, one.federation)
    assert fed.bits(through_messages(one)) == fed.bits(plain)


def test_a_mixture_through_messages_has_the_bits_of_one_without():
    one = member("mfairfl", "mixture")
    plain, _ = fed.run(one.setup, one.federation)
    assert plain.served.kind == "mixture"
    assert fed.bits(through_messages(one)) == fed.bits(plain)


SHAPE = Shape(weights=3, cells=2)
WEIGHTS = np.array([1, 2, 3], dtype=np.float32)
TRAIN = Train(
    0, {"a": WEIGHTS}, (Job(client="a", plan=Plan(epochs=1, batch_size=8, linear=WEIGHTS)),)
)
MEASURE = Measure((WEIGHTS,), ("train",))


def changed(packet, **changes):
    return Packet(json.dumps(json.loads(packet.text) | changes), packet.arrays)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (Packet("{", {}), "not JSON"),
        (Packet("[" * 100_000, {}), "nested more than 32 deep"),
        (Packet("[]", {}), "format None, this mfairfl reads 7"),
        (changed(pack_ask(MEASURE, "a"), version=1), "format 1"),
        (changed(pack_ask(MEASURE, "a"), kind="shell"), "unknown kind 'shell'"),
        (changed(pack_ask(MEASURE, "a"), splits=["all"]), "splits.0: Input should be 'train'"),
        (Packet(pack_ask(MEASURE, "a").text, {}), "model: Field required"),
        (Packet(pack_ask(MEASURE, "a").text, {"model/1": WEIGHTS}), "model: number 0 of 1 is"),
        (
            Packet(pack_ask(MEASURE, "a").text, {f"model/{i}": WEIGHTS for i in range(4097)}),
            "model: Tuple should have at most 4096 items",
        ),
        (changed(pack_ask(MEASURE, "a"), model=[[1, 2, 3]]), "'model/0' was not asked for"),
        (changed(pack_ask(MEASURE, "a"), more=1), "more: Extra inputs"),
        (changed(pack_ask(MEASURE, "a"), slot=3), "slot: Input should be a valid string"),
        (Packet(pack_ask(MEASURE, "a").text, {"model/0": WEIGHTS[:2]}), "expected float32"),
        (Packet(pack_ask(MEASURE, "a").text, {"model/0": WEIGHTS * np.nan}), "not finite"),
        (Packet(pack_ask(MEASURE, "a").text, {"model/0": WEIGHTS.astype(object)}), "object"),
        (
            changed(pack_ask(TRAIN, "a"), round=-1),
            "round: Input should be greater than or equal to 0",
        ),
        (changed(pack_ask(TRAIN, "a"), jobs={}), "jobs: Input should be a valid tuple"),
        (changed(pack_ask(TRAIN, "a"), jobs=[{"client": "a"}]), "jobs.0.plan: Field required"),
        (
            changed(
                pack_ask(TRAIN, "a"),
                jobs=[{"client": "b", "plan": {"epochs": 1, "batch_size": 2}}],
            ),
            "a job for 'b' reached 'a'",
        ),
        (
            changed(
                pack_ask(TRAIN, "a"),
                jobs=[{"client": "a", "plan": {"epochs": 1, "batch_size": 2, "run": "rm"}}],
            ),
            "jobs.0.plan.run: ",
        ),
    ],
)
def test_a_bad_request_is_refused_in_one_line(packet, message):
    with pytest.raises(MessageError, match=message) as caught:
        unpack_ask(packet, "a", SHAPE)
    assert "\n" not in str(caught.value)


SUMS = np.ones((4, 2, 2))


def sums(array, text='{"version": 7, "kind": "measured"}'):
    return Packet(text, {"sums/0/train": array})


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (
            sums(SUMS[:, :1]),
            r"'a': sums.0.train: float64 \(4, 1, 2\); expected float64 \(4, 2, 2\)",
        ),
        (sums(SUMS.astype(np.float32)), "float32"),
        (sums(-SUMS), "impossible counts"),
        (sums(SUMS / 2), "impossible counts"),
        (sums(SUMS * 2.0**60), "impossible counts"),
        (Packet(sums(SUMS).text, {"sums/0/train": SUMS, "x": SUMS}), "x: Extra inputs"),
        (
            Packet(sums(SUMS).text, {"sums/0/train": SUMS, "sums/1/train": SUMS}),
            "sums of 2 models; 1 were",
        ),
        (
            Packet(sums(SUMS).text, {"sums/0/train": SUMS, "sums/0/test": SUMS}),
            r"it answered for \['test', 'train'\]; \['train'\] were asked for",
        ),
        (Packet(sums(SUMS).text, {"sums/0/train/x": SUMS}), "sums.0.train/x.*Input should be"),
        (Packet(sums(SUMS).text, {"sums/0": SUMS}), "sums.0: Input should be a valid dict"),
        (Packet(sums(SUMS).text, {"sums": SUMS}), "sums: one array; expected numbered ones"),
        (sums(SUMS * [[[1]], [[2]], [[1]], [[1]]]), "impossible counts"),
        (sums(SUMS * [[[1]], [[1]], [[np.nan]], [[1]]]), "not finite"),
        (sums(SUMS * [[[1]], [[1]], [[1]], [[np.inf]]]), "not finite"),
        (Packet(sums(SUMS).text, {}), "sums: Field required"),
        (
            sums(SUMS, '{"version": 7, "kind": "reports", "reports": []}'),
            "'measured' was asked for",
        ),
    ],
)
def test_a_bad_answer_is_refused_and_names_the_client(packet, message):
    with pytest.raises(MessageError, match=message) as caught:
        unpack_answer(packet, MEASURE, "a", SHAPE)
    assert "'a'" in str(caught.value)


SCORE = Score(np.stack([WEIGHTS, WEIGHTS]), ("train",), np.array([0.5, 0.5]), drawn=True)
SCORED = pack(
    answer_message(
        {"train": ScoreSums.from_rows(RowScores.from_logits([-1.0, 2.0]), [0, 1], [0, 1], size=2)}
    )
)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (changed(pack_ask(SCORE, "a"), drawn="yes"), "drawn: Input should be a valid boolean"),
        (changed(pack_ask(SCORE, "a"), splits=["all"]), "splits.0: Input should be 'train'"),
        (Packet(pack_ask(SCORE, "a").text, {}), "model: Field required"),
        (
            Packet(pack_ask(SCORE, "a").text, {"model/0": WEIGHTS, "shares": np.ones(2) / 2}),
            r"model.0: float64 \(3,\)|2 shares of 1 models",
        ),
    ],
)
def test_a_bad_request_for_scores_is_refused_in_one_line(packet, message):
    with pytest.raises(MessageError, match=message) as caught:
        unpack_ask(packet, "a", SHAPE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("array", "wrong", "message"),
    [
        (
            "histogram",
            np.zeros((2, 2, 512), np.int64),
            r"\(2, 2, 512\); expected int64 \(2, 2, 2048\)",
        ),
        ("histogram", np.zeros((1, 2, 2048), np.int64), r"histogram: int64 \(1, 2, 2048\)"),
        ("histogram", np.full((2, 2, 2048), -1), "below 0"),
        ("histogram", np.full((2, 2, 2048), 2**62), "a number above"),
        ("rows", np.zeros((2, 2, 15), np.int64), "hold different rows"),
        ("sums", np.full((2, 2, 15), np.nan), "no rows of their bins can have"),
        ("losses", np.full((2, 2), np.inf), "not finite"),
        ("losses", np.zeros((1, 2)), r"losses: float64 \(1, 2\)"),
    ],
)
def test_bad_scores_are_refused_and_name_the_client(array, wrong, message):
    packet = Packet(SCORED.text, {**SCORED.arrays, f"scores/train/{array}": wrong})
    with pytest.raises(MessageError, match=f"'a': .*{message}"):
        unpack_answer(packet, SCORE, "a", SHAPE)
    without = {name: a for name, a in SCORED.arrays.items() if name != f"scores/train/{array}"}
    with pytest.raises(MessageError, match=f"scores.train.{array}: Field required"):
        unpack_answer(Packet(SCORED.text, without), SCORE, "a", SHAPE)


def test_nobody_reports_under_another_name():
    with pytest.raises(MessageError, match="'a': it reports as 'b'"):
        unpack_answer(reported(client="b"), TRAIN, "a", SHAPE)


REPORT = Report(client="a", update=WEIGHTS, steps=3, lr=TRAIN.jobs[0].plan.optimizer.lr)


def reported(arrays=None, **changes):
    """A report in which some values were replaced; one that is None is left out."""
    packet = pack(answer_message([REPORT]))
    said = json.loads(packet.text)
    one = {k: v for k, v in (said["reports"][0] | changes).items() if v is not None}
    text = json.dumps(said | {"reports": [one]})
    return Packet(text, packet.arrays if arrays is None else arrays)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (reported(steps=-1), "reports.0.steps: Input should be greater"),
        (reported(steps="3"), "reports.0.steps: Input should be a valid integer"),
        (reported(steps=3.0), "reports.0.steps: Input should be a valid integer"),
        (reported(steps=10**30), "reports.0.steps: Input should be less"),
        (reported(steps=None), "reports.0.steps: Field required"),
        (reported(lr=0.0), "a rate of 0; 0.004 was asked for"),
        (reported(lr=float("nan")), "NaN, which is not a number"),
        (reported(more=1), "reports.0.more: Extra inputs"),
        (reported(gaps=[[]]), "reports.0.gaps.0: Input should be a valid number"),
        (reported(gaps=[0.0] * 500), "500 gaps; the job has 0"),
        (reported(arrays={}), "1 reports with 0 updates; 1 were asked for"),
        (
            reported(arrays={"update/0": WEIGHTS, "more": np.zeros(9)}),
            "more: Extra inputs are not permitted",
        ),
        (
            reported(arrays={"update/0": WEIGHTS, "control/0": WEIGHTS}),
            "the array 'control/0' was not asked for",
        ),
        (pack(answer_message([REPORT, REPORT])), "2 reports with 2 updates; 1 were asked for"),
        (pack(answer_message([])), "0 reports with 0 updates; 1 were asked for"),
    ],
)
def test_a_bad_report_is_refused_and_names_the_client(packet, message):
    with pytest.raises(MessageError, match=f"'a': .*{message}"):
        unpack_answer(packet, TRAIN, "a", SHAPE)


def test_a_control_change_comes_if_it_was_asked_for():
    job = replace(TRAIN.jobs[0], keep_control="c")
    ask = replace(TRAIN, jobs=(job, replace(job, send=False)))
    with pytest.raises(MessageError, match="'control/0' is missing"):
        unpack_answer(pack(answer_message([REPORT])), ask, "a", SHAPE)
    full = pack(answer_message([replace(REPORT, control_change=2 * WEIGHTS)]))
    (found,) = unpack_answer(full, ask, "a", SHAPE)
    assert found.control_change.tolist() == [2, 4, 6]


def test_the_longest_honest_reports_fit():
    """The longest numbers that JSON writes, for every multiplier and gap, and a long name."""
    name, numbers = "\N{GREEK SMALL LETTER ALPHA}" * 60, (-1.2345678901234567e-100,) * 50
    moving = Controller(goal=Goal(), multipliers=numbers, step=numbers)
    plan = Plan(epochs=1, batch_size=8, controller=moving, optimizer=Optimizer(lr=1 / 3e50))
    ask = Train(0, {name: WEIGHTS}, (Job(client=name, plan=plan),) * 3)
    one = replace(REPORT, client=name, lr=1 / 3e50, multipliers=numbers, gaps=numbers)
    found = unpack_answer(pack(answer_message([one] * 3)), ask, name, SHAPE)
    assert found[2].gaps == numbers
