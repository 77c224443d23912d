"""Products with one-hot inputs that are held as indices: a sum of rows, and its gradient.

A column of many levels is 0 but for one input: to multiply by it is to look up a row. What a
client gets depends on its own rows and their order alone, whatever else is in the stack.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def add_looked_up(out: Tensor, weights: Tensor, codes: Tensor) -> None:
    """Add to each row of `out` the rows of a matrix that its codes name; negative ones name none.

    Parameters
    ----------
    out : Tensor (S, B, H)
        What is added to.
    weights : Tensor (S, inputs, H)
        A matrix for each of the stack.
    codes : Tensor, int32 (S, B, g)
        Numbers of inputs.

    Examples
    --------
    >>> out, weights = torch.zeros(1, 2, 1), torch.tensor([[[1.0], [10.0], [100.0]]])
    >>> add_looked_up(out, weights, torch.tensor([[[0, 2], [1, -1]]], dtype=torch.int32))
    >>> out.flatten().tolist()
    [101.0, 10.0]
    """
    lacking = (codes.flatten(1).amin(dim=1) < 0).tolist()
    for sums, matrix, inputs, gaps in zip(out, weights, codes, lacking, strict=True):
        if gaps:
            named = inputs >= 0
            counts = named.sum(dim=1, dtype=torch.int32)
            starts = counts.cumsum(0, dtype=torch.int32) - counts
            sums.add_(embedding_bag(inputs[named], matrix, starts, mode="sum"))
        else:
            sums.add_(embedding_bag(inputs, matrix, mode="sum"))


def sums_by_code(rows: Tensor, codes: Tensor, first: int, stop: int) -> Tensor:
    """Add up the rows that name each input first … stop − 1, in their order.

    Parameters
    ----------
    rows : Tensor (S, B, H)
        What is added up.
    codes : Tensor, int32 (S, B, g)
        Numbers of inputs, different ones in a row; negative ones name none.

    Returns
    -------
    Tensor (S, stop − first, H)

    Examples
    --------
    >>> rows = torch.tensor([[[1.0], [10.0], [100.0]]])
    >>> codes = torch.tensor([[[5], [4], [5]]], dtype=torch.int32)
    >>> sums_by_code(rows, codes, 4, 7).flatten().tolist()
    [10.0, 101.0, 0.0]
    """
    stack, batch, _ = codes.shape
    kinds = 1 + stop - first  # kind 0 takes the codes that name nothing
    kind = np.maximum(codes.numpy().astype(np.int64) - (first - 1), 0)
    # Sorted by (kind, row), each in one number: far faster than sorting positions.
    bits = int(batch - 1).bit_length()
    order = (kind << bits | np.arange(batch)[:, None]).reshape(stack, -1)
    order.sort(axis=1)
    order &= (1 << bits) - 1
    order += batch * np.arange(stack)[:, None]
    kind += kinds * np.arange(stack)[:, None, None]
    counts = np.bincount(kind.reshape(-1), minlength=stack * kinds)
    starts = np.cumsum(counts) - counts
    sums = embedding_bag(
        torch.from_numpy(order.reshape(-1)),
        rows.reshape(stack * batch, -1),
        torch.from_numpy(starts),
        mode="sum",
    )
    return sums.view(stack, kinds, -1)[:, 1:]


def with_one_hot(values: Tensor, codes: Tensor, width: int) -> Tensor:
    """Return rows with all their inputs, (S, B, width): the values, then the columns of 0 and 1.

    Examples
    --------
    >>> values, codes = torch.tensor([[[0.5]]]), torch.tensor([[[2, -1]]], dtype=torch.int32)
    >>> with_one_hot(values, codes, 4).tolist()
    [[[0.5, 0.0, 1.0, 0.0]]]
    """
    rows = torch.zeros(*values.shape[:2], width)
    rows[..., : values.shape[2]] = values
    # Where a code names nothing, 0 is added to the first input.
    index = codes.clamp(min=0).to(torch.int64)
    return rows.scatter_add_(2, index, (codes >= 0).to(torch.float32))
