"""A silo's rows as it lets a coordinator count and sum them.

Every set of rows that a number is about is one that the silo's account admits
(`remote/disclosed.py`): levels of a column that are too rare are counted together, neighbouring
values of a number are counted as one, a (cell, label) pair of too few rows is withheld, and so are
more of them until nothing can be subtracted. Without a floor (`min_rows = 1`) nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import SPLITS, Encoder, EncoderStatistics, Split
from mfairfl.data.assembly import ClientRows, split_client
from mfairfl.data.binning import Histogram, stand_in, value_groups
from mfairfl.data.columns import Column
from mfairfl.data.sums import NumericStatistics
from mfairfl.data.table import Table
from mfairfl.fairness.cells import Cells
from mfairfl.guard.row_sets import NOWHERE, RowClasses
from mfairfl.remote.disclosed import Disclosed
from mfairfl.remote.ledger import RowSetFacts

__all__ = ["SplitTerms", "ToldRows", "tell_rows"]

Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
_FINEST = 256  # groups of a column's values; no bin of an encoder needs more
_OTHERS: tuple[Split, ...] = ("validation", "test")


@dataclass(frozen=True, slots=True)
class SplitTerms:
    """How a run asks for rows to be split."""

    seed: int
    test: float
    validation: float


@dataclass(frozen=True, slots=True)
class ToldRows:
    """The rows of a silo, split, with what is told about them.

    Parameters
    ----------
    silo : ClientRows
        The rows of each split.
    hidden : mapping of split to ndarray (C, 2)
        Which (cell, label) pairs are withheld: no rows, few, or others that hide those.
    account : Disclosed, optional
        What was told before; None where there is no floor.
    """

    silo: ClientRows
    hidden: Mapping[Split, NDArray[np.bool_]]
    account: Disclosed | None = None
    _parts: Codes = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def table(self) -> Table:
        """The rows."""
        return self.silo.table

    def cells(self, split: Split) -> Codes:
        """Return each row's cell; of a pair that is withheld, the number of cells."""
        rows, table = self.silo.rows[split], self.table
        cells = table.cells_of(rows).astype(np.int32)
        return np.where(self.hidden[split][cells, table.y[rows]], len(self.hidden[split]), cells)

    def counts(self, split: Split) -> tuple[NDArray[np.int64], int]:
        """Return the rows per (cell, label) that are told, (C, 2), and how many are withheld."""
        cells, size = self.cells(split).astype(np.int64), len(self.hidden[split])
        strata = 2 * cells + self.table.y[self.silo.rows[split]]
        counts = np.bincount(strata, minlength=2 * size + 2).reshape(size + 1, 2)
        return counts[:size], int(counts[size].sum())

    @property
    def row_sets(self) -> list[RowSetFacts]:
        """What was told about them in the present answer."""
        return [] if self.account is None else self.account.used

    def features(self, encoder: Encoder) -> pd.DataFrame:
        """Return the features; numbers that are beyond a scale do not end the encoding.

        Whether one is would be an answer about a single row.
        """
        X = self.table.X
        if self.account is None:
            return X
        for fitted in encoder.numeric:
            reach = fitted.scale * float(np.finfo(np.float32).max) * 0.99
            low, high = fitted.mean - reach, fitted.mean + reach
            if fitted.name in X and not X[fitted.name].dropna().between(low, high).all():
                X = X.assign(**{fitted.name: X[fitted.name].clip(low, high)})
        return X

    def bundles(self) -> NDArray[np.int64] | None:
        """Return a number for each train row: rows of one number are trained on together."""
        if self.account is None:
            return None
        rows, strata = self.silo.rows["train"], np.full(self.account.rows, NOWHERE, np.int32)
        cells = self.cells("train")
        y = np.where(cells == len(self.hidden["train"]), 0, self.table.y[rows])  # withheld: one
        strata[self._places[rows]] = 2 * cells + y
        found = self.account.bundles(strata, self.silo.name)[self._places[rows]]
        return found.astype(np.int64)

    # ------------------------------------------------------------------ sums

    def sums(self) -> dict[str, EncoderStatistics]:
        """Return what the encoder is fitted from: of the train rows, and of the others."""
        plain = {"train": self.silo.statistics("train"), "others": self.silo.statistics(*_OTHERS)}
        if self.account is None:
            return plain
        task = self.table.task
        levels = {c: self._levels(c) for c in task.categorical or ()}
        numeric = task.numeric or ()
        candidates = [
            *(self._candidate(f"levels of '{c}'", own) for c, (_, own) in levels.items()),
            *(self._missing(column) for column in numeric),
        ]
        found = dict(zip([*levels, *numeric], self.account.admit(candidates), strict=True))
        named = {
            column: {n for n, group in zip(names, found[column], strict=True) if group != NOWHERE}
            for column, (names, _) in levels.items()
        }
        summed = {c: self._summed(c, _told_apart(found[c])) for c in numeric}
        return {part: self._with_floor(part, own, named, summed) for part, own in plain.items()}

    def _with_floor(
        self,
        part: str,
        plain: EncoderStatistics,
        named: Mapping[str, set[str]],
        summed: Mapping[str, Floats],
    ) -> EncoderStatistics:
        """Leave out levels that are not named, and sum numbers as they may be."""
        splits: Sequence[Split] = ("train",) if part == "train" else _OTHERS
        rows = np.concatenate([self.silo.rows[split] for split in splits])
        return EncoderStatistics(
            numeric={
                c: NumericStatistics.of(self._enough(own[rows])) for c, own in summed.items()
            },
            categorical={
                column: {level: n for level, n in counts.items() if level in named[column]}
                for column, counts in plain.categorical.items()
            },
        )

    def _levels(self, column: str) -> tuple[list[str], Codes]:
        """Return the levels of a column, and each row's."""
        texts = Column.of(self.table.X, column).texts.astype(np.str_)
        names, classes = np.unique(texts, return_inverse=True)
        return names.tolist(), classes.astype(np.int32)

    def _missing(self, column: str) -> RowClasses:
        """Two classes: rows with a value, and without."""
        missing = np.isnan(self._numbers(column))
        return self._candidate(f"values of '{column}'", missing.astype(np.int32))

    def _numbers(self, column: str) -> Floats:
        return np.asarray(Column.of(self.table.X, column).numbers, dtype=np.float64)

    def _summed(self, column: str, told_apart: bool) -> Floats:
        """Return the numbers that are summed; how few of them are missing is not told."""
        if self.account is None:
            return self._numbers(column)
        numbers = self.account.pin(column, self._places, self._numbers(column))
        fill = np.nan if told_apart else self.account.fill(column)
        return np.where(np.isnan(numbers), fill, numbers)

    def _enough(self, numbers: Floats) -> Floats:
        """Return numbers, or none if they are those of few rows."""
        known = np.count_nonzero(~np.isnan(numbers))
        few = self.account is not None and known < self.account.floor
        return np.full(len(numbers), np.nan) if few else numbers

    # ------------------------------------------------------------------ histograms

    def histograms(self, cuts: Mapping[str, Floats]) -> list[Histogram]:
        """Count train rows between cuts; neighbouring values count as one, whatever the cuts."""
        if self.account is None:
            return [self.silo.histogram(column, given) for column, given in cuts.items()]
        columns = self.table.task.numeric or ()
        whole = [_told_apart(g) for g in self.account.admit([self._missing(c) for c in columns])]
        train = self.silo.rows["train"]
        numbers = [
            self._enough(self._summed(column, told)[train])
            for column, told in zip(columns, whole, strict=True)
        ]
        floor = self.account.floor
        classes = [_value_classes(held, floor) for held in numbers]
        found = self.account.admit(
            [
                self._candidate(f"bins of '{column}'", own, train, ordered=True)
                for column, own in zip(columns, classes, strict=True)
            ]
        )
        points = {
            column: _Points.of(held, _grouped(own, groups), floor)
            for column, held, own, groups in zip(columns, numbers, classes, found, strict=True)
        }
        return [points[column].histogram(given) for column, given in cuts.items()]

    def _candidate(
        self,
        what: str,
        classes: Codes,
        rows: NDArray[np.int64] | None = None,
        *,
        ordered: bool = False,
    ) -> RowClasses:
        """Return classes of rows of the table, train rows and others, or of some train rows."""
        places, parts = self._places, np.minimum(self._parts, 1)
        own, inside = np.zeros(len(parts), np.int32), np.full(len(parts), NOWHERE, np.int32)
        if rows is None:
            own[places], inside[places] = classes, parts[places]
        else:
            held = classes != NOWHERE
            own[places[rows[held]]], inside[places[rows[held]]] = classes[held], 0
        where = " in train and other rows" if rows is None else " in train rows"
        return RowClasses(what + where, inside, own, ordered)

    @property
    def _places(self) -> NDArray[np.intp]:
        return _places(self.table)


