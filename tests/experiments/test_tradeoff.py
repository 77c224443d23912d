"""Each point of a trade-off is what its rule decides, row by row; nothing is trained for it."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.cli import main
from mfairfl.errors import ConfigError, RunDirectoryError
from mfairfl.experiments.tradeoff import tradeoff
from mfairfl.fairness.cells import Cells
from mfairfl.report import build_report
from mfairfl.report.document import Document
from mfairfl.report.page import render

SITES = {"east": 300, "north": 200, "south": 150, "west": 250}
PEOPLE = fed.people(sites=SITES)
TABLE = fed.people_table(PEOPLE)
SETTINGS = {"rounds": 8, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "fedavg"
    return mfairfl.train(TABLE, out=out, strategy="fedavg", **SETTINGS)


@pytest.fixture(scope="module")
def curves(run):
    return run.tradeoff(NOTIONS, points=8)


def rows_of(split, **how):
    """Return the rows of a split, in the table's order."""
    federation = mfairfl.partition(TABLE, "column", seed=0, **how)
    return np.sort(np.concatenate([c.shard(split).rows for c in federation.clients]))


def decided(run, thresholds, rows):
    """Return labels, decisions, groups and sites, one row of a frame for each person."""
    frame, cells = PEOPLE.iloc[rows].copy(), Cells(TABLE.attributes).encode(TABLE.groups)[rows]
    chance = []
    for z, cell, site in zip(
        run.predictor.decision_function(frame), cells, frame["site"], strict=True
    ):
        rule = thresholds.get("clients", {}).get(site, thresholds)
        own = cell if len(rule["values"]) > 1 else 0
        ends = {"always": -np.inf, "never": np.inf}
        pairs = zip(rule["values"][own], rule["probabilities"][own], strict=True)
        chance.append(sum(share for limit, share in pairs if z >= ends.get(limit, limit)))
    frame["chance"], frame["y"] = chance, TABLE.y[rows]
    frame["right"] = np.where(frame["y"] == 1, frame["chance"], 1 - frame["chance"])
    return frame


def violation(frame, notion, groupings=("sex", "age")):
    """Return the largest deviation of a group's rate from everyone's, straight from the rows."""
    value = "right" if notion == "accuracy_parity" else "chance"
    parts = [part for _, part in frame.groupby("y")] if notion == "equalized_odds" else [frame]
    return max(
        (part.groupby(columns)[value].mean() - part[value].mean()).abs().max()
        for part in parts
        for columns in map(list, [[g] if isinstance(g, str) else g for g in groupings])
    )


def compared(frame):
    """Yield the rows of each site with people of every group."""
    for _, part in frame.groupby("site"):
        if all(part[name].nunique() == 2 for name in ("sex", "age")):
            yield part


# ------------------------------------------------------------------ what a point is


@pytest.mark.parametrize("place", range(3))
def test_points_are_what_their_rules_decide_row_by_row(place, run, curves):
    curve = curves.curves[place]
    assert curve.notion == NOTIONS[place]
    for point in curve.points:
        test = decided(run, point.thresholds, rows_of("test"))
        train = decided(run, point.thresholds, rows_of("train"))
        assert point.accuracy.value == pytest.approx(test["right"].mean(), abs=1e-9)
        assert point.violation.value == pytest.approx(violation(test, curve.notion), abs=1e-9)
        assert point.fitted == pytest.approx(violation(train, curve.notion), abs=1e-9)
        by_site = test.groupby("site")["right"].mean()
        gap = by_site.max() - by_site.min()
        assert point.client_accuracy_gap.value == pytest.approx(gap, abs=1e-9)


def test_the_largest_violation_at_one_client(run, curves):
    curve = curves.curves[0]
    for point in curve.points[::3]:
        test = decided(run, point.thresholds, rows_of("test"))
        local = max(violation(part, curve.notion) for part in compared(test))
        assert point.local_violation == pytest.approx(local, abs=1e-9)


