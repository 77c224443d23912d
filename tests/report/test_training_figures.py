"""`--plots`: the report's charts of training as files of their own, from the run's files."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

import federations as fed
import mfairfl
from answers import csv_rows
from finished_runs import write_run
from mfairfl.errors import RunDirectoryError
from mfairfl.report.figures import draw_training
from mfairfl.report.reported_run import read_runs
from mfairfl.report.training_history import training_history

NAMES = ["rounds.svg", "clients.svg"]


def texts(path):
    """The texts of a drawing; that it is well formed is shown on the way."""
    root = ElementTree.fromstring(path.read_bytes())  # noqa: S314 - written here
    return [element.text for element in root.iter() if element.text and element.text.strip()]


def test_accuracy_the_goal_and_the_clients_are_drawn_with_the_served_round(tmp_path):
    run = write_run(tmp_path / "r")
    files = draw_training(run)
    assert [path.name for path in files] == NAMES
    rounds, clients = map(texts, files)
    assert {"train", "test", "served: round 2"} <= set(rounds)
    assert "Accuracy over 4 rounds" in rounds
    assert "Violation over 4 rounds" in rounds
    assert {"NA", "$b^$", "served: round 2"} <= set(clients)  # names are text, never formulas


def test_values_are_those_of_the_files_with_gaps_where_undefined(tmp_path):
    run = write_run(tmp_path / "r")
    (spoken,) = [text for text in texts(draw_training(run)[0]) if "train: from 25.0 %" in text]
    assert "lowest 25.0 % at 0, highest 80.0 % at 2" in spoken
    history = training_history(read_runs([run])[0])
    assert history.coefficients["NA"] == [None, 0.6, None, 0.9]
    assert history.coefficients["$b^$"] == [None, 0.4, 1.0, -0.1]


def test_the_same_files_give_the_same_bytes(tmp_path):
    run = write_run(tmp_path / "r")
    first = [path.read_bytes() for path in draw_training(run)]
    assert [path.read_bytes() for path in draw_training(run)] == first
    assert all(data.startswith(b"<?xml") for data in first)


def test_a_missing_file_is_named(tmp_path):
    run = write_run(tmp_path / "r")
    (run / "rounds.csv").unlink()
    with pytest.raises(RunDirectoryError, match=r"rounds\.csv"):
        draw_training(run)


def test_a_real_run_s_figures_hold_what_its_files_hold(tmp_path):
    settings = {"rounds": 3, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}
    settings |= {"training.evaluate_every": 2}
    run = mfairfl.train(fed.people_federation(), out=tmp_path / "run", **settings).path
    rounds, clients = map(texts, draw_training(run))
    last = float(csv_rows(run / "rounds.csv")[-1]["test_accuracy"])
    assert any(f"to {100 * last:.1f} %" in text for text in rounds)
    assert {"east", "north", "south", "west"} <= set(clients)
