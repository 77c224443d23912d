"""Runs whose clients have thresholds of their own: decisions, bytes, records, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

import federations as fed
import mfairfl
from mfairfl.errors import ConfigError, DataError, EstimatorError, RunDirectoryError
from mfairfl.fairness import Thresholds, accuracy
from mfairfl.report import build_report
from mfairfl.runs.predictor import model_to_send
from mfairfl.runs.record import RunRecord
from mfairfl.silo.policy import OPEN

QUICK = {"rounds": 3, "hidden": (4,), "batch_size": 20, "lr": 0.05, "strategy": "fedavg"}
BOTH = {
    "output_rule": "thresholds",
    "by": "both",
    "tolerance": 0.1,
    "local_tolerance": 0.2,
    "heterogeneity": "column",
}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "both"


@pytest.fixture(scope="module")
def run(out):
    return mfairfl.train(fed.people_table(), out=out, **QUICK, **BOTH)


def test_every_person_is_decided_by_their_client_and_cell(run):
    frame, rule = fed.people(), run.predictor.served.thresholds
    assert set(rule.clients) == set(frame.site)
    z = run.predictor.decision_function(frame)
    cell = 2 * (frame.sex == "M").to_numpy() + (frame.age == "young").to_numpy()
    expected = [z[i] >= rule.clients[site].values[cell[i]][0] for i, site in enumerate(frame.site)]
    assert all(len(own.values[0]) == 1 for own in rule.clients.values())
    assert run.predictor.predict(frame).tolist() == [int(decision) for decision in expected]
    assert not run.predictor.randomised


def test_the_counts_of_the_run_are_those_of_its_predictions(run, out):
    loaded = mfairfl.load(out)
    measured = loaded.measure(fed.people())
    tallies = run.record.tallies.values()
    right = sum(accuracy(tally) * tally.n for tally in tallies)
    assert accuracy(measured.tally) * measured.tally.n == pytest.approx(right)
    assert loaded.served.thresholds.to_json() == run.record.served.thresholds


def test_clients_elsewhere_get_their_own_thresholds_and_the_same_bytes(run, out, tmp_path):
    apart = mfairfl.train(fed.people_table(), out=tmp_path / "apart", policy=OPEN, **QUICK, **BOTH)
    there, here = ((folder / "model.safetensors").read_bytes() for folder in (apart.path, out))
    assert there == here
    assert apart.metrics == run.metrics
    assert apart.record.served.fit == run.record.served.fit


def test_a_new_client_is_decided_by_the_rule_for_everyone(run):
    frame, rule = fed.people(), run.predictor.served.thresholds
    z = run.predictor.decision_function(frame)
    cell = 2 * (frame.sex == "M").to_numpy() + (frame.age == "young").to_numpy()
    strangers = Thresholds(rule.values, rule.probabilities).positive_probability(z, cell)
    new = run.predictor.predict(frame.assign(site="elsewhere"))
    assert new.tolist() == strangers.tolist()
    assert run.predictor.predict(frame.drop(columns="site"), client="elsewhere").tolist() == [*new]
    with pytest.raises(DataError, match="thresholds of its own: add the column 'site', or give"):
        run.predictor.predict(frame.drop(columns="site"))


def test_a_module_decides_for_one_client(run):
    frame = fed.people()
    module = run.predictor.to_module(client="east")
    decided = module(module.encode(frame), module.cells(frame)).numpy()
    assert decided.tolist() == run.predictor.predict(frame, client="east").tolist()
    with pytest.raises(DataError, match="thresholds of its own: give client="):
        run.predictor.to_module()


def test_thresholds_of_clients_are_not_sent_to_others(run, out):
    with pytest.raises(RunDirectoryError, match="thresholds of its own, which are not sent"):
        model_to_send(out)


def test_the_report_says_that_decisions_read_group_and_client(run, out):
    use = build_report([out]).group_use
    assert (use.reads_group, use.reads_client) == (True, True)
    otherwise = f"{run.record.served.fit.otherwise:.1%} of people otherwise"
    assert any(otherwise in detail for detail in use.details)


def test_the_record_says_what_was_asked_and_what_came_of_it(run, out):
    fit = RunRecord.read(out).served.fit
    assert (fit.by, fit.local_tolerance, fit.randomise) == ("both", 0.2, False)
    # Excess by hand: gaps of everyone and of each client on train rows.
    tally = run.record.tallies["train"]
    over = [0.0]
    for rows, allowed in [
        (tally.counts.sum(axis=0), run.record.served.tolerance),
        *((counts, 0.2) for counts in tally.counts),
    ]:
        for axis in (0, 1):
            table = rows.reshape(2, 2, 2, 2).sum(axis=1 - axis).sum(axis=1)
            n = table.sum(axis=1)
            rates = table[n > 0][:, 1] / n[n > 0]
            over += (abs(rates - table[:, 1].sum() / n.sum()) - allowed).tolist()
    assert fit.excess == pytest.approx(max(over), abs=1e-9)


def test_what_no_rule_meets_is_refused_and_may_be_relaxed_without_training_again(tmp_path):
    asked = QUICK | {
        "output_rule": "thresholds",
        "tolerance": 0.0,
        "output.least_client_accuracy": 0.95,
        "out": tmp_path / "run",
    }
    watch = fed.Watch()
    with pytest.raises(
        ConfigError, match=r"no thresholds meet all bounds.*relax = true \(--relax"
    ):
        mfairfl.train(fed.people_table(), **asked, callbacks=[watch])
    assert [record.round for record in watch.records] == [0, 1, 2, 3]
    watch = fed.Watch()
    run = mfairfl.train(fed.people_table(), **asked, relax=True, callbacks=[watch])
    assert [record.round for record in watch.records] == []
    assert run.record.served.fit.enlargement > 0
    assert any("every bound was enlarged by" in warning for warning in run.record.warnings)


def test_blind_thresholds_of_clients_are_warned_about():
    asked = {"output_rule": "thresholds", "by": "client", "local_tolerance": "none"}
    run = mfairfl.train(fed.people_table(), **QUICK, **asked, blind=True)
    assert not run.predictor.served.thresholds.reads_group
    assert any("but read the client" in warning for warning in run.record.warnings)
    frame = fed.people()
    swapped = frame.assign(sex=np.where(frame.sex == "M", "F", "M"))
    assert run.predictor.predict(frame).tolist() == run.predictor.predict(swapped).tolist()


def test_an_estimator_passes_clients_on(tmp_path):
    frame = fed.people()
    asked = {"by": "client", "local_tolerance": "none"}
    model = mfairfl.FairFederatedClassifier(
        "fedavg", rounds=2, hidden=(4,), output_rule="thresholds", config=asked, random_state=0
    )
    X, y = frame[["skill", "years"]], frame["hired"]
    model.fit(X, y, sensitive_features=frame["sex"], clients=frame["site"])
    decided = model.predict(X, clients=frame["site"])
    model.save(tmp_path / "saved")
    again = mfairfl.FairFederatedClassifier.load(tmp_path / "saved")
    assert again.predict(X, clients=frame["site"]).tolist() == decided.tolist()
    with pytest.raises(EstimatorError, match="thresholds of their own: pass clients"):
        model.predict(X)


def test_runs_of_the_rule_threshold_still_load(tmp_path):
    out = tmp_path / "old"
    mfairfl.train(fed.people_table(), out=out, **QUICK | {"strategy": "fedavg-threshold"})
    record = json.loads((out / "run.json").read_text())
    record["served"]["rule"] = "threshold"
    del record["served"]["fit"]
    record["config"]["output"] = {"rule": None, "tolerance": None}
    (out / "run.json").write_text(json.dumps(record))
    assert RunRecord.read(out).served.rule == "thresholds"
    assert mfairfl.load(out).predict(fed.people()).sum() > 0
    assert build_report([out]).group_use.reads_group