def test_tolerances_rise_from_0_to_the_highest_accuracy(run, curves):
    for curve in curves.curves:
        tolerances = [point.tolerance for point in curve.points]
        assert tolerances[0] == 0
        assert tolerances == sorted(set(tolerances))
        assert all(round(tolerance, 4) == tolerance for tolerance in tolerances)
        assert all(p.allowed <= p.tolerance <= 2 * p.allowed + 1e-12 for p in curve.points)
        assert len(tolerances) <= 8
        rows = rows_of("train")
        right = [decided(run, p.thresholds, rows)["right"].mean() for p in curve.points]
        free = decided(run, curve.points[-1].thresholds, rows)
        assert max(right) == pytest.approx(free["right"].mean(), abs=1e-9)


@pytest.mark.parametrize("randomise", [False, True])
def test_no_two_thresholds_within_the_bound_are_more_accurate(randomise):
    """Against all pairs of thresholds for two groups, row by row."""
    settings = SETTINGS | {"fairness.sensitive": ["sex"]}
    run = mfairfl.train(TABLE, strategy="fedavg", **settings)
    (curve,) = run.tradeoff(points=6, randomise=randomise).curves
    rows = rows_of("train")
    z, y = run.predictor.decision_function(PEOPLE.iloc[rows]), TABLE.y[rows]
    woman = PEOPLE["sex"].to_numpy()[rows] == "F"
    tables = []
    for group in (woman, ~woman):
        limits = np.concatenate([np.unique(np.floor(z[group] * 128) / 128), [np.inf]])
        passed = z[group] >= limits[:, None]
        right = (passed == y[group]).sum(axis=1)
        tables.append((passed.sum(axis=1), right, group.sum()))
    (chosen, right, many), (others, right_too, more) = tables
    overall = (chosen[:, None] + others) / (many + more)
    gaps = np.maximum(np.abs(chosen[:, None] / many - overall), np.abs(others / more - overall))
    accuracy = (right[:, None] + right_too) / (many + more)
    for point in curve.points:
        best = accuracy[gaps <= point.allowed + 1e-12].max()
        train = decided(run, point.thresholds, rows)
        assert train["right"].mean() >= best - 1e-9
        if randomise or point.allowed:  # one threshold each hardly ever leaves no gap at all
            assert point.fitted <= point.allowed + 1e-9


@pytest.mark.parametrize(
    ("by", "bound"), [("none", None), ("client", "none"), ("both", 0.1), ("both", "none")]
)
def test_what_rules_read(by, bound, run):
    curves = run.tradeoff(by=by, local_tolerance=bound, points=3)
    for point in curves.curves[0].points:
        rules = [point.thresholds, *point.thresholds.get("clients", {}).values()]
        assert {len(rule["values"]) > 1 for rule in rules} == {by == "both"}
        assert ("clients" in point.thresholds) == (by in ("client", "both"))
        test = decided(run, point.thresholds, rows_of("test"))
        assert point.accuracy.value == pytest.approx(test["right"].mean(), abs=1e-9)
        value = violation(test, "demographic_parity")
        assert point.violation.value == pytest.approx(value, abs=1e-9)
    words = {
        "none": "one threshold for everyone",
        "client": "each client",
        "both": "each group at",
    }
    assert words[by] in curves.explained


def test_a_blind_run_has_thresholds_that_do_not_read_the_group():
    run = mfairfl.train(TABLE, strategy="fedavg", blind=True, **SETTINGS)
    curves = run.tradeoff(points=3)
    assert curves.by == "none"
    assert all(len(point.thresholds["values"]) == 1 for point in curves.curves[0].points)
    with pytest.raises(
        ConfigError, match="by = 'group' reads the group, to which the run is blind"
    ):
        run.tradeoff(by="group")


def test_tolerances_at_each_client(run):
    curves = run.tradeoff("dp", local=True, points=4)
    (curve,) = curves.curves
    assert "the client with the largest" in curves.explained
    for point in curve.points:
        assert point.violation.value == point.local_violation
        test = decided(run, point.thresholds, rows_of("test"))
        expected = max(violation(part, curve.notion) for part in compared(test))
        assert point.violation.value == pytest.approx(expected, abs=1e-9)
        train = decided(run, point.thresholds, rows_of("train"))
        expected = max(violation(part, curve.notion) for part in compared(train))
        assert point.fitted == pytest.approx(expected, abs=1e-9)
    assert curve.points[0].fitted < curve.points[-1].fitted
    table = run.record.table("test")
    measures = [client["demographic_parity_violation"].value for client in table.clients]
    assert curve.served.violation.value == max(value for value in measures if value is not None)


