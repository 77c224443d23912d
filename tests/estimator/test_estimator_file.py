"""A saved estimator: the same answers after loading, and one line for a file that was altered."""

from __future__ import annotations

import json
import random

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.exceptions import NotFittedError
from torch import nn

import federations as fed
import mfairfl
from answers import csv_rows, one_line
from mfairfl import FairFederatedClassifier
from mfairfl.cli import main
from mfairfl.errors import MfairflError, RunDirectoryError
from mfairfl.estimator.file import SavedParameters
from mfairfl.fairness import notion
from mfairfl.strategies import create

QUICK = {"rounds": 4, "hidden": (4,), "batch_size": 20, "lr": 0.05, "random_state": 0}
PEOPLE = fed.people()
X, HIRED = PEOPLE[["skill", "job", "sex", "age"]], PEOPLE["hired"]
GIVEN = {"sensitive_features": PEOPLE[["sex", "age"]], "clients": PEOPLE["site"]}
KINDS = {
    "fair": {},
    "ensemble": {"strategy": "indfair", "notion": ["dp", "eo"]},
    "personal": {"strategy": "ditto"},
    "mixture": {"notion": "eopp", "output_rule": "mixture", "tolerance": 0.0, "rounds": 8},
    "thresholds": {"strategy": "fedavg-threshold", "config": {"encoder": {"bins": 4}}},
    "first": {"favourable": "no", "weights": "uniform"},
}


def own(inputs):
    return nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 1))


def answers(model, rows=X):
    whose = {"clients": PEOPLE["site"]}
    return [model.predict(rows, **whose), model.predict_proba(rows, **whose)]


def assert_same(one, other, rows=X):
    for found, expected in zip(answers(one, rows), answers(other, rows), strict=True):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
        assert found.dtype == object or found.tobytes() == expected.tobytes()
    assert one.classes_.dtype == other.classes_.dtype
    assert one.favourable_ == other.favourable_
    assert one.n_features_in_ == other.n_features_in_


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Estimators of every kind by name, with the folders they are saved in."""
    folder = tmp_path_factory.mktemp("saved")
    made = {}
    for kind, how in KINDS.items():
        model = FairFederatedClassifier(**{**QUICK, **how})
        y = HIRED.to_numpy().astype("<U5")
        made[kind] = model.fit(X, y, **GIVEN), folder / kind
        model.save(folder / kind)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_answers_alike(saved, kind):
    model, folder = saved[kind]
    again = FairFederatedClassifier.load(folder)
    assert_same(again, model)
    assert again.feature_names_in_.tolist() == list(X.columns)
    assert again.run_.metrics == model.run_.metrics
    mine, theirs = again.get_params(), model.get_params()
    assert {k: v for k, v in mine.items() if k != "notion"} == {
        k: v for k, v in theirs.items() if k != "notion"
    }
    assert list(np.atleast_1d(mine["notion"])) == list(np.atleast_1d(theirs["notion"]))


def test_it_is_trained_again_alike(saved):
    model, folder = saved["ensemble"]
    assert_same(FairFederatedClassifier.load(folder).fit(X, HIRED.to_numpy("<U5"), **GIVEN), model)


def test_a_folder_holds_json_and_tensors_only(saved):
    _, folder = saved["fair"]
    names = {path.name for path in folder.iterdir()} - {".lock"}
    tensors = {"model.safetensors", "scores.safetensors"}
    assert names == {"run.json", "encoder.json", "estimator.json"} | tensors
    for name in names - tensors:
        json.loads((folder / name).read_text(encoding="utf-8"))
    with safe_open(folder / "model.safetensors", "numpy") as file:
        assert {*file.keys()} == {"members", "weights"}


def test_a_folder_is_a_run_for_every_command(saved, tmp_path):
    model, folder = saved["fair"]
    chance = mfairfl.load(folder).predict_proba(PEOPLE)
    np.testing.assert_array_equal(chance, model.predict_proba(X))
    PEOPLE.to_csv(tmp_path / "people.csv", index=False)
    out = tmp_path / "scores.csv"
    rows = ["--csv", str(tmp_path / "people.csv")]
    assert main(["predict", str(folder), *rows, "--out", str(out)]) == 0
    decided = [row["decision"] for row in csv_rows(out)]
    assert decided == model.predict(X).tolist()


@pytest.mark.parametrize(
    "labels",
    [(False, True), (0, 1), (-1.0, 2.0), ("?", "ä\n"), (np.uint8(3), np.uint8(7))],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [None, object])
def test_labels_keep_their_type(labels, dtype, tmp_path):
    y = np.array(labels)[(HIRED == "yes").astype(int)].astype(dtype or np.array(labels).dtype)
    rows = PEOPLE[["skill", "years"]].to_numpy()
    model = FairFederatedClassifier(**QUICK).fit(rows, y)
    model.save(tmp_path / "saved")
    again = FairFederatedClassifier.load(tmp_path / "saved")
    assert_same(again, model, rows)
    assert not hasattr(again, "feature_names_in_")


def test_objects_are_saved_as_what_the_run_says_of_them(tmp_path):
    model = FairFederatedClassifier(
        create("mfairfl", beta=0.3, weights="uniform", goals={"cap": 0.5}),
        **QUICK
        | {
            "notion": [notion("dp"), "eo"],
            "random_state": np.random.RandomState(4),
            "rounds": np.int64(3),
        },
    )
    model.fit(X, HIRED, **GIVEN).save(tmp_path / "saved")
    again = FairFederatedClassifier.load(tmp_path / "saved")
    params = again.get_params()
    assert (params["strategy"], params["weights"]) == ("mfairfl", "uniform")
    assert params["config"]["strategy.goals"]["cap"] == 0.5
    assert params["random_state"] == model.run_.record.seed
    assert type(params["rounds"]) is int
    assert_same(again.fit(X, HIRED, **GIVEN), model)


def test_a_model_of_ones_own_is_given_again(tmp_path):
    model = FairFederatedClassifier(**QUICK, model=own).fit(X, HIRED, **GIVEN)
    model.save(tmp_path / "saved")
    assert_same(FairFederatedClassifier.load(tmp_path / "saved", model=own), model)
    with pytest.raises(RunDirectoryError, match="which is code; give its factory with model="):
        FairFederatedClassifier.load(tmp_path / "saved")


RULE = """
from dataclasses import dataclass
from mfairfl.strategies import Card, Step, Strategy

