"""Functions for client apps of others: what a `FairStrategy` asks of a client.

The client keeps its model, its data and its training loop. In training it minimises `fair_loss`;
in evaluation it answers with a `measurement_record`, sums and counts over (cell, label), of its
training rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from flwr.app import MetricRecord
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from mfairfl import data
from mfairfl.data import Attribute, Task
from mfairfl.errors import DataError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.scores import RowScores
from mfairfl.flower.records import sums_record
from mfairfl.training.plan import Plan, Table2

Groups = Mapping[str, Sequence[str]]
"""Sensitive attributes: the names of each one's groups, in the order of their codes."""

Rows = ArrayLike | Tensor
"""One number per row."""


def attributes_of(sensitive: Groups) -> tuple[Attribute, ...]:
    """Return the attributes; names and groups are checked."""
    attributes = tuple(Attribute(name, tuple(groups)) for name, groups in sensitive.items())
    if not attributes:
        raise DataError("sensitive: name at least one attribute and its groups")
    return Cells(attributes).attributes


def cells_of(sensitive: Groups, columns: Any) -> NDArray[np.intp]:
    """Return each row's cell: its combination of groups, numbered as the server numbers them.

    Parameters
    ----------
    sensitive : mapping of str to sequence of str
        The mapping that the server's `FairStrategy` was given.
    columns : frame, or mapping of str to values
        Has a column of each sensitive attribute.

    Examples
    --------
    >>> sensitive = {"sex": ["Female", "Male"], "age": ["young", "old"]}
    >>> cells_of(sensitive, {"sex": ["Male", "Female"], "age": ["young", "old"]}).tolist()
    [2, 1]
    """
    frame = pd.DataFrame(columns) if isinstance(columns, dict) else columns
    groups = tuple({"column": a.name, "groups": a.groups} for a in attributes_of(sensitive))
    # Only the sensitive part of the task is read.
    task = Task.model_validate({"label": "", "favourable": 1, "sensitive": groups})
    return data.cells_of(frame, task, name="the client's rows")


def fair_loss(plan: Plan, logits: Tensor, labels: Rows, cells: Rows) -> Tensor:
    """Return the mean over rows of A[c, y]·CE + B[c, y]·σ(z), which the client minimises.

    Without tables this is the mean cross-entropy.

    Parameters
    ----------
    plan : Plan
        From `read_plan`.
    logits : Tensor (n,) or (n, 1)
        z, differentiable.
    labels, cells : array or tensor of int (n,)
        Labels 0 or 1 (1 = favourable), and cells as `cells_of` numbers them.

    Examples
    --------
    >>> plan = Plan(epochs=1, batch_size=2, loss_table=((1.0, 2.0),), score_table=((0.5, 0.0),))
    >>> loss = fair_loss(plan, torch.zeros(2), labels=[1, 0], cells=[0, 0])
    >>> round(float(loss), 6)  # (2 ln 2 + ln 2 + ½·½)/2
    1.164721
    """
    z = _one_logit_per_row(logits)
    y, c = (_codes(values).to(z.device) for values in (labels, cells))
    if not z.shape == y.shape == c.shape:
        raise DataError(f"{len(z)} logits, {len(y)} labels and {len(c)} cells: give one of each")
    each = functional.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none")
    if plan.loss_table is not None:
        each = each * _table(plan.loss_table, z)[c, y]
    if plan.score_table is not None:
        each = each + _table(plan.score_table, z)[c, y] * torch.sigmoid(z)
    return each.mean()


def proximal_term(plan: Plan, parameters: Iterable[Tensor], start: Iterable[Tensor]) -> Tensor:
    """Return (λ/2)·|w − w₀|², the pull towards the weights that were sent; 0 without one.

    Add it to `fair_loss` where the strategy has such a pull (`fedprox`).

    Examples
    --------
    >>> plan = Plan(epochs=1, batch_size=2, proximal=0.5)
    >>> float(proximal_term(plan, [torch.tensor([3.0, 1.0])], [torch.tensor([1.0, 1.0])]))
    1.0
    """
    pairs = zip(parameters, start, strict=True)
    return plan.proximal / 2 * torch.stack([((w - v.detach()) ** 2).sum() for w, v in pairs]).sum()


def make_optimizer(plan: Plan, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return a new optimiser as the plan describes it: AdamW, or SGD with momentum.

    Examples
    --------
    >>> make_optimizer(Plan(epochs=1, batch_size=2), [torch.zeros(2)]).defaults["lr"]
    0.004
    """
    o = plan.optimizer
    rates: dict[str, Any] = {"lr": o.lr, "weight_decay": o.weight_decay}
    if o.name == "sgd":
        return torch.optim.SGD(parameters, momentum=o.momentum, **rates)
    return torch.optim.AdamW(parameters, betas=(o.beta1, o.beta2), eps=o.eps, **rates)


def measurement_record(sensitive: Groups, logits: Rows, labels: Rows, cells: Rows) -> MetricRecord:
    """Return sums and counts over (cell, label), which an evaluation sends to the server.

    Examples
    --------
    >>> sensitive = {"sex": ["Female", "Male"]}
    >>> record = measurement_record(sensitive, [0.0, 3.0, -1.0], labels=[1, 1, 0], cells=[0, 1, 1])
    >>> record["counts"], record["positives"]  # (Female, 0), (Female, 1), (Male, 0), (Male, 1)
    ([0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0])
    """
    values = logits if isinstance(logits, Tensor) else torch.tensor(np.asarray(logits))
    z = _one_logit_per_row(values).detach().cpu().to(torch.float64).numpy()
    y, c = (_codes(values).cpu().numpy() for values in (labels, cells))
    size = Cells(attributes_of(sensitive)).size
    for name, codes, end in (("label", y, 2), ("cell", c, size)):
        if len(codes) != len(z):
            raise DataError(f"{len(z)} logits and {len(codes)} {name}s: give one of each")
        wrong = codes[(codes < 0) | (codes >= end)]
        if wrong.size:
            raise DataError(f"{name} {wrong[0]} is outside 0 … {end - 1}")
    rows = RowScores.from_logits(z)
    losses = rows.losses[np.arange(len(y)), y]
    statistics = Statistics.from_rows(
        size=size, cells=c, y=y, decisions=z > 0, scores=rows.probabilities, losses=losses
    )
    return sums_record(statistics)


def _one_logit_per_row(logits: Tensor) -> Tensor:
    if logits.ndim == 1:
        return logits
    if logits.ndim == 2 and logits.shape[1] == 1:
        return logits[:, 0]
    raise DataError(
        f"logits have shape {tuple(logits.shape)}; one per row is needed (of a two-class "
        "output take logits[:, 1] - logits[:, 0])"
    )


def _codes(values: Rows) -> Tensor:
    # A copy: torch warns about arrays that are read-only.
    codes = values if isinstance(values, Tensor) else torch.tensor(np.asarray(values))
    return codes.reshape(-1).long()


def _table(table: Table2, like: Tensor) -> Tensor:
    return torch.tensor(table, dtype=like.dtype, device=like.device)
