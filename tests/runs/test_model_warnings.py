"""Warnings about models, from hand-made decisions and scores on the rows that are reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mfairfl
from mfairfl.data import Attribute, Inputs
from mfairfl.fairness import MetricTable, Tally
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.runs.outcome import AdviceSettings, model_warnings
from mfairfl.testing import people, people_federation

SEX = Attribute("sex", ("F", "M"))
PLAIN = AdviceSettings(constrained=False, notions=("demographic_parity",), tolerance=0.005)
FAIR = AdviceSettings(
    constrained=True, notions=("accuracy_parity", "equalized_odds"), tolerance=0.02
)

DIVERGED = (
    "the loss of the served model is not a finite number: training diverged; lower training.lr"
)


def warnings_about(y, decisions, p, asked, majority=None):
    """The warnings about these rows, half of them women's."""
    cells = np.arange(len(y)) % 2
    labels = y if majority is None else np.full(len(y), majority)
    common = Tally.from_predictions(labels, labels, sensitive_features=cells)
    groups = {"sex": np.array(SEX.groups)[cells]}
    tally = Tally.from_predictions(y, decisions, sensitive_features=groups)
    sums = ScoreSums.from_rows(RowScores.from_probabilities(p), cells, y, size=2)
    table = MetricTable.from_tally(tally, scores={"all": sums}, majority=common)
    return model_warnings(table, tally, asked, rows="test rows")


def rows(n=1000, base=0.3, signal=1.5, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < base).astype(int)
    return y, 1 / (1 + np.exp(-(signal * (2 * y - 1) + rng.normal(size=n))))


def test_a_useful_model_has_no_warning():
    y, p = rows()
    assert warnings_about(y, p > 0.5, p, PLAIN) == warnings_about(y, p > 0.5, p, FAIR) == []


def test_scores_that_are_not_finite_come_first():
    """A lost answer leaves the loss undefined too; that is no matter of training."""
    y, p = rows()
    logits = np.log(p / (1 - p))
    cells = np.arange(1000) % 2
    tally = Tally.from_predictions(y, p > 0.5, sensitive_features=cells)
    for changed, lines in ((logits, []), (np.where(p == p.max(), np.inf, logits), [DIVERGED])):
        sums = ScoreSums.from_rows(RowScores.from_logits(changed), cells, y, size=2)
        found = MetricTable.from_tally(tally, scores={"all": sums})
        assert model_warnings(found, tally, PLAIN, rows="rows") == lines
    lost = MetricTable.from_tally(tally, scores={})
    assert lost["loss"].value is None
    assert model_warnings(lost, tally, PLAIN, rows="rows") == []


@pytest.mark.parametrize(("taken", "shown"), [(0, "0"), (6, "6"), (994, "994"), (1000, "1,000")])
def test_decisions_that_are_all_the_same(taken, shown):
    y, p = rows()
    decisions = np.arange(1000) < taken
    (line,) = warnings_about(y, decisions, p, FAIR)
    assert f"it selects {shown} of 1,000 test rows" in line
    assert "the constraint asks too much of the decisions" in line
    assert "raise the tolerance (training aimed at 0.02)" in line
    (line,) = warnings_about(y, decisions, p, PLAIN)
    assert "the threshold of ½ does not" in line
    assert "check the balance of the labels" in line
    none = np.full(1000, 0.5)
    (line,) = warnings_about(y, decisions, none, FAIR)
    assert "Its scores do not tell the labels apart (ROC-AUC 0.5000" in line
    (line,) = warnings_about(y, decisions, 1 - p, FAIR)
    assert "Its scores rank the labels the wrong way round (ROC-AUC 0.0" in line


def test_a_hundredth_selected_is_a_decision():
    y, p = rows()
    found = warnings_about(y, np.argsort(np.argsort(p)) >= 985, p, PLAIN)
    assert not any("same decision" in line for line in found)


def test_few_rows_are_called_few():
    y, p = np.array([0, 1] * 10), np.linspace(0.2, 0.8, 20)
    (line,) = warnings_about(y, p > 0.5, p, PLAIN)
    assert "balanced accuracy 0.5000 (" in line
    assert line.endswith("; 20 rows are also too few to be sure")


