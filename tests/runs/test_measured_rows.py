"""Numbers of predictions that are measured row by row."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from metric_tables import values
from mfairfl.data import Attribute
from mfairfl.fairness import MetricTable, Tally
from mfairfl.fairness.scores import RowScores
from mfairfl.runs.record import StoredTable
from mfairfl.runs.rows import measure_rows

SEX = Attribute("sex", ("F", "M"))


def rows(seed=0, n=2000):
    """Probabilities as a forest of a hundred trees answers: in steps, also 0 and 1."""
    rng = np.random.default_rng(seed)
    cells, clients = rng.integers(0, 2, n), rng.choice(["north", "south"], n)
    y = (rng.random(n) < 0.3 + 0.2 * cells).astype(int)
    p = np.clip(np.round(0.4 * y + 0.3 + 0.25 * rng.normal(size=n), 2), 0.0, 1.0)
    return y, p, cells, clients


def measured(y, p, decisions, cells, clients):
    """The numbers of predictions that are measured client by client."""
    scores, chance = RowScores.from_probabilities(p), decisions.astype(float)
    place = {"cells": cells, "clients": clients, "attributes": (SEX,)}
    return measure_rows(y, chance, scores, **place).table()


def test_a_client_without_rows_is_counted_if_it_is_named():
    y, p, cells, clients = rows()
    place = {"cells": cells, "clients": clients, "attributes": (SEX,)}
    scores = RowScores.from_probabilities(p)
    names = ("west", "south", "north")
    table = measure_rows(y, np.float64(p > 0.5), scores, **place, names=names).table()
    assert list(table.by_client) == list(names)
    assert table.by_client["west"]["accuracy"].value is None


def test_numbers_equal_scikit_learn_and_fairlearn():
    y, p, cells, clients = rows()
    found = measured(y, p, p > 0.5, cells, clients)
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
    found = measured(y, p, p, cells, np.full(len(y), "all"))
    assert found["selection_rate"].value == pytest.approx(p.mean())
    assert found["accuracy"].value == pytest.approx(np.where(y == 1, p, 1 - p).mean())
    assert list(found.by_client) == ["all"]


def test_a_tally_alone_has_no_numbers_of_scores():
    y, p, cells, clients = rows()
    whole = measured(y, p, p > 0.5, cells, clients)
    groups = np.array(SEX.groups)[cells]
    alone = MetricTable.from_tally(
        Tally.from_predictions(y, p > 0.5, sensitive_features={"sex": groups}, clients=clients)
    )
    assert "roc_auc" not in alone.overall
    for name, number in alone.overall.items():
        assert whole[name] == number
    assert alone.constant_classifier == whole.constant_classifier
