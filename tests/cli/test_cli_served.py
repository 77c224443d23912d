"""Train, then predict the test rows: the record's own numbers, for models of every kind."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.metrics import log_loss, roc_auc_score

from mfairfl import load
from mfairfl.data import Task, partition, read_table
from mfairfl.strategies import available

SEEDED = ("--seed", "4", "--rounds", "4", "--weight-decay", "0.1")
TASK = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")
KINDS = {
    "ensemble": ("--strategy", "indfair"),
    "personal": ("--strategy", "ditto"),
    "fixed": ("--strategy", "fedavg-threshold", "--tolerance", "1"),
    "random": ("--strategy", "fedavg-threshold", "--notion", "eo", "--randomise"),
    "mixture": ("--strategy", "mfairfl", "--output-rule", "mixture", "--rounds", "8"),
}


@pytest.fixture
def trained(cli, csv, flags, tmp_path):
    """Train a kind of model into the folder `run`; return what was printed and the record."""

    def go(kind):
        answer = cli("train", "--csv", csv, *flags, *SEEDED, *KINDS[kind], "--out", "run")
        assert answer.code == 0, answer.err
        return answer, json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))

    return go


@pytest.fixture
def test_file(csv, people, tmp_path):
    """The test rows of the run, as a file of their own."""
    rows = partition(read_table(csv, TASK), "column", seed=4).pooled("test").rows
    path = tmp_path / "test.csv"
    people.iloc[rows].to_csv(path, index=False)
    return path


def flat(metrics):
    """Every number of a record's metrics under its path."""
    found = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": number for inner, number in flat(value).items()}
        else:
            found[key] = value
    return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_predicting_the_test_rows_finds_the_recorded_metrics(cli, trained, test_file, kind):
    _, run = trained(kind)
    answer = cli("predict", "run", "--csv", test_file, "--out", "p.csv", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert (
        found["rows"]
        == found["measured_rows"]
        == sum(c["n"] for c in run["metrics"]["test"]["by_client"].values())
    )
    ours, theirs = flat(found["metrics"]), flat(run["metrics"]["test"])
    assert len(ours) > 90
    assert ours.keys() == theirs.keys()
    # Sums of scores, and expected counts, are added up in another order.
    numbers = [key for key, value in theirs.items() if isinstance(value, float)]
    assert {k: ours[k] for k in numbers} == pytest.approx(
        {k: theirs[k] for k in numbers}, abs=1e-12
    )
    assert all(ours[key] == theirs[key] for key in theirs.keys() - {*numbers})


@pytest.mark.parametrize("kind", list(KINDS))
def test_scores_are_measured_as_scikit_learn_does(cli, trained, test_file, kind, tmp_path):
    """`predict` writes the scores; thresholds are the model's: before the rule."""
    _, run = trained(kind)
    assert run["served"]["kind"] == ({"fixed": "single", "random": "single"}.get(kind, kind))
    found = run["metrics"]["test"]
    rows, model = pd.read_csv(test_file), load(tmp_path / "run")
    z, y = model.decision_function(rows), (rows["Hired"] == "yes").to_numpy()
    rank = z if z.ndim == 1 else logit(model.predict_proba(rows)[:, 1])
    # Logits in the same bin are ties.
    rank = np.floor(128 * np.clip(rank, -8, 7.999))
    for here, numbers in [
        (y == y, found),
        *((rows["Gender"] == g, part) for g, part in found["by_group"]["Gender"].items()),
        *((rows["Site"] == c, part) for c, part in found["by_client"].items()),
    ]:
        expected = roc_auc_score(y[here], rank[here])
        assert numbers["roc_auc"] == pytest.approx(expected, abs=1e-12)
        if kind != "mixture":
            p = 1 / (1 + np.exp(-z[here]))
            assert numbers["loss"] == pytest.approx(log_loss(y[here], p), abs=1e-9)
            b = np.minimum((15 * p).astype(int), 14)
            gaps = [abs((p - y[here])[b == i].sum()) for i in range(15)]
            error = sum(gaps) / here.sum()
            assert numbers["expected_calibration_error"] == pytest.approx(error, abs=1e-9)
        else:
            assert numbers["expected_calibration_error"] is None
            members = [log_loss(y[here], 1 / (1 + np.exp(-one[here]))) for one in z]
            expected = np.dot(run["served"]["weights"], members)
            assert numbers["loss"] == pytest.approx(expected, abs=1e-9)
    low, high = run["intervals"]["test"]["roc_auc"]
    assert low < found["roc_auc"] < high


def test_client_models_are_chosen_by_column_or_by_name(cli, trained, csv, people, tmp_path):
    trained("personal")
    assert cli("predict", "run", "--csv", csv, "--out", "by-column.csv").code == 0
    people.drop(columns=["Site", "Hired"]).to_csv(tmp_path / "bare.csv", index=False)
    by_column = pd.read_csv(tmp_path / "by-column.csv").drop(columns="split")
    for site in ("north", "south", "west"):
        answer = cli("predict", "run", "--csv", "bare.csv", "--client", site, "--out", site)
        assert answer.code == 0, answer.err
        here = people["Site"] == site
        by_name = pd.read_csv(tmp_path / site)
        pd.testing.assert_frame_equal(by_name[here], by_column[here])
        assert not by_name[~here].equals(by_column[~here])


@pytest.mark.parametrize(
    ("kind", "dropped", "extra", "message"),
    [
        (
            "personal",
            "Site",
            (),
            "new.csv: each client has a model of its own: add the column 'Site', or give client= "
            "(--client), one of: north, south, west",
        ),
        ("personal", "Hired", ("--client", "wets"), "unknown client 'wets': did you mean 'west'?"),
        (
            "ensemble",
            "Hired",
            ("--client", "west"),
            "client 'west': this run serves all clients alike; remove client= (--client)",
        ),
        ("fixed", "Gender", (), "new.csv lacks the column 'Gender': add it"),
    ],
)
def test_unanswerable_requests_give_one_line(
    cli, trained, people, tmp_path, kind, dropped, extra, message
):
    trained(kind)
    people.drop(columns=dropped).to_csv(tmp_path / "new.csv", index=False)
    answer = cli("predict", "run", "--csv", "new.csv", "--out", "p.csv", *extra)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {message}")
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ensemble", "3 clients' own models, averaged, at NAME (rule select)"),
        ("personal", "a model of its own for each of 3 clients, at round 4 (rule last)"),
        ("fixed", "round 4, with a threshold for each group (rule thresholds)"),
    ],
)
def test_the_result_says_who_answers(trained, kind, said):
    answer, run = trained(kind)
    said = said.replace("NAME", run["served"]["names"][0])
    assert f"served model: {said}" in answer.out.splitlines()