def tell_rows(name: str, table: Table, account: Disclosed | None, asked: SplitTerms) -> ToldRows:
    """Split a silo's rows, and say which (cell, label) pairs are withheld.

    Without an account the split is that of the run, as in the embedded engine.
    """
    size = Cells(table.attributes).size
    if account is None:
        silo = split_client(
            name, table, seed=asked.seed, test=asked.test, validation=asked.validation
        )
        return ToldRows(silo, {split: np.zeros((size, 2), dtype=bool) for split in SPLITS})
    places, strata = _places(table), np.full(account.rows, NOWHERE, np.int32)
    strata[places] = 2 * table.cells.astype(np.int32) + table.y
    parts = account.split(strata, name, asked.test, asked.validation)
    classes = np.maximum(strata, 0)
    candidates = [
        RowClasses(
            f"groups and labels of {split} rows",
            np.where(parts == part, 0, NOWHERE).astype(np.int32),
            classes,
        )
        for part, split in enumerate(SPLITS)
    ]
    hidden = {}
    for split, groups in zip(SPLITS, account.admit(candidates), strict=True):
        # A pair without rows looks like one of few: else it would be told where some are.
        told = np.bincount(strata[parts == SPLITS.index(split)], minlength=2 * size) > 0
        told[: len(groups)] &= groups != NOWHERE
        hidden[split] = ~told.reshape(size, 2)
    own = parts[places]
    rows = {split: np.flatnonzero(own == part) for part, split in enumerate(SPLITS)}
    return ToldRows(ClientRows(name, table, rows), hidden, account, parts)


