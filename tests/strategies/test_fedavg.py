"""FedAvg against the arithmetic of its paper, and one client against plain training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import federations as fed
from mfairfl.randomness import stream
from mfairfl.strategies import create
from rounds import NO_GRAM, a_round, close, measured, reports

KNOWN = measured([1.0, 1.0, 1.0], rows=[30, 10, 60])


@pytest.mark.parametrize(
    ("weights", "reporting", "expected"),
    [
        ("size", "abc", [0.3, 0.1, 0.6]),
        ("size", "ab", [0.75, 0.25]),  # shares of those who reported
        ("uniform", "abc", [1 / 3, 1 / 3, 1 / 3]),
        ("uniform", "ac", [0.5, 0.5]),
    ],
)
def test_coefficients(weights, reporting, expected):
    strategy = create("fedavg", weights=weights)
    step = strategy.combine({}, a_round(KNOWN), reports(reporting), NO_GRAM)
    np.testing.assert_allclose(step.coefficients, expected, rtol=1e-15)
    assert step.scale == 1.0


def test_renaming_clients_changes_nothing_with_full_batches(federation):
    names = dict(zip(["east", "north", "south", "west"], ["z", "y", "x", "w"], strict=True))
    renamed = replace(
        federation,
        clients=tuple(replace(c, name=names[c.name]) for c in federation.clients[::-1]),
    )
    one, _ = fed.run(fed.setup_for(federation, optimizer="gradient"), federation)
    two, watch = fed.run(fed.setup_for(renamed, optimizer="gradient"), renamed)
    close(one.served.members, two.served.members, 1e-6)
    assert list(watch.records[1].coefficients) == ["w", "x", "y", "z"]


def test_server_weights_are_the_mean_of_the_clients_models(federation):
    """Each client alone, from the same start, then the mean by hand."""
    setup = fed.setup_for(federation, rounds=1)
    result, watch = fed.run(setup, federation)
    mean = np.zeros(result.served.members.shape[1])
    for client in federation.clients:
        lonely = replace(federation, clients=(client,))
        alone, own = fed.run(fed.setup_for(lonely, rounds=1), lonely)
        assert np.array_equal(own.weights[0], watch.weights[0])
        mean += len(client.train) / 208 * alone.served.members[0].astype(np.float64)
    close(result.served.members[0], mean, 1e-7)


def _network(weights: np.ndarray, inputs: int, hidden: int) -> nn.Sequential:
    """Lay the flat weights (x·W + b, layer by layer) into PyTorch's own modules."""
    first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, 1)
    a, b = inputs * hidden, inputs * hidden + hidden
    w = torch.from_numpy(weights.copy())
    with torch.no_grad():
        first.weight.copy_(w[:a].reshape(inputs, hidden).T)
        first.bias.copy_(w[a:b])
        second.weight.copy_(w[b : b + hidden].reshape(1, hidden))
        second.bias.copy_(w[b + hidden :])
    return nn.Sequential(first, nn.ReLU(), second)


def _flat(network: nn.Sequential) -> np.ndarray:
    first, _, second = network
    parts = [first.weight.T, first.bias, second.weight, second.bias]
    return torch.cat([p.detach().reshape(-1) for p in parts]).numpy()


def test_one_client_equals_centralised_training():
    """All rows at one client: torch.optim.AdamW, new each round, cosine rate, same batches."""
    federation = fed.people_federation(fed.people(sites={"all": 150}))
    setup = fed.setup_for(federation, rounds=3, weight_decay=0.3, lr=0.02, lr_final=0.001)
    result, watch = fed.run(setup, federation)
    shard = federation.clients[0].train
    X, y = torch.from_numpy(shard.X.copy()), torch.from_numpy(shard.y.astype(np.float32))
    network = _network(watch.weights[0], X.shape[1], 4)
    for round_, lr in enumerate([0.02, 0.0105, 0.001]):  # cos: 1, 0, −1
        rule = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=0.3)
        order = stream(0, "batches", round_, "all", "")
        epochs = [order.permutation(len(y)) for _ in range(2)]
        for rows in [epoch[at : at + 20] for epoch in epochs for at in range(0, len(y), 20)]:
            loss = nn.functional.binary_cross_entropy_with_logits(network(X[rows])[:, 0], y[rows])
            rule.zero_grad()
            loss.backward()
            rule.step()
        close(watch.weights[round_ + 1], _flat(network), 2e-5)
        assert watch.records[round_ + 1].lr == pytest.approx(lr, rel=1e-12)
    assert np.array_equal(result.served.members[0], watch.weights[-1])
