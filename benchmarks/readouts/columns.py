"""Rows as whole numbers: several columns side by side, each a digit, as weights of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from readouts.silo import RARE, Run


class Digit(NamedTuple):
    """Columns that one whole number holds, the first one in its lowest digits."""

    columns: tuple[str, ...]
    radix: Mapping[str, int]


class Table:
    """What the coordinator knows beforehand: its encoder, and the range of each number.

    Parameters
    ----------
    run : Run
        The silo is enrolled in it. With an encoder that is not `exact` a row may have no input of
        a column, and numbers are rounded.
    sizes : mapping of str to int
        Numbers are whole, from 0 to below this.
    most : float
        Bound of the whole numbers that columns are put into.
    """

    def __init__(self, run: Run, sizes: Mapping[str, int], *, most: float) -> None:
        encoder, exact = run.encoder, run.exact
        self.encoder = encoder.model_copy(update={"unknown_category": "ignore"})
        self.names = encoder.feature_names
        self.levels: dict[str, tuple[str, ...]] = {}
        self._without: dict[str, int] = {}  # whether the first of them has no input, 0 or 1
        for column in encoder.categorical:
            first, last = ((), (RARE,)) if column.rare else ((RARE,), ())
            self.levels[column.name] = column.levels if exact else (*first, *column.levels, *last)
            self._without[column.name] = 0 if exact else len(first)
        self.sizes = dict(sizes) | {name: len(own) for name, own in self.levels.items()}
        self.digits = self._digits(most)

    def _digits(self, most: float) -> list[Digit]:
        """Put the columns into as few whole numbers up to `most` as first-fit takes."""
        groups: list[list[str]] = []
        for name in sorted(self.sizes, key=lambda one: -self.sizes[one]):
            room = (
                group
                for group in groups
                if np.prod([float(self.sizes[one]) for one in (*group, name)]) < most
            )
            chosen = next(room, None)
            groups.append([name]) if chosen is None else chosen.append(name)
        found = []
        for group in groups:
            # Numbers come first: what rounding adds to them must not be multiplied.
            ordered = sorted(group, key=lambda one: (one in self.levels, -self.sizes[one]))
            radix = np.cumprod([1, *(self.sizes[one] for one in ordered[:-1])])
            found.append(Digit(tuple(ordered), dict(zip(ordered, radix.tolist(), strict=True))))
        return found

    def number(self, digit: Digit) -> np.ndarray:
        """Return the weights of inputs and bias whose sum is this number."""
        weights = np.zeros(len(self.names) + 1)
        for i, column in enumerate(self.encoder.numeric):
            if column.name in digit.radix:
                weights[i] = column.scale * digit.radix[column.name]
                weights[-1] += column.mean * digit.radix[column.name]
        first = len(self.names) - self._level_inputs
        for name, own in self.levels.items():
            codes = np.arange(self._without[name], len(own))
            weights[first : first + len(codes)] = digit.radix.get(name, 0) * codes
            first += len(codes)
        return weights

    @property
    def derived(self) -> slice:
        """Inputs that are made of numbers, beside the numbers themselves."""
        return slice(len(self.encoder.numeric), len(self.names) - self._level_inputs)

    @property
    def _level_inputs(self) -> int:
        return sum(len(own) - self._without[name] for name, own in self.levels.items())

    def rows(self, numbers: np.ndarray) -> pd.DataFrame:
        """Return the rows that these whole numbers stand for, (rows, digits)."""
        found: dict[str, np.ndarray] = {}
        for digit, own in zip(self.digits, numbers.T, strict=True):
            for name in digit.columns:
                code = own // digit.radix[name] % self.sizes[name]
                found[name] = (
                    np.array(self.levels[name], object)[code] if name in self.levels else code
                )
        return pd.DataFrame(found)

    def numbers(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the whole numbers of rows, (rows, digits)."""
        found = np.zeros((len(rows), len(self.digits)), np.int64)
        for i, digit in enumerate(self.digits):
            for name in digit.columns:
                held = rows[name]
                code = held.map(self.levels[name].index) if name in self.levels else held
                found[:, i] += digit.radix[name] * code.to_numpy(np.int64)
        return found

    def inputs(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the encoded rows."""
        return self.encoder.transform(rows).astype(np.float64)
