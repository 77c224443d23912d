"""Runs side by side: the right numbers in the table and in the figure."""

from __future__ import annotations

import math

import pytest

import federations as fed
import mfairfl
from counted_runs import decided, write_counted
from eyes import contrast, drawn_colours, lab
from finished_runs import cell, drawn, same, write_run
from mfairfl import compare
from mfairfl.errors import ConfigError, RunDirectoryError
from mfairfl.experiments.side_by_side import Comparison, compare_runs, plot_comparison


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
    warning, *lines = str(compare(two)).splitlines()
    assert warning == "warning: mfairfl: no candidate is within the tolerance"
    assert lines[0] == "people, 2 clients, 100 test rows: value, 95% interval, change from fedavg"
    rows = [line.split() for line in lines]
    assert rows[1] == ["fedavg", "mfairfl", "change"]
    expected = [
        "accuracy 0.8000 0.7800 to 0.8200 0.7700 0.7500 to 0.7900 -0.0300",
        "demographic_parity_violation * 0.2000 0.1800 to 0.2200 0.0250 0.0050 to 0.0450 -0.1750",
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


def test_runs_differ_in_mark_and_in_grey_and_stand_out_from_white(two):
    panels = plot_comparison(compare(two)).axes
    for panel in panels:
        assert min(map(contrast, drawn_colours(panel))) >= 3.0
    fedavg, mfairfl = (
        next(line for line in panels[0].lines if line.get_label() == name)
        for name in ("fedavg", "mfairfl")
    )
    assert fedavg.get_marker() != mfairfl.get_marker()
    assert abs(lab(fedavg.get_color())[0] - lab(mfairfl.get_color())[0]) > 30


def test_an_undefined_goal_leaves_the_picture_and_the_table_whole(tmp_path, two):
    other = write_run(tmp_path / "void", strategy="x", violation=None)
    comparison = compare([two[1], other])
    (line,) = [li for li in str(comparison).splitlines() if "parity" in li]
    assert line.split()[-1] == "undefined"
    goal = plot_comparison(comparison).axes[0]
    assert same(drawn(goal, "x")[0], [math.nan])


def test_three_runs_have_a_change_each_and_folders_name_equal_strategies(tmp_path):
    accuracies = {"a": 0.5, "b": 0.6, "c": 0.45}
    runs = [write_run(tmp_path / name, accuracy=value) for name, value in accuracies.items()]
    lines = str(compare(runs)).splitlines()
    assert lines[1].split() == ["a", "b", "c", "change", "b", "change", "c"]
    assert lines[2].split()[-2:] == ["+0.1000", "-0.0500"]


def test_only_finished_runs_on_the_same_rows_are_compared(tmp_path):
    first = write_run(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"a and .*b: measured on different rows \(seed differs"):
        compare([first, write_run(tmp_path / "b", seed=1)])
    with pytest.raises(RunDirectoryError, match=r"c/run\.json: the run is not finished"):
        compare([first, write_run(tmp_path / "c", status="running")])
    with pytest.raises(ConfigError, match="needs two or more runs, or a study file; got 1 run"):
        compare([first])
    with pytest.raises(ConfigError, match="needs two or more runs, or a study file; got 0 run"):
        compare([], references=["boosting", "logistic"])


def test_the_same_runs_give_the_same_picture(two, tmp_path):
    for name in ("one.svg", "two.svg"):
        compare(two).plot(tmp_path / name)
    data = (tmp_path / "one.svg").read_bytes()
    assert data == (tmp_path / "two.svg").read_bytes()
    assert data.startswith(b"<?xml")
    assert b"dc:date" not in data


def test_runs_in_memory_are_compared_like_their_directories(tmp_path):
    settings = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}
    names = ("fedavg", "mfairfl")
    runs = [
        mfairfl.train(fed.people_federation(), out=tmp_path / name, strategy=name, **settings)
        for name in names
    ]
    memory = [mfairfl.train(fed.people_federation(), strategy=name, **settings) for name in names]
    found = compare(runs)
    assert found.runs == names
    shown = {(line.whom, line.metric): line.numbers for line in found.lines}
    for i, run in enumerate(runs):
        test, limits = run.record.metrics["test"], run.record.intervals["test"]
        for name in ("roc_auc", "loss", "expected_calibration_error"):
            assert shown["", name][i].value == test[name]
        assert shown["", "roc_auc"][i].interval == limits["roc_auc"]
        for site, numbers in test.by_client.items():
            name = "demographic_parity_violation"
            assert shown[site, name][i].value == numbers[name]
            assert shown[site, name][i].interval == limits.by_client[site][name]
    assert sum("log-loss" in line for line in str(found).splitlines()) == 1
    assert found == compare(memory) == compare([tmp_path / name for name in names])
    assert compare([memory[0], memory[0]]).runs == ("fedavg 1", "fedavg 2")


def test_references_need_rows_on_file_and_a_study_names_its_own():
    run = mfairfl.train(fed.people_federation(), rounds=1, hidden=(4,))
    with pytest.raises(ConfigError, match=r"first run's rows are not on file; remove references"):
        compare([run, run], references=["boosting"])
    with pytest.raises(ConfigError, match=r"references: only with runs"):
        compare({"data": ["adult"], "strategies": ["fedavg"]}, references=["boosting"])


def test_what_is_worse_than_in_the_first_run_is_named(tmp_path):
    cells = {
        "plain": [decided(1000, 100, 90, of=200), decided(1000, 500, 380, of=400)],
        "fair": [decided(1000, 300, 190, of=200), decided(1000, 340, 290, of=400)],
        "same": [decided(1000, 100, 90, of=200), decided(1000, 500, 380, of=400)],
    }
    folders = [write_counted(tmp_path / name, table) for name, table in cells.items()]
    found = compare_runs(folders)
    assert list(found.worsened) == ["fair", "same"]
    assert [(x.whom, x.number) for x in found.worsened["fair"]] == [("M", "true_positive_rate")]
    assert found.worsened["same"] == []
    assert str(found).splitlines()[-4:] == [
        "fair, worse than plain by more than chance explains:",
        "  true positive rate of sex M: 95.0 to 72.5 %",
        "same, worse than plain by more than chance explains:",
        "  nothing",
    ]
    assert Comparison.model_validate_json(found.model_dump_json()) == found
