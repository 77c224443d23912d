"""Figures of one run: the right series from the files, the same bytes every time."""

from __future__ import annotations

import math

import pytest

import federations as fed
import mfairfl
from answers import csv_rows
from eyes import contrast, drawn_colours, lab
from finished_runs import drawn, same, write_run
from mfairfl.errors import DataError, RunDirectoryError
from mfairfl.runs.figures import plot_clients, plot_rounds, save_figure

# ------------------------------------------------------------------ rounds


def test_rounds_show_accuracy_and_the_goal_from_round_1_with_gaps_where_undefined(tmp_path):
    accuracy, violation = plot_rounds(write_run(tmp_path / "r")).axes
    assert drawn(accuracy, "train") == ([1, 2, 3], [0.7, 0.8, 0.75])
    assert same(drawn(accuracy, "test")[1], [0.6, math.nan, 0.7])
    assert drawn(violation, "train")[1] == [0.3, 0.1, 0.05]
    assert same(drawn(violation, "test")[1], [math.nan, 0.2, 0.15])
    assert violation.get_ylabel() == "demographic parity\nviolation"


def test_every_notion_of_the_goal_has_its_panel_and_a_missing_column_is_said(tmp_path):
    run = write_run(tmp_path / "r", notion=["equalized_odds", "equal_opportunity"])
    _, odds, opportunity = plot_rounds(run).axes
    assert drawn(odds, "test")[1] == [0.4, 0.3, 0.1]
    assert same(drawn(odds, "train")[1], [0.5, 0.2, math.nan])
    assert [text.get_text() for text in opportunity.texts] == [
        "not kept round by round; see run.json"
    ]
    assert len(odds.texts) == 0


@pytest.mark.parametrize(
    ("served", "label", "rounds"),
    [
        (["round 2"], "served: round 2", [2]),
        (["average 3"], "served: average 3", [3]),
        (["round 2", "average 3"], "served: round 2, average 3", [2, 3]),
    ],
)
def test_the_served_rounds_are_marked_in_every_panel(tmp_path, served, label, rounds):
    for panel in plot_rounds(write_run(tmp_path / "r", served=served)).axes:
        assert drawn(panel, label)[0] == [rounds[0]] * 2
        upright = [line for line in panel.lines if len(set(line.get_xdata())) == 1]
        assert [line.get_xdata()[0] for line in upright] == rounds


def test_clients_own_models_are_one_mark(tmp_path):
    for panel in plot_rounds(write_run(tmp_path / "r", served=["round 3"] * 5)).axes:
        marks = [line for line in panel.lines if line.get_linestyle() == "--"]
        assert [line.get_label() for line in marks] == ["served: round 3"]


def test_thresholds_that_the_curves_do_not_show_are_named(tmp_path):
    run = write_run(tmp_path / "r", thresholds={"values": [[0.5]], "probabilities": [[1.0]]})
    labels = [line.get_label() for line in plot_rounds(run).axes[0].lines]
    assert "served: round 2 with group thresholds" in labels


def test_a_served_average_of_rounds_is_a_band(tmp_path):
    run = write_run(tmp_path / "r", served=["average of round 2 to round 3"])
    for panel in plot_rounds(run).axes:
        (band,) = panel.patches
        assert (band.get_x(), band.get_width()) == (2, 1)
        assert band.get_label() == "served: average of round 2 to round 3"


# ------------------------------------------------------------------ clients


def test_clients_show_coefficients_and_their_share_of_rows_under_their_own_names(tmp_path):
    first, second = plot_clients(write_run(tmp_path / "r")).axes
    assert (first.get_title(), second.get_title()) == ("NA", "$b^$")
    rounds, values = drawn(first, "coefficient")
    assert rounds == [0, 1, 2, 3]
    assert same(values, [math.nan, 0.6, math.nan, 0.9])
    assert same(drawn(second, "coefficient")[1], [math.nan, 0.4, 1.0, -0.1])
    share = "share of the train rows, n_k/n"
    assert drawn(first, share)[1] == [0.75, 0.75]
    assert drawn(second, share)[1] == [0.25, 0.25]
    assert {line.get_linestyle() for line in first.lines} == {"-", "--"}


