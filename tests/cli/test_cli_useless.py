"""A useless model never looks fair: the first line of its result says so, and what to try."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

TASK = ("--label", "y", "--favourable", "yes", "--sensitive", "g", "--client", "site")
QUICK = (
    *("--rounds", "12", "--local-epochs", "2", "--hidden", "8", "--lr", "0.01"),
    *("--weight-decay", "3", "--set", "encoder.numeric=standard"),
)


def people(chance, n=3000, seed=0):
    """Rows whose label has the chance that a function of x and group gives."""
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=n).round(3), rng.choice(["a", "b"], n, p=[0.6, 0.4])
    label = np.where(rng.random(n) < chance(x, g), "yes", "no")
    site = rng.choice(["north", "south"], n)
    return pd.DataFrame({"x": x, "g": g, "site": site, "y": label})


def sigma(z):
    return 1 / (1 + np.exp(-z))


FILES = {
    # x says hardly anything, and 97 of 100 labels are favourable.
    "all-selected": people(lambda x, g: sigma(3.5 + 0.3 * x)),
    "random": people(lambda x, g: np.full(len(x), 0.5)),
    # Rare and easy in group a, even and hard in b: equal accuracy costs more than it can.
    "priced": people(lambda x, g: np.where(g == "a", sigma(2.5 * x - 4), sigma(0.9 * x))),
    "good": people(lambda x, g: sigma(3 * x)),
}


@pytest.fixture
def train(cli, tmp_path):
    """Train on one of the files; return what was printed and the record."""

    def go(name, *flags):
        FILES[name].to_csv(f"{name}.csv", index=False)
        answer = cli("train", "--csv", f"{name}.csv", *TASK, *QUICK, *flags, "--out", "run")
        assert answer.code == 0, answer.err
        return answer.out, json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))

    return go


def first_paragraph(out, warning):
    """Whether the result begins with this warning, in lines of any length."""
    return " ".join(out.split()).startswith(f"warning: {' '.join(warning.split())} ")


def test_the_first_warning_is_that_everyone_is_selected(train):
    out, run = train("all-selected", "--strategy", "mfairfl")
    test = run["metrics"]["test"]
    assert test["demographic_parity_violation"] < 0.005
    assert test["selection_rate"] > 0.99
    (warning,) = run["warnings"]
    assert first_paragraph(out, warning)
    rows = sum(client["n"] for client in test["by_client"].values())
    taken = round(test["selection_rate"] * rows)
    assert warning.startswith(
        f"the model gives almost everyone the same decision: it selects {taken} of {rows} test "
        "rows, so low violations say nothing. "
    )
    assert "raise the tolerance" in warning or "training.rounds" in warning


def test_a_model_of_random_labels_decides_by_lot(train):
    out, run = train("random", "--strategy", "fedavg")
    (warning,) = run["warnings"]
    assert first_paragraph(out, warning)
    low, high = run["intervals"]["test"]["balanced_accuracy"]
    value = run["metrics"]["test"]["balanced_accuracy"]
    assert low <= 0.5
    assert f"balanced accuracy {value:.4f} ({low:.4f} to {high:.4f}) on 600 test rows" in warning
    assert "Its scores do not tell the labels apart (ROC-AUC 0." in warning
    assert "try more training.rounds or another training.lr" in warning


def test_accuracy_lost_to_the_constraint_is_not_a_training_failure(train):
    out, run = train("priced", "--strategy", "mfairfl", "--notion", "ap")
    test, constant = run["metrics"]["test"], run["constant_classifier"]["test"]
    assert test["accuracy"] < constant["accuracy"] - 0.03
    (warning,) = run["warnings"]
    assert first_paragraph(out, warning)
    assert warning.startswith(
        f"accuracy {test['accuracy']:.4f} on test rows is below the {constant['accuracy']:.4f} of "
        "giving everyone the commoner label. That is the price of the constraint "
        "(accuracy_parity), not a failure of training"
    )
    assert f"(ROC-AUC {test['roc_auc']:.4f}," in warning
    assert "A larger tolerance (training aimed at 0.005)" in warning


@pytest.mark.parametrize(("name", "strategy"), [("good", "mfairfl"), ("priced", "fedavg")])
def test_useful_model_gets_no_warning(train, name, strategy):
    out, run = train(name, "--strategy", strategy)
    assert run["warnings"] == []
    assert not any(line.startswith("warning: the model") for line in out.splitlines())


def test_predict_says_it_of_the_rows_of_the_file(cli, train):
    train("good", "--strategy", "fedavg")
    FILES["random"].to_csv("new.csv", index=False)
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "p.csv")
    assert answer.out.startswith("warning: the model does no better than random guessing")
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "q.csv", "--json")
    (warning,) = json.loads(answer.out)["warnings"]
    assert "on 3,000 labelled rows" in warning
    FILES["good"][::-1].to_csv("new.csv", index=False)
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "r.csv")
    assert answer.out.startswith("r.csv: 3,000 rows")


@pytest.mark.parametrize(("notions", "width"), [("dp", 80), ("dp,eo", 90)])
def test_the_result_shows_scores_and_each_client_s_violation(train, monkeypatch, notions, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out, run = train("good", "--strategy", "mfairfl", "--notion", notions)
    test = run["metrics"]["test"]
    rows = [line.split() for line in out.splitlines()]
    for label, name in {"roc_auc": "roc_auc", "log-loss": "loss"}.items():
        assert [label, f"{test[name]:.4f}"] in [row[:2] for row in rows]
    for client, numbers in test["by_client"].items():
        (row,) = [row for row in rows if row[:1] == [client]]
        shown = ["roc_auc", "demographic_parity_violation", "equalized_odds_violation"]
        shown = shown[: 2 + ("eo" in notions)]
        assert row[6 : 6 + len(shown)] == [f"{numbers[name]:.4f}" for name in shown]
    for group, numbers in test["by_group"]["g"].items():
        (row,) = [row for row in rows if row[:2] == ["g", group]]
        assert row[-1] == f"{numbers['expected_calibration_error']:.4f}"
    tables = [line for line in out.splitlines() if not line.startswith(("note", "files"))]
    assert max(map(len, tables)) <= width
