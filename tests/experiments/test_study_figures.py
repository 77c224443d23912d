"""Pictures of many runs: the right numbers at the right places, the same bytes every time."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pandas as pd
import pytest

import federations as fed
import mfairfl
from answers import csv_rows
from eyes import contrast, drawn_colours
from mfairfl.colours import PALETTE
from mfairfl.errors import DataError, RunDirectoryError
from mfairfl.experiments.figures import method_styles, plot_client_bars, plot_pareto, save_figure
from mfairfl.experiments.histories import (
    epochs_to_best,
    multiplier_history,
    plot_convergence,
    plot_multipliers,
    read_history,
    write_epochs_markdown,
)
from records import make_record

DP = "demographic_parity_violation"
WHERE = {"split": "high", "protocol": "40x5", "notion": "demographic_parity"}


def run(strategy, seed, accuracy, violation, **more):
    row = {
        "data": "adult", "strategy": strategy, "seed": seed, "accuracy": accuracy, DP: violation,
        f"floor_{DP}": 0.01, "constant_accuracy": 0.76, **WHERE,
    }  # fmt: skip
    return row | more


def results():
    """Two seeds of two methods on adult, one seed of one method on bank."""
    return pd.DataFrame(
        [
            run("mfairfl", 0, 0.80, 0.01, **{f"floor_{DP}": 0.004}),
            run("mfairfl", 1, 0.82, 0.03, **{f"floor_{DP}": 0.008}),
            run("fedavg", 0, 0.85, 0.04, notion="", **{f"floor_{DP}": 0.004}),
            run("fedavg", 1, 0.87, 0.08, notion="", **{f"floor_{DP}": 0.008}),
            run("mfairfl", 0, 0.90, 0.02, data="bank", constant_accuracy=0.88),
        ]
    )


def pareto(frame, data=("adult",), **more):
    return plot_pareto(frame, data=data, **(WHERE | more))


def points(panel):
    """Return mean and both standard deviations (None without bars) of every method drawn."""
    found = {}
    for drawn in panel.containers:
        (x,), (y,) = drawn.lines[0].get_data()
        bars = [np.ptp(bar.get_segments()[0], axis=0).max() / 2 for bar in drawn.lines[2]]
        found[drawn.get_label()] = (float(x), float(y), *map(float, bars))
    return found


def line(panel, label):
    (found,) = [one for one in panel.lines if one.get_label() == label]
    return [float(x) for x in found.get_xdata()], [float(y) for y in found.get_ydata()]


def told(panel):
    return [text for one in panel.texts for text in one.get_text().splitlines()]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


# ------------------------------------------------------------------ styles


def test_pooled_references_have_marks_that_no_method_has_and_the_legend_says_why():
    pooled = ("boosting", "boosting-threshold", "logistic")
    found = method_styles([*pooled, *(f"m{i}" for i in range(21)), "mfairfl"], pooled=pooled)
    assert list(found)[-3:] == list(pooled)
    marks = [found[name].marker for name in pooled]
    assert len(set(marks)) == 3
    assert not {*marks} & {look.marker for name, look in found.items() if name not in pooled}
    more = pd.DataFrame([run("boosting", seed, 0.88, 0.09, notion="") for seed in (0, 1)])
    figure = pareto(pd.concat([results(), more]), pooled=("boosting",))
    assert points(figure.axes[0])["boosting †"][:2] == pytest.approx((0.09, 0.88))
    assert legend(figure)[:3] == ["mfairfl", "fedavg", "boosting †"]
    assert "not federated" in figure.legends[0].get_title().get_text()
    assert not pareto(results()).legends[0].get_title().get_text()


def test_no_two_of_22_methods_share_marker_and_filling_nor_hatch_and_colour():
    found = method_styles([*(f"m{i}" for i in range(21)), "mfairfl"])
    # In grey a filling is full, hollow or in between.
    filling = {"#ffffff": "hollow"}
    points = {
        (look.marker, filling.get(look.fill, look.fill == look.colour)) for look in found.values()
    }
    assert len(points) == 22
    assert len({(look.hatch, look.colour) for look in found.values()}) == 22
    assert next(iter(found)) == "mfairfl"
    assert (found["mfairfl"].marker, found["mfairfl"].fill) == ("*", PALETTE[0])
    assert [name for name, look in found.items() if look.colour == PALETTE[0]] == ["mfairfl"]


@pytest.mark.parametrize("names", [["mfairfl", *"abcde"], [*"abcdef"]])
def test_few_methods_differ_in_every_way_there_is(names):
    looks = method_styles(names).values()
    for way in ("colour", "marker", "dashes", "hatch"):
        assert len({str(getattr(look, way)) for look in looks}) == len(names), way


def test_a_reference_that_is_not_there_gets_no_style():
    assert list(method_styles(["b", "a", "b"])) == ["b", "a"]
    assert method_styles(["b", "a"], reference="a")["a"].marker == "*"


# ------------------------------------------------------------------ pareto


def test_points_are_means_and_bars_standard_deviations_over_seeds():
    (panel,) = pareto(results()).axes
    root = math.sqrt(2)  # two values 2a apart have the standard deviation √2·a
    expected = {
        "mfairfl": (0.02, 0.81, 0.01 * root, 0.01 * root),
        "fedavg": (0.06, 0.86, 0.02 * root, 0.01 * root),
    }
    found = points(panel)
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, abs=1e-12)
    floor, _ = line(panel, "noise floor")
    assert floor == pytest.approx([0.006, 0.006])
    assert panel.get_title() == "adult"


def test_one_seed_has_no_bars_and_a_missing_method_no_point():
    figure = pareto(results(), data=["adult", "bank"])
    adult, bank = figure.axes
    assert list(points(adult)) == ["mfairfl", "fedavg"]
    assert points(bank) == {"mfairfl": (0.02, 0.90)}
    assert legend(figure) == ["mfairfl", "fedavg", "noise floor", "constant classifier"]


def test_only_the_asked_for_split_protocol_and_notion_are_drawn():
    others = [
        run("low", 0, 0.8, 0.1, split="low"),
        run("short", 0, 0.8, 0.1, protocol="10x20"),
        run("odds", 0, 0.8, 0.1, notion="equalized_odds"),
        run("constant", 0, 0.76, 0.0, notion=""),
    ]
    frame = pd.concat([results(), pd.DataFrame(others)], ignore_index=True)
    assert set(points(pareto(frame).axes[0])) == {"mfairfl", "fedavg"}


def test_a_method_looks_the_same_in_every_picture_of_a_frame():
    more = [run("fpfl", 0, 0.8, 0.1), run("fedavg", 0, 0.8, 0.1, split="low", notion="")]
    frame = pd.concat([results(), pd.DataFrame(more)], ignore_index=True)

    def marker(split):
        (drawn,) = [
            one for one in pareto(frame, split=split).axes[0].containers
            if one.get_label() == "fedavg"
        ]  # fmt: skip
        return drawn.lines[0].get_marker()

    assert marker("low") == marker("high") != "*"


def test_violations_are_linear_from_0_and_logarithmic_only_where_they_spread():
    (near,) = pareto(results()).axes
    assert (near.get_xscale(), near.get_xlim()[0]) == ("linear", 0.0)
    assert near.get_xlabel() == "demographic parity violation"
    frame = results()
    frame.loc[frame["strategy"] == "fedavg", DP] = [0.2, 0.21]  # more than ten times 0.02
    (wide,) = pareto(frame).axes
    assert wide.get_xscale() == "log"
    assert wide.get_xlabel() == "demographic parity violation, log scale"
    assert wide.get_xlim()[0] < 0.006  # the noise floor, lowest of all, is in sight
    frame.loc[frame["strategy"] == "mfairfl", DP] = 0.0  # 0 has no logarithm
    assert pareto(frame).axes[0].get_xscale() == "linear"


def test_labels_of_the_logarithmic_axis_are_plain_numbers():
    frame = results()
    frame.loc[frame["strategy"] == "fedavg", DP] = [0.2, 0.21]
    figure = pareto(frame)
    figure.draw_without_rendering()
    shown = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert {"0.01", "0.02", "0.05", "0.1", "0.2"} <= set(shown)


def test_a_frontier_far_above_the_points_is_told_and_does_not_squeeze_them():
    # The points and their bars lie within 0.796 and 0.874, so 0.076 above is still near.
    curve = ([0.0, 0.1, 0.5], [0.96, 0.98, 0.99])
    (panel,) = pareto(results(), frontiers={"adult": curve}).axes
    low, high = panel.get_ylim()
    assert low < 0.76 < high < 0.96
    right = panel.get_xlim()[1]
    assert 0.06 + 0.02 * math.sqrt(2) < right < 0.1  # fedavg's bar ends within the frame
    assert told(panel) == [f"↑ frontier: 0.960 to {0.96 + 0.2 * right:.3f}"]
    assert line(panel, "frontier: best of any classifier") == curve


def test_a_frontier_near_the_points_is_in_the_picture():
    figure = pareto(results(), frontiers={"adult": ([0.0, 0.5], [0.9, 1.0]), "else": ([], [])})
    (panel,) = figure.axes
    assert panel.get_ylim()[1] > 0.9
    assert told(panel) == []
    assert "frontier: best of any classifier" in legend(figure)


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        (0.76, []),
        (0.5, ["↓ constant classifier: 0.500"]),
        (0.99, ["↑ constant classifier: 0.990"]),
    ],
)
def test_the_constant_classifier_is_a_line_or_told_where_it_is(constant, said):
    (panel,) = pareto(results().assign(constant_accuracy=constant)).axes
    assert told(panel) == said
    assert line(panel, "constant classifier")[1] == pytest.approx([constant] * 2)
    low, high = panel.get_ylim()
    assert (low < constant < high) == (said == [])


def test_an_undefined_mean_is_named_and_the_others_are_drawn():
    frame = results()
    frame.loc[0, DP] = math.nan
    (panel,) = pareto(frame).axes
    assert list(points(panel)) == ["fedavg"]
    assert told(panel) == ["undefined: mfairfl"]
    assert math.isfinite(panel.get_xlim()[1])


def test_a_panel_without_any_defined_violation_and_a_floor_of_0_leave_the_picture_whole():
    frame = results()
    frame.loc[frame["data"] == "bank", [DP, f"floor_{DP}"]] = math.nan
    _, bank = pareto(frame, data=["adult", "bank"]).axes
    assert points(bank) == {}
    # One run, at 0.90, leaves room for lines within 0.01 of it.
    assert told(bank) == ["undefined: mfairfl", "↓ constant classifier: 0.880"]
    frame = results().assign(**{f"floor_{DP}": 0.0})
    frame.loc[frame["strategy"] == "fedavg", DP] = [0.2, 0.21]
    (panel,) = pareto(frame).axes
    assert panel.get_xscale() == "log"
    assert 0 < panel.get_xlim()[0] < 0.02  # mfairfl's mean


# ------------------------------------------------------------------ convergence


def curve(strategy, seed, accuracy, std, *, data="adult", protocol="3x5", start=0):
    epochs = range(start, start + 5 * len(accuracy), 5)
    return pd.DataFrame(
        {
            "data": data, "split": "high", "protocol": protocol, "strategy": strategy,
            "notion": "", "seed": seed, "epoch": epochs, "accuracy": accuracy,
            "client_accuracy_std": std,
        }
    )  # fmt: skip


def history():
    """Return short curves; epoch 0 is before training."""
    return pd.concat(
        [
            curve("mfairfl", 0, [0.2, 0.80, 0.849, 0.85], [0.0, 0.03, 0.02, 0.018]),
            curve("mfairfl", 1, [0.3, 0.84, 0.842, 0.846], [0.0, 0.01, 0.02, 0.03]),
            curve("fedavg", 0, [0.2, 0.845, 0.85, 0.84], [0.0, 0.04, 0.03, 0.035]),
            curve("mfairfl", 0, [0.5, 0.90, 0.91, 0.92], [0.1, 0.01, 0.01, 0.02], data="bank"),
        ],
        ignore_index=True,
    )


def test_lines_are_means_over_seeds_from_the_first_round_on():
    figure = plot_convergence(history(), data=["adult", "bank"], protocol="3x5")
    above, other, below, _ = figure.axes
    assert (above.get_title(), other.get_title()) == ("adult", "bank")
    epochs, accuracy = line(above, "mfairfl")
    assert epochs == [5, 10, 15]
    assert accuracy == pytest.approx([0.82, 0.8455, 0.848])
    assert line(below, "mfairfl")[1] == pytest.approx([0.02, 0.02, 0.024])
    assert line(above, "fedavg") == ([5, 10, 15], [0.845, 0.85, 0.84])
    assert [one.get_label() for one in other.lines] == ["mfairfl"]
    assert legend(figure) == ["mfairfl", "fedavg"]
    styles = {(str(one.get_linestyle()), one.get_marker()) for one in above.lines}
    assert len(styles) == 2


def test_a_band_reaches_from_the_lowest_to_the_highest_of_several_seeds():
    figure = plot_convergence(history(), data=["adult", "bank"], protocol="3x5")
    above, other, *_ = figure.axes
    (band,) = above.collections  # fedavg has one seed and no band
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners >= {(5, 0.80), (5, 0.84), (10, 0.842), (10, 0.849), (15, 0.846), (15, 0.85)}
    assert len(other.collections) == 0


def test_a_line_ends_where_a_seed_has_no_more_rounds():
    frame = history()
    frame = frame[~((frame["seed"] == 1) & (frame["epoch"] == 15))]
    above, _ = plot_convergence(frame, data=["adult"], protocol="3x5").axes
    assert line(above, "mfairfl")[1] == pytest.approx([0.82, 0.8455, math.nan], nan_ok=True)


def test_early_bands_may_leave_the_frame_but_lines_never_do():
    # In round 1 one seed of three is at 0.1: the mean, 0.6, is drawn and the band is cut.
    frame = pd.concat(
        [curve("a", seed, [0.0, first, *[0.85] * 30], 0.1) for seed, first in
         enumerate([0.1, 0.85, 0.85])]
    )  # fmt: skip
    above, _ = plot_convergence(frame, data=["adult"], protocol="3x5").axes
    low, high = above.get_ylim()
    assert 0.1 < low < 0.6 < 0.85 < high


def test_a_number_that_is_nowhere_defined_is_said():
    frame = history().assign(client_accuracy_std=math.nan)
    above, below = plot_convergence(frame, data=["adult"], protocol="3x5").axes
    assert told(below) == ["undefined"]
    assert told(above) == []


# ------------------------------------------------------------------ epochs to the best


def test_epochs_to_best_by_hand():
    # mfairfl, accuracy: 0.849 at epoch 10 is within 0.005 of 0.85; 0.842 is within 0.005 of 0.846.
    # Its client std: 0.02 at epoch 10 is within 0.005 of 0.018; the other starts at its lowest.
    # fedavg: exactly 0.005 below the best at once; its std is at its lowest at epoch 10.
    found = epochs_to_best(history().sample(frac=1, random_state=3)).set_index(
        ["data", "strategy"]
    )
    ours = found.loc[("adult", "mfairfl")]
    assert (ours["accuracy_epochs"], ours["accuracy_epochs_std"]) == (10, 0)
    assert ours["client_accuracy_std_epochs"] == 7.5
    assert ours["client_accuracy_std_epochs_std"] == pytest.approx(math.sqrt(12.5))
    assert (ours["protocol"], ours["runs"], ours["within"]) == ("3x5", 2, 0.005)
    theirs = found.loc[("adult", "fedavg")]
    assert (theirs["accuracy_epochs"], theirs["client_accuracy_std_epochs"]) == (5, 10)
    assert math.isnan(theirs["accuracy_epochs_std"])
    bank = found.loc[("bank", "mfairfl")]
    assert (bank["accuracy_epochs"], bank["client_accuracy_std_epochs"]) == (15, 5)
    assert len(found) == 3


def test_undefined_rounds_do_not_count_and_an_undefined_run_makes_the_mean_undefined():
    frame = pd.concat(
        [
            curve("a", 0, [math.nan, 0.8, 0.9], [0.1, math.nan, 0.2], start=5),
            curve("a", 1, [0.9, 0.9, 0.9], [math.nan] * 3, start=5),
        ]
    )
    (found,) = epochs_to_best(frame).to_dict("records")
    assert found["accuracy_epochs"] == 10  # epochs 15 and 5
    assert math.isnan(found["client_accuracy_std_epochs"])


def test_protocols_are_told_apart():
    frame = pd.concat([history(), curve("mfairfl", 0, [0.1, 0.9], [0.1, 0.1], protocol="1x5")])
    keys = epochs_to_best(frame)[["protocol", "data", "strategy"]].to_numpy().tolist()
    assert sorted(map(tuple, keys)) == [
        ("1x5", "adult", "mfairfl"),
        ("3x5", "adult", "fedavg"),
        ("3x5", "adult", "mfairfl"),
        ("3x5", "bank", "mfairfl"),
    ]


def test_the_table_of_epochs():
    frame = pd.concat(
        [history(), curve("odd", 0, [0.1, 0.9], [math.nan] * 2)], ignore_index=True
    )  # fmt: skip
    first, table = write_epochs_markdown(epochs_to_best(frame)).split("\n\n")
    assert first.startswith("First epoch within 0.005 of the run's best: mean ± standard dev")
    assert sorted(table.splitlines()[2:]) == [
        "| fedavg | 5.0 (n=1) | 10.0 (n=1) |  |  |",
        "| mfairfl | 10.0 ± 0.0 | 7.5 ± 3.5 | 15.0 | 5.0 |",
        "| odd | 5.0 (n=1) | undefined |  |  |",
    ]
    assert table.splitlines()[:2] == [
        "| 3x5 | adult: accuracy | adult: client std | bank: accuracy | bank: client std |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]


# ------------------------------------------------------------------ clients


def client_rows():
    rows = [
        ("adult", "fedavg", "a", 0, 0.80), ("adult", "fedavg", "a", 1, 0.90),
        ("adult", "fedavg", "b", 0, 0.70), ("adult", "fedavg", "b", 1, 0.70),
        ("adult", "mfairfl", "b", 0, 0.75), ("bank", "mfairfl", "NA", 0, 0.01),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["data", "strategy", "client", "seed", "accuracy"])


def test_bars_are_means_with_standard_deviations_side_by_side_and_gaps_where_nothing_ran():
    figure = plot_client_bars(client_rows())
    adult, bank = figure.axes
    bars = {c.get_label(): c for c in adult.containers if hasattr(c, "patches")}
    heights = {name: [bar.get_height() for bar in c.patches] for name, c in bars.items()}
    assert heights["fedavg"] == pytest.approx([0.85, 0.70])
    assert heights["mfairfl"] == pytest.approx([math.nan, 0.75], nan_ok=True)
    (ends,) = bars["fedavg"].errorbar.lines[2]
    lengths = [float(np.ptp(segment[:, 1])) / 2 for segment in ends.get_segments()]
    assert lengths == pytest.approx([0.05 * math.sqrt(2), 0.0])
    assert [text.get_text() for text in adult.get_xticklabels()] == ["a", "b"]
    ours, theirs = bars["mfairfl"].patches[1], bars["fedavg"].patches[1]
    assert ours.get_x() + ours.get_width() == pytest.approx(theirs.get_x())
    assert (ours.get_facecolor(), ours.get_hatch()) != (theirs.get_facecolor(), theirs.get_hatch())
    assert [text.get_text() for text in bank.get_xticklabels()] == ["NA"]
    assert legend(figure) == ["mfairfl", "fedavg"]


def test_an_axis_of_bars_that_does_not_start_at_0_says_so():
    adult, bank = plot_client_bars(client_rows()).axes
    start = adult.get_ylim()[0]
    assert 0 < start < 0.70  # the lowest bar, without spread, ends at 0.70
    assert adult.get_ylabel() == f"accuracy (from {start:g} on)"
    assert (bank.get_ylim()[0], bank.get_ylabel()) == (0.0, "accuracy")


# ------------------------------------------------------------------ reading runs

LOG = {"constraints": ["dp | all | sex | $F$", "dp | all | sex | M"], "multipliers": [0.0, 0.0]}


def write_rounds(folder, rows, *, epochs=1):
    """Write a finished run of these rounds: (accuracy, client std, log)."""
    folder.mkdir()
    make_record(epochs_per_round=epochs).write(folder)
    with (folder / "rounds.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["round", "test_accuracy", "test_client_accuracy_std", "log"])
        for number, (accuracy, std, log) in enumerate(rows):
            writer.writerow([number, accuracy, std, json.dumps(log) if log else ""])
    return folder


ROWS = [
    (0.5, 0.0, None),
    (0.7, "", LOG),
    (0.8, 0.02, LOG | {"multipliers": [0.25, -0.125]}),
]


@pytest.mark.parametrize(("epochs", "counted"), [(4, [0, 4, 8]), (1, [0, 1, 2])])
def test_a_round_is_its_local_epochs_or_one_gradient_step(tmp_path, epochs, counted):
    found = read_history(write_rounds(tmp_path / "r", ROWS, epochs=epochs))
    assert list(found.columns) == ["round", "epoch", "accuracy", "client_accuracy_std"]
    assert found["round"].tolist() == [0, 1, 2]
    assert found["epoch"].tolist() == counted
    assert found["accuracy"].tolist() == [0.5, 0.7, 0.8]
    assert found["client_accuracy_std"].tolist() == pytest.approx([0, math.nan, 0.02], nan_ok=True)


def test_multipliers_are_those_each_round_trained_under(tmp_path):
    found = multiplier_history(write_rounds(tmp_path / "r", ROWS))
    first, second = LOG["constraints"]
    assert found.to_numpy().tolist() == [
        [1, first, 0.0],
        [1, second, 0.0],
        [2, first, 0.25],
        [2, second, -0.125],
    ]
    assert list(found.columns) == ["round", "cell", "value"]


def test_what_a_run_does_not_hold_is_named(tmp_path):
    plain = write_rounds(tmp_path / "plain", [(0.5, 0.0, None)] * 2)
    assert multiplier_history(plain).empty
    (plain / "rounds.csv").write_text("round,train_accuracy\n0,0.5\n", encoding="utf-8")
    with pytest.raises(RunDirectoryError, match=r"rounds\.csv: lacks column 'test_accuracy'"):
        read_history(plain)
    (plain / "rounds.csv").unlink()
    with pytest.raises(RunDirectoryError, match=r"rounds\.csv: missing or empty"):
        read_history(plain)


def test_real_runs_hold_all_epochs_of_their_budget_and_multipliers_of_every_round(tmp_path):
    settings = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 3}
    settings |= {"training.evaluate_every": 1}
    steps = [0, 1, 2, 3, 4, 5, 6]
    for name, update, epochs in [
        ("mfairfl", {}, [0, 3, 6]),
        ("mfairfl-paper", {}, steps),
        ("mfairfl-paper", {"strategy.update": "local"}, [0, 3, 6]),
    ]:
        out = tmp_path / f"{name}-{len(update)}"
        mfairfl.train(fed.people_federation(), out=out, strategy=name, **settings, **update)
        found = read_history(out)
        assert found["epoch"].tolist() == epochs
        expected = [float(row["test_accuracy"]) for row in csv_rows(out / "rounds.csv")]
        assert found["accuracy"].tolist() == expected
        multipliers = multiplier_history(out)
        assert set(multipliers["round"]) == set(range(1, len(epochs)))
        assert multipliers["cell"].nunique() == 4  # two sexes, two ages


# ------------------------------------------------------------------ multipliers


def test_every_cell_has_its_line_under_its_own_name(tmp_path):
    rounds = multiplier_history(write_rounds(tmp_path / "r", ROWS)).assign(run="r")
    (panel,) = plot_multipliers(rounds).axes
    assert line(panel, "dp | all | sex | $F$") == ([1, 2], [0.0, 0.25])
    assert line(panel, "dp | all | sex | M") == ([1, 2], [0.0, -0.125])
    styles = {(str(one.get_linestyle()), one.get_marker()) for one in panel.get_lines()[:2]}
    assert len(styles) == 2


def test_every_run_has_its_panel(tmp_path):
    rounds = multiplier_history(write_rounds(tmp_path / "r", ROWS)).assign(run="r")
    other = rounds.assign(value=2 * rounds["value"], run="seed 1")
    both = pd.concat([rounds.assign(run="seed 0"), other])
    first, second = plot_multipliers(both).axes
    assert (first.get_title(), second.get_title()) == ("seed 0", "seed 1")
    assert line(first, "dp | all | sex | M")[1] == [0.0, -0.125]
    assert line(second, "dp | all | sex | M")[1] == [0.0, -0.25]


# ------------------------------------------------------------------ colours


def test_everything_drawn_stands_out_from_white(tmp_path):
    rounds = multiplier_history(write_rounds(tmp_path / "r", ROWS)).assign(run="r")
    figures = [
        pareto(results()),
        plot_convergence(history(), data=["adult", "bank"], protocol="3x5"),
        plot_client_bars(client_rows()),
        plot_multipliers(rounds),
    ]
    for panel in (panel for figure in figures for panel in figure.axes):
        assert min(map(contrast, drawn_colours(panel))) >= 3.0


# ------------------------------------------------------------------ files


def draw_all(folder, rounds):
    folder.mkdir()
    curve = ([0.0, 0.1], [0.95, 0.99])
    where = WHERE | {"data": ["adult", "bank"], "frontiers": {"adult": curve}}
    figures = {
        "pareto": plot_pareto(results(), **where),
        "s1": plot_convergence(history(), data=["adult", "bank"], protocol="3x5"),
        "bars": plot_client_bars(client_rows()),
        "multipliers": plot_multipliers(rounds),
    }
    for name, figure in figures.items():
        save_figure(figure, folder / name, kinds=("svg", "png"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_every_picture_is_an_svg_and_a_png_with_the_same_bytes_every_time(tmp_path):
    rounds = multiplier_history(write_rounds(tmp_path / "r", ROWS)).assign(run="r")
    first = draw_all(tmp_path / "one", rounds)
    names = ("bars", "multipliers", "pareto", "s1")
    assert sorted(first) == sorted(f"{n}.{kind}" for n in names for kind in ("png", "svg"))
    assert draw_all(tmp_path / "two", rounds) == first
    for name in names:
        assert first[f"{name}.svg"].startswith(b"<?xml")
        assert b"dc:date" not in first[f"{name}.svg"]
        assert first[f"{name}.png"].startswith(b"\x89PNG")
    assert b"$F$" in first["multipliers.svg"]  # a name is text, never a formula


def test_a_name_with_a_dot_keeps_it_and_an_unknown_type_is_named(tmp_path):
    figure = plot_client_bars(client_rows())
    save_figure(figure, tmp_path / "lr-0.1", kinds=("svg",))
    assert (tmp_path / "lr-0.1.svg").exists()
    with pytest.raises(DataError, match=r"cannot draw into .*x\.bmpp: "):
        save_figure(figure, tmp_path / "x.bmpp")