def test_random_decisions_are_reported(cli, trained, test_file):
    trained("random")
    answer = cli("predict", "run", "--csv", test_file, "--out", "p.csv")
    assert "decisions were drawn at random with seed 0" in answer.out


def test_a_rule_that_does_not_fit_leaves_no_folder(cli, csv, flags, tmp_path):
    answer = cli(
        *("train", "--csv", csv, *flags, "--strategy", "ditto", "--output-rule", "select"),
        *("--out", "run"),
    )
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "output.rule = 'select' does not fit" in answer.err
    assert not (tmp_path / "run").exists()


def test_every_strategy_is_listed(cli):
    listed = json.loads(cli("strategies", "--json").out)
    assert [one["name"] for one in listed] == available()
    design = (
        "fedavg fedavg-f fedavg-threshold indfair cenfair fedfb fpfl fairfed qffl drfl ditto "
        "fedmgda+ mfairfl mfairfl-paper mfairfl-rnd mfairfl-rev afl term fedprox scaffold fedfv "
        "constant"
    )
    assert {one["name"] for one in listed} >= {*design.split()}
    shown = {line.split()[0]: line for line in cli("strategies").out.splitlines() if line.strip()}
    assert {*design.split()} <= shown.keys()
    # Pooling shows the server more than any update could.
    assert shown["cenfair"].split()[-1] == "rows"


def test_the_doctor_says_that_scores_are_counted(cli, csv, task_flags):
    init = ("init", "--csv", csv, *task_flags, "--out", "t.toml")
    assert cli(*init).code == 0
    words = " ".join(cli("doctor", "t.toml").out.split())
    assert "score histograms: rows in 2,048 steps of the score" in words
