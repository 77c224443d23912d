"""Numbers of the record that no tally holds, recomputed from rows."""

from __future__ import annotations

import numpy as np
import pytest

import mfairfl
from federations import people, people_federation

SMALL = {"model.hidden": [4], "training.local_epochs": 2, "training.batch_size": 20}


def test_losses_and_their_parity_equal_those_of_the_raw_test_rows():
    frame, federation = people(), people_federation()
    run = mfairfl.train(federation, rounds=2, **SMALL, **{"training.lr": 0.02})
    rows = np.concatenate([client.test.rows for client in federation.clients])
    part = frame.iloc[rows]
    chance = run.predictor.predict_proba(part)[:, 1]
    loss = -np.log(np.where(part["hired"] == "yes", chance, 1 - chance))
    gaps = [
        abs(loss[(part[column] == value).to_numpy()].mean() - loss.mean())
        for column in ("sex", "age")
        for value in part[column].unique()
    ]
    test = run.metrics["test"]
    assert test["loss"] == pytest.approx(loss.mean(), rel=1e-6)
    assert test["accuracy_parity_loss_violation"] == pytest.approx(max(gaps), rel=1e-6)


def test_a_model_that_answers_alike_is_called_so_and_an_ordinary_one_is_not():
    constant = mfairfl.train(people_federation(), strategy="constant", rounds=0, **SMALL)
    (warning,) = constant.record["warnings"]
    assert "decides alike for nearly everyone (selection rate 0.0000" in warning
    ordinary = mfairfl.train(people_federation(), strategy="fedavg", rounds=4, **SMALL, lr=0.02)
    assert 0.01 < ordinary.metrics["train"]["selection_rate"] < 0.99
    assert ordinary.record["warnings"] == []
