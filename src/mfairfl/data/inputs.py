"""Encoded rows: numbers, and wide one-hot columns as the number of the input that is 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NO_INPUT = -1
"""The code of a row whose category has no input: all inputs of its column are 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A model's inputs of some rows, one-hot columns held as indices where an encoder says so.

    Parameters
    ----------
    numbers : ndarray, float32 (n, d)
        The first d inputs.
    codes : ndarray, int32 (n, g)
        For each of g one-hot columns, the number of the input that is 1 (from d up to width − 1),
        or `NO_INPUT`. Without such columns (g = 0) `numbers` has all inputs.
    width : int
        Number of the model's inputs.

    Examples
    --------
    >>> rows = Inputs(np.array([[0.5], [2.0]], np.float32), np.array([[3], [-1]], np.int32), 4)
    >>> rows.dense()
    array([[0.5, 0. , 0. , 1. ],
           [2. , 0. , 0. , 0. ]], dtype=float32)
    >>> rows[1:].dense()
    array([[2., 0., 0., 0.]], dtype=float32)
    """

    numbers: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int32]
    width: int

    @classmethod
    def of(cls, X: Inputs | npt.NDArray[np.float32]) -> Inputs:
        """Return a dense array of all inputs, (n, width), as `Inputs`, without a copy."""
        if isinstance(X, Inputs):
            return X
        return cls(X, np.empty((len(X), 0), np.int32), X.shape[1])

    @classmethod
    def empty(cls, rows: int, layout: tuple[int, int, int]) -> Inputs:
        """Return room for rows of a layout (d, g, width), to be filled in."""
        d, g, width = layout
        return cls(np.empty((rows, d), np.float32), np.empty((rows, g), np.int32), width)

    @property
    def layout(self) -> tuple[int, int, int]:
        """What must be equal for rows to be joined: d, g and width."""
        return self.numbers.shape[1], self.codes.shape[1], self.width

    @property
    def nbytes(self) -> int:
        """The memory that the rows take."""
        return self.numbers.nbytes + self.codes.nbytes

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.numbers)

    def __getitem__(self, rows: slice) -> Inputs:
        """Return consecutive rows as views, without a copy."""
        return Inputs(self.numbers[rows], self.codes[rows], self.width)

    def take(self, rows: npt.NDArray[np.intp]) -> Inputs:
        """Return a copy of the rows at these positions."""
        return Inputs(self.numbers[rows], self.codes[rows], self.width)

    def dense(self) -> npt.NDArray[np.float32]:
        """Return all inputs, (n, width): `numbers` itself, or a new array if there are codes."""
        if not self.codes.shape[1]:
            return self.numbers
        X = np.zeros((len(self), self.width), np.float32)
        X[:, : self.numbers.shape[1]] = self.numbers
        rows, columns = np.nonzero(self.codes != NO_INPUT)
        X[rows, self.codes[rows, columns]] = 1
        return X

    def protect(self) -> None:
        """Make the arrays read-only; slices taken before stay writeable."""
        self.numbers.flags.writeable = False
        self.codes.flags.writeable = False