def test_what_is_served_has_the_numbers_of_the_record(run, curves):
    table = run.record.table("test")
    for curve in curves.curves:
        assert curve.served.accuracy == table["accuracy"]
        assert curve.served.violation == table[curve.measure]
        assert curve.constant.accuracy.value == table.constant_classifier["accuracy"]
        assert curve.constant.violation.value == table.constant_classifier[curve.measure]
        assert curve.served.outcome is curve.served.tolerance is None


def test_met_means_the_whole_interval(curves):
    outcomes = set()
    for point in (point for curve in curves.curves for point in curve.points):
        low, high = point.violation.interval
        outcomes.add(point.outcome)
        assert (point.outcome == "met") == (high <= point.tolerance)
        assert (point.outcome == "not met") == (low > point.tolerance)
    assert len(outcomes) > 1


def test_rules_are_fitted_to_validation_rows_where_there_are_any():
    settings = SETTINGS | {"clients.validation": 0.2}
    run = mfairfl.train(TABLE, strategy="fedavg", **settings)
    found = run.tradeoff("dp", points=3)
    assert (found.fitted_on, found.split) == ("validation", "test")
    for point in found.curves[0].points:
        rows = rows_of("validation", validation=0.2)
        chosen = decided(run, point.thresholds, rows)
        assert point.fitted == pytest.approx(violation(chosen, "demographic_parity"), abs=1e-9)


@pytest.mark.parametrize(
    ("fairness", "groupings"),
    [
        ({"fairness.sensitive": ["age"]}, ["age"]),
        ({"fairness.intersections": True}, ["sex", "age", ["sex", "age"]]),
    ],
)
def test_groups_are_those_of_the_run_s_goal(fairness, groupings, run):
    other = mfairfl.train(TABLE, strategy="fedavg", **SETTINGS, **fairness)
    (curve,) = other.tradeoff(points=3).curves
    for point in curve.points:
        test = decided(other, point.thresholds, rows_of("test"))
        expected = violation(test, "demographic_parity", groupings)
        assert point.violation.value == pytest.approx(expected, abs=1e-9)
    assert curve.served.violation.value == pytest.approx(
        violation(
            decided(other, {"values": [[0.0]] * 4, "probabilities": [[1.0]] * 4}, rows_of("test")),
            "demographic_parity",
            groupings,
        ),
        abs=1e-9,
    )


# ------------------------------------------------------------------ which runs


def test_a_run_in_memory_has_the_curve_of_its_folder(run, curves):
    again = mfairfl.train(TABLE, strategy="fedavg", **SETTINGS)
    assert again.tradeoff(NOTIONS, points=8) == curves
    assert tradeoff([run.path], NOTIONS, points=8) == curves
    assert tradeoff([run.path / "run.json"], NOTIONS, points=8) == curves


def test_the_goal_is_the_default_and_numbers_repeat(run):
    assert run.tradeoff(points=3) == run.tradeoff(["demographic_parity"], points=3)
    assert run.tradeoff("dp", points=3) == run.tradeoff(["dp", "demographic_parity"], points=3)


def test_runs_on_other_rows_are_refused(run):
    other = mfairfl.train(TABLE, strategy="fedavg", seed=1, **SETTINGS)
    with pytest.raises(ConfigError, match="measured on different rows"):
        tradeoff([run, other])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"points": 1}, "points = 1; use 2 or more"),
        ({"by": "sex"}, "unknown output.by 'sex'"),
        ({"by": "client"}, "state local_tolerance"),
        ({"local": True, "local_tolerance": 0.1}, "the tolerances are those of each client"),
        ({"local_tolerance": 2.0}, r"must lie in \[0, 1\], not 2.0"),
        ({"notions": ["accuracy_parity_loss"]}, "thresholds change decisions, not losses"),
        ({"notions": ["fair"]}, "unknown notion 'fair'"),
    ],
)
def test_what_cannot_be_asked(how, message, run):
    with pytest.raises(ConfigError, match=message) as caught:
        run.tradeoff(**how)
    one_line(caught)


