"""A notion of one's own: registered, it has the same numbers as the built-in ones."""

from __future__ import annotations

import math

import fairlearn.metrics as fl
import numpy as np
import pytest

import mfairfl
from answers import csv_rows
from federations import people_federation
from metric_tables import quick_table, values
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness import (
    Event,
    MetricTable,
    Notion,
    Tally,
    frontier,
    notion,
    register_notion,
)

OWN = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")
KINDS = ("violation", "difference", "ratio")
SMALL = {"model.hidden": [4], "training.local_epochs": 2, "training.batch_size": 20}


@pytest.fixture
def own(new_names):
    register_notion(OWN)
    return OWN


def rows(seed=0, n=400):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), rng.integers(0, 2, n), rng.choice(["F", "M"], n)


def test_its_numbers_equal_fairlearn(own):
    y, p, s = rows()
    found = values(quick_table(Tally.from_predictions(y, p, sensitive_features=s)))
    frame = fl.MetricFrame(
        metrics=fl.false_positive_rate, y_true=y, y_pred=p, sensitive_features=s
    )
    expected = [frame.difference(method="to_overall"), frame.difference(), frame.ratio()]
    assert [found[f"{own.name}_{kind}"] for kind in KINDS] == pytest.approx(expected, abs=1e-12)


def test_it_may_be_handed_over_without_being_registered():
    y, p, s = rows()
    tally = Tally.from_predictions(y, p, sensitive_features=s)
    table = MetricTable.from_tally(tally, draws=200, notions=[OWN])
    found = values(table)
    assert {name for name in found if name.startswith(OWN.name)} == {
        f"{OWN.name}_{kind}" for kind in KINDS
    }
    assert "demographic_parity_violation" not in found
    name = f"{OWN.name}_violation"
    lower, upper = table[name].interval
    assert lower <= found[name] <= upper
    floors = {key for key, number in table.overall.items() if number.noise_floor is not None}
    assert floors == {
        name,
        "client_accuracy_std",
        "client_accuracy_gap",
    }
    assert name not in quick_table(tally).overall


@pytest.mark.parametrize("statistic", ["selection", "error"])
def test_its_floor_is_that_of_its_own_rows(statistic):
    """Two groups of n rows with y = 0: E max |F − F_g| = ½ E|N(0, √(2 p(1−p)/n))|."""
    n, p = 1000, 0.2
    cell = [[round(n * (1 - p)), round(n * p)], [10, 4000]]
    tally = Tally(np.array([[cell, cell]]), ("all",), (Attribute("sex", ("F", "M")),))
    one = Notion("negatives", OWN.events, statistic)
    floor = MetricTable.from_tally(tally, draws=20000, notions=[one])[
        "negatives_violation"
    ].noise_floor
    expected = 0.5 * math.sqrt(2 * p * (1 - p) / n) * math.sqrt(2 / math.pi)
    assert floor == pytest.approx(expected, rel=0.02)


def test_it_bounds_the_frontier(own):
    # Of the rows with y = 0 all are refused: no violation, and nothing lost.
    assert frontier([[10, 30], [30, 10]], predictive_equality=0.0).accuracy == pytest.approx(1.0)
    assert notion("predictive_equality") is own


def test_a_run_reaches_for_it_and_records_it(own, tmp_path):
    federation = people_federation()
    out = tmp_path / "run"
    settings = {"output.rule": "select", "output.tolerance": 0.02, "training.lr": 0.02}
    run = mfairfl.train(federation, notion=own.name, rounds=2, out=out, **settings, **SMALL)
    test = run.metrics["test"]
    for kind in KINDS:
        assert f"{own.name}_{kind}" in test
    name = f"{own.name}_violation"
    rates = {
        attribute: {group: cell["false_positive_rate"] for group, cell in cells.items()}
        for attribute, cells in test["by_group"].items()
    }
    deviations = [
        abs(rate - test["false_positive_rate"])
        for attribute in ("sex", "age")
        for rate in rates[attribute].values()
    ]
    assert test[name] == pytest.approx(max(deviations), abs=1e-12)
    assert run.record.intervals["test"][name][0] <= test[name]
    assert name in run.record.noise_floor["test"].at(("overall",))
    assert f"train_{name}" in csv_rows(out / "rounds.csv")[-1]


def test_a_name_is_registered_once(own):
    register_notion(Notion("predictive_equality", (Event("y=0", (0,)),), "selection"))
    with pytest.raises(ConfigError, match="'predictive_equality' is already registered"):
        register_notion(Notion("predictive_equality", own.events, "error"))
    with pytest.raises(ConfigError, match="'dp' is already registered"):
        register_notion(Notion("dp", own.events, "selection"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Own", OWN.events, "selection"), "'Own' is not a valid name"),
        (("own", OWN.events, "select"), "did you mean 'selection'"),
        (("own", (), "selection"), "'own' has no events"),
    ],
)
def test_a_notion_that_cannot_be_measured_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        Notion(*arguments)
