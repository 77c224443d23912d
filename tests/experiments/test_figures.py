"""Pictures and tables of runs: the right series from the files, the same bytes every time."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

import federations as fed
import mfairfl
from mfairfl.errors import ConfigError, DataError, RunDirectoryError
from mfairfl.experiments.comparison import compare, write_comparison
from mfairfl.experiments.figures.runs import (
    draw_clients,
    draw_comparison,
    draw_rounds,
    plot_clients,
    plot_comparison,
    plot_rounds,
)

ROUNDS = """\
round,train_accuracy,train_demographic_parity_difference,test_accuracy,\
test_demographic_parity_difference,test_equalized_odds_difference,train_equalized_odds_difference
0,0.25,0,0.2,0,0,0
1,0.7,0.3,0.6,,0.4,0.5
2,0.8,0.1,nan,0.2,0.3,0.2
3,0.75,0.05,0.7,0.15,0.1,
"""
CLIENTS = """\
round,client,coefficient,train_rows
0,NA,,30
0,$b^$,,10
1,NA,0.6,30
1,$b^$,0.4,10
2,NA,,30
2,$b^$,1.0,10
3,NA,0.9,30
3,$b^$,-0.1,10
"""


def cell(accuracy, selected, found):
    keys = ("accuracy", "selection_rate", "true_positive_rate")
    return {"n": 50, **dict(zip(keys, (accuracy, selected, found), strict=True))}


def ranges(cells):
    """Intervals that reach 0.01 to either side."""
    return {
        whom: {k: None if v is None else [v - 0.01, v + 0.01] for k, v in one.items() if k != "n"}
        for whom, one in cells.items()
    }


def write_run(
    folder,
    *,
    strategy="fedavg",
    served=("round 2",),
    notion=None,
    status="complete",
    seed=0,
    accuracy=0.8,
    violation=0.2,
    groups=None,
    clients=None,
    note="",
    thresholds=None,
):
    groups = groups or {"f": cell(0.9, 0.1, 0.5), "m": cell(0.7, 0.3, None)}
    clients = clients or {"NA": cell(0.85, 0.2, 0.4), "$b^$": cell(0.75, 0.2, 0.4)}
    values = {
        "accuracy": accuracy,
        "demographic_parity_difference": violation,
        "worst_client_accuracy": min(c["accuracy"] for c in clients.values()),
        "client_accuracy_gap": 0.1,
    }
    spans = {name: None if v is None else [v - 0.02, v + 0.02] for name, v in values.items()}
    record = {
        "schema_version": 1,
        "identity": "made by hand",
        "status": status,
        "config": {
            "strategy": {"name": strategy},
            "fairness": {"notion": notion or ["demographic_parity"]},
        },
        "data": {"name": "people", "sha256": "abc"},
        "task": {"label": "hired"},
        "federation": {
            "scheme": "iid",
            "seed": seed,
            "options": {},
            "clients": [{"name": name} for name in clients],
        },
        "served": {"names": list(served), "note": note, "thresholds": thresholds},
        "warnings": [],
        "metrics": {
            "train": None,
            "validation": None,
            "test": {**values, "by_group": {"sex": groups}, "by_client": clients},
        },
        "intervals": {
            "test": {
                "level": 0.95,
                **spans,
                "by_group": {"sex": ranges(groups)},
                "by_client": ranges(clients),
            }
        },
        "noise_floor": {"test": {"demographic_parity_difference": 0.03}},
    }
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (folder / "rounds.csv").write_text(ROUNDS, encoding="utf-8")
    (folder / "clients.csv").write_text(CLIENTS, encoding="utf-8")
    return folder


def drawn(panel, label):
    """Return x and y of the one line of this label."""
    (line,) = [line for line in panel.lines if line.get_label() == label]
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def same(found, expected):
    return np.array_equal(found, expected, equal_nan=True)


# ------------------------------------------------------------------ rounds


def test_rounds_show_accuracy_and_the_goal_from_round_1_with_gaps_where_undefined(tmp_path):
    accuracy, violation = plot_rounds(write_run(tmp_path / "r")).axes
    assert drawn(accuracy, "train") == ([1, 2, 3], [0.7, 0.8, 0.75])
    assert same(drawn(accuracy, "test")[1], [0.6, math.nan, 0.7])
    assert drawn(violation, "train")[1] == [0.3, 0.1, 0.05]
    assert same(drawn(violation, "test")[1], [math.nan, 0.2, 0.15])
    assert violation.get_ylabel() == "demographic parity\ndifference"


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


# ------------------------------------------------------------------ comparison


@pytest.fixture
def two(tmp_path):
    groups = {"f": cell(0.85, 0.18, 0.7), "m": cell(0.69, 0.22, None)}
    clients = {"NA": cell(0.76, 0.2, 0.4), "$b^$": cell(0.78, 0.2, 0.4)}
    other = write_run(
        tmp_path / "fair", strategy="mfairfl", accuracy=0.77, violation=0.025, groups=groups,
        clients=clients, note="no candidate is within the tolerance",
    )  # fmt: skip
    return [write_run(tmp_path / "plain"), other]


def test_table_tells_what_changed_and_for_whom(two):
    lines = write_comparison(compare(two)).splitlines()
    assert lines[0] == "people, 2 clients, 100 test rows: value, 95% interval, change from fedavg"
    rows = [line.split() for line in lines]
    assert rows[1] == ["fedavg", "mfairfl", "change"]
    expected = [
        "accuracy 0.8000 0.7800 to 0.8200 0.7700 0.7500 to 0.7900 -0.0300",
        "demographic_parity_difference * 0.2000 0.1800 to 0.2200 0.0250 0.0050 to 0.0450 -0.1750",
        "noise floor 0.0300 0.0300",
        "worst_client_accuracy 0.7500 0.7300 to 0.7700 $b^$ 0.7600 0.7400 to 0.7800 NA +0.0100",
        "client_accuracy_gap 0.1000 0.0800 to 0.1200 0.1000 0.0800 to 0.1200 +0.0000",
        "",
        "sex f accuracy 0.9000 0.8900 to 0.9100 0.8500 0.8400 to 0.8600 -0.0500",
        "sex f selection_rate 0.1000 0.0900 to 0.1100 0.1800 0.1700 to 0.1900 +0.0800",
        "sex f true_positive_rate 0.5000 0.4900 to 0.5100 0.7000 0.6900 to 0.7100 +0.2000",
        "sex m accuracy 0.7000 0.6900 to 0.7100 0.6900 0.6800 to 0.7000 -0.0100",
        "sex m selection_rate 0.3000 0.2900 to 0.3100 0.2200 0.2100 to 0.2300 -0.0800",
        "sex m true_positive_rate undefined undefined",
        "",
        "NA accuracy 0.8500 0.8400 to 0.8600 0.7600 0.7500 to 0.7700 -0.0900",
        "$b^$ accuracy 0.7500 0.7400 to 0.7600 0.7800 0.7700 to 0.7900 +0.0300",
    ]
    assert [" ".join(row) for row in rows[2:17]] == expected
    assert lines[-1] == "warning: mfairfl: no candidate is within the tolerance"


def test_comparison_shows_each_run_s_numbers_and_skips_undefined_ones(two):
    goal, selected, found, accuracy = plot_comparison(compare(two)).axes
    assert drawn(goal, "fedavg")[0] == [0.2]
    assert drawn(goal, "mfairfl")[0] == [0.025]
    floors = [line.get_xdata()[0] for line in goal.lines if line.get_label() == "noise floor"]
    assert floors == [0.03, 0.03]
    assert drawn(selected, "mfairfl")[0] == [0.18, 0.22]
    assert same(drawn(found, "fedavg")[0], [0.5, math.nan])
    names = [text.get_text() for text in accuracy.get_yticklabels()]
    assert names == ["everyone", "sex f", "sex m", "NA", "$b^$"]
    assert drawn(accuracy, "fedavg")[0] == [0.8, 0.9, 0.7, 0.85, 0.75]
    spans = [tuple(line.get_xdata()) for line in goal.lines if len(line.get_xdata()) == 2]
    assert spans == [(0.2 - 0.02, 0.2 + 0.02), (0.025 - 0.02, 0.025 + 0.02)]


def test_an_undefined_goal_leaves_the_picture_and_the_table_whole(tmp_path, two):
    other = write_run(tmp_path / "void", strategy="x", violation=None)
    comparison = compare([two[1], other])
    (line,) = [li for li in write_comparison(comparison).splitlines() if "parity" in li]
    assert line.split()[-1] == "undefined"
    goal = plot_comparison(comparison).axes[0]
    assert same(drawn(goal, "x")[0], [math.nan])


def test_three_runs_have_a_change_each_and_folders_name_equal_strategies(tmp_path):
    accuracies = {"a": 0.5, "b": 0.6, "c": 0.45}
    runs = [write_run(tmp_path / name, accuracy=value) for name, value in accuracies.items()]
    lines = write_comparison(compare(runs)).splitlines()
    assert lines[1].split() == ["a", "b", "c", "change", "b", "change", "c"]
    assert lines[2].split()[-2:] == ["+0.1000", "-0.0500"]


def test_only_finished_runs_on_the_same_rows_are_compared(tmp_path):
    first = write_run(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"a and .*b: measured on different rows \(seed differs"):
        compare([first, write_run(tmp_path / "b", seed=1)])
    with pytest.raises(RunDirectoryError, match=r"c: the run is not finished"):
        compare([first, write_run(tmp_path / "c", status="running")])
    with pytest.raises(ConfigError, match="1 run directories given; give two or more"):
        compare([first])


# ------------------------------------------------------------------ files


def draw_all(run, other, folder):
    folder.mkdir()
    draw_rounds(run, folder / "rounds.svg")
    draw_clients(run, folder / "clients.svg")
    draw_comparison([run, other], folder / "comparison.svg")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_files_give_the_same_bytes_without_a_date(two, tmp_path):
    first = draw_all(*two, tmp_path / "one")
    assert sorted(first) == ["clients.svg", "comparison.svg", "rounds.svg"]
    assert draw_all(*two, tmp_path / "two") == first
    for data in first.values():
        assert data.startswith(b"<?xml")
        assert b"dc:date" not in data


def test_what_cannot_be_read_or_drawn_is_named(tmp_path):
    run = write_run(tmp_path / "r")
    with pytest.raises(DataError, match=r"cannot draw into .*x\.bmpp: "):
        draw_rounds(run, tmp_path / "x.bmpp")
    (run / "rounds.csv").unlink()
    with pytest.raises(RunDirectoryError, match=r"rounds\.csv: missing or empty"):
        plot_rounds(run)


def test_a_real_run_s_pictures_hold_what_its_files_hold(tmp_path):
    settings = {"rounds": 3, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}
    runs = [tmp_path / name for name in ("fedavg", "mfairfl")]
    for out in runs:
        mfairfl.train(fed.people_federation(), out=out, strategy=out.name, **settings)
    draw_all(*runs, tmp_path / "pictures")
    with (runs[1] / "rounds.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[1:]
    accuracy, violation = plot_rounds(runs[1]).axes
    assert drawn(accuracy, "test")[1] == [float(row["test_accuracy"]) for row in rows]
    expected = [float(row["train_demographic_parity_difference"]) for row in rows]
    assert drawn(violation, "train")[1] == expected
    names = [panel.get_title() for panel in plot_clients(runs[1]).axes]
    assert names == ["east", "north", "south", "west"]
    assert compare(runs).runs == ("fedavg", "mfairfl")
