"""The loop one writes without a framework: client after client, PyTorch's own settings.

One logit, AdamW (made anew for every client), rows as tensors, average weighted by size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from peer_runs.pace import Pace
from peer_runs.work import LEARNING_RATE, WEIGHT_DECAY, Batches, Work


def run(work: Work, pace: Pace) -> None:
    net = work.model(outputs=1)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    clients = work.clients
    pace.start("torch")
    for _ in range(work.rounds):
        drawn = torch.randperm(len(clients))[: work.drawn].tolist()
        start = one_round(net, start, [clients[k] for k in drawn], work.batch)
        pace.lap()


def one_round(
    net: nn.Sequential,
    start: dict[str, Tensor],
    clients: list[tuple[Tensor, Tensor]],
    batch: int,
) -> dict[str, Tensor]:
    mean = {name: torch.zeros_like(value) for name, value in start.items()}
    rows = sum(len(y) for _, y in clients)
    for X, y in clients:
        net.load_state_dict(start)
        train(net, Batches(X, y, batch))
        for name, value in net.state_dict().items():
            mean[name].add_(value, alpha=len(y) / rows)
    return mean


def train(net: nn.Sequential, batches: Batches) -> None:
    """Train for one epoch."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    loss_of = nn.BCEWithLogitsLoss()
    for X, y in batches:
        optimizer.zero_grad()
        loss_of(net(X).squeeze(1), y).backward()
        optimizer.step()
