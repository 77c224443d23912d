"""What every library is given: the same rows, model, batch size and number of participants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["LEARNING_RATE", "WEIGHT_DECAY", "Batches", "Work", "mlp"]

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-2


@dataclass(frozen=True)
class Work:
    """One shape of federation.

    Parameters
    ----------
    shape : str
        Its key in `shapes.SHAPES`.
    rows : str
        File with `X` (float32), `y` (0 or 1) and `ends` (where each client's rows end).
    hidden, batch
        Widths of the hidden ReLU layers; mini-batch size.
    drawn : int
        Participants of a round.
    rounds : int
        An upper limit, for libraries that must know how many there will be.
    """

    shape: str
    rows: str
    hidden: list[int]
    batch: int
    drawn: int
    rounds: int

    @cached_property
    def clients(self) -> list[tuple[Tensor, Tensor]]:
        """Each client's features and labels, both float32, as views of one tensor."""
        with np.load(self.rows) as file:
            X, y, ends = torch.from_numpy(file["X"]), torch.from_numpy(file["y"]), file["ends"]
        return [(X[a:b], y[a:b]) for a, b in pairwise([0, *ends.tolist()])]

    @property
    def share(self) -> float:
        """The share of clients that takes part, for libraries that round it down."""
        return min(1.0, (self.drawn + 1e-6) / len(self.clients))

    def model(self, outputs: int) -> nn.Sequential:
        """Return the network with one logit or two classes."""
        return mlp(self.clients[0][0].shape[1], self.hidden, outputs)


def mlp(inputs: int, hidden: list[int], outputs: int) -> nn.Sequential:
    """Return a perceptron with ReLU after every hidden layer."""
    layers: list[nn.Module] = []
    for a, b in pairwise([inputs, *hidden]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))


@dataclass(frozen=True)
class Batches:
    """A client's rows in shuffled batches: slices of tensors, no Python per row.

    For libraries that take any iterable in place of a `DataLoader`, which is many times slower.
    """

    X: Tensor
    y: Tensor
    size: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Walk through the rows once, in a new order."""
        for index in torch.randperm(len(self.y)).split(self.size):
            yield self.X[index], self.y[index]
