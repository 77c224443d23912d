"""The constant classifier's numbers, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import federations as fed
import mfairfl
from mfairfl.errors import ConfigError
from mfairfl.fairness import Tally, demographic_parity_violation, equalized_odds_violation


def test_decides_the_majority_label_and_scores_the_base_rate(federation):
    result, watch = fed.run(fed.setup_for(federation, "constant"), federation)
    good = sum(int(c.train.y.sum()) for c in federation.clients)
    rows = sum(len(c.train) for c in federation.clients)
    assert good < rows / 2  # so everyone is refused
    found = result.measured[0]["train"]
    assert sum(s.positives.sum() for s in found.values()) == 0
    scores = sum(s.scores.sum() for s in found.values())
    assert scores / rows == pytest.approx((good + 0.5) / (rows + 1), abs=1e-6)
    tally = Tally.from_statistics(found, federation.attributes)
    assert demographic_parity_violation(tally) == 0
    assert equalized_odds_violation(tally) == 0
    assert all(not record.coefficients for record in watch.records)


def test_predicts_the_same_for_everyone_through_the_front_door():
    run = mfairfl.train(fed.people_table(), strategy="constant", rounds=1, hidden=(4,))
    assert np.unique(run.predictor.predict(fed.people(seed=1))).tolist() == [0]
    expected = run.record.constant_classifier["test"]["accuracy"]
    assert run.metrics["test"]["accuracy"] == expected


def test_needs_a_model_whose_constant_is_known():
    table, settings = fed.people_table(), {"strategy": "constant", "rounds": 1}
    with pytest.raises(ConfigError, match="needs a built-in model"):
        mfairfl.train(table, model=lambda inputs: nn.Linear(inputs, 1), **settings)
