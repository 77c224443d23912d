"""Sums and counts of which only the total over all clients is known, and what each tells itself.

Under masks (`mfairfl.remote.masking`) nothing by cell is known of a single client. What its order
and its weight in training need, it tells: how many rows it has, how many of them are decided
wrongly, and the sum of their losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mfairfl.fairness.cells import Statistics

__all__ = ["EVERYBODY", "MaskedSums", "Single", "of_a_coin"]

EVERYBODY = "all silos"
"""Under this name sums over all clients stand where others stand by client."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Single(Statistics):
    """What one client tells of a model on its own rows, as sums over one cell.

    All rows stand as if their label were 0. So rows, right and wrong decisions and losses are
    found where they are in other sums; nothing else about them means anything.
    """

    @classmethod
    def told(cls, rows: float, errors: float, loss: float) -> Single:
        """Return what a client tells.

        Parameters
        ----------
        rows, errors : float
            Its rows, and those that are decided wrongly (expected, if decisions are random).
        loss : float
            Sum of the per-row cross-entropy.
        """
        wrong = np.array([[errors, 0.0]])
        return cls(
            counts=np.array([[rows, 0.0]]),
            positives=wrong,
            scores=wrong,
            losses=np.array([[loss, 0.0]]),
        )

    @classmethod
    def of(cls, sums: Statistics) -> Single:
        """Return what a client with these sums tells.

        Examples
        --------
        >>> one = np.array([[3.0, 1.0]])
        >>> told = Single.of(Statistics(counts=one, positives=one, scores=one, losses=one))
        >>> told.rows, told.errors, told.loss
        (4.0, 3.0, 4.0)
        """
        wrong = sums.positives[:, 0] + sums.counts[:, 1] - sums.positives[:, 1]
        return cls.told(float(sums.counts.sum()), float(wrong.sum()), float(sums.losses.sum()))

    @property
    def rows(self) -> float:
        """Its rows."""
        return float(self.counts[0, 0])

    @property
    def errors(self) -> float:
        """Those that are decided wrongly."""
        return float(self.positives[0, 0])

    @property
    def loss(self) -> float:
        """The sum of their losses."""
        return float(self.losses[0, 0])


class MaskedSums(Mapping[str, Statistics]):
    """One model on one split: what each client tells, and the sums over all of them.

    Parameters
    ----------
    singles : mapping of str to Statistics
        By client, each a `Single`.
    whole : Statistics, optional
        The sums over all clients; None if one of them did not answer, so that they cannot be read.

    Examples
    --------
    >>> sums = MaskedSums({"north": Single.told(10.0, 2.0, 5.0)})
    >>> float(sums["north"].losses.sum()), sums.whole is None
    (5.0, True)
    """

    __slots__ = ("_singles", "whole")

    def __init__(self, singles: Mapping[str, Statistics], whole: Statistics | None = None) -> None:
        self._singles = {name: singles[name] for name in sorted(singles)}
        self.whole = whole

    def __getitem__(self, name: str) -> Statistics:
        return self._singles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._singles)

    def __len__(self) -> int:
        return len(self._singles)


def of_a_coin(counts: np.ndarray) -> Statistics:
    """Return the sums of decisions by a fair coin on these rows: no notion is violated.

    Examples
    --------
    >>> of_a_coin(np.array([[4.0, 2.0]])).positives.tolist()
    [[2.0, 1.0]]
    """
    half = counts / 2
    return Statistics(counts=counts, positives=half, scores=half, losses=counts * np.log(2))
