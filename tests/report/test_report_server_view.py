"""Reports say what the server saw and what silos withheld: as JSON, on the page, on the card."""

from __future__ import annotations

import json
import re

import pytest
from samples import rich_report

import mfairfl
from counted_runs import decided, write_counted
from federations import people_table
from mfairfl.report import build_report, model_card
from mfairfl.report.page import render
from mfairfl.runs.config import make_config
from mfairfl.runs.manifest import Protocol, manifest, server_view
from mfairfl.strategies import create

SMALL = {"rounds": 1, "hidden": (4,), "local_epochs": 2}


def altered(folder, change):
    """Change run.json of a run."""
    path = folder / "run.json"
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    return folder


@pytest.fixture
def run(tmp_path):
    mfairfl.train(people_table(), strategy="fedavg", **SMALL, out=tmp_path / "run")
    return tmp_path / "run"


def words(page):
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_simulated_run_says_what_the_server_would_see(run):
    report = build_report([run])
    settings = {"training": {"rounds": 1, "local_epochs": 2}, "model": {"hidden": [4]}}
    config = make_config(settings | {"strategy": {"name": "fedavg"}})
    assert report.server.lines == list(server_view(config))
    assert report.server.sentence.startswith("All rows were in one place, where the clients were")
    assert report.withheld == []
    assert "Withheld by silos" not in render(report) + model_card(report)


def test_hyper_parameters_of_the_run_count(run, tmp_path):
    strategy = {"strategy.every": 1, "strategy": "mfairfl"}
    mfairfl.train(people_table(), **SMALL, **strategy, out=tmp_path / "moving")
    named = [line.what for line in build_report([tmp_path / "moving"]).server.lines]
    assert "multipliers and gaps" in named  # two epochs are more than one
    assert "multipliers and gaps" not in [x.what for x in build_report([run]).server.lines]


def test_a_method_that_is_not_known_here_is_not_described(run):
    def rename(plain):
        plain["config"]["strategy"] = {"name": "of.another:Package"}

    report = build_report([altered(run, rename)])
    assert report.server.lines == []
    assert report.server.sentence == (
        "What crossed is not known: the method of.another:Package is not installed here."
    )
    assert "What crossed is not known" in words(render(report))


def test_hyper_parameters_that_no_longer_exist_leave_the_usual_ones(run):
    report = build_report([altered(run, lambda p: p["config"]["strategy"].update(gone=1))])
    assert [x.what for x in report.server.lines] == [
        x.what for x in manifest(create("fedavg").card, Protocol(epochs=2))
    ]


@pytest.mark.parametrize("training", [7, {"evaluate_every": "x"}, {"local_epochs": -1}])
def test_altered_settings_are_told_and_no_error(run, training):
    report = build_report([altered(run, lambda p: p["config"].update(training=training))])
    assert report.server.sentence == "What crossed is not known: the settings were altered."


def test_what_silos_withheld_is_in_a_table(tmp_path):
    folder = tmp_path / "run"
    write_counted(folder, [decided(40, 10), decided(40, 20)], clients=("north", "west"))
    sets = [{"split": "train", "cell": {"sex": "F"}, "label": 1},
            {"split": "test", "cell": {"sex": "M"}, "label": 0}]  # fmt: skip

    def disclose(plain):
        plain["federation"]["scheme"] = "silos"
        plain["federation"]["disclosure"] = {
            "west": {"policy_sha256": "ab" * 32, "min_rows": 12, "withheld": sets,
                     "rows_withheld": {"train": 7, "test": 1}},
            "north": {"policy_sha256": "cd" * 32, "min_rows": 10},
        }  # fmt: skip

    report = build_report([altered(folder, disclose)])
    assert report.server.sentence.startswith("The rows stayed with the silos.")
    north, west = report.withheld
    assert (north.client, north.sets, north.rows, north.min_rows) == ("north", [], {}, 10)
    assert west.sets == ["train rows, sex = F, favourable label",
                         "test rows, sex = M, unfavourable label"]  # fmt: skip
    assert (west.rows, west.policy_sha256) == ({"train": 7, "test": 1}, "ab" * 32)
    page = words(render(report))
    assert "Withheld by silos" in page
    row = "west 12 7 train; 1 test train rows, sex = F, favourable label, test rows, sex = M"
    assert row in page
    assert "north 10 – None" in page
    card = model_card(report)
    assert "### Withheld by silos" in card
    assert "| north | 10 | – | None | " + "cd" * 32 in card


def test_the_page_and_the_card_have_every_line():
    report = rich_report()
    page, card = words(render(report)), model_card(report)
    assert 'href="#server"' in render(report)
    assert "## What the server saw" in card
    for line in report.server.lines:
        assert line.why[:1].upper() + line.why[1:] in card
        assert line.why[1:] in page.replace("&#39;", "'")
