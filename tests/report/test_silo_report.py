"""The report of a run over silos, of which the coordinator has seen sums and counts alone."""

from __future__ import annotations

import pandas as pd
import pytest

import federations as fed
from mfairfl.report import build_report, model_card
from mfairfl.report.page import render
from mfairfl.runs.config import make_config
from mfairfl.runs.silo_runs import FederatedRequest, run_federated, run_name
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings

SETTINGS = {
    "seed": 2,
    "model": {"hidden": [4]},
    "training": {"rounds": 2, "local_epochs": 1, "batch_size": 16, "lr": 0.02},
    "fairness": {"notion": "dp", "verdict_tolerance": 0.9},
    "task": {"label": "hired", "favourable": "yes", "sensitive": ["sex"]},
}


class Silos:
    """Answers for every silo in this process."""

    def __init__(self, settings, run):
        self.settings, self.run = settings, run

    def exchange(self, asks):
        answers = {name: Responder(own, fed.policy()) for name, own in self.settings.items()}
        return {name: answers[name].handle(self.run, packet) for name, packet in asks.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("silos"), fed.people()
    rows.loc[rows.index[rows["site"] == "west"][:4], "hired"] = None
    rows.loc[rows.index[rows["site"] == "east"][:3], "skill"] = None
    rows.to_csv(folder / "all.csv", index=False)
    settings = {}
    for site in fed.SITES:
        path = folder / f"{site}.csv"
        rows[rows["site"] == site].drop(columns="site").to_csv(path, index=False)
        settings[site] = SiloSettings(name=site, csv=path, state=folder / "state" / site)
    config = make_config(SETTINGS | {"strategy": {"name": "mfairfl"}})
    asked = FederatedRequest(
        config=config, clients=tuple(fed.SITES), minimum=4, out=folder / "run"
    )
    run_federated(asked, Silos(settings, run_name(config)))
    return folder


def test_it_reads_like_any_other_report(run):
    report = build_report([run / "run"])
    assert (
        f"on {sum(fed.SITES.values()) - 4} rows of 4 silos (east, north, south and 1 more), each "
        "with a file of its own, to decide whether hired is yes" in report.headline.what
    )
    assert "; the goal: groups by sex" in report.headline.what
    assert report.headline.judgements[0].outcome in ("met", "too few rows to tell")
    assert "<html" in render(report)
    assert "4 silos" in model_card(report)
    assert set(report.training.coefficients) == set(fed.SITES)


def test_what_each_silo_did_to_its_rows_is_known_from_its_counts(run):
    data = build_report([run / "run"]).data
    assert data.dropped == ["west: 4 of 60 rows left out, values missing where none may be"]
    assert data.filled[0] == (
        "column 'skill': 3 of 256 values missing (east 3), filled with the mean and marked"
    )
    rows = pd.read_csv(run / "all.csv").dropna(subset="hired")
    expected = rows["hired"].eq("yes").groupby(rows["site"]).mean()
    assert {one.name: one.base_rate for one in data.clients} == pytest.approx(expected.to_dict())
