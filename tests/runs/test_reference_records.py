"""References as files: counted as runs are, kept, resumed, and refused if they are others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

import federations as fed
import mfairfl
import pooled_by_hand
from mfairfl.errors import MfairflError, RunDirectoryError
from mfairfl.references import REFERENCES
from mfairfl.runs import reference_records as module
from mfairfl.runs.config import make_config
from mfairfl.runs.options import settings
from mfairfl.runs.reference_records import ReferenceRecord, ReferenceRequest, fit_references
from mfairfl.runs.workers import run_many
from one_process import in_one_process


@pytest.fixture
def config(tmp_path):
    return make_config(settings(str(fed.write_people(tmp_path)), {}) | {"seed": 2})


def requests(config, folder, names=REFERENCES):
    return [ReferenceRequest(name=name, config=config, out=folder / name) for name in names]


def test_it_is_counted_on_the_rows_of_the_run_by_client_group_label_and_decision(config, tmp_path):
    (found,) = fit_references(requests(config, tmp_path, ["boosting"]))
    run = mfairfl.train(config=config.model_dump(mode="json"), rounds=1, local_epochs=1)
    assert found.federation == run.record.federation
    assert (found.data, found.task) == (run.record.data, run.record.task)
    counts = run.record.tallies["test"].counts.sum(axis=3)
    assert np.array_equal(found.tallies["test"].counts.sum(axis=3), counts)
    assert found.tallies["test"].clients == run.record.tallies["test"].clients


def test_accuracy_of_everyone_and_of_each_client_is_that_of_scikit_learn(config, tmp_path):
    table = mfairfl.data.table_from_frame(fed.people(), config.task)
    federation = mfairfl.partition(table, "column", seed=2)
    train, test = federation.pooled("train"), federation.pooled("test")
    by_hand = pooled_by_hand.boosted(
        table.X.iloc[train.rows], train.y, table.task.categorical, seed=2
    )
    logits = by_hand(table.X.iloc[test.rows])
    right = (logits > 0) == test.y
    (found,) = fit_references(requests(config, tmp_path, ["boosting"]))
    measured = found.table("test")
    assert measured["accuracy"].value == pytest.approx(right.mean())
    assert measured["roc_auc"].value == pytest.approx(roc_auc_score(test.y, logits), abs=2e-3)
    assert measured["loss"].value == pytest.approx(log_loss(test.y, expit(logits)))
    low, high = measured["accuracy"].interval
    assert low < right.mean() < high
    sites = table.clients[test.rows]
    for site in np.unique(sites):
        accuracy = measured.by_client[site]["accuracy"].value
        assert accuracy == pytest.approx(right[sites == site].mean())
    assert found.evaluations.keys() == {"train", "test"}


def test_a_record_is_read_as_it_was_written(config, tmp_path):
    for written in fit_references(requests(config, tmp_path)):
        read = ReferenceRecord.read(tmp_path / written.reference)
        assert read == written
        assert (read.thresholds is not None) == (written.reference == "boosting-threshold")
        assert read.versions["scikit-learn"]
    fair = ReferenceRecord.read(tmp_path / "boosting-threshold")
    assert fair.settings["notions"] == ["demographic_parity"]
    plain = ReferenceRecord.read(tmp_path / "boosting").table("test")
    assert fair.table("test")["loss"] == plain["loss"]  # other decisions, same scores
    assert fair.tallies["test"].counts.sum() == pytest.approx(fair.tallies["test"].n)


def test_a_finished_reference_is_not_fitted_again(config, tmp_path, monkeypatch):
    first = fit_references(requests(config, tmp_path))
    monkeypatch.setattr(module.PooledRows, "fit", None)
    assert fit_references(requests(config, tmp_path)) == first


def test_a_folder_of_another_reference_is_refused(config, tmp_path):
    fit_references(requests(config, tmp_path, ["logistic"]))
    other = config.model_copy(update={"seed": 3})
    with pytest.raises(RunDirectoryError, match=r"holds another reference .*delete the folder"):
        fit_references(requests(other, tmp_path, ["logistic"]))


def test_a_damaged_or_missing_file_is_one_line(config, tmp_path):
    with pytest.raises(RunDirectoryError, match=r"reference\.json: not found"):
        ReferenceRecord.read(tmp_path)
    fit_references(requests(config, tmp_path, ["logistic"]))
    path = tmp_path / "logistic" / "reference.json"
    path.write_text(path.read_text().replace('"seed": 2', '"seed": "two"', 1))
    with pytest.raises(RunDirectoryError, match=r"reference\.json: .*seed: .*delete the folder"):
        fit_references(requests(config, tmp_path, ["logistic"]))


@pytest.mark.slow
def test_processes_of_their_own_give_the_same_numbers(config, tmp_path):
    seeds = [config.model_copy(update={"seed": seed}) for seed in (0, 1)]
    seen = []

    def fit(count):
        work = [
            one for c in seeds for one in requests(c, tmp_path / f"{count}-{c.seed}", REFERENCES)
        ]
        work = work[::-1]  # records come in the order asked for
        tell = lambda *news: seen.append(news)  # noqa: E731
        assert run_many([], work, processes=count, progress=tell) == []
        found = [ReferenceRecord.read(request.out) for request in work]
        assert [(r.reference, r.seed) for r in found] == [(w.name, w.config.seed) for w in work]
        return [record.model_dump(exclude={"seconds"}) for record in found]

    with in_one_process():
        here = fit(1)
    assert here == fit(2)
    assert len({out for out, done, of in seen if done == of == 1}) == 12


@pytest.mark.slow
def test_a_worker_s_error_reaches_the_parent_in_one_line(config, tmp_path):
    missing = config.model_copy(
        update={"data": config.data.model_copy(update={"csv": str(tmp_path / "nobody.csv")})}
    )
    with pytest.raises(MfairflError, match=r"nobody\.csv") as caught:
        run_many([], requests(missing, tmp_path, ["logistic"]))
    assert "\n" not in str(caught.value)
