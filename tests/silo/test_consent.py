"""A silo's own copy of run.toml binds the coordinator to what the agreed run asks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.data import Task
from mfairfl.engine.output import Output
from mfairfl.engine.state import Measure, Train
from mfairfl.errors import ConfigError, MessageError
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.runs.silo_runs import read_consent
from mfairfl.silo.refusals import RunConsent
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies import available, create
from mfairfl.training.plan import Controller, Job, Optimizer, Plan
from mfairfl.wire.enrolment_messages import ModelTerms

PEOPLE = fed.people_federation()
FEDERATED = [name for name in available() if create(name).card.trains_on == "clients"]
TASK = Task(label="hired", favourable="yes", sensitive=("sex", "age"))
RUN = """
[task]
label = "hired"
favourable = "yes"
sensitive = ["sex"]

[training]
rounds = 3
local_epochs = 1
"""


def consent(setup, **changes):
    agreed = RunConsent(
        source="run.toml",
        task=TASK,
        model=ModelTerms(hidden=(4,)),
        recipe=setup.recipe,
        rounds=setup.rounds,
        goal=setup.summary.goal,
        strategy=setup.strategy,
        rule=setup.output.rule,
    )
    return replace(agreed, **changes)


def require_all(agreed, asks):
    for ask in asks:
        agreed.require(ask, PEOPLE.attributes)


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("epochs", [2, 7])
def test_every_method_keeps_to_what_was_agreed_on(name, epochs):
    rule = Output(rule=create(name).card.output or "last")
    setup = fed.setup_for(PEOPLE, name, rounds=4, local_epochs=epochs, output=rule)
    agreed, trained = consent(setup), 0
    for ask in fed.honest_asks(PEOPLE, setup):
        agreed.require(ask, PEOPLE.attributes)
        trained += isinstance(ask, Train)
    assert trained >= 4 * (len(fed.SITES) - 1) or name == "constant"


@pytest.mark.parametrize("name", ["mfairfl", "fedavg", "scaffold", "ditto"])
@pytest.mark.parametrize("other", ["mfairfl-paper", "fedprox", "qffl", "fedfb", "indfair"])
def test_another_method_is_refused(name, other):
    agreed = consent(fed.setup_for(PEOPLE, name, rounds=4))
    with pytest.raises(MessageError, match=r"the coordinator asks for .*; agreed to: .*run\.toml"):
        require_all(agreed, fed.honest_asks(PEOPLE, fed.setup_for(PEOPLE, other, rounds=4)))


SHARED = {"epochs": 2, "batch_size": 20}
ADAMW = {"lr": 0.02}
GOAL = Goal(notions=("equalized_odds",), attributes=("sex", "age"))
OTHER_PLANS = {
    "plan.epochs": {"epochs": 3},
    "plan.batch_size": {"batch_size": 1},
    "plan.optimizer.eps": {"optimizer": Optimizer(**ADAMW, eps=0.2)},
    "plan.optimizer.lr": {"optimizer": Optimizer(lr=0.021)},
    "plan.optimizer.name": {"optimizer": Optimizer(**ADAMW, name="sgd")},
    "plan.optimizer.weight_decay": {"optimizer": Optimizer(**ADAMW, weight_decay=0.0)},
    "plan.proximal": {"proximal": 0.1},
    "plan.loss_table": {"loss_table": ((1.0, 1.0),) * 4},
    "plan.score_table": {"score_table": ((1.0, 0.0),) * 4},
    "plan.linear_slot": {"linear_slot": "c"},
    "plan.controller.every": {"controller": Controller(goal=GOAL, multipliers=(), step=())},
}


@pytest.mark.parametrize("key", OTHER_PLANS)
def test_other_training_is_refused_by_its_key(key):
    setup = fed.setup_for(PEOPLE, "fedavg", rounds=4)
    plan = Plan(**{**SHARED, "optimizer": Optimizer(**ADAMW)})
    weights = {"east": np.zeros(setup.size, np.float32)}

    def ask(**changes):
        job = Job(client="east", plan=replace(plan, **changes))
        return Train(0, weights, (job,))

    agreed = consent(setup)
    agreed.require(ask(), PEOPLE.attributes)
    with pytest.raises(MessageError) as caught:
        agreed.require(ask(**OTHER_PLANS[key]), PEOPLE.attributes)
    assert str(caught.value).startswith("the coordinator asks for plan.")
    assert str(caught.value).endswith("(run.toml)")
    if key != "plan.controller.every":
        assert f"asks for {key} = " in str(caught.value)
    # Of a method whose code is not here only the training is known.
    foreign = consent(setup, strategy=None)
    if key.startswith(("plan.epochs", "plan.batch_size", "plan.optimizer")):
        with pytest.raises(MessageError):
            foreign.require(ask(**OTHER_PLANS[key]), PEOPLE.attributes)
    else:
        foreign.require(ask(**OTHER_PLANS[key]), PEOPLE.attributes)


@pytest.mark.parametrize(("name", "jobs"), [("constant", 0), ("fedavg", 1), ("ditto", 2)])
def test_no_more_jobs_are_done_than_the_method_has(name, jobs):
    setup = fed.setup_for(PEOPLE, name, rounds=4)
    plan = Plan(**SHARED, optimizer=Optimizer(**ADAMW))
    weights = {"east": np.zeros(setup.size, np.float32)}
    ask = Train(0, weights, (Job(client="east", plan=plan),) * (jobs + 1))
    with pytest.raises(MessageError) as caught:
        consent(setup).require(ask, PEOPLE.attributes)
    assert str(caught.value) == (
        f"the coordinator asks for {jobs + 1} jobs in a round; agreed to: {jobs} (run.toml)"
    )


def test_the_goal_of_multipliers_that_move_is_the_agreed_one():
    setup = fed.setup_for(PEOPLE, "indfair", rounds=2)
    agreed = consent(setup, goal=GOAL)
    with pytest.raises(MessageError, match=r"plan\.controller\.goal\.notions = \('demographic_p"):
        require_all(agreed, fed.honest_asks(PEOPLE, setup))


def test_rounds_have_an_end_and_a_rate_each():
    setup = fed.setup_for(PEOPLE, "fedavg", rounds=4)
    agreed = consent(setup, rounds=3)
    with pytest.raises(MessageError, match=r"plan\.optimizer\.lr"):  # its schedule is shorter
        require_all(agreed, fed.honest_asks(PEOPLE, setup))
    late = replace(
        next(a for a in fed.honest_asks(PEOPLE, setup) if isinstance(a, Train)), round=3
    )
    with pytest.raises(MessageError, match=r"round 4; agreed to: 3 rounds \(run\.toml\)"):
        agreed.require(late, PEOPLE.attributes)


def test_thresholds_of_groups_are_measured_only_where_agreed():
    setup = fed.setup_for(PEOPLE, "fedavg", rounds=1)
    rule = Thresholds(np.zeros((4, 1)), np.ones((4, 1)))
    ask = Measure((np.zeros(setup.size, np.float32),), ("test",), thresholds=rule)
    with pytest.raises(MessageError, match=r"output\.rule = 'thresholds'; agreed to: 'last'"):
        consent(setup).require(ask, PEOPLE.attributes)
    with pytest.raises(MessageError, match=r"thresholds by group; agreed to: none \(run\.toml\)"):
        consent(setup, rule="thresholds").require(ask, PEOPLE.attributes)
    consent(setup, rule="thresholds", by_group=True).require(ask, PEOPLE.attributes)
    alike = replace(ask, thresholds=Thresholds(np.zeros((1, 1)), np.ones((1, 1))))
    consent(setup, rule="thresholds").require(alike, PEOPLE.attributes)


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "fired"},
        {"favourable": "no"},
        {"sensitive": ("sex",)},
        {"sensitive": ("age", "sex")},
        {"ignore": ("skill",)},
        {"sensitive_as_features": False},
        {"decimal": ","},
        {"thousands": "."},
        {"missing_codes": ("F",)},
        {"columns": {"skill": {"missing_codes": ["1"]}}},
        {"missing": "drop"},
        {"unknown_category": "error"},
    ],
)
def test_another_task_or_reading_of_cells_is_refused(changes):
    agreed = consent(fed.setup_for(PEOPLE, "fedavg"))
    agreed.require_task(TASK.model_copy(update={"numeric": ("skill",), "categorical": ()}))
    with pytest.raises(MessageError, match=rf"asks for task\.{next(iter(changes))} = "):
        agreed.require_task(Task(**dict(TASK) | changes))


def test_another_model_is_refused():
    agreed = consent(fed.setup_for(PEOPLE, "fedavg"))
    agreed.require_model(ModelTerms(hidden=(4,)))
    with pytest.raises(MessageError, match=r"model\.hidden = \(1024,\); agreed to: \(4,\)"):
        agreed.require_model(ModelTerms(hidden=(1024,)))


# ------------------------------------------------------------------ the file


@pytest.fixture
def silo(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    return SiloSettings(name="a", csv="a.csv", state=tmp_path, task=tmp_path / "run.toml")


def test_the_whole_file_is_the_consent(silo):
    agreed = read_consent(silo)
    assert (agreed.rounds, agreed.recipe.local_epochs, agreed.recipe.batch_size) == (3, 1, 512)
    assert agreed.model == ModelTerms(hidden=(64, 64))
    assert agreed.goal.attributes == ("sex",)
    assert (agreed.strategy, agreed.rule) == (create("mfairfl"), "select")
    assert read_consent(silo.model_copy(update={"task": None})) is None


def test_a_responder_without_what_was_agreed_on_is_none(silo):
    with pytest.raises(ConfigError, match="what was agreed to was not read"):
        Responder(silo)


@pytest.mark.parametrize(
    ("section", "key"),
    [("[model]\nkind = '{}:Net'", "model.kind"), ("[fairness]\nnotion = '{}:MINE'", "fairness.")],
)
def test_code_that_the_silo_does_not_list_is_not_imported(silo, write_module, section, key):
    module = write_module("raise RuntimeError('imported')\n")
    silo.task.write_text(RUN + section.format(module))
    with pytest.raises(ConfigError, match=rf"{key}.* is not part of mfairfl: .* extensions"):
        read_consent(silo)


def test_a_method_of_others_is_held_to_the_training(silo, write_module):
    module = write_module("raise RuntimeError('imported')\n")
    silo.task.write_text(RUN + f"[strategy]\nname = '{module}:Mine'\nbeta = 3\n")
    agreed = read_consent(silo)
    assert agreed.strategy is None
    assert agreed.recipe.local_epochs == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[training]\nrounds = 3\n", r"run\.toml: no \[task\]"),
        ("strategy = 3\nmodel = 4\nfairness = 5\n" + RUN, r"run\.toml: model: "),
        (RUN + "[strategy]\nname = 3\n", r"run\.toml: strategy\.name: "),
        (RUN + "[model]\nwidth = 3\n", r"run\.toml: unknown key 'model\.width'"),
        (RUN.replace("label", "labell"), r"run\.toml: unknown key 'task\.labell'"),
    ],
)
def test_a_mistake_in_the_file_names_it(silo, text, problem):
    silo.task.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_consent(silo)