def half_wrong(n=1000):
    """30 % have y = 1; the model selects all of them and 35 % of the others."""
    y = (np.arange(n) % 10 < 3).astype(int)
    decisions = (y == 1) | (np.arange(n) % 10 >= 5)
    return y, decisions


def test_below_the_constant_classifier_because_of_the_constraint():
    y, decisions = half_wrong()
    p = 0.2 + 0.6 * y + np.linspace(0, 0.1, len(y))
    (line,) = warnings_about(y, decisions, p, FAIR)
    assert line.startswith(
        "accuracy 0.5000 on test rows is below the 0.7000 of giving everyone the commoner label. "
        "That is the price of the constraint (accuracy_parity and equalized_odds), not a failure "
        "of training"
    )


def test_below_the_constant_classifier_for_no_such_reason():
    y, decisions = half_wrong()
    p = 0.2 + 0.6 * y + np.linspace(0, 0.1, len(y))
    (line,) = warnings_about(y, decisions, p, PLAIN)
    assert line.startswith("accuracy 0.5000 on test rows is below the 0.7000")
    assert "price" not in line
    blind = np.random.default_rng(1).random(len(y))
    (line,) = warnings_about(y, decisions, blind, FAIR)
    assert "price" not in line
    assert "do not tell the labels apart" in line


def test_a_hair_below_the_constant_classifier_may_be_chance():
    """100 rows are selected, 46 of them rightly: accuracy .692, constant .700."""
    y = (np.arange(1000) % 10 < 3).astype(int)
    decisions = np.zeros(1000, bool)
    decisions[np.flatnonzero(y == 1)[:46]] = True
    decisions[np.flatnonzero(y == 0)[:54]] = True
    p = 0.2 + 0.6 * y + np.linspace(0, 0.1, len(y))
    assert warnings_about(y, decisions, p, FAIR) == []


def test_the_constant_classifier_answers_what_was_common_in_training():
    """Where y = 1 was common among train rows, the test rows that are decided 0 count."""
    y, decisions = half_wrong()
    p = 0.2 + 0.6 * y + np.linspace(0, 0.1, len(y))
    assert warnings_about(1 - y, ~decisions, 1 - p, FAIR, majority=1)[0].startswith(
        "accuracy 0.5000 on test rows is below the 0.7000"
    )
    assert warnings_about(y, decisions, p, FAIR, majority=1) == []  # constant: accuracy .3


def test_counts_alone_are_judged_too():
    counts = np.array([[[[0, 40], [0, 60]], [[0, 30], [0, 70]]]])
    tally = Tally(counts, ("all",), (SEX,))
    (line,) = model_warnings(MetricTable.from_tally(tally), tally, PLAIN, rows="rows")
    assert "it selects 200 of 200 rows" in line
    assert "ROC-AUC undefined" in line


def test_train_rows_do_not_hide_what_test_rows_show():
    """Trained to tell people apart; all in the test rows are like those it selects."""
    plain = people_federation()
    chosen = {"rounds": 6, "hidden": (4,), "batch_size": 20, "local_epochs": 5, "lr": 0.05}
    first = mfairfl.train(plain, strategy="fedavg", **chosen)
    assert first.record.warnings == []
    best = np.argmax(first.predictor.predict_proba(people())[:, 1])
    shards = [shard for client in plain.clients for shard in (client.train, client.test)]
    (x,) = [shard.X[shard.rows == best] for shard in shards if best in shard.rows]
    clients = []
    for client in plain.clients:
        alike = Inputs.of(np.repeat(x, len(client.test), axis=0))
        clients.append(replace(client, test=replace(client.test, inputs=alike)))
    run = mfairfl.train(replace(plain, clients=tuple(clients)), strategy="fedavg", **chosen)
    assert 0.1 < run.metrics["train"]["selection_rate"] < 0.9
    assert run.metrics["train"] == first.metrics["train"]
    assert "it selects 52 of 52 test rows" in run.record.warnings[0]
    # Without test rows, what is reported are those of training.
    only = [replace(client, test=client.test[:0]) for client in clients]
    bare = mfairfl.train(replace(plain, clients=tuple(only)), strategy="constant", rounds=0)
    assert "of 208 train rows" in bare.record.warnings[0]