def test_nothing_to_compare():
    task = TABLE.task.model_copy(update={"sensitive": ()})
    table = mfairfl.data.table_from_frame(PEOPLE, task, name="people")
    alone = mfairfl.train(table, strategy="fedavg", **SETTINGS)
    with pytest.raises(ConfigError, match="no sensitive attribute"):
        alone.tradeoff()
    with pytest.raises(ConfigError, match="needs a run"):
        tradeoff([])


def altered(run, folder, change):
    shutil.copytree(run.path, folder)
    document = json.loads((folder / "run.json").read_text())
    change(document)
    (folder / "run.json").write_text(json.dumps(document))
    return folder


def test_a_run_without_scores_says_to_train_again(run, tmp_path):
    def of_version_09(document):
        del document["files"]["scores.safetensors"]

    folder = altered(run, tmp_path / "old", of_version_09)
    with pytest.raises(
        RunDirectoryError, match="keeps no scores, as runs before version"
    ) as caught:
        tradeoff([folder])
    assert str(folder) in one_line(caught)
    assert build_report([folder]).tradeoff is None


def test_a_mixture_has_no_other_thresholds(run, tmp_path):
    folder = altered(run, tmp_path / "m", lambda d: d["served"].update(kind="mixture"))
    with pytest.raises(RunDirectoryError, match="serves a mixture"):
        tradeoff([folder])


# ------------------------------------------------------------------ picture, table, report


def test_the_picture_shows_every_point_and_is_the_same_twice(run, curves, tmp_path):
    curves.plot(tmp_path / "one.svg")
    curves.plot(tmp_path / "two.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    (root,) = [ET.fromstring(text)]  # noqa: S314 - our own file
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == sum(len(curve.points) for curve in curves.curves)
    assert text.count("noise floor") >= 3
    assert "as it decides now" in text


def test_two_runs_share_a_picture(run, tmp_path):
    other = mfairfl.train(TABLE, strategy="mfairfl", notion="dp", **SETTINGS)
    both = tradeoff([run, other], ["dp"], points=4)
    assert [curve.run for curve in both.curves] == ["fedavg", "mfairfl"]
    both.plot(tmp_path / "both.svg")
    text = (tmp_path / "both.svg").read_text()
    assert ">fedavg</text>" in text
    assert ">mfairfl</text>" in text


def test_the_command_prints_and_writes(run, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["tradeoff", str(run.path), "--notion", "eo", "--points", "4"]
    assert main([*command, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "fedavg, equalized odds: people, 4 clients, " in shown.out
    assert f"written: {out / 'tradeoff.svg'} and " in shown.err
    found = run.tradeoff("eo", points=4)
    assert json.loads((out / "tradeoff.json").read_text()) == found.model_dump(mode="json")
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.model_dump(mode="json")
    assert not (run.path / "tradeoff.svg").exists()


def test_the_report_has_a_short_table_and_the_picture(run):
    report = build_report([run.path])
    assert report.tradeoff == run.tradeoff()
    assert Document.model_validate_json(report.to_json()) == report
    page = render(report)
    part = page[page.index("What other tolerances would cost") :]
    part = part[: part.index("</section>")]
    assert part.count("<tr>") == 1 + 7 + 2
    assert 'id="tradeoff-demographic_parity_violation-title"' in part


def test_the_report_of_altered_scores_says_so(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    (folder / "scores.safetensors").write_bytes(b"others")
    report = build_report([folder])
    assert report.tradeoff is None
    assert report.headline.warnings[0].startswith("scores.safetensors: its SHA-256 is not the one")
    (folder / "scores.safetensors").unlink()
    assert build_report([folder]).headline.warnings[0].startswith("scores.safetensors: not found")
