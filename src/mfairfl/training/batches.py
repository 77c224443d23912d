"""Rows of all clients in one store, and the order in which a job walks through its own.

Batches are padded to a shape that depends on the client alone, never on its neighbours in the
stack, and rows are computed on only in aligned copies: both keep the arithmetic of a client
bit-equal in any company, wherever its rows lie.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mfairfl.data import Inputs
from mfairfl.models import Workspace

LANES = 32
"""Padding unit. Elementwise kernels treat whole vectors (up to 2 × 16 numbers) and a tail
differently in the last bit; with every row a multiple of this there is no tail."""

BLOCK = 512
"""Rows evaluated as one block when measuring."""


@dataclass(frozen=True, slots=True)
class RowStore:
    """Encoded rows of every shard an engine holds.

    Parameters
    ----------
    X : Tensor, float32 (N, d)
        Encoded features, shard after shard; never written to, for it may be the caller's memory.
        With codes, only the first d of the model's inputs.
    y : Tensor, float32 (N,)
        Labels, 1 = favourable.
    strata : Tensor, int64 (N,)
        2·cell + label: the index into a flattened (cell, label) table.
    cells : int
        Number of intersectional cells C. Rows of cell C, if any, are trained on, but nothing is
        disclosed about them and no price is put on them: a silo withholds their cell.
    codes : Tensor, int32 (N, g), optional
        Columns of very many categories as the numbers of the inputs that are 1 (`Inputs`).
    """

    X: Tensor
    y: Tensor
    strata: Tensor
    cells: int
    codes: Tensor | None = None

    def take(self, index: Tensor, workspace: Workspace) -> Tensor:
        """Copy the rows of these numbers, (S, B) to (S, B, d), into a buffer.

        Torch aligns its own memory, and products may depend on the alignment: rows are computed
        on only where they were copied to.
        """
        shape = *index.shape, self.X.shape[1]
        out = workspace.buffer(("rows", 0), shape)
        torch.index_select(self.X, 0, index.reshape(-1), out=out.view(index.numel(), shape[2]))
        return out

    def take_codes(self, index: Tensor) -> Tensor | None:
        """Copy the codes of the rows of these numbers, (S, B) to (S, B, g), if there are any."""
        if self.codes is None:
            return None
        rows = torch.index_select(self.codes, 0, index.reshape(-1))
        return rows.view(*index.shape, self.codes.shape[1])

    def counts(self, rows: range) -> np.ndarray:
        """Return how many of these rows are in each (cell, label), (C, 2)."""
        strata = self.strata[rows.start : rows.stop].numpy()
        counts = np.bincount(strata, minlength=2 * self.cells)
        return counts[: 2 * self.cells].reshape(self.cells, 2)

    @classmethod
    def from_arrays(
        cls, shards: Sequence[tuple[Inputs | np.ndarray, np.ndarray, np.ndarray]], cells: int
    ) -> tuple[RowStore, list[range]]:
        """Join shards (X, y, cell) into one store; the ranges say where each shard's rows are.

        Features that already lie one after the other in memory, as in a federation, are not
        copied. Those of all shards have one layout.
        """
        inputs = [Inputs.of(X) for X, _, _ in shards]
        codes = [shard.codes for shard in inputs]
        ends = np.cumsum([len(y) for _, y, _ in shards]).tolist()
        y = np.concatenate([y for _, y, _ in shards]).astype(np.int64)
        strata = 2 * np.concatenate([cell for _, _, cell in shards]).astype(np.int64) + y
        store = cls(
            X=_joined([shard.numbers for shard in inputs], np.float32),
            y=torch.from_numpy(y.astype(np.float32)),
            strata=torch.from_numpy(strata),
            cells=cells,
            codes=_joined(codes, np.int32) if codes[0].shape[1] else None,
        )
        return store, [range(start, stop) for start, stop in itertools.pairwise([0, *ends])]


def _joined(parts: Sequence[np.ndarray], dtype: type[np.float32 | np.int32]) -> Tensor:
    """Return the rows of all parts, as a view if they are adjacent rows of one array."""
    width = parts[0].shape[1]
    parts = [part for part in parts if len(part)] or parts[:1]
    if _adjacent(parts, dtype):
        shape, strides = (sum(map(len, parts)), width), (4 * width, 4)
        rows = np.lib.stride_tricks.as_strided(parts[0], shape, strides)
    else:
        rows = np.concatenate(parts, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a federation's rows are read-only, as they should
        return torch.from_numpy(rows)


def _adjacent(parts: Sequence[np.ndarray], dtype: type[np.float32 | np.int32]) -> bool:
    """Whether each part begins where the one before it ends, in memory of one owner."""
    owner = parts[0].base
    return (
        (owner is not None or len(parts) == 1)
        and all(a.base is owner and a.dtype == dtype for a in parts)
        and all(a.flags.c_contiguous for a in parts)
        and all(a.ctypes.data + a.nbytes == b.ctypes.data for a, b in itertools.pairwise(parts))
    )


def whole_lanes(count: int) -> int:
    """Round up to whole lanes."""
    return -(-count // LANES) * LANES


def padded_batch(rows: int, batch_size: int) -> int:
    """Return the padded batch of a client: whole lanes, small for small clients.

    If every client had a size of its own, no two could share a stack: there are two sizes to
    each doubling, 2ᵏ and 3·2ᵏ.

    Examples
    --------
    >>> padded_batch(10_000, 500), padded_batch(70, 500), padded_batch(3, 500)
    (512, 96, 32)
    """
    rows = max(1, rows)
    power = 1 << (rows - 1).bit_length()
    fitting = 3 * power // 4 if 4 * rows <= 3 * power else power
    return min(whole_lanes(batch_size), whole_lanes(fitting))


class Deck:
    """Deals a job's batches as row numbers and row weights, epoch after epoch.

    Each epoch is a fresh permutation. Within a batch the weights sum to 1 (its mean); padding has
    weight 0. Without an `rng` rows come in file order with weight 1/n each, so the batches of an
    epoch add up to the full mean. A client without rows has no batches.
    """

    def __init__(self, rows: range, batch_size: int, rng: np.random.Generator | None) -> None:
        self._rows, self._batch, self._rng = rows, max(1, min(batch_size, len(rows))), rng
        self.batches = -(-len(rows) // self._batch)
        self.width = padded_batch(len(rows), batch_size)
        self._order, self._dealt = np.empty(0, np.int64), self.batches

    def deal(self, index: np.ndarray, weight: np.ndarray) -> None:
        """Write the next batches, each array (batches, width)."""
        index[:], weight[:] = self._rows.start, 0.0
        at = 0
        while at < len(index):
            if self._dealt == self.batches:  # an epoch begins
                count = len(self._rows)
                order = np.arange(count) if self._rng is None else self._rng.permutation(count)
                self._order, self._dealt = order + self._rows.start, 0
            count = min(len(index) - at, self.batches - self._dealt)
            self._write(index[at : at + count], weight[at : at + count])
            at, self._dealt = at + count, self._dealt + count

    def _write(self, index: np.ndarray, weight: np.ndarray) -> None:
        """Write the next batches of this epoch; the last may be smaller than the others."""
        size, first = self._batch, self._dealt * self._batch
        rows = self._order[first : first + len(index) * size]
        full, remainder = divmod(len(rows), size)
        share = None if self._rng is not None else 1 / len(self._rows)
        index[:full, :size] = rows[: full * size].reshape(full, size)
        weight[:full, :size] = share or 1 / size
        if remainder:
            index[full, :remainder] = rows[full * size :]
            weight[full, :remainder] = share or 1 / remainder