@dataclass(frozen=True)
class Plain(Strategy):
    card = Card(title="The mean")

    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports))
"""


@pytest.mark.usefixtures("new_names")
def test_code_that_a_file_names_is_imported_only_with_trust(write_module, tmp_path):
    name = f"{write_module(RULE)}:Plain"
    model = FairFederatedClassifier(name, **QUICK).fit(X, HIRED, **GIVEN)
    model.save(tmp_path / "saved")
    with pytest.raises(RunDirectoryError, match=f"name code, '{name}'; give trust=True") as caught:
        FairFederatedClassifier.load(tmp_path / "saved")
    one_line(caught)
    assert_same(FairFederatedClassifier.load(tmp_path / "saved", trust=True), model)


def test_the_file_knows_every_parameter():
    assert {*SavedParameters.model_fields} == {*FairFederatedClassifier().get_params()}


# ------------------------------------------------------------------ what is refused, in one line


def test_only_what_is_trained_can_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        FairFederatedClassifier().save(tmp_path / "saved")


def test_nothing_is_overwritten(saved, tmp_path):
    model, folder = saved["fair"]
    before = (folder / "run.json").read_bytes()
    (tmp_path / "notes.txt").write_text("mine")
    for target in (folder, tmp_path):
        with pytest.raises(RunDirectoryError, match="is not empty"):
            model.save(target)
    assert (folder / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("how", "labels", "message"),
    [
        ({}, pd.to_datetime(["2024-01-01", "2024-01-02"]).to_numpy(), "a class is a"),
        ({"config": {"encoder.bins": np.array(4)}}, ["a", "b"], "a ndarray is neither text nor"),
    ],
)
def test_what_is_not_json_cannot_be_saved(how, labels, message, tmp_path):
    y = np.asarray(labels)[(HIRED == "yes").astype(int)]
    model = FairFederatedClassifier(**QUICK | {"rounds": 1}, **how).fit(X, y)
    with pytest.raises(RunDirectoryError, match=message) as caught:
        model.save(tmp_path / "saved")
    one_line(caught)
    assert not (tmp_path / "saved").exists()


@pytest.fixture
def altered(saved, tmp_path):
    """Return what loading says of a copy whose estimator.json was changed."""

    def load(change):
        _, folder = saved["fair"]
        copy = tmp_path / "copy"
        copy.mkdir(exist_ok=True)
        for name in ("run.json", "encoder.json", "model.safetensors"):
            (copy / name).write_bytes((folder / name).read_bytes())
        data = change((folder / "estimator.json").read_bytes())
        (copy / "estimator.json").write_bytes(data)
        return FairFederatedClassifier.load(copy)

    return load


def edit(*keys, value):
    def change(data):
        plain = json.loads(data)
        level = plain
        for key in keys[:-1]:
            level = level[key]
        level[keys[-1]] = value
        return json.dumps(plain).encode()

    return change


def test_a_file_with_a_slack_for_training_and_one_for_the_rule_still_loads(altered):
    def of_version_09(data):
        plain = json.loads(data)
        plain["parameters"] |= {"alpha": 0.02, "tolerance": 0.03, "config": {"strategy.beta": 0.5}}
        return json.dumps(plain).encode()

    parameters = altered(of_version_09).get_params()
    assert parameters["tolerance"] is None
    assert parameters["config"] == {
        "strategy.beta": 0.5,
        "fairness.dead_zone": 0.02,
        "output.tolerance": 0.03,
    }


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["schema_version"], 2, "schema_version"),
        (["run"], "0" * 64, "belongs to another run than run.json"),
        (["surprise"], 1, "unknown key 'surprise'"),
        (["parameters", "speed"], 1, "unknown key 'parameters.speed'"),
        (["parameters", "rounds"], "many\nlines", "parameters.rounds: Input should be a valid"),
        (["parameters", "hidden"], 4, "parameters.hidden"),
        (["parameters", "output_rule"], "best", "parameters.output_rule"),
        (["parameters", "strategy"], "os:system", "name code, 'os:system'; give trust=True"),
        (["parameters", "notion"], ["dp", "os:system"], "name code, 'os:system'; give trust"),
        (["classes", "dtype"], "<U999999999", "classes.dtype"),
        (["classes", "dtype"], "O8", "classes.dtype"),
        (["classes", "dtype"], "int8", "classes: values that are not int8"),
        (["classes", "dtype"], "<U1", "values that are not two of type <U1"),
        (["classes", "values"], ["yes", "yes"], "values that are not two"),
        (["classes", "values"], ["yes"], "classes.values"),
        (["classes", "values"], [["no"], "yes"], "classes.values"),
        (["classes", "values"], ["no", "yea"], "has other classes than the task in run.json"),
        (["favourable"], 2, "favourable"),
        (["favourable"], 0, "has other classes than the task in run.json"),
        (["columns"], ["skill", "job", "sex"], "other columns than the task in run.json"),
        (["columns"], [], "columns"),
        (["feature_names"], ["skill"], "has 1 names of 4 features"),
    ],
)
def test_an_altered_file_is_one_line(altered, keys, value, message):
    with pytest.raises(RunDirectoryError, match=message) as caught:
        altered(edit(*keys, value=value))
    assert "copy" in one_line(caught)


def test_a_file_that_is_no_json_is_one_line(altered, saved):
    for data in (b"", b"{", b"\xff", b"[" * 100, b'{"run": NaN}', b'{"run": 1, "run": 2}'):
        with pytest.raises(RunDirectoryError, match=r"estimator\.json: ") as caught:
            altered(lambda _, data=data: data)
        one_line(caught)


def test_a_missing_file_is_one_line(saved, tmp_path):
    with pytest.raises(RunDirectoryError, match=r"run\.json: not found"):
        FairFederatedClassifier.load(tmp_path / "nowhere")
    mfairfl.train(fed.people_table(), out=tmp_path / "run", rounds=0, hidden=())
    with pytest.raises(RunDirectoryError, match=r"estimator\.json: not found") as caught:
        FairFederatedClassifier.load(tmp_path / "run")
    one_line(caught)


def test_random_damage_is_found_or_does_no_harm(altered):
    draw, said = random.Random(5), []

    def change(data):
        place = draw.randrange(len(data))
        return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]

    for _ in range(60):
        try:
            model = altered(change)
        except MfairflError as error:
            said.append(str(error))
        else:
            assert set(model.predict(X)) <= set(model.classes_.tolist())
    assert len(said) > 10
    assert not [line for line in said if "\n" in line]
