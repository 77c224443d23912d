"""`mfairfl doctor`: what it finds in files made to have it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy.stats import binom

from mfairfl.runs.config import make_config
from mfairfl.runs.manifest import server_view


@pytest.fixture
def diagnose(cli, tmp_path):
    """Write a frame and settings for it; return the findings."""

    def call(frame, extra=""):
        frame.to_csv(tmp_path / "people.csv", index=False)
        (tmp_path / "my.toml").write_text(
            '[data]\ncsv = "people.csv"\n[task]\nlabel = "Hired"\nfavourable = "yes"\n'
            f'sensitive = ["Gender"]\nclient = "Site"\n{extra}',
            encoding="utf-8",
        )
        answer = cli("doctor", "my.toml", "--json")
        return answer, json.loads(answer.out)["findings"]

    return call


def texts(findings, level, check=None):
    return [f["message"] for f in findings if f["level"] == level and check in (None, f["check"])]


def test_valid_file_has_findings_but_no_failure(diagnose, people, cli):
    answer, findings = diagnose(people)
    assert (answer.code, answer.err) == (0, "")
    share = (people["Hired"] == "yes").mean()
    assert texts(findings, "ok", "label") == [
        f"Hired = yes (favourable) in {share:.1%} of the rows"
    ]
    assert "numeric Score, Age; categorical Job, Gender; client Site" in texts(findings, "ok")
    assert texts(findings, "ok", "missing values") == ["none in the features"]
    sizes = people["Site"].value_counts()
    assert texts(findings, "ok", "clients") == [
        f"3 clients (scheme column), {sizes.min()} to {sizes.max()} rows"
    ]
    assert texts(findings, "fail") == []
    lines = cli("doctor", "my.toml").out.splitlines()
    warned = sum(line.startswith("warn  ") for line in lines)
    assert lines[-1] == f"ready, {warned} warning{'s' * (warned != 1)}"


def test_cost_is_train_rows_times_epochs(diagnose, people):
    _, findings = diagnose(
        people,
        "[training]\nrounds = 3\nlocal_epochs = 7\n[model]\nhidden=[4]\n"
        '[encoder]\nnumeric = "standard"\n',
    )
    # A fifth of each client's rows is test; 2 + 3 + 3 features, 4 hidden units, one output.
    sizes = people["Site"].value_counts()
    rows = 240 - sum(int(n * 0.2 + 0.5) for n in sizes)
    weights = 8 * 4 + 4 + 4 + 1
    sent = 2 * 3 * 3 * 4 * weights / 1e6
    assert texts(findings, "ok", "cost") == [
        f"{rows} train rows × 21 epochs = {rows * 21:,} row passes; {weights} weights, "
        f"{sent:.1f} MB sent and received in total"
    ]


def test_the_server_sees_cells_of_group_and_label(diagnose, people):
    _, findings = diagnose(people)
    first, *lines = texts(findings, "ok", "server sees")
    # Three groups × two labels.
    assert first == "the method needs each client's update; groups × labels are 6 cells"
    expected = server_view(make_config({"strategy": {"name": "mfairfl"}}))
    assert lines == [line.sentence for line in expected]
    assert any(line.startswith("measurements: ") and "every round" in line for line in lines)


def test_a_reference_that_pools_rows_says_so(diagnose, people):
    _, findings = diagnose(people, '[strategy]\nname = "cenfair"\n')
    (said,) = texts(findings, "ok", "server sees")
    assert said.startswith("rows: every row of every client; each client's own, once")


def test_columns_that_give_the_label_away_or_say_nothing(diagnose, people):
    people["Contract"] = np.where(people["Hired"] == "yes", "signed", "none")
    people["Points"] = np.where(people["Hired"] == "yes", 70, 30)
    people["Country"] = "here"
    people["Name"] = [f"person {i}" for i in range(240)]
    people.loc[:8, "Score"] = np.nan
    _, findings = diagnose(people)
    (leaks,) = texts(findings, "warn", "leakage")
    assert leaks.startswith("2 columns predict the label alone: Points (accuracy 1.000, that of ")
    assert "Contract (accuracy 1.000, that of the constant classifier" in leaks
    assert texts(findings, "warn", "identifiers") == [
        "column 'Name' names rows (240 different texts in 240 rows): list it in ignore"
    ]
    assert texts(findings, "note", "constants") == [
        "column 'Country' never changes (here): list it in ignore"
    ]
    assert texts(findings, "note", "duplicates") == [
        "column 'Contract' repeats another (one value for each of Points): list it in ignore"
    ]
    notes = texts(findings, "note", "data")
    assert any("column 'Score': 9 of 240 values missing" in note for note in notes)
    assert texts(findings, "ok", "missing values") == []


def test_small_groups_and_clients_that_lack_one(diagnose, people):
    people["Gender"] = np.where(people.index < 220, "f", "m")
    people.loc[people["Gender"] == "m", "Site"] = "north"
    people.loc[people["Site"] == "west", "Hired"] = "no"
    _, findings = diagnose(people)
    # 20 rows, all at one client, of which a fifth are test rows: 4, or one less by rounding.
    (small,) = texts(findings, "warn", "groups")
    assert re.match(
        r"Gender: fewer than 30 test rows of m \([345]\): too few to distinguish", small
    )
    notes = texts(findings, "warn", "clients")
    assert "2 clients have no train row of Gender m: south, west" in notes
    assert "west: every train label is unfavourable" in notes


def test_rare_label_is_a_warning_but_not_leakage(diagnose, people):
    people["Hired"] = np.where(people.index % 60 == 0, "yes", "no")  # 4 of 240
    _, findings = diagnose(people, '[clients]\nscheme = "iid"\ncount = 1\n')
    (said,) = texts(findings, "warn", "label")
    assert "in 1.7% of the rows" in said
    assert texts(findings, "warn", "leakage") == []


def test_noise_floor_of_two_groups_is_the_binomial_one(diagnose, people):
    """One group of 20, one of 20: E max |F − F_g| is E|a − b|/40 for two binomials."""
    frame = people.head(200).copy()
    frame["Gender"] = np.where(frame.index % 2 == 0, "f", "m")
    frame["Hired"] = np.where(frame.index % 4 < 2, "yes", "no")
    _, findings = diagnose(frame.assign(Site="one"))
    (said,) = texts(findings, "ok", "noise floor")
    k = np.arange(21)
    p = binom.pmf(k, 20, 0.5)
    expected = (np.abs(k[:, None] - k) * np.outer(p, p)).sum() / 40
    assert "on 40 test rows" in said
    # 2,000 draws: the standard error of the mean is 0.0011; three digits are shown.
    assert float(said.split(": ")[1].split()[0]) == pytest.approx(expected, abs=0.005)


def test_a_failure_is_in_the_findings_and_on_stderr(diagnose, people):
    people.loc[7, "Gender"] = "x"
    answer, findings = diagnose(people)
    assert answer.code == 2
    assert json.loads(answer.out)["ok"] is False
    (failed,) = texts(findings, "fail")
    assert failed.startswith("people.csv: sensitive column 'Gender': group 'x' has one member")
    assert answer.err == f"error: {failed}\n"


def test_no_test_rows_is_a_warning(diagnose, people):
    answer, findings = diagnose(people, "[clients]\ntest = 0.0\n")
    assert answer.code == 0
    assert texts(findings, "warn", "noise floor") == [
        "no test rows: results will be measured on train rows"
    ]


def test_a_method_by_gradients_passes_over_the_rows_once_per_step(diagnose, people):
    budget = "[training]\nrounds = 3\nlocal_epochs = 7\n"
    _, local = diagnose(people, budget)
    _, gradient = diagnose(people, f'{budget}[strategy]\nname = "mfairfl-paper"\n')
    passes = [texts(found, "ok", "cost")[0].split(";")[0] for found in (local, gradient)]
    assert passes[0] == passes[1]  # 3 × 7 epochs, or 21 steps of one pass each
