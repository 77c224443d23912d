"""Counts of a rule's decisions from histograms are those of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.data import Attribute
from mfairfl.errors import DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.rule_counts import tally_under
from mfairfl.fairness.thresholds import Thresholds

SEX = Attribute("sex", ("F", "M", "?"))
EDGES = np.arange(-7.5, 8.0, 0.5)  # of 32 bins


def rows(rng, many=400):
    """Logits (some on edges), cells, labels and clients of people."""
    z = np.where(rng.random(many) < 0.2, rng.choice(EDGES, many), rng.normal(0, 4, many))
    return z, rng.integers(0, 3, many), rng.integers(0, 2, many), rng.choice(["b", "a", "c"], many)


def histograms(z, cell, label, client, bins=32):
    return {
        name: ScoreHistogram.from_logits(
            z[client == name], cell[client == name], label[client == name], size=3, bins=bins
        )
        for name in "bac"
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bins", [32, 2048])
def test_exact_counts_of_thresholds_on_edges(seed, bins):
    rng = np.random.default_rng(seed)
    z, cell, label, client = rows(rng)
    chosen = rng.choice([-np.inf, *EDGES, np.inf], 3)
    rule = Thresholds(chosen[:, None], np.ones((3, 1)))
    decided = (z >= chosen[cell]).astype(int)
    groups = np.array(SEX.groups)[cell]
    expected = Tally.from_predictions(
        label, decided, sensitive_features=groups, clients=client, attributes=[SEX]
    )
    found = tally_under(rule, histograms(z, cell, label, client, bins), [SEX])
    assert found == expected
    assert found.counts.dtype == np.int64


@pytest.mark.parametrize("seed", range(5))
def test_expected_counts_of_a_randomised_rule(seed):
    rng = np.random.default_rng(seed)
    z, cell, label, client = rows(rng)
    values, shares = rng.choice(EDGES, (3, 2)), rng.random((3, 1))
    rule = Thresholds(values, np.hstack([shares, 1 - shares]))
    found = tally_under(rule, histograms(z, cell, label, client), [SEX])
    for k, name in enumerate("abc"):
        for c in range(3):
            for y in range(2):
                own = z[(client == name) & (cell == c) & (label == y)]
                chance = sum(
                    share * (own >= value).sum()
                    for value, share in zip(values[c], rule.probabilities[c], strict=True)
                )
                assert found.counts[k, c, y, 1] == pytest.approx(chance, abs=1e-9)
                assert found.counts[k, c, y].sum() == pytest.approx(len(own), abs=1e-9)


def test_a_threshold_between_edges_is_refused():
    part = histograms(*rows(np.random.default_rng(0)))
    with pytest.raises(DataError, match=r"no edge of the 32 bins of client 'a'"):
        tally_under(Thresholds([[0.25]] * 3, [[1.0]] * 3), part, [SEX])
