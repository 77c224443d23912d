"""FedAvg with group thresholds: FedAvg's weights, and decisions counted row by row."""

from __future__ import annotations

from dataclasses import replace

import mfairfl_naive as naive
import numpy as np
import pytest
import torch

import federations as fed
import mfairfl
from mfairfl.engine.output import Output
from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Goal

NOTIONS = ("dp", "eo", "ap", "eopp")
EXACT = fed.exact_thresholds()
RECIPE = {"rounds": 4, "lr": 0.05, "weight_decay": 0.1}


def prepared(federation, *notions, output=EXACT, **options):
    setup = fed.setup_for(federation, "fedavg-threshold", output=output, **(RECIPE | options))
    goal = Goal(notions=notions or ("dp",), attributes=("sex", "age"))
    return replace(setup, summary=replace(setup.summary, goal=goal))


def chances(served, shard):
    """P(decision 1) of every row: Σ_r π[c, r]·1{z ≥ θ[c, r]}, row by row."""
    w = torch.tensor(served.members[0]).double()
    z = naive.logits(w, torch.tensor(shard.X).double()).numpy()
    rule, found = served.thresholds, []
    for value, cell in zip(z, shard.cells, strict=True):
        pairs = zip(rule.values[cell], rule.probabilities[cell], strict=True)
        found.append(sum(p for threshold, p in pairs if value >= threshold))
    return np.array(found)


def violation(federation, served, notion, split="train"):
    """max |F_e − F_{e,g}| of expected decisions over both attributes, from rows and masks."""
    shards = [client.shard(split) for client in federation.clients]
    p = np.concatenate([chances(served, shard) for shard in shards])
    y = np.concatenate([shard.y for shard in shards])
    cells = np.concatenate([shard.cells for shard in shards])
    f = np.where(y == 1, 1 - p, p) if notion == "ap" else p
    events = {"eo": [y == 0, y == 1], "eopp": [y == 1]}.get(notion, [y >= 0])
    groups = [cells // 2 == 0, cells // 2 == 1, cells % 2 == 0, cells % 2 == 1]
    return max(abs(f[e].mean() - f[e & g].mean()) for e in events for g in groups)


def test_the_weights_are_fedavgs(federation):
    plain, seen = fed.run(fed.setup_for(federation, "fedavg", **RECIPE), federation)
    result, watch = fed.run(prepared(federation), federation)
    assert np.array_equal(result.served.members, plain.served.members)
    assert [w.tobytes() for w in watch.weights] == [w.tobytes() for w in seen.weights]
    assert (result.served.kind, result.served.names) == ("single", ("round 4",))


@pytest.mark.parametrize("notion", NOTIONS)
def test_counts_are_the_expected_decisions_of_the_rows(federation, notion):
    result, _ = fed.run(prepared(federation, notion), federation)
    (measured,) = result.measured
    for client in federation.clients:
        for split in ("train", "test"):
            shard, found = client.shard(split), measured[split][client.name]
            p = chances(result.served, shard)
            for cell in range(4):
                for y in (0, 1):
                    rows = (shard.cells == cell) & (shard.y == y)
                    assert found.counts[cell, y] == rows.sum()
                    np.testing.assert_allclose(found.positives[cell, y], p[rows].sum(), atol=1e-9)


@pytest.mark.parametrize("notion", NOTIONS)
def test_training_rows_are_treated_exactly_fairly(federation, notion):
    plain, _ = fed.run(prepared(federation, notion, output=Output()), federation)
    flat = replace(plain.served, thresholds=mfairfl.fairness.Thresholds([[0.0]] * 4, [[1.0]] * 4))
    result, _ = fed.run(prepared(federation, notion), federation)
    assert violation(federation, flat, notion) > 0.02
    assert violation(federation, result.served, notion) <= 1e-9


def test_several_notions_at_once(federation):
    result, _ = fed.run(prepared(federation, "dp", "eo"), federation)
    for notion in ("dp", "eo"):
        assert violation(federation, result.served, notion) <= 1e-9


def test_a_tolerance_is_used_up_for_accuracy(federation):
    right = []
    for tolerance in (0.0, 0.05, 1.0):
        output = replace(EXACT, tolerance=tolerance)
        result, _ = fed.run(prepared(federation, output=output), federation)
        assert violation(federation, result.served, "dp") <= tolerance + 1e-9
        total = 0.0
        for client in federation.clients:
            p = chances(result.served, client.train)
            total += np.where(client.train.y == 1, p, 1 - p).sum()
        right.append(total)
    assert right[0] < right[1] <= right[2]


def test_validation_rows_are_fitted_where_there_are_any():
    federation = fed.people_federation(validation=0.3)
    # North keeps none: a client without rows of the split adds an empty histogram.
    north = federation.clients[1]
    clients = list(federation.clients)
    clients[1] = replace(north, validation=north.validation[:0])
    federation = replace(federation, clients=tuple(clients))
    result, _ = fed.run(prepared(federation), federation)
    assert violation(federation, result.served, "dp", "validation") <= 1e-9
    assert violation(federation, result.served, "dp", "train") > 0.005


def test_without_rounds_the_first_weights_are_fitted(federation):
    result, _ = fed.run(prepared(federation, rounds=0), federation)
    assert result.served.names == ("round 0",)
    assert violation(federation, result.served, "dp") <= 1e-9


def test_stopping_and_going_on_gives_the_same_bits(federation):
    setup = prepared(federation, "eo", participation=0.5)
    fed.assert_resumes(setup, federation)


def test_loss_parity_is_refused_before_anything_is_trained(federation, tmp_path):
    said = (
        r"^notion 'accuracy_parity_loss': thresholds change decisions, not losses; "
        r"use 'accuracy_parity' \(errors\)$"
    )
    with pytest.raises(ConfigError, match=said):
        prepared(federation, "dp", "ap-loss")
    watch = fed.Watch()
    with pytest.raises(ConfigError, match=said):
        mfairfl.train(
            fed.people_table(),
            strategy="fedavg-threshold",
            notion="ap-loss",
            out=tmp_path / "run",
            callbacks=[watch],
        )
    assert watch.starts == []
    assert not (tmp_path / "run").exists()


def test_any_method_with_one_model_may_be_served_with_thresholds():
    run = mfairfl.train(
        fed.people_table(),
        strategy="mfairfl",
        output_rule="thresholds",
        by="group",
        randomise=True,
        rounds=2,
        hidden=(4,),
    )
    assert run.record.served.rule == "thresholds"
    assert run.record.served.tolerance == 0.005
    assert run.metrics["train"]["demographic_parity_violation"] <= 0.005 + 1e-9
