"""Oracles for strategies: rows and masks, automatic differentiation in float64, plain loops.

Shares nothing with the package but the layout of the flat weights and of the cells: no prices, no
Gram matrix, no sums per cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

from mfairfl.data import Federation

HIDDEN = 4
# One step an epoch on all rows of a client: nothing random is left.
FULL = {"batch_size": 512, "weight_decay": 0.0}
# Cosine over three rounds, 1 → 0, between lr .02 and lr_final 5e-5 of the recipe.
DECAY = [1.0, 0.50125, 0.0025]


@dataclass
class Rows:
    """Training rows of one client, or of all."""

    X: torch.Tensor
    y: torch.Tensor
    groups: dict[str, np.ndarray]  # attribute → group names, row by row

    def __len__(self):
        return len(self.y)


def rows_of(federation: Federation) -> dict[str, Rows]:
    """Every client's training rows with the names of their groups."""
    sizes = [attribute.size for attribute in federation.attributes]
    found = {}
    for client in federation.clients:
        codes = np.unravel_index(client.train.cells, sizes)
        found[client.name] = Rows(
            torch.from_numpy(client.train.X.astype(np.float64)),
            torch.from_numpy(client.train.y.astype(np.float64)),
            {
                attribute.name: np.array(attribute.groups)[code]
                for attribute, code in zip(federation.attributes, codes, strict=True)
            },
        )
    return found


def together(parts: dict[str, Rows]) -> Rows:
    first = next(iter(parts.values()))
    return Rows(
        torch.cat([part.X for part in parts.values()]),
        torch.cat([part.y for part in parts.values()]),
        {name: np.concatenate([p.groups[name] for p in parts.values()]) for name in first.groups},
    )


def logits(w: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """One hidden layer of `HIDDEN` ReLU units; weights, biases, layer after layer."""
    d = X.shape[1]
    a, b, c = d * HIDDEN, d * HIDDEN + HIDDEN, d * HIDDEN + 2 * HIDDEN
    hidden = torch.relu(X @ w[:a].reshape(d, HIDDEN) + w[a:b])
    return hidden @ w[b:c] + w[c]


def cross_entropy(w, rows):
    z = logits(w, rows.X)
    return softplus(z) - rows.y * z


def value(statistic, w, rows):
    """f of every row."""
    score = torch.sigmoid(logits(w, rows.X))
    if statistic == "loss":
        return cross_entropy(w, rows)
    return score if statistic == "selection" else torch.abs(score - rows.y)


STATISTIC = {
    "demographic_parity": "selection",
    "equalized_odds": "selection",
    "equal_opportunity": "selection",
    "accuracy_parity": "error",
    "accuracy_parity_loss": "loss",
}


def masks(label, rows):
    """Rows of the event, and of the group in it, of a constraint's label."""
    _, event, grouping, group = label
    inside = np.ones(len(rows), dtype=bool) if event == "all" else rows.y.numpy() == int(event[-1])
    for attribute in grouping.split(" × "):
        inside &= rows.groups[attribute] != "?"  # not recorded: outside the comparison
    member = inside.copy()
    for attribute, name in zip(grouping.split(" × "), group.split(" × "), strict=True):
        member &= rows.groups[attribute] == name
    return inside, member


def gap(label, w, rows):
    """F_e − F_{e,g} with the smooth f."""
    inside, member = masks(label, rows)
    f = value(STATISTIC[label[0]], w, rows)
    return f[inside].mean() - f[member].mean()


def mean_loss(w, parts, weights):
    """L(D, w), or the mean of the clients' L_k."""
    if weights == "size":
        return cross_entropy(w, together(parts)).mean()
    return torch.stack([cross_entropy(w, part).mean() for part in parts.values()]).mean()


def gradient(function, weights):
    w = torch.from_numpy(weights.astype(np.float64)).requires_grad_()
    return torch.autograd.grad(function(w), w)[0].numpy()


def loss(w, rows):
    """L_k, to be differentiated."""
    return cross_entropy(w, rows).mean()


def loss_at(weights, rows):
    """L_k as a number."""
    return float(loss(torch.from_numpy(weights), rows))


def sgd(w, rows, lr, steps, *, decay=0.0, pull=0.0, shift=0.0):
    """Steps of −lr (∇L + decay·w + pull·(w − start) + shift) on all rows."""
    start = w.copy()
    for _ in range(steps):
        slope = gradient(lambda v: loss(v, rows), w)
        w = w - lr * (slope + decay * w + pull * (w - start) + shift)
    return w


def surgery(G, losses, goals, beta, delta):
    """Algorithm 2 on the updates themselves, a client not its own target; goals change in place.

    Returns the mean of the adjusted updates and the number of adjustments.
    """
    order = sorted(range(len(G)), key=lambda k: losses[k])
    adjusted, count = [g.copy() for g in G], 0
    for k in order[: math.floor(beta * len(G) + 0.5)]:
        for i in order:
            if i == k:
                continue
            a, g = adjusted[k], G[i]
            cos = a @ g / (np.linalg.norm(a) * np.linalg.norm(g))
            goal = min(max(goals[k, i], 0.0), 0.999)
            if cos < goal:
                # Against g_i's direction: the part that is missing to reach the goal's angle.
                across = np.linalg.norm(a) * math.sqrt(1 - cos**2)
                along = np.linalg.norm(a) * cos
                adjusted[k] = a + (across * goal / math.sqrt(1 - goal**2) - along) * g / (
                    np.linalg.norm(g)
                )
                count += 1
            goals[k, i] = delta * goals[k, i] + (1 - delta) * cos
    return np.mean(adjusted, axis=0), count


def algorithm_1(start, parts, labels, *, steps, gamma, eta, beta, delta, alpha):
    """Algorithm 1: λ ≥ 0 on |d| − α, one full-batch gradient a client and step.

    Client k's gradient is ∇L_k + K Σ_j λ_j sign(d_j) [(n_ke/n_e) ∇F(D_ke) − (n_ks/n_s) ∇F(D_ks)]
    over events e and groups s; a group that the client lacks contributes nothing. Returns the
    weights after every step and the number of adjustments.
    """
    pooled, clients = together(parts), list(parts.values())
    w, lam = start.astype(np.float64), np.zeros(len(labels))
    goals, path, count = np.zeros((len(clients), len(clients))), [], 0
    sizes = [[int(mask.sum()) for mask in masks(label, pooled)] for label in labels]
    for _ in range(steps):
        now = torch.from_numpy(w)
        d = np.array([float(gap(label, now, pooled)) for label in labels])
        lam = np.maximum(0.0, lam + gamma * (np.abs(d) - alpha))
        signed = lam * np.sign(d)

        def objective(w, part, signed=signed):
            total = cross_entropy(w, part).mean()
            for label, mu, (n_event, n_group) in zip(labels, signed, sizes, strict=True):
                inside, member = masks(label, part)
                f = value(STATISTIC[label[0]], w, part)
                share = f[inside].sum() / n_event - f[member].sum() / n_group
                total = total + len(clients) * mu * share
            return total

        G = [gradient(lambda w, part=part: objective(w, part), w) for part in clients]
        losses = [float(cross_entropy(now, part).mean()) for part in clients]
        step, adjustments = surgery(G, losses, goals, beta, delta)
        count += adjustments
        step *= np.linalg.norm(np.mean(G, axis=0)) / np.linalg.norm(step)
        w = w - eta * step
        path.append(w)
    return path, count
