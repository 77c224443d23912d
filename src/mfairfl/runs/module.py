"""A served model as a plain `torch.nn.Module`, to be served with PyTorch alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mfairfl.data import Encoder, Task, cells_of
from mfairfl.engine.output import Served
from mfairfl.errors import DataError, require_known
from mfairfl.models import Model
from mfairfl.runs.rows import read_rows


class ServedModule(nn.Module):
    """From encoded rows to the probability of the favourable label, as `predict_proba` gives it.

    `forward` is PyTorch and nothing else, and everything it computes with is in the `state_dict`.
    `encode` turns raw rows into its input. Nothing is trained unless `requires_grad_()` is called.

    Parameters
    ----------
    model : Model
        The shape of the members.
    served : Served
        Their weights, and how they answer together.
    encoder, task
        How raw rows are read.
    client : str, optional
        Whose model this is, where each client has its own.

    Examples
    --------
    >>> import mfairfl
    >>> module = mfairfl.load("runs/adult").to_module()  # doctest: +SKIP
    >>> module(module.encode("people.csv"))  # doctest: +SKIP
    tensor([0.1042, 0.7310, 0.0518])
    """

    shares: Tensor
    thresholds: Tensor
    chances: Tensor

    def __init__(
        self,
        model: Model,
        served: Served,
        *,
        encoder: Encoder,
        task: Task,
        client: str | None = None,
    ) -> None:
        super().__init__()
        members, shares = served.members, served.weights
        if served.kind == "personal":
            place = _owner(served, client)
            members, shares = members[place : place + 1], np.ones(1)
        elif client is not None:
            raise DataError(f"client '{client}': this run serves all clients alike; remove it")
        self.encoder, self.task = encoder, task
        self.members = nn.ModuleList([model.to_module(weights) for weights in members])
        self.register_buffer("shares", torch.tensor(shares, dtype=torch.float32))
        self._drawn, self._by_group = served.kind == "mixture", served.thresholds is not None
        if served.thresholds is not None:
            chances = torch.tensor(served.thresholds.probabilities, dtype=torch.float32)
            self.register_buffer("thresholds", _rounded_up(served.thresholds.values))
            self.register_buffer("chances", chances)
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor, cells: Tensor | None = None) -> Tensor:
        """Return the probability of the favourable label, float32 (n,).

        Of a model that is drawn, or that decides by thresholds for each group, this is the
        probability of a favourable *decision*.

        Parameters
        ----------
        x : Tensor, float32 (n, inputs)
            Encoded rows.
        cells : Tensor, int64 (n,), optional
            Each row's groups, from `cells`: needed where thresholds depend on them.
        """
        z = torch.stack([member(x).reshape(x.shape[0]) for member in self.members])
        if self._by_group:
            if cells is None:
                raise DataError(
                    "this model decides by a threshold for each group: module(x, module.cells(…))"
                )
            passed = z[0].unsqueeze(1) >= self.thresholds[cells]
            return torch.where(passed, self.chances[cells], 0.0).sum(dim=1).clamp(max=1.0)
        answers = (z > 0).to(z.dtype) if self._drawn else torch.sigmoid(z)
        return self.shares @ answers

    def encode(self, frame: Any) -> Tensor:
        """Return raw rows (a pandas or polars frame, or a path) as this module's input."""
        return torch.from_numpy(read_rows(frame, self.task, self.encoder).X)

    def cells(self, frame: Any) -> Tensor:
        """Return the groups of raw rows as `forward` wants them."""
        return torch.from_numpy(cells_of(frame, self.task).astype(np.int64))


def _rounded_up(values: np.ndarray) -> Tensor:
    """Return the least float32 numbers that are not below these: the same scores reach them."""
    nearest = values.astype(np.float32)
    above = np.nextafter(nearest, np.float32(np.inf))
    return torch.from_numpy(np.where(nearest < values, above, nearest))


def _owner(served: Served, client: str | None) -> int:
    """Return the place of a client's own model."""
    if client is None:
        raise DataError(
            "each client has a model of its own: give client=, one of: "
            + ", ".join(served.clients)
        )
    require_known("client", [client], served.clients, DataError)
    return served.clients.index(client)
