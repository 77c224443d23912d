"""A table of a notion of one's own, from the study's file to its cells."""

from __future__ import annotations

import pytest

import federations as fed
from mfairfl.experiments.study import load_study, trials
from mfairfl.experiments.study_results import FinishedStudy, write_table
from mfairfl.fairness import Event, Notion, register_notion
from mfairfl.runs.execute import RunRequest, run_requests

TABLE = """
title = "Own"
data = [{ label = "people", config = "people.toml" }]
splits = ["own"]
notions = ["predictive_equality", "equal_opportunity"]
protocols = ["2x1"]
seeds = 2
strategies = ["fedavg", "mfairfl"]
"""


@pytest.fixture
def own(new_names):
    item = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")
    register_notion(item)
    return item


@pytest.mark.slow
def test_rows_and_cells_hold_it(own, tmp_path):
    fed.write_people(tmp_path)
    (tmp_path / "table.toml").write_text(TABLE)
    study = load_study(tmp_path / "table.toml")
    work = trials(study)
    out = tmp_path / "out"
    runs = {t.directory(out / "runs"): t.config for t in work}  # fedavg is the same for both
    made = run_requests([RunRequest(config=config, out=path) for path, config in runs.items()])
    by_path = dict(zip(runs, made, strict=True))
    records = [(t, by_path[t.directory(out / "runs")].record) for t in work]
    done = FinishedStudy(name="table", study=study, runs=records, folder=out, references=[])
    found = write_table(done, published=lambda _: {}, sections=lambda *_: ())
    name = "predictive_equality_violation"
    expected = [record.metrics["test"][name] for _, record in records]
    assert found.runs[name].tolist() == pytest.approx(expected)
    assert found.runs[f"floor_{name}"].notna().all()
    assert (found.runs[f"frontier_{name}"] >= found.runs["accuracy"] - 1e-9).all()
    cell = found.table[(found.table["metric"] == name) & (found.table["strategy"] == "mfairfl")]
    own_runs = (found.runs["notion"] == own.name) & (found.runs["strategy"] == "mfairfl")
    assert cell["mean"].item() == pytest.approx(found.runs.loc[own_runs, name].mean(), abs=1e-5)
    assert (out / "table-2x1-predictive_equality.svg").is_file()