def test_training_on_pooled_rows_has_one_panel(tmp_path):
    run = write_run(tmp_path / "r")
    rows = "1,$b^$,,10\n1,NA,,30\n1,all clients,1.0,40\n"
    (run / "clients.csv").write_text("round,client,coefficient,train_rows\n" + rows)
    (panel,) = plot_clients(run).axes
    assert panel.get_title() == "all clients"
    assert drawn(panel, "coefficient") == ([1], [1.0])
    assert drawn(panel, "share of the train rows, n_k/n")[1] == [1.0, 1.0]


def test_more_clients_than_a_line_holds_leave_no_empty_axes(tmp_path):
    run = write_run(tmp_path / "r")
    rows = "".join(f"1,c{i},0.1,5\n" for i in range(7))
    (run / "clients.csv").write_text("round,client,coefficient,train_rows\n" + rows)
    panels = plot_clients(run).axes
    assert [panel.get_title() for panel in panels if panel.axison] == [f"c{i}" for i in range(7)]
    assert len(panels) == 10


# ------------------------------------------------------------------ colours


def test_series_stand_out_from_white_and_differ_in_grey_and_in_their_marks(tmp_path):
    run = write_run(tmp_path / "r")
    for panel in [*plot_rounds(run).axes, *plot_clients(run).axes]:
        assert min(map(contrast, drawn_colours(panel))) >= 3.0
    accuracy, _ = plot_rounds(run).axes
    train, test = (line for line in accuracy.lines if line.get_label() in ("train", "test"))
    assert abs(lab(train.get_color())[0] - lab(test.get_color())[0]) > 30
    assert train.get_marker() != test.get_marker()


# ------------------------------------------------------------------ files


def draw_all(run, folder):
    folder.mkdir()
    save_figure(plot_rounds(run), folder / "rounds.svg")
    save_figure(plot_clients(run), folder / "clients", kinds=("svg", "png"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_files_give_the_same_bytes_without_a_date(tmp_path):
    run = write_run(tmp_path / "r")
    first = draw_all(run, tmp_path / "one")
    assert sorted(first) == ["clients.png", "clients.svg", "rounds.svg"]
    assert draw_all(run, tmp_path / "two") == first
    assert first.pop("clients.png").startswith(b"\x89PNG")
    for data in first.values():
        assert data.startswith(b"<?xml")
        assert b"dc:date" not in data


def test_a_name_with_a_dot_keeps_it(tmp_path):
    save_figure(plot_rounds(write_run(tmp_path / "r")), tmp_path / "lr-0.1", kinds=("svg",))
    assert (tmp_path / "lr-0.1.svg").exists()


def test_what_cannot_be_read_or_drawn_is_named(tmp_path):
    run = write_run(tmp_path / "r")
    with pytest.raises(DataError, match=r"cannot draw into .*x\.bmpp: "):
        save_figure(plot_rounds(run), tmp_path / "x.bmpp")
    (run / "rounds.csv").unlink()
    with pytest.raises(RunDirectoryError, match=r"rounds\.csv: missing or empty"):
        plot_rounds(run)


def test_a_real_run_s_figures_hold_what_its_files_hold(tmp_path):
    settings = {"rounds": 3, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}
    settings |= {"training.evaluate_every": 2}
    run = mfairfl.train(fed.people_federation(), out=tmp_path / "run", **settings).path
    rows = csv_rows(run / "rounds.csv")[1:]
    accuracy, violation = plot_rounds(run).axes
    tested = [float(row["test_accuracy"]) for row in rows[1:]]
    assert drawn(accuracy, "test") == ([2, 3], tested)
    assert rows[0]["test_accuracy"] == ""
    expected = [float(row["train_demographic_parity_violation"]) for row in rows]
    assert drawn(violation, "train")[1] == expected
    names = [panel.get_title() for panel in plot_clients(run).axes]
    assert names == ["east", "north", "south", "west"]
