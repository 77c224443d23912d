"""Configurations: an error is one line with its source and key; identities tell runs apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mfairfl.data import Attribute, Task
from mfairfl.errors import ConfigError
from mfairfl.fairness import Demand
from mfairfl.fairness.constraints import Goal
from mfairfl.files import load_toml
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import OPTIONS, nested, settings

SEX = Goal().constraints((Attribute("sex", ("F", "M")),))
ROWS = np.array([[100.0, 100.0], [100.0, 100.0]])
TASK = {"label": "y", "favourable": 1, "sensitive": ["s"]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sead": 1}, ["unknown key 'sead'", "did you mean 'seed'"]),
        ({"training": {"round": 3}}, ["'training.round'", "did you mean 'training.rounds'"]),
        ({"model": {"hiden": [4]}}, ["'model.hiden'", "did you mean 'model.hidden'"]),
        ({"task": {**TASK, "lable": "y"}}, ["'task.lable'", "did you mean 'task.label'"]),
        ({"training": {"rounds": -1}}, ["training.rounds", "greater than or equal to 0", "-1"]),
        ({"training": {"lr": "x"}}, ["training.lr", "valid number", "'x'"]),
        ({"training": {"lr": float("nan")}}, ["training.lr", "finite number"]),
        ({"training": {"lr": 0}}, ["training.lr", "greater than 0"]),
        ({"training": {"lr": 1.0, "weight_decay": 2.0}}, ["training.lr", "training.weight_decay"]),
        ({"training": {"participation": 0}}, ["training.participation"]),
        ({"training": {"optimizer": "adam"}}, ["training.optimizer", "'adamw'"]),
        ({"training": 3}, ["training", "valid dictionary", "3"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"clients": {"count": 0}}, ["clients.count", "0"]),
        ({"clients": {"test": 1.0}}, ["clients.test"]),
        ({"model": {"hidden": [4, 0]}}, ["model.hidden", "greater than or equal to 2"]),
        ({"model": {"kind": "tree"}}, ["model.kind", "'tree'"]),
        ({"fairness": {"notion": "dpp"}}, ["fairness.notion", "unknown notion 'dpp'", "'dp'"]),
        ({"fairness": {"notion": []}}, ["fairness.notion", "at least 1 item"]),
        ({"fairness": {"sensitive": []}}, ["fairness.sensitive", "at least 1 item"]),
        ({"fairness": {"dead_zone": 2}}, ["fairness.dead_zone", "less than or equal to 1"]),
        ({"strategy": {"name": "fedavgg"}}, ["strategy.name", "did you mean 'fedavg'"]),
        (
            {"strategy": {"name": "fedavg", "beta": 0.5}},
            ["hyper-parameter of strategy 'fedavg' 'beta'", "weights"],
        ),
        ({"strategy": {"weights": "big"}}, ["strategy.weights", "'big'", "'uniform'"]),
        ({"output": {"rule": "best"}}, ["output.rule", "'mixture'", "'best'"]),
        ({"output": {"tolerance": 2}}, ["output.tolerance", "2"]),
        ({"data": {"name": "adult", "csv": "x.csv"}}, ["data.name", "data.csv", "not both"]),
        ({"data": {"csv": "x.csv"}}, ["data.csv needs a [task]"]),
        (
            {"data": {"options": {"year": 2018.5}}},
            ["data.options.year", "a whole number", "2018.5"],
        ),
        ({"data": {"options": {"states": [6]}}}, ["data.options.states", "or names", "[6]"]),
        ({"task": {"label": "y", "favourable": 1, "sensitive": []}}, ["task.sensitive"]),
    ],
)
def test_an_error_is_one_line_naming_source_and_key(values, words):
    with pytest.raises(ConfigError) as caught:
        make_config(values, "my.toml")
    message = str(caught.value)
    assert message.startswith("my.toml: ")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (True, True),
        (2019, 2019),
        (["CA", "WY"], ("CA", "WY")),
        ("CA, WY", ("CA", "WY")),  # --set data.options.states=CA,WY
        ("WY", ("WY",)),
    ],
)
def test_options_of_the_data_are_switches_numbers_or_names(given, read):
    options = make_config({"data": {"name": "any", "options": {"key": given}}}).data.options
    assert options == {"key": read}
    assert type(options["key"]) is type(read)


def test_toml_errors_name_file_and_line(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("seed = 1\n[training]\nrounds = = 3\n")
    with pytest.raises(ConfigError, match=rf"^{path}: .*line 3"):
        load_toml(path)
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match=rf"^{path}: not UTF-8 at byte 8"):
        load_toml(path)
    with pytest.raises(ConfigError, match="no such file"):
        load_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_toml(tmp_path)


def test_defaults_are_those_of_the_design():
    config = make_config({})
    training = config.training
    assert (training.rounds, training.local_epochs, training.batch_size) == (40, 2, 512)
    assert (training.lr, training.lr_final, training.weight_decay) == (4e-3, 5e-5, 1.5)
    assert (training.optimizer, training.schedule) == ("adamw", "cosine")
    assert config.model.hidden == (64, 64)
    assert (config.clients.test, config.clients.validation) == (0.2, 0.0)
    assert config.fairness.notion == ("demographic_parity",)
    assert config.fairness.tolerance is None


@pytest.mark.parametrize("name", ["mfairfl-paper", "fpfl-paper"])
def test_a_literal_preset_takes_its_own_steps_unless_rounds_are_stated(name):
    def steps(**training):
        values = {"strategy": {"name": name}, "training": training}
        config = make_config(values)
        # A dump states the rounds: whoever reads it runs the same.
        assert make_config(config.model_dump()).server_rounds() == config.server_rounds()
        return config.server_rounds()

    assert steps() == steps(local_epochs=1) == steps(local_epochs=5) == 200
    assert steps(local_epochs=3) == 201  # no fewer
    assert steps(rounds=40) == 80
    assert steps(rounds=3, local_epochs=5) == 15
    assert steps(rounds=0) == 0
    local = {"strategy": {"name": name, "update": "local"}}
    assert make_config(local).server_rounds() == 40


def test_one_name_may_stand_for_several():
    config = make_config(
        {"fairness": {"notion": "eo", "sensitive": "sex"}, "data": {"sensitive": "sex"}}
    )
    assert config.fairness.notion == ("equalized_odds",)
    assert config.fairness.sensitive == config.data.sensitive == ("sex",)


def test_the_goal_is_checked_against_the_tasks_attributes():
    config = make_config({"fairness": {"sensitive": ["sexx"]}})
    with pytest.raises(ConfigError, match=r"^fairness.sensitive: .*'sexx'.*did you mean 'sex'"):
        config.goal(("sex", "age"))
    assert make_config({"fairness": {"sensitive": ["age"]}}).goal(("sex", "age")).attributes == (
        "age",
    )


@pytest.mark.parametrize(
    ("values", "rule", "tolerance"),
    [
        ({}, "select", 0.005),
        ({"fairness": {"notion": "eo"}}, "select", 0.01),
        ({"fairness": {"notion": ["dp", "eo"]}}, "select", 0.01),
        ({"strategy": {"name": "fedavg"}}, "last", 0.005),
        ({"strategy": {"name": "fedavg-threshold"}}, "thresholds", 0.005),
        ({"output": {"rule": "thresholds"}, "fairness": {"notion": "eo"}}, "thresholds", 0.01),
        # A constraint that is switched off, or on clients, is no goal to select by.
        ({"strategy": {"constraint": False}}, "last", 0.005),
        ({"strategy": {"name": "fedfb", "parity": "client"}}, "last", 0.005),
        ({"output": {"rule": "select", "tolerance": 0}}, "select", 0.0),
    ],
)
def test_output_rules_have_the_defaults_of_the_design(values, rule, tolerance):
    config = make_config(values)
    assert config.output_rule() == rule
    assert config.allowed(SEX, [ROWS]) == (0.0, 0.0, tolerance)


def test_without_a_tolerance_training_leaves_alone_what_its_rows_cannot_tell_from_0():
    config, rows = make_config({}), 16 * ROWS
    error = 0.5 * math.sqrt(1 / 3200 - 1 / 6400)  # 3,200 women and 3,200 men, half of them chosen
    assert config.allowed(SEX, [ROWS], rows) == pytest.approx((0.0, error, 0.005))
    # So few rows could excuse any gap.
    assert config.allowed(SEX, [ROWS], ROWS / 10).dead_zone == 0.03
    # A stated tolerance, or a dead zone of 0, does not depend on them.
    for said in ({"tolerance": 0.02}, {"dead_zone": 0.0}):
        stated = make_config({"fairness": said})
        assert stated.allowed(SEX, [ROWS], rows) == stated.allowed(SEX, [ROWS])


def test_a_stated_tolerance_is_aimed_at_from_below_by_what_the_rows_demand():
    # √(¼ (1/400 − 1/800)) = .017678 with 400 + 400 rows, half of them favourable.
    margin = (1.96 + 1.28) * 0.5 * math.sqrt(1 / 400 - 1 / 800)
    config = make_config({"fairness": {"tolerance": 0.2}})
    assert config.allowed(SEX, [ROWS, ROWS]) == pytest.approx((margin, 0.2 - margin, 0.2 - margin))
    # Too few rows to show it: half of what was asked for.
    config = make_config({"fairness": {"tolerance": 0.02}})
    assert config.allowed(SEX, [ROWS]) == (0.01, 0.01, 0.01)


def test_each_part_can_be_set_apart_from_the_tolerance():
    parts = {"fairness.dead_zone": 0.03, "output.tolerance": 0.04}
    for key, value in parts.items():
        config = make_config(nested({"fairness.tolerance": 0.02, key: value}))
        others = {"fairness.dead_zone": 0.01, "output.tolerance": 0.01, key: value}
        assert config.allowed(SEX, [ROWS]) == (0.01, *others.values())


# ------------------------------------------------------------------ identity

CHANGES: dict[str, Any] = {
    "seed": 1,
    "robust": "auto",
    "data.name": "adult",
    "data.path": "here",
    "data.sensitive": ("sex",),
    "data.options": {"official_test": True},
    "data.csv": "x.csv",
    "data.delimiter": ";",
    "data.encoding": "latin-1",
    "data.header": False,
    "data.sheet": "2024",
    "task": TASK,
    "clients.scheme": "iid",
    "clients.count": 3,
    "clients.test": 0.3,
    "clients.validation": 0.1,
    "clients.folds": 3,
    "clients.fold": 1,
    "clients.options": {"alpha": 1},
    "encoder.numeric": "standard",
    "encoder.bins": 9,
    "encoder.min_rows": 9,
    "encoder.indicators": "none",
    "encoder.min_level_rows": 9,
    "model.kind": "logistic",
    "model.hidden": (4,),
    "training.rounds": 3,
    "training.local_epochs": 1,
    "training.batch_size": 3,
    "training.optimizer": "sgd",
    "training.lr": 1e-3,
    "training.lr_final": 1e-6,
    "training.schedule": "constant",
    "training.weight_decay": 0.0,
    "training.momentum": 0.5,
    "training.participation": 0.5,
    "training.evaluate_every": 2,
    "training.patience": 2,
    "fairness.notion": "eo",
    "fairness.sensitive": ("sex",),
    "fairness.intersections": True,
    "fairness.blind": True,
    "fairness.tolerance": 0.1,
    "fairness.dead_zone": 0.1,
    "fairness.verdict_tolerance": 0.05,
    "strategy.name": "constant",
    "strategy.weights": "uniform",
    "output.rule": "average",
    "output.tolerance": 0.1,
    "output.by": "group",
    "output.local_tolerance": 0.1,
    "output.maximise": "balanced_accuracy",
    "output.costs": (2.0, 1.0),
    "output.least_client_accuracy": 0.5,
    "output.least_selection_rate": 0.1,
    "output.least_true_positive_rate": 0.1,
    "output.randomise": True,
    "output.relax": True,
    "output.shrinkage": 1.0,
}


def _keys(model: type = Config, prefix: str = "") -> set[str]:
    """All keys of the configuration; the task counts as one."""
    found = set()
    for name, one in model.model_fields.items():
        kind = one.annotation
        nested_model = isinstance(kind, type) and hasattr(kind, "model_fields")
        found |= _keys(kind, f"{prefix}{name}.") if nested_model else {prefix + name}
    return found


def test_the_table_of_changes_covers_every_key():
    assert _keys() == set(CHANGES) - {"strategy.weights"}


# Where a file lies (what it holds is hashed); and whether a run that has no result may have one.
PLACES = {"data.csv", "data.path", "output.relax"}


@pytest.mark.parametrize("key", CHANGES)
def test_identity_changes_with_every_key_but_the_place_of_a_file(key):
    base = {"data.csv": "y.csv", "task": TASK | {"label": "z"}} if key != "data.name" else {}
    base |= {"clients.folds": 2} if key == "clients.fold" else {}
    if key.startswith("output.") and key not in ("output.rule", "output.tolerance"):
        base |= {"output.rule": "thresholds"}
    before = make_config(nested(base)).identity("data")
    after = make_config(nested(base | {key: CHANGES[key]})).identity("data")
    assert (after == before) == (key in PLACES)


def test_identity_depends_on_the_data_and_not_on_how_defaults_are_written():
    config = make_config({})
    assert config.identity("one") != config.identity("two")
    assert make_config({"training": {"rounds": 40}}).identity("one") == config.identity("one")
    assert make_config({"fairness": {"notion": "dp"}}).identity("one") == config.identity("one")
    again = make_config(config.model_dump(mode="json"))
    assert again.identity("one") == config.identity("one")


def test_a_task_survives_the_configuration():
    config = make_config({"data": {"csv": "x.csv"}, "task": TASK})
    assert config.task == Task(label="y", favourable=1, sensitive=("s",))


# ------------------------------------------------------------------ options


def test_nested_lays_dotted_keys_over_a_base_without_touching_it():
    base = {"training": {"rounds": 40, "lr": 0.1}, "clients": {"options": {"alpha": 1}}, "seed": 3}
    result = nested({"training.rounds": 3, "clients.options.beta": 2, "model.hidden": (4,)}, base)
    assert result == {
        "training": {"rounds": 3, "lr": 0.1},
        "clients": {"options": {"alpha": 1, "beta": 2}},
        "seed": 3,
        "model": {"hidden": (4,)},
    }
    assert base["training"]["rounds"] == 40
    assert base["clients"]["options"] == {"alpha": 1}


def test_nested_refuses_a_section_that_is_a_value(tmp_path):
    with pytest.raises(ConfigError, match=r"^training.rounds: 'training' is a single value"):
        nested({"training.rounds": 3}, {"training": 5})
    path = tmp_path / "run.toml"
    path.write_text("training = 5\n")
    with pytest.raises(ConfigError, match=rf"^{path}: training.rounds: 'training' is a single"):
        settings(path, {"rounds": 3})


def test_options_win_over_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("seed = 4\n[training]\nrounds = 7\nlr = 0.01\n")
    found = settings(path, {"rounds": 2, "strategy.weights": "uniform"})
    assert found == {
        "seed": 4,
        "training": {"rounds": 2, "lr": 0.01},
        "strategy": {"weights": "uniform"},
    }


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown option 'roundz': did you mean 'rounds'"):
        settings(None, {"roundz": 2})


def test_every_short_option_names_a_key():
    # FedAvg's hyper-parameter, and Dirichlet's.
    known = {*_keys(), "strategy.weights", "clients.options.concentration"}
    known |= {f"task.{name}" for name in Task.model_fields}
    assert {option.key for option in OPTIONS.values()} <= known


def test_identity_depends_on_the_version_of_mfairfl(monkeypatch):
    config = make_config({})
    before = config.identity("data")
    monkeypatch.setattr("mfairfl.runs.config.__version__", "0.0.0")
    assert config.identity("data") != before


# ------------------------------------------------------------------ thresholds


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"rule": "threshold"}, r"output\.rule: .*'thresholds' with by = \"group\".*--by group"),
        ({"rule": "select", "by": "group"}, r"output\.by: the output rule 'select' does not"),
        ({"randomise": True}, r"output\.randomise: the output rule 'select' does not follow it"),
        (
            {"rule": "thresholds", "by": "both"},
            r"local_tolerance: with by = \"both\" state",
        ),
        ({"rule": "thresholds", "local_tolerance": "nones"}, r"output\.local_tolerance"),
        ({"rule": "thresholds", "least_client_accuracy": 2}, r"output\.least_client_accuracy"),
    ],
)
def test_thresholds_that_contradict_themselves_are_refused(output, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make_config({"data": {"name": "adult"}, "output": output})
    assert "\n" not in str(caught.value)


def test_what_thresholds_are_asked_for():
    def asked(**output):
        return make_config({"output": {"rule": "thresholds", **output}}).demand()

    assert asked() == Demand()
    assert asked(by="client", local_tolerance="none") == Demand(by="client")
    assert asked(by="both", local_tolerance=0.1).local_tolerance == 0.1
    assert make_config({"strategy": {"name": "fedavg-threshold"}}).demand() == Demand(by="group")
    everyone = {"strategy": {"name": "fedavg-threshold"}, "output": {"by": "none"}}
    assert make_config(everyone).demand() == Demand()
