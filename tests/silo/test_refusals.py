"""Absurd requests are refused in one line before any work; the nearest sane ones are not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import federations as fed
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import Task
from mfairfl.errors import MessageError
from mfairfl.silo.policy import KINDS
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import VERSION, Packet

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))  # two cells, two constraints
HUGE = 10**9


@pytest.fixture(scope="module")
def silo(tmp_path_factory):
    """One enrolled silo; nothing that is refused changes it."""
    folder = tmp_path_factory.mktemp("silo")
    frame = fed.people()
    frame[frame["site"] == "east"].drop(columns="site").to_csv(folder / "east.csv", index=False)
    settings = SiloSettings(name="east", csv=folder / "east.csv", state=folder / "state")
    policy = fed.policy(epochs=HUGE, steps=HUGE, jobs=HUGE, models=HUGE, rounds=HUGE)
    responder = Responder(settings, policy)

    class Only:
        def exchange(self, asks):
            return {name: responder.handle("run-1", ask) for name, ask in asks.items()}

    found = enrol(Only(), ["east"], EnrolmentTerms(task=TASK, seed=3, model=ModelTerms()))
    return responder, len(found.encoder.feature_names) + 1


def ask(silo, kind, header, **arrays):
    """Send a message as a hostile server writes it: any number, also nan and infinity."""
    responder, _ = silo
    text = json.dumps({"version": VERSION, "kind": kind, **header})
    answer = responder.handle("run-1", Packet(text, arrays))
    return json.loads(answer.text)


def train(silo, *, round_=0, job=None, **plan):
    one = {"client": "east", "plan": {"epochs": 1, "batch_size": 16} | plan} | (job or {})
    server = np.zeros(silo[1], np.float32)
    return ask(silo, "train", {"round": round_, "jobs": [one]}, server=server)["reports"][0]


def refused(message, call, *arguments, **options):
    with pytest.raises(MessageError, match=message) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"lr": 1e30}, r"optimizer\.lr = 1e\+30: adamw trains with at most 10"),
        ({"lr": 10.001, "weight_decay": 0}, "adamw trains with at most 10"),
        ({"name": "sgd", "lr": 1001.0, "weight_decay": 0}, "sgd trains with at most 1000"),
        ({"lr": -1e-3}, r"optimizer\.lr must be a number ≥ 0, not -0\.001"),
        ({"lr": math.nan}, "which is not a number"),
        ({"lr": math.inf}, "which is not a number"),
        ({"lr": "fast"}, r"jobs\.0\.plan\.optimizer\.lr: Input should be a valid number"),
        ({"lr": 0.5, "weight_decay": 2.0}, r"weight_decay = 1 must stay below 1"),
        ({"weight_decay": -1.0}, r"optimizer\.weight_decay must be a number ≥ 0"),
        ({"weight_decay": math.nan}, "which is not a number"),
        ({"name": "sgd", "momentum": 1.0}, r"optimizer\.momentum must lie in \[0, 1\), not 1\.0"),
        ({"name": "sgd", "momentum": -0.1}, r"optimizer\.momentum must lie in \[0, 1\)"),
        ({"beta1": 1.0}, r"optimizer\.beta1 must lie in \[0, 1\)"),
        ({"beta2": math.nan}, "which is not a number"),
        ({"eps": 0.0}, r"optimizer\.eps must be a number > 0"),
        ({"eps": math.inf}, "which is not a number"),
        ({"name": "newton"}, r"jobs\.0\.plan\.optimizer\.name: Input should be 'adamw'"),
    ],
)
def test_an_absurd_optimizer_is_refused(silo, optimizer, message):
    refused(message, train, silo, optimizer=optimizer)


@pytest.mark.parametrize(
    "optimizer",
    [
        {"lr": 10.0, "weight_decay": 0.0},
        {"name": "sgd", "lr": 1000.0, "weight_decay": 0.0},
        {"name": "sgd", "lr": 0.5, "weight_decay": 2.0, "momentum": 0.99},
        {"name": "gradient", "lr": 1.0},
        {"lr": 0.0},
    ],
)
def test_an_optimizer_at_the_edge_is_carried_out(silo, optimizer):
    assert train(silo, optimizer=optimizer)["lr"] == optimizer["lr"]


PLAIN = [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"epochs": 0}, r"plan\.epochs must be a whole number ≥ 1, not 0"),
        ({"epochs": -3}, r"plan\.epochs must be a whole number ≥ 1"),
        ({"epochs": 1.5}, r"jobs\.0\.plan\.epochs: Input should be a valid integer"),
        ({"epochs": math.nan}, "which is not a number"),
        ({"batch_size": 0}, r"plan\.batch_size must be a whole number ≥ 1, not 0"),
        ({"batch_size": -512}, r"plan\.batch_size must be a whole number ≥ 1"),
        ({"proximal": math.nan}, "which is not a number"),
        ({"proximal": -1.0}, r"plan\.proximal must be a number ≥ 0"),
        ({"proximal": 1e10}, r"plan\.proximal holds a number outside ±1e\+09"),
        ({"loss_table": [[1, math.nan], [1, 1]]}, "which is not a number"),
        ({"score_table": [[1, 1], [-math.inf, 1]]}, "which is not a number"),
        ({"score_table": [[1e300, 1], [1, 1]]}, r"plan\.score_table holds a number outside"),
        ({"loss_table": [[1, 1]]}, "plan.loss_table has 1 entries; the task has 2 cells"),
        ({"linear_slot": "../../key"}, r"plan\.linear_slot = '\.\./\.\./key' is not a plain name"),
    ],
)
def test_an_absurd_plan_is_refused(silo, plan, message):
    refused(message, train, silo, **plan)


def test_a_linear_term_that_is_not_finite_is_refused(silo):
    _, size = silo
    header = {"round": 0, "jobs": [{"client": "east", "plan": {"epochs": 1, "batch_size": 16}}]}
    arrays = {"server": np.zeros(size, np.float32), "linear/0": np.full(size, np.inf, np.float32)}
    refused("linear.0: holds a number that is not finite", ask, silo, "train", header, **arrays)


def test_a_sane_plan_with_everything_is_carried_out(silo):
    plan = {"loss_table": PLAIN, "score_table": PLAIN, "proximal": 0.1, "linear_slot": "control"}
    job = {"start": "own.model", "keep": "own.model", "keep_control": "control"}
    assert train(silo, job=job, **plan)["steps"] == 5  # 72 rows, 16 a step


CONTROLLER = {
    "goal": {"notions": ["dp"], "attributes": ["sex"]},
    "multipliers": [0.0, 0.0],
    "step": [0.1, 0.1],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"multipliers": [0.0]},
            "controller.multipliers has 1 entries; the task has 2 constraints",
        ),
        ({"step": [0.1] * 3}, "controller.step has 3 entries; the task has 2 constraints"),
        ({"offset": []}, "controller.offset has 0 entries; the task has 2 constraints"),
        ({"multipliers": [0.0, math.nan]}, "which is not a number"),
        ({"step": [math.inf, 0.1]}, "which is not a number"),
        ({"offset": [0.0, 1e12]}, "controller.offset holds a number outside"),
        ({"scale": math.nan}, "which is not a number"),
        ({"every": 0}, "controller.every must be a whole number ≥ 1"),
        ({"shrink": 2.0}, r"controller.shrink must lie in \[0, 1\]"),
        ({"counts": [[1, 1]]}, "controller.counts has 1 entries; the task has 2 cells"),
        ({"counts": [[1, -1], [1, 1]]}, "controller.counts holds a negative number"),
        ({"counts": [[1, math.inf], [1, 1]]}, "which is not a number"),
        ({"prices": {"cap": math.inf}}, "which is not a number"),
        ({"prices": {"cap": -1}}, "prices.cap must be at least 0"),
        ({"slot": "__metadata__"}, "controller.slot = '__metadata__' is not a plain name"),
        ({"goal": {"notions": ["dp"] * 17}}, "17 notions; at most 16"),
        ({"goal": {"attributes": ["sex", "sex"]}}, "repeat one"),
        ({"goal": {"attributes": ["height"]}}, "height"),
        ({"goal": {"dead_zone": math.nan}}, "which is not a number"),
    ],
)
def test_an_absurd_controller_is_refused(silo, changes, message):
    refused(message, train, silo, controller=CONTROLLER | changes)


def test_a_sane_controller_is_carried_out(silo):
    whole = CONTROLLER | {"offset": [0.0, 0.1], "counts": PLAIN, "slot": "multipliers"}
    assert train(silo, controller=whole)["steps"] == 5


@pytest.mark.parametrize("name", ["start", "keep", "keep_control"])
@pytest.mark.parametrize("slot", ["", "a/b", "..", "__metadata__", "x" * 61, "a\nb", "ä"])
def test_a_slot_has_a_plain_name(silo, name, slot):
    refused(f"{name} = .* is not a plain name", train, silo, job={name: slot})


def test_round_numbers_have_an_end(silo):
    assert train(silo, round_=999_999)["client"] == "east"
    refused("round 1000000: at most 1,000,000 are trained", train, silo, round_=10**6)


def measure(silo, *, members=None, **changes):
    _, size = silo
    header = {"splits": ["train"], "slot": None, "thresholds": None} | changes
    shares = {} if members is None else {"shares": np.array(members, np.float64)}
    models = {"model/0": np.zeros((len(members), size) if members else size, np.float32)}
    return ask(silo, "measure", header, **models, **shares)


def rule(values, chances):
    return {"values": values, "probabilities": chances}


HALF = [0.5, 0.5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"splits": ["train", "train"]}, r"splits \['train', 'train'\] repeat one"),
        ({"slot": "../x"}, "slot = '../x' is not a plain name"),
        ({"members": [0.5, 0.6]}, "shares must be 0 or more and sum to 1"),
        ({"members": [1.5, -0.5]}, "shares must be 0 or more and sum to 1"),
        ({"members": [math.nan, 1.0]}, "shares: holds a number that is not finite"),
        ({"thresholds": rule([[math.nan]] * 2, [[1.0]] * 2)}, "which is not a number"),
        ({"thresholds": rule([[0.0, 1.0]] * 2, [[0.9, 0.9]] * 2)}, "sum to 1"),
        ({"thresholds": rule([[0.0]] * 3, [[1.0]] * 3)}, "thresholds of 3 cells; the task has 2"),
        (
            {"thresholds": rule([[0.0] * 65] * 2, [[1.0] + [0.0] * 64] * 2)},
            "65 thresholds of a cell; at most 64 are used",
        ),
    ],
)
def test_an_absurd_measurement_is_refused(silo, changes, message):
    refused(message, measure, silo, **changes)


def test_a_sane_measurement_is_answered(silo):
    limits = rule([["always", 0.5], ["never", 0.0]], [HALF, HALF])
    splits = ["train", "test"]
    answer = measure(silo, splits=splits, slot="personal", thresholds=limits, members=HALF)
    assert answer["kind"] == "measured"


def test_absurd_scores_are_refused(silo):
    _, size = silo
    header = {"splits": ["test", "test"], "slot": None, "drawn": False}
    model = {"model/0": np.zeros(size, np.float32)}
    refused("repeat one", ask, silo, "score", header, **model)
    model = {"model/0": np.zeros((2, size), np.float32), "shares": np.array([2.0, -1.0])}
    once = header | {"splits": ["test"], "drawn": True}
    refused("shares must be 0 or more and sum to 1", ask, silo, "score", once, **model)
    model["shares"] = np.array([0.25, 0.75])
    assert ask(silo, "score", once, **model)["kind"] == "scores"


def test_a_message_or_a_key_that_is_not_known_is_refused(silo):
    for kind in ("mask-keys", "levels", "shell"):
        refused(f"^a message of unknown kind '{kind}'$", ask, silo, kind, {})
    _, size = silo
    split = {"task": TASK.model_dump(mode="json"), "seed": 3, "test": 0.2, "validation": 0.0}
    headers = {
        "profile": {"task": split["task"]},
        **dict.fromkeys(("sums", "cuts", "encode"), split),
        "measure": {"splits": ["train"], "slot": None, "thresholds": None},
        "score": {"splits": ["train"], "slot": None, "drawn": False},
        "train": {"round": 0, "jobs": []},
    }
    assert headers.keys() == {*KINDS} - {"audit-groups", "audit"}  # forms of their own
    model = {"model/0": np.zeros(size, np.float32)}
    for kind, header in headers.items():
        refused(
            f"^a '{kind}' message: mask: Extra inputs are not permitted$",
            ask,
            silo,
            kind,
            header | {"mask": {}},
        )
    refused(
        f"{'x' * 59}…: Extra inputs are not permitted",
        ask,
        silo,
        "train",
        headers["train"] | {"x" * 999: 1},
    )
    assert ask(silo, "measure", headers["measure"], **model)["kind"] == "measured"


def test_prices_are_bounded_in_tables_and_in_multipliers_that_move(silo):
    dear = "as a price: this silo allows 1,000.0 \\(disclosure.price of its policy.toml\\)"
    refused(dear, train, silo, loss_table=[[1, 1], [1, 1001]])
    refused(dear, train, silo, score_table=[[0, 0], [0, -1001]])
    controller = {
        "goal": {"notions": ["demographic_parity"]},
        "multipliers": [0, 0],
        "step": [1, 1],
    }
    refused(dear, train, silo, controller=controller | {"prices": {"cap": 1001}})
    refused(dear, train, silo, controller=controller | {"prices": {"cap": 400}, "scale": -3})
    assert train(silo, loss_table=[[1, 1], [1, 1000]], controller=controller)["steps"] > 0
