"""What a run on rows held as indices predicts."""

from __future__ import annotations

import numpy as np
import pytest

import federations as fed
import mfairfl
from mfairfl.data import Inputs, features_frame


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    chosen = {"rounds": 2, "hidden": (8,), "local_epochs": 2, "batch_size": 32, "lr": 0.02}
    folder = tmp_path_factory.mktemp("wide") / "run"
    return mfairfl.train(fed.wide_federation(), strategy="mfairfl", out=folder, **chosen)


def test_predictions_equal_the_module_on_dense_rows(run):
    new = fed.wide_people().iloc[:40].copy()
    new.loc[new.index[:9], "street"] = "a new street"
    predictor = run.predictor
    assert predictor.encoder.compact
    rows = predictor.read(new)
    assert rows.unseen == {"street": {"a new street": 9}}
    features = features_frame(new, predictor.task)
    assert np.array_equal(rows.X, predictor.encoder.transform(features))
    found = predictor.predict_proba(rows)[:, 1]
    module = predictor.to_module()
    assert np.ptp(found) > 0.01
    np.testing.assert_allclose(found, module(module.encode(new)).numpy(), atol=1e-6)


def test_predicting_makes_no_dense_matrix(run, monkeypatch):
    def refuse(self):
        raise AssertionError(f"{len(self)} rows were made dense")

    monkeypatch.setattr(Inputs, "dense", refuse)
    frame = fed.wide_people()
    again = mfairfl.load(run.path)
    assert np.array_equal(again.predict_proba(frame), run.predictor.predict_proba(frame))
    assert set(again.predict(frame).tolist()) == {0, 1}
