"""An independent reference: one client, one plain loop, autograd and `torch.optim` in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits


def make_shard(n, d, seed, cells=2):
    """Rows whose label leans on the first feature, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(np.int8)
    return X, y, rng.integers(0, cells, size=n).astype(np.int32)


def net(flat, rows, hidden):
    """The MLP on a flat vector: for each layer the (inputs, outputs) matrix, then the bias."""
    at = 0
    for units in (*hidden, 1):
        size = rows.shape[1] * units
        matrix = flat[at : at + size].reshape(rows.shape[1], units)
        rows = rows @ matrix + flat[at + size : at + size + units]
        at += size + units
        if at < len(flat):
            rows = rows.relu()
    return rows[:, 0]


def objective(flat, shard, hidden, A, B):
    """mean_i A[c, y]·CE + B[c, y]·σ(z)."""
    X, y, cells = shard
    z = net(flat, torch.tensor(X).double(), hidden)
    loss = binary_cross_entropy_with_logits(z, torch.tensor(y).double(), reduction="none")
    a, b = torch.tensor(np.asarray(A)[cells, y]), torch.tensor(np.asarray(B)[cells, y])
    return (a * loss + b * torch.sigmoid(z)).mean()


def make_optimizer(setting, parameter):
    if setting.name == "adamw":
        return torch.optim.AdamW(
            [parameter],
            lr=setting.lr,
            weight_decay=setting.weight_decay,
            betas=(setting.beta1, setting.beta2),
            eps=setting.eps,
        )
    return torch.optim.SGD(
        [parameter],
        lr=setting.lr,
        weight_decay=setting.weight_decay,
        momentum=setting.momentum,
    )


def naive_train(shard, hidden, work, after_epoch=None):
    """Return start − end; `after_epoch(epoch, weights)` may answer with new tables (A, B)."""
    plan, n = work.plan, len(shard[1])
    start = torch.tensor(work.start).double()
    flat = start.clone().requires_grad_()
    centre = start if work.centre is None else torch.tensor(work.centre).double()
    linear = torch.zeros_like(start) if work.linear is None else torch.tensor(work.linear).double()
    cells = 1 + int(shard[2].max())
    A = np.ones((cells, 2)) if plan.loss_table is None else np.array(plan.loss_table)
    B = np.zeros((cells, 2)) if plan.score_table is None else np.array(plan.score_table)
    optimizer = make_optimizer(plan.optimizer, flat)
    for epoch in range(1, plan.epochs + 1):
        order = work.rng.permutation(n)
        for at in range(0, n, plan.batch_size):
            batch = [part[order[at : at + plan.batch_size]] for part in shard]
            optimizer.zero_grad()
            value = objective(flat, batch, hidden, A, B)
            value = value + plan.proximal / 2 * ((flat - centre) ** 2).sum() + linear @ flat
            value.backward()
            optimizer.step()
        if after_epoch is not None:
            A, B = after_epoch(epoch, flat.detach())
    return (start - flat.detach()).numpy()
