"""Blind runs: sensitive columns are measured, and change no score and no decision."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import federations as fed
import mfairfl
from mfairfl.data import Task, read_table
from mfairfl.errors import ConfigError
from mfairfl.silo.policy import OPEN

QUICK = {"rounds": 2, "hidden": (4,), "seed": 1}


def swapped(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The same people with the other groups: each value is replaced by the next one."""
    values = sorted(frame[column].unique())
    following = dict(zip(values, [*values[1:], values[0]], strict=True))
    return frame.assign(**{column: frame[column].map(following)})


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 400
    sex, site = rng.choice(["F", "M"], n), rng.choice(["east", "west"], n)
    skill = rng.normal(size=n) + (sex == "M")
    hired = np.where(skill + rng.normal(size=n) > 0.5, "yes", "no")
    return pd.DataFrame({"skill": skill, "sex": sex, "site": site, "hired": hired})


def runs(people, folder):
    """A run on each kind of rows, with the rows that it is to decide."""
    roles = {"label": "hired", "favourable": "yes", "sensitive": "sex", "client": "site"}
    file = folder / "people.csv"
    people.to_csv(file, index=False)
    table = read_table(file, Task(**roles | {"sensitive": ("sex",)}))
    yield mfairfl.train(people, **roles, blind=True, **QUICK), people
    yield mfairfl.train(csv=file, **roles, blind=True, **QUICK), people
    yield mfairfl.train(table, blind=True, **QUICK), people
    yield mfairfl.train(table, blind=True, policy=OPEN, **QUICK), people


def test_other_groups_change_no_score_and_no_decision(people, tmp_path):
    models = []
    for run, rows in runs(people, tmp_path):
        others = swapped(rows, "sex")
        scores = run.predictor.decision_function(rows)
        assert np.ptp(scores) > 0
        assert (run.predictor.decision_function(others) == scores).all()
        assert (run.predictor.predict(others) == run.predictor.predict(rows)).all()
        assert run.metrics["test"]["by_group"]["sex"].keys() == {"F", "M"}
        assert "sex" not in run.record.task.features
        models.append(run.predictor.served.members)
    assert all((members == models[0]).all() for members in models)


def test_bundled_data_can_be_blind():
    adult = mfairfl.load_dataset("adult")
    run = mfairfl.train("adult", heterogeneity="high", rounds=0, hidden=(2,), blind=True)
    sighted = mfairfl.train("adult", heterogeneity="high", rounds=0, hidden=(2,))
    assert "sex" in adult.X
    assert set(sighted.record.task.features) - set(run.record.task.features) == {"sex"}


def test_an_estimator_can_be_blind_and_be_saved(people, tmp_path):
    X, y = people[["skill", "sex"]], people["hired"]
    model = mfairfl.FairFederatedClassifier(rounds=2, hidden=(4,), blind=True, random_state=0)
    model.fit(X, y, sensitive_features=people["sex"])
    scores = model.predict_proba(X)
    assert (model.predict_proba(swapped(X, "sex")) == scores).all()
    model.save(tmp_path / "saved")
    again = mfairfl.FairFederatedClassifier.load(tmp_path / "saved")
    assert again.blind
    assert (again.predict_proba(X) == scores).all()


@pytest.mark.parametrize(
    "how", [{"output_rule": "thresholds", "by": "both"}, {"strategy": "fedavg-threshold"}]
)
def test_a_rule_that_reads_the_group_is_refused(how):
    with pytest.raises(
        ConfigError, match=r"fairness\.blind: thresholds by = \"(group|both)\" read"
    ):
        mfairfl.train(fed.people_table(), blind=True, **how)


def test_clients_that_are_encoded_already_are_refused():
    with pytest.raises(ConfigError, match=r"fairness\.blind: .*table\.blind\(\)"):
        mfairfl.train(fed.people_federation(), blind=True)
