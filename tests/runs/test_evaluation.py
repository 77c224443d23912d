"""Numbers of a model that is not ours, from its predictions row by row."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from metric_tables import values
from mfairfl.data import Attribute
from mfairfl.errors import DataError
from mfairfl.fairness import MetricTable, Tally
from mfairfl.runs.evaluation import evaluate_rows
from mfairfl.runs.record import StoredTable

SEX = Attribute("sex", ("F", "M"))


def rows(seed=0, n=2000):
    """Probabilities as a forest of a hundred trees answers: in steps, also 0 and 1."""
    rng = np.random.default_rng(seed)
    cells, clients = rng.integers(0, 2, n), rng.choice(["north", "south"], n)
    y = (rng.random(n) < 0.3 + 0.2 * cells).astype(int)
    p = np.clip(np.round(0.4 * y + 0.3 + 0.25 * rng.normal(size=n), 2), 0.0, 1.0)
    return y, p, cells, clients


def test_numbers_equal_scikit_learn_and_fairlearn():
    y, p, cells, clients = rows()
    found = evaluate_rows(
        y,
        probabilities=p,
        decisions=p > 0.5,
        cells=cells,
        clients=clients,
        attributes=[SEX],
    )
    assert {p.min(), p.max()} == {0.0, 1.0}
    parts = [(y == y, values(found))]
    parts += [(clients == name, values(found.by_client[name])) for name in ("north", "south")]
    parts += [(cells == i, values(found.by_group["sex"][g])) for i, g in enumerate(SEX.groups)]
    for here, numbers in parts:
        assert numbers["roc_auc"] == pytest.approx(roc_auc_score(y[here], p[here]), abs=1e-12)
        assert numbers["loss"] == pytest.approx(log_loss(y[here], p[here]), rel=1e-12)
        assert numbers["accuracy"] == accuracy_score(y[here], p[here] > 0.5)
    for here, numbers in parts[:3]:
        groups, taken = pd.Series(cells[here]), p[here] > 0.5
        expected = demographic_parity_difference(
            y[here], taken, sensitive_features=groups, method="to_overall"
        )
        assert numbers["demographic_parity_violation"] == pytest.approx(expected, abs=1e-12)
    area = found.by_client["north"]["roc_auc"]
    assert area.interval[0] < area.value < area.interval[1]
    json.dumps(StoredTable.of(found).model_dump(mode="json"), allow_nan=False)


def test_decisions_may_be_drawn():
    y, p, cells, _ = rows()
    found = evaluate_rows(y, probabilities=p, decisions=p, cells=cells, attributes=[SEX])
    assert found["selection_rate"].value == pytest.approx(p.mean())
    assert found["accuracy"].value == pytest.approx(np.where(y == 1, p, 1 - p).mean())
    assert list(found.by_client) == ["all"]


def test_a_tally_alone_has_no_numbers_of_scores():
    y, p, cells, clients = rows()
    whole = evaluate_rows(
        y, probabilities=p, decisions=p > 0.5, cells=cells, clients=clients, attributes=[SEX]
    )
    groups = np.array(SEX.groups)[cells]
    alone = MetricTable.from_tally(
        Tally.from_predictions(y, p > 0.5, sensitive_features={"sex": groups}, clients=clients)
    )
    assert "roc_auc" not in alone.overall
    for name, number in alone.overall.items():
        assert whole[name] == number
    assert alone.constant_classifier == whole.constant_classifier


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": [0.2, 1.2]}, "probabilities: row 1 holds 1.2"),
        ({"decisions": [0, 2]}, "decisions: use 0 and 1"),
        ({"decisions": [0, np.nan]}, "decisions: use 0 and 1"),
        ({"cells": [0]}, "differ in length"),
        ({"clients": ["a", "b", "c"]}, "differ in length"),
    ],
)
def test_what_cannot_be_measured_is_one_line(change, message):
    good = {"probabilities": [0.2, 0.8], "decisions": [0, 1], "cells": [0, 1]}
    with pytest.raises(DataError, match=message) as caught:
        evaluate_rows([0, 1], attributes=[SEX], **good | change)
    assert "\n" not in str(caught.value)