def _places(table: Table) -> NDArray[np.intp]:
    """Return where the rows of a table are in its file."""
    return np.arange(len(table)) if table.places is None else table.places


def _told_apart(groups: Codes) -> bool:
    """Whether it is told how many rows lack a value."""
    return len(groups) < 2 or bool((groups != NOWHERE).all())


def _value_classes(numbers: Floats, floor: int) -> Codes:
    """Return the group of neighbouring values that each number is in; nowhere if it is missing."""
    classes, known = np.full(len(numbers), NOWHERE, np.int32), ~np.isnan(numbers)
    least = max(floor, -(-len(numbers) // _FINEST))
    classes[known] = value_groups(numbers[known], floor, least)
    return classes


def _grouped(classes: Codes, groups: Codes) -> Codes:
    found, held = classes.copy(), classes != NOWHERE
    found[held] = groups[classes[held]]
    return found


@dataclass(frozen=True, slots=True)
class _Points:
    """Groups of numbers, each counted as if all were at one point."""

    points: Floats
    counts: NDArray[np.int64]
    single: NDArray[np.bool_]

    @classmethod
    def of(cls, numbers: Floats, groups: Codes, floor: int) -> _Points:
        count = int(groups.max(initial=NOWHERE)) + 1
        found = [stand_in(numbers[groups == g], floor) for g in range(count)]
        counts = np.bincount(groups[groups != NOWHERE], minlength=count)
        return cls(np.array([p for p, _ in found]), counts, np.array([s for _, s in found], bool))

    def histogram(self, cuts: Floats) -> Histogram:
        """Count the rows between cuts."""
        place = np.searchsorted(cuts, self.points, side="right")
        counts = np.bincount(place, self.counts, len(cuts) + 1).astype(np.int64)
        alone = np.bincount(place, minlength=len(cuts) + 1)[place] == 1
        values = np.full(len(cuts) + 1, np.nan)
        values[place[alone & self.single]] = self.points[alone & self.single]
        return Histogram(cuts, counts, values)
